//! Endpoint versions as this worker knows them, and their models: each is a process of its own. Jobs that would wait for longer than another
//! model takes to load get another one, as far as there are slots and room.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stokehold_queue::gateway::{ModelRef, RunnerSpec};
use stokehold_queue::now_ms;

use super::{Loaded, lock};
use crate::latency::Latency;
use crate::scratch::EndpointFolder;
use crate::turns::{Slots, Turns};

/// After a model for which there was no room, the next one is tried this much later.
const GROW_AGAIN: Duration = Duration::from_secs(5);

/// One endpoint version.
pub(crate) struct Endpoint {
    pub(super) tenant: String,
    pub(super) spec: RunnerSpec,
    /// What its runners write and read beside their code.
    pub(super) folder: EndpointFolder,
    /// The cards here that it may have, by index.
    pub(super) cards: Vec<u32>,
    slots: Arc<Slots>,
    /// The gateway wants it loaded here, jobs or not.
    pub(super) kept: AtomicBool,
    /// Its environment and its package were fetched ahead.
    pub(super) is_fetched: AtomicBool,
    pub(super) latency: Mutex<Latency>,
    /// What it was seen to need of a card here or elsewhere, MiB; 0 when nobody has seen it.
    pub(super) seen_mib: AtomicU64,
    /// Of that, what the gateway knows.
    pub(super) told_mib: AtomicU64,
    models: Mutex<Vec<Arc<Model>>>,
    /// What loading took the last time.
    load: Mutex<Option<Duration>>,
    /// When there was no room for another model.
    crowded: Mutex<Option<Instant>>,
}

/// A model: one process of an endpoint version, loaded or not.
pub(crate) struct Model {
    endpoint: Arc<Endpoint>,
    pub(crate) turns: Arc<Turns>,
    /// Attempts that need it now; while there are any it is not evicted.
    pub(super) users: AtomicUsize,
    pub(super) used: Mutex<Instant>,
    /// When a run last ended, or a job came while there was none.
    moved: Mutex<Instant>,
    /// It ran out of memory beside others: it is to have a card for itself.
    pub(super) alone: AtomicBool,
    pub(super) loaded: tokio::sync::Mutex<Option<Loaded>>,
    /// Its cards while it is loaded, and the runs on them: who wants one of these for itself waits until there are none.
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
pub(crate) struct Using(pub(super) Arc<Model>);

impl Deref for Using {
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

impl Endpoint {
    pub(super) fn new(
        tenant: String,
        spec: RunnerSpec,
        folder: EndpointFolder,
        cards: Vec<u32>,
        seen_mib: u64,
        slots: Arc<Slots>,
    ) -> Arc<Self> {
        Arc::new(Self {
            tenant,
            spec,
            folder,
            cards,
            slots,
            kept: AtomicBool::new(false),
            is_fetched: AtomicBool::new(false),
            latency: Mutex::default(),
            seen_mib: AtomicU64::new(seen_mib),
            told_mib: AtomicU64::new(seen_mib),
            models: Mutex::default(),
            load: Mutex::default(),
            crowded: Mutex::default(),
        })
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

    /// A model for one job more: one that can begin it at once, else a new one if that is worth it, else the one with the fewest jobs.
    pub(super) fn model(self: &Arc<Self>) -> Using {
        let mut models = lock(&self.models);
        models.retain(|model| model.users() > 0 || model.is_loaded());
        let best = models.iter().min_by_key(|model| (model.users(), !model.is_loaded()));
        let model = match best {
            Some(best) if best.users() < self.at_once() || !self.is_worth_another(best, models.len()) => {
                Arc::clone(best)
            }
            _ => {
                let new = Arc::new(Model::new(self));
                models.push(Arc::clone(&new));
                new
            }
        };
        // Counted under the lock: of two jobs at once, each gets a model that can begin it.
        if model.users.fetch_add(1, Ordering::SeqCst) == 0 {
            *lock(&model.moved) = Instant::now();
        }
        Using(model)
    }

    /// Whether another model would have a job begin sooner than this one, the best of so many.
    fn is_worth_another(&self, best: &Model, models: usize) -> bool {
        if models >= self.slots.count() || lock(&self.crowded).is_some_and(|since| since.elapsed() < GROW_AGAIN) {
            return false;
        }
        let Some(load) = *lock(&self.load) else { return false };
        best.wait() > load
    }

    /// Jobs that one model runs at once.
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

    pub(super) fn gpus(&self) -> usize {
        self.spec.version.spec.demands.gpus as usize
    }

    /// It never shares a card.
    pub(super) fn has_whole_cards(&self) -> bool {
        self.gpus() > 1
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

    /// How long a job more would wait: for those before it at the usual pace, and at least as long as nothing has moved by now.
    fn wait(&self) -> Duration {
        let mean_ms = lock(&self.latency).mean_ms();
        let before = self.users() as u64 / self.at_once() as u64;
        Duration::from_millis(mean_ms * before).max(lock(&self.moved).elapsed())
    }

    /// Whether it is the first of its endpoint's models.
    pub(super) fn is_first(&self) -> bool {
        lock(&self.models).first().is_some_and(|first| std::ptr::eq(first.as_ref(), self))
    }

    /// Whether there are others of its endpoint that are loaded, or being loaded.
    pub(crate) fn has_siblings(&self) -> bool {
        self.models().iter().any(|model| !std::ptr::eq(model.as_ref(), self) && model.is_loaded())
    }

    /// Whether a job that waits for its turn here had better look again.
    pub(crate) fn is_better_elsewhere(&self) -> bool {
        let models = lock(&self.models);
        let is_free = |model: &Arc<Model>| !std::ptr::eq(model.as_ref(), self) && model.users() < self.at_once();
        models.iter().any(is_free) || self.is_worth_another(self, models.len())
    }

    /// A model that is being loaded holds its lock and counts as loaded.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.try_lock().map_or(true, |loaded| loaded.as_ref().is_some_and(|loaded| !loaded.runner.is_gone()))
    }
}
