//! Background work that any replica may do: the worker loops sleep here until the queue signals work.

use std::time::Duration;

use stokehold_queue::queue::Work;
use tokio::sync::Notify;
use tokio::time::timeout;

/// One bell per kind of work and shard.
pub(crate) struct Wakeups(Vec<Wakeup>);

#[derive(Default)]
struct Wakeup {
    hooks: Notify,
    settle: Notify,
    batches: Notify,
}

impl Wakeups {
    /// Notifiers for this number of shards.
    pub(crate) fn new(shards: usize) -> Self {
        Self((0..shards).map(|_| Wakeup::default()).collect())
    }

    /// Notifies every shard. A notification without a waiter is kept, once.
    pub(crate) fn tell(&self, work: Work) {
        self.0.iter().for_each(|bell| bell.of(work).notify_one());
    }

    /// Waits for the shard's notification, at most `longest`: a signal may be lost, so no wait is unlimited.
    pub(crate) async fn wait(&self, work: Work, shard: u8, longest: Duration) {
        let _ = timeout(longest, self.0[usize::from(shard)].of(work).notified()).await;
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
