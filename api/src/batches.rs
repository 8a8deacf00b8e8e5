//! The background work of batches: lines are validated, fed, written to files as they end, and put together. Any
//! replica may do it; one at a time works on each batch, and another continues where a killed one stopped.
//!
//! A replica holds a role for a few seconds at a time while it works on a batch, which avoids duplicate work.
//! Correctness does not depend on it: every step is committed by a script that checks first.

pub(crate) mod bits;
mod budget;
mod collect;
mod complete;
mod feed;
mod guard;
pub(crate) mod lines;
pub(crate) mod pace;
mod prompt_order;
pub(crate) mod reader;
pub(crate) mod results;
pub(crate) mod routes;
mod stop;
mod tidy;
mod tried;
pub(crate) mod uploads;
mod validate;

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use moka::sync::Cache;
use stokehold_objects::Error as ObjectsError;
use stokehold_queue::batches::{Batch, BatchState, Batches, StopReason};
use stokehold_queue::budgets::Running;
use stokehold_queue::queue::Work;
use stokehold_queue::{Error as QueueError, RedisQueue, now_ms};
use stokehold_supervise::{BoxError, Duty, Panic, guard_beside};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

pub(crate) use budget::forecast;

use crate::endpoints::catalog;
use crate::jobs::large_inputs;
use crate::state::App;
use crate::{database, history};

/// Longest pause between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// Shortest pause between two rounds. It groups jobs that end one by one or by the thousand.
const BREATH: Duration = Duration::from_millis(100);

/// Longest wait of a round for permits, and the timeout of the round.
const TURNS_MAX: Duration = Duration::from_secs(30);
const ROUND_MAX: Duration = Duration::from_secs(60);

/// Batches that one replica works on at a time. Each takes some 30 MB at most.
const AT_ONCE: usize = 6;

/// Batches among these that may be in a stage that takes minutes. The other permits keep short stages running.
const LONG_AT_ONCE: usize = 2;

/// Number of cached bitmaps of lines, 1.25 MB each at most.
const BITMAPS_KEPT: u64 = 16;

/// Time for which a replica keeps its role for a batch without renewing it, milliseconds.
const HOLD_MS: u64 = 15_000;

/// Cache time of the list of running batches.
const RUNNING_FOR: Duration = Duration::from_secs(2);

/// Pause after a step that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause after a step that panicked.
const PANIC_PAUSE: Duration = Duration::from_secs(10);

/// Reasons for which a step failed. The batch stays as it is, and the step is retried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The queue failed.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// The object store failed.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// An object that the batch needs is missing.
    #[error("the object {key:?} no longer exists")]
    Missing {
        /// The object's key.
        key: String,
    },
    /// An endpoint cannot be looked up.
    #[error("an endpoint could not be looked up: {0}")]
    Endpoint(#[from] catalog::Error),
    /// The inputs of its jobs were not stored.
    #[error(transparent)]
    Input(#[from] large_inputs::Error),
    /// The record of a job cannot be read.
    #[error(transparent)]
    History(#[from] history::Error),
    /// Another replica has taken over.
    #[error("another replica has taken over")]
    Overtaken,
    /// An internal error, which indicates a bug.
    #[error("{0}")]
    Broken(String),
}

impl From<QueueError> for Error {
    fn from(error: QueueError) -> Self {
        Self::Database(error.into())
    }
}

/// The background loop. Clones share its state.
#[derive(Clone)]
pub(crate) struct Runner {
    app: App,
    shard: RedisQueue,
    batches: Batches,
    /// Batches that this replica is working on.
    busy: Arc<Mutex<HashSet<String>>>,
    at_once: Arc<Semaphore>,
    long_at_once: Arc<Semaphore>,
    bitmaps: Cache<String, Arc<bits::Lines>>,
    /// Running batches, for those that have a budget.
    running: Cache<(), Arc<Vec<Running>>>,
    tasks: TaskTracker,
    /// Time of this replica's last search for batches to clean up, Unix milliseconds.
    tidied: Arc<AtomicU64>,
}

impl Runner {
    /// Creates the loop for the batches of one shard.
    pub(crate) fn new(app: App, shard: RedisQueue) -> Self {
        Self {
            batches: shard.batches(),
            shard,
            app,
            busy: Arc::default(),
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            long_at_once: Arc::new(Semaphore::new(LONG_AT_ONCE)),
            bitmaps: Cache::new(BITMAPS_KEPT),
            running: Cache::builder().max_capacity(1).time_to_live(RUNNING_FOR).build(),
            tasks: TaskTracker::new(),
            tidied: Arc::default(),
        }
    }

    /// Runs one round: starts work on every open batch that this replica does not work on yet.
    pub(crate) async fn run_once(&self) -> Result<(), Error> {
        let until = Instant::now() + TURNS_MAX;
        // A failed clean-up only delays deletion; it must not delay open batches.
        if let Err(error) = self.tidy().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot clean up ended batches, trying again");
        }
        for id in self.batches.open().await? {
            if !self.lock().insert(id.clone()) {
                continue;
            }
            let working = Working { runner: self.clone(), id };
            // A batch that gets no permit in this round waits first in the next.
            let Ok(Ok(permit)) = timeout_at(until, self.at_once.clone().acquire_owned()).await else { return Ok(()) };
            self.tasks.spawn(async move {
                let _permit = permit;
                let (runner, id) = (&working.runner, &working.id);
                let work = Box::pin(runner.work(id));
                match guard_beside(Self::NAME, runner.app.shutdown.run_until_cancelled(work)).await {
                    Ok(None | Some(Ok(()) | Err(Error::Overtaken))) => {}
                    Ok(Some(Err(error))) => {
                        report(id, &error);
                        sleep(PAUSE).await;
                    }
                    // The same batch may panic again: it must not keep this replica busy.
                    Err(Panic { .. }) => {
                        tracing::error!(batch.id = id, "work on a batch panicked, trying again");
                        runner.app.shutdown.run_until_cancelled(sleep(PANIC_PAUSE)).await;
                    }
                }
            });
        }
        Ok(())
    }

    /// Moves one batch on until it has no work at present.
    async fn work(&self, id: &str) -> Result<(), Error> {
        loop {
            if !self.hold(id).await? {
                return Ok(());
            }
            let Some(batch) = self.batches.get(id).await? else { return Ok(()) };
            let long = matches!(batch.state, BatchState::Validating | BatchState::Finalizing);
            let turn = long.then(|| self.long_at_once.clone().try_acquire_owned()).transpose();
            // The next round tries it again.
            let Ok(_turn) = turn else { return Ok(()) };
            let more = match batch.state {
                BatchState::Validating => self.holding(&batch, Box::pin(self.validate(&batch))).await.map(|()| true)?,
                BatchState::Running => self.step(&batch).await?,
                BatchState::Finalizing => self.holding(&batch, Box::pin(self.complete(&batch))).await.map(|()| true)?,
                BatchState::Completed | BatchState::Failed | BatchState::Cancelled | BatchState::Expired => false,
            };
            if !more {
                return Ok(());
            }
        }
    }

    /// Runs one step of a running batch. Returns whether there may be more work at once.
    async fn step(&self, batch: &Batch) -> Result<bool, Error> {
        let now = now_ms();
        if batch.stop.is_none() && batch.spec.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now) {
            self.batches.stop(&batch.spec.tenant, &batch.id, StopReason::Expired).await?;
            return Ok(true);
        }
        if let (Some(why), None) = (batch.stop, batch.handed) {
            // The batch was stopped while it was validated.
            self.batches.stop(&batch.spec.tenant, &batch.id, why).await?;
            return Ok(true);
        }
        if batch.forecast.is_none() {
            self.foretell(batch).await?;
        }
        if self.ends_at_budget(batch).await? {
            return Ok(true);
        }
        if let Some(samples) = pace::sampled(&batch.samples, batch.succeeded + batch.failed, now) {
            self.batches.note_samples(&batch.id, &samples).await?;
        }
        // First the step that frees memory of the queue.
        let collected = self.collect(batch).await?;
        let fed = self.feed(batch).await?;
        if batch.open() == 0 {
            return Ok(self.batches.finalize(&batch.id).await? || collected);
        }
        if batch.stop == Some(StopReason::Cancelled) {
            self.holding(batch, Box::pin(self.cancel(batch))).await?;
        }
        Ok(fed || collected)
    }

    /// The invalid lines of a batch.
    async fn wrong_lines(&self, batch: &Batch) -> Result<Arc<bits::Lines>, Error> {
        match &batch.skip {
            Some(key) => self.bitmap(key).await,
            None => Ok(Arc::default()),
        }
    }

    /// A set of lines that is stored in S3.
    async fn bitmap(&self, key: &str) -> Result<Arc<bits::Lines>, Error> {
        if let Some(known) = self.bitmaps.get(key) {
            return Ok(known);
        }
        let bytes = self.app.objects.get(key, lines::LINES_MAX / 8 + 1).await?;
        let bytes = bytes.ok_or_else(|| Error::Missing { key: key.to_owned() })?;
        let lines = Arc::new(bits::Lines::from_bytes(&bytes));
        self.bitmaps.insert(key.to_owned(), lines.clone());
        Ok(lines)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Duty for Runner {
    const NAME: &'static str = "batches";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    /// A shutdown drops work in progress, as if this replica were killed.
    const CANCEL_ON_SHUTDOWN: bool = true;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        self.run_once().await?;
        Ok(ROUND)
    }

    async fn wait(&mut self, pause: Duration) {
        sleep(BREATH).await;
        self.app.wakeups.wait(Work::Batches, self.shard.number(), pause).await;
    }

    async fn shut_down(&mut self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn report(id: &str, error: &Error) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(batch.id = id, error, "a step of a batch failed, trying again");
}

/// Marks a batch as being worked on by this replica, until it is dropped.
struct Working {
    runner: Runner,
    id: String,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.runner.lock().remove(&self.id);
    }
}
