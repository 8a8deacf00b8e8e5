//! One subscription per replica: receives the queue's signals and passes them to their waiters.

use std::time::Duration;

use stokehold_queue::queue::{Signal, Work};
use tokio::sync::mpsc;

use crate::state::App;
use crate::supervise::{Duty, Failure};

/// The timeout of a round, which waits for nothing.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Hands signals on for as long as the subscription lasts.
pub(crate) struct Signals {
    app: App,
    heard: mpsc::Receiver<Signal>,
    next: Option<Signal>,
}

impl Signals {
    /// Dispatches the signals of this replica.
    pub(crate) fn new(app: App, heard: mpsc::Receiver<Signal>) -> Self {
        Self { app, heard, next: None }
    }

    fn hand_on(&self, signal: Signal) {
        let app = &self.app;
        match signal {
            Signal::Wake(waiter) => {
                if !app.pulls.wake(waiter) {
                    app.pulls.hand_on();
                }
            }
            Signal::Job(id) => app.waits.tell(id),
            Signal::Work(work) => app.work.tell(work),
            // The autoscaler's business.
            Signal::Unmet => {}
            Signal::Missed => {
                app.waits.tell_all();
                Work::ALL.into_iter().for_each(|work| app.work.tell(work));
                app.pulls.wake_all();
            }
        }
    }
}

impl Duty for Signals {
    const NAME: &'static str = "signals";
    const ROUND_MAX: Duration = ROUND_MAX;

    async fn round(&mut self) -> Result<Duration, Failure> {
        while let Some(signal) = self.next.take().or_else(|| self.heard.try_recv().ok()) {
            self.hand_on(signal);
        }
        Ok(Duration::ZERO)
    }

    /// Until the next signal.
    async fn rest(&mut self, _: Duration) {
        self.next = self.heard.recv().await;
        if self.next.is_none() {
            tracing::error!(
                "the subscription to the queue's signals ended; waits and lease polls fall back to polling every few seconds"
            );
            std::future::pending::<()>().await;
        }
    }
}
