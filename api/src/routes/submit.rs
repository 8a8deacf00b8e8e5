//! `POST /v1/jobs` and `/v1/jobs/bulk`: accepting work.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use stokehold_queue::job::{Idempotency, Job, JobSpec, NewJob, Priority};
use stokehold_queue::queue::Submitted;
use stokehold_queue::{JobId, Queue, SUBMIT_MAX, now_ms};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::view::{JobView, PriorityWord};
use crate::auth::{Caller, JobsWrite};
use crate::catalog::Deployed;
use crate::error::{Code, INTERNAL, Problem, ProblemBody};
use crate::json::{self, Json};
use crate::query::WAIT_MAX_S;
use crate::state::App;
use crate::{inputs, metrics, stamp};

/// A bulk submit may be larger than other bodies: 1,000 jobs.
pub(crate) const BULK_BODY_MAX: usize = 8 << 20;

/// The longest that one attempt may be allowed: a week.
pub(crate) const TIMEOUT_MAX_S: u64 = 7 * 24 * 3600;

/// The most attempts that a job may be allowed.
pub(crate) const ATTEMPTS_MAX: u32 = 100;

/// How far ahead a job may be scheduled: 30 days.
pub(crate) const AHEAD_MAX_MS: u64 = 30 * 24 * 3600 * 1000;

const METADATA_MAX: usize = 32;
const METADATA_KEY_MAX: usize = 64;
const METADATA_VALUE_MAX: usize = 512;
const IDEMPOTENCY_KEY_MAX: usize = 255;

/// The shard that new jobs go to; there is one.
pub(crate) const SHARD: u8 = 0;

/// A job to run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitRequest {
    /// The endpoint's name.
    endpoint: String,
    /// One of its versions; the current one when absent.
    version: Option<u32>,
    /// What the handler gets; must match the endpoint's input schema. A file is `{"$file": "<id>"}`.
    #[schema(value_type = serde_json::Value)]
    input: Box<RawValue>,
    /// How urgent it is. Default `standard`.
    #[schema(value_type = Option<PriorityWord>)]
    priority: Option<Priority>,
    /// Longest one attempt may run. Default: the endpoint's.
    timeout_s: Option<u64>,
    /// How many attempts may fail by the handler's fault. Default: the endpoint's.
    max_attempts: Option<u32>,
    /// Not before this time, RFC 3339.
    run_after: Option<String>,
    /// Labels of your own: up to 32, to list jobs by.
    metadata: Option<BTreeMap<String, String>>,
    /// Repeating a submit with this key within 24 hours gives the first one's job. The same as the header.
    idempotency_key: Option<String>,
}

/// Several jobs to run, all of which are accepted or none.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkRequest {
    /// 1 to 1,000.
    jobs: Vec<SubmitRequest>,
    /// For the whole call; the jobs then have none of their own. The same as the header.
    idempotency_key: Option<String>,
}

/// What became of them.
#[derive(Serialize, ToSchema)]
pub(crate) struct BulkReply {
    /// In the order of the request.
    ids: Vec<String>,
}

/// Submit a job
#[utoipa::path(post, operation_id = "submit_job", path = "/v1/jobs", tag = "jobs", request_body = SubmitRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "As `idempotency_key`."),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: hold the answer up to N (0 to 60) seconds until the job has ended."),
    ),
    responses(
        (status = 202, description = "Accepted. The header `Stokehold-Durability` says what it will survive.", body = JobView),
        (status = 200, description = "It has ended while waited for, or the idempotency key repeats a job.", body = JobView),
        (status = 422, description = "`idempotency_conflict` or `file_missing`.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "`body_too_large`.", body = ProblemBody, content_type = "application/problem+json"),
        crate::openapi::Problems,
    ))]
pub(crate) async fn one(
    State(app): State<App>,
    caller: Caller<JobsWrite>,
    headers: HeaderMap,
    Json(mut request): Json<SubmitRequest>,
) -> Result<Response, Problem> {
    let wait_s = preferred_wait_s(&headers)?;
    let key = idempotency_key(&headers, request.idempotency_key.take())?;
    let deployed = app.catalog.resolve(&caller.tenant, &request.endpoint, request.version).await?;
    let job = check(request, &deployed, &caller.tenant, "")?.keyed(key);
    inputs::require_files(&app.objects, &caller.tenant, &job.spec.files.iter().collect()).await?;

    let submitted = app.ask_again("submit", || app.queue.submit(vec![job.clone()])).await?;
    match submitted.first() {
        Some(Submitted::Repeat(id)) => repeated(&app, *id, wait_s).await,
        _ => {
            metrics::submitted(job.spec.priority, 1);
            accepted(&app, &job, wait_s).await
        }
    }
}

/// Submit up to 1,000 jobs
#[utoipa::path(post, operation_id = "submit_jobs", path = "/v1/jobs/bulk", tag = "jobs", request_body = BulkRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "As `idempotency_key`.")),
    responses(
        (status = 202, description = "All accepted.", body = BulkReply),
        (status = 422, description = "`idempotency_conflict` or `file_missing`; none accepted.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "`body_too_large`: at most 8 MiB.", body = ProblemBody, content_type = "application/problem+json"),
        crate::openapi::Problems,
    ))]
pub(crate) async fn bulk(
    State(app): State<App>,
    caller: Caller<JobsWrite>,
    headers: HeaderMap,
    Json(request): Json<BulkRequest, BULK_BODY_MAX>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers, request.idempotency_key)?;
    if request.jobs.is_empty() || request.jobs.len() > SUBMIT_MAX {
        return Err(Problem::field(
            "/jobs",
            format!("must be 1 to {SUBMIT_MAX} jobs, here are {}", request.jobs.len()),
        ));
    }
    if let (Some(_), Some(n)) = (&key, request.jobs.iter().position(|job| job.idempotency_key.is_some())) {
        return Err(Problem::field(format!("/jobs/{n}/idempotency_key"), "the call has a key, so its jobs have none"));
    }
    let jobs = prepare_bulk(&app, &caller.tenant, request.jobs, key).await?;
    let files: BTreeSet<&String> = jobs.iter().flat_map(|job| &job.spec.files).collect();
    inputs::require_files(&app.objects, &caller.tenant, &files).await?;

    let submitted = app.ask_again("submit", || app.queue.submit(jobs.clone())).await?;
    for priority in Priority::ALL {
        let new = |(job, outcome): &(&NewJob, &Submitted)| {
            job.spec.priority == priority && matches!(outcome, Submitted::New(_))
        };
        metrics::submitted(priority, jobs.iter().zip(&submitted).filter(new).count() as u64);
    }
    let ids = submitted.into_iter().map(|outcome| outcome.id().to_string()).collect();
    Ok(durable(&app, (StatusCode::ACCEPTED, JsonAnswer(BulkReply { ids })).into_response()))
}

/// Resolves every endpoint once, then checks the inputs away from the request threads: megabytes of JSON take a while.
async fn prepare_bulk(
    app: &App,
    tenant: &str,
    requests: Vec<SubmitRequest>,
    key: Option<String>,
) -> Result<Vec<NewJob>, Problem> {
    let mut found = BTreeMap::new();
    for request in &requests {
        let wanted = (request.endpoint.clone(), request.version);
        if let Entry::Vacant(place) = found.entry(wanted) {
            place.insert(app.catalog.resolve(tenant, &request.endpoint, request.version).await?);
        }
    }
    let tenant = tenant.to_owned();
    let prepare = move || {
        let (mut jobs, mut whole) = (Vec::with_capacity(requests.len()), Sha256::new());
        for (n, mut request) in requests.into_iter().enumerate() {
            let own_key = request.idempotency_key.take().map(checked_key).transpose()?;
            let deployed = &found[&(request.endpoint.clone(), request.version)];
            let checked = check(request, deployed, &tenant, &format!("/jobs/{n}"))?;
            checked.fingerprint(&mut whole);
            jobs.push(checked.keyed(own_key));
        }
        if let Some(key) = key {
            // All share the hash of the whole, so the same key with other jobs is a conflict at the first of them.
            let request_hash = hex::encode(whole.finalize());
            for (n, job) in jobs.iter_mut().enumerate() {
                job.idempotency = Some(Idempotency { key: format!("{key}#{n}"), request_hash: request_hash.clone() });
            }
        }
        Ok(jobs)
    };
    match tokio::task::spawn_blocking(prepare).await {
        Ok(prepared) => prepared,
        Err(error) => {
            tracing::error!(%error, "preparing a bulk submit failed");
            Err(Problem::new(Code::Internal, INTERNAL))
        }
    }
}

/// A request found good.
struct Checked {
    job: NewJob,
    input: Value,
    /// All else that was asked for, before any default took its place: a deploy between two tries must not make them differ.
    asked: String,
}

/// `at` is the pointer to the request in the body.
fn check(request: SubmitRequest, deployed: &Deployed, tenant: &str, at: &str) -> Result<Checked, Problem> {
    let version = &deployed.version;
    let timeout_s = request.timeout_s.unwrap_or(version.spec.timeout_s);
    if !(1..=TIMEOUT_MAX_S).contains(&timeout_s) {
        return Err(Problem::field(format!("{at}/timeout_s"), format!("must be 1 to {TIMEOUT_MAX_S} seconds")));
    }
    let max_attempts = request.max_attempts.unwrap_or(version.spec.max_attempts);
    if !(1..=ATTEMPTS_MAX).contains(&max_attempts) {
        return Err(Problem::field(format!("{at}/max_attempts"), format!("must be 1 to {ATTEMPTS_MAX}")));
    }
    let run_after_ms = match &request.run_after {
        None => 0,
        Some(text) => stamp::parse(text).filter(|ms| *ms <= now_ms() + AHEAD_MAX_MS).ok_or_else(|| {
            Problem::field(format!("{at}/run_after"), "must be a time as 2026-11-21T05:50:00Z, at most 30 days ahead")
        })?,
    };
    let metadata = request.metadata.unwrap_or_default();
    check_metadata(&metadata, at)?;
    let asked = serde_json::json!([
        request.endpoint,
        request.version,
        request.priority,
        request.timeout_s,
        request.max_attempts,
        run_after_ms,
        metadata,
    ]);
    let at = format!("{at}/input");
    let input =
        json::strict_value(request.input.get(), &at).map_err(|error| Problem::field(error.path, error.message))?;
    let files = inputs::check(&deployed.input, &input, &at)?;
    let job = NewJob {
        id: JobId::new(SHARD),
        spec: JobSpec {
            tenant: tenant.to_owned(),
            endpoint: version.name.clone(),
            version: version.version,
            priority: request.priority.unwrap_or_default(),
            vram_class_gib: deployed.vram_class_gib,
            timeout_ms: timeout_s * 1000,
            max_attempts,
            metadata,
            files,
            ..JobSpec::default()
        },
        input: request.input,
        run_after_ms,
        idempotency: None,
    };
    Ok(Checked { job, input, asked: asked.to_string() })
}

pub(crate) fn check_metadata(metadata: &BTreeMap<String, String>, at: &str) -> Result<(), Problem> {
    let sound = |(key, value): (&String, &String)| {
        matches!(key.chars().count(), 1..=METADATA_KEY_MAX) && value.chars().count() <= METADATA_VALUE_MAX
    };
    if metadata.len() > METADATA_MAX || !metadata.iter().all(sound) {
        let message = format!(
            "must be at most {METADATA_MAX} labels with names of 1 to {METADATA_KEY_MAX} and values of at most \
             {METADATA_VALUE_MAX} characters"
        );
        return Err(Problem::field(format!("{at}/metadata"), message));
    }
    Ok(())
}

impl Checked {
    /// Adds what makes two requests the same request.
    fn fingerprint(&self, hash: &mut Sha256) {
        hash.update(&self.asked);
        canonical(&self.input, hash);
        hash.update([0]);
    }

    /// The job under `key`; hash of this request alone.
    fn keyed(mut self, key: Option<String>) -> NewJob {
        if let Some(key) = key {
            let mut hash = Sha256::new();
            self.fingerprint(&mut hash);
            self.job.idempotency = Some(Idempotency { key, request_hash: hex::encode(hash.finalize()) });
        }
        self.job
    }
}

/// Feeds JSON with its members in order, so that the same value hashes the same however it was written.
fn canonical(value: &Value, hash: &mut Sha256) {
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

async fn accepted(app: &App, job: &NewJob, wait_s: u64) -> Result<Response, Problem> {
    if wait_s > 0
        && let Some(ended) = wait_for_end(app, job.id, wait_s).await
    {
        return Ok(durable(app, JsonAnswer(JobView::new(&ended, &app.config)).into_response()));
    }
    let view = JobView::accepted(job, now_ms());
    Ok(durable(app, (StatusCode::ACCEPTED, JsonAnswer(view)).into_response()))
}

/// The job is accepted, so a wait that goes wrong is no reason to say anything else.
async fn wait_for_end(app: &App, id: JobId, wait_s: u64) -> Option<Job> {
    let _held = app.hold().ok()?;
    let deadline = Instant::now() + Duration::from_secs(wait_s);
    let job = app.waits.until_end(id, deadline).await.ok()??;
    job.state.is_terminal().then_some(job)
}

async fn repeated(app: &App, id: JobId, wait_s: u64) -> Result<Response, Problem> {
    let ended = if wait_s > 0 { wait_for_end(app, id, wait_s).await } else { None };
    let job = match ended {
        Some(job) => Some(job),
        None => app.ask("read a job", app.queue.get(id)).await?,
    };
    let job = job
        .ok_or_else(|| Problem::new(Code::NotFound, "this key's job has ended and is no longer kept; use a new key"))?;
    Ok(durable(app, JsonAnswer(JobView::new(&job, &app.config)).into_response()))
}

/// Says what an accepted job will survive.
pub(crate) fn durable(app: &App, mut response: Response) -> Response {
    response.headers_mut().insert("stokehold-durability", HeaderValue::from_static(app.durability.as_str()));
    response
}

/// The key from the header or the body; both must agree.
pub(crate) fn idempotency_key(headers: &HeaderMap, member: Option<String>) -> Result<Option<String>, Problem> {
    let header = match headers.get("idempotency-key") {
        None => None,
        Some(value) => {
            Some(value.to_str().map_err(|_| Problem::field("Idempotency-Key", "must be printable ASCII"))?.to_owned())
        }
    };
    match (header, member) {
        (Some(header), Some(member)) if header != member => {
            Err(Problem::field("/idempotency_key", "is not the one in the header Idempotency-Key; give one of them"))
        }
        (key, member) => key.or(member).map(checked_key).transpose(),
    }
}

pub(crate) fn checked_key(key: String) -> Result<String, Problem> {
    if matches!(key.len(), 1..=IDEMPOTENCY_KEY_MAX) && !key.chars().any(char::is_control) {
        return Ok(key);
    }
    Err(Problem::field("/idempotency_key", format!("must be 1 to {IDEMPOTENCY_KEY_MAX} printable characters")))
}

/// `Prefer: wait=N`. Other preferences are ignored, as RFC 7240 asks.
fn preferred_wait_s(headers: &HeaderMap) -> Result<u64, Problem> {
    let preferences =
        headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    for preference in preferences {
        if let Some(("wait", seconds)) = preference.trim().split_once('=') {
            return seconds.trim().parse().ok().filter(|seconds| *seconds <= WAIT_MAX_S).ok_or_else(|| {
                Problem::field("Prefer", format!("wait must be a whole number of seconds from 0 to {WAIT_MAX_S}"))
            });
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_hashes_the_same_however_it_was_written() {
        let hash = |text: &str| {
            let mut hash = Sha256::new();
            canonical(&serde_json::from_str(text).unwrap(), &mut hash);
            hash.finalize()
        };
        assert_eq!(hash(r#"{"a": 1, "b": [true, "x"]}"#), hash(r#"{ "b":[true,"\u0078"],"a":1}"#));
        assert_ne!(hash(r#"["ab"]"#), hash(r#"["a", "b"]"#));
        assert_ne!(hash(r#"{"a": {"b": 1}}"#), hash(r#"{"a": {}, "b": 1}"#));
    }

    #[test]
    fn a_preference_is_read_among_others() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", HeaderValue::from_static(text));
            preferred_wait_s(&headers)
        };
        assert_eq!(read("return=minimal, wait=5").unwrap(), 5);
        assert_eq!(read("respond-async").unwrap(), 0);
        assert!(read("wait=soon").is_err() && read("wait=61").is_err());
    }
}
