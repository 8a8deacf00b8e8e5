//! What a worker does beside its jobs: memory that is given back, models that stay loaded, environments fetched ahead, cards held.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stokehold_ledger::{Claim, Need};
use stokehold_queue::gateway::{CardReach, HoldCard, LeaseRequest, LeasedJob, ModelRef, Offer};
use stokehold_queue::job::JobError;
use tokio::time::Instant;

use super::Worker;

/// A model that is to stay loaded and could not be loaded is tried again after this.
const LOAD_AGAIN: Duration = Duration::from_secs(60);

impl Worker {
    /// Joins again whenever the gateway refuses this worker's token.
    pub(super) async fn stay_joined(self: Arc<Self>) {
        match self.gateway.stay_joined().await {}
    }

    /// Gives memory back whenever a card turns out to be short of it, and takes back what was offered of one that takes no work any more.
    pub(super) async fn relieve(self: Arc<Self>) {
        let mut changed = self.cards.changed();
        while changed.changed().await.is_ok() {
            if self.offers_closed() {
                self.ask_again.notify_one();
            }
            self.attempts.pool.relieve().await;
        }
    }

    /// Has those models loaded that the gateway wants loaded, jobs or not.
    pub(super) async fn keep_warm(self: Arc<Self>) {
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
                    tracing::warn!(endpoint.id = %model.endpoint, version = model.version, ?code, message, "a model that is to stay loaded cannot be loaded");
                    failed.insert(model, Instant::now());
                }
            }
        }
    }

    /// Fetches the environments of models whose jobs wait, one at a time.
    pub(super) async fn fetch_ahead(self: Arc<Self>) {
        let mut next = self.next.subscribe();
        while next.changed().await.is_ok() && !self.attempts.draining.is_cancelled() {
            let models = next.borrow_and_update().clone();
            for model in models {
                // What cannot be fetched is told to the first job that needs it.
                if let Err(error) = self.attempts.pool.fetch_ahead(&model).await {
                    let message = error.message;
                    tracing::debug!(endpoint.id = %model.endpoint, version = model.version, message, "cannot be fetched ahead");
                }
            }
        }
    }

    /// Makes room on a card for a job that has waited for too long, and leases it. The claim is to become its reservation.
    pub(super) async fn hold(self: Arc<Self>, hold: HoldCard) -> Option<(Vec<LeasedJob>, Claim)> {
        let need = Need::of_mib(u64::from(hold.gib) * 1024, hold.gpus as usize);
        let claim = tokio::select! {
            claim = self.attempts.pool.hold(&need, &hold.cards) => claim?,
            () = self.attempts.draining.cancelled() => return None,
        };
        let reach = |index: &u32| CardReach { index: *index, reach_gib: hold.gib, whole_gib: hold.gib };
        let cards = claim.cards.iter().map(reach).collect();
        let offer = Offer { reach_gib: hold.gib, cards, ..Offer::default() };
        let request =
            LeaseRequest { want: 1, offer, only: Some(hold.class), fetches_inputs: true, ..LeaseRequest::default() };
        match self.gateway.lease(&request).await {
            Ok(reply) => Some((reply.leases, claim)),
            Err(error) => {
                tracing::warn!(%error, "cannot lease what a card was held for");
                None
            }
        }
    }
}
