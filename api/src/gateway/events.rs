use axum::extract::State;
use axum::http::StatusCode;
use stokehold_queue::Queue;
use stokehold_queue::gateway::{EventsRequest, JobMessage, LogStream};

use crate::auth::JoinedWorker;
use crate::error::Problem;
use crate::json::Json;
use crate::state::App;

const EVENTS_MAX: usize = 500;

/// Longest text of one event, and largest output that is kept as one.
const TEXT_MAX: usize = 64 << 10;
const PROGRESS_MAX: usize = 2 << 10;

/// All of them at their longest.
const BODY_MAX: usize = EVENTS_MAX * TEXT_MAX;

/// `events`: what running jobs say meanwhile. Not repeated when the outcome is unknown: a line twice is worse than a line less.
pub(super) async fn events(
    State(app): State<App>,
    _: JoinedWorker,
    Json(mut request): Json<EventsRequest, BODY_MAX>,
) -> Result<StatusCode, Problem> {
    if request.events.len() > EVENTS_MAX {
        return Err(Problem::field("/events", format!("must be at most {EVENTS_MAX}")));
    }
    for (n, report) in request.events.iter_mut().enumerate() {
        fit(&mut report.event).map_err(|message| Problem::field(format!("/events/{n}"), message))?;
    }
    app.ask("keep events", app.queue.append_events(&request.events)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes an event fit to be kept. What a handler said may be odd and must not cost the events beside it; a text over the bound is
/// the worker's mistake.
fn fit(event: &mut JobMessage) -> Result<(), String> {
    match event {
        JobMessage::Progress { fraction, message } => {
            *fraction = fraction.clamp(0.0, 1.0);
            message.truncate(message.floor_char_boundary(PROGRESS_MAX));
        }
        JobMessage::Log { text, .. } if text.len() > TEXT_MAX => {
            return Err(format!("must be at most {TEXT_MAX} bytes of text"));
        }
        JobMessage::Log { .. } => {}
        JobMessage::Output { index, value } => {
            if value.get().len() > TEXT_MAX {
                let text = format!("output {index} is over {TEXT_MAX} bytes and is shown in the result only\n");
                *event = JobMessage::Log { stream: LogStream::Stderr, text };
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_events_are_made_to_fit() {
        let mut progress = JobMessage::Progress { fraction: 7.0, message: "ü".repeat(PROGRESS_MAX) };
        fit(&mut progress).unwrap();
        assert!(matches!(progress, JobMessage::Progress { fraction: 1.0, message } if message.len() == PROGRESS_MAX));
        let large = serde_json::value::to_raw_value(&"x".repeat(TEXT_MAX)).unwrap();
        let mut output = JobMessage::Output { index: 3, value: large };
        fit(&mut output).unwrap();
        assert!(matches!(output, JobMessage::Log { text, .. } if text.contains("output 3")));
    }
}
