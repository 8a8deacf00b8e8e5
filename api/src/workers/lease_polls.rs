//! Parked pulls: workers that wait for something to lease. One wake reaches one of them, and no wake and no lease is lost when a
//! worker goes away in the middle.

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

/// A wake can be lost with its connection, so a parked pull looks again on its own.
const RELOOK: Duration = Duration::from_secs(10);

/// A worker that holds as many leases as it may looks again after this, and at last after that: when one has ended, a job is there.
const FULL_PAUSE: Duration = Duration::from_millis(50);
const FULL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// After a break of the subscription all parked pulls look again, spread over this time.
const SPREAD: Duration = Duration::from_millis(250);

/// This replica's parked pulls. Clones share them.
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

/// Why a parked pull looks again.
enum Wake {
    /// It was chosen: if it goes away unseen, the next one must be.
    Chosen,
    /// Everybody looks.
    Everybody,
}

impl LeasePolls {
    pub(crate) fn new(queue: Shards, replica: String, timeout: QueueTimeout, shutdown: CancellationToken) -> Self {
        let (next, parked) = (AtomicU64::new(1), Mutex::default());
        Self(Arc::new(Shared { queue, replica, timeout, next, parked, shutdown }))
    }

    /// Leases what `query` asks for at each look, waiting for the first until `deadline`; looks again when it asks for something else. Empty when that has come or the replica shuts down. When the future is
    /// dropped at any point, what it was granted goes back and what it was woken for goes to another.
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
            // What there is to reach may have changed while it waited.
            let now = query().await?;
            let was_parked = place.parked.replace(now.reach.clone());
            let granted = self.look(LeaseQuery { park: Some(place.waiter.clone()), ..now }).await?;
            place.chosen = false;
            if granted.is_full {
                // It is not parked, and what it was woken for has gone to another.
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
                        // By one shard: it stands in the lists of the others still.
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
                            // Chosen just now: what it was chosen for is worth one more look.
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

    /// Delivers a wake. `false` when that pull is gone.
    pub(crate) fn wake(&self, waiter: u64) -> bool {
        let place = lock(&self.0.parked).remove(&waiter);
        place.is_some_and(|place| place.send(Wake::Chosen).is_ok())
    }

    /// Wakeups may have been lost: every parked poll checks the queue.
    pub(crate) fn wake_all(&self) {
        for (_, place) in lock(&self.0.parked).drain() {
            let _ = place.send(Wake::Everybody);
        }
    }

    /// A wakeup found no waiter here: another parked poll gets it.
    pub(crate) fn hand_on(&self) {
        let queue = self.0.queue.clone();
        tokio::spawn(async move {
            if let Err(error) = queue.wake_next().await {
                tracing::warn!(%error, "a wakeup could not be passed on; the next poll finds its job");
            }
        });
    }

    /// How many are parked here.
    pub(crate) fn parked(&self) -> usize {
        lock(&self.0.parked).len()
    }

    /// One check of the queue in a task of its own: dropping its future does not undo a call in progress, so its
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
            // When nobody takes the answer, dropping it gives the leases back.
            let _ = answer.send(granted);
        });
        match timeout(self.0.timeout.0, answered).await {
            Ok(Ok(granted)) => Ok(granted?),
            Ok(Err(_)) | Err(_) => Err(Error::Timeout { step: "lease" }.into()),
        }
    }

    /// Where wakes for this number arrive from now on.
    fn register(&self, number: u64) -> oneshot::Receiver<Wake> {
        let (sender, wake) = oneshot::channel();
        lock(&self.0.parked).insert(number, sender);
        wake
    }
}

/// A place among the parked polls. However it ends, a wakeup that was meant for it is passed on.
struct ParkedPoll {
    lease_polls: LeasePolls,
    waiter: Waiter,
    wake: oneshot::Receiver<Wake>,
    /// The reach with which it is, or may be, in the queue's lists.
    parked: Option<Capability>,
    /// It was woken for something and has not looked yet.
    chosen: bool,
}

impl ParkedPoll {
    fn new(pulls: &LeasePolls) -> Self {
        let number = pulls.0.next.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter { replica: pulls.0.replica.clone(), waiter: number };
        let wake = pulls.register(number);
        Self { lease_polls: pulls.clone(), waiter, wake, parked: None, chosen: false }
    }

    /// Ready for the next wake.
    fn again(&mut self) {
        self.wake = self.lease_polls.register(self.waiter.waiter);
    }

    /// Leaves the queue's list. `false` when it was chosen meanwhile: look once more. The wake itself may be on its way still; it
    /// will meet no place here and be handed on, which costs another pull one look in vain at most.
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
                // A wake that crosses this meets no place here and is handed on.
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
    /// Jobs are there, and the worker holds as many as it may.
    is_full: bool,
}

impl Granted {
    fn nothing() -> Self {
        Self { leases: Vec::new(), queue: None, is_full: false }
    }

    /// What was granted.
    pub(crate) fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// The reply was sent: from here on the leases are the worker's.
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

/// The map is whole at every unlock, so a panic elsewhere does not spoil it.
fn lock(parked: &Mutex<HashMap<u64, oneshot::Sender<Wake>>>) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Wake>>> {
    parked.lock().unwrap_or_else(PoisonError::into_inner)
}
