//! The messages of `extend` and `release`: a worker keeps its leases, or returns them.

use serde::{Deserialize, Serialize};

use super::{FinishAnswer, GpuCapability, ModelRef, WorkerStatus};
use crate::id::{Fence, JobId};

/// A reference to a lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRef {
    /// The job.
    pub job_id: JobId,
    /// The fence.
    pub fence: Fence,
}

/// `POST /worker/v1/extend`: the heartbeat. Extends every listed lease and reports the worker's status.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExtendRequest {
    /// The leases of the worker; at most 1,000.
    pub leases: Vec<LeaseRef>,
    /// The current capability of each of its GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<GpuCapability>,
    /// The worker's status.
    pub status: WorkerStatus,
}

/// The reply to `extend`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExtendReply {
    /// One answer per lease, in order.
    pub leases: Vec<ExtendAnswer>,
    /// A fresh token, once half of the lifetime of the old one has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A job without room that has waited too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<ReserveGpus>,
    /// The models to keep loaded without jobs; all others may be unloaded. Absent if unknown, in which case the
    /// previous list applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Vec<ModelRef>>,
    /// Models that are not loaded and whose jobs wait: the worker may fetch their environments ahead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<ModelRef>,
    /// Endpoints whose learned memory was reset recently: the worker resets its own values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forgotten: Vec<ForgottenNeeds>,
}

/// A reset of the learned GPU memory of an endpoint's versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenNeeds {
    /// The tenant.
    pub tenant: String,
    /// The endpoint.
    pub endpoint: String,
    /// Time of the reset, Unix milliseconds. Values learned before it are dropped once.
    pub at_ms: u64,
}

/// A request to reserve one or several GPUs: lease nothing more on them until there is room for a large job, then lease
/// that job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveGpus {
    /// The job's class, for [`LeaseRequest::only`](super::LeaseRequest::only).
    pub class: u32,
    /// The memory that it needs on a GPU, GiB.
    pub gib: u32,
    /// Number of GPUs that it needs; more than one must be empty.
    pub gpus: u32,
    /// The GPUs that qualify, by index.
    pub cards: Vec<u32>,
}

/// The answer about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtendAnswer {
    /// The worker has the lease for another `lease_ms`.
    Held,
    /// Lost (reaped, cancelled, ended): stop the attempt and discard its output.
    Lost,
}

/// `POST /worker/v1/release`: returns leases without cost to their jobs (drain).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseRequest {
    /// The leases to return; at most 100.
    pub leases: Vec<LeaseRef>,
}

/// The reply to `release`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseReply {
    /// One answer per lease, in order.
    pub released: Vec<FinishAnswer>,
}
