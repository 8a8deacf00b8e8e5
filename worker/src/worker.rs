//! The life cycle of a worker: join, lease, run, report, drain.

mod beside;
mod report;
mod serve;
mod start;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stokehold_protocol::gateway::{ExtendReply, GpuHealth, ModelRef, Offer, ReserveGpus, WorkerStatus};
use stokehold_supervise::Supervisor;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::start::work;
use crate::attempt::Attempts;
use crate::backoff::Policy;
use crate::config::Config;
use crate::gateway::Gateway;
use crate::gpus::Gpus;
use crate::host::Host;
use crate::leases::{Leases, keep};
use crate::metrics;
use crate::rental::Reached;

/// Pause after a call that failed.
const PAUSE: Policy = Policy { min: Duration::from_secs(1), max: Duration::from_secs(1), jitter: 0.5..2.0 };

/// Maximum number of reports, releases or leases in one call.
const BATCH: usize = 100;

/// Runs a worker until `shutdown`, then drains it. Its runners are stopped when this returns. A rented instance that
/// has been out of contact with the gateway for too long is destroyed instead.
///
/// # Errors
/// If it cannot start, e.g. without uv or a data directory, or if the gateway rejects its join.
pub async fn run(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    run_supervised(config, Supervisor::default(), shutdown).await
}

/// Like [`run`], with the supervisor of the worker's background duties.
///
/// # Errors
/// Those of [`run`].
pub async fn run_supervised(config: Config, supervisor: Supervisor, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Some(rental) = config.rental.clone() else { return Box::pin(work(config, supervisor, None, shutdown)).await };
    let (reached, stop) = (Arc::new(Reached::new(&config.data_dir)), shutdown.child_token());
    let mut working = Box::pin(work(config, supervisor, Some(Arc::clone(&reached)), stop.clone()));
    tokio::select! {
        done = &mut working => return done,
        () = reached.overdue(rental.limit) => {}
    }
    tracing::error!(silent_s = rental.limit.as_secs(), "cannot reach the gateway; destroying this instance");
    // The running jobs lost their leases long ago. This cannot be undone: the provider may destroy the instance at any
    // time.
    stop.cancel();
    let left = async {
        if let Err(error) = working.await {
            tracing::error!(%error, "the worker failed while its instance is being destroyed");
        }
        shutdown.cancelled().await;
    };
    tokio::select! {
        never = rental.destroy() => match never {},
        () = left => Ok(()),
    }
}

struct Worker {
    config: Config,
    gateway: Arc<Gateway>,
    gpus: Gpus,
    host: Host,
    leases: Leases,
    attempts: Attempts,
    /// GPUs to reserve for large jobs.
    reservations: mpsc::Sender<ReserveGpus>,
    /// Models that should stay loaded even without jobs, and models with waiting jobs.
    kept: watch::Sender<Vec<ModelRef>>,
    next: watch::Sender<Vec<ModelRef>>,
    /// The offer of the waiting lease call; `None` if no call is waiting.
    asked: Mutex<Option<Offer>>,
    /// Requests that this call is made again.
    ask_again: Notify,
}

impl Worker {
    async fn send_heartbeats(self: Arc<Self>, stop: CancellationToken) {
        let pool = &self.attempts.pool;
        let report = || {
            let running = u32::try_from(self.leases.running()).unwrap_or(u32::MAX);
            metrics::running(running);
            let status = WorkerStatus {
                draining: self.attempts.draining.is_cancelled(),
                loaded: pool.loaded_names(),
                running,
                gpus: self.gpus.readings(),
                models: pool.models(),
                host: self.host.status(),
                starting: pool.starting(),
                learned: pool.learn(),
            };
            (status, pool.reach())
        };
        let on_reply = |status: &WorkerStatus, reply: &ExtendReply| {
            pool.mark_reported(&status.learned);
            pool.forget(&reply.forgotten);
            if let Some(wanted) = &reply.hold {
                // One at a time; the gateway repeats the others.
                let _ = self.reservations.try_send(wanted.clone());
            }
            if let Some(keep) = &reply.keep {
                self.kept.send_replace(keep.clone());
            }
            self.next.send_replace(reply.next.clone());
        };
        let changed = || pool.starting_changed();
        keep(&self.leases, &self.gateway, report, changed, on_reply, stop).await;
    }

    /// The current offer, if it exceeds that of the waiting lease call. `None` without GPUs, whose room is what
    /// changes.
    fn offers_more(&self) -> Option<Offer> {
        if self.gpus.list().is_empty() {
            return None;
        }
        let mut asked = self.asked.lock();
        let before = asked.as_mut()?;
        let offer = self.attempts.pool.offer();
        if !offer.exceeds(before) {
            return None;
        }
        before.clone_from(&offer);
        Some(offer)
    }

    /// Whether the waiting lease call offers room on a GPU that is now hot or faulty. Smaller changes do not justify
    /// cancelling the call: a response in transit would be lost with its leases.
    fn offers_closed(&self) -> bool {
        let asked = self.asked.lock();
        let Some(before) = asked.as_ref() else { return false };
        let closed: Vec<u32> = {
            let readings = self.gpus.readings();
            readings.iter().filter(|gpu| gpu.health != GpuHealth::Healthy).map(|gpu| gpu.index).collect()
        };
        before.cards.iter().any(|gpu| gpu.reach_gib > 0 && closed.contains(&gpu.index))
    }
}

async fn pause() {
    sleep(PAUSE.first()).await;
}
