//! Retry policy of requests.

use std::time::Duration;

use rand::Rng;

/// Maximum tries of one call: enough to bridge a restart of the API.
pub const TRIES: u32 = 4;

const FIRST_MAX: Duration = Duration::from_millis(200);
const DELAY_MAX: Duration = Duration::from_secs(5);

/// Pause after the `failed`th failure (1, 2, ...): random, up to 0.2 s, 0.4 s, 0.8 s ... 5 s. It is at least what the
/// server asked for, up to 30 s.
#[must_use]
pub fn pause(failed: u32, asked: Option<Duration>) -> Duration {
    let longest = FIRST_MAX.saturating_mul(1 << failed.saturating_sub(1).min(10)).min(DELAY_MAX);
    let pause = longest.mul_f64(rand::rng().random_range(0.0..1.0));
    pause.max(asked.unwrap_or_default().min(Duration::from_secs(30)))
}
