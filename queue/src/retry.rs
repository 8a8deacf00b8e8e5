//! When a failed attempt is tried again. Pure; the jitter is passed in. `lua/finish.lua` computes the same.

use std::time::Duration;

/// The first retry waits at most this long.
pub const RETRY_BASE: Duration = Duration::from_secs(1);

/// No retry waits longer.
pub const RETRY_MAX: Duration = Duration::from_secs(60);

/// How often a job may lose its worker, or fail by our fault, before it fails (P5). Apart from `max_attempts`: a lost worker is
/// not the user's doing.
pub const MAX_INFRA_ATTEMPTS: u32 = 10;

/// The wait before the retry after the `used`-th failure (1, 2, ...): `base * 2^(used - 1)`, at most [`RETRY_MAX`], times 0.5 to 1
/// by `jitter` (0 to 1). After the third failure with full jitter: 1 s * 4 = 4 s.
#[must_use]
pub fn backoff(used: u32, jitter: f64) -> Duration {
    let doubled = RETRY_BASE.saturating_mul(2u32.saturating_pow(used.saturating_sub(1)));
    doubled.min(RETRY_MAX).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_bound_and_keeps_at_least_half() {
        let secs = |used, jitter| backoff(used, jitter).as_secs_f64();
        assert_eq!([secs(1, 1.0), secs(2, 1.0), secs(3, 1.0)], [1.0, 2.0, 4.0]);
        assert_eq!([secs(1, 0.0), secs(7, 1.0), secs(u32::MAX, 1.0)], [0.5, 60.0, 60.0]);
    }
}
