//! From the result of a job to an answer.

use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use stokehold_queue::job::{Job, JobResult};

use super::error::Error;
use crate::state::App;

/// The ID of the job behind an answer.
pub(crate) const JOB_ID: HeaderName = HeaderName::from_static("stokehold-job-id");

/// Maximum size of a result that a call answers: it is held in memory.
pub(super) const RESULT_MAX: u64 = 32 << 20;

/// The JSON of a job's result, of at most `most` bytes.
pub(super) async fn result(app: &App, job: &Job, most: u64) -> Result<Bytes, Error> {
    let lost = || Error::failed("the result of the job is no longer stored").of(job.id);
    match &job.result {
        Some(JobResult::Inline(result)) => Ok(Bytes::from(result.get().to_owned())),
        Some(JobResult::Object { size_bytes, .. }) if *size_bytes > most => {
            let message = format!(
                "the result has {size_bytes} bytes, more than the {most} that an answer may have; fetch it with \
                    GET /v1/jobs/{}/result",
                job.id
            );
            Err(Error::failed(message).of(job.id))
        }
        Some(JobResult::Object { key, .. }) => app.objects.get(key, most).await?.ok_or_else(lost),
        None => Err(lost()),
    }
}

/// An answer in JSON.
pub(super) fn json(job: &Job, body: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json".to_owned()), (JOB_ID, job.id.to_string())], body).into_response()
}
