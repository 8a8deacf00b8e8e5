//! The runs before the first job: what compiles on first use is compiled, and what the model takes of its GPU is seen. A handler whose calls
//! take several jobs gets as many of each input as a call can have: that is what takes the most.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::value::to_raw_value;
use stokehold_queue::endpoint::EndpointSpec;
use stokehold_queue::job::{ErrorCode, JobError};
use tokio::time::{Instant, timeout_at};

use crate::failure::{failed, infra, start_failure};
use crate::gpus::Gpus;
use crate::messages::Messages;
use crate::runner::{RunEnd, RunRequest, Runner, StartError};

/// Runs each input, the largest first, within `limit` altogether, and looks at the GPUs after each. What they give is thrown away; one
/// that fails fails the load.
pub(super) async fn run(
    runner: &Runner,
    spec: &EndpointSpec,
    home: &Path,
    limit: Duration,
    gpus: &Gpus,
) -> Result<(), JobError> {
    let until = Instant::now() + limit;
    let mut texts = spec
        .warmup
        .iter()
        .map(to_raw_value)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| infra(error.to_string()))?;
    texts.sort_by_key(|text| std::cmp::Reverse(text.get().len()));
    // Above every number that a job's run can have.
    let mut number = u64::MAX;
    for input in texts {
        let mut ends = Vec::new();
        for _ in 0..spec.max_batch_size.max(1) {
            number -= 1;
            let request = RunRequest {
                job: "warm-up".to_owned(),
                attempt: 1,
                scratch: home.join(format!("warm-up-{number}")),
                files: BTreeMap::new(),
                input: input.clone(),
                traceparent: None,
                messages: Arc::new(Messages::unheard()),
                begun: Arc::default(),
            };
            ends.push(runner.run(number, request).await);
        }
        let Ok(ends) = timeout_at(until, join_all(ends)).await else {
            return Err(start_failure(StartError::TooSlow(limit)));
        };
        for end in ends {
            warmed_up(end.unwrap_or(RunEnd::NotBegun))?;
        }
        // Most frameworks hold what a run took; what this one gives back, the next look would miss.
        gpus.look_again().await;
    }
    Ok(())
}

fn warmed_up(end: RunEnd) -> Result<(), JobError> {
    match end {
        RunEnd::Done { .. } => Ok(()),
        RunEnd::Failed { failure: raised, stderr, .. } => {
            let message = format!("a warm-up input failed: {}", raised.message);
            let some = |text: String| Some(text).filter(|text| !text.is_empty());
            let (traceback, stderr) = (some(raised.traceback), some(stderr));
            Err(JobError { class: raised.class, traceback, stderr, ..failed(ErrorCode::SetupFailed, message) })
        }
        end => Err(start_failure(StartError::Ended(end))),
    }
}
