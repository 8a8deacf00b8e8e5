//! Types for quantities whose unit matters.

mod usd_micros;

pub use usd_micros::{UsdMicros, usd};
