//! The models this worker knows: what they are, whose turn it is, and their loaded runners.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stokehold_queue::gateway::{LeasedJob, RunnerSpec};
use stokehold_queue::job::{ErrorCode, JobError};
use tokio::sync::OnceCell;
use tracing::Instrument as _;

use crate::environment::{Environment, EnvironmentSpec, Environments};
use crate::gateway::{Error, Gateway};
use crate::ledger::{Ledger, Reservation, Ticket};
use crate::package::Packages;
use crate::runner::{Launch, RunEnd, Runner, StartError};
use crate::turns::{Slots, Turns};

/// Which model: tenant, endpoint, version.
type Key = (String, String, u32);

/// A model: one endpoint version.
pub(crate) struct Model {
    tenant: String,
    spec: RunnerSpec,
    pub(crate) turns: Arc<Turns>,
    /// Attempts that need it now; while there are any it is not evicted.
    users: AtomicUsize,
    used: Mutex<Instant>,
    loaded: tokio::sync::Mutex<Option<Loaded>>,
}

/// A model's runner, with what must stay while it lives.
struct Loaded {
    runner: Arc<Runner>,
    /// What the runner's process has reserved.
    ticket: Option<Ticket>,
    _environment: Environment,
    _home: tempfile::TempDir,
}

/// An attempt's hold on a model.
pub(crate) struct Using(Arc<Model>);

impl std::ops::Deref for Using {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.0
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A runner ready to run, and what it took to get there: nothing when it was warm.
pub(crate) struct Ready {
    pub(crate) runner: Arc<Runner>,
    pub(crate) environment: Duration,
    pub(crate) boot: Duration,
    pub(crate) load: Duration,
}

/// Why a model is not ready.
pub(crate) enum NotReady {
    /// The job is to be told.
    Job(JobError),
    /// No card has room now: another worker, or this one later, may have.
    NoRoom,
}

/// All models of this worker.
pub(crate) struct Pool {
    gateway: Arc<Gateway>,
    environments: Environments,
    packages: Packages,
    scratch: std::path::PathBuf,
    load_timeout: Duration,
    max_loaded: usize,
    ledger: Ledger,
    slots: Arc<Slots>,
    models: Mutex<HashMap<Key, Arc<OnceCell<Arc<Model>>>>>,
}

/// What a pool is made of.
pub(crate) struct PoolConfig {
    pub(crate) environments: Environments,
    pub(crate) packages: Packages,
    pub(crate) scratch: std::path::PathBuf,
    pub(crate) load_timeout: Duration,
    pub(crate) max_loaded: usize,
    pub(crate) ledger: Ledger,
    pub(crate) slots: Arc<Slots>,
}

/// Known models are few and small; past this many the idle ones are forgotten.
const MODELS_KNOWN: usize = 1_000;

impl Pool {
    pub(crate) fn new(gateway: Arc<Gateway>, config: PoolConfig) -> Self {
        Self {
            gateway,
            environments: config.environments,
            packages: config.packages,
            scratch: config.scratch,
            load_timeout: config.load_timeout,
            max_loaded: config.max_loaded,
            ledger: config.ledger,
            slots: config.slots,
            models: Mutex::default(),
        }
    }

    /// The model a job needs; asks the gateway the first time.
    pub(crate) async fn model(&self, job: &LeasedJob) -> Result<Using, JobError> {
        let key = (job.tenant.clone(), job.endpoint.clone(), job.version);
        let cell = {
            let mut models = lock(&self.models);
            if models.len() >= MODELS_KNOWN && !models.contains_key(&key) {
                models.retain(|_, cell| {
                    cell.get().is_none_or(|model| model.users.load(Ordering::SeqCst) > 0 || model.is_loaded())
                });
            }
            Arc::clone(models.entry(key).or_default())
        };
        let fetch = async || {
            let spec = self.gateway.runner_spec(&job.tenant, &job.endpoint, job.version).await?;
            Ok::<_, Error>(Arc::new(Model {
                tenant: job.tenant.clone(),
                turns: Turns::new(spec.version.spec.max_concurrency, Arc::clone(&self.slots)),
                spec,
                users: AtomicUsize::new(0),
                used: Mutex::new(Instant::now()),
                loaded: tokio::sync::Mutex::default(),
            }))
        };
        let model =
            cell.get_or_try_init(fetch).await.map_err(|error| infra(format!("what to run is not known: {error}")))?;
        model.users.fetch_add(1, Ordering::SeqCst);
        Ok(Using(Arc::clone(model)))
    }

    /// The model's runner, started if need be.
    pub(crate) async fn ready(&self, model: &Using) -> Result<Ready, NotReady> {
        let mut loaded = model.loaded.lock().await;
        if let Some(warm) = loaded.as_ref().filter(|loaded| !loaded.runner.is_gone()) {
            let runner = Arc::clone(&warm.runner);
            return Ok(Ready { runner, environment: Duration::ZERO, boot: Duration::ZERO, load: Duration::ZERO });
        }
        *loaded = None;
        let reservation = self.make_room(model).await?;
        let (new, ready) = self.start(model, reservation).await.map_err(NotReady::Job)?;
        *loaded = Some(new);
        Ok(ready)
    }

    async fn start(&self, model: &Model, reservation: Option<Reservation>) -> Result<(Loaded, Ready), JobError> {
        let (version, started) = (&model.spec.version, Instant::now());
        let spec = &version.spec;
        let environment =
            EnvironmentSpec { requirements_lock: spec.requirements_lock.clone(), python: spec.python.clone() };
        let progress =
            |phase| tracing::info!(endpoint.id = %version.name, version = version.version, "environment: {phase}");
        let (environment, package) = tokio::join!(
            self.environments.get(&environment, &progress),
            self.packages.get(&spec.package_sha256, spec.package_size_bytes, &model.spec.package_url),
        );
        let environment = environment.map_err(|error| failure(ErrorCode::EnvironmentFailed, error.to_string()))?;
        let package = match package {
            Ok(package) => package,
            // The URL lives for an hour, the model's entry longer: a fresh one is asked for before giving up.
            Err(first) => {
                let fresh = self.gateway.runner_spec(&model.tenant, &version.name, version.version).await;
                let url = fresh.map_err(|_| infra(format!("the package cannot be fetched: {first}")))?.package_url;
                let again = self.packages.get(&spec.package_sha256, spec.package_size_bytes, &url).await;
                again.map_err(|error| infra(format!("the package cannot be fetched: {error}")))?
            }
        };
        let environment_took = started.elapsed();
        let home = tempfile::Builder::new().prefix("home-").tempdir_in(&self.scratch);
        let home = home.map_err(|error| infra(format!("no scratch space: {error}")))?;
        let launch = Launch {
            python: environment.python.clone(),
            package,
            home: home.path().to_owned(),
            entry: spec.entry.clone(),
            max_concurrency: spec.max_concurrency,
            gpu: reservation.as_ref().map(|reservation| reservation.card),
        };
        let ticket = reservation.as_ref().map(|reservation| reservation.ticket);
        let span = tracing::info_span!("runner.load", endpoint.id = %version.name, endpoint.version = version.version);
        let loading = Runner::start(&launch, reservation, self.load_timeout).instrument(span);
        let runner = loading.await.map_err(start_failure)?;
        let runner = Arc::new(runner);
        tracing::info!(endpoint.id = %version.name, version = version.version, runner.pid = runner.pid, "runner loaded");
        let ready =
            Ready { runner: Arc::clone(&runner), environment: environment_took, boot: runner.boot, load: runner.load };
        Ok((Loaded { runner, ticket, _environment: environment, _home: home }, ready))
    }

    /// Reserves what the model declares, evicting idle runners, the longest unused first, until it fits. `None`: no card needed.
    async fn make_room(&self, model: &Using) -> Result<Option<Reservation>, NotReady> {
        let need_mib = vram_mib(model.spec.version.spec.vram_gib);
        let mut idle = self.idle();
        if need_mib == 0 {
            while self.loaded() >= self.max_loaded && !idle.is_empty() {
                self.evict(&idle.remove(0)).await;
            }
            return Ok(None);
        }
        loop {
            if let Some(reservation) = self.ledger.reserve(need_mib) {
                return Ok(Some(reservation));
            }
            if idle.is_empty() {
                return Err(NotReady::NoRoom);
            }
            self.evict(&idle.remove(0)).await;
        }
    }

    async fn evict(&self, model: &Model) {
        let Ok(mut loaded) = model.loaded.try_lock() else { return };
        if model.users.load(Ordering::SeqCst) > 0 {
            return;
        }
        if let Some(idle) = loaded.take() {
            tracing::info!(endpoint.id = %model.spec.version.name, "idle runner evicted");
            idle.runner.stop().await;
        }
    }

    /// Loaded models that nobody uses, the longest unused first.
    fn idle(&self) -> Vec<Arc<Model>> {
        let mut idle: Vec<Arc<Model>> = self.known();
        idle.retain(|model| model.users.load(Ordering::SeqCst) == 0 && model.is_loaded());
        idle.sort_by_key(|model| *lock(&model.used));
        idle
    }

    fn known(&self) -> Vec<Arc<Model>> {
        lock(&self.models).values().filter_map(|cell| cell.get().cloned()).collect()
    }

    fn loaded(&self) -> usize {
        self.known().iter().filter(|model| model.is_loaded()).count()
    }

    /// The loaded models as `name@version`.
    pub(crate) fn loaded_names(&self) -> Vec<String> {
        let name = |model: &Arc<Model>| format!("{}@{}", model.spec.version.name, model.spec.version.version);
        let mut names: Vec<String> = self.known().iter().filter(|model| model.is_loaded()).map(name).collect();
        names.sort();
        names
    }

    /// The largest VRAM class that could be loaded now, GiB.
    pub(crate) fn reach_gib(&self) -> u32 {
        let idle: Vec<Ticket> = self.idle().iter().filter_map(|model| model.ticket()).collect();
        self.ledger.reach_gib(&idle)
    }

    /// Stops every runner.
    pub(crate) async fn stop(&self) {
        let stops = self.known().into_iter().map(|model| async move {
            if let Some(loaded) = model.loaded.lock().await.take() {
                loaded.runner.stop().await;
            }
        });
        futures::future::join_all(stops).await;
    }
}

impl Model {
    fn ticket(&self) -> Option<Ticket> {
        self.loaded.try_lock().ok()?.as_ref()?.ticket
    }

    /// A model that is being loaded holds its lock and counts as loaded.
    fn is_loaded(&self) -> bool {
        self.loaded.try_lock().map_or(true, |loaded| loaded.as_ref().is_some_and(|loaded| !loaded.runner.is_gone()))
    }
}

fn vram_mib(gib: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most some hundred GiB, never negative"
    )]
    let mib = (gib.max(0.0) * 1024.0).ceil() as u64;
    mib
}

fn start_failure(error: StartError) -> JobError {
    match error {
        StartError::Spawn(why) => infra(format!("the runner could not be started: {why}")),
        StartError::Setup(raised, stderr) => JobError {
            code: ErrorCode::SetupFailed,
            class: raised.class,
            message: raised.message,
            traceback: Some(raised.traceback).filter(|text| !text.is_empty()),
            stderr: Some(stderr).filter(|text| !text.is_empty()),
        },
        StartError::TooSlow(limit) => failure(
            ErrorCode::SetupFailed,
            format!("importing the handler and setup() took longer than {} s", limit.as_secs()),
        ),
        StartError::Ended(end) => {
            let (code, class, what, stderr) = match end {
                RunEnd::Exited { code, stderr } => {
                    (ErrorCode::SetupFailed, String::new(), format!("exited with code {code}"), stderr)
                }
                RunEnd::Crashed { signal, stderr } => {
                    (ErrorCode::RunnerCrashed, signal.clone(), format!("died of {signal}"), stderr)
                }
                RunEnd::Broken { why, stderr } => {
                    (ErrorCode::Protocol, String::new(), format!("was stopped: {why}"), stderr)
                }
                RunEnd::Flooded { stderr, .. } | RunEnd::Failed { stderr, .. } => {
                    (ErrorCode::SetupFailed, String::new(), "was stopped".to_owned(), stderr)
                }
                RunEnd::Done { .. } | RunEnd::NotBegun => {
                    (ErrorCode::Protocol, String::new(), "ended".to_owned(), String::new())
                }
            };
            let stderr = Some(stderr).filter(|text| !text.is_empty());
            let message = format!("the handler's process {what} before setup() was done");
            JobError { class, stderr, ..failure(code, message) }
        }
    }
}

fn failure(code: ErrorCode, message: String) -> JobError {
    JobError { code, class: String::new(), message, traceback: None, stderr: None }
}

fn infra(message: String) -> JobError {
    failure(ErrorCode::Infra, message)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
