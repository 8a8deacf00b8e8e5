//! Notifications for the background duties of each shard, which sleep here until there is work.

use std::time::Duration;

use stokehold_queue::queue::Work;
use tokio::sync::Notify;
use tokio::time::timeout;

/// One notifier per kind of work and shard.
pub(crate) struct Wakeups(Vec<Wakeup>);

#[derive(Default)]
struct Wakeup {
    hooks: Notify,
    settle: Notify,
    batches: Notify,
    /// A schedule may tick sooner than its scheduler expects.
    schedules: Notify,
    /// The Redis of the shard was restarted or replaced.
    redis: Notify,
}

impl Wakeups {
    /// Creates notifiers for this number of shards.
    pub(crate) fn new(shards: usize) -> Self {
        Self((0..shards).map(|_| Wakeup::default()).collect())
    }

    /// Notifies every shard. A notification without a waiter is kept, once.
    pub(crate) fn notify(&self, work: Work) {
        self.0.iter().for_each(|shard| shard.of(work).notify_one());
    }

    /// Waits for the shard's notification, for at most `longest`: a signal may be lost, so no wait is unlimited.
    pub(crate) async fn wait(&self, work: Work, shard: u8, longest: Duration) {
        let _ = timeout(longest, self.0[usize::from(shard)].of(work).notified()).await;
    }

    /// Wakes the scheduler of a shard.
    pub(crate) fn reschedule(&self, shard: u8) {
        self.0[usize::from(shard)].schedules.notify_one();
    }

    /// Waits until [`Wakeups::reschedule`] is called for a shard.
    pub(crate) async fn rescheduled(&self, shard: u8) {
        self.0[usize::from(shard)].schedules.notified().await;
    }

    /// Reports that the Redis of a shard was restarted or replaced.
    pub(crate) fn redis_changed(&self, shard: u8) {
        self.0[usize::from(shard)].redis.notify_one();
    }

    /// Waits until [`Wakeups::redis_changed`] is called for a shard.
    pub(crate) async fn redis_change(&self, shard: u8) {
        self.0[usize::from(shard)].redis.notified().await;
    }
}

impl Wakeup {
    fn of(&self, work: Work) -> &Notify {
        match work {
            Work::Hooks => &self.hooks,
            Work::Settle => &self.settle,
            Work::Batches => &self.batches,
        }
    }
}
