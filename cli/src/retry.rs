//! How often and how soon something is tried again.

use std::time::Duration;

use rand::Rng;

/// Tries of one call: what a restart of the API takes is bridged, what is down for good is said soon.
pub(crate) const TRIES: u32 = 4;

const FIRST_MAX: Duration = Duration::from_millis(200);
const DELAY_MAX: Duration = Duration::from_secs(5);

/// The pause after the `failed`th failure (1, 2, ...): anything up to 0.2 s, 0.4 s, 0.8 s ... 5 s, so that clients
/// spread out; no shorter than the server asked for, and no longer than half a minute.
pub(crate) fn pause(failed: u32, asked: Option<Duration>) -> Duration {
    let longest = FIRST_MAX.saturating_mul(1 << failed.saturating_sub(1).min(10)).min(DELAY_MAX);
    let pause = longest.mul_f64(rand::rng().random_range(0.0..1.0));
    pause.max(asked.unwrap_or_default().min(Duration::from_secs(30)))
}
