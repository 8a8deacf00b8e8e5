//! Conversions between dollars and millionths of a dollar.

/// Millionths of a dollar of a price or a cost in dollars; 0 for a negative one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some dollars, never negative")]
pub(crate) fn micros(usd: f64) -> u64 {
    (usd.max(0.0) * 1e6).round() as u64
}

/// Dollars of a price or a cost in millionths of a dollar.
#[expect(clippy::cast_precision_loss, reason = "far less than 2^53")]
pub(crate) fn dollars(micros: u64) -> f64 {
    micros as f64 / 1e6
}
