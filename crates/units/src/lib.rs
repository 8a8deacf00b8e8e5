//! Types for quantities whose unit matters.

mod mib;
mod usd_micros;

pub use mib::{Mib, gib};
pub use usd_micros::{UsdMicros, usd};
