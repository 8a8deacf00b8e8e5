//! Executes a run of the handler, and stops it when its time is up or its attempt must end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stokehold_protocol::gateway::LeasedJob;
use stokehold_protocol::job::{ErrorCode, JobError};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Attempt, Error, START_TIMEOUT};
use crate::failure::{failed, stderr_of};
use crate::messages::Messages;
use crate::pool::Ready;
use crate::runner::{Begun, RunEnd, RunRequest, Runner};

/// Grace period of a cancelled run before its runner gets SIGTERM, and from then until the runner is killed.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
const TERM_GRACE: Duration = Duration::from_secs(3);

/// One run of the handler.
pub(super) struct Run<'a> {
    pub(super) number: u64,
    pub(super) scratch: &'a Path,
    pub(super) files: BTreeMap<String, String>,
    pub(super) begun: Arc<Begun>,
}

/// Why a run is stopped.
enum Stopped {
    /// Its attempt ends early.
    Attempt(Error),
    /// The run exceeded the job's timeout.
    TimedOut,
}

impl Attempt<'_> {
    /// Runs the handler within the job's timeout.
    pub(super) async fn execute(&mut self, ready: &Ready, job: LeasedJob, run: Run<'_>) -> Result<RunEnd, Error> {
        let (Run { number, scratch, files, begun }, runner) = (run, &ready.runner);
        let messages = Arc::new(Messages::new(Arc::clone(&self.shared.gateway), self.lease.clone()));
        let limit = Duration::from_millis(job.timeout_ms);
        let request = RunRequest {
            job: job.job_id.to_string(),
            attempt: job.attempt,
            scratch: scratch.to_owned(),
            files,
            input: job.input,
            traceparent: job.traceparent,
            messages: Arc::clone(&messages),
            begun: Arc::clone(&begun),
        };
        let awaited = runner.awaits();
        let mut ended = runner.run(number, request).await;
        let stopped = match self.run_end(ready, &begun, limit, &mut ended).await {
            Ok(end) => {
                messages.flush().await;
                self.shared.pool.ended(ready, &end).await;
                return Ok(end);
            }
            Err(stopped) => stopped,
        };
        // The run has not started, so the runner skips it; or other runs share the same batched call, which must not be
        // stopped.
        let is_left_alone = begun.at().is_none() || runner.is_batched && !awaited.is_last();
        if let (Stopped::Attempt(error), true) = (&stopped, is_left_alone) {
            runner.cancel(number).await;
            return Err(error.clone());
        }
        let end = stop(runner, number, &mut ended).await;
        self.shared.pool.ended(ready, &end).await;
        messages.flush().await;
        Err(match stopped {
            Stopped::Attempt(error) => error,
            Stopped::TimedOut => {
                let message = format!("the handler ran longer than timeout_s ({} s)", limit.as_secs_f64());
                Error::Failed(JobError { stderr: stderr_of(&end), ..failed(ErrorCode::Timeout, message) })
            }
        })
    }

    /// Waits for the end of a run, for at most `limit` after it has started, or until it must be stopped.
    async fn run_end(
        &mut self,
        ready: &Ready,
        begun: &Begun,
        limit: Duration,
        ended: &mut oneshot::Receiver<RunEnd>,
    ) -> Result<RunEnd, Stopped> {
        let handed_over = Instant::now();
        let mut until = handed_over + limit.min(START_TIMEOUT);
        loop {
            tokio::select! {
                end = &mut *ended => return Ok(end.unwrap_or_else(|_| gone())),
                () = tokio::time::sleep_until(until.into()) => match begun.at() {
                    None if handed_over.elapsed() < START_TIMEOUT => until = handed_over + START_TIMEOUT,
                    // The run has waited too long in the runner's inbox, so the runs there are not short. A run that
                    // waits for the next batched call may stay as long as it has a slot.
                    None => {
                        if self.slot.is_too_many() || !ready.runner.is_batched {
                            return Err(Stopped::Attempt(Error::Released));
                        }
                        until = Instant::now() + START_TIMEOUT;
                    }
                    Some(at) if at.elapsed() < limit => until = at + limit,
                    Some(_) => return Err(Stopped::TimedOut),
                },
                // Runs that wait in the runner's inbox have not started either.
                () = self.shared.pool.closed(ready), if begun.at().is_none() => {
                    if begun.at().is_none() {
                        return Err(Stopped::Attempt(Error::Released));
                    }
                }
                error = self.signals.stopped() => return Err(Stopped::Attempt(error)),
            }
        }
    }
}

/// Stops a run: cancels it, then terminates its process, then kills it.
async fn stop(runner: &Runner, number: u64, ended: &mut oneshot::Receiver<RunEnd>) -> RunEnd {
    runner.cancel(number).await;
    if let Ok(end) = timeout(CANCEL_GRACE, &mut *ended).await {
        return end.unwrap_or_else(|_| gone());
    }
    runner.terminate().await;
    if let Ok(end) = timeout(TERM_GRACE, &mut *ended).await {
        return end.unwrap_or_else(|_| gone());
    }
    runner.kill().await;
    ended.await.unwrap_or_else(|_| gone())
}

/// The end of a run whose runner exited before it received the run.
fn gone() -> RunEnd {
    RunEnd::Broken { why: "the runner exited before the job started".to_owned(), stderr: String::new() }
}
