//! Schedules: when they tick, what runs of what was missed, and the loop that makes jobs of ticks.

pub(crate) mod cron;
pub(crate) mod plan;
pub(crate) mod routes;
mod scheduler;

use serde_json::value::RawValue;
use stokehold_queue::job::NewJob;

use crate::error::Problem;
use crate::jobs::inputs;
use crate::jobs::submit;
use crate::jobs::submit::{SubmitRequest, Target};
use crate::server::json;
use crate::state::App;

pub(crate) use scheduler::Scheduler;

/// The pointer of the job request within the schedule request.
pub(crate) const JOB_AT: &str = "/job";

/// The job that a schedule's request makes now, checked as `POST /v1/jobs` checks it: against what is deployed now.
pub(crate) async fn to_job(app: &App, tenant: &str, request: SubmitRequest) -> Result<NewJob, Problem> {
    let target = Target::resolve(app, tenant, &request.endpoint, request.version).await?;
    let job = submit::check(request, &target, tenant, JOB_AT, &[])?.keyed(None);
    if !job.spec.depends_on.is_empty() {
        return Err(Problem::field(
            format!("{JOB_AT}/input"),
            "references another job's result; a schedule's job waits for no other job",
        ));
    }
    inputs::require_files(&app.objects, tenant, &job.spec.files.iter().collect()).await?;
    Ok(job)
}

/// As [`to_job`], of a stored request.
async fn stored_job(app: &App, tenant: &str, request: &RawValue) -> Result<NewJob, Problem> {
    to_job(app, tenant, json::parse(request.get().as_bytes())?).await
}
