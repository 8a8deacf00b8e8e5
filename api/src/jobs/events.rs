//! `GET /v1/jobs/{id}/events`: the events of a job as server-sent events, from any position on.

mod seen;

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use serde::Serialize;
use stokehold_queue::job::JobState;
use stokehold_queue::{JobId, Queue};
use tokio::time::Instant;
use utoipa::ToSchema;

pub(crate) use self::seen::Seen;
use self::seen::rank;
use super::view::JobView;
use crate::error::Problem;
use crate::jobs::routes::own;
use crate::jobs::watchers::Next;
use crate::server::json;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsRead, while_valid};

/// Events that are read from the queue at once.
const PAGE: u32 = 100;

/// Stored batches of outputs that are read from the queue at once. Each may be decompressed to some 64 KiB.
pub(crate) const OUTPUTS_PAGE: u32 = 16;

/// Interval of comments that keep proxies from closing the stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Longest duration of one stream; a client resumes with `Last-Event-ID`.
const STREAM_MAX: Duration = Duration::from_secs(3600);

/// A server-sent event.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the OpenAPI document: axum writes the events")]
pub(crate) struct StreamEvent {
    /// `state`, `progress`, `log`, `output`, `gap` or `done`.
    #[schema(value_type = StreamEventWord)]
    event: String,
    /// JSON: a state and its attempt, a fraction and a message, a stream and a text, an index and a value; for `gap`,
    /// the attempt and the missing outputs, from index `from` up to but excluding index `to`; for `done`, the job.
    data: String,
    /// The id for `Last-Event-ID`.
    id: String,
}

/// The kind of an event of a job.
#[derive(ToSchema)]
#[schema(as = StreamEventKind, rename_all = "snake_case")]
#[expect(dead_code, reason = "names of the events, for the OpenAPI document")]
pub(crate) enum StreamEventWord {
    State,
    Progress,
    Log,
    Output,
    Gap,
    Done,
}

#[derive(Serialize)]
struct StateData {
    state: JobState,
    attempt: u32,
}

/// Follow a job
///
/// Sends the state first, then the stored progress, logs and outputs after `Last-Event-ID`, then live events until
/// `done`, which carries the job and ends the stream. The last 1,000 progress and log events and the last MiB of
/// outputs are stored. Where outputs are missing, `gap` lists them; the job's result has all of them.
#[utoipa::path(get, operation_id = "follow_job", path = "/v1/jobs/{id}/events", tag = "jobs",
    params(
        ("id" = String, Path, description = "The job's id."),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event received."),
    ),
    responses(
        (status = 200, description = "Events `state`, `progress`, `log`, `output`, `gap`, `done`.", content_type = "text/event-stream", body = StreamEvent),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn events(
    State(app): State<App>,
    caller: Caller<JobsRead>,
    Path(id): Path<String>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Problem> {
    params.finish()?;
    let seen = match headers.get("last-event-id").map(|value| value.to_str().unwrap_or_default()) {
        None | Some("") => Seen::default(),
        Some(text) => Seen::parse(text)
            .ok_or_else(|| Problem::field("Last-Event-ID", "must be the id of an event of this stream"))?,
    };
    let job = own(&app.jobs, &caller.tenant, &id).await?;
    let held = app.wait_permits.take(&caller.tenant)?;
    let events = while_valid(app.clone(), caller.token, event_stream(app, caller.tenant, job.id, seen));
    let events = async_stream::stream! {
        let _held = held;
        for await event in events {
            yield event;
        }
    };
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Streams the events of a job. The stream ends when the queue cannot be read; the client resumes at its position.
fn event_stream(app: App, tenant: String, id: JobId, mut seen: Seen) -> impl Stream<Item = Result<Event, Infallible>> {
    async_stream::stream! {
        let deadline = Instant::now() + STREAM_MAX;
        let mut follow = app.job_watchers.follow_outputs(id);
        loop {
            // The state is read first: everything read after it can only be newer, so that no event before the end is
            // missed.
            let job = match follow.look().await {
                // Archived jobs have ended, and their events are deleted.
                Ok(None) => app.jobs.find(&tenant, id).await.map_err(Problem::from),
                looked => looked.map_err(Problem::from),
            };
            let Ok(Some(job)) = job.inspect_err(Problem::log) else { return };
            let rank = rank(&job, &seen);
            let state = StateData { state: job.state, attempt: job.attempts.last().map_or(0, |last| last.attempt) };
            // An end is sent after the events before it, except to a client that has not received any state yet.
            if seen.rank == 0 || (seen.rank < rank && !job.state.is_terminal()) {
                seen.rank = rank;
                yield Ok(event("state", &state).id(seen.to_string()));
            }
            loop {
                // The outputs are read last: they are then at least as new as the events, and none is sent after a
                // later event.
                let kept = app.db.ask("read events", app.db.queue.read_events(id, &seen.entry, PAGE)).await;
                let Ok(kept) = kept.map_err(Problem::from).inspect_err(Problem::log) else { return };
                let place = seen.outputs.unwrap_or_default();
                let outputs = app.db.queue.read_outputs(id, place, OUTPUTS_PAGE);
                let outputs = app.db.ask("read outputs", outputs).await;
                let Ok(outputs) = outputs.map_err(Problem::from).inspect_err(Problem::log) else { return };
                let (events, is_all) = seen.take_stored(kept, outputs);
                for event in events {
                    yield Ok(event);
                }
                if is_all {
                    break;
                }
            }
            if job.state.is_terminal() {
                if seen.rank < rank {
                    seen.rank = rank;
                    yield Ok(event("state", &state).id(seen.to_string()));
                }
                if seen.rank == rank {
                    seen.rank = rank + 1;
                    yield Ok(event("done", &JobView::new(&job, &app.config)).id(seen.to_string()));
                }
                return;
            }
            loop {
                match follow.next(seen.outputs.unwrap_or_default(), deadline).await {
                    Next::Outputs(outputs) => {
                        for event in seen.take_relayed(&outputs) {
                            yield Ok(event);
                        }
                    }
                    Next::Changed => break,
                    Next::Over => return,
                }
            }
        }
    }
}

/// Formats one event on one line.
fn event(name: &str, data: &impl Serialize) -> Event {
    Event::default().event(name).data(json::write_line(data))
}
