//! Time: the system's clock, or a test's. Nothing else in the protocol and the queue reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The source of time for a queue.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The queue's own clock: Redis TIME inside the scripts, the system's clock in memory.
    #[default]
    Own,
    /// A clock set by a test.
    Manual(ManualClock),
}

impl Clock {
    /// The current time in Unix milliseconds, read on this host.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        match self {
            Self::Own => now_ms(),
            Self::Manual(clock) => clock.now_ms(),
        }
    }

    /// The `now_ms` argument of a script; if empty, the script reads Redis's clock.
    #[must_use]
    pub fn script_arg(&self) -> String {
        match self {
            Self::Own => String::new(),
            Self::Manual(clock) => clock.now_ms().to_string(),
        }
    }
}

/// A clock that moves only when it is set. Clones share it.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that shows `now_ms`.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(now_ms)))
    }

    /// The current time.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Advances the clock.
    pub fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

/// The wall clock in Unix milliseconds, for timestamps that people read. Nothing expires by it.
#[must_use]
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
