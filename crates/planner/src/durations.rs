//! Conversions between seconds and milliseconds.

/// Seconds of a number of milliseconds, or of a moment in unix milliseconds.
#[expect(clippy::cast_precision_loss, reason = "unix milliseconds fit a double's 53 bits")]
#[must_use]
pub fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// Whole milliseconds of a number of seconds, rounded; 0 for a negative one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some days, never negative")]
#[must_use]
pub fn millis(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e3).round() as u64
}
