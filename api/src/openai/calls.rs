//! The calls that become jobs.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::value::RawValue;

use super::error::Error;
use super::handled::{Handled, form_of};
use super::job::{HOLD_MAX, Open, STREAM_MAX, succeeded};
use super::resolve::{Head, resolve};
use super::route::Call;
use super::stream::Chunks;
use super::{answer, images, stream, stream_usage};
use crate::jobs::submit::{self, SubmitRequest};
use crate::server::json::{Json, raw_text};
use crate::state::App;
use crate::tenants::auth::{Caller, JobsSubmit};

/// Answers a call: submits it as a job, and waits for the end of the job or streams its outputs.
pub(super) async fn answer(
    call: Call,
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    headers: HeaderMap,
    Json(body): Json<Box<RawValue>>,
) -> Result<Response, Error> {
    run(call, app, caller, &headers, body.get()).await
}

/// Whether the client wants a stream.
pub(super) fn is_streamed(call: Call, head: &Head<'_>) -> Result<bool, Error> {
    if head.streams() && !call.streams() {
        return Err(Error::invalid("stream", "this call does not stream; leave stream out"));
    }
    Ok(head.streams())
}

/// As [`answer`], for a body that has been read.
pub(super) async fn run(
    call: Call,
    app: App,
    caller: Caller<JobsSubmit>,
    headers: &HeaderMap,
    body: &str,
) -> Result<Response, Error> {
    let head = Head::read(body)?;
    let (model_text, name) = head.model()?;
    let is_streamed = is_streamed(call, &head)?;
    let model = resolve(&app, &caller.tenant, &name).await?;
    let spec = &model.target.deployed.version.spec;
    let form = form_of(spec, call, &name)?;
    let handled = Handled::read(form, call, body)?;
    let asking = is_streamed.then(|| stream_usage::asking(spec, (form, call), body, head.stream_options())).flatten();
    let input = match &asking {
        Some(body) => handled.input(form, call, body, Head::read(body)?.model()?.0, model.sent()),
        None => handled.input(form, call, body, model_text, model.sent()),
    };
    let key = submit::idempotency_key(headers, None)?;
    let mut request = SubmitRequest::new(model.target.deployed.version.name.clone(), raw_text(input)?);
    request.version = model.version;
    request.priority = head.priority()?;
    // Bounds a job whose client and replica are both gone. With a key, the client may come back for the answer.
    let longest = if is_streamed { STREAM_MAX } else { HOLD_MAX };
    request.deadline_s = key.is_none().then_some(longest.as_secs());
    let job = submit::prepare(&app, &model.target, &caller.tenant, request, key, headers).await?;
    let open = Open::submit(&app, caller, job).await?;
    if is_streamed {
        return stream::answer(open, Chunks { call, hides_usage: asking.is_some() }).await;
    }
    let job = open.until_end().await?;
    succeeded(&job)?;
    let result = answer::result(&app, &job, answer::RESULT_MAX).await?;
    let answered = handled.answer(&app, &job, (&name, result), images::IMAGES_MAX).await;
    Ok(answer::json(&job, answered.map_err(|error| error.of(job.id))?))
}
