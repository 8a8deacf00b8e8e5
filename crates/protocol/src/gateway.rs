//! The messages between workers and the gateway: passive data, one pair of structs per route under `/worker/v1/`.
//!
//! Both sides depend on this crate and not on each other.

mod events;
mod extend;
mod files;
mod finish;
mod join;
mod lease;
mod offer;
mod secrets;
mod status;
#[cfg(test)]
mod tests;
mod wire;

pub use crate::gpus::Gpu;
pub use events::{
    EVENTS_MAX, EventsReply, EventsRequest, JobEventReport, JobMessage, LogStream, OutputHandling, RELAYED_BYTES_MAX,
};
pub use extend::{
    ExtendAnswer, ExtendReply, ExtendRequest, ForgottenNeeds, LeaseRef, ReleaseReply, ReleaseRequest, ReserveGpus,
};
pub use files::{RunnerSpec, Upload, UploadFile, UploadsReply, UploadsRequest};
pub use finish::{BATCH_SIZE_MAX, FinishAnswer, FinishOutcome, FinishReply, FinishReport, FinishRequest, Outgrown};
pub use join::{JoinReply, JoinRequest};
pub use lease::{LeaseReply, LeaseRequest, LeasedJob};
pub use offer::{GpuCapability, ModelRef, Offer, WarmModel};
pub use secrets::{Secrets, SecretsReply, SecretsRequest};
pub use status::{
    GpuHealth, GpuReading, HostStatus, LearnedNeed, ModelOnGpu, ModelState, ModelStatus, STARTING_MAX, StartPhase,
    StartingJob, WorkerStatus,
};

/// The version of this protocol. `join` refuses a worker with another version.
pub const PROTOCOL: u32 = 1;
