//! Seeded random numbers.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Draw(StdRng);

impl Draw {
    /// Creates a stream for one purpose, so that an additional number in one stream changes no other.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(StdRng::seed_from_u64(seed ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.random::<f64>()
    }

    pub(crate) fn whole(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high)
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.0.random::<f64>() < share
    }

    /// Draws from an exponential distribution with this mean.
    pub(crate) fn wait(&mut self, mean: f64) -> f64 {
        -(1.0 - self.0.random::<f64>()).ln() * mean
    }

    /// Draws around a median; `low` and `high` are about the 10th and the 90th percentile.
    pub(crate) fn spread(&mut self, low: f64, median: f64, high: f64) -> f64 {
        // The sum of twelve draws is close enough to normal.
        let normal = (0..12).map(|_| self.0.random::<f64>()).sum::<f64>() - 6.0;
        let edge = if normal < 0.0 { median / low } else { high / median };
        median * (edge.max(1.0).ln() / 1.2816 * normal).exp()
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.0.random_range(0..from.len())]
    }

    /// Draws an index with these weights.
    pub(crate) fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut at = self.0.random::<f64>() * weights.iter().sum::<f64>();
        for (index, weight) in weights.iter().enumerate() {
            at -= weight;
            if at < 0.0 {
                return index;
            }
        }
        weights.len().saturating_sub(1)
    }

    /// Interpolates between the values of a table of evenly spaced quantiles.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "short tables"
    )]
    pub(crate) fn of_table(&mut self, table: &[f64]) -> f64 {
        let at = self.0.random::<f64>() * (table.len() - 1) as f64;
        let index = (at as usize).min(table.len() - 2);
        table[index] + (table[index + 1] - table[index]) * (at - index as f64)
    }

    /// Draws this many hexadecimal digits.
    pub(crate) fn hex(&mut self, digits: usize) -> String {
        (0..digits).map(|_| char::from_digit(self.0.random_range(0..16), 16).unwrap_or('0')).collect()
    }
}
