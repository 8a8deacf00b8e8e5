//! Warm-up runs before the first job: code that is compiled on first use is compiled, and the peak GPU memory is
//! measured. A batched handler gets as many copies of each input as a call can have, which needs the most memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::value::to_raw_value;
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::job::{ErrorCode, JobError};
use tokio::time::{Instant, timeout_at};

use crate::failure::{failed, infra, start_failure};
use crate::gpus::Gpus;
use crate::messages::Messages;
use crate::runner::{RunEnd, RunRequest, Runner, StartError};

/// Runs each input, largest first, within `limit` in total, and reads the GPUs after each. Results are discarded; a
/// failure fails the load.
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
    // Larger than the number of any job's run.
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
                messages: Arc::new(Messages::discarded()),
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
        // Read the GPUs now: most frameworks keep the memory of a run, but memory that is freed would be missed later.
        gpus.read_now().await;
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
