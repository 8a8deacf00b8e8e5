//! `POST /v1/jobs` and `/v1/jobs/bulk`: accepting work.

mod dependencies;
mod request;
mod target;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stokehold_queue::Durability;
use stokehold_queue::job::{Idempotency, Job, NewJob, Priority};
use stokehold_queue::queue::Submitted;
use stokehold_queue::{Error as QueueError, JobId, Queue, SUBMIT_MAX, now_ms};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::view::JobView;
use crate::database;
use crate::error::{Code, INTERNAL, Problem, ProblemBody};
use crate::history::Jobs;
use crate::jobs::watchers::Follow;
use crate::jobs::{BULK_BODY_MAX, inputs};
use crate::metrics;
use crate::server::json::Json;
use crate::server::query::WAIT_MAX_S;
use crate::server::wait_permits::WaitPermits;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsSubmit};
use crate::traces::context::Called;

pub(crate) use dependencies::refers;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use request::{AHEAD_MAX_S, Checked};
pub(crate) use request::{
    ATTEMPTS_MAX, Error, SubmitRequest, TIMEOUT_MAX_S, canonical, check, check_metadata, short_hash,
};
pub(crate) use target::Target;

/// Maximum number of dependencies that have left the queue. Each is looked up in the archive, and the call is repeated
/// without it.
const ARCHIVED_MAX: usize = 100;

const IDEMPOTENCY_KEY_MAX: usize = 255;

/// Several jobs, of which either all or none are accepted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkRequest {
    /// 1 to 1,000.
    jobs: Vec<SubmitRequest>,
    /// The key of the whole call; its jobs must then not have their own. Same as the header.
    idempotency_key: Option<String>,
}

/// The accepted jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct BulkReply {
    /// The job ids, in the order of the request.
    ids: Vec<String>,
}

/// Submit a job
#[utoipa::path(post, operation_id = "submit_job", path = "/v1/jobs", tag = "jobs", request_body = SubmitRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "As `idempotency_key`."),
        ("traceparent" = Option<String>, Header, description = "The caller's trace context (W3C Trace Context): the job becomes part of that trace. A value that cannot be parsed is ignored."),
        ("Stokehold-Called-Ms" = Option<String>, Header, description = "When the call began by the caller's clock, Unix milliseconds: the start of the SDK's span in the trace. A value that cannot be parsed is ignored."),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: wait up to N seconds (0 to 60) for the job to end before answering."),
    ),
    responses(
        (status = 202, description = "Accepted. The header `Stokehold-Durability` names what the job survives.", body = JobView),
        (status = 200, description = "The job ended within the wait, or the idempotency key matches an earlier job.", body = JobView),
        (status = 422, description = "`idempotency_conflict` or `file_missing`.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "`body_too_large`.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn one(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    headers: HeaderMap,
    Json(mut request): Json<SubmitRequest>,
) -> Result<Response, Problem> {
    let wait_s = preferred_wait_s(&headers)?;
    let key = idempotency_key(&headers, request.idempotency_key.take())?;
    let target = Target::resolve(&app, &caller.tenant, &request.endpoint, request.version).await?;
    let mut job = prepare(&app, &target, &caller.tenant, request, key, &headers).await?;
    // Followed from the start: the queue then signals the end, and nothing has to be polled.
    let follow = (wait_s > 0).then(|| app.job_watchers.follow(job.id));
    job.watcher = follow.as_ref().map(|_| app.replica.to_string());
    let submitted = enter(&app, std::slice::from_ref(&job)).await?;
    caller.turn.end();
    match submitted.first() {
        Some(Submitted::Repeat(id)) => repeated(&app, &caller.tenant, *id, wait_s).await,
        _ => accepted(&app, job, wait_s, follow).await,
    }
}

/// Submit up to 1,000 jobs
#[utoipa::path(post, operation_id = "submit_jobs", path = "/v1/jobs/bulk", tag = "jobs", request_body = BulkRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "As `idempotency_key`."),
        ("traceparent" = Option<String>, Header, description = "The caller's trace context (W3C Trace Context): the jobs become part of that trace. A value that cannot be parsed is ignored."),
        ("Stokehold-Called-Ms" = Option<String>, Header, description = "When the call began by the caller's clock, Unix milliseconds. A value that cannot be parsed is ignored."),
    ),
    responses(
        (status = 202, description = "All jobs were accepted.", body = BulkReply),
        (status = 422, description = "`idempotency_conflict` or `file_missing`; no job was accepted.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "`body_too_large`: the limit is 8 MiB.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn bulk(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    headers: HeaderMap,
    Json(request): Json<BulkRequest, BULK_BODY_MAX>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers, request.idempotency_key)?;
    if request.jobs.is_empty() || request.jobs.len() > SUBMIT_MAX {
        return Err(Problem::field("/jobs", format!("must be 1 to {SUBMIT_MAX} jobs, but has {}", request.jobs.len())));
    }
    if let (Some(_), Some(n)) = (&key, request.jobs.iter().position(|job| job.idempotency_key.is_some())) {
        return Err(Problem::field(
            format!("/jobs/{n}/idempotency_key"),
            "is not allowed: the call has a key, so its jobs must not have their own",
        ));
    }
    let mut jobs = prepare_bulk(&app, &caller.tenant, request.jobs, key).await?;
    let called = Called::of(&headers);
    jobs.iter_mut().for_each(|job| called.mark(job));
    let files: BTreeSet<&String> = jobs.iter().flat_map(|job| &job.spec.files).collect();
    inputs::require_files(&app.objects, &caller.tenant, &files).await?;
    app.large_inputs.store_new(&mut jobs).await?;

    let submitted = enter(&app, &jobs).await?;
    let ids = submitted.into_iter().map(|outcome| outcome.id().to_string()).collect();
    Ok(durable(app.durability, (StatusCode::ACCEPTED, JsonAnswer(BulkReply { ids })).into_response()))
}

/// Checks the request for a job of `target` and stores its input if that is large. [`enter`] then submits the job.
pub(crate) async fn prepare(
    app: &App,
    target: &Target,
    tenant: &str,
    request: SubmitRequest,
    key: Option<String>,
    headers: &HeaderMap,
) -> Result<NewJob, Problem> {
    let mut job = check(request, target, tenant, "", &[])?.keyed(key);
    Called::of(headers).mark(&mut job);
    inputs::require_files(&app.objects, tenant, &job.spec.files.iter().collect()).await?;
    app.large_inputs.store_new(std::slice::from_mut(&mut job)).await?;
    Ok(job)
}

/// Submits jobs to the queue: all of them or none. Dependencies may have left the queue for the archive.
pub(crate) async fn enter(app: &App, jobs: &[NewJob]) -> Result<Vec<Submitted>, Problem> {
    let (mut jobs, mut rounds) = (jobs.to_vec(), 0);
    let submitted = loop {
        let answer = app.db.ask_again("submit", || async {
            match app.db.queue.submit(jobs.clone()).await {
                Err(QueueError::NoDependency { number, job }) => Ok(Err((number, job))),
                answer => answer.map(Ok),
            }
        });
        match answer.await? {
            Ok(submitted) => break submitted,
            Err((number, missing)) => {
                let missing: JobId = missing.parse().map_err(|_| Problem::new(Code::Internal, INTERNAL))?;
                rounds += 1;
                if rounds > ARCHIVED_MAX {
                    let detail = format!("the jobs of one call may wait for at most {ARCHIVED_MAX} archived jobs");
                    return Err(Problem::new(Code::DependencyMissing, detail));
                }
                let job = &mut jobs[number];
                let ended = app.jobs.find(&job.spec.tenant, missing).await?.is_some_and(|job| job.state.is_terminal());
                if !ended || job.archived.contains(&missing) {
                    return Err(QueueError::NoDependency { number, job: missing.to_string() }.into());
                }
                job.archived.push(missing);
            }
        }
    };
    for priority in Priority::ALL {
        let new = |(job, outcome): &(&NewJob, &Submitted)| {
            job.spec.priority == priority && matches!(outcome, Submitted::New(_))
        };
        metrics::submitted(priority, jobs.iter().zip(&submitted).filter(new).count() as u64);
    }
    Ok(submitted)
}

/// Resolves every endpoint once, then checks the inputs on a blocking thread, because parsing megabytes of JSON would
/// delay other requests.
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
            place.insert(Target::resolve(app, tenant, &request.endpoint, request.version).await?);
        }
    }
    let tenant = tenant.to_owned();
    let prepare = move || {
        let (mut jobs, mut whole) = (Vec::with_capacity(requests.len()), Sha256::new());
        let mut ids: Vec<JobId> = Vec::with_capacity(requests.len());
        for (n, mut request) in requests.into_iter().enumerate() {
            let own_key = request.idempotency_key.take().map(checked_key).transpose()?;
            let target = &found[&(request.endpoint.clone(), request.version)];
            let checked = check(request, target, &tenant, &format!("/jobs/{n}"), &ids)?;
            ids.push(checked.job.id);
            checked.fingerprint(&mut whole);
            jobs.push(checked.keyed(own_key));
        }
        if let Some(key) = key {
            // All jobs share the hash of the whole call, so the same key with other jobs is a conflict at the first of
            // them.
            let whole = Idempotency::new(key, short_hash(whole));
            for (part, job) in (0..).zip(&mut jobs) {
                job.idempotency = Some(Idempotency { part, ..whole.clone() });
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

async fn accepted(app: &App, job: NewJob, wait_s: u64, follow: Option<Follow<'_>>) -> Result<Response, Problem> {
    if let Some(mut follow) = follow
        && let Some(seen) =
            seen_in_time(&app.jobs, &app.wait_permits, &job.spec.tenant, job.id, follow.until_end(until(wait_s))).await
    {
        let status = if seen.state.is_terminal() { StatusCode::OK } else { StatusCode::ACCEPTED };
        return Ok(durable(app.durability, (status, JsonAnswer(JobView::new(&seen, &app.config))).into_response()));
    }
    // Saves a read of the record.
    let job = job.into_accepted(now_ms());
    let view = JobView::new(&job, &app.config);
    Ok(durable(app.durability, (StatusCode::ACCEPTED, JsonAnswer(view)).into_response()))
}

fn until(wait_s: u64) -> Instant {
    Instant::now() + Duration::from_secs(wait_s)
}

/// The job at its end or at the end of the wait. The job is already accepted, so a failing wait must not change the
/// response.
async fn seen_in_time(
    jobs: &Jobs,
    wait_permits: &WaitPermits,
    tenant: &str,
    id: JobId,
    wait: impl Future<Output = Result<Option<Job>, database::Error>>,
) -> Option<Job> {
    let _held = wait_permits.take(tenant).ok()?;
    match wait.await.map_err(Problem::from).inspect_err(Problem::log).ok()? {
        // The job has ended and was archived since it was last read.
        None => jobs.find(tenant, id).await.map_err(Problem::from).inspect_err(Problem::log).ok()?,
        seen => seen,
    }
}

async fn repeated(app: &App, tenant: &str, id: JobId, wait_s: u64) -> Result<Response, Problem> {
    let seen = match wait_s {
        0 => None,
        _ => {
            seen_in_time(&app.jobs, &app.wait_permits, tenant, id, app.job_watchers.until_end(id, until(wait_s))).await
        }
    };
    let job = match seen {
        Some(job) => Some(job),
        None => app.jobs.find(tenant, id).await?,
    };
    let job = job.ok_or_else(|| {
        Problem::new(Code::NotFound, "this key's job has ended and is no longer stored; use a new key")
    })?;
    Ok(durable(app.durability, JsonAnswer(JobView::new(&job, &app.config)).into_response()))
}

/// Adds the header that shows which failures an accepted job survives.
pub(crate) fn durable(durability: Durability, mut response: Response) -> Response {
    response.headers_mut().insert("stokehold-durability", HeaderValue::from_static(durability.as_str()));
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
            Err(Problem::field("/idempotency_key", "differs from the header Idempotency-Key; send only one of them"))
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

/// Parses `Prefer: wait=N`. Other preferences are ignored, as RFC 7240 requires.
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
