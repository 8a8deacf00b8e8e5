//! Room on GPUs: reservations for models, and evictions to make room.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stokehold_protocol::gateway::GpuCapability;
use stokehold_protocol::job::{ErrorCode, JobError};
use stokehold_vram::{Claim, Idle, Need, Reservation, Ticket};

use super::model::{Loaded, Model, ModelGuard};
use super::{NotReady, Pool};
use crate::failure::{failed, infra};

/// Timeout of a claim that waits for runs on its GPU to end.
const CLAIM_MAX: Duration = Duration::from_secs(120);

impl Pool {
    /// Reserves the memory that the model needs, and evicts idle runners until it fits. `None` if it needs no GPU.
    pub(super) async fn make_room(
        &self,
        model: &ModelGuard,
        claim: Option<Claim>,
    ) -> Result<Option<Reservation>, NotReady> {
        let need = model.need();
        if !need.vram.is_of_gpu() {
            return self.limit_loaded(model).await.map(|()| None);
        }
        let reservation = self.reserve(model, &need, claim).await;
        // An additional model must not keep jobs of others away.
        if !model.is_growing() {
            let mut crowded = self.crowded.lock();
            match &reservation {
                Ok(_) => crowded.had_room(&model.endpoint.named()),
                Err(NotReady::NoRoom) => crowded.had_none(
                    model.endpoint.named(),
                    need.vram.class_gib().unwrap_or(u32::MAX),
                    &model.endpoint.usable_gpus,
                ),
                // It would not fit on empty GPUs either, so other models may still be offered this memory.
                Err(_) => {}
            }
        }
        reservation.map(Some)
    }

    /// Evicts idle runners until one more model on the CPU may be loaded.
    async fn limit_loaded(&self, model: &ModelGuard) -> Result<(), NotReady> {
        let mut idle = self.idle();
        if model.is_growing() {
            idle.retain(|model| !model.is_kept_warm() && model.is_long_unused());
            // Allow as many as can run concurrently; this model is already counted.
            let most = self.max_loaded.max(self.slots.count());
            while self.loaded() > most {
                if idle.is_empty() || !self.evict(&idle.remove(0)).await {
                    return Err(NotReady::NoRoom);
                }
            }
            return Ok(());
        }
        // Least recently used first; models that should stay loaded come last.
        idle.sort_by_key(|model| model.is_kept_warm());
        while self.loaded() >= self.max_loaded && !idle.is_empty() {
            self.evict(&idle.remove(0)).await;
        }
        Ok(())
    }

    /// Reserves GPU memory, and evicts idle runners until it fits.
    async fn reserve(&self, model: &ModelGuard, need: &Need, claim: Option<Claim>) -> Result<Reservation, NotReady> {
        let ledger = self.gpus.ledger();
        if !ledger.could_hold(need, &model.endpoint.usable_gpus) {
            let need_mib = need.vram.least_mib();
            let message =
                format!("the model needs {need_mib} MiB of GPU memory, more than the largest GPU of this worker has");
            return Err(NotReady::Outgrown(failed(ErrorCode::OomGpu, message), need_mib));
        }
        if model.alone.load(Ordering::SeqCst) {
            return self.make_empty(model, need).await;
        }
        // The claim is for the VRAM class that was known; if the model needs more by now, it is handled like any other.
        if let Some(reservation) = claim.and_then(|claim| ledger.reserve_claimed(&claim, need)) {
            return Ok(reservation);
        }
        loop {
            if let Some(reservation) = ledger.reserve(need, &model.endpoint.usable_gpus) {
                return Ok(reservation);
            }
            // Memory of an exited process counts as free once a reading confirms it.
            if ledger.is_about_to_fit(need, &model.endpoint.usable_gpus) {
                if !self.gpus.read_now().await {
                    return Err(NotReady::NoRoom);
                }
                continue;
            }
            let mut idle = self.evictable();
            if model.is_growing() {
                idle.retain(|model| model.is_long_unused());
            }
            let values: Vec<Idle> = idle.iter().filter_map(|model| model.value()).collect();
            let Some(victims) = ledger.victims(need, &model.endpoint.usable_gpus, &values) else {
                // GPUs that are being tested may soon be available.
                if self.gpus.await_tests(&model.endpoint.usable_gpus).await {
                    continue;
                }
                // The queue knows the minimum need of a model over all GPUs. If it needs more on these, its leases do
                // not reflect the room here, and jobs would be leased and released repeatedly: make room for it now.
                if ledger.needs_more_than_its_class(need, &model.endpoint.usable_gpus) {
                    return self.make_empty(model, need).await;
                }
                return Err(NotReady::NoRoom);
            };
            if !self.evict_all(&idle, &victims).await {
                return Err(NotReady::NoRoom);
            }
        }
    }

    /// Claims a GPU for a model that needs it for itself: no new run starts there, running ones end, and idle models
    /// are evicted.
    async fn make_empty(&self, model: &ModelGuard, need: &Need) -> Result<Reservation, NotReady> {
        let claim = self.clear(need, &model.endpoint.usable_gpus, Some(&model.0)).await.ok_or(NotReady::NoRoom)?;
        self.gpus.ledger().reserve_claimed(&claim, need).ok_or(NotReady::NoRoom)
    }

    /// Claims some of these GPUs and makes room there. `None` if that fails.
    pub(crate) async fn claim(&self, need: &Need, on: &[u32]) -> Option<Claim> {
        self.clear(need, on, None).await
    }

    async fn clear(&self, need: &Need, on: &[u32], spared: Option<&Arc<Model>>) -> Option<Claim> {
        let ledger = self.gpus.ledger();
        let claim = ledger.claim(need, on, &self.ended)?;
        let until = Instant::now() + CLAIM_MAX;
        // A GPU that has become faulty will never be empty.
        while Instant::now() < until && ledger.are_open(&claim.gpus) {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if ledger.has_room_claimed(&claim, need) {
                return Some(claim);
            }
            let is_spared = |other: &Arc<Model>| spared.is_some_and(|spared| Arc::ptr_eq(other, spared));
            let is_on = |other: &Model| other.on.lock().iter().any(|gpu| claim.gpus.contains(gpu));
            let here = |other: &Arc<Model>| is_on(other) && !is_spared(other);
            let mut evicted = false;
            for other in self.known().into_iter().filter(here) {
                evicted = self.evict_if(&other, |other| other.runs.load(Ordering::SeqCst) == 0).await;
                if evicted {
                    break;
                }
            }
            if evicted || ledger.is_clearing(&claim.gpus) {
                self.gpus.read_now().await;
                continue;
            }
            tokio::select! {
                () = ended => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
        None
    }

    /// Evicts those victims that are still idle. `false` if none was.
    async fn evict_all(&self, idle: &[Arc<Model>], victims: &[Ticket]) -> bool {
        let mut evicted = false;
        for model in idle.iter().filter(|model| model.ticket().is_some_and(|ticket| victims.contains(&ticket))) {
            evicted |= self.evict(model).await;
        }
        evicted
    }

    /// Frees memory on GPUs that are short of it, as far as idle runners hold any, and kills the runners on faulty
    /// GPUs.
    pub(crate) async fn relieve(&self) {
        if self.gpus.any_faulty() {
            for model in self.known() {
                let failed = |loaded: &&Loaded| loaded.gpus.iter().any(|gpu| self.gpus.fault(*gpu).is_some());
                // A model that is loading there fails by itself.
                let runner = model
                    .loaded
                    .try_lock()
                    .ok()
                    .and_then(|loaded| Some(Arc::clone(&loaded.as_ref().filter(failed)?.runner)));
                if let Some(runner) = runner {
                    runner.kill().await;
                }
            }
        }
        for (gpu, short_mib) in self.gpus.short() {
            let idle = self.idle();
            let values: Vec<Idle> = idle.iter().filter_map(|model| model.value()).collect();
            let victims = self.gpus.ledger().relief(gpu, short_mib, &values);
            tracing::warn!(gpu.index = gpu, short_mib, evicting = victims.len(), "a GPU is short of memory");
            self.evict_all(&idle, &victims).await;
        }
    }

    /// Evicts a model. `false` if it is in use again or already gone.
    async fn evict(&self, model: &Model) -> bool {
        self.evict_if(model, |model| model.users.load(Ordering::SeqCst) == 0).await
    }

    async fn evict_if(&self, model: &Model, is_idle: impl Fn(&Model) -> bool) -> bool {
        let Ok(mut loaded) = model.loaded.try_lock() else { return false };
        if !is_idle(model) {
            return false;
        }
        let Some(idle) = loaded.take() else { return false };
        model.on.lock().clear();
        tracing::info!(endpoint.id = %model.endpoint.spec.version.name, "idle runner evicted");
        idle.runner.stop().await;
        true
    }

    /// Idle loaded models, least recently used first.
    fn idle(&self) -> Vec<Arc<Model>> {
        let mut idle: Vec<Arc<Model>> = self.known();
        idle.retain(|model| model.users.load(Ordering::SeqCst) == 0 && model.is_loaded());
        idle.sort_by_key(|model| *model.used.lock());
        idle
    }

    /// Idle models that need not stay loaded.
    fn evictable(&self) -> Vec<Arc<Model>> {
        let mut idle = self.idle();
        idle.retain(|model| !model.is_kept_warm());
        idle
    }

    fn loaded(&self) -> usize {
        self.known().iter().filter(|model| model.is_loaded()).count()
    }

    /// The largest VRAM class that could be loaded now, for each GPU. It leaves out what a model recently had no room
    /// for.
    pub(crate) fn reach(&self) -> Vec<GpuCapability> {
        let idle: Vec<Ticket> = self.evictable().iter().filter_map(|model| model.ticket()).collect();
        let mut gpus = self.gpus.ledger().reach(&idle);
        self.crowded.lock().withhold(&mut gpus);
        gpus
    }

    /// Attributes the error of a job to a faulty GPU if it ran on one.
    pub(crate) fn attribute_to_gpu(&self, error: JobError, gpus: &[u32]) -> JobError {
        match gpus.iter().find_map(|gpu| Some((gpu, self.gpus.fault(*gpu)?))) {
            Some((gpu, why)) => {
                JobError { stderr: error.stderr, ..infra(format!("GPU {gpu} has failed ({why}): {}", error.message)) }
            }
            None => error,
        }
    }
}
