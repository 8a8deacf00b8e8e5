//! The delay before a duty that panicked runs again.

use std::time::Duration;

/// The delay before a duty that panicked runs again. It doubles with each panic in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first panic.
    pub first: Duration,
    /// The upper bound.
    pub max: Duration,
}

impl Default for Backoff {
    /// 1 s, 2 s, 4 s and so on, at most 60 s.
    fn default() -> Self {
        Self { first: Duration::from_secs(1), max: Duration::from_secs(60) }
    }
}

impl Backoff {
    /// The delay after this number of panics in a row. Zero after none.
    #[must_use]
    pub fn delay(&self, panics: u32) -> Duration {
        match panics.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => self.first.saturating_mul(1 << doublings.min(10)).min(self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_bound() {
        let delays = [0, 1, 2, 3, 6, 7, 8, u32::MAX].map(|panics| Backoff::default().delay(panics).as_secs());
        assert_eq!(delays, [0, 1, 2, 4, 32, 60, 60, 60]);
        let endless = Backoff { first: Duration::MAX, max: Duration::MAX };
        assert_eq!(endless.delay(2), Duration::MAX);
    }
}
