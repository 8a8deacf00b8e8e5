//! The jobs and machines of a bound.

/// A kind of machine that can hold some job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) speed: f64,
    pub(super) usd_per_s: f64,
    /// What a switch-on costs, in seconds of its price.
    pub(super) boot_s: f64,
    /// It holds the jobs of the classes up to this one.
    pub(super) level: usize,
}

/// A job that some machine can hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) arrival_s: f64,
    pub(super) target_s: f64,
    /// On a card of speed 1.0.
    pub(super) service_s: f64,
    /// The share of a card that it takes while it runs, 0 to 1.
    pub(super) share: f64,
    /// Only machines of this level and above hold it.
    pub(super) class: usize,
}

impl Work {
    /// It starts no later, seconds since the trace began.
    pub(super) fn latest_start_s(&self) -> f64 {
        self.arrival_s + self.target_s
    }
}
