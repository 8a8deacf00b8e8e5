//! What keeps the queue moving when nobody calls: due jobs become ready, leases that ran out come back, late jobs expire. Every replica does it;
//! doing it twice changes nothing.

use std::time::Duration;

use stokehold_queue::{Error, Queue, now_ms};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics;
use crate::state::App;

/// The longest sleep between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// How long one round may take.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// How often metrics are folded.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Scheduled jobs made ready.
    pub promoted: u32,
    /// Leases taken back.
    pub reaped: u32,
    /// Jobs that ran out of time.
    pub expired: u32,
    /// When the next one falls due, unix milliseconds, if any is known.
    pub next_due_ms: Option<u64>,
}

/// The loop.
pub struct Maintenance {
    app: App,
    kept_up: Option<Instant>,
}

impl Maintenance {
    /// For the queue of `app`.
    #[must_use]
    pub fn new(app: App) -> Self {
        Self { app, kept_up: None }
    }

    /// Rounds until `shutdown`. A round that fails is tried again with the next.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let pause = match timeout(ROUND_MAX, self.run_once()).await {
                Ok(Ok(summary)) => pause(&summary, now_ms()),
                Ok(Err(error)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "queue maintenance failed, trying again");
                    ROUND
                }
                Err(_) => {
                    tracing::warn!("queue maintenance timed out, trying again");
                    ROUND
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// One round.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the next round does what this one did not.
    pub async fn run_once(&mut self) -> Result<Summary, Error> {
        let promoted = self.app.queue.promote().await?;
        let reaped = self.app.queue.reap().await?;
        let expired = self.app.queue.expire().await?;
        metrics::expired(expired.jobs);
        metrics::promoted(promoted.jobs);
        metrics::reaped(reaped.jobs);
        if self.kept_up.is_none_or(|at| at.elapsed() >= UPKEEP_EVERY) {
            self.kept_up = Some(Instant::now());
            metrics::upkeep(self.app.pulls.parked());
        }
        let next_due_ms = [promoted, reaped, expired].into_iter().filter_map(|swept| swept.next_due_ms).min();
        Ok(Summary { promoted: promoted.jobs, reaped: reaped.jobs, expired: expired.jobs, next_due_ms })
    }
}

/// How long to sleep. A full round may have left some behind, so the next follows at once.
fn pause(summary: &Summary, now_ms: u64) -> Duration {
    /// As many as one `promote`, `reap` or `expire` moves.
    const FULL: u32 = 100;
    if [summary.promoted, summary.reaped, summary.expired].into_iter().any(|moved| moved >= FULL) {
        return Duration::ZERO;
    }
    let due = summary.next_due_ms.map_or(ROUND, |due_ms| Duration::from_millis(due_ms.saturating_sub(now_ms)));
    // Something overdue that was not moved (the reaper holds back after a restart) must not make this spin.
    due.clamp(Duration::from_millis(10), ROUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_follows_when_something_falls_due_but_never_spins() {
        let summary = |promoted, next_due_ms| Summary { promoted, next_due_ms, ..Summary::default() };
        assert_eq!(pause(&summary(0, None), 1_000), ROUND);
        assert_eq!(pause(&summary(0, Some(1_250)), 1_000), Duration::from_millis(250));
        assert_eq!(pause(&summary(0, Some(99_000)), 1_000), ROUND);
        assert_eq!(pause(&summary(0, Some(500)), 1_000), Duration::from_millis(10));
        assert_eq!(pause(&summary(100, None), 1_000), Duration::ZERO);
    }
}
