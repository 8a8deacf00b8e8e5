//! Schedules: their ticks, the catch-up of missed ticks, and the loop that makes jobs of ticks.

pub(crate) mod cron;
pub(crate) mod plan;
pub(crate) mod routes;
mod scheduler;

use serde_json::value::RawValue;
use stokehold_queue::job::NewJob;

use crate::database;
use crate::endpoints::catalog;
use crate::error::FieldError;
use crate::jobs::submit;
use crate::jobs::submit::{SubmitRequest, Target};
use crate::jobs::{inputs, large_inputs};
use crate::server::json;
use crate::state::App;

pub(crate) use scheduler::Scheduler;

/// JSON pointer of the job request within the schedule request.
pub(crate) const JOB_AT: &str = "/job";

/// Reasons for which a schedule's job cannot be made or submitted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The stored request cannot be parsed.
    #[error(transparent)]
    Request(#[from] json::Error),
    /// Its endpoint cannot be resolved.
    #[error(transparent)]
    Endpoint(#[from] catalog::Error),
    /// The request is not valid for that endpoint.
    #[error(transparent)]
    Job(#[from] submit::Error),
    /// The job references another job.
    #[error(transparent)]
    Refers(FieldError),
    /// A file of its input cannot be used.
    #[error(transparent)]
    File(#[from] inputs::FileError),
    /// Its input was not stored.
    #[error(transparent)]
    Input(#[from] large_inputs::Error),
    /// The queue refused it or failed.
    #[error(transparent)]
    Database(#[from] database::Error),
}

/// Makes the job of a schedule's request now. The checks are those of `POST /v1/jobs`, against the currently deployed
/// version.
pub(crate) async fn to_job(app: &App, tenant: &str, request: SubmitRequest) -> Result<NewJob, Error> {
    let target = Target::resolve(app, tenant, &request.endpoint, request.version).await?;
    let job = submit::check(request, &target, tenant, JOB_AT, &[])?.keyed(None);
    if !job.spec.depends_on.is_empty() {
        return Err(Error::Refers(FieldError::new(
            format!("{JOB_AT}/input"),
            "references another job's result; a schedule's job waits for no other job",
        )));
    }
    inputs::require_files(&app.objects, tenant, &job.spec.files.iter().collect()).await?;
    Ok(job)
}

/// Calls [`to_job`] for a stored request.
async fn stored_job(app: &App, tenant: &str, request: &RawValue) -> Result<NewJob, Error> {
    to_job(app, tenant, json::parse(request.get().as_bytes())?).await
}
