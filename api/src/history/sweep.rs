//! Moves ended jobs from the queue to the archive: they are written first and deleted afterwards. A sweep that is
//! interrupted in between archives some jobs twice, which does not affect readers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use stokehold_queue::history::{DUE_MAX, Due};
use stokehold_queue::job::Job;
use stokehold_queue::{JobId, RedisQueue};
use stokehold_supervise::{BoxError, Duty};
use time::Date;
use tokio::time::{Instant, sleep};

use super::segment::{Line, Name, cut, day_of, day_prefix, pack};
use super::{Error, History};
use crate::metrics;
use crate::state::App;

/// Time after which a round starts nothing more; the next one continues.
const ROUND_MAX: Duration = Duration::from_secs(60);

/// Timeout of a round: work in progress may wait for the object store's timeouts.
const ROUND_LIMIT: Duration = Duration::from_secs(600);

/// Bounds of the pause between rounds, which is a twentieth of the retention. A longer pause makes fewer and larger
/// segments.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Number of due jobs that ends a pause, and the interval of that check: fast batches end thousands of jobs per second,
/// and one minute of them would fill the queue's memory.
const MANY: u64 = 2_000;
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Time for which a replica keeps the sweeping role without renewing it, milliseconds: longer than a round and one
/// write that reaches its timeouts.
const ROLE_MS: u64 = 180_000;

/// Segments that are written concurrently.
const WRITES_AT_ONCE: usize = 8;

/// Time after which a due job that has not ended is checked again, milliseconds.
const STAYING_AGAIN_MS: u64 = 60 * 60 * 1000;

/// Maximum number of days compacted in one round, and of merges per day.
const DAYS_TIDIED: usize = 8;
const MERGES_MAX: usize = 4;

/// Maximum number of days remembered as written to since their last compaction. A day that is dropped is compacted
/// after the next write to it.
const DAYS_NOTED: usize = 10_000;

/// Result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Jobs that were archived and deleted from the queue.
    pub(crate) archived: u64,
    /// Segments written for them.
    pub(crate) segments: u32,
    /// Number of merges of small or overlapping segments.
    pub(crate) merges: u32,
    /// Set when work was left for the next round.
    pub(crate) more: bool,
}

/// The sweep loop. Every replica has one; one of them works at a time.
pub(crate) struct Sweeper {
    app: App,
    pause: Duration,
    /// Days written to since their last compaction.
    untidy: BTreeSet<(String, Date)>,
}

impl Sweeper {
    /// Creates the loop for the queue and the archive of `app`.
    pub(crate) fn new(app: App) -> Self {
        let pause = Duration::from_millis(app.db.queue.retention_ms() / 20).clamp(PAUSE_MIN, PAUSE_MAX);
        Self { app, pause, untidy: BTreeSet::new() }
    }

    /// Sleeps until the pause ends or many jobs are due.
    async fn sleep(&self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            sleep(left.min(LOOK_EVERY)).await;
            if left <= LOOK_EVERY || self.is_crowded().await {
                return;
            }
        }
    }

    async fn is_crowded(&self) -> bool {
        for shard in self.app.db.queue.all() {
            if shard.history().count_due().await.is_ok_and(|due| due >= MANY) {
                return true;
            }
        }
        false
    }

    /// Runs one round: everything that is due on every shard, then the days it wrote to. Skips the shards for which
    /// another replica has the role.
    pub(crate) async fn run_once(&mut self) -> Result<Summary, Error> {
        let (deadline, mut summary, mut failure) = (Instant::now() + ROUND_MAX, Summary::default(), None);
        for shard in self.app.db.queue.clone().all() {
            if let Err(error) = self.sweep_shard(shard, deadline, &mut summary).await {
                failure = Some(error);
            }
        }
        summary.merges = self.tidy(deadline).await?;
        failure.map_or(Ok(summary), Err)
    }

    /// Sweeps everything that is due on a shard, unless another replica has the role.
    async fn sweep_shard(&mut self, shard: &RedisQueue, deadline: Instant, summary: &mut Summary) -> Result<(), Error> {
        loop {
            if !shard.claim_role("history", &self.app.replica, ROLE_MS).await? {
                return Ok(());
            }
            let due = shard.history().due(DUE_MAX).await?;
            let more = due.more;
            let swept = self.sweep(shard, due).await?;
            summary.archived += swept.archived;
            summary.segments += swept.segments;
            if more && Instant::now() >= deadline {
                summary.more = true;
            }
            if !more || summary.more {
                return Ok(());
            }
        }
    }

    /// Archives due jobs and deletes them from the queue.
    async fn sweep(&mut self, shard: &RedisQueue, due: Due) -> Result<Summary, Error> {
        let queue = shard.history();
        for (id, error) in &due.corrupt {
            // The job stays, and is quarantined for an operator.
            shard.quarantine().put(*id, &format!("the job cannot be archived: {error}")).await?;
        }
        let open: Vec<JobId> = due.jobs.iter().filter(|job| !job.state.is_terminal()).map(|job| job.id).collect();
        for id in &open {
            tracing::error!(job.id = %id, "a job due for archiving has not ended; leaving it in Redis");
        }
        queue.defer(&open, STAYING_AGAIN_MS).await?;
        queue.forget(&due.gone).await?;

        let mut days: BTreeMap<(String, Date), Vec<Line>> = BTreeMap::new();
        for job in due.jobs.iter().filter(|job| job.state.is_terminal()) {
            days.entry(place(job)).or_default().push(Line::of(job)?);
        }
        drop(due);
        let pieces =
            days.into_iter().flat_map(|(place, lines)| cut(lines).into_iter().map(move |piece| (place.clone(), piece)));
        let history = &self.app.history;
        let writes = pieces.map(|(place, piece)| async move {
            let ids: Vec<JobId> = piece.iter().map(|line| line.id).collect();
            history.write(&place.0, place.1, piece).await.map(|()| (place, ids))
        });
        let written: Vec<_> = stream::iter(writes).buffer_unordered(WRITES_AT_ONCE).collect().await;
        let (mut summary, mut failed) = (Summary::default(), None);
        for outcome in written {
            match outcome {
                Ok((place, ids)) => {
                    // The segments are durable by now: only archived jobs are deleted.
                    queue.forget(&ids).await?;
                    metrics::archived(ids.len());
                    summary.archived += ids.len() as u64;
                    summary.segments += 1;
                    if self.untidy.len() < DAYS_NOTED {
                        self.untidy.insert(place);
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(summary), Err)
    }

    /// Merges segments of days that were written to, until the deadline.
    async fn tidy(&mut self, deadline: Instant) -> Result<u32, Error> {
        let mut merges = 0;
        for _ in 0..DAYS_TIDIED {
            if Instant::now() >= deadline {
                break;
            }
            let Some((tenant, day)) = self.untidy.pop_first() else { break };
            for round in 1..=MERGES_MAX {
                if !self.app.history.compact(&tenant, day).await? {
                    break;
                }
                merges += 1;
                if round == MERGES_MAX {
                    self.untidy.insert((tenant.clone(), day));
                }
            }
        }
        Ok(merges)
    }
}

impl Duty for Sweeper {
    const NAME: &'static str = "history";
    const ROUND_TIMEOUT: Duration = ROUND_LIMIT;
    /// The next round continues the work.
    const CANCEL_ON_SHUTDOWN: bool = true;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        Ok(if self.run_once().await?.more { Duration::ZERO } else { self.pause })
    }

    async fn wait(&mut self, pause: Duration) {
        if !pause.is_zero() {
            self.sleep(pause).await;
        }
    }
}

/// Tenant and day under which a job is archived.
fn place(job: &Job) -> (String, Date) {
    (job.spec.tenant.clone(), day_of(job.id))
}

impl History {
    /// Writes one segment of sorted lines. Once this returns, it is durable.
    pub(crate) async fn write(&self, tenant: &str, day: Date, lines: Vec<Line>) -> Result<(), Error> {
        let Some(name) = Name::of(&lines) else { return Ok(()) };
        let key = format!("{}{name}", day_prefix(tenant, day));
        let packed = tokio::task::spawn_blocking(move || pack(&lines)).await;
        let packed =
            packed.map_err(|_| Error::Corrupt { key: key.clone(), why: "compressing it panicked".to_owned() })??;
        self.objects.put(&key, packed, "application/zstd").await?;
        Ok(())
    }
}
