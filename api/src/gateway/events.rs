use axum::extract::State;
use axum::http::StatusCode;
use stokehold_queue::Queue;
use stokehold_queue::gateway::{EventsRequest, JobMessage};

use super::BODY_MAX;
use crate::auth::JoinedWorker;
use crate::error::Problem;
use crate::json::Json;
use crate::state::App;

const EVENTS_MAX: usize = 500;
const TEXT_MAX: usize = 64 << 10;

/// `events`: what running jobs say meanwhile. Not repeated when the outcome is unknown: a line twice is worse than a line less.
pub(super) async fn events(
    State(app): State<App>,
    _: JoinedWorker,
    Json(request): Json<EventsRequest, BODY_MAX>,
) -> Result<StatusCode, Problem> {
    if request.events.len() > EVENTS_MAX {
        return Err(Problem::field("/events", format!("must be at most {EVENTS_MAX}")));
    }
    for (n, report) in request.events.iter().enumerate() {
        let length = match &report.event {
            JobMessage::Progress { message, .. } => message.len(),
            JobMessage::Log { text, .. } => text.len(),
            JobMessage::Output { value, .. } => value.get().len(),
        };
        if length > TEXT_MAX {
            return Err(Problem::field(format!("/events/{n}"), format!("must be at most {TEXT_MAX} bytes")));
        }
        if matches!(&report.event, JobMessage::Progress { fraction, .. } if !(0.0..=1.0).contains(fraction)) {
            return Err(Problem::field(format!("/events/{n}/fraction"), "must be 0 to 1"));
        }
    }
    app.ask("keep events", app.queue.append_events(&request.events)).await?;
    Ok(StatusCode::NO_CONTENT)
}
