//! When a failed attempt is tried again. Pure; the jitter is passed in. `lua/finish.lua` computes the same.

use std::time::Duration;

use crate::id::{Fence, JobId};

/// The first retry waits at most this long.
pub const RETRY_BASE: Duration = Duration::from_secs(1);

/// No retry waits longer.
pub const RETRY_MAX: Duration = Duration::from_secs(60);

/// How often a job may lose its worker, or fail by our fault, before it fails (P5). Apart from `max_attempts`: a lost worker is
/// not the user's doing.
pub const MAX_INFRA_ATTEMPTS: u32 = 10;

/// The wait before the retry after the `used`-th failure (1, 2, ...), milliseconds: `base * 2^(used - 1)`, at most [`RETRY_MAX`],
/// times 0.5 to 1 by `jitter` (0 to 1). After the third failure with full jitter: 1 s * 4 = 4 s.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and RETRY_MAX")]
pub fn backoff_ms(used: u32, jitter: f64) -> u64 {
    let doubled = RETRY_BASE.as_millis() as f64 * 2f64.powf(f64::from(used.saturating_sub(1)));
    (doubled.min(RETRY_MAX.as_millis() as f64) * (0.5 + jitter.clamp(0.0, 1.0) / 2.0)) as u64
}

/// The jitter of the retry that follows the attempt under `fence`: 0 to 1, spread evenly over jobs and attempts, and always the
/// same for the same one, so that nothing random has to be injected. The mixing is SplitMix64's finaliser.
#[must_use]
pub fn jitter(id: JobId, fence: &Fence) -> f64 {
    let mut mixed = id.random_bits() ^ fence.counter().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    // The upper 53 bits fill a double exactly.
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_bound_and_keeps_at_least_half() {
        assert_eq!([backoff_ms(1, 1.0), backoff_ms(2, 1.0), backoff_ms(3, 1.0)], [1_000, 2_000, 4_000]);
        assert_eq!([backoff_ms(1, 0.0), backoff_ms(7, 1.0), backoff_ms(u32::MAX, 1.0)], [500, 60_000, 60_000]);
    }

    #[test]
    fn jitter_is_spread_over_jobs_and_attempts() {
        let drawn: Vec<f64> = (0..1_000).map(|n| jitter(JobId::new(0), &Fence::new(n % 3, "x"))).collect();
        let mean = drawn.iter().sum::<f64>() / 1_000.0;
        assert!(drawn.iter().all(|jitter| (0.0..1.0).contains(jitter)));
        assert!((0.45..0.55).contains(&mean), "mean {mean}");
        let id = JobId::new(0);
        assert!(jitter(id, &Fence::new(1, "x")).total_cmp(&jitter(id, &Fence::new(1, "y"))).is_eq());
        assert!(jitter(id, &Fence::new(1, "x")).total_cmp(&jitter(id, &Fence::new(2, "x"))).is_ne());
    }
}
