//! Pauses between the tries of an operation: each is twice as long as the one before, with jitter.

use std::ops::Range;
use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, sleep};

/// Bounds and jitter of the pauses.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// First pause, before jitter.
    pub(crate) min: Duration,
    /// Longest pause, before jitter.
    pub(crate) max: Duration,
    /// Range of the random factor that each pause is multiplied by.
    pub(crate) jitter: Range<f64>,
}

impl Policy {
    /// A pause of `pause`, with jitter.
    fn jittered(&self, pause: Duration) -> Duration {
        pause.mul_f64(rand::rng().random_range(self.jitter.clone()))
    }

    /// Length of one first pause, for operations that do not double it.
    pub(crate) fn first(&self) -> Duration {
        self.jittered(self.min)
    }
}

/// The pauses of one operation.
#[derive(Debug)]
pub(crate) struct Backoff {
    policy: &'static Policy,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(policy: &'static Policy) -> Self {
        Self { policy, next: policy.min }
    }

    /// Makes the next pause the longest one.
    pub(crate) fn slow_down(&mut self) {
        self.next = self.policy.max;
    }

    /// Waits for the next pause.
    pub(crate) async fn pause(&mut self) {
        sleep(self.take()).await;
    }

    fn take(&mut self) -> Duration {
        let pause = self.policy.jittered(self.next);
        self.next = (self.next * 2).min(self.policy.max);
        pause
    }
}

/// The pauses of one operation that is retried until a timeout.
#[derive(Debug)]
pub(crate) struct Tries {
    until: Instant,
    backoff: Backoff,
}

impl Tries {
    pub(crate) fn within(policy: &'static Policy, timeout: Duration) -> Self {
        Self { until: Instant::now() + timeout, backoff: Backoff::new(policy) }
    }

    /// Whether there is time for another try.
    pub(crate) fn are_left(&self) -> bool {
        Instant::now() < self.until
    }

    /// Waits for the next pause.
    pub(crate) async fn pause(&mut self) {
        self.backoff.pause().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy =
        Policy { min: Duration::from_millis(100), max: Duration::from_millis(350), jitter: 0.5..1.0 };

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(&POLICY);
        for bound_ms in [100, 200, 350, 350] {
            let (bound, pause) = (Duration::from_millis(bound_ms), backoff.take());
            assert!(bound / 2 <= pause && pause < bound, "{pause:?} of {bound:?}");
        }
    }

    #[test]
    fn a_slowed_down_operation_pauses_for_the_longest_time() {
        let mut backoff = Backoff::new(&POLICY);
        backoff.slow_down();
        assert!(backoff.take() >= POLICY.max / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_are_left_until_the_timeout() {
        let mut tries = Tries::within(&POLICY, Duration::from_millis(200));
        let mut count = 0;
        while tries.are_left() {
            tries.pause().await;
            count += 1;
        }
        assert!((2..=4).contains(&count), "{count}");
    }
}
