//! Random draws of shapes.

use rand::Rng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Gamma, LogNormal, Normal};

/// Rounds to multiples of `1 / parts`.
pub(super) fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

/// Draws from a lognormal distribution with this median. One draw in 20 exceeds `e^(1.645 sigma)` times the median.
pub(super) fn lognormal(median: f64, sigma: f64, rng: &mut StdRng) -> f64 {
    LogNormal::new(median.ln(), sigma).map_or(median, |law| law.sample(rng))
}

/// Draws from a normal distribution with this mean.
pub(super) fn normal(mean: f64, deviation: f64, rng: &mut StdRng) -> f64 {
    Normal::new(mean, deviation).map_or(mean, |law| law.sample(rng))
}

/// Draws from a uniform distribution.
pub(super) fn uniform(lo: f64, hi: f64, rng: &mut StdRng) -> f64 {
    rng.random_range(lo..hi)
}

/// Returns true with the probability `share`.
pub(super) fn is_one_of(share: f64, rng: &mut StdRng) -> bool {
    rng.random_bool(share)
}

/// Shares of a whole by rank: the n-th is proportional to `(n + flat)^-fall`, like popularity. `flat` makes the first
/// few similar.
pub(super) fn shares(count: usize, fall: f64, flat: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64 + flat).powf(-fall)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Draws an index with these shares as probabilities.
pub(super) fn which(shares: &[f64], rng: &mut StdRng) -> usize {
    let mut left: f64 = rng.random();
    let found = shares.iter().position(|share| {
        left -= share;
        left < 0.0
    });
    found.unwrap_or_default()
}

/// Rates of windows of equal length, per second.
pub(super) struct Rates {
    pub(super) window_s: f64,
    pub(super) per_s: Vec<f64>,
}

impl Rates {
    /// One rate for each window of a span.
    pub(super) fn new(span_s: f64, window_s: f64, rate: impl FnMut(f64) -> f64) -> Self {
        let windows = (span_s / window_s).ceil() as usize;
        Self { window_s, per_s: (0..windows).map(|window| window as f64 * window_s).map(rate).collect() }
    }

    /// Draws arrivals at these rates. `cv` is the coefficient of variation of their gaps: 1 is Poisson, less is more
    /// even, more is burstier. Gaps are drawn on a clock that runs in proportion to the rate, so that a gap can extend
    /// over several windows.
    pub(super) fn arrivals(&self, cv: f64, rng: &mut StdRng) -> Vec<f64> {
        let shape = cv.powi(-2);
        let Ok(gaps) = Gamma::new(shape, shape.recip()) else { return Vec::new() };
        let mut arrivals = Vec::new();
        let mut left = gaps.sample(rng);
        for (window, rate) in self.per_s.iter().enumerate() {
            let begin_s = window as f64 * self.window_s;
            let mut at_s = 0.0;
            while left <= (self.window_s - at_s) * rate {
                at_s += left / rate;
                arrivals.push(begin_s + at_s);
                left = gaps.sample(rng);
            }
            left -= (self.window_s - at_s) * rate;
        }
        arrivals
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn arrivals_keep_to_their_rates() {
        let rates = Rates::new(30_000.0, 10_000.0, |at_s| if at_s == 10_000.0 { 0.0 } else { 0.5 });
        for cv in [0.5, 1.0, 2.0] {
            let arrivals = rates.arrivals(cv, &mut StdRng::seed_from_u64(1));
            assert!((9_000..11_000).contains(&arrivals.len()), "{cv}: {}", arrivals.len());
            assert!(arrivals.iter().all(|at_s| !(10_000.0..20_000.0).contains(at_s)));
        }
    }

    #[test]
    fn shares_sum_up_and_are_drawn_as_often() {
        let shares = shares(4, 1.0, 0.0);
        let mut rng = StdRng::seed_from_u64(1);
        let first = (0..10_000).filter(|_| which(&shares, &mut rng) == 0).count();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((4_600..5_000).contains(&first), "{first}, and 48 % are expected");
    }
}
