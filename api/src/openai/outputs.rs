//! The files of a batch's results and errors in OpenAI's form. They are written from the files of the batch itself when
//! it has ended, line by line.

use bytes::Bytes;
use futures::{TryStreamExt, pin_mut, stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stokehold_queue::batches::Batch;
use stokehold_queue::job::{ErrorCode, Job, JobError, JobState};
use stokehold_queue::{JobId, now_ms};

use super::answer;
use super::error::Error as CallError;
use super::files::{self, BATCH_OUTPUT, File};
use super::handled::{Handled, form_of};
use super::route::{Call, Form};
use crate::batches::Error;
use crate::batches::reader::Reader;
use crate::batches::results::{BUDGET_REACHED, whole_key};
use crate::endpoints::catalog;
use crate::files::stored::OpenAiFile;
use crate::jobs::inputs::file_key;
use crate::server::json;
use crate::state::App;

pub(super) use crate::batches::results::Kind;

/// Maximum size of the answer of a line, and of its images, bytes. A larger result is fetched from its job.
const ANSWER_MAX: u64 = 8 << 20;

/// Lines that are written concurrently: each may need its job and its result from the object store.
const LINES_AT_ONCE: usize = 4;

/// A line of the batch's own results.
#[derive(Deserialize)]
struct ResultLine {
    custom_id: Option<String>,
    job_id: JobId,
    result: Option<Box<RawValue>>,
}

/// A line of the batch's own errors.
#[derive(Deserialize)]
struct ErrorLine {
    line: u64,
    custom_id: Option<String>,
    job_id: Option<JobId>,
    state: String,
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    code: String,
    message: String,
}

/// A line in OpenAI's form.
#[derive(Serialize)]
struct Line<'a> {
    id: String,
    custom_id: Option<&'a str>,
    response: Option<Response<'a>>,
    error: Option<LineError<'a>>,
}

#[derive(Serialize)]
struct Response<'a> {
    status_code: u16,
    request_id: String,
    body: &'a RawValue,
}

#[derive(Serialize)]
struct LineError<'a> {
    code: &'a str,
    message: &'a str,
}

/// The ID of a batch's file, as clients of OpenAI know it. `None` until the batch has ended, and if it has no such lines.
pub(super) fn file_id(batch: &Batch, kind: Kind) -> Option<String> {
    let has_file = batch.state.is_terminal() && has_lines(batch, kind);
    has_file.then(|| files::shown_id(&files::id_of_batch(&batch.id, kind.word())))
}

fn has_lines(batch: &Batch, kind: Kind) -> bool {
    let count = match kind {
        Kind::Output => batch.succeeded,
        Kind::Errors => batch.failed + batch.cancelled + batch.expired,
    };
    // The errors of a batch that never started are members of it.
    batch.started_ms.is_some() && count > 0
}

/// Writes both files of a batch. Repeating it writes the same files again.
pub(crate) async fn publish(app: &App, batch: &Batch) -> Result<(), Error> {
    for kind in Kind::ALL {
        if has_lines(batch, kind) {
            Box::pin(write(app, batch, kind)).await?;
        }
    }
    Ok(())
}

async fn write(app: &App, batch: &Batch, kind: Kind) -> Result<(), Error> {
    let Some(openai) = &batch.spec.openai else { return Ok(()) };
    let tenant = &batch.spec.tenant;
    let id = files::id_of_batch(&batch.id, kind.word());
    let name = format!("{}_{}.jsonl", batch.id, kind.word());
    let mut upload = app.objects.upload(&file_key(tenant, &id), "application/jsonl").named(&name);
    let mut bytes = 0;
    let reader = Reader::new(&app.objects, &whole_key(batch, kind), 0, 0);
    let lines = stream::try_unfold(reader, |mut reader| async move {
        Ok::<_, Error>(reader.next().await?.map(|line| (line.text.unwrap_or_default(), reader)))
    });
    let writer =
        Writer { app: app.clone(), tenant: tenant.clone(), batch: batch.id.clone(), path: openai.endpoint.clone() };
    let lines = lines.map_ok(|text| {
        let writer = writer.clone();
        async move {
            match kind {
                Kind::Output => writer.succeeded(&text).await,
                Kind::Errors => ended(&writer.batch, &text),
            }
        }
    });
    let lines = lines.try_buffered(LINES_AT_ONCE);
    pin_mut!(lines);
    while let Some(line) = lines.try_next().await? {
        bytes += line.len() as u64;
        upload.write(&line).await?;
    }
    // The same at each repetition, so that the index has the file once.
    let created_s = batch.collected_ms.unwrap_or_else(now_ms) / 1000;
    let expires_s = created_s + openai.output_expires_after_s;
    let about = OpenAiFile { purpose: BATCH_OUTPUT.to_owned(), bytes, created_s, expires_s };
    let announced = files::announce(&app.objects, tenant, &File { id, name, about }, "application/jsonl").await;
    announced.map_err(|error| match error {
        files::Error::Objects(error) => Error::Objects(error),
        error @ files::Error::Record { .. } => Error::Broken(error.to_string()),
    })?;
    Ok(upload.finish().await?)
}

/// What lines are written from.
#[derive(Clone)]
struct Writer {
    app: App,
    tenant: String,
    batch: String,
    /// Path of the call that each line makes.
    path: String,
}

impl Writer {
    /// The line of a job that succeeded. What cannot be answered is a response with an error, as for the call itself.
    async fn succeeded(&self, text: &[u8]) -> Result<Vec<u8>, Error> {
        let ResultLine { custom_id, job_id, result } = parse(&self.batch, text)?;
        let (status_code, body) = match self.answer(job_id, result).await? {
            Ok(body) => (200, body),
            Err(error) => (error.status(), json::raw(&error.json())),
        };
        let response = Some(Response { status_code, request_id: job_id.to_string(), body: &body });
        Ok(written(&Line { id: request_id(job_id), custom_id: custom_id.as_deref(), response, error: None }))
    }

    async fn answer(
        &self,
        id: JobId,
        result: Option<Box<RawValue>>,
    ) -> Result<Result<Box<RawValue>, CallError>, Error> {
        let call = Call::from_path(&self.path);
        // Only these have handlers that do not answer in OpenAI's form.
        let is_converted = matches!(call, Some(Call::Embeddings | Call::Images));
        if let (Some(result), false) = (&result, is_converted) {
            return Ok(Ok(result.clone()));
        }
        let Some(job) = self.app.jobs.find(&self.tenant, id).await? else {
            return Ok(Err(CallError::failed("the job is no longer stored")));
        };
        let body = match self.body(&job, call.filter(|_| is_converted)).await? {
            Ok(body) => String::from_utf8(body.into()).ok().and_then(|body| RawValue::from_string(body).ok()),
            Err(error) if error.status() == 503 => return Err(Error::Broken(error.message().to_owned())),
            Err(error) => return Ok(Err(error)),
        };
        Ok(body.ok_or_else(|| CallError::failed("the result of the job is not JSON")))
    }

    /// The answer from the whole result of a job. `call` is set where the result may have to be converted.
    async fn body(&self, job: &Job, call: Option<Call>) -> Result<Result<Bytes, CallError>, Error> {
        let result = match answer::result(&self.app, job, ANSWER_MAX).await {
            Ok(result) => result,
            Err(error) => return Ok(Err(error)),
        };
        let Some(call) = call else { return Ok(Ok(result)) };
        let (endpoint, version) = (&job.spec.endpoint, job.spec.version);
        let deployed = match self.app.catalog.resolve(&self.tenant, endpoint, Some(version)).await {
            Err(error @ (catalog::Error::UnknownEndpoint { .. } | catalog::Error::UnknownVersion { .. })) => {
                return Ok(Err(CallError::failed(error.to_string())));
            }
            deployed => deployed?,
        };
        let form = match form_of(&deployed.version.spec, call, endpoint) {
            Ok(Form::Handler) => Form::Handler,
            Ok(Form::Body | Form::Request) => return Ok(Ok(result)),
            Err(error) => return Ok(Err(error)),
        };
        let Some(input) = self.app.large_inputs.whole(&self.tenant, &job.input).await? else {
            return Ok(Err(CallError::failed("the input of the job is no longer stored")));
        };
        let handled = match Handled::read(form, call, input.get()) {
            Ok(handled) => handled,
            Err(error) => return Ok(Err(error)),
        };
        Ok(handled.answer(&self.app, job, (endpoint, result), ANSWER_MAX).await)
    }
}

/// The line of a job that did not succeed, or that was never started.
fn ended(batch: &str, text: &[u8]) -> Result<Vec<u8>, Error> {
    let ErrorLine { line, custom_id, job_id, state, error: Reason { code, message } } = parse(batch, text)?;
    let id = job_id.map_or_else(|| format!("batch_req_{}_{line}", batch.trim_start_matches("batch_")), request_id);
    let (state, custom_id) = (JobState::from_word(&state), custom_id.as_deref());
    if let (Some(JobState::Failed), Some(job_id)) = (state, job_id) {
        let code = ErrorCode::from_word(&code).unwrap_or(ErrorCode::Infra);
        let error = CallError::of_failure(&JobError::new(code, message));
        let body = json::raw(&error.json());
        let response = Response { status_code: error.status(), request_id: job_id.to_string(), body: &body };
        return Ok(written(&Line { id, custom_id, response: Some(response), error: None }));
    }
    let code = match state {
        _ if code == BUDGET_REACHED => BUDGET_REACHED,
        Some(JobState::Expired) => "batch_expired",
        _ => "batch_cancelled",
    };
    Ok(written(&Line { id, custom_id, response: None, error: Some(LineError { code, message: &message }) }))
}

fn parse<'a, T: Deserialize<'a>>(batch: &str, text: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Broken(format!("a line of {batch} cannot be read: {error}")))
}

fn request_id(job: JobId) -> String {
    format!("batch_req_{job}")
}

fn written(line: &Line<'_>) -> Vec<u8> {
    let mut text = json::write_line(line).into_bytes();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_line_that_did_not_succeed_is_a_response_if_it_ran_and_an_error_if_not() {
        let batch = format!("batch_{}", "a".repeat(32));
        let job = JobId::of_line(&batch, 1_795_240_200_123, 7, 0);
        let line = |state: &str, code: &str, job: Option<JobId>| {
            let error = json!({"code": code, "message": "why"});
            let line = json!({"line": 7, "custom_id": "x", "job_id": job, "state": state, "error": error, "run_ms": 1});
            let text = ended(&batch, line.to_string().as_bytes()).unwrap();
            assert_eq!(text.last(), Some(&b'\n'));
            serde_json::from_slice::<Value>(&text).unwrap()
        };
        let failed = line("failed", "timeout", Some(job));
        assert_eq!((&failed["custom_id"], &failed["error"]), (&json!("x"), &Value::Null));
        let response = &failed["response"];
        assert_eq!((&response["status_code"], &response["request_id"]), (&json!(504), &json!(job.to_string())));
        assert_eq!((&failed["id"], &response["body"]["error"]["code"]), (&json!(request_id(job)), &json!("timeout")));
        for (state, code, expected) in [
            ("expired", "expired", "batch_expired"),
            ("expired", "deadline", "batch_expired"),
            ("cancelled", "cancelled", "batch_cancelled"),
            ("cancelled", "budget_reached", "budget_reached"),
        ] {
            let id = format!("batch_req_{}_7", "a".repeat(32));
            let error = json!({"code": expected, "message": "why"});
            let shown = json!({"id": id, "custom_id": "x", "response": null, "error": error});
            assert_eq!(line(state, code, None), shown);
        }
    }
}
