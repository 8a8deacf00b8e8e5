//! Waiting for a job, with a progress bar.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use serde_json::Value;
use stokehold_client::models::{Job, JobState};
use tokio::time::Instant;

use crate::client::{Client, decode, segment};
use crate::failure::Failure;
use crate::{output, progress, waiting};

/// Long-poll duration of one request: short for a progress bar, long otherwise.
const HOLD_WATCHED: Duration = Duration::from_secs(1);
const HOLD_UNWATCHED: Duration = Duration::from_secs(30);

/// Waits until the job has ended in any state, at most `limit`, and returns it.
pub(crate) async fn until_ended(client: &Client, id: &str, limit: Option<Duration>) -> Result<Value> {
    let bar = progress::job();
    let hold = if std::io::stderr().is_terminal() { HOLD_WATCHED } else { HOLD_UNWATCHED };
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        let left = deadline.map_or(hold, |deadline| deadline.saturating_duration_since(Instant::now()).min(hold));
        // Rounded up: the API takes whole seconds, and 0 does not wait.
        let wait_s = left.as_millis().div_ceil(1_000);
        let job = client.hold(&format!("/v1/jobs/{}?wait_s={wait_s}", segment(id)), left).await?;
        let seen: Job = decode(&job)?;
        if seen.state.has_ended() {
            bar.finish_and_clear();
            return Ok(job);
        }
        show(&bar, &seen);
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            bar.finish_and_clear();
            let why = waiting::text(&seen).map_or(String::new(), |why| format!(" ({why})"));
            let text = format!("timed out waiting: job {id} is still {}{why}", seen.state);
            let hint = format!("Wait again with `stoke get {id} --wait`.");
            return Err(Failure::timed_out(text).hint(hint).into());
        }
    }
}

/// Shows the phase of a job that waits with its reason, and the progress of one that runs.
fn show(bar: &ProgressBar, job: &Job) {
    bar.set_prefix(format!("{} {}", job.endpoint_version(), waiting::phase(job)));
    if job.state != JobState::Running {
        bar.set_style(progress::waiting());
        bar.set_message(waiting::text(job).unwrap_or_default());
        return;
    }
    bar.set_style(progress::running());
    bar.set_message("");
    if let Some(progress) = &job.progress {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000")]
        bar.set_position((progress.fraction.clamp(0.0, 1.0) * 1_000.0) as u64);
        bar.set_message(output::plain(&progress.message).into_owned());
    }
}
