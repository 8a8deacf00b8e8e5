//! Offers of a simulation: CSV with a header and one kind of machine per line.

mod read;

pub use read::{Error, ErrorKind, default, read};

/// A kind of machine with one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// Name of its GPU.
    pub name: crate::Name,
    /// Memory that models may use, GB.
    pub vram_gb: f64,
    /// Speed; 1.0 is an RTX 4090.
    pub speed: f64,
    /// On-demand price, dollars per hour.
    pub od_usd_h: f64,
    /// Price of an interruptible machine, dollars per hour.
    pub spot_usd_h: f64,
    /// Losses of an interruptible machine per hour.
    pub spot_preempt_per_h: f64,
    /// Minimum duration of a boot, seconds.
    pub boot_lo_s: f64,
    /// Maximum duration of a boot, seconds.
    pub boot_hi_s: f64,
    /// Maximum number of machines at once.
    pub max_count: u32,
}
