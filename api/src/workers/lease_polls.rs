//! Parked lease polls: workers that wait for a job to lease. One wakeup reaches one of them. No wakeup and no lease is
//! lost when a worker disconnects midway.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{LeaseRef, Offer};
use stokehold_queue::queue::{Lease, LeaseQuery, Waiter};
use stokehold_queue::{Error as QueueError, Queue, Shards};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::database::{Error, QueueTimeout};
use crate::error::Problem;

/// Longest time between two checks of a parked poll. A wakeup can be lost with its connection, so a parked poll checks
/// the queue by itself.
const RELOOK: Duration = Duration::from_secs(10);

/// First and longest pause before a worker that holds its maximum number of leases checks again: once a lease has
/// ended, a job is available.
const FULL_PAUSE: Duration = Duration::from_millis(50);
const FULL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time over which all parked polls spread their checks after a break of the subscription.
const SPREAD: Duration = Duration::from_millis(250);

/// Parked polls of this replica. Clones share them.
#[derive(Clone)]
pub(crate) struct LeasePolls(Arc<Shared>);

struct Shared {
    queue: Shards,
    replica: String,
    timeout: QueueTimeout,
    next: AtomicU64,
    parked: Mutex<HashMap<u64, oneshot::Sender<Wake>>>,
    shutdown: CancellationToken,
}

/// Reasons for which a parked poll checks the queue again.
enum Wake {
    /// The poll was chosen: if it ends before it has checked, the next one must be woken.
    Chosen,
    /// Every parked poll checks.
    Everybody,
}

impl LeasePolls {
    pub(crate) fn new(queue: Shards, replica: String, timeout: QueueTimeout, shutdown: CancellationToken) -> Self {
        let (next, parked) = (AtomicU64::new(1), Mutex::default());
        Self(Arc::new(Shared { queue, replica, timeout, next, parked, shutdown }))
    }

    /// Leases the jobs that `query` asks for. `query` runs anew for each check, so its answer may change while the poll
    /// waits. The poll waits for the first job until `deadline`, and checks again when the worker's offer changes. The
    /// result is empty when the deadline has passed or the replica shuts down. When the future is dropped at any point,
    /// its leases return to the queue and its wakeup is passed on to another poll.
    pub(crate) async fn lease<Asked: Future<Output = Result<LeaseQuery, Problem>> + Send>(
        &self,
        query: impl Fn() -> Asked + Send,
        deadline: Option<Instant>,
        mut changes: watch::Receiver<Offer>,
    ) -> Result<Granted, Problem> {
        let Some(deadline) = deadline else {
            return self.look(query().await?).await;
        };
        let mut place = ParkedPoll::new(self);
        let mut pause = FULL_PAUSE;
        loop {
            // The worker's capability may have changed while the poll waited.
            let now = query().await?;
            let was_parked = place.parked.replace(now.reach.clone());
            let granted = self.look(LeaseQuery { park: Some(place.waiter.clone()), ..now }).await?;
            place.chosen = false;
            if granted.is_full {
                // The poll is not parked, and its wakeup has gone to another one.
                place.parked = was_parked;
                tokio::select! {
                    () = sleep(pause) => {}
                    () = sleep_until(deadline) => return Ok(Granted::nothing()),
                    () = self.0.shutdown.cancelled() => return Ok(Granted::nothing()),
                }
                pause = (pause * 2).min(FULL_PAUSE_MAX);
                continue;
            }
            if !granted.leases.is_empty() {
                place.parked = was_parked;
                return Ok(granted);
            }
            let relook = Instant::now() + RELOOK.mul_f64(0.8 + 0.4 * rand::random::<f64>());
            tokio::select! {
                wake = &mut place.wake => {
                    place.again();
                    match wake {
                        // One shard woke it: it is still in the lists of the other shards.
                        Ok(Wake::Chosen) => {
                            place.chosen = true;
                            place.parked = place.parked.take().filter(|_| self.0.queue.all().len() > 1);
                        }
                        Ok(Wake::Everybody) | Err(_) => sleep(SPREAD.mul_f64(rand::random())).await,
                    }
                }
                () = sleep_until(relook.min(deadline)) => {
                    if relook >= deadline {
                        return if place.unpark().await? { Ok(Granted::nothing()) } else {
                            // The poll was chosen just now: check once more for the job.
                            let granted = self.look(query().await?).await?;
                            place.chosen = false;
                            Ok(granted)
                        };
                    }
                }
                Ok(()) = changes.changed() => {}
                () = self.0.shutdown.cancelled() => return Ok(Granted::nothing()),
            }
        }
    }

    /// Delivers a wakeup. Returns `false` when that poll has ended.
    pub(crate) fn wake(&self, waiter: u64) -> bool {
        let place = lock(&self.0.parked).remove(&waiter);
        place.is_some_and(|place| place.send(Wake::Chosen).is_ok())
    }

    /// Wakes every parked poll to check the queue, because wakeups may have been lost.
    pub(crate) fn wake_all(&self) {
        for (_, place) in lock(&self.0.parked).drain() {
            let _ = place.send(Wake::Everybody);
        }
    }

    /// Passes a wakeup that found no waiter here on to another parked poll.
    pub(crate) fn hand_on(&self) {
        let queue = self.0.queue.clone();
        tokio::spawn(async move {
            if let Err(error) = queue.wake_next().await {
                tracing::warn!(%error, "a wakeup could not be passed on; the next poll finds its job");
            }
        });
    }

    /// Number of polls that are parked on this replica.
    pub(crate) fn parked(&self) -> usize {
        lock(&self.0.parked).len()
    }

    /// Checks the queue once, in a task of its own: dropping its future does not undo a call in progress, so its
    /// outcome must reach a poll.
    async fn look(&self, query: LeaseQuery) -> Result<Granted, Problem> {
        let (answer, answered) = oneshot::channel();
        let pulls = self.clone();
        tokio::spawn(async move {
            let outcome = pulls.0.queue.lease(query).await;
            let granted = match outcome {
                Ok(leases) => Ok(Granted { leases, queue: Some(pulls.0.queue.clone()), is_full: false }),
                Err(QueueError::Full) => Ok(Granted { leases: Vec::new(), queue: None, is_full: true }),
                Err(error) => Err(error),
            };
            // If the receiver is gone, dropping the result returns the leases.
            let _ = answer.send(granted);
        });
        match timeout(self.0.timeout.0, answered).await {
            Ok(Ok(granted)) => Ok(granted?),
            Ok(Err(_)) | Err(_) => Err(Error::Timeout { step: "lease" }.into()),
        }
    }

    /// Registers a poll's number, and returns the channel on which its wakeups arrive from now on.
    fn register(&self, number: u64) -> oneshot::Receiver<Wake> {
        let (sender, wake) = oneshot::channel();
        lock(&self.0.parked).insert(number, sender);
        wake
    }
}

/// A place among the parked polls. However it ends, its wakeup is passed on.
struct ParkedPoll {
    lease_polls: LeasePolls,
    waiter: Waiter,
    wake: oneshot::Receiver<Wake>,
    /// Capability with which the poll is, or may be, in the queue's lists.
    parked: Option<Capability>,
    /// Set when the poll was woken for a job and has not checked yet.
    chosen: bool,
}

impl ParkedPoll {
    fn new(pulls: &LeasePolls) -> Self {
        let number = pulls.0.next.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter { replica: pulls.0.replica.clone(), waiter: number };
        let wake = pulls.register(number);
        Self { lease_polls: pulls.clone(), waiter, wake, parked: None, chosen: false }
    }

    /// Prepares for the next wakeup.
    fn again(&mut self) {
        self.wake = self.lease_polls.register(self.waiter.waiter);
    }

    /// Removes the poll from the queue's list. Returns `false` when it was chosen meanwhile: the caller must check once
    /// more. The wakeup itself may still arrive. It finds no place here and is passed on, which costs another poll one
    /// check in vain at most.
    async fn unpark(&mut self) -> Result<bool, Problem> {
        let reach = self.parked.clone().unwrap_or_default();
        let unparked =
            self.lease_polls.0.timeout.ask("unpark", self.lease_polls.0.queue.unpark(&self.waiter, &reach)).await?;
        self.parked = None;
        self.chosen = !unparked;
        self.wake.close();
        Ok(unparked)
    }
}

impl Drop for ParkedPoll {
    fn drop(&mut self) {
        lock(&self.lease_polls.0.parked).remove(&self.waiter.waiter);
        if self.chosen || matches!(self.wake.try_recv(), Ok(Wake::Chosen)) {
            self.lease_polls.hand_on();
        } else if let Some(reach) = self.parked.take() {
            let (queue, waiter) = (self.lease_polls.0.queue.clone(), self.waiter.clone());
            tokio::spawn(async move {
                // A wakeup that crosses this call finds no place here and is passed on.
                if let Err(error) = queue.unpark(&waiter, &reach).await {
                    tracing::debug!(%error, "a lease poll stays parked after its worker disconnected; its wakeup will be passed on");
                }
            });
        }
    }
}

/// Leases that were granted but not sent to their worker yet. If they are dropped, they return to the front of their
/// lanes immediately instead of when they expire.
pub(crate) struct Granted {
    leases: Vec<Lease>,
    queue: Option<Shards>,
    /// Set when jobs are available and the worker holds its maximum number of leases.
    is_full: bool,
}

impl Granted {
    fn nothing() -> Self {
        Self { leases: Vec::new(), queue: None, is_full: false }
    }

    /// The granted leases.
    pub(crate) fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Marks the reply as sent: from here on the leases belong to the worker.
    pub(crate) fn told(mut self) {
        self.leases.clear();
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        let (Some(queue), false) = (self.queue.take(), self.leases.is_empty()) else {
            return;
        };
        let leases: Vec<LeaseRef> =
            self.leases.drain(..).map(|lease| LeaseRef { job_id: lease.job_id, fence: lease.fence }).collect();
        tracing::info!(
            leases = leases.len(),
            "a worker disconnected before it received its leases; requeueing the jobs"
        );
        tokio::spawn(async move {
            if let Err(error) = queue.release(&leases).await {
                tracing::warn!(%error, "leases could not be released; they expire by themselves");
            }
        });
    }
}

/// Locks the map. It is consistent at every unlock, so a poisoned lock is safe to use.
fn lock(parked: &Mutex<HashMap<u64, oneshot::Sender<Wake>>>) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Wake>>> {
    parked.lock().unwrap_or_else(PoisonError::into_inner)
}
