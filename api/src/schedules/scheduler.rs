//! The loop that submits the jobs of ticks. Every replica runs it; the queue guarantees exactly one job per tick
//! (`crates/queue/src/schedules.rs`), so no leader is needed.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use stokehold_objects::Error as ObjectsError;
use stokehold_queue::queue::Submitted;
use stokehold_queue::schedules::{Due, Schedules, TickError, Ticked};
use stokehold_queue::{Error as QueueError, RedisQueue};
use stokehold_supervise::{BoxError, Duty, Panic, guard_beside};
use tokio::time::{Instant, sleep};

use super::cron::Cron;
use super::plan::plan;
use super::{Error, stored_job};
use crate::endpoints::catalog;
use crate::files::stored;
use crate::jobs::{inputs, large_inputs};
use crate::state::App;
use crate::tenants::storage;
use crate::{metrics, problems};

/// Longest pause between two rounds: another replica may have added a schedule that ticks earlier than the next one
/// known here.
const ROUND: Duration = Duration::from_secs(1);

/// Shortest pause, which prevents a busy loop.
const BREATH: Duration = Duration::from_millis(5);

/// Timeout of one round.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Schedules that one round works on concurrently.
const AT_ONCE: usize = 16;

/// Delay before a schedule is retried when a service does not answer, or the schedule was changed meanwhile,
/// milliseconds.
const PUT_OFF_MS: u64 = 1_000;

/// Delay before a schedule is retried when this version cannot use its record, milliseconds.
const PUT_ASIDE_MS: u64 = 60_000;

/// Result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Ticks that have a job now, no matter which replica made it.
    pub(crate) ticks: u64,
    /// Time of the round by the queue's clock, Unix milliseconds.
    pub(crate) now_ms: u64,
    /// Time at which the next schedule is due, Unix milliseconds, if any is known.
    pub(crate) next_due_ms: Option<u64>,
}

/// The scheduler loop.
pub(crate) struct Scheduler {
    app: App,
    schedules: Schedules,
    shard: u8,
}

impl Scheduler {
    /// Creates the loop for the schedules of one shard.
    pub(crate) fn new(app: App, shard: &RedisQueue) -> Self {
        Self { app, schedules: shard.schedules(), shard: shard.number() }
    }

    /// Runs one round: every schedule that is due, up to the queue's limit.
    ///
    /// # Errors
    /// [`QueueError::Unavailable`]: the next round continues the work.
    pub(crate) async fn run_once(&self) -> Result<Summary, QueueError> {
        let round = self.schedules.due().await?;
        // Collected, because the compiler cannot check a borrowing stream of borrowing futures.
        let ticks: Vec<_> = round.due.iter().map(|due| self.tick_apart(due, round.now_ms)).collect();
        let done: Vec<(u64, Option<u64>)> =
            futures::stream::iter(ticks).buffer_unordered(AT_ONCE).try_collect().await?;
        let next_due_ms = done.iter().filter_map(|(_, next_ms)| *next_ms).chain(round.next_due_ms).min();
        Ok(Summary { ticks: done.iter().map(|(ticks, _)| ticks).sum(), now_ms: round.now_ms, next_due_ms })
    }

    /// Runs [`Self::tick`]; a schedule whose tick panics does not stop the others.
    async fn tick_apart(&self, due: &Due, now_ms: u64) -> Result<(u64, Option<u64>), QueueError> {
        match Box::pin(guard_beside(Self::NAME, self.tick(due, now_ms))).await {
            Ok(done) => done,
            Err(Panic { .. }) => self.put_off(due, now_ms + PUT_ASIDE_MS).await,
        }
    }

    /// Makes the jobs of one schedule's due ticks, then advances the schedule. Returns the number of jobs, and the time
    /// of the next check.
    async fn tick(&self, due: &Due, now_ms: u64) -> Result<(u64, Option<u64>), QueueError> {
        let (id, spec) = (&due.schedule.id, &due.schedule.spec);
        let Ok(cron) = Cron::parse(&spec.cron, &spec.time_zone) else {
            tracing::error!(schedule.id = id, cron = spec.cron, "a stored schedule's times can no longer be parsed");
            return self.put_off(due, now_ms + PUT_ASIDE_MS).await;
        };
        let plan = plan(&cron, due.due_ms, due.seen_ms, spec.missed, spec.grace_ms);
        let mut ticked = Ticked { next_ms: plan.next, ..Ticked::default() };
        for tick_ms in &plan.run {
            match self.submit(due, *tick_ms).await {
                Ok(Some(submitted)) => {
                    ticked.jobs += 1;
                    ticked.last = Some((*tick_ms, submitted.id()));
                    ticked.error = None;
                }
                // The schedule was deleted or paused since it was read.
                Ok(None) => return self.put_off(due, now_ms + PUT_OFF_MS).await,
                Err(error) if is_transient(&error) => {
                    tracing::warn!(schedule.id = id, error = &error as &dyn std::error::Error, "a tick must wait");
                    return self.put_off(due, now_ms + PUT_OFF_MS).await;
                }
                Err(error) => {
                    tracing::warn!(schedule.id = id, error = &error as &dyn std::error::Error, "a tick was refused");
                    let (code, message) = problems::code_and_detail(error);
                    ticked.error = Some(TickError { at_ms: *tick_ms, code, message });
                }
            }
        }
        if self.schedules.advance(due, &ticked).await? {
            metrics::ticked("submitted", ticked.jobs);
            metrics::ticked("refused", plan.run.len() as u64 - ticked.jobs);
            metrics::ticked("missed", plan.missed);
            if plan.missed > 0 {
                tracing::warn!(schedule.id = id, ticks = plan.missed, "ticks of a schedule were missed");
            }
        }
        Ok((ticked.jobs, ticked.next_ms))
    }

    async fn put_off(&self, due: &Due, look_ms: u64) -> Result<(u64, Option<u64>), QueueError> {
        self.schedules.put_off(due, look_ms).await?;
        Ok((0, Some(look_ms)))
    }

    /// Submits the job of a tick. Returns `None` when the schedule no longer exists.
    async fn submit(&self, due: &Due, tick_ms: u64) -> Result<Option<Submitted>, Error> {
        let mut job = stored_job(&self.app, &due.schedule.tenant, &due.schedule.job).await?;
        self.app.large_inputs.store_new(std::slice::from_mut(&mut job)).await?;
        let priority = job.spec.priority;
        let submitted = self.app.db.ask("submit a tick", self.schedules.submit(due, tick_ms, job)).await?;
        if let Some(Submitted::New(_)) = submitted {
            metrics::submitted(priority, 1);
        }
        Ok(submitted)
    }
}

impl Duty for Scheduler {
    const NAME: &'static str = "schedules";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const RETRY_DELAY: Duration = ROUND;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        let begun = Instant::now();
        let summary = self.run_once().await?;
        Ok(pause(&summary, begun.elapsed()))
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.app.wakeups.rescheduled(self.shard) => {}
        }
    }
}

/// Returns whether the same tick may succeed in a moment. Every other error is caused by the tick itself, and the
/// schedule continues without it.
fn is_transient(error: &Error) -> bool {
    let objects = |error: &ObjectsError| matches!(error, ObjectsError::Unavailable { .. });
    match error {
        Error::Database(error)
        | Error::Endpoint(catalog::Error::Database(error))
        | Error::Input(
            large_inputs::Error::Database(error) | large_inputs::Error::Storage(storage::Error::Database(error)),
        ) => error.is_transient(),
        Error::File(inputs::FileError::Objects(error))
        | Error::Input(
            large_inputs::Error::Objects(error)
            | large_inputs::Error::Storage(storage::Error::Objects(error))
            | large_inputs::Error::File(stored::Error::Objects(error)),
        ) => objects(error),
        Error::Request(_)
        | Error::Job(_)
        | Error::Refers(_)
        | Error::Endpoint(_)
        | Error::File(inputs::FileError::Missing(_))
        | Error::Input(
            large_inputs::Error::Storage(storage::Error::Exceeded { .. })
            | large_inputs::Error::File(stored::Error::Json(_))
            | large_inputs::Error::Reference(_),
        ) => false,
    }
}

/// Pause after a round that took `elapsed`.
fn pause(summary: &Summary, elapsed: Duration) -> Duration {
    let due = summary
        .next_due_ms
        .map_or(ROUND, |due_ms| Duration::from_millis(due_ms.saturating_sub(summary.now_ms)).saturating_sub(elapsed));
    due.clamp(BREATH, ROUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_wakes_on_the_dot_and_never_spins() {
        let after = |next_due_ms, elapsed_ms| {
            let summary = Summary { ticks: 0, now_ms: 10_000, next_due_ms };
            pause(&summary, Duration::from_millis(elapsed_ms))
        };
        assert_eq!(after(None, 0), ROUND);
        assert_eq!(after(Some(10_400), 0), Duration::from_millis(400));
        assert_eq!(after(Some(10_400), 150), Duration::from_millis(250), "the round itself took a part of the wait");
        assert_eq!(after(Some(99_000), 0), ROUND);
        assert_eq!(after(Some(9_000), 0), BREATH);
    }
}
