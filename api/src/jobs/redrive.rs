//! Retrying dead jobs and cancelling many jobs: by ID, or by filter.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use stokehold_queue::job::{ErrorCode, Idempotency, Job, JobSpec, JobState, NewJob, Priority};
use stokehold_queue::pipeline;
use stokehold_queue::queue::{CancelAnswer, ListFilter, Submitted};
use stokehold_queue::{BATCH_MAX, JobId, Queue, now_ms};
use utoipa::ToSchema;

use super::submit::{self, Target};
use super::view::JobView;
use super::words::{ErrorWord, PriorityWord, StateWord};
use crate::config::Config;
use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::{Code, Problem, ProblemBody};
use crate::jobs::large_inputs::LargeInputs;
use crate::jobs::routes::own;
use crate::names;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsCancel, JobsRead, JobsSubmit};

const MANY_MAX: u32 = 1_000;
/// Maximum number of records that one call reads: all that one Redis holds, so that `more` without results is reliable.
const SCAN_MAX: usize = 1_000_000;

/// The jobs to select; at least one member is required.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobFilter {
    /// Only jobs in this state.
    #[schema(value_type = Option<StateWord>)]
    state: Option<JobState>,
    /// Only jobs of this endpoint.
    endpoint: Option<String>,
    /// Only lines of this batch.
    batch: Option<String>,
    /// Only jobs of this schedule.
    schedule: Option<String>,
    /// Only jobs of this priority.
    #[schema(value_type = Option<PriorityWord>)]
    priority: Option<Priority>,
    /// Only jobs that failed with this error code.
    #[schema(value_type = Option<ErrorWord>)]
    error_code: Option<ErrorCode>,
    /// Only jobs with all of these labels.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// The jobs to select, and how many at most.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManyRequest {
    filter: JobFilter,
    /// 1 to 1,000; default 1,000.
    limit: Option<u32>,
}

/// The jobs to retry, how many at most, and on which version.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryRequest {
    filter: JobFilter,
    /// 1 to 1,000; default 1,000.
    limit: Option<u32>,
    /// Run on the version on which each job ran, instead of the current one. A job that was submitted for a version
    /// keeps it in any case.
    #[serde(default)]
    same_version: bool,
}

/// A retried job.
#[derive(Serialize, ToSchema)]
pub(crate) struct Retried {
    /// The job that had ended.
    id: String,
    /// The job that retries it.
    new_id: String,
}

/// The retried jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct RetriedMany {
    retried: Vec<Retried>,
    /// Whether there may be more jobs: repeat the request.
    more: bool,
}

/// The cancelled jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct CancelledMany {
    cancelled: usize,
    /// Whether there may be more jobs: repeat the request.
    more: bool,
}

/// Dead letters, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeadLetters<'a> {
    jobs: Vec<JobView<'a>>,
    /// The cursor of the next page; null at the end. A page may be short or even empty and still have a next one.
    next_cursor: Option<String>,
}

impl ManyRequest {
    fn checked(self) -> Result<(ListFilter, usize), Problem> {
        let JobFilter { state, endpoint, batch, schedule, priority, error_code, metadata } = self.filter;
        if endpoint.as_ref().is_some_and(|name| !names::is_name(name)) {
            return Err(Problem::field("/filter/endpoint", "must be an endpoint's name"));
        }
        let metadata = metadata.into_iter().collect();
        let filter = ListFilter { state, endpoint, metadata, batch, schedule, priority, error_code };
        if filter.takes_all() {
            return Err(Problem::field("/filter", "must select jobs by state, endpoint, batch, ... or metadata"));
        }
        let limit = self.limit.unwrap_or(MANY_MAX);
        if !(1..=MANY_MAX).contains(&limit) {
            return Err(Problem::field("/limit", format!("must be 1 to {MANY_MAX}")));
        }
        Ok((filter, limit as usize))
    }
}

/// Retry a dead job
///
/// Creates a new job with the same input; the old job does not change. The new job runs on the endpoint's current
/// version, unless the old one was submitted for a version. Repeating within 24 hours returns the same new job.
#[utoipa::path(post, operation_id = "retry_job", path = "/v1/jobs/{id}/retry", tag = "jobs",
    params(
        ("id" = String, Path, description = "The job's id."),
        ("same_version" = Option<bool>, Query, description = "`true`: run on the version on which the job ran, instead of the current one."),
    ),
    responses(
        (status = 202, description = "The new job.", body = JobView),
        (status = 200, description = "The new job that an earlier call created.", body = JobView),
        (status = 409, description = "`not_retryable`: the job has not ended, or it succeeded.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn retry(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    Path(id): Path<String>,
    mut params: Params,
) -> Result<Response, Problem> {
    let same_version = params.take("same_version", "true or false", |text| text.parse().ok())?.unwrap_or(false);
    params.finish()?;
    let job = own(&app.jobs, &caller.tenant, &id).await?;
    if !is_dead(&job) && job.state != JobState::Cancelled {
        let detail = format!(
            "the job is {}; only a job that failed, expired or was cancelled can be retried",
            job.state.as_str()
        );
        return Err(Problem::new(Code::NotRetryable, detail));
    }
    let mut new = again(&job, now_ms());
    retarget(&app, &mut new, same_version).await?;
    name_files(&app.large_inputs, &job, &mut new).await?;
    match submit::enter(&app, std::slice::from_ref(&new)).await?.first() {
        Some(Submitted::Repeat(first)) => {
            let first = own(&app.jobs, &caller.tenant, &first.to_string()).await?;
            Ok(JsonAnswer(JobView::new(&first, &app.config)).into_response())
        }
        _ => {
            let job = new.into_accepted(now_ms());
            Ok((StatusCode::ACCEPTED, JsonAnswer(JobView::new(&job, &app.config))).into_response())
        }
    }
}

/// Retry many dead jobs
#[utoipa::path(post, operation_id = "retry_jobs", path = "/v1/jobs/retry", tag = "jobs", request_body = RetryRequest,
    responses((status = 200, description = "The old and new ids.", body = RetriedMany), crate::server::responses::Problems))]
pub(crate) async fn retry_many(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    Json(request): Json<RetryRequest>,
) -> Result<JsonAnswer<RetriedMany>, Problem> {
    let RetryRequest { filter, limit, same_version } = request;
    let (filter, limit) = ManyRequest { filter, limit }.checked()?;
    let (dead, next) = dead_matching(&app.db, &caller.tenant, &filter, None, limit).await?;
    let now = now_ms();
    let mut new: Vec<NewJob> = dead.iter().map(|job| again(job, now)).collect();
    for (job, new) in dead.iter().zip(&mut new) {
        retarget(&app, new, same_version).await?;
        name_files(&app.large_inputs, job, new).await?;
    }
    let mut retried = Vec::with_capacity(dead.len());
    for (dead, new) in dead.chunks(BATCH_MAX).zip(new.chunks(BATCH_MAX)) {
        let submitted = submit::enter(&app, new).await?;
        let pair = |(job, new): (&Job, Submitted)| Retried { id: job.id.to_string(), new_id: new.id().to_string() };
        retried.extend(dead.iter().zip(submitted).map(pair));
    }
    Ok(JsonAnswer(RetriedMany { retried, more: next.is_some() }))
}

/// Cancel many jobs
#[utoipa::path(post, operation_id = "cancel_jobs", path = "/v1/jobs/cancel", tag = "jobs", request_body = ManyRequest,
    responses((status = 200, description = "The number of cancelled jobs.", body = CancelledMany), crate::server::responses::Problems))]
pub(crate) async fn cancel_many(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsCancel>,
    Json(request): Json<ManyRequest>,
) -> Result<JsonAnswer<CancelledMany>, Problem> {
    let (filter, limit) = request.checked()?;
    let (mut cancelled, mut cursor, mut scanned) = (0, None::<String>, 0);
    loop {
        let tenant = &caller.tenant;
        let page = db.ask("list jobs", db.queue.list(tenant, &filter, cursor.as_deref(), BATCH_MAX as u32)).await?;
        // The list reads up to a thousand records a call, whether they match or not.
        scanned += page.jobs.len().max(BATCH_MAX);
        let open: Vec<&Job> = page.jobs.iter().filter(|job| !job.state.is_terminal()).take(limit - cancelled).collect();
        let ids: Vec<JobId> = open.iter().map(|job| job.id).collect();
        if !ids.is_empty() {
            let answers = db.ask_again("cancel", || db.queue.cancel(tenant, &ids)).await?;
            cancelled += answers.iter().filter(|answer| **answer == CancelAnswer::Cancelled).count();
        }
        // The steps of these jobs are no longer needed.
        let steps: Vec<JobId> = open.iter().filter_map(|job| job.open_step()).collect();
        if !steps.is_empty() {
            db.ask_again("cancel steps", || db.queue.cancel(tenant, &steps)).await?;
        }
        cursor = page.next_cursor;
        if cursor.is_none() || cancelled >= limit || scanned >= SCAN_MAX {
            return Ok(JsonAnswer(CancelledMany { cancelled, more: cursor.is_some() }));
        }
    }
}

/// List dead letters
///
/// Returns jobs that failed or expired and were not retried, while they are in the queue's memory.
#[utoipa::path(get, operation_id = "list_dead_letters", path = "/v1/dead-letters", tag = "jobs",
    params(
        ("endpoint" = Option<String>, Query, description = "Return only jobs of this endpoint."),
        ("error_code" = Option<ErrorWord>, Query, description = "Return only jobs that failed with this error code."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "1 to 100; default 20."),
    ),
    responses((status = 200, description = "One page.", body = DeadLetters), crate::server::responses::Problems))]
pub(crate) async fn dead_letters(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    caller: Caller<JobsRead>,
    mut params: Params,
) -> Result<Response, Problem> {
    let filter = ListFilter {
        endpoint: params
            .take("endpoint", "an endpoint's name", |name| names::is_name(name).then(|| name.to_owned()))?,
        error_code: params.take("error_code", "an error code of a job", ErrorCode::from_word)?,
        ..ListFilter::default()
    };
    let cursor = params.take("cursor", "the next_cursor of a page", |text| {
        let (ended_ms, id) = text.split_once('-')?;
        Some((ended_ms.parse().ok()?, id.parse().ok()?))
    })?;
    let limit = params.limit()?;
    params.finish()?;
    let (dead, next) = dead_matching(&db, &caller.tenant, &filter, cursor, limit as usize).await?;
    let next_cursor = next.map(|(ended_ms, id)| format!("{ended_ms}-{id}"));
    let jobs = dead.iter().map(|job| JobView::new(job, &config)).collect();
    Ok(JsonAnswer(DeadLetters { jobs, next_cursor }).into_response())
}

/// Time of a job's end, Unix milliseconds, and its ID.
type DeadCursor = (u64, JobId);

/// Dead letters that match, from a position on, and the position of the next one.
async fn dead_matching(
    db: &Database,
    tenant: &str,
    filter: &ListFilter,
    mut place: Option<DeadCursor>,
    limit: usize,
) -> Result<(Vec<Job>, Option<DeadCursor>), Problem> {
    let (mut found, mut scanned) = (Vec::new(), 0);
    loop {
        let page = db.ask("list dead letters", db.home(tenant).await?.dead(tenant, place, BATCH_MAX)).await?;
        let full = page.len() == BATCH_MAX;
        scanned += page.len();
        for (at, job) in page {
            place = Some(at);
            let Some(job) = job else { continue };
            if filter.matches(job.state, &job.spec, job.error.as_ref().map(|error| error.code)) {
                found.push(job);
                if found.len() == limit {
                    return Ok((found, place));
                }
            }
        }
        if !full {
            return Ok((found, None));
        }
        if scanned >= SCAN_MAX {
            return Ok((found, place));
        }
    }
}

fn is_dead(job: &Job) -> bool {
    matches!(job.state, JobState::Failed | JobState::Expired)
}

/// Copies a job for a retry. A job whose input was already built from other jobs' results has no dependencies: its
/// references are data now.
fn again(job: &Job, now_ms: u64) -> NewJob {
    let spec = &job.spec;
    // The same time span as the first time, counted from now.
    let from_now = |end: Option<u64>| end.map(|end| now_ms + end.saturating_sub(job.created_ms()));
    let spec = JobSpec {
        start_by_ms: from_now(spec.start_by_ms),
        deadline_ms: from_now(spec.deadline_ms),
        depends_on: if has_come_together(job) { Vec::new() } else { spec.depends_on.clone() },
        // A batch that has counted its line's end does not count it again.
        batch: None,
        retry_of: Some(job.id),
        // The job stays in its caller's trace, but has no submit of an SDK.
        sdk_ms: None,
        ..spec.clone()
    };
    NewJob {
        idempotency: Some(Idempotency::new(format!("retry of {}", job.id), "retry")),
        ..NewJob::new(JobId::new(job.id.shard()), spec, job.input.clone())
    }
}

/// Returns whether the input of an ended job contains the results that it refers to.
fn has_come_together(job: &Job) -> bool {
    let failed_before = job.error.as_ref().is_some_and(|error| error.code == ErrorCode::DependencyFailed);
    !pipeline::is_untouched(job) && !failed_before
}

/// Adds the files of a retried job whose input was built from other jobs' results. The input may name more files than
/// were known at its submit.
async fn name_files(large_inputs: &LargeInputs, job: &Job, new: &mut NewJob) -> Result<(), Problem> {
    if !job.spec.depends_on.is_empty() && new.spec.depends_on.is_empty() {
        new.spec.files = large_inputs.files_of(&job.spec.tenant, &job.input).await?;
    }
    Ok(())
}

/// Assigns a job to the version on which it runs: the endpoint's current one, unless it was submitted for a version or
/// keeps its own. Values from the defaults of its old version are replaced by those of the new one.
async fn retarget(app: &App, job: &mut NewJob, same_version: bool) -> Result<(), Problem> {
    let spec = &mut job.spec;
    if spec.pinned || same_version {
        return renumber(&app.catalog, job).await;
    }
    let target = Target::resolve(app, &spec.tenant, &spec.endpoint, None).await?;
    let (new, version) = (&target.deployed, &target.deployed.version);
    if version.version == spec.version {
        return renumber(&app.catalog, job).await;
    }
    // A version that has been deleted has no defaults: the job keeps its values.
    if let Some(old) = app.catalog.find(&spec.tenant, &spec.endpoint, Some(spec.version)).await {
        let old = &old.version.spec;
        if spec.timeout_ms == old.timeout_s * 1000 {
            spec.timeout_ms = version.spec.timeout_s * 1000;
        }
        if spec.max_attempts == old.max_attempts {
            spec.max_attempts = version.spec.max_attempts;
        }
    }
    spec.version = version.version;
    spec.retry = version.spec.retry.clone().unwrap_or_default();
    (spec.vram_class_gib, spec.demands) = (new.vram_class_gib, new.demands);
    spec.steps = target.steps;
    Ok(())
}

/// Updates the numbers of the job's requirement sets: those of an ended job may belong to other sets by now.
async fn renumber(catalog: &Catalog, job: &mut NewJob) -> Result<(), Problem> {
    let spec = &mut job.spec;
    spec.demands = catalog.resolve(&spec.tenant, &spec.endpoint, Some(spec.version)).await?.demands;
    for step in &mut spec.steps {
        step.demands = catalog.resolve(&spec.tenant, &step.endpoint, Some(step.version)).await?.demands;
    }
    Ok(())
}
