//! The messages of `join`: a worker gets its id and its token.

use serde::{Deserialize, Serialize};

use crate::gpus::Gpu;
use crate::requirements::SandboxLevel;

/// `POST /worker/v1/join`, with a join token as bearer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinRequest {
    /// [`PROTOCOL`](super::PROTOCOL).
    pub protocol: u32,
    /// The worker's release.
    pub release: String,
    /// The name that the operator gave it; displayed, never trusted.
    pub name: String,
    /// Attempts that it can run concurrently.
    pub slots: u32,
    /// GPUs of the worker; empty for a CPU worker.
    pub gpus: Vec<Gpu>,
    /// The GPU driver's version, e.g. `570.86.10`.
    #[serde(default)]
    pub driver: Option<String>,
    /// The newest CUDA version that the driver supports, e.g. `12.8`.
    #[serde(default)]
    pub cuda: Option<String>,
    /// Price per hour of the whole host, all slots together; 0 if its operator does not set it.
    #[serde(default)]
    pub price_usd_micros_per_hour: u64,
    /// Sandbox level of the worker; absent if it does not report one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLevel>,
    /// The value from an earlier join of the same process. With it, the worker keeps its id and its leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

/// The reply to a join.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinReply {
    /// The worker's id for the life of its process.
    pub worker_id: String,
    /// Bearer token of the worker from now on.
    pub token: String,
    /// The token's lifetime; `extend` returns a fresh one once half of it has passed.
    pub token_ttl_ms: u64,
    /// Duration of a lease unless it is extended, milliseconds.
    pub lease_ms: u64,
    /// Interval of heartbeats (`extend`), milliseconds.
    pub extend_every_ms: u64,
    /// For a rented instance: the join token of its next process. Valid once; each join returns the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_token: Option<String>,
    /// The value for joining again, in addition to the join token. It proves that the worker has this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}
