//! The recovery sweep: goes through all records and puts back what one should stand in and does not. It runs when Redis has been
//! restarted or is another than before, when a replica starts, and every five minutes. It finds nothing unless something else is wrong: says so when it does.

use std::collections::BTreeMap;
use std::time::Duration;

use stokehold_queue::{Error, RedisQueue};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::metrics;
use crate::state::App;

const EVERY: Duration = Duration::from_secs(300);

/// Who has swept keeps the role a little longer than that, so that the others need not; a new life of Redis has a role of its own.
const ROLE_MS: u64 = 330_000;

/// The role is asked for again after so many steps.
const STEPS: usize = 100;

/// A sweep takes at most this part of Redis: it rests so many times as long as a step took.
const REST: u32 = 19;
const REST_MAX: Duration = Duration::from_millis(100);

/// What a sweep did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records looked at.
    pub looked: u64,
    /// What was put back, by kind.
    pub repaired: BTreeMap<String, u64>,
}

/// The loop of one shard. Every replica has one; one of them at a time works.
pub struct Recovery {
    app: App,
    shard: RedisQueue,
}

impl Recovery {
    /// For one of the shards of `app`.
    #[must_use]
    pub fn new(app: App, shard: RedisQueue) -> Self {
        Self { app, shard }
    }

    /// Sweeps at once and then until `shutdown`, which may cut one short: the next begins anew.
    pub async fn run(self, shutdown: CancellationToken) {
        loop {
            let swept = tokio::select! {
                swept = self.run_once() => swept,
                () = shutdown.cancelled() => return,
            };
            if let Err(error) = swept {
                tracing::warn!(error = &error as &dyn std::error::Error, "the recovery sweep was cut short");
            }
            tokio::select! {
                () = sleep(EVERY) => {}
                () = self.app.redis_changed[usize::from(self.shard.number())].notified() => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// One sweep over all records; none while another replica has the role.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: what it had not come to is left to the next one.
    pub async fn run_once(&self) -> Result<Summary, Error> {
        let role = format!("recovery-{}", self.shard.health().vitals.run_id);
        let (mut summary, mut cursor) = (Summary::default(), None);
        while self.shard.claim_role(&role, &self.app.replica, ROLE_MS).await? {
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
                    return Ok(summary);
                }
                sleep((began.elapsed() * REST).min(REST_MAX)).await;
            }
        }
        Ok(summary)
    }
}

impl Summary {
    fn tell(&self) {
        if self.repaired.is_empty() {
            tracing::debug!(records = self.looked, "all records stand where they should");
        } else {
            let (records, repaired) = (self.looked, &self.repaired);
            tracing::error!(records, ?repaired, "records did not stand where they should and were put back");
        }
    }
}
