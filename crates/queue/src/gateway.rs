//! What a worker and the gateway say to each other: passive data, one pair of structs per route under `/worker/v1/`.
//!
//! It stands in this crate because both sides depend on it and on nothing of each other.

mod offer;
mod secrets;
mod status;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::demands::SandboxLevel;
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
    /// What the operator calls it; shown, never trusted.
    pub name: String,
    /// Attempts it can run at once.
    pub slots: u32,
    /// Its cards; empty is a CPU worker.
    pub gpus: Vec<Gpu>,
    /// The GPU driver's version, as `570.86.10`.
    #[serde(default)]
    pub driver: Option<String>,
    /// The newest CUDA that the driver serves, as `12.8`.
    #[serde(default)]
    pub cuda: Option<String>,
    /// What an hour of the whole machine costs, all slots together; 0 when its operator does not say.
    #[serde(default)]
    pub price_usd_micros_per_hour: u64,
    /// How far it shuts its handlers in; absent when it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLevel>,
    /// What an earlier join of the same life answered: the worker keeps its id, and with it its leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

/// One card, as the worker reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// NVML's index.
    pub index: u32,
    /// NVML's UUID.
    pub uuid: String,
    /// Model name.
    pub name: String,
    /// Total memory, MiB.
    pub vram_mib: u64,
    /// CUDA's, as `8.9`.
    #[serde(default)]
    pub compute_capability: Option<String>,
    /// It is cut into instances (MIG).
    #[serde(default)]
    pub is_mig: bool,
}

/// What a worker needs to know after joining.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinReply {
    /// Its id for this life.
    pub worker_id: String,
    /// Its bearer token from now on.
    pub token: String,
    /// The token's life; every `extend` answers with a fresh one when half is gone.
    pub token_ttl_ms: u64,
    /// How long a lease lasts unless extended.
    pub lease_ms: u64,
    /// How often to call `extend`.
    pub extend_every_ms: u64,
    /// Of a rented machine: what its next life joins with. Good once; each join answers the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_token: Option<String>,
    /// What this life of the worker joins again with, beside its join token: it proves that it is the worker of this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

/// `POST /worker/v1/lease`: report ends and ask for more, in one round trip. Held up to `wait_ms` while there is nothing to lease.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// At most this many; 0 only reports.
    pub want: u32,
    /// What it can take.
    #[serde(flatten)]
    pub offer: Offer,
    /// The class that the worker has made room for (see [`HoldCard`]): nothing else is leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<u32>,
    /// How long to wait for the first lease; the gateway waits no longer than half a lease.
    pub wait_ms: u64,
    /// It fetches large inputs from S3 (see [`crate::job::InputFile`]); without, the gateway sends them along.
    #[serde(default)]
    pub fetches_inputs: bool,
    /// Attempts that ended; answered before the wait when there are any and `want` is 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finish: Vec<FinishReport>,
}

/// What `lease` answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LeaseReply {
    /// The leases granted, none when the wait ran out.
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
    /// Whose it is.
    pub tenant: String,
    /// The endpoint to run.
    pub endpoint: String,
    /// And its version.
    pub version: u32,
    /// Which try this is.
    pub attempt: u32,
    /// The right to end it.
    pub fence: Fence,
    /// Longest the handler may run.
    pub timeout_ms: u64,
    /// The input, JSON text untouched since it was submitted. With `input_file` only a reference to it.
    pub input: Box<RawValue>,
    /// The one of `files` that holds the input: only for a worker that fetches inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_file: Option<String>,
    /// Where to fetch the files that the input names, and `input_file`: file id to presigned URL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The run's place in the job's trace, as W3C Trace Context writes it: a handler's own spans are parts of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Jobs of the same endpoint and priority that could start now and were not leased with it. 0 where the gateway does not say.
    #[serde(default, skip_serializing_if = "is_none_left")]
    pub behind: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_none_left(behind: &u64) -> bool {
    *behind == 0
}

impl LeasedJob {
    /// The trace that it is part of, in hex digits; empty where the gateway did not say.
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

/// How an attempt ended, as its worker tells it.
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
    /// What the attempt cost. Never taken from a worker: the gateway fills it in from the price it knows.
    #[serde(skip)]
    pub cost_usd_micros: Option<u64>,
    /// With `oom_gpu`: what of a card the model turned out to need at least, MiB; absent where another model may have been in its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_need_mib: Option<u64>,
    /// Where a job goes on that has outgrown its card. Never taken from a worker: the gateway knows which cards there are.
    #[serde(skip)]
    pub outgrown: Option<Outgrown>,
    /// The kind of card that it ran on, as [`crate::vram::kind_of_card`] names it. Never taken from a worker: the gateway knows its cards.
    #[serde(skip)]
    pub card_kind: String,
    /// The machine that it ran on: its worker's name. Never taken from a report: the gateway knows its workers.
    #[serde(skip)]
    pub machine: String,
    /// The end itself.
    #[serde(flatten)]
    pub outcome: FinishOutcome,
}

/// What becomes of a job whose card has turned out to be too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outgrown {
    /// It goes on at the front of this VRAM class, GiB, at no cost to any budget.
    To(u32),
    /// No card that is known is larger: it fails.
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
    #[cfg(feature = "redis")]
    pub(crate) fn sharers(&self) -> f64 {
        self.timing.sharers()
    }
}

/// The end of an attempt.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum FinishOutcome {
    /// With a small result.
    Succeeded {
        /// The JSON, at most [`crate::job::INLINE_RESULT_BYTES`].
        result: Box<RawValue>,
    },
    /// With a result already in S3 under this attempt's prefix, as `output.json`.
    Stored {
        /// Its size.
        size_bytes: u64,
    },
    /// Without one.
    Failed {
        /// Why.
        error: JobError,
    },
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishAnswer {
    /// Taken; the job moved on.
    Ok,
    /// The lease was no longer this worker's: nothing of the attempt is kept.
    StaleFence,
    /// The job has already ended, by this very attempt or otherwise.
    AlreadyEnded,
    /// No such job (any more).
    NotFound,
}

/// `POST /worker/v1/finish`: only reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishRequest {
    /// Attempts that ended; at most 100.
    pub finish: Vec<FinishReport>,
    /// What the worker can take now, while its pull waits with less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
}

/// What `finish` answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishReply {
    /// One answer per report, in order.
    pub finished: Vec<FinishAnswer>,
    /// The pull goes by the offer from now on; otherwise it waits elsewhere, or not at all.
    #[serde(default)]
    pub offer_taken: bool,
}

/// A lease, named.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRef {
    /// The job.
    pub job_id: JobId,
    /// The right held.
    pub fence: Fence,
}

/// `POST /worker/v1/extend`: the heartbeat. Keeps every lease named alive and tells how the worker is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExtendRequest {
    /// The leases held; at most 1,000.
    pub leases: Vec<LeaseRef>,
    /// What each of its cards can take now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<CardReach>,
    /// How the worker is.
    pub status: WorkerStatus,
}

/// What `extend` answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExtendReply {
    /// One answer per lease, in order.
    pub leases: Vec<ExtendAnswer>,
    /// A fresh token, when the old one has lived half its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A job for which there is no room has waited for too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldCard>,
    /// The models that it is to have loaded, jobs or not, and no others; absent when that cannot be said now: those of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Vec<ModelRef>>,
    /// Models that it has not loaded and whose jobs wait: their environments may be fetched ahead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<ModelRef>,
    /// Endpoints whose needs were forgotten lately: so does the worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forgotten: Vec<ForgottenNeeds>,
}

/// What an endpoint's versions were seen to need of GPUs is not to be relied on any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenNeeds {
    /// Whose it is.
    pub tenant: String,
    /// The endpoint.
    pub endpoint: String,
    /// When, unix milliseconds: what was seen before is forgotten, once.
    pub at_ms: u64,
}

/// A worker is to take nothing more on one of its cards, or several, until there is room for a large job, and lease that then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldCard {
    /// The job's class, for [`LeaseRequest::only`].
    pub class: u32,
    /// What it needs of a card, GiB.
    pub gib: u32,
    /// How many cards it needs; more than one are to be empty.
    pub gpus: u32,
    /// The cards that would do, by index.
    pub cards: Vec<u32>,
}

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtendAnswer {
    /// Held for another `lease_ms`.
    Held,
    /// Lost (reaped, cancelled, ended): stop the attempt, drop what it made.
    Lost,
}

/// `POST /worker/v1/release`: hand leases back unharmed (drain).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseRequest {
    /// The leases to hand back; at most 100.
    pub leases: Vec<LeaseRef>,
}

/// What `release` answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseReply {
    /// One answer per lease, in order.
    pub released: Vec<FinishAnswer>,
}

/// `POST /worker/v1/events`: what running jobs say meanwhile. At most 500 a call; an event of a lost lease is dropped.
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

/// What a running job can say.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", try_from = "wire::Message")]
pub enum JobMessage {
    /// How far it is.
    Progress {
        /// 0 to 1.
        fraction: f64,
        /// What it is doing.
        #[serde(default)]
        message: String,
    },
    /// Lines it printed.
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
    /// Items that a generator handler yielded one after the other; none at the end of an attempt, whose items are all those below `index`.
    Outputs {
        /// That of the first.
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
    /// What will be put; at most 1,000.
    pub files: Vec<UploadFile>,
}

/// One file to put. Length and checksum are signed into its URL.
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

/// What `uploads` answers. 409 `stale_fence` when the lease is lost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UploadsReply {
    /// One per file, in order.
    pub uploads: Vec<Upload>,
}

/// A presigned PUT.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Upload {
    /// Where.
    pub url: String,
    /// Headers that are part of the signature and must be sent as they are.
    pub headers: BTreeMap<String, String>,
}

/// `GET /worker/v1/endpoints/{tenant}/{name}/{version}`: what a worker needs to start a runner. 404 unless it holds a lease of that tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunnerSpec {
    /// The version's fixed facts.
    #[serde(flatten)]
    pub version: crate::endpoint::EndpointVersion,
    /// Presigned GET of the package, valid for an hour.
    pub package_url: String,
    /// Where each of its weights is fetched from, in their order; presigned ones are valid for some hours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weight_urls: Vec<String>,
    /// What it was seen to need, MiB by GPU model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub needs_mib: BTreeMap<String, u64>,
}

/// The flat shapes that tagged messages are read through. Serde's own way, buffering until the tag is known, cannot carry a
/// [`RawValue`], and results must pass through as they are.
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

    /// [`Message`] and whose it is; spelled out, since flattening buffers as well.
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
