//! The only reader of time in this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a queue takes its time from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The queue's own: Redis TIME inside the scripts, the system's clock in memory.
    #[default]
    Own,
    /// A test's.
    Manual(ManualClock),
}

impl Clock {
    /// Now, unix milliseconds, read on this machine.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        match self {
            Self::Own => now_ms(),
            Self::Manual(clock) => clock.now_ms(),
        }
    }

    /// What a script is handed as `now_ms`: empty makes it ask Redis.
    pub(crate) fn script_arg(&self) -> String {
        match self {
            Self::Own => String::new(),
            Self::Manual(clock) => clock.now_ms().to_string(),
        }
    }
}

/// A clock that only moves when it is set. Clones share it.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `now_ms`.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(now_ms)))
    }

    /// The current time.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Moves it on.
    pub fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

/// The wall clock, unix milliseconds. For stamps that people read; nothing expires by it.
#[must_use]
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
