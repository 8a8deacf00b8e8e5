//! Checks the state of Redis every second. Admission opens and closes by it, and the work after a restart or a failover
//! starts here.

use std::time::Duration;

use stokehold_queue::{Error, RedisQueue};
use stokehold_supervise::{BoxError, Duty};

use crate::metrics;
use crate::state::App;

const EVERY: Duration = Duration::from_secs(1);

/// Timeout of one check.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// The watch loop of one shard. Every replica checks for itself, because it admits its own clients.
pub(crate) struct Watch {
    app: App,
    shard: RedisQueue,
    /// Set when admission was open at the last check.
    was_open: bool,
}

impl Watch {
    /// Creates the loop for one of the shards of `app`.
    pub(crate) fn new(app: App, shard: RedisQueue) -> Self {
        Self { app, shard, was_open: true }
    }

    /// Runs one check.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the next check is a retry.
    pub(crate) async fn run_once(&mut self) -> Result<(), Error> {
        let shard = self.shard.number();
        if self.shard.look().await? {
            tracing::info!(shard, "Redis was restarted or replaced; checking its records");
            self.app.wakeups.redis_changed(shard);
        }
        let health = self.shard.health();
        metrics::redis(shard, &health);
        match health.refusal {
            Some(why) if self.was_open => tracing::warn!(shard, %why, "new work is refused from now on"),
            None if !self.was_open => tracing::info!(shard, "new work is accepted again"),
            _ => {}
        }
        self.was_open = health.refusal.is_none();
        Ok(())
    }
}

/// While Redis does not answer, its last state stays in effect.
impl Duty for Watch {
    const NAME: &'static str = "watch";
    const ROUND_TIMEOUT: Duration = LOOK_MAX;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        self.run_once().await?;
        Ok(EVERY)
    }
}
