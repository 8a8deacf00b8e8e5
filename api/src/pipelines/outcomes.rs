//! Outcomes of the jobs on which another job depends.

use serde_json::Value;
use stokehold_objects::Objects;
use stokehold_queue::JobId;
use stokehold_queue::job::{Job, JobResult};
use stokehold_queue::pipeline::Outcome;

use super::Error;
use crate::state::App;

/// Maximum size of a result that is read to become part of another job's input, bytes.
const RESULT_MAX: u64 = 1 << 20;

/// The job and its outcome, with its result if `wanted`; `None` when it does not exist, or belongs to another tenant.
pub(super) async fn of(app: &App, tenant: &str, id: JobId, wanted: bool) -> Result<Option<(Job, Outcome)>, Error> {
    let Some(job) = app.jobs.find(tenant, id).await? else { return Ok(None) };
    let result = match &job.result {
        Some(result) if wanted => Some(value(&app.objects, id, result).await?),
        _ => None,
    };
    let outcome = Outcome {
        state: job.state,
        result,
        error: job.error.clone(),
        timing: job.attempts.last().map(|last| last.timing).unwrap_or_default(),
        cost_usd_micros: job.attempts.iter().filter_map(|attempt| attempt.cost_usd_micros).reduce(|a, b| a + b),
    };
    Ok(Some((job, outcome)))
}

/// Reads the result of a job as a value.
pub(super) async fn value(objects: &Objects, id: JobId, result: &JobResult) -> Result<Value, Error> {
    let broken = |error| Error::Lost(format!("the result of job {id} cannot be read: {error}"));
    match result {
        JobResult::Inline(text) => serde_json::from_str(text.get()).map_err(broken),
        JobResult::Object { size_bytes, .. } if *size_bytes > RESULT_MAX => Err(Error::TooLarge(format!(
            "the result of job {id} has {size_bytes} bytes, over the limit of {RESULT_MAX} for references; return large results as files"
        ))),
        JobResult::Object { key, .. } => match objects.get(key, RESULT_MAX).await? {
            Some(bytes) => serde_json::from_slice(&bytes).map_err(broken),
            None => Err(Error::Lost(format!("the result of job {id} is missing from the object store"))),
        },
    }
}
