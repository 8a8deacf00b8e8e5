//! Durations of a model's last runs.

use std::collections::VecDeque;

/// Number of runs to keep.
const RUNS: usize = 100;

/// The durations of the last runs, and the time of the last success.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    runs_ms: VecDeque<u64>,
    pub(crate) succeeded_ms: Option<u64>,
}

impl Latency {
    /// Records a run. `succeeded_ms` is the time of its end if it succeeded.
    pub(crate) fn ran(&mut self, took_ms: u64, succeeded_ms: Option<u64>) {
        if self.runs_ms.len() == RUNS {
            self.runs_ms.pop_front();
        }
        self.runs_ms.push_back(took_ms);
        self.succeeded_ms = succeeded_ms.or(self.succeeded_ms);
    }

    /// The mean in milliseconds; `None` before the first run.
    pub(crate) fn mean_ms(&self) -> Option<u64> {
        self.runs_ms.iter().sum::<u64>().checked_div(self.runs_ms.len() as u64)
    }

    /// The mean and the 95th percentile (nearest rank), milliseconds; `None` before the first run.
    pub(crate) fn mean_and_p95_ms(&self) -> Option<(u64, u64)> {
        let mut sorted: Vec<u64> = self.runs_ms.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * 95).div_ceil(100).checked_sub(1)?;
        Some((self.mean_ms()?, sorted[rank]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hundred_runs_count() {
        let mut latency = Latency::default();
        assert_eq!(latency.mean_and_p95_ms(), None);
        latency.ran(1_000_000, Some(5));
        (1..=100).for_each(|ms| latency.ran(ms, None));
        assert_eq!((latency.mean_and_p95_ms(), latency.succeeded_ms), (Some((50, 95)), Some(5)));
    }
}
