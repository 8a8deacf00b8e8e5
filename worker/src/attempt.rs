//! One attempt: from a lease to what is reported about it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stokehold_ledger::Claim;
use stokehold_queue::failpoint;
use stokehold_queue::gateway::{FinishOutcome, FinishReport, LeaseRef, LeasedJob};
use stokehold_queue::job::{ErrorCode, JobError, Timing};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::disk;
use crate::failure::{died, failed, raised, stderr_of};
use crate::gateway::Gateway;
use crate::inputs;
use crate::load::{Load, Open};
use crate::messages::Messages;
use crate::output::{self, StoreError};
use crate::pool::{NotReady, Pool, Ready, Using};
use crate::runner::{Begun, RunEnd, RunRequest, Runner};
use crate::scratch::RunFolder;
use crate::transfer::Transfer;
use crate::turns::Turn;

/// How long a run that was asked to stop may take before its runner gets a SIGTERM, and that before it is killed.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
const TERM_GRACE: Duration = Duration::from_secs(3);

/// A job that was leased ahead of a free slot goes back when none gets free in this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Results that wait for the store at once. Each is at most 64 MiB and its files.
pub(crate) const STORES_MAX: usize = 16;

/// What becomes of the lease.
pub(crate) enum End {
    /// It is reported.
    Report(Box<FinishReport>),
    /// It goes back unharmed.
    Release(LeaseRef),
    /// It was lost: there is nothing to say.
    Lost,
}

impl End {
    /// Of an attempt that panicked: without it, its lease would be extended for as long as this worker lives.
    pub(crate) fn panicked(lease: &LeaseRef, panic: &str) -> Self {
        let error = JobError::new(ErrorCode::Infra, format!("the worker panicked: {panic}"));
        let outcome = FinishOutcome::Failed { error };
        Self::Report(Box::new(FinishReport::new(lease.clone(), Timing::default(), outcome)))
    }
}

/// What all attempts share.
pub(crate) struct Attempts {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) transfer: Transfer,
    pub(crate) pool: Arc<Pool>,
    /// The right to store a result while the next job runs.
    pub(crate) stores: Semaphore,
    pub(crate) load: Arc<Load>,
    /// Numbers for runs, unique within this worker.
    pub(crate) next_run: std::sync::atomic::AtomicU64,
    /// Cancelled when the worker leaves: attempts that have not begun go back at once.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the grace is over: attempts in progress go back too.
    pub(crate) leaving: CancellationToken,
}

/// One run, as it is handed to the runner.
struct Run<'a> {
    number: u64,
    scratch: &'a Path,
    files: BTreeMap<String, String>,
    begun: Arc<Begun>,
}

/// What is known of an attempt, however it ends.
#[derive(Default)]
struct Course {
    timing: Timing,
    /// The cards that it ran on.
    cards: Vec<u32>,
}

/// Why an attempt stops without a report of its own.
#[derive(Clone)]
enum Stop {
    Lost,
    Release,
    Fail(JobError),
    /// It needs so many MiB of a card, more than any here has.
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
    /// Runs one leased job to its end. `lost` is cancelled when the lease is not ours any more. `claim` is of a card that was held for it.
    pub(crate) async fn run(
        &self,
        job: LeasedJob,
        mut open: Open,
        lost: CancellationToken,
        claim: Option<Claim>,
    ) -> End {
        let lease = LeaseRef { job_id: job.job_id, fence: job.fence.clone() };
        let (mut course, mut vram_need_mib) = (Course::default(), None);
        let outcome = match self.outcome(job, &lease, &mut open, &lost, claim, &mut course).await {
            Ok(outcome) => outcome,
            Err(Stop::Lost) => return End::Lost,
            Err(Stop::Release) => return End::Release(lease),
            Err(Stop::Outgrown(error, need_mib)) => {
                tracing::info!(job.id = %lease.job_id, need_mib, "the model has outgrown every card here");
                vram_need_mib = Some(need_mib);
                FinishOutcome::Failed { error }
            }
            Err(Stop::Fail(error)) => {
                let error = disk::blamed(self.pool.blamed(error, &course.cards));
                tracing::info!(job.id = %lease.job_id, code = ?error.code, handler.class = ?error.class, "attempt failed");
                FinishOutcome::Failed { error }
            }
        };
        End::Report(Box::new(FinishReport { vram_need_mib, ..FinishReport::new(lease, course.timing, outcome) }))
    }

    async fn outcome(
        &self,
        mut job: LeasedJob,
        lease: &LeaseRef,
        open: &mut Open,
        lost: &CancellationToken,
        claim: Option<Claim>,
        course: &mut Course,
    ) -> Result<FinishOutcome, Stop> {
        let number = self.next_run.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let leased = Instant::now();
        let prepare = async {
            let (model, turn, ready) = self.place(&job, lease, claim, open).await?;
            let fetching = Instant::now();
            let mut urls = job.files.clone();
            let input = match &job.input_file {
                Some(id) => {
                    let url = urls.remove(id);
                    Some(inputs::fetch_input(&self.transfer, url.as_deref()).await.map_err(Stop::Fail)?)
                }
                None => None,
            };
            let (files, folder) = inputs::fetch(&self.transfer, &urls, model.folder()).await.map_err(Stop::Fail)?;
            course.timing.inputs_ms = millis(fetching.elapsed());
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
        let scratch = RunFolder::new(&model.folder().work(), number);
        course.cards.clone_from(&ready.cards);
        course.timing.env_ms = millis(ready.took.environment);
        course.timing.weights_ms = millis(ready.took.weights);
        course.timing.boot_ms = millis(ready.took.boot);
        course.timing.load_ms = millis(ready.took.load);
        course.timing.warmup_ms = millis(ready.took.warmup);

        let started = Instant::now();
        let run = Run { number, scratch: scratch.path(), files, begun: Arc::default() };
        let mut begun = Arc::clone(&run.begun);
        // Only a model on a card may have to run a second time.
        let again = (!ready.cards.is_empty()).then(|| (job.clone(), run.files.clone()));
        let mut end = self.execute(&ready, job, run, lease, lost, open).await?;
        if let (RunEnd::Failed { failure, stderr, .. }, Some((job, files))) = (&end, again)
            && failure.code == "oom_gpu"
        {
            let error = raised(failure.clone(), stderr.clone());
            ready = tokio::select! {
                again = self.pool.after_oom(&model, lease, &ready, error) => again?,
                () = lost.cancelled() => return Err(Stop::Lost),
                () = self.leaving.cancelled() => return Err(Stop::Release),
            };
            course.cards.clone_from(&ready.cards);
            let number = self.next_run.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let run = Run { number, scratch: scratch.path(), files, begun: Arc::default() };
            begun = Arc::clone(&run.begun);
            end = self.execute(&ready, job, run, lease, lost, open).await?;
            if let RunEnd::Failed { failure, stderr, .. } = &end
                && failure.code == "oom_gpu"
            {
                let error = raised(failure.clone(), stderr.clone());
                return Err(self.pool.outgrown(&model, error).into());
            }
        }
        failpoint::reach("run.ended").await;
        let began = begun.at().unwrap_or(started);
        let readied_ms = course.timing.loading_ms().saturating_add(course.timing.inputs_ms);
        course.timing.turn_ms = millis(began.duration_since(leased)).saturating_sub(readied_ms);
        let took = began.elapsed();
        course.timing.batch_size = begun.batch_size();
        course.timing.sharers_milli = begun.sharers_milli();
        let part = took.div_f64(course.timing.sharers());
        self.load.ran(part);
        model.turns.ran(part);
        model.ran(took, matches!(end, RunEnd::Done { .. }));
        // The next run may have the runner while this one's result is stored; where the store is away, only until so many results wait
        // for it that they would fill the disk.
        let _storing = if output::is_stored(&end) {
            let storing = tokio::select! {
                biased;
                () = lost.cancelled() => return Err(Stop::Lost),
                // Before the right to store: those that go back give theirs up.
                () = self.leaving.cancelled() => return Err(Stop::Release),
                storing = self.stores.acquire() => storing,
            };
            open.needs_no_slot();
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
                course.timing.run_ms = run_ms;
                let started = Instant::now();
                let store = output::store(&self.gateway, &self.transfer, lease, scratch.path(), result, files);
                let stored = tokio::select! {
                    biased;
                    stored = store => stored,
                    () = lost.cancelled() => return Err(Stop::Lost),
                    () = self.leaving.cancelled() => return Err(Stop::Release),
                };
                course.timing.upload_ms = millis(started.elapsed());
                stored.map_err(|error| match error {
                    StoreError::Job(error) => Stop::Fail(error),
                    StoreError::Stale => Stop::Lost,
                })
            }
            RunEnd::Failed { failure, run_ms, stderr } => {
                course.timing.run_ms = run_ms;
                Err(Stop::Fail(raised(failure, stderr)))
            }
            RunEnd::NotBegun | RunEnd::Stopped => Err(Stop::Release),
            end => {
                course.timing.run_ms = millis(took);
                Err(Stop::Fail(died(end)))
            }
        }
    }

    /// A model that is loaded, and the right to run on it now.
    async fn place(
        &self,
        job: &LeasedJob,
        lease: &LeaseRef,
        mut claim: Option<Claim>,
        open: &mut Open,
    ) -> Result<(Using, Turn, Ready), Stop> {
        let (which, mut behind) = (job.model(), Some(job.behind));
        loop {
            let model = self.pool.model(&which, behind.take()).await.map_err(Stop::Fail)?;
            open.shares(model.jobs_at_once(), model.max_batch_size() > 1);
            self.pool.grow(&model, lease);
            let Some(turn) = self.turn(&model, lease, open).await? else { continue };
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
                // There are others that it can wait for.
                Err(NotReady::NoRoom) if model.has_siblings() => model.cannot_grow(),
                Err(not_ready) => return Err(not_ready.into()),
                Ok(ready) => {
                    // What loading takes is known now.
                    self.pool.grow(&model, lease);
                    return Ok((model, turn, ready));
                }
            }
        }
    }

    /// Waits for the model's turn and a free slot. `None`: another model can begin it.
    async fn turn(&self, model: &Using, lease: &LeaseRef, open: &mut Open) -> Result<Option<Turn>, Stop> {
        let (turn, elsewhere) = (model.turns.take(), model.better_elsewhere());
        tokio::pin!(turn, elsewhere);
        loop {
            tokio::select! {
                biased;
                () = self.draining.cancelled() => return Err(Stop::Release),
                turn = &mut turn => return turn.map(Some).ok_or(Stop::Release),
                () = &mut elsewhere => return Ok(None),
                () = tokio::time::sleep(PATIENCE) => {
                    if open.is_too_many() || !model.may_begin() {
                        return Err(Stop::Release);
                    }
                    // A wake may have gone to somebody who did not move.
                    if model.is_better_elsewhere() {
                        return Ok(None);
                    }
                    self.pool.grow(model, lease);
                }
            }
        }
    }

    /// The run itself, within its time.
    async fn execute(
        &self,
        ready: &Ready,
        job: LeasedJob,
        run: Run<'_>,
        lease: &LeaseRef,
        lost: &CancellationToken,
        open: &mut Open,
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
        let mut until = handed_over + limit.min(PATIENCE);
        let stopped = loop {
            tokio::select! {
                end = &mut ended => {
                    messages.told().await;
                    let end = end.unwrap_or_else(|_| gone());
                    self.pool.ended(ready, &end).await;
                    return Ok(end);
                }
                () = tokio::time::sleep_until(until.into()) => match begun.at() {
                    None if handed_over.elapsed() < PATIENCE => until = handed_over + PATIENCE,
                    // It has waited in the runner's inbox for too long: whatever runs there is not short any more. One that waits for the
                    // next call may stay, as long as there is a slot for it.
                    None => {
                        if open.is_too_many() || !runner.is_batched {
                            break Some(Stop::Release);
                        }
                        until = Instant::now() + PATIENCE;
                    }
                    Some(at) if at.elapsed() < limit => until = at + limit,
                    Some(_) => break None,
                },
                // What waits in the runner's inbox is new too.
                () = self.pool.closed(ready), if begun.at().is_none() => {
                    if begun.at().is_none() {
                        break Some(Stop::Release);
                    }
                }
                () = lost.cancelled() => break Some(Stop::Lost),
                () = self.leaving.cancelled() => break Some(Stop::Release),
            }
        };
        // Nothing of it has run, so nobody waits for it to stop and the runner skips it; or others run in the same call, which are not to
        // be ended for it.
        let is_left_alone = begun.at().is_none() || runner.is_batched && !awaited.is_last();
        if let (Some(stop), true) = (&stopped, is_left_alone) {
            runner.cancel(number).await;
            return Err(stop.clone());
        }
        let end = stop(runner, number, &mut ended).await;
        self.pool.ended(ready, &end).await;
        messages.told().await;
        match stopped {
            Some(stop) => Err(stop),
            None => {
                let message = format!("the handler ran longer than timeout_s, {} s", limit.as_secs_f64());
                Err(Stop::Fail(JobError { stderr: stderr_of(&end), ..failed(ErrorCode::Timeout, message) }))
            }
        }
    }
}

/// Asks the run, then the process, and kills then.
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

/// The runner was gone before the run reached it.
fn gone() -> RunEnd {
    RunEnd::Broken { why: "the runner ended before the job began".to_owned(), stderr: String::new() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
