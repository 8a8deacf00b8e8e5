//! Running means.

use serde::{Deserialize, Serialize};

/// Mean of the most recent values, up to a maximum number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Mean {
    value: f64,
    weight: f64,
}

impl Mean {
    /// Creates a mean with a prior that counts as a number of values.
    #[must_use]
    pub(super) fn prior(value: f64, weight: f64) -> Self {
        Self { value, weight }
    }

    /// Adds `count` values with this mean. At most `most` values count.
    pub(super) fn note(&mut self, mean: f64, count: f64, most: f64) {
        if count > 0.0 {
            self.weight = (self.weight + count).min(most);
            self.value += (mean - self.value) * (count / self.weight).min(1.0);
        }
    }

    /// The mean.
    #[must_use]
    pub(super) fn get(&self) -> f64 {
        self.value
    }

    /// Number of values that the mean is based on.
    #[must_use]
    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// Whether any value was added.
    #[must_use]
    pub(super) fn is_seen(&self) -> bool {
        self.weight > 0.0
    }
}

/// Value after exponential decay for `seconds` with the time constant `over_s`.
#[must_use]
pub(super) fn fade(value: f64, seconds: f64, over_s: f64) -> f64 {
    value * (-seconds / over_s).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_count_at_once_and_later_ones_against_what_is_known() {
        let mut mean = Mean::prior(8.0, 0.0);
        mean.note(20.0, 1.0, 50.0);
        assert!((mean.get() - 20.0).abs() < 1e-9 && mean.is_seen());
        mean.note(10.0, 1.0, 50.0);
        assert!((mean.get() - 15.0).abs() < 1e-9);
        mean.note(0.0, 1_000.0, 50.0);
        assert!(mean.get().abs() < 1e-9);
    }
}
