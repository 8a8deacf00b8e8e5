//! The models of this worker: their specifications, their turns, and their loaded runners.

mod endpoint;
mod fetch;
mod ready;
mod room;
mod status;
mod warmup;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stokehold_queue::demands::Demands;
use stokehold_queue::endpoint::Runner as RunnerKind;
use stokehold_queue::gateway::{Gpu, LeaseRef, ModelRef};
use stokehold_queue::job::{ErrorCode, JobError};
use stokehold_vram::{Claim, Idle, Need, Reservation, Ticket};
use tokio::sync::{Notify, OnceCell, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument as _;

use crate::environment::{Environment, Environments};
use crate::failure::{failed, infra, start_failure};
use crate::gateway::{self, Gateway};
use crate::gpus::Gpus;
use crate::package::{Package, Packages};
use crate::runner::{CUDA_ERROR, Launch, RunEnd, Runner, Vram};
use crate::sandbox::{Reach, Sandbox};
use crate::scratch::{EndpointFolder, Home};
use crate::turns::Slots;
use crate::weights::{WeightSet, Weights};
pub(crate) use endpoint::ModelGuard;
use endpoint::{Endpoint, Growing, Model};
use fetch::Fetched;

/// A model's runner, with the resources that it needs.
struct Loaded {
    runner: Arc<Runner>,
    /// The reservation of the runner's process, and its GPUs.
    ticket: Option<Ticket>,
    gpus: Vec<u32>,
    alone: bool,
    timings: LoadTimings,
    _environment: Environment,
    _package: Package,
    _weights: Option<WeightSet>,
    _home: Home,
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
    pub(crate) timings: LoadTimings,
}

/// Times of the steps of loading a model.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoadTimings {
    pub(crate) environment: Duration,
    pub(crate) weights: Duration,
    pub(crate) boot: Duration,
    pub(crate) load: Duration,
    pub(crate) warmup: Duration,
}

impl Loaded {
    fn ready(&self, running: Running, timings: LoadTimings) -> Ready {
        Ready {
            _running: running,
            runner: Arc::clone(&self.runner),
            gpus: self.gpus.clone(),
            alone: self.alone,
            timings,
        }
    }
}

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

/// All models of this worker.
pub(crate) struct Pool {
    gateway: Arc<Gateway>,
    environments: Environments,
    packages: Packages,
    weights: Weights,
    scratch: PathBuf,
    scratch_bytes: u64,
    sandbox: Arc<Sandbox>,
    load_timeout: Duration,
    max_loaded: usize,
    gpus: Gpus,
    slots: Arc<Slots>,
    endpoints: Mutex<HashMap<ModelRef, Arc<OnceCell<Arc<Endpoint>>>>>,
    /// Models for which there was no room recently.
    crowded: Mutex<HashMap<ModelRef, Instant>>,
    /// Notified when a run or a claim of a GPU has ended.
    ended: Arc<Notify>,
    /// Tasks that load models.
    loads: Mutex<JoinSet<()>>,
}

/// The parts of a pool.
pub(crate) struct PoolConfig {
    pub(crate) environments: Environments,
    pub(crate) packages: Packages,
    pub(crate) weights: Weights,
    pub(crate) scratch: PathBuf,
    /// Maximum scratch space of one endpoint's runners.
    pub(crate) scratch_bytes: u64,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) load_timeout: Duration,
    pub(crate) max_loaded: usize,
    pub(crate) gpus: Gpus,
    pub(crate) slots: Arc<Slots>,
}

/// Beyond this number of known endpoints, those without a model are forgotten.
const ENDPOINTS_KNOWN: usize = 1_000;

impl Pool {
    pub(crate) fn new(gateway: Arc<Gateway>, config: PoolConfig) -> Self {
        Self {
            gateway,
            environments: config.environments,
            packages: config.packages,
            weights: config.weights,
            scratch: config.scratch,
            scratch_bytes: config.scratch_bytes,
            sandbox: config.sandbox,
            load_timeout: config.load_timeout,
            max_loaded: config.max_loaded,
            gpus: config.gpus,
            slots: config.slots,
            endpoints: Mutex::default(),
            crowded: Mutex::default(),
            ended: Arc::default(),
            loads: Mutex::default(),
        }
    }

    /// A model for one more job of this endpoint version. `behind`: the number of jobs queued behind it, if known.
    pub(crate) async fn model(&self, which: &ModelRef, behind: Option<u64>) -> Result<ModelGuard, JobError> {
        let endpoint = self.endpoint(which).await?;
        if let Some(behind) = behind {
            endpoint.has_behind(behind);
        }
        Ok(endpoint.model())
    }

    /// Loads as many additional models as the waiting jobs justify. `lease` belongs to the job: the holder of a lease
    /// may get the endpoint's secrets. Does nothing while models lack room: additional models must not take more of it.
    pub(crate) fn grow(self: &Arc<Self>, beside: &ModelGuard, lease: &LeaseRef) {
        if self.is_short() {
            return;
        }
        for growing in beside.endpoint().grow() {
            let (pool, lease) = (Arc::clone(self), lease.clone());
            self.spawn(async move { pool.load_beside(growing, &lease).await });
        }
    }

    /// Loads a model in a separate task, so that its job need not wait for it if another model is free earlier.
    pub(crate) fn ready_apart(self: &Arc<Self>, model: ModelGuard, lease: &LeaseRef, claim: Option<Claim>) -> Apart {
        let (pool, lease, (done, answer)) = (Arc::clone(self), lease.clone(), oneshot::channel());
        let task = self.spawn(async move {
            let ready = pool.ready(&model, Some(&lease), claim).await;
            let _ = done.send((model, ready));
        });
        Apart { answer, task: Some(task) }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = lock(&self.loads);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task.in_current_span())
    }

    async fn load_beside(&self, growing: Growing, lease: &LeaseRef) {
        let version = &growing.0.spec.version;
        let (code, message) = match self.ready(&growing.0, Some(lease), None).await {
            Ok(_) => return,
            Err(NotReady::Job(error) | NotReady::Outgrown(error, _)) => (Some(error.code), error.message),
            Err(NotReady::NoRoom | NotReady::Closed) => (None, "not enough room".to_owned()),
        };
        growing.0.cannot_grow();
        tracing::info!(endpoint.id = %version.name, version = version.version, ?code, why = ?message, "cannot load another model of this endpoint");
    }

    /// The endpoint version; fetches its specification the first time.
    async fn endpoint(&self, which: &ModelRef) -> Result<Arc<Endpoint>, JobError> {
        let cell = {
            let mut endpoints = lock(&self.endpoints);
            if endpoints.len() >= ENDPOINTS_KNOWN && !endpoints.contains_key(which) {
                endpoints.retain(|_, cell| cell.get().is_none_or(|endpoint| !is_forgotten(endpoint)));
            }
            Arc::clone(endpoints.entry(which.clone()).or_default())
        };
        let fetch = async || {
            let ModelRef { tenant, endpoint, version } = which;
            let spec = self.gateway.runner_spec(tenant, endpoint, *version).await?;
            let gpus = self.gpus_for(&spec.version.spec.demands);
            let folder = EndpointFolder::new(&self.scratch, self.sandbox.next_uid())?;
            Ok::<_, anyhow::Error>(Endpoint::new(
                tenant.clone(),
                spec,
                folder,
                (gpus, self.gpus.clone()),
                Arc::clone(&self.slots),
            ))
        };
        let endpoint = cell.get_or_try_init(fetch).await;
        endpoint.cloned().map_err(|error| match error.downcast_ref::<gateway::Error>() {
            Some(gateway::Error::Refused { code, detail }) if code == "unknown_version" => {
                failed(ErrorCode::EnvironmentFailed, detail.clone())
            }
            _ => infra(format!("cannot fetch the endpoint's specification: {error}")),
        })
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
            self.gpus.tried(&warm.gpus).await;
            // A GPU that is being tested soon accepts runs again; a hot one does not, and other workers may be cooler.
            if !self.gpus.ledger().are_open(&warm.gpus) {
                return Err(NotReady::Closed);
            }
            return Ok(warm.ready(running, LoadTimings::default()));
        }
        *loaded = None;
        let _loading = model.begins_to_load();
        // Fetch weights before reserving a GPU, so that it is not idle meanwhile.
        let mut ahead = match model.spec.version.spec.weights.is_empty() {
            true => None,
            false => Some(self.fetch_for(model, lease, !model.is_growing()).await.map_err(NotReady::Job)?),
        };
        loop {
            let room = self.make_room(model, claim.take()).await;
            // An additional model must not keep jobs of other versions away.
            let reservation = room.inspect_err(|_| {
                if !model.is_growing() {
                    self.crowd(model.named())
                }
            })?;
            let gpus = reservation.as_ref().map_or_else(Vec::new, |reservation| reservation.gpus.clone());
            let on_gpu = !gpus.is_empty();
            *lock(&model.on) = gpus;
            match self.start(model, lease, &mut ahead, reservation).await {
                Ok((new, timings)) => return Ok(loaded.insert(new).ready(running, timings)),
                // Other models must not be evicted for an additional model.
                Err(error) if error.code == ErrorCode::OomGpu && model.is_growing() => return Err(NotReady::NoRoom),
                // Try again with a GPU for itself.
                Err(error) if error.code == ErrorCode::OomGpu && on_gpu => {
                    if model.has_whole_gpus() || model.alone.swap(true, Ordering::SeqCst) {
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
        let is_claimed = || self.gpus.ledger().is_claimed(&lock(&model.on));
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

    /// Handles a run that ran out of GPU memory: stops the runner and loads it again with a GPU for itself. A model
    /// that had a GPU for itself has outgrown it.
    pub(crate) async fn after_oom(
        &self,
        model: &ModelGuard,
        lease: &LeaseRef,
        failed: &Ready,
        error: JobError,
    ) -> Result<Ready, NotReady> {
        if failed.alone {
            return Err(self.outgrown(model, error));
        }
        model.alone.store(true, Ordering::SeqCst);
        let is_same = |loaded: &mut Loaded| Arc::ptr_eq(&loaded.runner, &failed.runner);
        // Another run may have stopped it already.
        let gone = model.loaded.lock().await.take_if(is_same);
        if let Some(loaded) = gone {
            loaded.runner.stop().await;
        }
        match self.ready(model, Some(lease), None).await {
            // Other models are in the way; they may be gone after a backoff.
            Err(NotReady::NoRoom) => Err(NotReady::Job(error)),
            ready => ready,
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
        if !on.runner.is_tried.swap(true, Ordering::SeqCst) {
            self.gpus.try_out(&on.gpus, &on.runner.ours);
        }
        if lost_gpus {
            self.gpus.tried(&on.gpus).await;
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
        if on.alone && seen().is_some_and(|(gpu, need_mib)| model.learn(&gpu.name, need_mib)) {
            model.alone.store(false, Ordering::SeqCst);
        }
    }

    /// The result for a model that ran out of memory with a GPU for itself.
    pub(crate) fn outgrown(&self, model: &ModelGuard, error: JobError) -> NotReady {
        NotReady::Outgrown(error, self.gpus.ledger().largest_mib(model.gpu_count(), &model.usable_gpus) + 1)
    }

    /// The GPUs that meet an endpoint's requirements.
    fn gpus_for(&self, demands: &Demands) -> Vec<u32> {
        self.gpus.list().iter().filter(|gpu| demands.is_met_by(gpu)).map(|gpu| gpu.index).collect()
    }

    /// The memory that a runner may use on each of its GPUs; `None` on the CPU.
    fn vram_of(&self, gpus: &[u32], reservation: Option<&Reservation>) -> Option<Vram> {
        let (gpu, reservation) = (self.gpu_of(gpus)?, reservation?);
        let held = self.gpus.ledger().held(reservation.ticket);
        let held_mib = held.iter().find(|on| on.index == gpu.index)?.held_mib;
        Some(Vram { held_mib, total_mib: gpu.vram_mib })
    }

    /// The first of these GPUs, if any.
    fn gpu_of(&self, gpus: &[u32]) -> Option<&Gpu> {
        let first = gpus.first()?;
        self.gpus.list().iter().find(|gpu| gpu.index == *first)
    }

    async fn start(
        &self,
        model: &Model,
        lease: Option<&LeaseRef>,
        ahead: &mut Option<Fetched>,
        reservation: Option<Reservation>,
    ) -> Result<(Loaded, LoadTimings), JobError> {
        let version = &model.spec.version;
        let spec = &version.spec;
        let fetched = match ahead.take() {
            Some(fetched) => fetched,
            None => self.fetch_for(model, lease, !model.is_growing()).await?,
        };
        let Fetched { secrets, environment, package, weights, took: (environment_took, weights_took) } = fetched;
        let home = model.folder.home().map_err(|error| infra(format!("cannot create scratch space: {error}")))?;
        let gpus = reservation.as_ref().map_or_else(Vec::new, |reservation| reservation.gpus.clone());
        let is_boxed = self.sandbox.is_alone();
        // Without a separate network namespace, loopback is the machine's: a server there has either full network
        // access or none.
        let is_served = matches!(spec.runner, RunnerKind::Server(_) | RunnerKind::Runpod) && !is_boxed;
        let weight_files = weights.iter().flat_map(|set| std::iter::once(&set.folder).chain(&set.blobs).cloned());
        let reach = Reach {
            reads: [environment.folder.clone(), package.folder.clone()]
                .into_iter()
                .chain(environment.base.iter().cloned())
                .chain(weight_files)
                .collect(),
            writes: vec![model.folder.work(), model.folder.inputs()],
            folder: package.folder.clone(),
            network: spec.network || is_served,
            devices: self.gpus.devices(&gpus),
            uid: model.folder.uid,
        };
        let launch = Launch {
            python: environment.python.clone(),
            ours: environment.ours.clone(),
            sandbox: Arc::clone(&self.sandbox),
            reach,
            home: home.path().to_owned(),
            scratch: model.folder.work(),
            scratch_bytes: self.scratch_bytes,
            runner: spec.runner.clone(),
            env: spec.env.clone(),
            secrets,
            weights: weights.as_ref().map(|set| set.folder.clone()),
            output_to: None,
            entry: spec.entry.clone(),
            max_concurrency: spec.max_concurrency,
            max_batch_size: spec.max_batch_size,
            max_wait: Duration::try_from_secs_f64(spec.max_wait_ms / 1_000.0).unwrap_or_default(),
            visible: self.gpus.names(&gpus, is_boxed),
            vram: self.vram_of(&gpus, reservation.as_ref()),
        };
        let ticket = reservation.as_ref().map(|reservation| reservation.ticket);
        let alone = model.has_whole_gpus() || model.alone.load(Ordering::SeqCst);
        let span = tracing::info_span!("runner.load", endpoint.id = %version.name, endpoint.version = version.version);
        let loading = Runner::start(&launch, reservation, self.load_timeout).instrument(span);
        let runner = match loading.await {
            Ok(runner) => Arc::new(runner),
            Err(error) => {
                if error.is_cuda_fault() {
                    self.gpus.try_out(&gpus, &launch.ours);
                    self.gpus.tried(&gpus).await;
                }
                return Err(self.blamed(start_failure(error), &gpus));
            }
        };
        tracing::info!(endpoint.id = %version.name, version = version.version, runner.pid = runner.pid, "runner loaded");
        let started = Instant::now();
        warmup::run(&runner, spec, home.path(), self.load_timeout, &self.gpus).await?;
        let warmup = started.elapsed();
        if let (Some(ticket), false) = (ticket, spec.warmup.is_empty()) {
            let held_mib = self.gpus.ledger().settle(ticket);
            tracing::info!(endpoint.id = %version.name, version = version.version, held_mib, "warmed up");
        }
        let timings = LoadTimings {
            environment: environment_took,
            weights: weights_took,
            boot: runner.boot,
            load: runner.load,
            warmup,
        };
        model.loaded_in(timings.boot + timings.load + timings.warmup);
        Ok((
            Loaded {
                runner,
                ticket,
                gpus,
                alone,
                timings,
                _environment: environment,
                _package: package,
                _weights: weights,
                _home: home,
            },
            timings,
        ))
    }

    fn known(&self) -> Vec<Arc<Model>> {
        self.known_endpoints().iter().flat_map(|endpoint| endpoint.models()).collect()
    }

    fn known_endpoints(&self) -> Vec<Arc<Endpoint>> {
        lock(&self.endpoints).values().filter_map(|cell| cell.get().cloned()).collect()
    }

    /// Stops every runner.
    pub(crate) async fn stop(&self) {
        let mut loads = std::mem::take(&mut *lock(&self.loads));
        loads.shutdown().await;
        let stops = self.known().into_iter().map(|model| async move {
            if let Some(loaded) = model.loaded.lock().await.take() {
                loaded.runner.stop().await;
            }
        });
        futures::future::join_all(stops).await;
    }
}

impl Model {
    /// The memory to reserve for it; a whole GPU once it has run out of memory next to other models.
    fn need(&self) -> Need {
        let vram = self.spec.version.spec.vram_need(lock(&self.learned_mib).clone());
        Need { vram, gpus: self.gpu_count(), is_all: self.alone.load(Ordering::SeqCst) }
    }

    /// Its load time; `None` while it is not loaded.
    fn took_loading(&self) -> Option<Duration> {
        let loaded = self.loaded.try_lock().ok()?;
        let LoadTimings { boot, load, warmup, .. } = loaded.as_ref().filter(|loaded| !loaded.runner.is_gone())?.timings;
        Some(boot + load + warmup)
    }

    /// Whether it stays loaded without jobs, unless a GPU is reserved for a job that has waited too long.
    fn is_kept_warm(&self) -> bool {
        let keep_warm = Duration::from_secs(self.spec.version.spec.keep_warm_s);
        lock(&self.used).elapsed() < keep_warm || self.kept.load(Ordering::SeqCst) && self.is_first()
    }

    fn ticket(&self) -> Option<Ticket> {
        self.loaded.try_lock().ok()?.as_ref()?.ticket
    }

    /// The cost of its eviction: its load time, divided by how long it has been idle.
    fn value(&self) -> Option<Idle> {
        let loaded = self.loaded.try_lock().ok()?;
        let loaded = loaded.as_ref()?;
        let idle_s = lock(&self.used).elapsed().as_secs_f64();
        let load_s = (loaded.timings.boot + loaded.timings.load + loaded.timings.warmup).as_secs_f64();
        Some(Idle { ticket: loaded.ticket?, value: load_s / (1.0 + idle_s) })
    }
}

/// Whether the endpoint has no loaded or needed model; if so, removes its models.
fn is_forgotten(endpoint: &Endpoint) -> bool {
    let is_idle = endpoint.models().iter().all(|model| model.users() == 0 && !model.is_loaded());
    if is_idle {
        endpoint.forget();
    }
    is_idle
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
