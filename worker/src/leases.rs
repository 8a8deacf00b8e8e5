//! The leases this worker holds, and the heartbeat that keeps them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stokehold_queue::gateway::{CardReach, ExtendAnswer, ExtendReply, ExtendRequest, LeaseRef, WorkerStatus};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::gateway::{Error, Gateway};

/// The leases held.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<HashMap<LeaseRef, Held>>,
}

struct Held {
    /// Cancelled when the lease is lost.
    lost: CancellationToken,
    /// Its attempt is under way; otherwise its end is on its way to the gateway.
    is_running: bool,
}

impl Leases {
    /// Takes a lease in; the token says when it is lost.
    pub(crate) fn hold(&self, lease: LeaseRef) -> CancellationToken {
        let lost = CancellationToken::new();
        self.lock().insert(lease, Held { lost: lost.clone(), is_running: true });
        lost
    }

    /// The attempt has ended. The lease is kept until the gateway knows.
    pub(crate) fn ended(&self, lease: &LeaseRef) {
        if let Some(held) = self.lock().get_mut(lease) {
            held.is_running = false;
        }
    }

    /// The gateway knows that it ended, or went back.
    pub(crate) fn forget(&self, lease: &LeaseRef) {
        self.lock().remove(lease);
    }

    /// Whether it is held still.
    pub(crate) fn holds(&self, lease: &LeaseRef) -> bool {
        self.lock().contains_key(lease)
    }

    /// How many have an attempt under way.
    pub(crate) fn running(&self) -> usize {
        self.lock().values().filter(|held| held.is_running).count()
    }

    fn refs(&self) -> Vec<LeaseRef> {
        self.lock().keys().cloned().collect()
    }

    fn lose(&self, lease: &LeaseRef, why: &str) {
        let Some(held) = self.lock().remove(lease) else { return };
        // An end that was taken, and is not answered yet, takes the lease with it.
        if held.is_running {
            tracing::warn!(job.id = %lease.job_id, fence = %lease.fence, why, "lease lost: its attempt is stopped");
            held.lost.cancel();
        }
    }

    fn lose_all(&self) {
        for lease in self.refs() {
            self.lose(&lease, "the gateway is silent");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseRef, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often and how long, as the gateway said at join.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    pub(crate) every: Duration,
    pub(crate) lease: Duration,
}

/// Extends all leases at once, until `shutdown`, and lets `told` know of each status that has arrived and of what
/// was asked for with the answer. When the gateway has been silent for nearly a lease, every attempt is stopped:
/// somebody else may get their jobs now.
pub(crate) async fn keep(
    leases: &Leases,
    gateway: &Gateway,
    rhythm: Rhythm,
    status: impl Fn() -> WorkerStatus,
    cards: impl Fn() -> Vec<CardReach>,
    told: impl Fn(&WorkerStatus, &ExtendReply),
    shutdown: CancellationToken,
) {
    let mut ticks = interval(rhythm.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answered = Instant::now();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return,
        }
        let asked = Instant::now();
        let request = ExtendRequest { leases: leases.refs(), cards: cards(), status: status() };
        match gateway.extend(&request, rhythm.every.max(Duration::from_secs(1))).await {
            Ok(reply) => {
                // From when it was asked: the lease runs from somewhere between the question and the answer.
                answered = asked;
                told(&request.status, &reply);
                for (lease, answer) in request.leases.iter().zip(reply.leases) {
                    match answer {
                        ExtendAnswer::Held => {}
                        ExtendAnswer::Lost => leases.lose(lease, "stale_fence"),
                    }
                }
            }
            Err(Error::Unauthorized) => {
                tracing::warn!("this worker's token is not accepted any more, joining again");
                if let Err(error) = gateway.join().await {
                    tracing::error!(%error, "cannot join again");
                }
            }
            Err(error) => tracing::warn!(%error, "heartbeat not answered"),
        }
        let held = leases.refs().len();
        if answered.elapsed() + rhythm.every >= rhythm.lease && held > 0 {
            tracing::error!(
                held,
                "the gateway has been silent for nearly a lease: stopping every attempt before others start them"
            );
            leases.lose_all();
        }
    }
}
