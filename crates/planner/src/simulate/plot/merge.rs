//! Reduces samples to the number that a plot can show.

use crate::simulate::outcome::Sample;

/// Maximum number of points: about one for each pixel of the width.
pub(super) const MAX_POINTS: usize = 800;
/// Number of merged samples over which arriving work is averaged, since single ones are noise.
const SMOOTH: usize = 3;

/// Merges samples into `at_most` spans of equal length. Arriving work is averaged over a span; of all other values the
/// maximum is taken, so that short peaks are kept.
pub(super) fn merge(samples: &[Sample], at_most: usize) -> Vec<Sample> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Vec::new() };
    let span_s = (last.at_s - first.at_s) / at_most as f64;
    if samples.len() <= at_most || span_s.is_nan() || span_s <= 0.0 {
        return samples.iter().take(at_most).copied().collect();
    }
    let span_of = |sample: &Sample| (((sample.at_s - first.at_s) / span_s) as usize).min(at_most - 1);
    samples.chunk_by(|one, other| span_of(one) == span_of(other)).take(at_most).map(together).collect()
}

fn together(samples: &[Sample]) -> Sample {
    let sum = samples.iter().map(|sample| sample.demand_cards).sum::<f64>();
    let most = samples.iter().copied().reduce(|one, other| Sample {
        at_s: one.at_s,
        demand_cards: 0.0,
        ready: one.ready.max(other.ready),
        busy: one.busy.max(other.busy),
        booting: one.booting.max(other.booting),
        stopped: one.stopped.max(other.stopped),
        waiting_interactive: one.waiting_interactive.max(other.waiting_interactive),
        waiting_batch: one.waiting_batch.max(other.waiting_batch),
        wait_interactive_s: one.wait_interactive_s.max(other.wait_interactive_s),
        wait_batch_s: one.wait_batch_s.max(other.wait_batch_s),
        spent_usd: one.spent_usd.max(other.spent_usd),
    });
    Sample { demand_cards: sum / samples.len().max(1) as f64, ..most.unwrap_or_default() }
}

/// Replaces each value with the mean of itself and its neighbours.
pub(super) fn smooth(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let around = |n: usize| &values[n.saturating_sub(SMOOTH / 2)..(n + SMOOTH / 2 + 1).min(values.len())];
    (0..values.len()).map(|n| around(n).iter().sum::<f64>() / around(n).len() as f64).collect()
}

/// A quantile by nearest rank; 0 without values.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let rank = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len().max(1));
    values.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_a_span_is_kept_and_the_mean_of_demand() {
        let sample =
            |n: u32| Sample { at_s: f64::from(n), demand_cards: f64::from(n % 2), ready: n % 10, ..Sample::default() };
        let samples: Vec<Sample> = (0..1_000).map(sample).collect();
        let merged = merge(&samples, 100);
        assert_eq!(merged.len(), 100);
        assert!(merged.iter().all(|sample| sample.ready >= 8 && (0.4..=0.6).contains(&sample.demand_cards)));
    }

    #[test]
    fn few_samples_stay_as_they_are() {
        let samples = [Sample { at_s: 1.0, ready: 3, ..Sample::default() }; 3];
        assert_eq!(merge(&samples, 100), samples);
        assert_eq!(merge(&[], 100), []);
        assert_eq!(merge(&[samples[0]; 300], 100).len(), 100);
    }

    #[test]
    fn values_are_smoothed_with_their_neighbours() {
        assert_eq!(smooth([0.0, 3.0, 0.0, 0.0].into_iter()), [1.5, 1.0, 1.0, 0.0]);
        assert_eq!((quantile(&[], 0.5), quantile(&[3.0, 1.0, 2.0], 0.5), quantile(&[1.0], 1.0)), (0.0, 2.0, 1.0));
    }
}
