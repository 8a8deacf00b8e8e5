//! Divides the time of a process among its concurrent runs equally. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The running runs.
pub(super) struct Shared {
    now: Instant,
    /// Time share, in seconds, of a hypothetical run that started at the beginning.
    part_s: f64,
    /// Start time of each run, and `part_s` at that time.
    began: BTreeMap<u64, (Instant, f64)>,
}

impl Shared {
    pub(super) fn new(now: Instant) -> Self {
        Self { now, part_s: 0.0, began: BTreeMap::new() }
    }

    /// Starts a run.
    pub(super) fn begin(&mut self, run: u64, now: Instant) {
        self.pass(now);
        // A started run is not started again.
        self.began.entry(run).or_insert((now, self.part_s));
    }

    /// Ends a run. Returns the average number of runs that shared its time, including itself, in thousandths. `None` if
    /// it has not started.
    pub(super) fn end(&mut self, run: u64, now: Instant) -> Option<u32> {
        self.pass(now);
        let (began, part_s) = self.began.remove(&run)?;
        let (took, part_s) = (now.saturating_duration_since(began), self.part_s - part_s);
        // Too short to measure: count it as alone.
        if took < Duration::from_micros(1) || part_s <= 0.0 {
            return Some(1_000);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, at least one")]
        let sharers_milli = (took.as_secs_f64() / part_s * 1_000.0).round().max(1_000.0) as u32;
        Some(sharers_milli)
    }

    fn pass(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.now).as_secs_f64();
        self.part_s += passed / self.began.len().max(1) as f64;
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_is_parted_among_those_that_run() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut shared = Shared::new(start);
        shared.begin(1, at(5));
        shared.begin(2, at(8));
        shared.begin(3, at(8));
        assert_eq!(shared.end(2, at(11)), Some(3_000), "three seconds as one of three");
        // Three seconds alone, three as one of three, and four as one of two: ten seconds for six.
        assert_eq!(shared.end(1, at(15)), Some(1_667));
        assert_eq!(shared.end(3, at(20)), Some(1_500), "twelve seconds for one, two and five");
        assert_eq!(shared.end(3, at(20)), None);
    }
}
