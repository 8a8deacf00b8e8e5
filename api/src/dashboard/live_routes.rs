//! `GET /v1/live`: the data of the dashboard, sent again after each change.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::select_all;
use futures::{Stream, StreamExt};
use stokehold_queue::TokenRecord;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use utoipa::ToSchema;

use crate::dashboard::live;
use crate::dashboard::subjects::{Latest, Subject};
use crate::error::Problem;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Holder, demand, while_valid};
use crate::tenants::scope::{Scope, has};

/// Interval of comments that keep proxies from closing the stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Longest duration of one stream; a page then opens the next.
const STREAM_MAX: Duration = Duration::from_secs(3600);

/// A server-sent event.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the OpenAPI document: axum writes the events")]
pub(crate) struct LiveEvent {
    /// `queue`, `jobs`, `fleet`, `batches` or `costs`.
    event: String,
    /// JSON: the response of `GET /v1/queue`, `/v1/fleet`, `/v1/batches` or today's `/v1/costs`; for `jobs`,
    /// `{"changed_ms": …}` when a job has changed.
    data: String,
}

/// Topics that a client can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topic {
    Queue,
    Jobs,
    Fleet,
    Batches,
    Costs,
}

impl Topic {
    const ALL: [Self; 5] = [Self::Queue, Self::Jobs, Self::Fleet, Self::Batches, Self::Costs];

    fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Jobs => "jobs",
            Self::Fleet => "fleet",
            Self::Batches => "batches",
            Self::Costs => "costs",
        }
    }

    /// Scope that the topic's own route requires.
    fn scope(self) -> Scope {
        match self {
            Self::Queue | Self::Fleet => Scope::WorkersRead,
            Self::Jobs | Self::Batches | Self::Costs => Scope::JobsRead,
        }
    }

    fn subject(self, token: &TokenRecord) -> Subject {
        let tenant = || token.tenant.clone();
        match self {
            Self::Queue => Subject::Queue,
            Self::Fleet => Subject::Fleet,
            Self::Jobs => Subject::Jobs(tenant()),
            Self::Batches => Subject::Batches(tenant()),
            Self::Costs => Subject::Costs((!has(token, Scope::WorkersRead)).then(tenant)),
        }
    }

    /// Parses topics separated by commas, each once.
    fn parse(text: &str) -> Option<Vec<Self>> {
        let mut topics = Vec::new();
        for word in text.split(',') {
            let topic = Self::ALL.into_iter().find(|topic| topic.as_str() == word)?;
            if !topics.contains(&topic) {
                topics.push(topic);
            }
        }
        Some(topics)
    }
}

/// Follow the data of the dashboard
///
/// Sends each topic first as it is, then again after each change, checked once per second. The stream ends after one
/// hour, or when its token expires.
#[utoipa::path(get, operation_id = "follow_dashboard", path = "/v1/live", tag = "dashboard",
    params(("topics" = Option<String>, Query, description = "A comma-separated list of `queue`, `jobs`, `fleet`, `batches` and `costs`; each requires the scope of its own route. Default: everything that the token may read.")),
    responses(
        (status = 200, description = "Events `queue`, `jobs`, `fleet`, `batches`, `costs`.", content_type = "text/event-stream", body = LiveEvent),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn follow(
    State(app): State<App>,
    Holder(token): Holder,
    mut params: Params,
) -> Result<Response, Problem> {
    let wanted = "a comma-separated list of queue, jobs, fleet, batches and costs";
    let topics = params.take("topics", wanted, Topic::parse)?;
    params.finish()?;
    let topics = match topics {
        Some(topics) => {
            topics.iter().try_for_each(|topic| demand(&token, topic.scope()))?;
            topics
        }
        None => Topic::ALL.into_iter().filter(|topic| has(&token, topic.scope())).collect(),
    };
    let permits = (app.wait_permits.take(&token.tenant)?, app.live.permit(&token.tenant)?);
    let mut followed = Vec::with_capacity(topics.len());
    for topic in topics {
        followed.push(changes(topic, live::follow(&app, topic.subject(&token))?).boxed());
    }
    let events = while_valid(app.clone(), token, events(app, select_all(followed)));
    let events = async_stream::stream! {
        let _seats = permits;
        for await event in events {
            yield event;
        }
    };
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Streams the state of a topic, and then each change.
fn changes(topic: Topic, mut data: watch::Receiver<Latest>) -> impl Stream<Item = (Topic, Arc<str>)> {
    async_stream::stream! {
        loop {
            let latest = data.borrow_and_update().clone();
            if let Some(text) = latest {
                yield (topic, text);
            }
            if data.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Streams the states until the replica shuts down or the stream's longest duration has passed.
fn events(
    app: App,
    mut seen: impl Stream<Item = (Topic, Arc<str>)> + Unpin,
) -> impl Stream<Item = Result<Event, Infallible>> {
    async_stream::stream! {
        let deadline = Instant::now() + STREAM_MAX;
        loop {
            let next = tokio::select! {
                next = seen.next() => next,
                () = sleep_until(deadline) => return,
                () = app.shutdown.cancelled() => return,
            };
            let Some((topic, text)) = next else { return };
            yield Ok(Event::default().event(topic.as_str()).data(&*text));
        }
    }
}
