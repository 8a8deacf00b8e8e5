//! The output of a job: its result and its files.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::response::{IntoResponse, Response};
use stokehold_objects::Objects;
use stokehold_queue::job::{Job, JobResult, JobState};

use crate::error::{Code, Problem, ProblemBody};
use crate::history::Jobs;
use crate::jobs::routes::own;
use crate::names;
use crate::server::path::Path;
use crate::tenants::auth::{Caller, JobsRead};

/// Time after a URL was issued within which its download must start.
const URL_TTL: Duration = Duration::from_secs(3600);

/// Get a job's result
#[utoipa::path(get, operation_id = "get_job_result", path = "/v1/jobs/{id}/result", tag = "jobs",
    params(("id" = String, Path, description = "The job's id.")),
    responses(
        (status = 200, description = "The result.", body = serde_json::Value),
        (status = 307, description = "The result is large: fetch it from `Location`, a presigned URL."),
        (status = 409, description = "`not_ready` or `no_result`.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn result(
    State(objects): State<Arc<Objects>>,
    State(jobs): State<Arc<Jobs>>,
    caller: Caller<JobsRead>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let job = own(&jobs, &caller.tenant, &id).await?;
    match &job.result {
        Some(JobResult::Inline(result)) => {
            Ok(([(CONTENT_TYPE, "application/json")], result.get().to_owned()).into_response())
        }
        Some(JobResult::Object { key, .. }) => Ok(redirect(objects.presign_get(key, URL_TTL).await?)),
        None => Err(without_result(&job)),
    }
}

/// Get a file of a job's result
#[utoipa::path(get, operation_id = "get_job_file", path = "/v1/jobs/{id}/files/{name}", tag = "jobs",
    params(
        ("id" = String, Path, description = "The job's id."),
        ("name" = String, Path, description = "The file's name in the result."),
    ),
    responses(
        (status = 307, description = "Fetch the file from `Location`, a presigned URL."),
        (status = 409, description = "`not_ready` or `no_result`.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn file(
    State(objects): State<Arc<Objects>>,
    State(jobs): State<Arc<Jobs>>,
    caller: Caller<JobsRead>,
    Path((id, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let job = own(&jobs, &caller.tenant, &id).await?;
    // A result is hidden until the job's steps have accepted it.
    let Some(winner) = job.winner().filter(|_| job.state == JobState::Succeeded) else {
        return Err(without_result(&job));
    };
    if !names::is_file_name(&name) {
        return Err(Problem::not_found("file"));
    }
    let prefix = Job::attempt_prefix(&job.spec.tenant, job.id, winner.attempt, &winner.fence);
    let key = format!("{prefix}{name}");
    if objects.head(&key).await?.is_none() {
        return Err(Problem::not_found("file"));
    }
    Ok(redirect(objects.presign_get(&key, URL_TTL).await?))
}

pub(crate) fn without_result(job: &Job) -> Problem {
    let state = job.state.as_str();
    if job.state.is_terminal() {
        return Problem::new(Code::NoResult, format!("the job is {state}, so it has no result"));
    }
    Problem::new(Code::NotReady, format!("the job is {state}; wait for it with GET /v1/jobs/{}?wait_s=60", job.id))
}

/// A redirect to a presigned URL, which must not be cached.
pub(crate) fn redirect(url: String) -> Response {
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, url), (axum::http::header::CACHE_CONTROL, "no-store".to_owned())])
        .into_response()
}
