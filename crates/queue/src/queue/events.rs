//! The stored events and outputs of a job.

use serde_json::value::RawValue;

use crate::gateway::JobMessage;

/// A stored event of a job.
#[derive(Debug, Clone)]
pub struct KeptEvent {
    /// The event's position, which only grows; the value of `Last-Event-ID`.
    pub id: String,
    /// The attempt that sent it.
    pub attempt: u32,
    /// The event.
    pub message: JobMessage,
}

/// Number of output events of a job that are stored, of several outputs each; older ones are dropped.
pub const OUTPUTS_KEPT: usize = 1_000;

/// Size of a job's outputs as they are stored, that is, compressed where that saves memory; bytes.
pub const OUTPUTS_BYTES_KEPT: usize = 1 << 20;

/// Retention of outputs after the last one, milliseconds.
pub const OUTPUTS_LIFE_MS: u64 = 60 * 60 * 1000;

/// Consecutive outputs of a job, stored for its readers.
#[derive(Debug, Clone)]
pub struct KeptOutputs {
    /// The attempt that yielded them.
    pub attempt: u32,
    /// The index of the first output.
    pub index: u64,
    /// The outputs. An empty list marks the end of the attempt, whose outputs are all those below `index`, or outputs
    /// below `index` that cannot be read.
    pub values: Vec<Box<RawValue>>,
    /// Time at which they were stored, Unix milliseconds.
    pub at_ms: u64,
}

/// A position in a job's outputs: after all earlier attempts and after the outputs of this attempt below `next`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputsPosition {
    /// The attempt; 0 is before all.
    pub attempt: u32,
    /// The index of the next output.
    pub next: u64,
}
