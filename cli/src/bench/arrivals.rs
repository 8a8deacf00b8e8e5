//! Due times of requests. They depend on time alone: a slow server does not delay the next request.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Rate and number of the requests of one load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) rate_per_s: f64,
    pub(super) requests: u64,
    /// Seed of a Poisson process; `None` spaces requests evenly.
    pub(super) poisson_seed: Option<u64>,
}

/// Iterator over the due time of each request, from the start.
pub(super) struct Arrivals {
    plan: Plan,
    random: Option<StdRng>,
    next: u64,
    at_s: f64,
}

impl Arrivals {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, random: plan.poisson_seed.map(StdRng::seed_from_u64), next: 0, at_s: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = (u64, Duration);

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.next;
        if number == self.plan.requests {
            return None;
        }
        self.next += 1;
        self.at_s = match &mut self.random {
            // The gaps of a Poisson process: -ln(u) / rate, u in (0, 1].
            Some(random) => self.at_s - (1.0 - random.random_range(0.0..1.0_f64)).ln() / self.plan.rate_per_s,
            None => number as f64 / self.plan.rate_per_s,
        };
        Some((number, Duration::from_secs_f64(self.at_s)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(poisson_seed: Option<u64>, requests: u64) -> Vec<Duration> {
        let plan = Plan { rate_per_s: 200.0, requests, poisson_seed };
        Arrivals::new(plan).map(|(_, due)| due).collect()
    }

    #[test]
    fn a_constant_rate_has_equal_gaps() {
        assert_eq!(due(None, 4), [0, 5, 10, 15].map(Duration::from_millis));
    }

    #[test]
    fn poisson_gaps_differ_and_keep_the_rate() {
        let times = due(Some(7), 20_000);
        assert!(times.is_sorted());
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // The standard deviation of exponential gaps equals their mean: both 1/200 s, here within 5 %.
        for value in [mean, spread] {
            assert!((value - 0.005).abs() < 0.000_25, "{value}");
        }
        assert_eq!(times, due(Some(7), 20_000), "a seed gives the same load again");
    }
}
