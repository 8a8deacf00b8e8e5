//! Endpoint versions as this worker knows them, and their models: each is a process of its own. While the jobs that wait here and in the queue
//! would wait for longer than another model takes to load, more are loaded beside those that run, as far as there are free slots and room.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stokehold_queue::gateway::{ModelRef, RunnerSpec};
use stokehold_queue::now_ms;
use tokio::sync::Notify;

use super::{Loaded, lock};
use crate::latency::Latency;
use crate::scratch::EndpointFolder;
use crate::turns::{Slots, Turns};
use crate::usable_gpus::Gpus;

/// After a model for which there was no room, the next one is tried this much later.
const GROW_AGAIN: Duration = Duration::from_secs(5);

/// What loading and a run are taken to be before one was seen.
const LOAD_PRIOR: Duration = Duration::from_secs(10);
const RUN_PRIOR: Duration = Duration::from_secs(1);

/// For how long the number of jobs in the queue is used that came with the last leases.
const BEHIND_FOR: Duration = Duration::from_secs(60);

/// One endpoint version.
pub(crate) struct Endpoint {
    pub(super) tenant: String,
    pub(super) spec: RunnerSpec,
    /// What its runners write and read beside their code.
    pub(super) folder: EndpointFolder,
    /// The GPUs here that it may have, by index.
    pub(super) usable_gpus: Vec<u32>,
    /// All GPUs of this worker.
    gpus: Gpus,
    slots: Arc<Slots>,
    /// The gateway wants it loaded here, jobs or not.
    pub(super) kept: AtomicBool,
    /// Its environment and its package were fetched ahead.
    pub(super) is_fetched: AtomicBool,
    pub(super) latency: Mutex<Latency>,
    /// What it was seen to need here or elsewhere, MiB, by GPU model.
    pub(super) learned_mib: Mutex<BTreeMap<String, u64>>,
    /// Of that, what the gateway knows.
    pub(super) told_mib: Mutex<BTreeMap<String, u64>>,
    /// When the gateway last had it forgotten, unix milliseconds.
    forgotten_ms: AtomicU64,
    models: Mutex<Vec<Arc<Model>>>,
    /// What loading took the last time.
    load: Mutex<Option<Duration>>,
    /// When there was no room for another model.
    crowded: Mutex<Option<Instant>>,
    /// Jobs in the queue that could start, as the last leases said, and when.
    behind: Mutex<Option<(u64, Instant)>>,
    /// A model can begin one job more; a job that waits at another one moves there.
    freed: Notify,
    /// How often one could.
    frees: AtomicU64,
}

/// A model: one process of an endpoint version, loaded or not.
pub(crate) struct Model {
    endpoint: Arc<Endpoint>,
    pub(crate) turns: Arc<Turns>,
    /// Attempts that need it now; while there are any it is not evicted.
    pub(super) users: AtomicUsize,
    pub(super) used: Mutex<Instant>,
    /// When a run last ended, or a job came while there was none, or the model was loaded.
    moved: Mutex<Instant>,
    /// It is loaded beside others, and takes no jobs before it is ready.
    growing: AtomicBool,
    /// It is being loaded, by whomever.
    loading: AtomicBool,
    /// It ran out of memory beside others: it is to have a GPU for itself.
    pub(super) alone: AtomicBool,
    pub(super) loaded: tokio::sync::Mutex<Option<Loaded>>,
    /// Its GPUs while it is loaded, and the runs on them: who wants one of these for itself waits until there are none.
    pub(super) on: Mutex<Vec<u32>>,
    pub(super) runs: AtomicUsize,
}

impl Deref for Model {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// An attempt's hold on a model.
pub(crate) struct ModelGuard(pub(super) Arc<Model>);

impl Deref for ModelGuard {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.0
    }
}

impl ModelGuard {
    /// The model, without a hold on it.
    pub(crate) fn here(&self) -> Arc<Model> {
        Arc::clone(&self.0)
    }
}

impl Drop for ModelGuard {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
        let left = self.0.users.fetch_sub(1, Ordering::SeqCst) - 1;
        if left < self.0.at_once() {
            self.0.frees.fetch_add(1, Ordering::SeqCst);
            self.0.freed.notify_one();
        }
    }
}

/// A model that is to be loaded beside others, until dropped. A slot is set aside for it meanwhile.
pub(super) struct Growing(pub(super) ModelGuard);

impl Drop for Growing {
    fn drop(&mut self) {
        self.0.growing.store(false, Ordering::SeqCst);
        self.0.slots.planned(1);
    }
}

/// A model is being loaded, until dropped.
pub(super) struct Loading<'a>(&'a Model);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        *lock(&self.0.moved) = Instant::now();
        self.0.loading.store(false, Ordering::SeqCst);
    }
}

impl Endpoint {
    pub(super) fn new(
        tenant: String,
        spec: RunnerSpec,
        folder: EndpointFolder,
        (usable_gpus, gpus): (Vec<u32>, Gpus),
        slots: Arc<Slots>,
    ) -> Arc<Self> {
        let learned_mib = spec.needs_mib.clone();
        Arc::new(Self {
            tenant,
            spec,
            folder,
            usable_gpus,
            gpus,
            slots,
            kept: AtomicBool::new(false),
            is_fetched: AtomicBool::new(false),
            latency: Mutex::default(),
            told_mib: Mutex::new(learned_mib.clone()),
            forgotten_ms: AtomicU64::new(0),
            learned_mib: Mutex::new(learned_mib),
            models: Mutex::default(),
            load: Mutex::default(),
            crowded: Mutex::default(),
            behind: Mutex::default(),
            freed: Notify::new(),
            frees: AtomicU64::new(0),
        })
    }

    /// Takes note of what it was seen to need of a GPU of this model. Whether that is more than was known.
    pub(super) fn learn(&self, gpu: &str, need_mib: u64) -> bool {
        let mut learned = lock(&self.learned_mib);
        let known = learned.entry(gpu.to_owned()).or_default();
        let is_more = *known < need_mib;
        *known = need_mib.max(*known);
        is_more
    }

    /// Forgets what it was seen to need before `at_ms`, once.
    pub(super) fn forget_needs(&self, at_ms: u64) {
        if self.forgotten_ms.fetch_max(at_ms, Ordering::SeqCst) >= at_ms {
            return;
        }
        lock(&self.learned_mib).clear();
        lock(&self.told_mib).clear();
        for ticket in self.models().iter().filter_map(|model| model.ticket()) {
            self.gpus.ledger().forget_peak(ticket);
        }
    }

    pub(super) fn named(&self) -> ModelRef {
        let version = &self.spec.version;
        ModelRef { tenant: self.tenant.clone(), endpoint: version.name.clone(), version: version.version }
    }

    /// Its models.
    pub(super) fn models(&self) -> Vec<Arc<Model>> {
        lock(&self.models).clone()
    }

    /// Lets its models go.
    pub(super) fn forget(&self) {
        lock(&self.models).clear();
    }

    /// A model for one job more: one that can begin it at once, else of those that are ready, or being loaded, the one with the fewest jobs,
    /// and a new one where there is none. Never one on a GPU where nothing may begin, nor one that is loaded beside others and not ready.
    pub(super) fn model(self: &Arc<Self>) -> ModelGuard {
        let mut models = lock(&self.models);
        models.retain(|model| model.users() > 0 || model.is_loaded());
        let usable = models.iter().filter(|model| model.may_begin() && !model.is_growing());
        let model = match usable.min_by_key(|model| (!model.is_free(), model.readiness(), model.users())) {
            Some(best) => Arc::clone(best),
            None => self.another(&mut models),
        };
        // Counted under the lock: of two jobs at once, each gets a model that can begin it.
        let users = model.users.fetch_add(1, Ordering::SeqCst) + 1;
        if users == 1 {
            *lock(&model.moved) = Instant::now();
        }
        if users < self.at_once() && model.is_free() {
            self.freed.notify_one();
        }
        ModelGuard(model)
    }

    fn another(self: &Arc<Self>, models: &mut Vec<Arc<Model>>) -> Arc<Model> {
        let new = Arc::new(Model::new(self));
        models.push(Arc::clone(&new));
        new
    }

    /// So many jobs wait in the queue behind those that were leased.
    pub(super) fn has_behind(&self, jobs: u64) {
        *lock(&self.behind) = Some((jobs, Instant::now()));
    }

    /// Models that are worth loading beside those that there are. Each is to be loaded at once.
    pub(super) fn grow(self: &Arc<Self>) -> Vec<Growing> {
        if lock(&self.crowded).is_some_and(|since| since.elapsed() < GROW_AGAIN) {
            return Vec::new();
        }
        let mut models = lock(&self.models);
        let missing = self.worth(&models).min(self.slots.count()).saturating_sub(models.len());
        // A model that is not ready is nobody's to use: this counts as its user.
        let grow = |_| {
            let model = self.another(&mut models);
            model.users.store(1, Ordering::SeqCst);
            model.growing.store(true, Ordering::SeqCst);
            Growing(ModelGuard(model))
        };
        (0..self.slots.plan(missing)).map(grow).collect()
    }

    /// How many models the jobs are worth that are here or in the queue: with so many, all of them have begun after the time that
    /// loading a model takes. With n models of k places, n * k jobs begin at once and each of the others waits for a run per n * k jobs
    /// before it, so `(jobs - n * k) * run / (n * k) <= load`. 400 jobs of 0.1 s, one at a time, with a load of 3 s: 13 models.
    fn worth(&self, models: &[Arc<Model>]) -> usize {
        let behind = *lock(&self.behind);
        let behind = behind.filter(|(_, since)| since.elapsed() < BEHIND_FOR).map_or(0, |(jobs, _)| jobs);
        let at_work: Vec<&Arc<Model>> = models.iter().filter(|model| !model.is_growing()).collect();
        let jobs = at_work.iter().map(|model| model.users() as u64).sum::<u64>() + behind;
        let load_s = lock(&self.load).unwrap_or(LOAD_PRIOR).as_secs_f64();
        let mean = lock(&self.latency).mean_ms().map(Duration::from_millis);
        // Runs are at least as long as none has ended.
        let is_busy = |model: &&&Arc<Model>| model.users() > 0 && !model.is_loading();
        let still = at_work.iter().filter(is_busy).map(|model| lock(&model.moved).elapsed()).min();
        let run_s = mean.unwrap_or(RUN_PRIOR).max(still.unwrap_or_default()).as_secs_f64();
        let worth = jobs as f64 * run_s / (self.at_once() as f64 * (load_s + run_s));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let worth = worth.ceil() as usize;
        worth
    }

    /// Jobs that one model runs at once.
    pub(crate) fn jobs_at_once(&self) -> u32 {
        u32::try_from(self.at_once()).unwrap_or(u32::MAX)
    }

    fn at_once(&self) -> usize {
        let spec = &self.spec.version.spec;
        spec.max_concurrency.max(1) as usize * spec.max_batch_size.max(1) as usize
    }

    /// A model was loaded in so long.
    pub(super) fn loaded_in(&self, took: Duration) {
        *lock(&self.load) = Some(took);
    }

    /// There was no room for another model.
    pub(crate) fn cannot_grow(&self) {
        *lock(&self.crowded) = Some(Instant::now());
    }

    /// Where a run's files lie, and those of its input.
    pub(crate) fn folder(&self) -> &EndpointFolder {
        &self.folder
    }

    /// Jobs that one call of its handler takes.
    pub(crate) fn max_batch_size(&self) -> u32 {
        self.spec.version.spec.max_batch_size
    }

    pub(super) fn gpu_count(&self) -> usize {
        self.spec.version.spec.demands.gpus as usize
    }

    /// It never shares a GPU.
    pub(super) fn has_whole_gpus(&self) -> bool {
        self.gpu_count() > 1
    }
}

impl Model {
    fn new(endpoint: &Arc<Endpoint>) -> Self {
        let spec = &endpoint.spec.version.spec;
        Self {
            turns: Turns::new(spec.max_concurrency, spec.max_batch_size, Arc::clone(&endpoint.slots)),
            endpoint: Arc::clone(endpoint),
            users: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            moved: Mutex::new(Instant::now()),
            growing: AtomicBool::new(false),
            loading: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            loaded: tokio::sync::Mutex::default(),
            on: Mutex::default(),
            runs: AtomicUsize::new(0),
        }
    }

    /// A run took so long, and ended well or not.
    pub(crate) fn ran(&self, took: Duration, succeeded: bool) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        lock(&self.latency).ran(took_ms, succeeded.then(now_ms));
        *lock(&self.moved) = Instant::now();
    }

    pub(super) fn users(&self) -> usize {
        self.users.load(Ordering::SeqCst)
    }

    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Whether it is loaded beside others, and not ready.
    pub(super) fn is_growing(&self) -> bool {
        self.growing.load(Ordering::SeqCst)
    }

    /// Whether it is being loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.load(Ordering::SeqCst)
    }

    /// It is being loaded from now on.
    pub(super) fn begins_to_load(&self) -> Loading<'_> {
        self.loading.store(true, Ordering::SeqCst);
        Loading(self)
    }

    /// Whether its runner is there.
    pub(crate) fn is_ready(&self) -> bool {
        self.loaded.try_lock().is_ok_and(|loaded| loaded.as_ref().is_some_and(|loaded| !loaded.runner.is_gone()))
    }

    /// 0: its runner is there; 1: it is being loaded; 2: neither.
    fn readiness(&self) -> u8 {
        match (self.is_loading(), self.is_loaded()) {
            (true, _) => 1,
            (false, true) => 0,
            (false, false) => 2,
        }
    }

    /// Whether it can begin one job more at once.
    fn is_free(&self) -> bool {
        let is_ready = !self.is_growing() && !self.is_loading() && self.is_loaded();
        is_ready && self.users() < self.at_once() && self.may_begin()
    }

    /// Whether it has been unused for longer than it took to load: another model may have its room though that one only helps others.
    pub(super) fn is_long_unused(&self) -> bool {
        self.took_loading().is_none_or(|took| lock(&self.used).elapsed() > took)
    }

    /// Whether it is the first of its endpoint's models.
    pub(super) fn is_first(&self) -> bool {
        lock(&self.models).first().is_some_and(|first| std::ptr::eq(first.as_ref(), self))
    }

    /// Whether a run may begin on the GPUs that it is on: none of them is hot, failed or being tested. `true` where it is on none.
    pub(crate) fn may_begin(&self) -> bool {
        self.gpus.ledger().are_open(&lock(&self.on))
    }

    /// Whether there are others of its endpoint that are ready and may begin a run.
    pub(crate) fn has_siblings(&self) -> bool {
        let is_other = |model: &Arc<Model>| !std::ptr::eq(model.as_ref(), self);
        self.models().iter().any(|model| is_other(model) && model.readiness() == 0 && model.may_begin())
    }

    /// Completes when another model can begin a job that waits at this one.
    pub(crate) async fn better_elsewhere(&self) {
        let mut passed_on = 0;
        loop {
            self.freed.notified().await;
            if self.is_better_elsewhere() {
                return;
            }
            // A job that stays where it is passes the wake on to the next one, once: no two of them are to wake each other for ever.
            let frees = self.frees.load(Ordering::SeqCst);
            if frees != passed_on && self.has_free_sibling() {
                passed_on = frees;
                self.freed.notify_one();
            }
        }
    }

    /// Whether a job that waits here had better go to another model: this one cannot begin it now, and that one can.
    pub(crate) fn is_better_elsewhere(&self) -> bool {
        let begins_here = self.users() <= self.at_once() && !self.is_loading() && self.may_begin();
        !begins_here && self.has_free_sibling()
    }

    fn has_free_sibling(&self) -> bool {
        self.models().iter().any(|other| !std::ptr::eq(other.as_ref(), self) && other.is_free())
    }

    /// A model that is being loaded holds its lock and counts as loaded.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.try_lock().map_or(true, |loaded| loaded.as_ref().is_some_and(|loaded| !loaded.runner.is_gone()))
    }
}
