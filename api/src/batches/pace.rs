//! Rate of a batch, and its estimated end.

/// The time span that the rate is computed over.
const WINDOW_MS: u64 = 120_000;

/// Interval between samples, milliseconds.
pub(crate) const SAMPLE_EVERY_MS: u64 = 10_000;

/// Shortest time over which a rate is reliable, milliseconds.
const LEAST_MS: u64 = 1_000;

/// Lines per second over the last two minutes, and the time at which the open ones end at that rate; `None` where it is
/// not known.
pub(crate) fn pace(
    samples: &[(u64, u64)],
    started_ms: Option<u64>,
    (done, open): (u64, u64),
    now_ms: u64,
) -> (Option<f64>, Option<u64>) {
    let recent = samples.iter().find(|(ms, _)| ms + WINDOW_MS >= now_ms).copied();
    let start = recent.or(samples.last().copied()).or(started_ms.map(|ms| (ms, 0)));
    let Some((since_ms, before)) = start else { return (None, None) };
    let took_ms = now_ms.saturating_sub(since_ms);
    if took_ms < LEAST_MS {
        return (None, None);
    }
    let rate = done.saturating_sub(before) as f64 * 1000.0 / took_ms as f64;
    let left_ms = open as f64 * 1000.0 / rate;
    // A rate near zero gives no useful estimate: more than ten years counts as unknown.
    let eta = (open > 0 && left_ms < 3.2e11).then(|| now_ms + left_ms as u64);
    (Some((rate * 1000.0).round() / 1000.0), eta)
}

/// Adds a sample of now when one is due; `None` when it is not.
pub(crate) fn sampled(samples: &[(u64, u64)], done: u64, now_ms: u64) -> Option<Vec<(u64, u64)>> {
    if samples.last().is_some_and(|(ms, _)| ms + SAMPLE_EVERY_MS > now_ms) {
        return None;
    }
    let mut kept: Vec<_> = samples.iter().copied().filter(|(ms, _)| ms + WINDOW_MS >= now_ms).collect();
    kept.push((now_ms, done));
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_told_by_the_last_two_minutes() {
        assert_eq!(pace(&[], None, (0, 10), 5_000), (None, None));
        assert_eq!(pace(&[], Some(4_500), (10, 10), 5_000), (None, None), "half a second says nothing");
        assert_eq!(pace(&[], Some(0), (50, 100), 10_000), (Some(5.0), Some(30_000)));
        // 1,000 in the first second, then 1 per second.
        let samples = [(1_000, 1_000), (100_000, 1_099), (160_000, 1_159)];
        assert_eq!(pace(&samples, Some(0), (1_199, 60), 200_000), (Some(1.0), Some(260_000)));
        assert_eq!(pace(&[(0, 7)], Some(0), (7, 3), 60_000), (Some(0.0), None), "it stands still");
        assert_eq!(pace(&[], Some(0), (10, 0), 10_000), (Some(1.0), None), "nothing is left");
    }

    #[test]
    fn samples_are_few_and_young() {
        let mut samples = Vec::new();
        for second in 0..1_000 {
            if let Some(next) = sampled(&samples, second, second * 1_000) {
                samples = next;
            }
            assert!(samples.len() <= 14);
        }
        assert!(samples.iter().all(|(ms, _)| *ms >= 870_000), "{samples:?}");
    }
}
