//! The time of the last contact with the gateway.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

/// A file in the data directory that the instance's start script watches; its content changes each time.
const FILE: &str = "reached";

/// Minimum interval between writes of that file.
const MARK_EVERY: Duration = Duration::from_secs(60);

/// Interval of checks: a sleep does not count the time in which the machine was suspended.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A clock that advances while the machine is suspended, from any origin.
type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The time of the last contact; initially, the time of creation.
pub(crate) struct Reached {
    clock: Clock,
    last_ms: AtomicU64,
    marked_ms: AtomicU64,
    mark: PathBuf,
}

impl Reached {
    /// Starts the time without contact.
    pub(crate) fn new(data_dir: &Path) -> Self {
        // If the kernel lacks this clock, no other one would be better.
        let boot = || clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
        Self::by(Arc::new(boot), data_dir)
    }

    pub(super) fn by(clock: Clock, data_dir: &Path) -> Self {
        let now = millis(clock());
        Self { clock, last_ms: AtomicU64::new(now), marked_ms: AtomicU64::new(0), mark: data_dir.join(FILE) }
    }

    /// Records a contact.
    pub(crate) fn now(&self) {
        let now = millis((self.clock)());
        self.last_ms.store(now, Ordering::Relaxed);
        let marked = self.marked_ms.load(Ordering::Relaxed);
        if marked != 0 && now.saturating_sub(marked) < millis(MARK_EVERY) {
            return;
        }
        self.marked_ms.store(now.max(1), Ordering::Relaxed);
        let mark = self.mark.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = std::fs::write(&mark, now.to_string()) {
                tracing::warn!(%error, "cannot record the last contact with the gateway");
            }
        });
    }

    /// Waits until the last contact is `limit` ago.
    pub(crate) async fn overdue(&self, limit: Duration) {
        loop {
            let left = self.left(limit);
            if left.is_zero() {
                return;
            }
            sleep(left.min(LOOK_EVERY)).await;
        }
    }

    /// Time left until then.
    pub(super) fn left(&self, limit: Duration) -> Duration {
        let now = millis((self.clock)());
        limit.saturating_sub(Duration::from_millis(now.saturating_sub(self.last_ms.load(Ordering::Relaxed))))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
