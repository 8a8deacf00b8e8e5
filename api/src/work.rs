//! Background work that any replica may do: who does it sleeps here until the queue says that there is some.

use std::time::Duration;

use stokehold_queue::queue::Work;
use tokio::sync::Notify;
use tokio::time::timeout;

/// One bell per kind of work.
#[derive(Default)]
pub(crate) struct Bells {
    hooks: Notify,
    settle: Notify,
    batches: Notify,
}

impl Bells {
    /// Rings. A ring that nobody waits for is kept, once.
    pub(crate) fn tell(&self, work: Work) {
        self.bell(work).notify_one();
    }

    /// Until the bell rings, or `longest` is over: a signal may be lost, so nobody waits for ever.
    pub(crate) async fn wait(&self, work: Work, longest: Duration) {
        let _ = timeout(longest, self.bell(work).notified()).await;
    }

    fn bell(&self, work: Work) -> &Notify {
        match work {
            Work::Hooks => &self.hooks,
            Work::Settle => &self.settle,
            Work::Batches => &self.batches,
        }
    }
}
