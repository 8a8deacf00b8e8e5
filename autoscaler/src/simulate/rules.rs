//! How the simulated world behaves, where a trace does not say.

/// How machines behave. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Maximum memory of the models whose jobs run side by side on a card, GB; `None`: one job computes at a time.
    pub share_gb: Option<f64>,
    /// The first part of the trace is left out of the wait figures.
    pub skip_s: f64,
    /// Whether a machine is paid for while it boots.
    pub boot_is_billed: bool,
    /// Between two decisions.
    pub tick_s: f64,
    /// A stopped machine resumes within this range.
    pub resume_s: (f64, f64),
    /// Share of resumes that come to nothing, since the card has been rented out.
    pub resume_taken: f64,
    /// A stopped machine costs this, dollars per hour.
    pub stopped_usd_per_hour: f64,
    /// Whether interruptible machines are offered.
    pub has_interruptible: bool,
    /// Of interruptible machines: the price over the on-demand price, and losses per hour, instead of what the offers
    /// say.
    pub interruptible: Option<(f64, f64)>,
    /// An interruptible machine that was lost comes back after this, on average.
    pub lost_s: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            seed: 1,
            share_gb: None,
            skip_s: 0.0,
            boot_is_billed: true,
            tick_s: 2.0,
            resume_s: (15.0, 45.0),
            resume_taken: 0.1,
            stopped_usd_per_hour: 0.01,
            has_interruptible: false,
            interruptible: None,
            lost_s: 1_800.0,
        }
    }
}

impl Rules {
    /// Parses the price and the losses per hour of interruptible machines, e.g. `0.7,0.3`.
    #[must_use]
    pub fn parse_interruptible(text: &str) -> Option<(f64, f64)> {
        let (price, losses) = text.split_once(',')?;
        let (price, losses): (f64, f64) = (price.trim().parse().ok()?, losses.trim().parse().ok()?);
        (price > 0.0 && price.is_finite() && losses >= 0.0 && losses.is_finite()).then_some((price, losses))
    }
}

/// Seconds to fetch and load a model for the first time on a machine.
pub(super) fn cold_load_s(vram_gb: f64) -> f64 {
    (5.0 + 1.2 * vram_gb).clamp(10.0, 60.0)
}

/// Seconds to load one from the machine's own disk.
pub(super) fn disk_load_s(vram_gb: f64) -> f64 {
    3.0 + 0.1 * vram_gb
}
