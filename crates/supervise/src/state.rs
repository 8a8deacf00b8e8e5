//! The state of a duty.

/// A duty is failing once this number of its rounds in a row have failed.
pub const FAILING_AFTER: u32 = 5;

/// Why a round failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundFailure {
    /// It returned an error.
    Error,
    /// It did not end within its timeout.
    Timeout,
    /// It panicked.
    Panic,
}

impl RoundFailure {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Error, Self::Timeout, Self::Panic];

    /// The label `kind` of the metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
        }
    }
}

/// The state of a duty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DutyState {
    /// The name of the duty.
    pub name: &'static str,
    /// Whether repeated panics make the program not ready.
    pub blocks_readiness: bool,
    /// Rounds that have started.
    pub started: u64,
    /// Rounds in a row that failed in any way.
    pub failed_in_a_row: u32,
    /// Rounds in a row that panicked.
    pub panicked_in_a_row: u32,
}

impl DutyState {
    pub(crate) fn new(name: &'static str, blocks_readiness: bool) -> Self {
        Self { name, blocks_readiness, started: 0, failed_in_a_row: 0, panicked_in_a_row: 0 }
    }

    /// Whether the duty fails repeatedly.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failed_in_a_row >= FAILING_AFTER
    }

    /// Whether to log the next failure: of those in a row the first, second, fourth and so on, then every 64th. A duty may
    /// fail every second for hours, e.g. while Redis is out of memory.
    pub(crate) fn logs_failure(&self) -> bool {
        let failure = self.failed_in_a_row.saturating_add(1);
        failure.is_power_of_two() || failure.is_multiple_of(64)
    }

    /// Whether the program is not ready because of this duty. Errors and timeouts do not count: their causes are Redis
    /// and S3, which other replicas share.
    #[must_use]
    pub fn blocks_readiness_now(&self) -> bool {
        self.blocks_readiness && self.panicked_in_a_row >= FAILING_AFTER
    }

    pub(crate) fn finish(&mut self, failure: Option<RoundFailure>) {
        let count = |before: u32, again: bool| if again { before.saturating_add(1) } else { 0 };
        self.failed_in_a_row = count(self.failed_in_a_row, failure.is_some());
        self.panicked_in_a_row = count(self.panicked_in_a_row, failure == Some(RoundFailure::Panic));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duty_that_keeps_failing_is_logged_less_and_less_often() {
        let mut state = DutyState::new("tested", false);
        let logged = (1..=200).filter(|_| {
            let is_logged = state.logs_failure();
            state.finish(Some(RoundFailure::Error));
            is_logged
        });
        assert_eq!(logged.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64, 128, 192]);
        state.finish(None);
        assert!(state.logs_failure());
    }

    #[test]
    fn only_repeated_panics_block_readiness() {
        for failure in RoundFailure::ALL {
            for blocks_readiness in [true, false] {
                let mut state = DutyState::new("tested", blocks_readiness);
                for round in 1..=FAILING_AFTER {
                    state.finish(Some(failure));
                    assert_eq!(state.is_failing(), round == FAILING_AFTER, "{failure:?} {round}");
                }
                let expected = blocks_readiness && failure == RoundFailure::Panic;
                assert_eq!(state.blocks_readiness_now(), expected, "{failure:?} {blocks_readiness}");
                state.finish(None);
                assert!(!state.is_failing() && !state.blocks_readiness_now());
            }
        }
    }
}
