//! The events of running jobs.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::wire;
use crate::id::{Fence, JobId};

/// Maximum number of events in one call.
pub const EVENTS_MAX: usize = 500;

/// Maximum size of the outputs that one call relays, bytes: other replicas receive them by their subscriptions.
pub const RELAYED_BYTES_MAX: usize = 64 << 10;

/// `POST /worker/v1/events`: events of running jobs, at most [`EVENTS_MAX`]. An event of a lost lease is dropped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventsRequest {
    /// The events, in order per job.
    pub events: Vec<JobEventReport>,
    /// What happens to outputs. A gateway of the previous release always stores them.
    #[serde(default, skip_serializing_if = "OutputHandling::is_default")]
    pub outputs: OutputHandling,
}

/// What the gateway does with the outputs of a call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputHandling {
    /// Stores them, and signals connected readers.
    #[default]
    Store,
    /// Sends them to connected readers only. A later call stores them.
    Relay,
    /// Stores them for later readers, without a signal: they were relayed.
    StoreRelayed,
}

impl OutputHandling {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The response to [`EventsRequest`] if there is something to do; otherwise its body is empty.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsReply {
    /// The jobs whose relayed outputs should be stored now, because a reader needs them from there.
    #[serde(default)]
    pub store: Vec<JobId>,
}

/// One event of one job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "wire::Event")]
pub struct JobEventReport {
    /// The job.
    pub job_id: JobId,
    /// Proof of the lease.
    pub fence: Fence,
    /// The event itself.
    #[serde(flatten)]
    pub event: JobMessage,
}

/// An event that a running job can send.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", try_from = "wire::Message")]
pub enum JobMessage {
    /// Progress.
    Progress {
        /// The completed fraction, 0 to 1.
        fraction: f64,
        /// Description of what the job is doing.
        #[serde(default)]
        message: String,
    },
    /// Printed lines.
    Log {
        /// `stdout` or `stderr`.
        stream: LogStream,
        /// One or more whole lines, at most 64 KiB.
        text: String,
    },
    /// One item that a generator handler yielded.
    Output {
        /// 0, 1, ...
        index: u64,
        /// The item.
        value: Box<RawValue>,
    },
    /// Consecutive items that a generator handler yielded. Without items it marks the end of an attempt, whose items
    /// are all those below `index`.
    Outputs {
        /// The index of the first.
        index: u64,
        /// The items.
        values: Vec<Box<RawValue>>,
    },
}

/// The stream of a runner that a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}
