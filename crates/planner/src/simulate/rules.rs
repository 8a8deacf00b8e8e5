//! Rules of the simulated world that traces do not contain.

/// Rules of machines. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Maximum memory of the models whose jobs run side by side on a GPU, GB. `None`: one job runs at a time.
    pub share_gb: Option<f64>,
    /// Jobs that one loaded model runs at once, at least 1.
    pub max_concurrency: u32,
    /// Length of the initial part of the trace that wait figures exclude.
    pub skip_s: f64,
    /// Whether a machine is paid for while it boots.
    pub boot_is_billed: bool,
    /// Interval between two decisions.
    pub tick_s: f64,
    /// Range of durations of a resume.
    pub resume_s: (f64, f64),
    /// Share of resumes that fail because the GPU is rented to another.
    pub resume_taken: f64,
    /// Price of a stopped machine, dollars per hour.
    pub stopped_usd_per_hour: f64,
    /// Whether interruptible machines are offered.
    pub has_interruptible: bool,
    /// Interruptible machines: price as a fraction of the on-demand price, and losses per hour. Overrides the offers.
    pub interruptible: Option<(f64, f64)>,
    /// Average time until a lost interruptible machine comes back.
    pub lost_s: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            seed: 1,
            share_gb: None,
            max_concurrency: 1,
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
    /// Fraction of a machine that a job takes whose model needs this much memory.
    pub(super) fn share(&self, vram_gb: f64) -> f64 {
        self.share_gb.map_or(1.0, |share_gb| vram_gb / share_gb) / f64::from(self.max_concurrency)
    }

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

/// Seconds to load a model from the machine's own disk.
pub(super) fn disk_load_s(vram_gb: f64) -> f64 {
    3.0 + 0.1 * vram_gb
}
