//! Rate limits: the generic cell rate algorithm (ITU-T I.371), as in the queue's limits, with one number for each key.
//! A limit applies to this replica alone: three replicas behind a balancer admit three times as much.

use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use moka::sync::Cache;
use tokio::time::Instant;

/// Maximum number of keys. The least recently used one is dropped, and starts with a full burst when it returns.
const PACED_MAX: u64 = 10_000;

/// Idle time after which an entry is dropped. No burst takes longer to refill.
const FORGET_AFTER: Duration = Duration::from_secs(10 * 60);

/// A rate and its burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) every: Duration,
    pub(crate) burst: u32,
}

impl Rate {
    /// A limit of `rate` requests per minute, with bursts of the requests of ten seconds, at least one.
    pub(crate) fn per_minute(rate: u32) -> Self {
        Self { every: Duration::from_secs(60) / rate.max(1), burst: (rate / 6).max(1) }
    }
}

/// Rate limits by key `K`. Their number is bounded.
pub(crate) struct RateLimits<K>(Cache<K, Arc<Mutex<Option<Instant>>>>);

impl<K: Hash + Eq + Send + Sync + 'static> RateLimits<K> {
    pub(crate) fn new() -> Self {
        Self(Cache::builder().max_capacity(PACED_MAX).time_to_idle(FORGET_AFTER).build())
    }

    /// Takes one from the limit.
    ///
    /// # Errors
    /// The time to wait until one is available. Nothing is taken in that case.
    pub(crate) fn take(&self, key: K, rate: Rate, now: Instant) -> Result<(), Duration> {
        let arrival = self.0.get_with(key, Arc::default);
        let mut arrival = arrival.lock().unwrap_or_else(PoisonError::into_inner);
        *arrival = Some(next(*arrival, rate, now)?);
        Ok(())
    }
}

/// Returns the theoretical arrival time after one more, or the time to wait before it conforms. With one each 6 s and a
/// burst of 10, ten pass at once and the eleventh 6 s later.
fn next(arrival: Option<Instant>, rate: Rate, now: Instant) -> Result<Instant, Duration> {
    let after = arrival.unwrap_or(now).max(now) + rate.every;
    let ahead = after.duration_since(now);
    let most = rate.every * rate.burst.max(1);
    if ahead > most { Err(ahead - most) } else { Ok(after) }
}

/// Value of `Retry-After`: whole seconds, at least one.
pub(crate) fn whole_seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_at_a_time() {
        let (limits, start) = (RateLimits::new(), Instant::now());
        let rate = Rate { every: Duration::from_secs(6), burst: 10 };
        for _ in 0..10 {
            assert_eq!(limits.take("a", rate, start), Ok(()));
        }
        assert_eq!(limits.take("a", rate, start), Err(Duration::from_secs(6)));
        assert_eq!(limits.take("b", rate, start), Ok(()), "each has its own");
        let later = start + Duration::from_secs(6);
        assert_eq!(limits.take("a", rate, later), Ok(()), "what was refused took nothing");
        assert_eq!(limits.take("a", rate, later), Err(Duration::from_secs(6)));
        let much_later = start + Duration::from_secs(3600);
        assert_eq!((0..20).filter(|_| limits.take("a", rate, much_later).is_ok()).count(), 10, "no more is saved up");
    }

    #[test]
    fn a_slow_rate_lets_one_through_and_a_wait_is_whole_seconds() {
        assert_eq!(Rate::per_minute(1), Rate { every: Duration::from_secs(60), burst: 1 });
        assert_eq!(Rate::per_minute(600), Rate { every: Duration::from_millis(100), burst: 100 });
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1_001)), 2);
    }
}
