//! The trait of background duties.

use std::time::Duration;

use tokio::time::sleep;

/// The error of a round.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Work that a program does in rounds until it shuts down.
///
/// A duty keeps its state after a panic. A timeout can cancel a round at any await, and a shutdown or a test can cancel
/// a wait, so no duty relies on either being finished.
pub trait Duty: Send {
    /// The name in logs, in readiness reports and in the label `duty` of the metrics. Unique among the kinds of duties
    /// of a program.
    const NAME: &'static str;

    /// The timeout of one round.
    const ROUND_TIMEOUT: Duration;

    /// The wait before the first round.
    const INITIAL_DELAY: Duration = Duration::ZERO;

    /// The wait after a round that failed or timed out. After a panic the supervisor's backoff applies instead.
    const RETRY_DELAY: Duration = Duration::from_secs(1);

    /// Whether repeated panics of this duty make the program not ready: jobs make no progress without it.
    const BLOCKS_READINESS: bool = true;

    /// Whether a shutdown cancels a round at once. Otherwise the round may take 10 s more.
    const CANCEL_ON_SHUTDOWN: bool = false;

    /// Runs one round. Returns the wait before the next one.
    fn round(&mut self) -> impl Future<Output = Result<Duration, BoxError>> + Send;

    /// Waits between two rounds, for as long as the last round returned. A duty overrides this to start its next round
    /// on an event.
    fn wait(&mut self, pause: Duration) -> impl Future<Output = ()> + Send {
        sleep(pause)
    }

    /// Does the remaining work after the last round of a shutdown.
    fn shut_down(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
