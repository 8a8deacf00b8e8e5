//! The request for a job: its limits, its checks and its meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use stokehold_queue::job::{Concurrency, Hook, HookEvent, Idempotency, JobSpec, NewJob, Priority};
use stokehold_queue::{JobId, now_ms};
use utoipa::ToSchema;

use super::dependencies::{self, DependencyRequest};
use super::target::Target;
use crate::config::Webhooks;
use crate::error::FieldError;
use crate::jobs::inputs;
use crate::jobs::words::{JobHookEventWord, PriorityWord};
use crate::server::json;
use crate::{time_format, webhooks};

/// Longest timeout of one attempt, seconds: a week.
pub(crate) const TIMEOUT_MAX_S: u64 = 7 * 24 * 3600;

/// Maximum number of attempts of a job.
pub(crate) const ATTEMPTS_MAX: u32 = 100;

/// Longest delay and longest deadline of a job, seconds: 30 days.
pub(crate) const AHEAD_MAX_S: u64 = 30 * 24 * 3600;

const RETENTION_MIN_S: u64 = 60;
const CONCURRENCY_KEY_MAX: usize = 255;
const CONCURRENCY_MAX: u32 = 10_000;
const METADATA_MAX: usize = 32;
const METADATA_KEY_MAX: usize = 64;
const METADATA_VALUE_MAX: usize = 512;

/// A job to run.
#[derive(Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitRequest {
    /// The endpoint's name.
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    pub(crate) endpoint: String,
    /// The endpoint's version; default: the current one.
    #[schema(minimum = 1)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u32>,
    /// The handler's input; it must match the endpoint's input schema. A file is `{"$file": "<id>"}`, another job's
    /// result `{"$job": "<id>", "pointer": "/a/b"}`.
    #[schema(value_type = serde_json::Value)]
    pub(crate) input: Box<RawValue>,
    /// The job's priority. Default: the endpoint's, else `standard`.
    #[schema(value_type = Option<PriorityWord>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<Priority>,
    /// The longest that one attempt may run, seconds. Default: the endpoint's.
    #[schema(minimum = 1, maximum = 604_800)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_s: Option<u64>,
    /// How many attempts may fail because of the handler. Default: the endpoint's.
    #[schema(minimum = 1, maximum = 100)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<u32>,
    /// The job does not start before this time, RFC 3339.
    #[schema(format = DateTime)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run_after: Option<String>,
    /// The job expires if it has not started this many seconds after the submit. Default: the endpoint's, else 604,800
    /// (7 days), counted from `run_after` if that is later.
    #[schema(minimum = 1, maximum = 2_592_000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue_timeout_s: Option<u64>,
    /// The job expires if it has not ended this many seconds after the submit.
    #[schema(minimum = 1, maximum = 2_592_000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_s: Option<u64>,
    /// How many seconds after its end the job stays in the queue's memory before it moves to the archive. Default: the
    /// server's.
    #[schema(minimum = 60, maximum = 2_592_000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retention_s: Option<u64>,
    /// At most `concurrency_max` of your jobs with the same key run concurrently.
    #[schema(min_length = 1, max_length = 255)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency_key: Option<String>,
    /// The limit for `concurrency_key`. Default 1.
    #[schema(minimum = 1, maximum = 10_000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency_max: Option<u32>,
    /// The jobs to wait for: up to 100.
    #[schema(max_items = 100)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) depends_on: Option<Vec<DependencyRequest>>,
    /// An https URL that receives events of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<String>,
    /// The events to send. Default `["job.completed"]`.
    #[schema(value_type = Option<Vec<JobHookEventWord>>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) webhook_events: Option<Vec<HookEvent>>,
    /// Your own labels, up to 32, to list jobs by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<BTreeMap<String, String>>,
    /// Repeating the request with this key within 24 hours returns the same job. Same as the header.
    #[schema(min_length = 1, max_length = 255)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency_key: Option<String>,
}

impl SubmitRequest {
    /// A request without options.
    pub(crate) fn new(endpoint: String, input: Box<RawValue>) -> Self {
        Self { endpoint, input, ..Self::default() }
    }
}

/// Reasons for which a request cannot become a job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A member is invalid.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The input does not match the endpoint's schema, or names files incorrectly.
    #[error(transparent)]
    Input(#[from] inputs::Error),
    /// The request cannot be serialised again, which indicates a bug.
    #[error("failed to compute the fingerprint of a submit: {0}")]
    Fingerprint(String),
}

/// A request that has been checked.
pub(crate) struct Checked {
    pub(crate) job: NewJob,
    input: Value,
    /// All other requested members ([`asked`]), before any default was filled in: a deploy between two attempts must
    /// not make them differ.
    asked: String,
}

/// Checks a request. `at` is its JSON pointer in the body; `before` are the IDs of the jobs before it in the same call.
pub(crate) fn check(
    request: SubmitRequest,
    target: &Target,
    tenant: &str,
    at: &str,
    before: &[JobId],
) -> Result<Checked, Error> {
    let (defaults, now) = (target.spec(tenant), now_ms());
    let mut request = request;
    let text = std::mem::take(&mut request.input);
    let asked = asked(&request)?;
    let timeout_s = within(request.timeout_s, 1, TIMEOUT_MAX_S, at, "timeout_s")?;
    let max_attempts = within(request.max_attempts.map(u64::from), 1, u64::from(ATTEMPTS_MAX), at, "max_attempts")?
        .map_or(defaults.max_attempts, |attempts| u32::try_from(attempts).unwrap_or(ATTEMPTS_MAX));
    let run_after_ms = match &request.run_after {
        None => 0,
        Some(text) => time_format::parse(text).filter(|ms| *ms <= now + AHEAD_MAX_S * 1000).ok_or_else(|| {
            FieldError::new(
                format!("{at}/run_after"),
                "must be a time, e.g. 2026-11-21T05:50:00Z, at most 30 days ahead",
            )
        })?,
    };
    let from_now = |seconds: Option<u64>| seconds.map(|seconds| now + seconds * 1000);
    let queue_timeout_s = within(request.queue_timeout_s, 1, AHEAD_MAX_S, at, "queue_timeout_s")?;
    let deadline_ms = from_now(within(request.deadline_s, 1, AHEAD_MAX_S, at, "deadline_s")?);
    let start_by_ms = from_now(queue_timeout_s).or_else(|| target.start_by_ms(now, now.max(run_after_ms), deadline_ms));
    let retention_s = within(request.retention_s, RETENTION_MIN_S, AHEAD_MAX_S, at, "retention_s")?;
    let metadata = request.metadata.unwrap_or_default();
    check_metadata(&metadata, at)?;
    let concurrency = concurrency(request.concurrency_key, request.concurrency_max, at)?;
    let hook = hook(&target.webhooks, request.webhook, request.webhook_events, at)?;

    let input_at = format!("{at}/input");
    let mut input = json::strict_value(text.get(), &input_at)?;
    let refers = dependencies::refers(&input);
    // The input as it was sent: a repeated bulk call must stay the same call although its jobs have new IDs.
    let original = refers.then(|| input.clone());
    let depends_on = dependencies::read(request.depends_on.unwrap_or_default(), &mut input, before, at)?;
    // An input that refers to another job's result is not complete yet; the handler's own check runs when it is.
    let files = if refers {
        inputs::files(&input, &input_at)?
    } else {
        inputs::check(&target.deployed.input, &input, &input_at)?
    };
    let raw = if refers { json::raw(&input) } else { text };
    let spec = JobSpec {
        pinned: request.version.is_some(),
        priority: request.priority.unwrap_or(defaults.priority),
        timeout_ms: timeout_s.map_or(defaults.timeout_ms, |seconds| seconds * 1000),
        max_attempts,
        metadata,
        files,
        start_by_ms,
        deadline_ms,
        retention_ms: retention_s.map(|seconds| seconds * 1000),
        concurrency,
        depends_on,
        hook,
        ..defaults
    };
    let job = NewJob { run_after_ms, ..NewJob::new(JobId::new(target.shard), spec, raw) };
    Ok(Checked { job, input: original.unwrap_or(input), asked })
}

/// Text of all members of a request except its input and its idempotency key, to be hashed. It is built from the
/// serialised request, so a member that is added to [`SubmitRequest`] is included.
///
/// Keys live for a day and are shared with replicas of the previous release. Therefore the members of that release are
/// in its order, with null where absent, and later members follow only if present.
fn asked(request: &SubmitRequest) -> Result<String, Error> {
    let Value::Object(mut members) =
        serde_json::to_value(request).map_err(|error| Error::Fingerprint(error.to_string()))?
    else {
        return Err(Error::Fingerprint("a request is not an object".to_owned()));
    };
    members.remove("input");
    members.remove("idempotency_key");
    let mut of = |name: &str| members.remove(name).unwrap_or_default();
    let mut asked = vec![
        of("endpoint"),
        of("version"),
        of("priority"),
        of("timeout_s"),
        of("max_attempts"),
        of("run_after"),
        of("metadata"),
        Value::Array(vec![of("queue_timeout_s"), of("deadline_s"), of("retention_s")]),
        Value::Array(vec![of("concurrency_key"), of("concurrency_max")]),
        of("depends_on"),
        Value::Array(vec![of("webhook"), of("webhook_events")]),
    ];
    if !members.is_empty() {
        asked.push(Value::Object(members));
    }
    Ok(Value::Array(asked).to_string())
}

fn within(value: Option<u64>, least: u64, most: u64, at: &str, name: &str) -> Result<Option<u64>, FieldError> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            Err(FieldError::new(format!("{at}/{name}"), format!("must be {least} to {most}")))
        }
        value => Ok(value),
    }
}

fn concurrency(key: Option<String>, max: Option<u32>, at: &str) -> Result<Option<Concurrency>, FieldError> {
    match (key, max) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(FieldError::new(format!("{at}/concurrency_max"), "requires concurrency_key")),
        (Some(key), max) => {
            if !matches!(key.chars().count(), 1..=CONCURRENCY_KEY_MAX) || key.chars().any(char::is_control) {
                let message = format!("must be 1 to {CONCURRENCY_KEY_MAX} printable characters");
                return Err(FieldError::new(format!("{at}/concurrency_key"), message));
            }
            let max = max.unwrap_or(1);
            if !(1..=CONCURRENCY_MAX).contains(&max) {
                return Err(FieldError::new(
                    format!("{at}/concurrency_max"),
                    format!("must be 1 to {CONCURRENCY_MAX}"),
                ));
            }
            Ok(Some(Concurrency { key, max }))
        }
    }
}

fn hook(
    config: &Webhooks,
    url: Option<String>,
    events: Option<Vec<HookEvent>>,
    at: &str,
) -> Result<Option<Hook>, FieldError> {
    let Some(url) = url else {
        return match events {
            None => Ok(None),
            Some(_) => Err(FieldError::new(format!("{at}/webhook_events"), "require a webhook")),
        };
    };
    webhooks::check_url(config, &url).map_err(|why| FieldError::new(format!("{at}/webhook"), why))?;
    let events = events.unwrap_or_else(|| vec![HookEvent::JobCompleted]);
    if events.is_empty() || events.contains(&HookEvent::BatchCompleted) {
        let message = "must be some of job.started, job.output, job.progress, job.completed";
        return Err(FieldError::new(format!("{at}/webhook_events"), message));
    }
    Ok(Some(Hook { url, events }))
}

/// Checks the caller's labels.
pub(crate) fn check_metadata(metadata: &BTreeMap<String, String>, at: &str) -> Result<(), FieldError> {
    let sound = |(key, value): (&String, &String)| {
        matches!(key.chars().count(), 1..=METADATA_KEY_MAX) && value.chars().count() <= METADATA_VALUE_MAX
    };
    if metadata.len() > METADATA_MAX || !metadata.iter().all(sound) {
        let message = format!(
            "must have at most {METADATA_MAX} labels, with names of 1 to {METADATA_KEY_MAX} and values of at most \
                {METADATA_VALUE_MAX} characters"
        );
        return Err(FieldError::new(format!("{at}/metadata"), message));
    }
    Ok(())
}

impl Checked {
    /// Hashes everything that makes two requests the same request.
    pub(crate) fn fingerprint(&self, hash: &mut Sha256) {
        hash.update(&self.asked);
        canonical(&self.input, hash);
        hash.update([0]);
    }

    /// Adds the idempotency key and the hash of this request alone to the job.
    pub(crate) fn keyed(mut self, key: Option<String>) -> NewJob {
        if let Some(key) = key {
            let mut hash = Sha256::new();
            self.fingerprint(&mut hash);
            self.job.idempotency = Some(Idempotency::new(key, short_hash(hash)));
        }
        self.job
    }
}

/// Half of a hash, as text: enough to distinguish requests, and stored for a day with each key.
pub(crate) fn short_hash(hash: Sha256) -> String {
    hex::encode(&hash.finalize()[..16])
}

/// Hashes JSON with its members in order, so that equal values have equal hashes, however they were written.
pub(crate) fn canonical(value: &Value, hash: &mut Sha256) {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            hash.update("{");
            for (name, value) in sorted {
                hash.update(Value::from(name.as_str()).to_string());
                canonical(value, hash);
            }
            hash.update("}");
        }
        Value::Array(items) => {
            hash.update("[");
            for item in items {
                canonical(item, hash);
                hash.update(",");
            }
            hash.update("]");
        }
        plain => hash.update(plain.to_string()),
    }
}

#[cfg(test)]
mod tests;
