//! `/v1/jobs`: viewing, listing and cancelling jobs.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stokehold_queue::costs::JobCost;
use stokehold_queue::job::{ErrorCode, Job, JobState};
use stokehold_queue::queue::{CancelAnswer, ListFilter};
use stokehold_queue::{JobId, Queue};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::view::JobView;
use crate::config::Config;
use crate::costs::Costs;
use crate::database::Database;
use crate::error::{Code, Problem, ProblemBody};
use crate::history::{Cursor, Jobs};
use crate::jobs::waiting;
use crate::names;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsCancel, JobsRead, check_still};

/// One page of jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct JobList<'a> {
    jobs: Vec<JobView<'a>>,
    /// The cursor of the next page; null at the end. A page may be short or even empty and still have a next one.
    next_cursor: Option<String>,
}

/// Get a job
#[utoipa::path(get, operation_id = "get_job", path = "/v1/jobs/{id}", tag = "jobs",
    params(
        ("id" = String, Path, description = "The job's id."),
        ("wait_s" = Option<u64>, Query, description = "Wait up to this many seconds (0 to 60) for the job to end before answering."),
    ),
    responses((status = 200, description = "The job.", body = JobView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller<JobsRead>,
    Path(id): Path<String>,
    mut params: Params,
) -> Result<Response, Problem> {
    let wait_s = params.wait_s()?;
    params.finish()?;
    let mut job = own(&app.jobs, &caller.tenant, &id).await?;
    if wait_s > 0 && !job.state.is_terminal() {
        let _held = app.wait_permits.take(&caller.tenant)?;
        caller.turn.end();
        let deadline = Instant::now() + Duration::from_secs(wait_s);
        let seen = match app.job_watchers.until_end(job.id, deadline).await? {
            // The job has ended and was archived since it was last read.
            None => app.jobs.find(&caller.tenant, job.id).await?,
            seen => seen,
        };
        job = seen.unwrap_or(job);
        check_still(&app, &caller.token).await?;
    }
    let view = JobView::new(&job, &app.config);
    // The reason for waiting is computed only for a job that waits.
    let view = view.waiting(waiting::of(&app, &job).await?);
    // An error here must not hide the job.
    let cost = if job.state.is_terminal() { cost(&app.costs, &job).await } else { None };
    Ok(Json(view.costing(cost)).into_response())
}

/// Cost of an ended job; `None` if it cannot be read now.
async fn cost(costs: &Costs, job: &Job) -> Option<JobCost> {
    let read = costs.of_jobs(std::slice::from_ref(job)).await;
    let read = read.inspect_err(|error| {
        tracing::warn!(error = error as &dyn std::error::Error, job.id = %job.id, "the cost of a job cannot be read");
    });
    read.ok()?.first().copied()
}

/// List jobs
///
/// Open and recently ended jobs come first, archived jobs after them; each part newest first.
#[utoipa::path(get, operation_id = "list_jobs", path = "/v1/jobs", tag = "jobs",
    params(
        ("state" = Option<super::words::StateWord>, Query, description = "Return only jobs in this state."),
        ("endpoint" = Option<String>, Query, description = "Return only jobs of this endpoint."),
        ("batch" = Option<String>, Query, description = "Return only lines of this batch."),
        ("schedule" = Option<String>, Query, description = "Return only jobs of this schedule."),
        ("priority" = Option<super::words::PriorityWord>, Query, description = "Return only jobs of this priority."),
        ("error_code" = Option<super::words::ErrorWord>, Query, description = "Return only jobs that failed with this error code."),
        ("metadata.<key>" = Option<String>, Query, description = "Return only jobs with this label; repeat the parameter for several keys."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "1 to 100; default 20."),
    ),
    responses((status = 200, description = "One page.", body = JobList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller<JobsRead>,
    mut params: Params,
) -> Result<Response, Problem> {
    let filter = filter(&mut params)?;
    let cursor =
        params.take("cursor", "the next_cursor of a page", PageStart::parse)?.unwrap_or(PageStart::Queue(None));
    let limit = params.limit()?;
    params.finish()?;
    let (jobs, next_cursor) = page(&app, &caller.tenant, &filter, cursor, limit).await?;
    let jobs = jobs.iter().map(|job| JobView::new(job, &app.config)).collect();
    Ok(Json(JobList { jobs, next_cursor }).into_response())
}

/// Start of a page of the list: the queue's jobs come first, the archived ones after them.
pub(crate) enum PageStart {
    Queue(Option<String>),
    Archive(Cursor),
}

impl PageStart {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Cursor::parse(text).map(Self::Archive).or_else(|| is_cursor(text).then(|| Self::Queue(Some(text.to_owned()))))
    }
}

/// One page, and the start of the next one.
async fn page(
    app: &App,
    tenant: &str,
    filter: &ListFilter,
    start: PageStart,
    limit: u32,
) -> Result<(Vec<Job>, Option<String>), Problem> {
    let (mut jobs, cursor) = match start {
        PageStart::Archive(cursor) => (Vec::new(), cursor),
        PageStart::Queue(cursor) => {
            let page = app.db.ask("list jobs", app.db.queue.list(tenant, filter, cursor.as_deref(), limit)).await?;
            if page.next_cursor.is_some() {
                return Ok((page.jobs, page.next_cursor));
            }
            (page.jobs, Cursor(None))
        }
    };
    let room = (limit as usize).saturating_sub(jobs.len());
    // The archive contains only ended jobs.
    if filter.state.is_some_and(|state| !state.is_terminal()) {
        return Ok((jobs, None));
    }
    if room == 0 {
        return Ok((jobs, Some(cursor.to_string())));
    }
    match app.jobs.archived(tenant, filter, cursor, room).await {
        Ok((archived, next)) => {
            jobs.extend(archived);
            Ok((jobs, next.map(|next| next.to_string())))
        }
        // The jobs of the queue are returned; the next page reports the error.
        Err(error) if !jobs.is_empty() => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a page of jobs ends before the archived ones");
            Ok((jobs, Some(cursor.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}

/// Parses the parameters that select jobs.
fn filter(params: &mut Params) -> Result<ListFilter, Problem> {
    let states = JobState::ALL.map(JobState::as_str).join(", ");
    let text = |text: &str| matches!(text.len(), 1..=255).then(|| text.to_owned());
    Ok(ListFilter {
        state: params.take("state", &format!("one of {states}"), JobState::from_word)?,
        endpoint: params
            .take("endpoint", "an endpoint's name", |name| names::is_name(name).then(|| name.to_owned()))?,
        metadata: params.take_all("metadata."),
        batch: params.take("batch", "a batch's id", text)?,
        schedule: params.take("schedule", "a schedule's id", text)?,
        priority: params.take("priority", "one of interactive, standard, batch", word)?,
        error_code: params.take("error_code", "an error code of a job", ErrorCode::from_word)?,
    })
}

/// Parses a value that the queue's own types define.
fn word<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(text.into()).ok()
}

/// Cancel a job
///
/// Once this has answered, no result of the job will appear. Cancelling twice is safe.
#[utoipa::path(post, operation_id = "cancel_job", path = "/v1/jobs/{id}/cancel", tag = "jobs",
    params(("id" = String, Path, description = "The job's id.")),
    responses(
        (status = 200, description = "The cancelled job.", body = JobView),
        (status = 409, description = "`already_ended`: the job has already ended in another state. `quarantined`: its record cannot be read.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn cancel(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    State(jobs): State<Arc<Jobs>>,
    caller: Caller<JobsCancel>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let job = cancel_one(&db, &jobs, &caller.tenant, parse_id(&id)?).await?;
    Ok(Json(JobView::new(&job, &config)).into_response())
}

/// Cancels a job and its open step. The job is then cancelled, or this fails.
pub(crate) async fn cancel_one(db: &Database, jobs: &Jobs, tenant: &str, id: JobId) -> Result<Job, Problem> {
    let ids = [id];
    let answers = db.ask_again("cancel", || db.queue.cancel(tenant, &ids)).await?;
    match answers.first() {
        Some(CancelAnswer::Cancelled | CancelAnswer::AlreadyEnded(JobState::Cancelled)) => {}
        Some(CancelAnswer::AlreadyEnded(state)) => return Err(already_ended(*state)),
        Some(CancelAnswer::Quarantined) => {
            let detail =
                "the job's record cannot be read: the job is quarantined until an operator readmits or discards it";
            return Err(Problem::new(Code::Quarantined, detail));
        }
        // Unless the job is archived, and then it has ended.
        None | Some(CancelAnswer::NotFound) => {}
    }
    let job = jobs.find(tenant, id).await?.ok_or_else(|| Problem::not_found("job"))?;
    if job.state != JobState::Cancelled {
        return Err(already_ended(job.state));
    }
    cancel_step(db, &job).await?;
    Ok(job)
}

fn already_ended(state: JobState) -> Problem {
    Problem::new(Code::AlreadyEnded, format!("the job has already ended: it is {}", state.as_str()))
}

/// Cancels the open step of a cancelled job, which is no longer needed.
async fn cancel_step(db: &Database, job: &Job) -> Result<(), Problem> {
    let Some(step) = job.open_step() else { return Ok(()) };
    let ids = [step];
    db.ask_again("cancel a step", || db.queue.cancel(&job.spec.tenant, &ids)).await?;
    Ok(())
}

/// Returns the caller's own job with this ID, archived or not. For all other tenants it does not exist.
pub(crate) async fn own(jobs: &Jobs, tenant: &str, id: &str) -> Result<Job, Problem> {
    jobs.find(tenant, parse_id(id)?).await?.ok_or_else(|| Problem::not_found("job"))
}

fn parse_id(id: &str) -> Result<JobId, Problem> {
    id.parse().map_err(|error| Problem::new(Code::NotFound, format!("no such job: {error}")))
}

/// Returns whether a text is a place in a Redis stream, which is the form of cursors and event IDs:
/// `<milliseconds>-<number>`, as Redis writes it. The first and the last possible place are invalid: nothing is stored
/// there, and Redis refuses to read beyond them.
pub(crate) fn is_cursor(text: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| number.to_string() == text);
    let place = text.split_once('-').and_then(|(ms, n)| number(ms).zip(number(n)));
    place.is_some_and(|place| place > (0, 0) && place < (u64::MAX, u64::MAX))
}
