//! The jobs and machines of a bound.

/// A kind of machine that can hold some job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) speed: f64,
    pub(super) usd_per_s: f64,
    /// Cost of a switch-on, in seconds of the machine's price.
    pub(super) boot_s: f64,
    /// The highest class of jobs that the machine holds. It holds all classes up to this one.
    pub(super) level: usize,
}

/// A job that some machine can hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) arrival_s: f64,
    pub(super) target_s: f64,
    /// Run time on a GPU of speed 1.0, seconds.
    pub(super) service_s: f64,
    /// The share of a GPU that the job takes while it runs, 0 to 1.
    pub(super) share: f64,
    /// The lowest level of machines that hold the job.
    pub(super) class: usize,
}

impl Work {
    /// The latest start, seconds since the trace began.
    pub(super) fn latest_start_s(&self) -> f64 {
        self.arrival_s + self.target_s
    }
}
