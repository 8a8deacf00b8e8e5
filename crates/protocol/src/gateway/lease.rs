//! The messages of `lease`: a worker reports ends and gets jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{FinishAnswer, FinishReport, ModelRef, Offer};
use crate::id::{Fence, JobId};

/// `POST /worker/v1/lease`: reports ends and requests more jobs in one round trip. The gateway holds the request for up
/// to `wait_ms` while there is nothing to lease.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// Maximum number of jobs; 0 only reports.
    pub want: u32,
    /// The worker's capability.
    #[serde(flatten)]
    pub offer: Offer,
    /// The class that the worker has reserved room for (see [`ReserveGpus`](super::ReserveGpus)): only its jobs are
    /// leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<u32>,
    /// Maximum wait for the first lease, milliseconds. The gateway waits at most half the duration of a lease.
    pub wait_ms: u64,
    /// Whether the worker fetches large inputs from S3 (see [`crate::job::InputFile`]); otherwise the gateway includes
    /// them.
    #[serde(default)]
    pub fetches_inputs: bool,
    /// Attempts that ended. If there are any and `want` is 0, the reply is immediate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finish: Vec<FinishReport>,
}

/// The reply to `lease`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LeaseReply {
    /// The granted leases; none if the wait timed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeasedJob>,
    /// One answer per report, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<FinishAnswer>,
}

/// One job, leased.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LeasedJob {
    /// The job.
    pub job_id: JobId,
    /// The job's tenant.
    pub tenant: String,
    /// The endpoint to run.
    pub endpoint: String,
    /// The endpoint's version.
    pub version: u32,
    /// The number of this attempt.
    pub attempt: u32,
    /// The fence: the lease token, which gives the right to end the attempt.
    pub fence: Fence,
    /// Time limit of the handler, milliseconds.
    pub timeout_ms: u64,
    /// The input: the JSON text as submitted. With `input_file`, only a reference to it.
    pub input: Box<RawValue>,
    /// The entry of `files` that holds the input; set only for a worker that fetches inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_file: Option<String>,
    /// Presigned URLs, by file id, of the files that the input references and of `input_file`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The trace context of the run, W3C Trace Context; spans of the handler can become part of the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Number of jobs of the same endpoint and priority that could start now and were not leased with it. 0 if the
    /// gateway does not report it.
    #[serde(default, skip_serializing_if = "is_none_left")]
    pub behind: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_none_left(behind: &u64) -> bool {
    *behind == 0
}

impl LeasedJob {
    /// The trace's id, hex digits; empty if the gateway did not send one.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        self.traceparent.as_deref().and_then(|place| place.split('-').nth(1)).unwrap_or_default()
    }

    /// The model that it runs on.
    #[must_use]
    pub fn model(&self) -> ModelRef {
        ModelRef { tenant: self.tenant.clone(), endpoint: self.endpoint.clone(), version: self.version }
    }
}
