//! Retries of failed attempts: whether and when. Pure; the jitter is an argument. `lua/finish.lua` computes the same.

use crate::id::{Fence, JobId};
use crate::job::RetryPolicy;

/// Number of attempts that may lose their worker or fail because of Stokehold before the job fails (P5). Separate from
/// `max_attempts`, because users are not responsible for a lost worker.
pub const MAX_INFRA_ATTEMPTS: u32 = 10;

/// Number of attempts that may run out of GPU memory before the job fails as `oom_gpu`: once with other models, once
/// alone, once on another worker.
pub const MAX_OOM_ATTEMPTS: u32 = 3;

/// Number of crashes of its runner from which a job counts as poison (P5), if they occurred on at least
/// [`POISON_WORKERS`] workers.
pub const POISON_CRASHES: u32 = 3;

/// Number of workers on which a job must have crashed to count as poison (P5).
pub const POISON_WORKERS: u32 = 2;

/// The delay of the retry after the `used`-th failure (1, 2, ...), milliseconds: `backoff * 2^(used - 1)`, at most
/// `backoff_max`, times a factor from `1 - policy.jitter` to 1, selected by `jitter` (0 to 1). Example: with the
/// default policy and full jitter, the delay after the third failure is 1 s * 4 = 4 s.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and backoff_max")]
pub fn backoff_ms(policy: &RetryPolicy, used: u32, jitter: f64) -> u64 {
    let doubled = policy.backoff_ms as f64 * 2f64.powf(f64::from(used.saturating_sub(1)));
    let drawn = 1.0 - policy.jitter + policy.jitter * jitter.clamp(0.0, 1.0);
    (doubled.min(policy.backoff_max_ms as f64) * drawn) as u64
}

/// The jitter of the retry after the attempt with `fence`, 0 to 1. It is spread evenly over jobs and attempts, and
/// always the same for one attempt, so that no random numbers have to be injected. The mixing function is the finalizer
/// of SplitMix64.
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
        let wait = |used, jitter| backoff_ms(&RetryPolicy::default(), used, jitter);
        assert_eq!([wait(1, 1.0), wait(2, 1.0), wait(3, 1.0)], [1_000, 2_000, 4_000]);
        assert_eq!([wait(1, 0.0), wait(7, 1.0), wait(u32::MAX, 1.0)], [500, 60_000, 60_000]);
        let exact = RetryPolicy { backoff_ms: 10, jitter: 0.0, ..RetryPolicy::default() };
        assert_eq!([backoff_ms(&exact, 2, 0.0), backoff_ms(&exact, 2, 1.0)], [20, 20]);
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
