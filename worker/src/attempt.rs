//! Runs one attempt, from its lease to its report.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stokehold_queue::failpoint;
use stokehold_queue::gateway::{FinishOutcome, FinishReport, LeaseRef, LeasedJob};
use stokehold_queue::job::{ErrorCode, JobError, Timing};
use stokehold_vram::Claim;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::disk;
use crate::failure::{died, failed, raised, stderr_of};
use crate::gateway::Gateway;
use crate::inputs;
use crate::load::{LeaseSlot, Load};
use crate::messages::Messages;
use crate::output::{self, StoreError};
use crate::pool::{ModelGuard, NotReady, Pool, Ready};
use crate::runner::{Begun, RunEnd, RunRequest, Runner};
use crate::scratch::RunFolder;
use crate::transfer::Transfer;
use crate::turns::Turn;

/// Grace period of a cancelled run before its runner gets SIGTERM, and from then until the runner is killed.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
const TERM_GRACE: Duration = Duration::from_secs(3);

/// How long a job that was leased ahead waits for a free slot, or in its runner's inbox, before the lease is released.
const START_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of results that are stored concurrently. Each is at most 64 MiB plus its files.
pub(crate) const STORES_MAX: usize = 16;

/// The outcome of an attempt for its lease.
pub(crate) enum End {
    /// The attempt has ended and is reported.
    Report(Box<FinishReport>),
    /// The lease is released, and the job returns to the queue unchanged.
    Release(LeaseRef),
    /// The lease was lost; nothing is reported.
    Lost,
}

impl End {
    /// The end of an attempt that panicked. Without it, the lease would be extended for as long as this worker lives.
    pub(crate) fn panicked(lease: &LeaseRef, panic: &str) -> Self {
        let error = JobError::new(ErrorCode::Infra, format!("the worker panicked: {panic}"));
        let outcome = FinishOutcome::Failed { error };
        Self::Report(Box::new(FinishReport::new(lease.clone(), Timing::default(), outcome)))
    }
}

/// State that all attempts share.
pub(crate) struct Attempts {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) transfer: Transfer,
    pub(crate) pool: Arc<Pool>,
    /// Permits to store a result while the next job runs.
    pub(crate) stores: Semaphore,
    pub(crate) load: Arc<Load>,
    /// Number of the next run, unique within this worker.
    pub(crate) next_run: std::sync::atomic::AtomicU64,
    /// Cancelled when the worker drains: attempts that have not started are released at once.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the drain grace is over: running attempts are released too.
    pub(crate) leaving: CancellationToken,
}

/// One run of the handler.
struct Run<'a> {
    number: u64,
    scratch: &'a Path,
    files: BTreeMap<String, String>,
    begun: Arc<Begun>,
}

/// Timings and GPUs of an attempt, collected however it ends.
#[derive(Default)]
struct AttemptTimings {
    timing: Timing,
    /// Indices of the GPUs that it ran on.
    gpus: Vec<u32>,
}

/// Why an attempt stops early.
#[derive(Clone)]
enum Stop {
    Lost,
    Release,
    Fail(JobError),
    /// The model needs this many MiB of GPU memory, more than any GPU of this worker has.
    Outgrown(JobError, u64),
}

impl From<NotReady> for Stop {
    fn from(not_ready: NotReady) -> Self {
        match not_ready {
            NotReady::Job(error) => Self::Fail(error),
            NotReady::NoRoom | NotReady::Closed => Self::Release,
            NotReady::Outgrown(error, need_mib) => Self::Outgrown(error, need_mib),
        }
    }
}

impl Attempts {
    /// Runs one leased job to its end. `lost` is cancelled when the lease is lost. `claim` holds GPUs that were
    /// reserved for the job.
    pub(crate) async fn run(
        &self,
        job: LeasedJob,
        mut slot: LeaseSlot,
        lost: CancellationToken,
        claim: Option<Claim>,
    ) -> End {
        let lease = LeaseRef { job_id: job.job_id, fence: job.fence.clone() };
        let (mut attempt, mut vram_need_mib) = (AttemptTimings::default(), None);
        let outcome = match self.outcome(job, &lease, &mut slot, &lost, claim, &mut attempt).await {
            Ok(outcome) => outcome,
            Err(Stop::Lost) => return End::Lost,
            Err(Stop::Release) => return End::Release(lease),
            Err(Stop::Outgrown(error, need_mib)) => {
                tracing::info!(job.id = %lease.job_id, need_mib, "the model needs more memory than any GPU of this worker has");
                vram_need_mib = Some(need_mib);
                FinishOutcome::Failed { error }
            }
            Err(Stop::Fail(error)) => {
                let error = disk::blamed(self.pool.blamed(error, &attempt.gpus));
                tracing::info!(job.id = %lease.job_id, code = ?error.code, handler.class = ?error.class, "attempt failed");
                FinishOutcome::Failed { error }
            }
        };
        End::Report(Box::new(FinishReport { vram_need_mib, ..FinishReport::new(lease, attempt.timing, outcome) }))
    }

    async fn outcome(
        &self,
        mut job: LeasedJob,
        lease: &LeaseRef,
        slot: &mut LeaseSlot,
        lost: &CancellationToken,
        claim: Option<Claim>,
        attempt: &mut AttemptTimings,
    ) -> Result<FinishOutcome, Stop> {
        let number = self.next_run.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let leased = Instant::now();
        let prepare = async {
            let (model, turn, ready) = self.place(&job, lease, claim, slot).await?;
            let fetching = Instant::now();
            let mut urls = job.files.clone();
            let input = match &job.input_file {
                Some(id) => {
                    let url = urls.remove(id);
                    Some(inputs::fetch_input(&self.transfer, url.as_deref()).await.map_err(Stop::Fail)?)
                }
                None => None,
            };
            let (files, folder) = inputs::fetch(&self.transfer, &urls, model.endpoint.folder()).await.map_err(Stop::Fail)?;
            attempt.timing.inputs_ms = millis(fetching.elapsed());
            Ok::<_, Stop>((model, turn, ready, (input, files), folder))
        };
        let (model, turn, mut ready, (input, files), _inputs) = tokio::select! {
            prepared = prepare => prepared?,
            () = lost.cancelled() => return Err(Stop::Lost),
            () = self.leaving.cancelled() => return Err(Stop::Release),
        };
        if let Some(input) = input {
            job.input = input;
        }
        let scratch = RunFolder::new(&model.endpoint.folder().work(), number);
        attempt.gpus.clone_from(&ready.gpus);
        attempt.timing.env_ms = millis(ready.timings.environment);
        attempt.timing.weights_ms = millis(ready.timings.weights);
        attempt.timing.boot_ms = millis(ready.timings.boot);
        attempt.timing.load_ms = millis(ready.timings.load);
        attempt.timing.warmup_ms = millis(ready.timings.warmup);

        let started = Instant::now();
        let run = Run { number, scratch: scratch.path(), files, begun: Arc::default() };
        let mut begun = Arc::clone(&run.begun);
        // Only a run on a GPU may be repeated, after it ran out of GPU memory.
        let again = (!ready.gpus.is_empty()).then(|| (job.clone(), run.files.clone()));
        let mut end = self.execute(&ready, job, run, lease, lost, slot).await?;
        if let (RunEnd::Failed { failure, stderr, .. }, Some((job, files))) = (&end, again)
            && failure.code == "oom_gpu"
        {
            let error = raised(failure.clone(), stderr.clone());
            ready = tokio::select! {
                again = self.pool.after_oom(&model, lease, &ready, error) => again?,
                () = lost.cancelled() => return Err(Stop::Lost),
                () = self.leaving.cancelled() => return Err(Stop::Release),
            };
            attempt.gpus.clone_from(&ready.gpus);
            let number = self.next_run.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let run = Run { number, scratch: scratch.path(), files, begun: Arc::default() };
            begun = Arc::clone(&run.begun);
            end = self.execute(&ready, job, run, lease, lost, slot).await?;
            if let RunEnd::Failed { failure, stderr, .. } = &end
                && failure.code == "oom_gpu"
            {
                let error = raised(failure.clone(), stderr.clone());
                return Err(self.pool.outgrown(&model, error).into());
            }
        }
        failpoint::reach("run.ended").await;
        let began = begun.at().unwrap_or(started);
        let readied_ms = attempt.timing.loading_ms().saturating_add(attempt.timing.inputs_ms);
        attempt.timing.turn_ms = millis(began.duration_since(leased)).saturating_sub(readied_ms);
        let took = began.elapsed();
        attempt.timing.batch_size = begun.batch_size();
        attempt.timing.sharers_milli = begun.sharers_milli();
        let part = took.div_f64(attempt.timing.sharers());
        self.load.ran(part);
        model.turns.ran(part);
        model.ran(took, matches!(end, RunEnd::Done { .. }));
        // The next run may use the runner while this result is stored. The number of stored results is limited, so that
        // results that wait for an unreachable store cannot fill the disk.
        let _storing = if output::is_stored(&end) {
            let storing = tokio::select! {
                biased;
                () = lost.cancelled() => return Err(Stop::Lost),
                // Before the permit: attempts that are released give up theirs.
                () = self.leaving.cancelled() => return Err(Stop::Release),
                storing = self.stores.acquire() => storing,
            };
            slot.needs_no_slot();
            Some(storing)
        } else {
            None
        };
        if matches!(end, RunEnd::Done { .. }) {
            self.pool.ran_well(&model, &ready);
        }
        drop((turn, ready, model));

        match end {
            RunEnd::Done { result, files, run_ms } => {
                attempt.timing.run_ms = run_ms;
                let started = Instant::now();
                let store = output::store(&self.gateway, &self.transfer, lease, scratch.path(), result, files);
                let stored = tokio::select! {
                    biased;
                    stored = store => stored,
                    () = lost.cancelled() => return Err(Stop::Lost),
                    () = self.leaving.cancelled() => return Err(Stop::Release),
                };
                attempt.timing.upload_ms = millis(started.elapsed());
                stored.map_err(|error| match error {
                    StoreError::Job(error) => Stop::Fail(error),
                    StoreError::Stale => Stop::Lost,
                })
            }
            RunEnd::Failed { failure, run_ms, stderr } => {
                attempt.timing.run_ms = run_ms;
                Err(Stop::Fail(raised(failure, stderr)))
            }
            RunEnd::NotBegun | RunEnd::Stopped => Err(Stop::Release),
            end => {
                attempt.timing.run_ms = millis(took);
                Err(Stop::Fail(died(end)))
            }
        }
    }

    /// Waits for a loaded model and the turn to run on it.
    async fn place(
        &self,
        job: &LeasedJob,
        lease: &LeaseRef,
        mut claim: Option<Claim>,
        slot: &mut LeaseSlot,
    ) -> Result<(ModelGuard, Turn, Ready), Stop> {
        let (which, mut behind) = (job.model(), Some(job.behind));
        loop {
            let model = self.pool.model(&which, behind.take()).await.map_err(Stop::Fail)?;
            slot.shares(model.endpoint.jobs_at_once(), model.endpoint.max_batch_size() > 1);
            self.pool.grow(&model, lease);
            let Some(turn) = self.turn(&model, lease, slot).await? else { continue };
            let (model, ready) = if model.is_ready() {
                let ready = self.pool.ready(&model, Some(lease), claim.take()).await;
                (model, ready)
            } else {
                let here = model.here();
                let mut loading = self.pool.ready_apart(model, lease, claim.take());
                tokio::select! {
                    biased;
                    ready = loading.done() => ready?,
                    () = here.better_elsewhere() => {
                        loading.leave();
                        continue;
                    }
                }
            };
            match ready {
                // The job can wait for one of the endpoint's other models.
                Err(NotReady::NoRoom) if model.has_siblings() => model.endpoint.cannot_grow(),
                Err(not_ready) => return Err(not_ready.into()),
                Ok(ready) => {
                    // The load time is known now.
                    self.pool.grow(&model, lease);
                    return Ok((model, turn, ready));
                }
            }
        }
    }

    /// Waits for the model's turn and a free slot. `None` if another model of the endpoint can start the job.
    async fn turn(&self, model: &ModelGuard, lease: &LeaseRef, slot: &mut LeaseSlot) -> Result<Option<Turn>, Stop> {
        let (turn, elsewhere) = (model.turns.take(), model.better_elsewhere());
        tokio::pin!(turn, elsewhere);
        loop {
            tokio::select! {
                biased;
                () = self.draining.cancelled() => return Err(Stop::Release),
                turn = &mut turn => return turn.map(Some).ok_or(Stop::Release),
                () = &mut elsewhere => return Ok(None),
                () = tokio::time::sleep(START_TIMEOUT) => {
                    if slot.is_too_many() || !model.may_begin() {
                        return Err(Stop::Release);
                    }
                    // A notification may have woken a job that did not move.
                    if model.is_better_elsewhere() {
                        return Ok(None);
                    }
                    self.pool.grow(model, lease);
                }
            }
        }
    }

    /// Runs the handler within the job's timeout.
    async fn execute(
        &self,
        ready: &Ready,
        job: LeasedJob,
        run: Run<'_>,
        lease: &LeaseRef,
        lost: &CancellationToken,
        slot: &mut LeaseSlot,
    ) -> Result<RunEnd, Stop> {
        let (Run { number, scratch, files, begun }, runner) = (run, &ready.runner);
        let messages = Arc::new(Messages::new(Arc::clone(&self.gateway), lease.clone()));
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
        let handed_over = Instant::now();
        let mut until = handed_over + limit.min(START_TIMEOUT);
        let stopped = loop {
            tokio::select! {
                end = &mut ended => {
                    messages.flush().await;
                    let end = end.unwrap_or_else(|_| gone());
                    self.pool.ended(ready, &end).await;
                    return Ok(end);
                }
                () = tokio::time::sleep_until(until.into()) => match begun.at() {
                    None if handed_over.elapsed() < START_TIMEOUT => until = handed_over + START_TIMEOUT,
                    // The run has waited too long in the runner's inbox, so the runs there are not short. A run that
                    // waits for the next batched call may stay as long as it has a slot.
                    None => {
                        if slot.is_too_many() || !runner.is_batched {
                            break Some(Stop::Release);
                        }
                        until = Instant::now() + START_TIMEOUT;
                    }
                    Some(at) if at.elapsed() < limit => until = at + limit,
                    Some(_) => break None,
                },
                // Runs that wait in the runner's inbox have not started either.
                () = self.pool.closed(ready), if begun.at().is_none() => {
                    if begun.at().is_none() {
                        break Some(Stop::Release);
                    }
                }
                () = lost.cancelled() => break Some(Stop::Lost),
                () = self.leaving.cancelled() => break Some(Stop::Release),
            }
        };
        // The run has not started, so the runner skips it; or other runs share the same batched call, which must not be
        // stopped.
        let is_left_alone = begun.at().is_none() || runner.is_batched && !awaited.is_last();
        if let (Some(stop), true) = (&stopped, is_left_alone) {
            runner.cancel(number).await;
            return Err(stop.clone());
        }
        let end = stop(runner, number, &mut ended).await;
        self.pool.ended(ready, &end).await;
        messages.flush().await;
        match stopped {
            Some(stop) => Err(stop),
            None => {
                let message = format!("the handler ran longer than timeout_s ({} s)", limit.as_secs_f64());
                Err(Stop::Fail(JobError { stderr: stderr_of(&end), ..failed(ErrorCode::Timeout, message) }))
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
