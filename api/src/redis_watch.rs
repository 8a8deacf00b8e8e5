//! Looks every second how Redis is. Admission opens and closes by it, and what a restart or a failover asks for begins here.

use std::time::Duration;

use stokehold_queue::{Error, RedisQueue};
use stokehold_supervise::{BoxError, Duty};

use crate::metrics;
use crate::state::App;

const EVERY: Duration = Duration::from_secs(1);

/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// The loop of one shard. Every replica has one, and looks for itself: it is its own clients that it turns away.
pub(crate) struct Watch {
    app: App,
    shard: RedisQueue,
    /// Whether admission was open at the last look.
    was_open: bool,
}

impl Watch {
    /// For one of the shards of `app`.
    pub(crate) fn new(app: App, shard: RedisQueue) -> Self {
        Self { app, shard, was_open: true }
    }

    /// One look.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: look again.
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
