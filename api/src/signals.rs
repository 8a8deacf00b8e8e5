//! One subscription per replica: receives the queue's signals and passes them to their waiters.

use std::time::Duration;

use stokehold_queue::now_ms;
use stokehold_queue::queue::{KeptOutputs, RelayedOutputs, Signal, Work};
use stokehold_supervise::{BoxError, Duty};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::state::App;

/// Timeout of a round, which does not wait.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Interval between two reports that the subscription has ended.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Passes signals on for as long as the subscription lasts.
pub(crate) struct Signals {
    app: App,
    signals: mpsc::Receiver<Signal>,
    next: Option<Signal>,
}

impl Signals {
    /// Creates the dispatcher of this replica's signals.
    pub(crate) fn new(app: App, signals: mpsc::Receiver<Signal>) -> Self {
        Self { app, signals, next: None }
    }

    /// Passes outputs of a run whose worker is connected to another replica to their readers.
    fn relay(&self, RelayedOutputs { job_id, attempt, index, values }: RelayedOutputs) {
        match serde_json::from_str(&values) {
            Ok(values) => {
                self.app.job_watchers.relay(job_id, KeptOutputs { attempt, index, values, at_ms: now_ms() });
            }
            Err(error) => tracing::error!(%error, job.id = %job_id, "relayed outputs cannot be read"),
        }
    }

    fn hand_on(&self, signal: Signal) {
        let app = &self.app;
        match signal {
            Signal::Wake(waiter) => {
                if !app.lease_polls.wake(waiter) {
                    app.lease_polls.hand_on();
                }
            }
            Signal::Job(id) => app.job_watchers.signal(id),
            Signal::Outputs(outputs) => self.relay(outputs),
            Signal::Work(work) => app.wakeups.notify(work),
            // Only the autoscaler uses this signal.
            Signal::Unmet => {}
            Signal::Missed => {
                app.job_watchers.signal_all();
                Work::ALL.into_iter().for_each(|work| app.wakeups.notify(work));
                app.lease_polls.wake_all();
            }
        }
    }
}

impl Duty for Signals {
    const NAME: &'static str = "signals";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const RETRY_DELAY: Duration = RETRY_DELAY;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        while let Some(signal) = self.next.take().or_else(|| self.signals.try_recv().ok()) {
            self.hand_on(signal);
        }
        if self.signals.is_closed() {
            return Err(
                "the subscription to the queue's signals has ended; requests that wait look every few seconds".into()
            );
        }
        Ok(Duration::ZERO)
    }

    /// Waits for the next signal.
    async fn wait(&mut self, pause: Duration) {
        if self.signals.is_closed() {
            sleep(pause).await;
        } else {
            self.next = self.signals.recv().await;
        }
    }
}
