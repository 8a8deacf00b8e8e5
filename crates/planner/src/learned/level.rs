//! A level: a number of machines in use at once. The lengths of the gaps in its use decide how long a machine is kept
//! for it.

use serde::{Deserialize, Serialize};

/// Length of the shortest bin of gaps, seconds; each further bin is twice as long.
const GAP_MIN_S: f64 = 4.0;

/// Number of bins; the last ends at six days.
const GAPS: usize = 17;

/// Prior weight of each bin before a gap was observed: uniform on a logarithmic scale, with this total.
const PRIOR: f64 = 2.0 / GAPS as f64;

/// Factor by which the weight of older gaps falls with each new gap.
const FADE: f64 = 0.985;

/// A level and its gaps, i.e. the times between two uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Time of the last use, unix seconds.
    pub used_s: f64,
    /// Number of gaps by bin, with older ones weighted less.
    pub gaps: [f64; GAPS],
}

fn edge_s(bin: usize) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a handful of bins")]
    let times = 2.0_f64.powi(bin as i32);
    GAP_MIN_S * times
}

impl Level {
    /// A level that has not been used within memory.
    #[must_use]
    pub fn unused(now_s: f64) -> Self {
        Self { used_s: now_s - edge_s(GAPS), gaps: [PRIOR; GAPS] }
    }

    /// Records that the level is in use now.
    pub fn use_at(&mut self, now_s: f64) {
        let gap_s = now_s - self.used_s;
        if gap_s >= GAP_MIN_S {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the last bin")]
            let bin = ((gap_s / GAP_MIN_S).log2().floor() as usize).min(GAPS - 1);
            self.gaps.iter_mut().for_each(|count| *count *= FADE);
            self.gaps[bin] += 1.0;
        }
        self.used_s = now_s;
    }

    /// Whether the level was ever used: an observed gap has the weight 1 in addition to the prior.
    #[must_use]
    pub fn has_been_used(&self) -> bool {
        self.gaps.iter().sum::<f64>() > PRIOR * GAPS as f64 + 0.5
    }

    /// Time since the last use, seconds; `None` if it was never used.
    #[must_use]
    pub fn unused_s(&self, now_s: f64) -> Option<f64> {
        self.has_been_used().then(|| self.age_s(now_s))
    }

    fn age_s(&self, now_s: f64) -> f64 {
        (now_s - self.used_s).max(0.0)
    }

    /// Same as [`Level::gain_usd`]. A level that was never used has the prior, counted from `since_s`.
    #[must_use]
    pub fn gain_since_usd(&self, now_s: f64, since_s: f64, value_usd: f64, usd_per_s: f64) -> f64 {
        let age_s = self.unused_s(now_s).unwrap_or((now_s - since_s).max(0.0));
        self.gain_after_usd(age_s, value_usd, usd_per_s)
    }

    /// Maximum expected gain of keeping a machine for the level, dollars: `value_usd` if it is used before a horizon,
    /// less `usd_per_s` until then. Zero or negative: the machine should go now.
    ///
    /// This is the ski-rental problem with a known distribution (Karlin et al., "Competitive randomized algorithms for
    /// nonuniform problems", Algorithmica 1994): among the gaps longer than the present one, a share ends before each
    /// horizon, and the best horizon counts.
    #[must_use]
    pub fn gain_usd(&self, now_s: f64, value_usd: f64, usd_per_s: f64) -> f64 {
        self.gain_after_usd(self.age_s(now_s), value_usd, usd_per_s)
    }

    fn gain_after_usd(&self, age_s: f64, value_usd: f64, usd_per_s: f64) -> f64 {
        let rest = |bin: usize| {
            let (lo_s, hi_s) = (if bin == 0 { 1.0 } else { edge_s(bin) }, edge_s(bin + 1));
            if hi_s <= age_s {
                return (0.0, 0.0);
            }
            let from_s = lo_s.max(age_s);
            // Within a bin, gaps are uniform on the logarithmic scale.
            let share = (hi_s.ln() - from_s.ln()) / (hi_s.ln() - lo_s.ln());
            (self.gaps[bin] * share, (from_s * hi_s).sqrt() - age_s)
        };
        let open: f64 = (0..GAPS).map(|bin| rest(bin).0).sum();
        if open <= 0.0 {
            return -1.0;
        }
        let (mut best_usd, mut ended, mut waited_s) = (f64::NEG_INFINITY, 0.0, 0.0);
        for bin in 0..GAPS {
            let (count, length_s) = rest(bin);
            if count == 0.0 {
                continue;
            }
            ended += count;
            waited_s += count * length_s;
            let waited_s = waited_s + (open - ended) * (edge_s(bin + 1) - age_s);
            best_usd = f64::max(best_usd, (value_usd * ended - usd_per_s * waited_s) / open);
        }
        best_usd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_gaps(gaps_s: &[f64]) -> (Level, f64) {
        let mut level = Level::unused(0.0);
        let mut now_s = 0.0;
        level.use_at(now_s);
        for gap_s in gaps_s {
            now_s += gap_s;
            level.use_at(now_s);
        }
        (level, now_s)
    }

    #[test]
    fn a_machine_is_kept_where_the_next_use_is_near_and_given_up_where_it_is_not() {
        let hour_usd = 0.5;
        let keeps = |gaps_s: &[f64], age_s: f64| {
            let (level, now_s) = after_gaps(gaps_s);
            level.gain_usd(now_s + age_s, 0.02, hour_usd / 3_600.0) > 0.0
        };
        assert!(keeps(&[60.0; 40], 0.0), "a minute costs 0.8 cents");
        assert!(!keeps(&[3_000.0; 40], 0.0), "50 minutes cost 42 cents");
        assert!(!keeps(&[60.0; 40], 400.0), "it should have come by now");
        assert!(keeps(&[20.0, 3_000.0].repeat(20), 0.0), "it may come at once");
        assert!(!keeps(&[20.0, 3_000.0].repeat(20), 60.0), "it did not");
    }

    #[test]
    fn what_has_been_used_once_is_kept_for_a_part_of_what_it_is_worth() {
        let (level, now_s) = after_gaps(&[]);
        let usd_per_s = 0.5 / 3_600.0;
        let value_usd = 0.05;
        let kept_s = (0..2_000).find(|age_s| level.gain_usd(now_s + f64::from(*age_s), value_usd, usd_per_s) <= 0.0);
        let worth_s = value_usd / usd_per_s;
        let kept_s = f64::from(kept_s.expect("it is given up"));
        assert!((0.01 * worth_s..0.8 * worth_s).contains(&kept_s), "{kept_s} of {worth_s}");
    }

    #[test]
    fn what_was_never_used_is_kept_by_the_prior_and_not_as_if_it_had_gone_unused_for_days() {
        let level = Level::unused(1_000.0);
        assert_eq!(level.unused_s(1_005.0), None);
        let gain = |idle_s: f64| level.gain_since_usd(1_000.0 + idle_s, 1_000.0, 0.01, 0.01 / 3_600.0);
        assert!(gain(5.0) > 0.0, "a cent against a cent an hour");
        assert!(gain(40_000.0) <= 0.0, "nobody has asked for it all day");
        assert!(level.gain_usd(1_005.0, 0.01, 0.01 / 3_600.0) <= 0.0);
    }

    #[test]
    fn more_value_and_a_lower_price_never_shorten_the_wait() {
        let (level, now_s) = after_gaps(&[5.0, 30.0, 100.0, 700.0, 40.0]);
        for age_s in [0.0, 10.0, 100.0, 1_000.0] {
            let gain = |value_usd, usd_per_s| level.gain_usd(now_s + age_s, value_usd, usd_per_s);
            assert!(gain(0.2, 1e-4) >= gain(0.1, 1e-4));
            assert!(gain(0.1, 1e-5) >= gain(0.1, 1e-4));
        }
    }
}
