//! Status of the models, and their measured memory needs.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stokehold_protocol::gateway::{ForgottenNeeds, LearnedNeed, ModelRef, ModelState, ModelStatus, Offer, WarmModel};
use stokehold_protocol::vram::sold_gib;

use super::Pool;
use super::model::Model;

/// Maximum number of loaded models in a lease request.
const WARM_MAX: usize = 32;

impl Pool {
    /// The loaded models as `name@version`.
    pub(crate) fn loaded_names(&self) -> Vec<String> {
        let name = |model: &Arc<Model>| {
            format!("{}@{}", model.endpoint.spec.version.name, model.endpoint.spec.version.version)
        };
        let mut names: Vec<String> = self.known().iter().filter(|model| model.is_loaded()).map(name).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The capability to offer now.
    pub(crate) fn offer(&self) -> Offer {
        let gpus = self.reach();
        let reach_gib = gpus.iter().map(|gpu| gpu.reach_gib).max().unwrap_or(0);
        let (warm, cold_ms) = self.warm();
        Offer { reach_gib, cards: gpus, warm, cold_ms }
    }

    /// The loaded models that can take more jobs, most recently used first, and the average time to load one in
    /// milliseconds.
    fn warm(&self) -> (Vec<WarmModel>, u64) {
        let mut took: Vec<Duration> = Vec::new();
        let mut warm: Vec<(Instant, WarmModel)> = Vec::new();
        for endpoint in self.known_endpoints() {
            let (mut takes, mut card_gib, mut used) = (0, 0, None);
            // Concurrent loads of an endpoint slow each other down, so the shortest counts.
            took.extend(endpoint.models().iter().filter_map(|model| model.took_loading()).min());
            for model in endpoint.models() {
                let more = if model.is_loaded() && model.may_begin() { self.takes(&model) } else { 0 };
                if more > 0 {
                    (takes, card_gib) = (takes + more, self.smallest_gpu_gib(&model).max(card_gib));
                    used = used.max(Some(*model.used.lock()));
                }
            }
            warm.extend(used.map(|used| (used, WarmModel { model: endpoint.named(), takes, card_gib })));
        }
        let cold_ms = took.iter().sum::<Duration>().as_millis() / took.len().max(1) as u128;
        warm.sort_by_key(|(used, _)| Reverse(*used));
        warm.truncate(WARM_MAX);
        (warm.into_iter().map(|(_, warm)| warm).collect(), u64::try_from(cold_ms).unwrap_or(u64::MAX))
    }

    /// VRAM class of the smallest GPU that a model is on; 0 on the CPU.
    fn smallest_gpu_gib(&self, model: &Model) -> u32 {
        let on = model.on.lock();
        let gpus = self.gpus.list().iter().filter(|gpu| on.contains(&gpu.index));
        gpus.map(|gpu| sold_gib(gpu.vram_mib)).min().unwrap_or(0)
    }

    /// Number of further jobs that a loaded model can take. 0 while there was recently no room for another version of
    /// it: its jobs come from the same lane and would be leased in vain.
    fn takes(&self, model: &Model) -> u32 {
        if self.crowded.lock().is_another_version(&model.endpoint.named()) {
            return 0;
        }
        let free = model.turns.capacity().saturating_sub(model.users());
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    /// All models that are loaded or being loaded, by name.
    pub(crate) fn models(&self) -> Vec<ModelStatus> {
        let mut models: Vec<ModelStatus> = self.known().iter().filter_map(|model| self.model_status(model)).collect();
        models.sort_by(|a, b| a.name.cmp(&b.name));
        models
    }

    fn model_status(&self, model: &Model) -> Option<ModelStatus> {
        let (state, ticket) = match model.loaded.try_lock() {
            // A model that is being loaded holds its lock.
            Err(_) => (ModelState::Loading, None),
            Ok(loaded) => {
                let loaded = loaded.as_ref().filter(|loaded| !loaded.runner.is_gone())?;
                let is_busy = model.users.load(Ordering::SeqCst) > 0;
                let state = if is_busy { ModelState::Busy } else { ModelState::Idle };
                (state, loaded.ticket)
            }
        };
        let latency = model.endpoint.latency.lock();
        let times = latency.mean_and_p95_ms();
        Some(ModelStatus {
            tenant: model.endpoint.tenant.clone(),
            name: format!("{}@{}", model.endpoint.spec.version.name, model.endpoint.spec.version.version),
            state,
            cards: ticket.map_or_else(Vec::new, |ticket| self.gpus.ledger().held(ticket)),
            succeeded_ms: latency.succeeded_ms,
            mean_ms: times.map(|(mean_ms, _)| mean_ms),
            p95_ms: times.map(|(_, p95_ms)| p95_ms),
        })
    }

    /// Measured needs of loaded models that exceed those known to the gateway. Records them here too. The need of a
    /// model that takes a share of every GPU is computed and never measured.
    pub(crate) fn learn(&self) -> Vec<LearnedNeed> {
        let learn = |model: &Arc<Model>| {
            if model.endpoint.spec.version.spec.vram_fraction.is_some() {
                return None;
            }
            let loaded = model.loaded.try_lock().ok()?;
            let loaded = loaded.as_ref()?;
            let (gpu, need_mib) = (self.gpu_of(&loaded.gpus)?, self.gpus.ledger().need_mib(loaded.ticket?)?);
            model.endpoint.learn(&gpu.name, need_mib);
            // Small increases are not reported.
            let reported_mib = model.endpoint.reported_mib.lock().get(&gpu.name).copied().unwrap_or(0);
            if need_mib <= reported_mib + reported_mib / 50 {
                return None;
            }
            let version = &model.endpoint.spec.version;
            Some(LearnedNeed {
                tenant: model.endpoint.tenant.clone(),
                endpoint: version.name.clone(),
                version: version.version,
                gpu: gpu.name.clone(),
                need_mib,
            })
        };
        self.known().iter().filter_map(learn).collect()
    }

    /// Resets the measured needs of these endpoints.
    pub(crate) fn forget(&self, forgotten: &[ForgottenNeeds]) {
        for ForgottenNeeds { tenant, endpoint: name, at_ms } in forgotten {
            for endpoint in self.known_endpoints() {
                if endpoint.tenant == *tenant && endpoint.spec.version.name == *name {
                    endpoint.forget_needs(*at_ms);
                }
            }
        }
    }

    /// Records the needs that the gateway has received.
    pub(crate) fn mark_reported(&self, learned: &[LearnedNeed]) {
        for need in learned {
            let LearnedNeed { tenant, endpoint, version, gpu, need_mib } = need.clone();
            if let Some(endpoint) =
                self.endpoints.lock().get(&ModelRef { tenant, endpoint, version }).and_then(|cell| cell.get())
            {
                endpoint.reported_mib.lock().insert(gpu, need_mib);
            }
        }
    }
}
