//! Readies models for runs: enters their GPUs, loads them if necessary, and handles runs that ran out of memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stokehold_protocol::gateway::{LeaseRef, StartPhase};
use stokehold_protocol::job::{ErrorCode, JobError};
use stokehold_vram::Claim;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::Pool;
use super::model::{LoadTimings, Loaded, Model, ModelGuard};
use crate::failure::infra;
use crate::runner::{CUDA_ERROR, RunEnd, Runner};

/// Why a model could not be loaded.
pub(crate) enum NotReady {
    /// An error to report for the job.
    Job(JobError),
    /// No GPU has room now; another worker, or this one later, may have.
    NoRoom,
    /// The model is loaded on a GPU that accepts no runs now.
    Closed,
    /// The model needs this many MiB, more than the largest GPU of this worker has.
    Outgrown(JobError, u64),
}

/// A run on a model, from before its GPU is selected until its end.
struct Running {
    model: Arc<Model>,
    ended: Arc<Notify>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.model.runs.fetch_sub(1, Ordering::SeqCst);
        self.ended.notify_waiters();
    }
}

/// A runner that is ready, and the times that this took; zero if it was warm. While this value exists, the model keeps
/// its GPU.
pub(crate) struct Ready {
    _running: Running,
    pub(crate) runner: Arc<Runner>,
    /// The GPUs that it runs on, and whether it has them for itself.
    pub(crate) gpus: Vec<u32>,
    alone: bool,
    /// Whether it was started for this run.
    is_new: bool,
    pub(crate) timings: LoadTimings,
}

impl Loaded {
    /// `timings`: those of its load if it was started for this run.
    fn ready(&self, running: Running, timings: Option<LoadTimings>) -> Ready {
        Ready {
            _running: running,
            runner: Arc::clone(&self.runner),
            gpus: self.gpus.clone(),
            alone: self.alone,
            is_new: timings.is_some(),
            timings: timings.unwrap_or_default(),
        }
    }
}

/// A load in a separate task. Dropping it before it is done aborts the task.
pub(crate) struct Apart {
    answer: oneshot::Receiver<(ModelGuard, Result<Ready, NotReady>)>,
    task: Option<AbortHandle>,
}

impl Apart {
    /// Waits for the result of the load.
    pub(crate) async fn done(&mut self) -> Result<(ModelGuard, Result<Ready, NotReady>), NotReady> {
        let broke = |_| NotReady::Job(infra("loading the model failed unexpectedly".to_owned()));
        (&mut self.answer).await.map_err(broke)
    }

    /// Lets the load continue for later jobs.
    pub(crate) fn leave(&mut self) {
        self.task = None;
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Pool {
    /// Loads a model in a separate task, so that its job need not wait for it if another model is free earlier.
    pub(crate) fn ready_apart(self: &Arc<Self>, model: ModelGuard, lease: &LeaseRef, claim: Option<Claim>) -> Apart {
        let (pool, lease, (done, answer)) = (Arc::clone(self), lease.clone(), oneshot::channel());
        let task = self.spawn(async move {
            let ready = pool.ready(&model, Some(&lease), claim).await;
            let _ = done.send((model, ready));
        });
        Apart { answer, task: Some(task) }
    }

    /// The model's runner, started if necessary, on the GPUs that were claimed for it, if any. `lease` belongs to the
    /// job that needs it, if any.
    pub(crate) async fn ready(
        &self,
        model: &ModelGuard,
        lease: Option<&LeaseRef>,
        mut claim: Option<Claim>,
    ) -> Result<Ready, NotReady> {
        // A run with a claim does not wait for other claims.
        let running = if claim.is_some() { self.begin(&model.0) } else { self.enter(&model.0).await };
        let mut loaded = model.loaded.lock().await;
        if let Some(warm) = loaded.as_ref().filter(|loaded| !loaded.runner.is_gone()) {
            self.gpus.await_tests(&warm.gpus).await;
            // A GPU that is being tested soon accepts runs again; a hot one does not, and other workers may be cooler.
            if !self.gpus.ledger().are_open(&warm.gpus) {
                return Err(NotReady::Closed);
            }
            return Ok(warm.ready(running, None));
        }
        *loaded = None;
        let _loading = model.begins_to_load();
        // Fetch weights before reserving a GPU, so that it is not idle meanwhile.
        let mut ahead = match model.endpoint.spec.version.spec.weights.is_empty() {
            true => None,
            false => Some(self.fetch_for(model, lease).await.map_err(NotReady::Job)?),
        };
        loop {
            if model.need().vram.is_of_gpu() {
                self.enters(model, StartPhase::Gpu);
            }
            let reservation = self.make_room(model, claim.take()).await?;
            let gpus = reservation.as_ref().map_or_else(Vec::new, |reservation| reservation.gpus.clone());
            let on_gpu = !gpus.is_empty();
            *model.on.lock() = gpus;
            match self.start(model, lease, &mut ahead, reservation).await {
                Ok((new, timings)) => return Ok(loaded.insert(new).ready(running, Some(timings))),
                // Other models must not be evicted for an additional model.
                Err(error) if error.code == ErrorCode::OomGpu && model.is_growing() => return Err(NotReady::NoRoom),
                // Try again with a GPU for itself.
                Err(error) if error.code == ErrorCode::OomGpu && on_gpu => {
                    if model.endpoint.has_whole_gpus() || model.alone.swap(true, Ordering::SeqCst) {
                        return Err(self.outgrown(model, error));
                    }
                }
                Err(error) => return Err(NotReady::Job(error)),
            }
        }
    }

    /// Begins a run; waits while another model claims its GPU.
    async fn enter(&self, model: &Arc<Model>) -> Running {
        loop {
            if let Some(running) = self.try_enter(model) {
                return running;
            }
            // Register for the notification before checking, so that none is missed.
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if let Some(running) = self.try_enter(model) {
                return running;
            }
            ended.await;
        }
    }

    fn try_enter(&self, model: &Arc<Model>) -> Option<Running> {
        let is_claimed = || self.gpus.ledger().is_claimed(&model.on.lock());
        // Check first: a run that must wait must not wake those that wait for runs to end, including itself.
        if is_claimed() {
            return None;
        }
        // Count the run first, then check: a claimer checks the claims first and then the counts.
        let running = self.begin(model);
        (!is_claimed()).then_some(running)
    }

    fn begin(&self, model: &Arc<Model>) -> Running {
        model.runs.fetch_add(1, Ordering::SeqCst);
        Running { model: Arc::clone(model), ended: Arc::clone(&self.ended) }
    }

    /// Handles a run that ran out of GPU memory: loads the model again with a GPU for itself. A model has outgrown the
    /// GPU if it had one for itself, and nothing had run in its process before.
    pub(crate) async fn after_oom(
        &self,
        model: &ModelGuard,
        lease: &LeaseRef,
        failed: &Ready,
        error: JobError,
    ) -> Result<Ready, NotReady> {
        if failed.alone && failed.is_new {
            return Err(self.after_repeated_oom(model, failed, error).await);
        }
        self.discard(model, failed).await;
        model.alone.store(true, Ordering::SeqCst);
        match self.ready(model, Some(lease), None).await {
            // Other models occupy the memory; they may be gone after a backoff.
            Err(NotReady::NoRoom) => Err(NotReady::Job(error)),
            ready => ready,
        }
    }

    /// Handles a repeated run that ran out of GPU memory again.
    pub(crate) async fn after_repeated_oom(&self, model: &ModelGuard, failed: &Ready, error: JobError) -> NotReady {
        self.discard(model, failed).await;
        self.outgrown(model, error)
    }

    /// Stops the runner of a run that ran out of GPU memory. Its process may still hold the memory that the run took,
    /// which later runs would lack.
    async fn discard(&self, model: &ModelGuard, failed: &Ready) {
        let is_same = |loaded: &mut Loaded| Arc::ptr_eq(&loaded.runner, &failed.runner);
        // Another run may have stopped it already.
        let gone = model.loaded.lock().await.take_if(is_same);
        if let Some(loaded) = gone {
            loaded.runner.stop().await;
        }
    }

    /// Handles the end of a run. If the process died or could no longer use its GPUs, tests them; in the latter case
    /// before any error is attributed.
    pub(crate) async fn ended(&self, on: &Ready, end: &RunEnd) {
        let lost_gpus = matches!(end, RunEnd::Failed { failure, .. } if failure.code == CUDA_ERROR);
        if on.gpus.is_empty() || !lost_gpus && !end.ended_process() {
            return;
        }
        if lost_gpus {
            on.runner.end().await;
        }
        // Once for all runs of the process.
        if !on.runner.is_tested.swap(true, Ordering::SeqCst) {
            self.gpus.test(&on.gpus, &on.runner.ours);
        }
        if lost_gpus {
            self.gpus.await_tests(&on.gpus).await;
        }
    }

    /// Waits until no run may start there, because a GPU of the runner is hot, faulty or being tested.
    pub(crate) async fn closed(&self, on: &Ready) {
        let mut changed = self.gpus.changed();
        while self.gpus.ledger().are_open(&on.gpus) && changed.changed().await.is_ok() {}
    }

    /// Handles a successful run. With a GPU for itself, it has shown how much memory the model needs.
    pub(crate) fn ran_well(&self, model: &ModelGuard, on: &Ready) {
        let seen = || Some((self.gpu_of(&on.gpus)?, self.gpus.ledger().need_mib(model.ticket()?)?));
        if on.alone && seen().is_some_and(|(gpu, need_mib)| model.endpoint.learn(&gpu.name, need_mib)) {
            model.alone.store(false, Ordering::SeqCst);
        }
    }

    /// The result for a model that ran out of memory with a GPU for itself.
    fn outgrown(&self, model: &ModelGuard, error: JobError) -> NotReady {
        NotReady::Outgrown(
            error,
            self.gpus.ledger().largest_mib(model.endpoint.gpu_count(), &model.endpoint.usable_gpus) + 1,
        )
    }
}
