//! `GET /v1/jobs/{id}/events`: a job's story as server-sent events, from any point on.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use serde::Serialize;
use serde_json::value::RawValue;
use stokehold_queue::gateway::{JobMessage, LogStream};
use stokehold_queue::job::{Job, JobState};
use stokehold_queue::queue::KeptEvent;
use stokehold_queue::{Fence, JobId, Queue};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::jobs::{is_cursor, own};
use super::view::JobView;
use crate::auth::{Caller, JobsRead, while_stands};
use crate::error::Problem;
use crate::path::Path;
use crate::query::Params;
use crate::state::App;

/// Events read from the queue at once.
const PAGE: u32 = 100;

/// A comment this often keeps proxies from closing the stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The longest one stream lives; a client resumes with `Last-Event-ID`.
const STREAM_MAX: Duration = Duration::from_secs(3600);

/// Ranks under one fence, see [`rank`].
const RANKS: u64 = 8;

/// One event, as its lines say it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the document: axum writes the lines")]
pub(crate) struct StreamEvent {
    /// `state`, `progress`, `log`, `output` or `done`.
    event: String,
    /// JSON: a state and its attempt, a fraction and a message, a stream and a text, an index and a value; at `done` the job.
    data: String,
    /// For `Last-Event-ID`.
    id: String,
}

#[derive(Serialize)]
struct StateData {
    state: JobState,
    attempt: u32,
}

#[derive(Serialize)]
struct ProgressData<'a> {
    fraction: f64,
    message: &'a str,
}

#[derive(Serialize)]
struct LogData<'a> {
    stream: LogStream,
    text: &'a str,
    attempt: u32,
}

#[derive(Serialize)]
struct OutputData<'a> {
    index: u64,
    value: &'a RawValue,
    attempt: u32,
}

/// Follow a job
///
/// First the state, then what was kept of progress, logs and outputs after `Last-Event-ID` (the last 1,000), then live until
/// `done`, which carries the job and ends the stream.
#[utoipa::path(get, operation_id = "follow_job", path = "/v1/jobs/{id}/events", tag = "jobs",
    params(
        ("id" = String, Path, description = "The job's id."),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event seen."),
    ),
    responses(
        (status = 200, description = "Events `state`, `progress`, `log`, `output`, `done`.", content_type = "text/event-stream", body = StreamEvent),
        crate::openapi::Problems,
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
    let job = own(&app, &caller.tenant, &id).await?;
    let held = app.hold(&caller.tenant)?;
    let story = while_stands(app.clone(), caller.token, story(app, caller.tenant, job.id, seen));
    let story = async_stream::stream! {
        let _held = held;
        for await event in story {
            yield event;
        }
    };
    Ok(Sse::new(story).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// The stream breaks off when the queue cannot be asked; the client resumes where it was.
fn story(app: App, tenant: String, id: JobId, mut seen: Seen) -> impl Stream<Item = Result<Event, Infallible>> {
    async_stream::stream! {
        let deadline = Instant::now() + STREAM_MAX;
        let mut follow = app.waits.follow(id);
        loop {
            // The state first: what is read after it can only be newer, so that nothing said before the end is missed.
            let job = match follow.look().await {
                // Archived jobs have ended, and what they said is gone.
                Ok(None) => app.find_job(&tenant, id).await,
                looked => looked,
            };
            let Ok(Some(job)) = job else { return };
            let rank = rank(&job, &seen);
            let state = StateData { state: job.state, attempt: job.attempts.last().map_or(0, |last| last.attempt) };
            // An end is told after what was said before it, except to somebody who has not been told any state yet.
            if seen.rank == 0 || (seen.rank < rank && !job.state.is_terminal()) {
                seen.rank = rank;
                yield Ok(event("state", &state).id(seen.to_string()));
            }
            loop {
                let Ok(kept) = app.ask("read events", app.queue.read_events(id, &seen.entry, PAGE)).await else { return };
                let full = kept.len() == PAGE as usize;
                for kept in kept {
                    seen.entry.clone_from(&kept.id);
                    yield Ok(said(&kept).id(seen.to_string()));
                }
                if !full {
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
            if !follow.changed(deadline).await {
                return;
            }
        }
    }
}

/// How far somebody has followed a job, which is what an event's id says: `<entry>.<rank>`. Both only grow, so that nothing
/// overtakes the end, and who comes back with the last id that it saw misses nothing and hears nothing twice.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The last kept event; empty before the first.
    entry: String,
    /// The rank of the last state told, see [`rank`]; 0 before the first.
    rank: u64,
}

impl Seen {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (entry, rank) = text.rsplit_once('.')?;
        let entry = if entry == "0" { "" } else { entry };
        (entry.is_empty() || is_cursor(entry)).then_some(())?;
        let seen = Self { entry: entry.to_owned(), rank: rank.parse().ok().filter(|rank| *rank < u64::MAX - RANKS)? };
        // As it was given out, and no other spelling of it.
        (seen.to_string() == text).then_some(seen)
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entry = if self.entry.is_empty() { "0" } else { &self.entry };
        write!(f, "{entry}.{}", self.rank)
    }
}

/// A number that grows with each move of the job: by the counter of its fence, and under the same fence by the order in which
/// states follow one another. One is left free above each end for `done`, and 0 for those who have heard nothing. History keeps no
/// fence, so an end is never ranked below what its listener has heard: whether it has heard the end shows in its rank's last digit.
fn rank(job: &Job, seen: &Seen) -> u64 {
    let order = match job.state {
        JobState::Blocked => 1,
        JobState::Scheduled => 2,
        JobState::Queued => 3,
        JobState::Running => 4,
        JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::Expired => 5,
    };
    let rank = Fence(job.revision.split('#').next().unwrap_or_default().to_owned()).counter() * RANKS + order;
    if job.state.is_terminal() { rank.max(seen.rank / RANKS * RANKS + order) } else { rank }
}

fn said(kept: &KeptEvent) -> Event {
    let attempt = kept.attempt;
    match &kept.message {
        JobMessage::Progress { fraction, message } => event("progress", &ProgressData { fraction: *fraction, message }),
        JobMessage::Log { stream, text } => event("log", &LogData { stream: *stream, text, attempt }),
        JobMessage::Output { index, value } => event("output", &OutputData { index: *index, value, attempt }),
    }
}

/// One event on one line: what was submitted may hold line breaks between its tokens, which mean nothing there.
fn event(name: &str, data: &impl Serialize) -> Event {
    let text = serde_json::to_string(data).unwrap_or_default().replace(['\r', '\n'], " ");
    Event::default().event(name).data(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_id_survives_its_text() {
        for seen in [Seen { entry: String::new(), rank: 3 }, Seen { entry: "1700000000000-7".to_owned(), rank: 12 }] {
            assert_eq!(Seen::parse(&seen.to_string()), Some(seen));
        }
        for wrong in ["", "1", "1-1", ".", ".3", "x.1", "1-1.x", "1-1.-1", "1-1.+1", "1-1.01", "01-1.1", "0-0.1"] {
            assert_eq!(Seen::parse(wrong), None, "{wrong}");
        }
    }
}
