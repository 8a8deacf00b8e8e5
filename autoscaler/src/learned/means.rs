//! Running means.

use serde::{Deserialize, Serialize};

/// A mean over what came, of which the last so many count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Mean {
    value: f64,
    weight: f64,
}

impl Mean {
    /// One that is thought to be this, as if it had been seen so many times.
    #[must_use]
    pub(super) fn prior(value: f64, weight: f64) -> Self {
        Self { value, weight }
    }

    /// `count` values came, `mean` on average; `most` count.
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

    /// On how much it rests.
    #[must_use]
    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// Whether anything has been seen.
    #[must_use]
    pub(super) fn is_seen(&self) -> bool {
        self.weight > 0.0
    }
}

/// What `value` has faded to after `seconds`, where it falls to 1/e within `over_s`.
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
