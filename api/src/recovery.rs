//! The recovery sweep: reads all records and restores index entries that they lack. It runs after Redis was restarted
//! or replaced, when a replica starts, and every five minutes. It finds nothing unless something else is wrong, and
//! logs what it finds.

use std::collections::BTreeMap;
use std::time::Duration;

use stokehold_queue::{Cursor, Error, RedisQueue};
use stokehold_supervise::{BoxError, Duty};
use tokio::time::{Instant, sleep};

use crate::metrics;
use crate::state::App;

const EVERY: Duration = Duration::from_secs(300);

/// Time for which a replica keeps the role after a sweep, milliseconds. It is a little longer than five minutes, so
/// that the others do not repeat the sweep. After a restart of Redis, the role is free again.
const ROLE_MS: u64 = 330_000;

/// Steps of one round. Each round renews the role.
const STEPS: usize = 100;

/// Timeout of a round: far more than its steps and pauses take, far less than the role lasts.
const ROUND_MAX: Duration = Duration::from_secs(120);

/// Ratio of pause to step: after each step, the sweep pauses this many times as long as the step took, which bounds its
/// share of Redis.
const REST: u32 = 19;
const REST_MAX: Duration = Duration::from_millis(100);

/// Result of a sweep.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    /// Records that were read.
    looked: u64,
    /// Restored entries, by kind.
    repaired: BTreeMap<String, u64>,
}

/// The recovery loop of one shard. Every replica has one; one of them works at a time.
pub(crate) struct Recovery {
    app: App,
    shard: RedisQueue,
    /// The sweep in progress, and its position.
    begun: Option<(Summary, Option<Cursor>)>,
}

impl Recovery {
    /// Creates the loop for one of the shards of `app`.
    pub(crate) fn new(app: App, shard: RedisQueue) -> Self {
        Self { app, shard, begun: None }
    }

    /// Continues the sweep, or begins one: at most [`STEPS`] steps. Returns `None` when the sweep is not complete.
    /// Reads nothing while another replica has the role.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the next sweep starts over.
    async fn run_once(&mut self) -> Result<Option<Summary>, Error> {
        let role = format!("recovery-{}", self.shard.health().vitals.run_id);
        let (mut summary, mut cursor) = self.begun.take().unwrap_or_default();
        if !self.shard.claim_role(&role, &self.app.replica, ROLE_MS).await? {
            return Ok(Some(summary));
        }
        for _ in 0..STEPS {
            let began = Instant::now();
            let step = self.shard.recover(cursor.as_ref()).await?;
            metrics::recovered(&step);
            summary.looked += u64::from(step.looked);
            for (kind, records) in step.repairs {
                *summary.repaired.entry(kind).or_default() += u64::from(records);
            }
            cursor = step.next;
            if cursor.is_none() {
                summary.log();
                return Ok(Some(summary));
            }
            sleep((began.elapsed() * REST).min(REST_MAX)).await;
        }
        self.begun = Some((summary, cursor));
        Ok(None)
    }
}

impl Duty for Recovery {
    const NAME: &'static str = "recovery";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const RETRY_DELAY: Duration = EVERY;
    /// The next sweep starts over.
    const CANCEL_ON_SHUTDOWN: bool = true;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        Ok(self.run_once().await?.map_or(Duration::ZERO, |_| EVERY))
    }

    async fn wait(&mut self, pause: Duration) {
        if pause.is_zero() {
            return;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = self.app.wakeups.redis_change(self.shard.number()) => {}
        }
    }
}

impl Summary {
    fn log(&self) {
        if self.repaired.is_empty() {
            tracing::debug!(records = self.looked, "the recovery check found every record in place");
        } else {
            let (records, repaired) = (self.looked, &self.repaired);
            tracing::error!(records, ?repaired, "the recovery check put misplaced records back");
        }
    }
}
