//! Control of a factor by the fraction of jobs that are late.

use serde::{Deserialize, Serialize};

/// An integral controller of a factor, with bounds against windup. The logarithm of the factor rises with each late job
/// and falls with each job in time, so that in the long run the wanted share is late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Steer {
    log: f64,
    late: u64,
    started: u64,
}

impl Steer {
    /// Records the total numbers of started jobs and late jobs.
    pub(super) fn note(&mut self, late: u64, started: u64, wanted: f64, gain: f64, bounds: (f64, f64)) {
        // Counters that decreased have restarted.
        let (new_late, new_started) = (late.saturating_sub(self.late), started.saturating_sub(self.started));
        (self.late, self.started) = (late, started);
        self.log += gain * (new_late as f64 - wanted * new_started as f64);
        self.log = self.log.clamp(bounds.0, bounds.1);
    }

    /// The factor.
    #[must_use]
    pub(super) fn factor(&self) -> f64 {
        self.log.exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_still_at_the_wanted_share_and_within_its_bounds() {
        let mut steer = Steer::default();
        let bounds = (-2.0, 3.0);
        steer.note(2, 100, 0.02, 0.03, bounds);
        assert!((steer.factor() - 1.0).abs() < 1e-9);
        steer.note(3, 100, 0.02, 0.03, bounds);
        assert!((steer.factor().ln() - 0.03).abs() < 1e-9, "one job was late");
        steer.note(1_003, 1_100, 0.02, 0.03, bounds);
        assert!((steer.factor().ln() - 3.0).abs() < 1e-9);
        steer.note(1_003, 1_000_000, 0.02, 0.03, bounds);
        assert!((steer.factor().ln() + 2.0).abs() < 1e-9);
        steer.note(0, 0, 0.02, 0.03, bounds);
        assert!((steer.factor().ln() + 2.0).abs() < 1e-9, "the counters began anew");
    }
}
