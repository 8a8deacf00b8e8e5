//! The messages between workers and the gateway: passive data, one pair of structs per route under `/worker/v1/`.
//!
//! They are in this crate because both sides depend on it and not on each other.

mod offer;
mod secrets;
mod status;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::demands::SandboxLevel;
pub use crate::gpus::Gpu;
use crate::id::{Fence, JobId};
use crate::job::{JobError, Timing};
pub use offer::{CardReach, ModelRef, Offer, WarmModel};
pub use secrets::{Secrets, SecretsReply, SecretsRequest};
pub use status::{GpuHealth, GpuReading, HostStatus, LearnedNeed, ModelOnCard, ModelState, ModelStatus, WorkerStatus};

/// The version of this protocol. `join` refuses a worker with another.
pub const PROTOCOL: u32 = 1;

/// `POST /worker/v1/join`, with a join token as bearer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinRequest {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The worker's release.
    pub release: String,
    /// The name that the operator gave it; displayed, never trusted.
    pub name: String,
    /// Attempts that it can run concurrently.
    pub slots: u32,
    /// Its GPUs; empty for a CPU worker.
    pub gpus: Vec<Gpu>,
    /// The GPU driver's version, e.g. `570.86.10`.
    #[serde(default)]
    pub driver: Option<String>,
    /// The newest CUDA version that the driver supports, e.g. `12.8`.
    #[serde(default)]
    pub cuda: Option<String>,
    /// The cost per hour of the whole machine, all slots together; 0 if its operator does not set it.
    #[serde(default)]
    pub price_usd_micros_per_hour: u64,
    /// Its sandbox level; absent if it does not report one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLevel>,
    /// The value that an earlier join of the same process received: the worker keeps its id, and with it its leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

/// The reply to a join.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinReply {
    /// The worker's id for the life of its process.
    pub worker_id: String,
    /// Its bearer token from now on.
    pub token: String,
    /// The token's lifetime; `extend` returns a fresh one once half of it has passed.
    pub token_ttl_ms: u64,
    /// How long a lease lasts unless extended.
    pub lease_ms: u64,
    /// How often to call `extend`.
    pub extend_every_ms: u64,
    /// For a rented instance: the token of its next process. Valid once; each join returns the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_token: Option<String>,
    /// The value for joining again, beside the join token: it proves that the worker has this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

/// `POST /worker/v1/lease`: report ends and request more, in one round trip. Held up to `wait_ms` while there is
/// nothing to lease.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// At most this many; 0 only reports.
    pub want: u32,
    /// What the worker can take.
    #[serde(flatten)]
    pub offer: Offer,
    /// The class that the worker has made room for (see [`HoldCard`]): only its jobs are leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<u32>,
    /// How long to wait for the first lease; the gateway waits at most half a lease.
    pub wait_ms: u64,
    /// Whether the worker fetches large inputs from S3 (see [`crate::job::InputFile`]); otherwise the gateway sends
    /// them along.
    #[serde(default)]
    pub fetches_inputs: bool,
    /// Attempts that ended; answered before the wait if there are any and `want` is 0.
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
    /// The fence: the right to end the attempt.
    pub fence: Fence,
    /// The longest that the handler may run.
    pub timeout_ms: u64,
    /// The input, JSON text unchanged since the submit. With `input_file`, only a reference to it.
    pub input: Box<RawValue>,
    /// The entry of `files` that holds the input: only for a worker that fetches inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_file: Option<String>,
    /// Where to fetch the files that the input references, and `input_file`: file id to presigned URL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The run's place in the job's trace as a W3C Trace Context; a handler's own spans become part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Jobs of the same endpoint and priority that could start now and were not leased with it. 0 if the gateway does
    /// not report it.
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

/// Jobs that one call of a handler takes, at most.
pub const BATCH_SIZE_MAX: u32 = 256;

/// The end of an attempt, as its worker reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "wire::Report")]
pub struct FinishReport {
    /// The job.
    pub job_id: JobId,
    /// Proof of the lease.
    pub fence: Fence,
    /// Where the time went.
    #[serde(default)]
    pub timing: Timing,
    /// The cost of the attempt. Never taken from a worker: the gateway computes it from the price it has stored.
    #[serde(skip)]
    pub cost_usd_micros: Option<u64>,
    /// With `oom_gpu`: the GPU memory that the model was seen to need at least, MiB; absent if another model may have
    /// been the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_need_mib: Option<u64>,
    /// Where a job continues that has outgrown its GPU. Never taken from a worker: the gateway has the list of GPUs.
    #[serde(skip)]
    pub outgrown: Option<Outgrown>,
    /// The GPU model that it ran on, as [`crate::vram::kind_of_card`] names it. Never taken from a worker: the gateway
    /// has its GPUs.
    #[serde(skip)]
    pub card_kind: String,
    /// The machine that it ran on: its worker's name. Never taken from a report: the gateway has its workers.
    #[serde(skip)]
    pub machine: String,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: FinishOutcome,
}

/// Where a job continues whose GPU was too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outgrown {
    /// At the front of this VRAM class, GiB, without using up an attempt.
    To(u32),
    /// No known GPU is larger: it fails.
    All,
}

impl FinishReport {
    /// The end of the attempt under this lease.
    #[must_use]
    pub fn new(lease: LeaseRef, timing: Timing, outcome: FinishOutcome) -> Self {
        let LeaseRef { job_id, fence } = lease;
        Self {
            job_id,
            fence,
            timing,
            cost_usd_micros: None,
            vram_need_mib: None,
            outgrown: None,
            card_kind: String::new(),
            machine: String::new(),
            outcome,
        }
    }

    /// How many jobs shared its time: those of its call of the handler, or beside it in its process.
    pub(crate) fn sharers(&self) -> f64 {
        self.timing.sharers()
    }
}

/// The outcome of an attempt.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum FinishOutcome {
    /// A small result.
    Succeeded {
        /// The JSON, at most [`crate::job::INLINE_RESULT_BYTES`].
        result: Box<RawValue>,
    },
    /// A result already in S3 under this attempt's prefix, as `output.json`.
    Stored {
        /// Its size.
        size_bytes: u64,
    },
    /// No result.
    Failed {
        /// Why.
        error: JobError,
    },
}

/// The answer to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishAnswer {
    /// Accepted; the job moved on.
    Ok,
    /// The worker no longer held the lease: nothing of the attempt is stored.
    StaleFence,
    /// The job has already ended, by this attempt or otherwise.
    AlreadyEnded,
    /// No such job, or no longer.
    NotFound,
}

/// `POST /worker/v1/finish`: only reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishRequest {
    /// Attempts that ended; at most 100.
    pub finish: Vec<FinishReport>,
    /// What the worker can take now, while its lease poll waits with less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
}

/// The reply to `finish`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishReply {
    /// One answer per report, in order.
    pub finished: Vec<FinishAnswer>,
    /// Whether the lease poll uses the offer from now on; otherwise it waits elsewhere, or not at all.
    #[serde(default)]
    pub offer_taken: bool,
}

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
    /// The leases held; at most 1,000.
    pub leases: Vec<LeaseRef>,
    /// What each of its GPUs can take now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<CardReach>,
    /// The worker's status.
    pub status: WorkerStatus,
}

/// The reply to `extend`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExtendReply {
    /// One answer per lease, in order.
    pub leases: Vec<ExtendAnswer>,
    /// A fresh token, once half of the old one's lifetime has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A job without room that has waited too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldCard>,
    /// The models to keep loaded without jobs, and no others; absent if that is not known now: keep the previous ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Vec<ModelRef>>,
    /// Models that are not loaded and whose jobs wait: the worker may fetch their environments ahead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<ModelRef>,
    /// Endpoints whose learned memory was reset recently: the worker resets its own values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forgotten: Vec<ForgottenNeeds>,
}

/// A reset of the GPU memory that an endpoint's versions were seen to need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenNeeds {
    /// The tenant.
    pub tenant: String,
    /// The endpoint.
    pub endpoint: String,
    /// When, Unix milliseconds: values learned before are dropped, once.
    pub at_ms: u64,
}

/// A request to take nothing more on one or several GPUs until there is room for a large job, and then to lease it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldCard {
    /// The job's class, for [`LeaseRequest::only`].
    pub class: u32,
    /// The memory that it needs on a GPU, GiB.
    pub gib: u32,
    /// How many GPUs it needs; more than one must be empty.
    pub gpus: u32,
    /// The GPUs that qualify, by index.
    pub cards: Vec<u32>,
}

/// The answer about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtendAnswer {
    /// Held for another `lease_ms`.
    Held,
    /// Lost (reaped, cancelled, ended): stop the attempt and discard its output.
    Lost,
}

/// `POST /worker/v1/release`: return leases unharmed (drain).
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

/// `POST /worker/v1/events`: events of running jobs. At most 500 per call; an event of a lost lease is dropped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventsRequest {
    /// In order per job.
    pub events: Vec<JobEventReport>,
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
        /// 0 to 1.
        fraction: f64,
        /// What the job is doing.
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
    /// One item a generator handler yielded.
    Output {
        /// 0, 1, ...
        index: u64,
        /// The item.
        value: Box<RawValue>,
    },
    /// Consecutive items that a generator handler yielded; none at the end of an attempt, whose items are all those
    /// below `index`.
    Outputs {
        /// The index of the first.
        index: u64,
        /// The items.
        values: Vec<Box<RawValue>>,
    },
}

/// Which of a runner's streams a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// `POST /worker/v1/uploads`: where to put the files of one attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UploadsRequest {
    /// The job.
    pub job_id: JobId,
    /// Proof of the lease.
    pub fence: Fence,
    /// The files; at most 1,000.
    pub files: Vec<UploadFile>,
}

/// One file to upload. Length and checksum are signed into its URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadFile {
    /// Its name below the attempt's prefix: `[A-Za-z0-9._-]{1,200}`.
    pub name: String,
    /// Bytes.
    pub size_bytes: u64,
    /// SHA-256, hex.
    pub sha256: String,
    /// MIME type.
    pub content_type: String,
}

/// The reply to `uploads`. 409 `stale_fence` if the lease is lost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UploadsReply {
    /// One per file, in order.
    pub uploads: Vec<Upload>,
}

/// A presigned PUT.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Upload {
    /// The URL.
    pub url: String,
    /// Headers that are part of the signature and must be sent unchanged.
    pub headers: BTreeMap<String, String>,
}

/// `GET /worker/v1/endpoints/{tenant}/{name}/{version}`: what a worker needs to start a runner. 404 unless it holds a
/// lease of that tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunnerSpec {
    /// The version.
    #[serde(flatten)]
    pub version: crate::endpoint::EndpointVersion,
    /// Presigned GET of the package, valid for an hour.
    pub package_url: String,
    /// The address of each of its weights, in order; presigned ones are valid for some hours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weight_urls: Vec<String>,
    /// The memory that it was seen to need, MiB by GPU model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub needs_mib: BTreeMap<String, u64>,
}

/// The flat shapes that tagged messages are parsed through. Serde's own way, buffering until the tag is known, cannot
/// carry a [`RawValue`], and results must pass through unchanged.
mod wire {
    use super::{
        Deserialize, Fence, FinishOutcome, FinishReport, JobError, JobEventReport, JobId, JobMessage, LogStream,
        RawValue, Timing,
    };

    #[derive(Deserialize)]
    pub(super) struct Report {
        job_id: JobId,
        fence: Fence,
        #[serde(default)]
        timing: Timing,
        outcome: Outcome,
        #[serde(default, deserialize_with = "present")]
        result: Option<Box<RawValue>>,
        size_bytes: Option<u64>,
        error: Option<JobError>,
        vram_need_mib: Option<u64>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Outcome {
        Succeeded,
        Stored,
        Failed,
    }

    impl TryFrom<Report> for FinishReport {
        type Error = &'static str;

        fn try_from(report: Report) -> Result<Self, Self::Error> {
            let outcome = match report.outcome {
                Outcome::Succeeded => {
                    FinishOutcome::Succeeded { result: report.result.ok_or("missing field `result`")? }
                }
                Outcome::Stored => {
                    FinishOutcome::Stored { size_bytes: report.size_bytes.ok_or("missing field `size_bytes`")? }
                }
                Outcome::Failed => FinishOutcome::Failed { error: report.error.ok_or("missing field `error`")? },
            };
            Ok(Self {
                job_id: report.job_id,
                fence: report.fence,
                timing: report.timing,
                cost_usd_micros: None,
                vram_need_mib: report.vram_need_mib,
                outgrown: None,
                card_kind: String::new(),
                machine: String::new(),
                outcome,
            })
        }
    }

    #[derive(Deserialize)]
    pub(super) struct Message {
        event: Kind,
        fraction: Option<f64>,
        #[serde(default)]
        message: String,
        stream: Option<LogStream>,
        text: Option<String>,
        index: Option<u64>,
        #[serde(default, deserialize_with = "present")]
        value: Option<Box<RawValue>>,
        values: Option<Vec<Box<RawValue>>>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Progress,
        Log,
        Output,
        Outputs,
    }

    impl TryFrom<Message> for JobMessage {
        type Error = &'static str;

        fn try_from(message: Message) -> Result<Self, Self::Error> {
            Ok(match message.event {
                Kind::Progress => Self::Progress {
                    fraction: message.fraction.ok_or("missing field `fraction`")?,
                    message: message.message,
                },
                Kind::Log => Self::Log {
                    stream: message.stream.ok_or("missing field `stream`")?,
                    text: message.text.ok_or("missing field `text`")?,
                },
                Kind::Output => Self::Output {
                    index: message.index.ok_or("missing field `index`")?,
                    value: message.value.ok_or("missing field `value`")?,
                },
                Kind::Outputs => Self::Outputs {
                    index: message.index.ok_or("missing field `index`")?,
                    values: message.values.ok_or("missing field `values`")?,
                },
            })
        }
    }

    /// [`Message`] with its job; written out because flattening buffers as well.
    #[derive(Deserialize)]
    pub(super) struct Event {
        job_id: JobId,
        fence: Fence,
        event: Kind,
        fraction: Option<f64>,
        #[serde(default)]
        message: String,
        stream: Option<LogStream>,
        text: Option<String>,
        index: Option<u64>,
        #[serde(default, deserialize_with = "present")]
        value: Option<Box<RawValue>>,
        values: Option<Vec<Box<RawValue>>>,
    }

    impl TryFrom<Event> for JobEventReport {
        type Error = &'static str;

        fn try_from(event: Event) -> Result<Self, Self::Error> {
            let Event { job_id, fence, event, fraction, message, stream, text, index, value, values } = event;
            let event = Message { event, fraction, message, stream, text, index, value, values }.try_into()?;
            Ok(Self { job_id, fence, event })
        }
    }

    /// `null` is a value like any other: only an absent member is `None`.
    fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_pass_through_as_they_are() {
        let id = JobId::new(0);
        for outcome in [
            r#""outcome":"succeeded","result":{"b": 1.50,  "a":null}"#,
            r#""outcome":"succeeded","result":null"#,
            r#""outcome":"stored","size_bytes":5"#,
            r#""outcome":"failed","error":{"code":"infra","message":"x"}"#,
        ] {
            let timing = serde_json::to_string(&Timing::default()).unwrap();
            let text = format!(r#"{{"job_id":"{id}","fence":"1.a","timing":{timing},{outcome}}}"#);
            let report: FinishReport = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&report).unwrap(), text);
        }
        assert!(
            serde_json::from_str::<FinishReport>(&format!(
                r#"{{"job_id":"{id}","fence":"1.a","outcome":"succeeded"}}"#
            ))
            .is_err()
        );
    }

    #[test]
    fn what_a_gateway_of_a_later_release_says_more_is_ignored() {
        let id = JobId::new(0);
        let more = r#""of_a_later_release":{"deep":[1,null]}"#;
        let job = format!(
            r#"{{"job_id":"{id}","tenant":"a","endpoint":"e","version":1,"attempt":1,"fence":"1.a","timeout_ms":5,"input":{{}},{more}}}"#
        );
        let lease: LeaseReply =
            serde_json::from_str(&format!(r#"{{"leases":[{job}],"finished":["ok"],{more}}}"#)).unwrap();
        assert_eq!((lease.leases[0].job_id, lease.leases[0].input.get()), (id, "{}"));
        let extend: ExtendReply = serde_json::from_str(&format!(r#"{{"leases":["held","lost"],{more}}}"#)).unwrap();
        assert_eq!(extend.leases, [ExtendAnswer::Held, ExtendAnswer::Lost]);
        let join = r#""worker_id":"w","token":"t","token_ttl_ms":3,"lease_ms":2,"extend_every_ms":1"#;
        let join: JoinReply = serde_json::from_str(&format!("{{{join},{more}}}")).unwrap();
        assert_eq!(join.lease_ms, 2);
    }

    #[test]
    fn events_pass_through_as_they_are() {
        let id = JobId::new(0);
        for event in [
            r#""event":"progress","fraction":0.5,"message":"half""#,
            r#""event":"log","stream":"stderr","text":"a\nb""#,
            r#""event":"output","index":3,"value":[1.0, null]"#,
            r#""event":"output","index":4,"value":null"#,
            r#""event":"outputs","index":5,"values":[{"a": 1.50},null]"#,
        ] {
            let report: JobEventReport =
                serde_json::from_str(&format!(r#"{{"job_id":"{id}","fence":"1.a",{event}}}"#)).unwrap();
            assert_eq!(
                serde_json::to_string(&report).unwrap(),
                format!(r#"{{"job_id":"{id}","fence":"1.a",{event}}}"#)
            );
            let kept: JobMessage = serde_json::from_str(&format!("{{{event}}}")).unwrap();
            assert_eq!(serde_json::to_string(&kept).unwrap(), format!("{{{event}}}"));
        }
    }
}
