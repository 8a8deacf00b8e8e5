//! Stokehold's queue: the job model, its state machine, and the verbs that move jobs.
//!
//! The job record is the truth; streams mean "ready" and nothing more. [`Queue`] is the contract, [`RedisQueue`] what runs in
//! production and [`MemoryQueue`] the same in one process, for simulation. This crate knows no HTTP, no GPU and no cloud.

pub mod endpoint;
mod error;
pub mod gateway;
mod id;
pub mod job;
#[cfg(feature = "redis")]
pub mod queue;

pub use error::Error;
pub use id::{Fence, JobId, ParseJobIdError, nonce};
#[cfg(feature = "redis")]
pub use queue::Queue;
