//! Conversions between seconds and whole milliseconds.

/// Whole milliseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "moments of simulations are small")]
pub(crate) fn ms(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1000.0).round() as u64
}

/// Seconds.
#[expect(clippy::cast_precision_loss, reason = "moments fit")]
pub(crate) fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
