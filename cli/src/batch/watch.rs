//! Waiting for a batch, with a progress bar.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use serde_json::Value;
use stokehold_client::models::Batch;
use stokehold_queue::now_ms;
use tokio::time::Instant;

use super::model;
use crate::client::{Client, decode, may_pass, segment};
use crate::{output, progress};

/// Long-poll duration of one request: short for a progress bar, longer for plain lines.
const HOLD_BAR: Duration = Duration::from_secs(1);
const HOLD_LINES: Duration = Duration::from_secs(10);

/// Minimum pause between two requests, even if the API responds immediately.
const PAUSE_MIN: Duration = Duration::from_millis(300);

/// Time for which requests may fail before watching stops. A batch takes hours, in which the API may restart.
const GONE_MAX: Duration = Duration::from_secs(300);
const GONE_PAUSE: Duration = Duration::from_secs(2);

/// Waits until the batch has ended in any state, and returns it.
pub(crate) async fn until_ended(client: &Client, id: &str) -> Result<Value> {
    let view = View::new(std::io::stderr().is_terminal());
    let mut gone_since = None::<Instant>;
    loop {
        let asked = Instant::now();
        let path = format!("/v1/batches/{}?wait_s={}", segment(id), view.hold().as_secs());
        let batch = match client.hold(&path, view.hold()).await {
            Ok(batch) => batch,
            Err(error) if !may_pass(&error) => return Err(error),
            Err(error) => {
                if gone_since.get_or_insert(asked).elapsed() > GONE_MAX {
                    return Err(error.context(format!(
                        "stopped watching; the batch is still running: watch it again with `stoke batch watch {id}`"
                    )));
                }
                view.trouble(&error);
                tokio::time::sleep(GONE_PAUSE).await;
                continue;
            }
        };
        gone_since = None;
        let seen: Batch = decode(&batch)?;
        view.show(&seen);
        if seen.state.has_ended() {
            view.finish();
            return Ok(batch);
        }
        tokio::time::sleep_until(asked + PAUSE_MIN).await;
    }
}

/// Ways to show progress.
enum View {
    Bar(ProgressBar),
    Lines(std::cell::RefCell<String>),
}

impl View {
    fn new(terminal: bool) -> Self {
        if terminal { Self::Bar(progress::batch()) } else { Self::Lines(std::cell::RefCell::default()) }
    }

    fn hold(&self) -> Duration {
        match self {
            Self::Bar(_) => HOLD_BAR,
            Self::Lines(_) => HOLD_LINES,
        }
    }

    fn show(&self, batch: &Batch) {
        match self {
            Self::Bar(bar) => draw(bar, batch, now_ms()),
            Self::Lines(_) => self.print(&model::progress(batch, now_ms())),
        }
    }

    fn trouble(&self, error: &anyhow::Error) {
        let said = format!("retrying: {error}");
        match self {
            Self::Bar(bar) => bar.set_message(said),
            Self::Lines(_) => self.print(&said),
        }
    }

    /// Prints a line unless it equals the last one.
    fn print(&self, said: &str) {
        if let Self::Lines(last) = self
            && *last.borrow() != said
        {
            output::note(said);
            said.clone_into(&mut last.borrow_mut());
        }
    }

    fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn draw(bar: &ProgressBar, batch: &Batch, now_ms: u64) {
    // The length grows while lines are being validated.
    bar.set_length(batch.counts.accepted);
    bar.set_position(batch.counts.done());
    bar.set_prefix(batch.state.to_string());
    let pace = model::pace(batch, now_ms).map_or(String::new(), |pace| format!("; {pace}"));
    bar.set_message(format!("{}{pace}", model::counts(batch.counts)));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::json;

    use super::*;
    use crate::stub;

    #[tokio::test]
    async fn it_watches_until_the_batch_has_ended() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = || async move {
            let (state, open) = match count.fetch_add(1, Relaxed) {
                0 => ("validating", 3),
                1 => ("running", 1),
                _ => ("completed", 0),
            };
            Json(
                json!({"id": "batch_1", "state": state, "counts": {"total": 3, "accepted": 3, "open": open, "succeeded": 3 - open}}),
            )
        };
        let client = stub::serve(Router::new().route("/v1/batches/batch_1", get(answer))).await;
        let ended = until_ended(&client, "batch_1").await.unwrap();
        assert_eq!((ended["state"].as_str(), asked.load(Relaxed)), (Some("completed"), 3));
    }

    #[tokio::test]
    async fn a_batch_that_is_not_there_is_an_error_at_once() {
        let problem = json!({"status": 404, "code": "not_found", "detail": "there is no batch batch_1"});
        let answer = || async move { (StatusCode::NOT_FOUND, Json(problem)).into_response() };
        let client = stub::serve(Router::new().route("/v1/batches/batch_1", get(answer))).await;
        assert_eq!(until_ended(&client, "batch_1").await.unwrap_err().to_string(), "there is no batch batch_1");
    }

    #[test]
    fn the_bar_counts_lines() {
        let bar = ProgressBar::hidden();
        let counts = json!({"total": 10, "accepted": 10, "succeeded": 3, "failed": 1, "open": 6});
        draw(&bar, &decode(&json!({"id": "b", "state": "running", "counts": counts})).unwrap(), 0);
        assert_eq!((bar.position(), bar.length(), bar.prefix()), (4, Some(10), "running".to_owned()));
        assert_eq!(bar.message(), "3 succeeded, 1 failed, 6 open");
    }
}
