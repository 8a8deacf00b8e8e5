//! What a simulation may rent: CSV with a header, one kind of machine to a line.

mod read;

pub use read::{Error, ErrorKind, default, read};

/// A kind of machine, with one card.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// Its card.
    pub name: crate::Name,
    /// What models may hold of it, GB.
    pub vram_gb: f64,
    /// 1.0 is an RTX 4090.
    pub speed: f64,
    /// On-demand, dollars per hour.
    pub od_usd_h: f64,
    /// Interruptible, dollars per hour.
    pub spot_usd_h: f64,
    /// Times per hour that an interruptible one is lost.
    pub spot_preempt_per_h: f64,
    /// It boots no faster than this, seconds.
    pub boot_lo_s: f64,
    /// Nor slower.
    pub boot_hi_s: f64,
    /// How many can be had at once.
    pub max_count: u32,
}
