//! The runs before the first job: what compiles on first use is compiled, and what the model takes of its card is seen.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::to_raw_value;
use stokehold_queue::job::{ErrorCode, JobError};
use tokio::time::{Instant, timeout_at};

use super::{failure, infra, start_failure};
use crate::cards::Cards;
use crate::messages::Messages;
use crate::runner::{RunEnd, RunRequest, Runner, StartError};

/// Runs each input, the largest first, within `limit` altogether, and looks at the cards after each. What they give is thrown away; one
/// that fails fails the load.
pub(super) async fn run(
    runner: &Runner,
    inputs: &[Value],
    home: &Path,
    limit: Duration,
    cards: &Cards,
) -> Result<(), JobError> {
    let until = Instant::now() + limit;
    let mut texts =
        inputs.iter().map(to_raw_value).collect::<Result<Vec<_>, _>>().map_err(|error| infra(error.to_string()))?;
    texts.sort_by_key(|text| std::cmp::Reverse(text.get().len()));
    for (n, input) in texts.into_iter().enumerate() {
        let request = RunRequest {
            job: "warm-up".to_owned(),
            attempt: 1,
            scratch: home.join(format!("warm-up-{n}")),
            files: BTreeMap::new(),
            input,
            messages: Arc::new(Messages::unheard()),
            begun: Arc::default(),
        };
        // Above every number that a job's run can have.
        let ended = runner.run(u64::MAX - n as u64, request).await;
        let end = match timeout_at(until, ended).await {
            Ok(end) => end.unwrap_or(RunEnd::NotBegun),
            Err(_) => return Err(start_failure(StartError::TooSlow(limit))),
        };
        match end {
            // Most frameworks hold what a run took; what this one gives back, the next look would miss.
            RunEnd::Done { .. } => {
                cards.look_again().await;
            }
            RunEnd::Failed { failure: raised, stderr, .. } => {
                let message = format!("a warm-up input: {}", raised.message);
                let some = |text: String| Some(text).filter(|text| !text.is_empty());
                let (traceback, stderr) = (some(raised.traceback), some(stderr));
                return Err(JobError {
                    class: raised.class,
                    traceback,
                    stderr,
                    ..failure(ErrorCode::SetupFailed, message)
                });
            }
            end => return Err(start_failure(StartError::Ended(end))),
        }
    }
    Ok(())
}
