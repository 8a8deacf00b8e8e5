//! Endpoint versions and their models. While the jobs that wait here and in the queue would wait longer than another
//! model takes to load, additional models are loaded, as far as there are free slots and memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stokehold_protocol::gateway::{ModelRef, RunnerSpec};
use tokio::sync::Notify;

use super::model::{Growing, Model, ModelGuard};
use crate::gpus::Gpus;
use crate::latency::Latency;
use crate::scratch::EndpointFolder;
use crate::turns::Slots;

/// Pause after there was no room for an additional model.
const GROW_AGAIN: Duration = Duration::from_secs(5);

/// Assumed load and run times before the first measurement.
const LOAD_PRIOR: Duration = Duration::from_secs(10);
const RUN_PRIOR: Duration = Duration::from_secs(1);

/// Time for which the number of queued jobs, which leases report, is used.
const BEHIND_FOR: Duration = Duration::from_secs(60);

/// One endpoint version.
pub(crate) struct Endpoint {
    pub(super) tenant: String,
    pub(super) spec: RunnerSpec,
    /// Folders that its runners read and write.
    pub(super) folder: EndpointFolder,
    /// Indices of the GPUs that it may use.
    pub(super) usable_gpus: Vec<u32>,
    /// All GPUs of this worker.
    pub(super) gpus: Gpus,
    pub(super) slots: Arc<Slots>,
    /// Whether the gateway requests that it stay loaded even without jobs.
    pub(super) kept: AtomicBool,
    /// Whether its environment and package were fetched ahead.
    pub(super) is_fetched: AtomicBool,
    pub(super) latency: Mutex<Latency>,
    /// Measured memory need in MiB, here or on other workers, by GPU model.
    pub(super) learned_mib: Mutex<BTreeMap<String, u64>>,
    /// The part of it that the gateway has.
    pub(super) reported_mib: Mutex<BTreeMap<String, u64>>,
    /// When the gateway last reset the measured needs, in Unix milliseconds.
    forgotten_ms: AtomicU64,
    pub(super) models: Mutex<Vec<Arc<Model>>>,
    /// The last load time.
    load: Mutex<Option<Duration>>,
    /// When there was no room for an additional model.
    crowded: Mutex<Option<Instant>>,
    /// Number of queued jobs that could start, as reported with the last leases, and when.
    behind: Mutex<Option<(u64, Instant)>>,
    /// Notified when a model can start one more job; a job that waits at another model moves there.
    pub(super) freed: Notify,
    /// Number of such notifications.
    pub(super) frees: AtomicU64,
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
            reported_mib: Mutex::new(learned_mib.clone()),
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

    /// Records a measured memory need on this GPU model. Returns whether it exceeds the known one.
    pub(super) fn learn(&self, gpu: &str, need_mib: u64) -> bool {
        let mut learned = self.learned_mib.lock();
        let known = learned.entry(gpu.to_owned()).or_default();
        let is_more = *known < need_mib;
        *known = need_mib.max(*known);
        is_more
    }

    /// Resets the needs that were measured before `at_ms`, once.
    pub(super) fn forget_needs(&self, at_ms: u64) {
        if self.forgotten_ms.fetch_max(at_ms, Ordering::SeqCst) >= at_ms {
            return;
        }
        self.learned_mib.lock().clear();
        self.reported_mib.lock().clear();
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
        self.models.lock().clone()
    }

    /// Removes its models.
    pub(super) fn forget(&self) {
        self.models.lock().clear();
    }

    /// A model for one more job: preferably one that can start it at once, of these one whose next batched call waits
    /// for more jobs; else the ready or loading one with the fewest jobs, else a new one. Never one on a GPU that
    /// accepts no runs, or an additional one that is not ready.
    pub(super) fn model(self: &Arc<Self>) -> ModelGuard {
        let mut models = self.models.lock();
        models.retain(|model| model.users() > 0 || model.is_loaded());
        let usable = models.iter().filter(|model| model.may_begin() && !model.is_growing());
        let model = match usable
            .min_by_key(|model| (!model.is_free(), model.readiness(), !model.is_gathering(), model.users()))
        {
            Some(best) => Arc::clone(best),
            None => self.another(&mut models),
        };
        // Count under the lock, so that two concurrent jobs each get a model that can start them.
        let users = model.users.fetch_add(1, Ordering::SeqCst) + 1;
        if users == 1 {
            *model.moved.lock() = Instant::now();
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

    /// Records the number of queued jobs behind the leased ones.
    pub(super) fn has_behind(&self, jobs: u64) {
        *self.behind.lock() = Some((jobs, Instant::now()));
    }

    /// Additional models that are worth loading now.
    pub(super) fn grow(self: &Arc<Self>) -> Vec<Growing> {
        if self.crowded.lock().is_some_and(|since| since.elapsed() < GROW_AGAIN) {
            return Vec::new();
        }
        let mut models = self.models.lock();
        let missing = self.worth(&models).min(self.slots.count()).saturating_sub(models.len());
        // The load counts as a user of the model, because no job uses it before it is ready.
        let grow = |_| {
            let model = self.another(&mut models);
            model.users.store(1, Ordering::SeqCst);
            model.growing.store(true, Ordering::SeqCst);
            Growing(ModelGuard(model))
        };
        (0..self.slots.plan(missing)).map(grow).collect()
    }

    /// The number of models that the jobs here and in the queue justify: with that many, all jobs have started after
    /// the time to load a model. With n models that run k jobs at once, n * k jobs start immediately, and each other
    /// job waits for one run per n * k jobs before it, so `(jobs - n * k) * run / (n * k) <= load`. Example: 400 jobs
    /// of 0.1 s, one at a time, with a load of 3 s: 13 models.
    fn worth(&self, models: &[Arc<Model>]) -> usize {
        let behind = *self.behind.lock();
        let behind = behind.filter(|(_, since)| since.elapsed() < BEHIND_FOR).map_or(0, |(jobs, _)| jobs);
        let at_work: Vec<&Arc<Model>> = models.iter().filter(|model| !model.is_growing()).collect();
        let jobs = at_work.iter().map(|model| model.users() as u64).sum::<u64>() + behind;
        let load_s = self.load.lock().unwrap_or(LOAD_PRIOR).as_secs_f64();
        let mean = self.latency.lock().mean_ms().map(Duration::from_millis);
        // Runs take at least as long as no run has ended.
        let is_busy = |model: &&&Arc<Model>| model.users() > 0 && !model.is_loading();
        let still = at_work.iter().filter(is_busy).map(|model| model.moved.lock().elapsed()).min();
        let run_s = mean.unwrap_or(RUN_PRIOR).max(still.unwrap_or_default()).as_secs_f64();
        let worth = jobs as f64 * run_s / (self.at_once() as f64 * (load_s + run_s));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let worth = worth.ceil() as usize;
        worth
    }

    /// Number of jobs that one model runs concurrently.
    pub(crate) fn jobs_at_once(&self) -> u32 {
        u32::try_from(self.at_once()).unwrap_or(u32::MAX)
    }

    pub(super) fn at_once(&self) -> usize {
        let spec = &self.spec.version.spec;
        spec.max_concurrency.max(1) as usize * spec.max_batch_size.max(1) as usize
    }

    /// Records the load time of a model.
    pub(super) fn loaded_in(&self, took: Duration) {
        *self.load.lock() = Some(took);
    }

    /// Records that there was no room for an additional model.
    pub(crate) fn cannot_grow(&self) {
        *self.crowded.lock() = Some(Instant::now());
    }

    /// The folders of runs and their inputs.
    pub(crate) fn folder(&self) -> &EndpointFolder {
        &self.folder
    }

    /// Maximum number of jobs in one call of the handler.
    pub(crate) fn max_batch_size(&self) -> u32 {
        self.spec.version.spec.max_batch_size
    }

    pub(super) fn gpu_count(&self) -> usize {
        self.spec.version.spec.demands.gpus as usize
    }

    /// Whether it never shares a GPU.
    pub(super) fn has_whole_gpus(&self) -> bool {
        self.gpu_count() > 1
    }
}
