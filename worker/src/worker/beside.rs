//! Background tasks of a worker: freeing GPU memory, keeping models loaded, fetching environments ahead, and reserving
//! GPUs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stokehold_protocol::gateway::{GpuCapability, LeaseRequest, LeasedJob, ModelRef, Offer, ReserveGpus};
use stokehold_protocol::job::JobError;
use stokehold_supervise::Supervisor;
use stokehold_vram::{Claim, Need};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Worker;

/// Pause before a model that should stay loaded is tried again after a failure.
const LOAD_AGAIN: Duration = Duration::from_secs(60);

impl Worker {
    /// Starts the background tasks other than the heartbeat.
    pub(super) fn start_duties(self: &Arc<Self>, supervisor: &Supervisor) -> JoinSet<()> {
        let mut duties = JoinSet::new();
        let worker = Arc::clone(self);
        duties.spawn(supervisor.restart_on_panic("join", move || Arc::clone(&worker).stay_joined()));
        let worker = Arc::clone(self);
        duties.spawn(supervisor.restart_on_panic("relieve", move || Arc::clone(&worker).relieve()));
        let worker = Arc::clone(self);
        duties.spawn(supervisor.restart_on_panic("keep_warm", move || Arc::clone(&worker).keep_warm()));
        let worker = Arc::clone(self);
        duties.spawn(supervisor.restart_on_panic("fetch_ahead", move || Arc::clone(&worker).fetch_ahead()));
        duties
    }

    /// Joins again whenever the gateway refuses this worker's token.
    async fn stay_joined(self: Arc<Self>) {
        match self.gateway.stay_joined().await {}
    }

    /// Frees memory whenever a GPU is short of it, and withdraws the offer of a GPU that no longer accepts work.
    async fn relieve(self: Arc<Self>) {
        let mut changed = self.gpus.changed();
        while changed.changed().await.is_ok() {
            if self.offers_closed() {
                self.ask_again.notify_one();
            }
            self.attempts.pool.relieve().await;
        }
    }

    /// Loads the models that the gateway requests to stay loaded, even without jobs.
    async fn keep_warm(self: Arc<Self>) {
        let mut kept = self.kept.subscribe();
        let mut failed: HashMap<ModelRef, Instant> = HashMap::new();
        while kept.changed().await.is_ok() && !self.attempts.draining.is_cancelled() {
            let models = kept.borrow_and_update().clone();
            self.attempts.pool.keep(&models);
            failed.retain(|model, at| models.contains(model) && at.elapsed() < LOAD_AGAIN);
            for model in models {
                if failed.contains_key(&model) {
                    continue;
                }
                if let Err(error) = self.attempts.pool.load(&model).await {
                    let JobError { code, message, .. } = error;
                    tracing::warn!(endpoint.id = %model.endpoint, version = model.version, ?code, message, "cannot load a model that must stay loaded");
                    failed.insert(model, Instant::now());
                }
            }
        }
    }

    /// Fetches the environments of models with waiting jobs, one at a time.
    async fn fetch_ahead(self: Arc<Self>) {
        let mut next = self.next.subscribe();
        while next.changed().await.is_ok() && !self.attempts.draining.is_cancelled() {
            let models = next.borrow_and_update().clone();
            for model in models {
                // Errors are reported to the first job that needs the model.
                if let Err(error) = self.attempts.pool.fetch_ahead(&model).await {
                    let message = error.message;
                    tracing::debug!(endpoint.id = %model.endpoint, version = model.version, message, "cannot fetch a model ahead of its jobs");
                }
            }
        }
    }

    /// Makes room on a GPU for a job that has waited too long, and leases it. The claim becomes its reservation.
    pub(super) async fn reserve(self: Arc<Self>, wanted: ReserveGpus) -> Option<(Vec<LeasedJob>, Claim)> {
        let need = Need::of_mib(u64::from(wanted.gib) * 1024, wanted.gpus as usize);
        let claim = tokio::select! {
            claim = self.attempts.pool.claim(&need, &wanted.cards) => claim?,
            () = self.attempts.draining.cancelled() => return None,
        };
        let reach = |index: &u32| GpuCapability { index: *index, reach_gib: wanted.gib, whole_gib: wanted.gib };
        let gpus = claim.gpus.iter().map(reach).collect();
        let offer = Offer { reach_gib: wanted.gib, cards: gpus, ..Offer::default() };
        let request =
            LeaseRequest { want: 1, offer, only: Some(wanted.class), fetches_inputs: true, ..LeaseRequest::default() };
        match self.gateway.lease(&request).await {
            Ok(reply) => Some((reply.leases, claim)),
            Err(error) => {
                tracing::warn!(%error, "cannot lease the job that a GPU was reserved for");
                None
            }
        }
    }
}
