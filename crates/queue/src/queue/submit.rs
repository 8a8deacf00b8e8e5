//! The answer to a submit, and the guard for feeding a batch.

use crate::id::JobId;

/// The outcome of one submitted job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// The job was accepted under its own id.
    New(JobId),
    /// The idempotency key was used before with the same request: this is the job of the first submit.
    Repeat(JobId),
}

impl Submitted {
    /// The job's id in both cases.
    #[must_use]
    pub fn id(self) -> JobId {
        match self {
            Self::New(id) | Self::Repeat(id) => id,
        }
    }
}

/// Ensures that a piece of a batch is fed once: the batch must have been fed up to `from_line`, and is then fed up to
/// `to_line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchGuard {
    /// The batch, `batch_<32 hex>`.
    pub batch: String,
    /// Lines fed before.
    pub from_line: u64,
    /// Lines fed afterwards.
    pub to_line: u64,
}
