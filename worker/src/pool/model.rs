//! Models: the processes of an endpoint version, loaded or not, and the guards that keep them.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stokehold_protocol::gateway::StartPhase;
use stokehold_protocol::now_ms;
use stokehold_vram::{Idle, Need, Ticket};

use super::endpoint::Endpoint;
use crate::environment::Environment;
use crate::package::Package;
use crate::runner::Runner;
use crate::scratch::Home;
use crate::turns::Turns;
use crate::weights::WeightSet;

/// A model: one process of an endpoint version, loaded or not.
pub(crate) struct Model {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) turns: Arc<Turns>,
    /// Number of attempts that need it. It is evicted only if there are none.
    pub(super) users: AtomicUsize,
    pub(super) used: Mutex<Instant>,
    /// When a run last ended, the first job arrived, or the model was loaded.
    pub(super) moved: Mutex<Instant>,
    /// Whether it is an additional model that is not ready yet and takes no jobs.
    pub(super) growing: AtomicBool,
    /// Whether it is being loaded.
    loading: AtomicBool,
    /// The phase of the load, and its start; `None` if it is not being loaded.
    pub(super) phase: Mutex<Option<(StartPhase, Instant)>>,
    /// Whether it needs a GPU for itself because it ran out of memory next to others.
    pub(super) alone: AtomicBool,
    pub(super) loaded: tokio::sync::Mutex<Option<Loaded>>,
    /// Its GPUs while it is loaded, and the number of runs on them: a claim of one of these GPUs waits until there are
    /// none.
    pub(super) on: Mutex<Vec<u32>>,
    pub(super) runs: AtomicUsize,
}

/// A model's runner, with the resources that it needs.
pub(super) struct Loaded {
    pub(super) runner: Arc<Runner>,
    /// The reservation of the runner's process, and its GPUs.
    pub(super) ticket: Option<Ticket>,
    pub(super) gpus: Vec<u32>,
    pub(super) alone: bool,
    pub(super) timings: LoadTimings,
    pub(super) _environment: Environment,
    pub(super) _package: Package,
    pub(super) _weights: Option<WeightSet>,
    pub(super) _home: Home,
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

/// An attempt's use of a model, which prevents its eviction.
pub(crate) struct ModelGuard(pub(super) Arc<Model>);

impl Deref for ModelGuard {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.0
    }
}

impl ModelGuard {
    /// The model, without preventing its eviction.
    pub(crate) fn here(&self) -> Arc<Model> {
        Arc::clone(&self.0)
    }
}

impl Drop for ModelGuard {
    fn drop(&mut self) {
        *self.0.used.lock() = Instant::now();
        let left = self.0.users.fetch_sub(1, Ordering::SeqCst) - 1;
        if left < self.0.endpoint.at_once() {
            self.0.endpoint.frees.fetch_add(1, Ordering::SeqCst);
            self.0.endpoint.freed.notify_one();
        }
    }
}

/// An additional model that is being loaded, until dropped. A slot is set aside for it.
pub(super) struct Growing(pub(super) ModelGuard);

impl Drop for Growing {
    fn drop(&mut self) {
        self.0.growing.store(false, Ordering::SeqCst);
        self.0.endpoint.slots.planned(1);
    }
}

/// Marks a model as being loaded, until dropped.
pub(super) struct Loading<'a>(&'a Model);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        *self.0.moved.lock() = Instant::now();
        *self.0.phase.lock() = None;
        self.0.loading.store(false, Ordering::SeqCst);
    }
}

impl Model {
    pub(super) fn new(endpoint: &Arc<Endpoint>) -> Self {
        let spec = &endpoint.spec.version.spec;
        Self {
            turns: Turns::new(spec.max_concurrency, spec.max_batch_size, Arc::clone(&endpoint.slots)),
            endpoint: Arc::clone(endpoint),
            users: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            moved: Mutex::new(Instant::now()),
            growing: AtomicBool::new(false),
            loading: AtomicBool::new(false),
            phase: Mutex::default(),
            alone: AtomicBool::new(false),
            loaded: tokio::sync::Mutex::default(),
            on: Mutex::default(),
            runs: AtomicUsize::new(0),
        }
    }

    /// Records the duration and outcome of a run.
    pub(crate) fn ran(&self, took: Duration, succeeded: bool) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.endpoint.latency.lock().ran(took_ms, succeeded.then(now_ms));
        *self.moved.lock() = Instant::now();
    }

    pub(super) fn users(&self) -> usize {
        self.users.load(Ordering::SeqCst)
    }

    /// Whether it is an additional model that is not ready.
    pub(super) fn is_growing(&self) -> bool {
        self.growing.load(Ordering::SeqCst)
    }

    /// Whether it is being loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.load(Ordering::SeqCst)
    }

    /// Marks it as being loaded.
    pub(super) fn begins_to_load(&self) -> Loading<'_> {
        self.loading.store(true, Ordering::SeqCst);
        Loading(self)
    }

    /// Whether its runner is running.
    pub(crate) fn is_ready(&self) -> bool {
        self.loaded.try_lock().is_ok_and(|loaded| loaded.as_ref().is_some_and(|loaded| !loaded.runner.is_gone()))
    }

    /// 0: its runner is running; 1: it is being loaded; 2: neither.
    pub(super) fn readiness(&self) -> u8 {
        match (self.is_loading(), self.is_loaded()) {
            (true, _) => 1,
            (false, true) => 0,
            (false, false) => 2,
        }
    }

    /// Whether it can start one more job immediately.
    pub(super) fn is_free(&self) -> bool {
        let is_ready = !self.is_growing() && !self.is_loading() && self.is_loaded();
        is_ready && self.users() < self.turns.at_once() && self.may_begin()
    }

    /// Whether its next batched call waits for more jobs.
    pub(super) fn is_gathering(&self) -> bool {
        let is_gathering = |loaded: &Loaded| loaded.runner.is_gathering();
        self.loaded.try_lock().is_ok_and(|loaded| loaded.as_ref().is_some_and(is_gathering))
    }

    /// Whether it has been idle for longer than its load time, so that an additional model may replace it.
    pub(super) fn is_long_unused(&self) -> bool {
        self.took_loading().is_none_or(|took| self.used.lock().elapsed() > took)
    }

    /// Whether it is the first of its endpoint's models.
    pub(super) fn is_first(&self) -> bool {
        self.endpoint.models.lock().first().is_some_and(|first| std::ptr::eq(first.as_ref(), self))
    }

    /// Whether a run may start on its GPUs: none of them is hot, faulty or being tested. `true` without GPUs.
    pub(crate) fn may_begin(&self) -> bool {
        self.endpoint.gpus.ledger().are_open(&self.on.lock())
    }

    /// Whether other models of the endpoint are ready and may start a run.
    pub(crate) fn has_siblings(&self) -> bool {
        let is_other = |model: &Arc<Model>| !std::ptr::eq(model.as_ref(), self);
        self.endpoint.models().iter().any(|model| is_other(model) && model.readiness() == 0 && model.may_begin())
    }

    /// Completes when another model can start a job that waits at this one.
    pub(crate) async fn better_elsewhere(&self) {
        let mut passed_on = 0;
        loop {
            self.endpoint.freed.notified().await;
            if self.is_better_elsewhere() {
                return;
            }
            // A job that stays passes the notification on, once, so that two jobs do not wake each other forever.
            let frees = self.endpoint.frees.load(Ordering::SeqCst);
            if frees != passed_on && self.has_free_sibling() {
                passed_on = frees;
                self.endpoint.freed.notify_one();
            }
        }
    }

    /// Whether a job that waits here should move to another model: this one cannot start it now, and another can.
    pub(crate) fn is_better_elsewhere(&self) -> bool {
        let begins_here = self.users() <= self.turns.at_once() && !self.is_loading() && self.may_begin();
        !begins_here && self.has_free_sibling()
    }

    fn has_free_sibling(&self) -> bool {
        self.endpoint.models().iter().any(|other| !std::ptr::eq(other.as_ref(), self) && other.is_free())
    }

    /// Whether it is loaded. A model that is being loaded holds its lock and counts as loaded.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.try_lock().map_or(true, |loaded| loaded.as_ref().is_some_and(|loaded| !loaded.runner.is_gone()))
    }

    /// The memory to reserve for it; a whole GPU once it has run out of memory next to other models.
    pub(super) fn need(&self) -> Need {
        let vram = self.endpoint.spec.version.spec.vram_need(self.endpoint.learned_mib.lock().clone());
        Need { vram, gpus: self.endpoint.gpu_count(), is_all: self.alone.load(Ordering::SeqCst) }
    }

    /// Its load time; `None` while it is not loaded.
    pub(super) fn took_loading(&self) -> Option<Duration> {
        let loaded = self.loaded.try_lock().ok()?;
        let LoadTimings { boot, load, warmup, .. } = loaded.as_ref().filter(|loaded| !loaded.runner.is_gone())?.timings;
        Some(boot + load + warmup)
    }

    /// Whether it stays loaded without jobs, unless a GPU is reserved for a job that has waited too long.
    pub(super) fn is_kept_warm(&self) -> bool {
        let keep_warm = Duration::from_secs(self.endpoint.spec.version.spec.keep_warm_s);
        self.used.lock().elapsed() < keep_warm || self.endpoint.kept.load(Ordering::SeqCst) && self.is_first()
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.loaded.try_lock().ok()?.as_ref()?.ticket
    }

    /// The cost of its eviction: its load time, divided by how long it has been idle.
    pub(super) fn value(&self) -> Option<Idle> {
        let loaded = self.loaded.try_lock().ok()?;
        let loaded = loaded.as_ref()?;
        let idle_s = self.used.lock().elapsed().as_secs_f64();
        let load_s = (loaded.timings.boot + loaded.timings.load + loaded.timings.warmup).as_secs_f64();
        Some(Idle { ticket: loaded.ticket?, value: load_s / (1.0 + idle_s) })
    }
}
