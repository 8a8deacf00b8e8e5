//! Runs one attempt, from its lease to its report.
//!
//! The guards of an attempt, in the order in which it acquires them:
//!
//! ```text
//! Claim              GPUs that were reserved for it        until its model is ready
//! LeaseSlot          its slot, or part of one              until it ends, or its result is being stored
//! ModelGuard         prevents the model's eviction         until the run has ended
//! Turn               the right to send one run             until the run has ended
//! Ready              claims of its GPUs wait for it        until the run has ended
//! Inputs, RunFolder  files of the run                      until the result is stored
//! Awaited            the run counts as waited for          while the runner has the run
//! SemaphorePermit    limits the results being stored       until the result is stored
//! ```

mod execute;
mod place;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use stokehold_failpoint as failpoint;
use stokehold_protocol::gateway::{FinishOutcome, FinishReport, LeaseRef, LeasedJob};
use stokehold_protocol::job::{ErrorCode, JobError, Timing, TokenUsage};
use stokehold_vram::Claim;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use self::execute::Run;
use crate::disk;
use crate::failure::{died, raised};
use crate::gateway::Gateway;
use crate::inputs;
use crate::leases::AttemptLease;
use crate::load::{LeaseSlot, Load};
use crate::output::{self, StoreError};
use crate::pool::{ModelGuard, NotReady, Pool, Ready};
use crate::runner::{Begun, RunEnd};
use crate::scratch::RunFolder;
use crate::transfer::Transfer;
use crate::turns::Turn;

/// Maximum time that a job that was leased ahead waits for a free slot, or in its runner's inbox, before its release.
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
    pub(crate) next_run: AtomicU64,
    /// Cancelled when the worker drains: attempts that have not started are released at once.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the drain grace is over: running attempts are released too.
    pub(crate) leaving: CancellationToken,
}

/// Why an attempt ends without a result.
#[derive(Clone)]
enum Error {
    LeaseLost,
    /// The lease is released.
    Released,
    Failed(JobError),
    /// The model needs this many MiB of GPU memory, more than any GPU of this worker has.
    Outgrown(JobError, u64),
}

impl From<NotReady> for Error {
    fn from(not_ready: NotReady) -> Self {
        match not_ready {
            NotReady::Job(error) => Self::Failed(error),
            NotReady::NoRoom | NotReady::Closed => Self::Released,
            NotReady::Outgrown(error, need_mib) => Self::Outgrown(error, need_mib),
        }
    }
}

/// Signals that can stop an attempt at any time.
#[derive(Clone, Copy)]
struct Signals<'a> {
    /// Cancelled when the lease is lost.
    lost: &'a CancellationToken,
    /// Cancelled when the drain grace is over.
    leaving: &'a CancellationToken,
}

impl Signals<'_> {
    /// Completes when the attempt must stop.
    async fn stopped(self) -> Error {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => Error::LeaseLost,
            () = self.leaving.cancelled() => Error::Released,
        }
    }
}

/// One attempt, with what is reported of it however it ends.
struct Attempt<'a> {
    shared: &'a Attempts,
    lease: &'a LeaseRef,
    slot: &'a mut LeaseSlot,
    signals: Signals<'a>,
    leased: Instant,
    timing: Timing,
    /// The tokens that the run used, if its result has them.
    usage: Option<TokenUsage>,
    /// Indices of the GPUs that it ran on.
    gpus: Vec<u32>,
}

/// The inputs of a run. The folder of files is removed on drop.
struct Inputs {
    /// The input, if it was stored as a file.
    large: Option<Box<RawValue>>,
    /// Path of each file id.
    files: BTreeMap<String, String>,
    _folder: Option<RunFolder>,
}

impl Attempts {
    /// Runs one leased job to its end. `claim` holds GPUs that were reserved for the job.
    pub(crate) async fn run(
        &self,
        job: LeasedJob,
        mut slot: LeaseSlot,
        held: &AttemptLease,
        claim: Option<Claim>,
    ) -> End {
        let lease = LeaseRef { job_id: job.job_id, fence: job.fence.clone() };
        let mut attempt = Attempt {
            shared: self,
            lease: &lease,
            slot: &mut slot,
            signals: Signals { lost: &held.lost, leaving: &self.leaving },
            leased: Instant::now(),
            timing: Timing::default(),
            usage: None,
            gpus: Vec::new(),
        };
        let outcome = attempt.outcome(job, held, claim).await;
        let Attempt { timing, usage, gpus, .. } = attempt;
        let mut vram_need_mib = None;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(Error::LeaseLost) => return End::Lost,
            Err(Error::Released) => return End::Release(lease),
            Err(Error::Outgrown(error, need_mib)) => {
                tracing::info!(job.id = %lease.job_id, need_mib, "the model needs more memory than any GPU of this worker has");
                vram_need_mib = Some(need_mib);
                FinishOutcome::Failed { error }
            }
            Err(Error::Failed(error)) => {
                let error = disk::attribute_to_disk(self.pool.attribute_to_gpu(error, &gpus));
                tracing::info!(job.id = %lease.job_id, code = ?error.code, handler.class = ?error.class, "attempt failed");
                FinishOutcome::Failed { error }
            }
        };
        End::Report(Box::new(FinishReport { usage, vram_need_mib, ..FinishReport::new(lease, timing, outcome) }))
    }

    fn next_number(&self) -> u64 {
        self.next_run.fetch_add(1, Ordering::Relaxed)
    }
}

impl<'a> Attempt<'a> {
    async fn outcome(
        &mut self,
        mut job: LeasedJob,
        held: &AttemptLease,
        claim: Option<Claim>,
    ) -> Result<FinishOutcome, Error> {
        let (number, signals) = (self.shared.next_number(), self.signals);
        let (model, turn, mut ready, mut inputs) = tokio::select! {
            prepared = self.prepare(&job, claim) => prepared?,
            error = signals.stopped() => return Err(error),
        };
        if let Some(input) = inputs.large.take() {
            job.input = input;
        }
        let scratch = RunFolder::new(&model.endpoint.folder().work(), number);
        self.record_load(&ready);
        if held.is_overdue() {
            tracing::warn!(job.id = %self.lease.job_id, "lease lost before the run started");
            return Err(Error::LeaseLost);
        }

        let started = Instant::now();
        let files = std::mem::take(&mut inputs.files);
        let run = Run { number, scratch: scratch.path(), files, begun: Arc::default() };
        let (end, begun) = self.run_handler(job, run, &model, &mut ready).await?;
        failpoint::reach("run.ended").await;
        let took = self.record_run(&end, &begun, started, &model);
        // The next run may use the runner while this result is stored.
        let _storing = self.permit_to_store(&end).await?;
        if matches!(end, RunEnd::Done { .. }) {
            self.shared.pool.ran_well(&model, &ready);
        }
        drop((turn, ready, model));
        self.finish(end, took, scratch.path()).await
    }

    /// Waits for a loaded model and the turn to run on it, then fetches the inputs.
    async fn prepare(
        &mut self,
        job: &LeasedJob,
        claim: Option<Claim>,
    ) -> Result<(ModelGuard, Turn, Ready, Inputs), Error> {
        let (model, turn, ready) = self.place(job, claim).await?;
        let fetching = Instant::now();
        let inputs = self.fetch_inputs(job, &model).await.map_err(Error::Failed)?;
        self.timing.inputs_ms = millis(fetching.elapsed());
        Ok((model, turn, ready, inputs))
    }

    async fn fetch_inputs(&self, job: &LeasedJob, model: &ModelGuard) -> Result<Inputs, JobError> {
        let transfer = &self.shared.transfer;
        let mut urls = job.files.clone();
        let large = match &job.input_file {
            Some(id) => {
                let url = urls.remove(id);
                Some(inputs::fetch_input(transfer, url.as_deref()).await?)
            }
            None => None,
        };
        let (files, folder) = inputs::fetch(transfer, &urls, model.endpoint.folder()).await?;
        Ok(Inputs { large, files, _folder: folder })
    }

    fn record_load(&mut self, ready: &Ready) {
        self.gpus.clone_from(&ready.gpus);
        self.timing.env_ms = millis(ready.timings.environment);
        self.timing.weights_ms = millis(ready.timings.weights);
        self.timing.boot_ms = millis(ready.timings.boot);
        self.timing.load_ms = millis(ready.timings.load);
        self.timing.warmup_ms = millis(ready.timings.warmup);
    }

    /// Runs the handler. A run that ran out of GPU memory is repeated once, with a GPU for itself.
    async fn run_handler(
        &mut self,
        job: LeasedJob,
        run: Run<'_>,
        model: &ModelGuard,
        ready: &mut Ready,
    ) -> Result<(RunEnd, Arc<Begun>), Error> {
        let (scratch, begun) = (run.scratch, Arc::clone(&run.begun));
        // Only a run on a GPU may be repeated.
        let again = (!ready.gpus.is_empty()).then(|| (job.clone(), run.files.clone()));
        let end = self.execute(ready, job, run).await?;
        let (Some(error), Some((job, files))) = (oom_error(&end), again) else { return Ok((end, begun)) };
        *ready = tokio::select! {
            again = self.shared.pool.after_oom(model, self.lease, ready, error) => again?,
            error = self.signals.stopped() => return Err(error),
        };
        self.gpus.clone_from(&ready.gpus);
        let run = Run { number: self.shared.next_number(), scratch, files, begun: Arc::default() };
        let begun = Arc::clone(&run.begun);
        let end = self.execute(ready, job, run).await?;
        match oom_error(&end) {
            Some(error) => Err(self.shared.pool.after_repeated_oom(model, ready, error).await.into()),
            None => Ok((end, begun)),
        }
    }

    /// Records the timings of an ended run, and returns its duration. `started`: when it was sent to the runner.
    fn record_run(&mut self, end: &RunEnd, begun: &Begun, started: Instant, model: &ModelGuard) -> Duration {
        let began = begun.at().unwrap_or(started);
        let readied_ms = self.timing.loading_ms().saturating_add(self.timing.inputs_ms);
        self.timing.turn_ms = millis(began.duration_since(self.leased)).saturating_sub(readied_ms);
        let took = began.elapsed();
        self.timing.batch_size = begun.batch_size();
        self.timing.sharers_milli = begun.sharers_milli();
        let part = took.div_f64(self.timing.sharers());
        self.shared.load.ran(part);
        model.turns.ran(part);
        model.ran(took, matches!(end, RunEnd::Done { .. }));
        took
    }

    /// Waits for a permit to store the result, if it is stored, and frees the slot. The number of stored results is
    /// limited, so that results that wait for an unreachable store cannot fill the disk.
    async fn permit_to_store(&mut self, end: &RunEnd) -> Result<Option<SemaphorePermit<'a>>, Error> {
        if !output::is_stored(end) {
            return Ok(None);
        }
        let permit = tokio::select! {
            biased;
            // Before the permit: attempts that are released give up theirs.
            error = self.signals.stopped() => return Err(error),
            permit = self.shared.stores.acquire() => permit,
        };
        self.slot.needs_no_slot();
        Ok(permit.ok())
    }

    /// Stores the result of an ended run, or converts its error. `took`: duration of the run, as measured here.
    async fn finish(&mut self, end: RunEnd, took: Duration, scratch: &Path) -> Result<FinishOutcome, Error> {
        match end {
            RunEnd::Done { result, files, run_ms } => {
                self.timing.run_ms = run_ms;
                let started = Instant::now();
                let Attempts { gateway, transfer, .. } = self.shared;
                let stored = tokio::select! {
                    biased;
                    stored = output::store(gateway, transfer, self.lease, scratch, result, files) => stored,
                    error = self.signals.stopped() => return Err(error),
                };
                self.timing.upload_ms = millis(started.elapsed());
                let (outcome, usage) = stored.map_err(|error| match error {
                    StoreError::Job(error) => Error::Failed(error),
                    StoreError::Stale => Error::LeaseLost,
                })?;
                self.usage = usage;
                Ok(outcome)
            }
            RunEnd::Failed { failure, run_ms, stderr } => {
                self.timing.run_ms = run_ms;
                Err(Error::Failed(raised(failure, stderr)))
            }
            RunEnd::NotBegun | RunEnd::Stopped => Err(Error::Released),
            end => {
                self.timing.run_ms = millis(took);
                Err(Error::Failed(died(end)))
            }
        }
    }
}

/// The error of a run that ran out of GPU memory.
fn oom_error(end: &RunEnd) -> Option<JobError> {
    match end {
        RunEnd::Failed { failure, stderr, .. } if failure.code == "oom_gpu" => {
            Some(raised(failure.clone(), stderr.clone()))
        }
        _ => None,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
