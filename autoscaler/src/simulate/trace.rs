//! Traces of jobs.

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// A job of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Seconds since the trace began.
    pub arrival_s: f64,
    /// The model it needs.
    pub endpoint: Name,
    /// Seconds on a card of speed 1.0, with the model loaded and nothing beside it.
    pub service_s: f64,
    /// What the loaded model takes, GB.
    pub vram_gb: f64,
    /// Whose wait target applies.
    pub priority: Priority,
}

/// The priorities that traces know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Is to start within 30 seconds.
    Interactive,
    /// Is to start within an hour.
    Batch,
}

impl Priority {
    /// Within how many seconds of its arrival a job is to start.
    #[must_use]
    pub fn target_s(self) -> f64 {
        match self {
            Self::Interactive => 30.0,
            Self::Batch => 3_600.0,
        }
    }
}
