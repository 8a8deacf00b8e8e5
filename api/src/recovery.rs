//! The recovery sweep: reads all records and puts back index entries that they lack. It runs when Redis was restarted
//! or replaced, when a replica starts, and every five minutes. It finds nothing unless something else is wrong, and
//! logs it if it does.

use std::collections::BTreeMap;
use std::time::Duration;

use stokehold_queue::{Cursor, Error, RedisQueue};
use stokehold_supervise::{BoxError, Duty};
use tokio::time::{Instant, sleep};

use crate::metrics;
use crate::state::App;

const EVERY: Duration = Duration::from_secs(300);

/// Who has swept keeps the role a little longer than that, so that the others need not; a new life of Redis has a role of its own.
const ROLE_MS: u64 = 330_000;

/// Steps of a round, which asks for the role again.
const STEPS: usize = 100;

/// The timeout of a round: far more than its steps and rests take, far less than the role lasts.
const ROUND_MAX: Duration = Duration::from_secs(120);

/// A sweep uses at most this part of Redis: it rests this many times as long as a step took.
const REST: u32 = 19;
const REST_MAX: Duration = Duration::from_millis(100);

/// What a sweep did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    /// Records looked at.
    looked: u64,
    /// What was put back, by kind.
    repaired: BTreeMap<String, u64>,
}

/// The loop of one shard. Every replica has one; one of them at a time works.
pub(crate) struct Recovery {
    app: App,
    shard: RedisQueue,
    /// The sweep that is under way, and where it goes on.
    begun: Option<(Summary, Option<Cursor>)>,
}

impl Recovery {
    /// For one of the shards of `app`.
    pub(crate) fn new(app: App, shard: RedisQueue) -> Self {
        Self { app, shard, begun: None }
    }

    /// Goes on with the sweep, or begins one: [`STEPS`] steps at most. `None` when it is not through; nothing is looked at while
    /// another replica has the role.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the next sweep begins anew.
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
                summary.tell();
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
    /// The next sweep begins anew.
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
    fn tell(&self) {
        if self.repaired.is_empty() {
            tracing::debug!(records = self.looked, "the recovery check found every record in place");
        } else {
            let (records, repaired) = (self.looked, &self.repaired);
            tracing::error!(records, ?repaired, "the recovery check put misplaced records back");
        }
    }
}
