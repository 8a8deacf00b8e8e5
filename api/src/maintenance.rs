//! Periodic maintenance of the queue: due jobs become ready, expired leases are reaped, late jobs expire. These are
//! three duties that do not wait for each other. Every replica runs them; running one twice changes nothing.

use std::time::Duration;

use stokehold_queue::queue::Swept;
use stokehold_queue::{Queue, now_ms};
use stokehold_supervise::{BoxError, Duty};

use crate::metrics;
use crate::state::App;

/// Longest pause between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// Timeout of one round.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Interval at which metrics are folded.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Makes due jobs ready.
pub(crate) struct Promote(pub(crate) App);

/// Requeues jobs whose leases have expired.
pub(crate) struct Reap(pub(crate) App);

/// Ends jobs whose deadline has passed.
pub(crate) struct Expire(pub(crate) App);

/// Folds metrics.
pub(crate) struct Upkeep(pub(crate) App);

impl Duty for Promote {
    const NAME: &'static str = "promote";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        let swept = self.0.db.queue.promote().await?;
        metrics::promoted(swept.jobs);
        Ok(pause(swept, now_ms()))
    }
}

impl Duty for Reap {
    const NAME: &'static str = "reap";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        #[cfg(feature = "mutants")]
        assert!(!stokehold_queue::mutants::is("duty-not-restarted"), "planted");
        let swept = self.0.db.queue.reap().await?;
        metrics::reaped(swept.jobs);
        Ok(pause(swept, now_ms()))
    }
}

impl Duty for Expire {
    const NAME: &'static str = "expire";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        let swept = self.0.db.queue.expire().await?;
        metrics::expired(swept.jobs);
        Ok(pause(swept, now_ms()))
    }
}

impl Duty for Upkeep {
    const NAME: &'static str = "upkeep";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const BLOCKS_READINESS: bool = false;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        metrics::upkeep(self.0.lease_polls.parked());
        Ok(UPKEEP_EVERY)
    }
}

/// Pause after a round. A full round may have left jobs behind, so the next one follows at once.
fn pause(swept: Swept, now_ms: u64) -> Duration {
    /// Maximum number of jobs that one `promote`, `reap` or `expire` moves.
    const FULL: u32 = 100;
    if swept.jobs >= FULL {
        return Duration::ZERO;
    }
    let due = swept.next_due_ms.map_or(ROUND, |due_ms| Duration::from_millis(due_ms.saturating_sub(now_ms)));
    // An overdue job that was not moved (the reaper pauses after a restart) must not cause a busy loop.
    due.clamp(Duration::from_millis(10), ROUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_follows_when_something_falls_due_but_never_spins() {
        let swept = |jobs, next_due_ms| Swept { jobs, next_due_ms };
        assert_eq!(pause(swept(0, None), 1_000), ROUND);
        assert_eq!(pause(swept(0, Some(1_250)), 1_000), Duration::from_millis(250));
        assert_eq!(pause(swept(0, Some(99_000)), 1_000), ROUND);
        assert_eq!(pause(swept(0, Some(500)), 1_000), Duration::from_millis(10));
        assert_eq!(pause(swept(100, None), 1_000), Duration::ZERO);
    }
}
