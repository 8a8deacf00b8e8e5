//! What is told of the models, and what was learned of them.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stokehold_queue::gateway::{LearnedNeed, ModelState, ModelStatus, WarmModel};

use super::{Model, Pool, lock};

/// Loaded models that the gateway is told of when it is asked for jobs.
const WARM_MAX: usize = 32;

impl Pool {
    /// The loaded models as `name@version`.
    pub(crate) fn loaded_names(&self) -> Vec<String> {
        let name = |model: &Arc<Model>| format!("{}@{}", model.spec.version.name, model.spec.version.version);
        let mut names: Vec<String> = self.known().iter().filter(|model| model.is_loaded()).map(name).collect();
        names.sort();
        names
    }

    /// The models that are loaded, the last used first, and what it took to load one, on average, milliseconds.
    pub(crate) fn warm(&self) -> (Vec<WarmModel>, u64) {
        let known = self.known();
        let mut warm: Vec<(Instant, WarmModel, Duration)> = Vec::new();
        for model in &known {
            let Some(loaded) = model.loaded.try_lock().ok() else { continue };
            let Some(loaded) = loaded.as_ref().filter(|loaded| !loaded.runner.is_gone()) else { continue };
            let version = &model.spec.version;
            let (tenant, endpoint) = (model.tenant.clone(), version.name.clone());
            let name = WarmModel { tenant, endpoint, version: version.version };
            warm.push((*lock(&model.used), name, loaded.took.boot + loaded.took.load + loaded.took.warmup));
        }
        warm.sort_by_key(|(used, ..)| Reverse(*used));
        warm.truncate(WARM_MAX);
        let took: Duration = warm.iter().map(|(.., took)| *took).sum();
        let cold_ms = took.as_millis() / warm.len().max(1) as u128;
        (warm.into_iter().map(|(_, name, _)| name).collect(), u64::try_from(cold_ms).unwrap_or(u64::MAX))
    }

    /// Every model that is loaded, or is being, by name.
    pub(crate) fn models(&self) -> Vec<ModelStatus> {
        let mut models: Vec<ModelStatus> = self.known().iter().filter_map(|model| self.model_status(model)).collect();
        models.sort_by(|a, b| a.name.cmp(&b.name));
        models
    }

    fn model_status(&self, model: &Model) -> Option<ModelStatus> {
        let (state, on) = match model.loaded.try_lock() {
            // A model that is being loaded holds its lock.
            Err(_) => (ModelState::Loading, None),
            Ok(loaded) => {
                let loaded = loaded.as_ref().filter(|loaded| !loaded.runner.is_gone())?;
                let is_busy = model.users.load(Ordering::SeqCst) > 0;
                let state = if is_busy { ModelState::Busy } else { ModelState::Idle };
                (state, loaded.card.zip(loaded.ticket))
            }
        };
        let on_card = on.and_then(|(_, ticket)| self.cards.ledger().held(ticket));
        let latency = lock(&model.latency);
        let times = latency.mean_and_p95_ms();
        Some(ModelStatus {
            name: format!("{}@{}", model.spec.version.name, model.spec.version.version),
            state,
            card: on.map(|(card, _)| card),
            held_mib: on_card.map_or(0, |(held_mib, _)| held_mib),
            seen_mib: on_card.and_then(|(_, seen_mib)| seen_mib),
            succeeded_ms: latency.succeeded_ms,
            mean_ms: times.map(|(mean_ms, _)| mean_ms),
            p95_ms: times.map(|(_, p95_ms)| p95_ms),
        })
    }

    /// What loaded models were seen to need more than the gateway knows, and takes note of it here.
    pub(crate) fn learn(&self) -> Vec<LearnedNeed> {
        let learn = |model: &Arc<Model>| {
            let loaded = model.loaded.try_lock().ok()?;
            let loaded = loaded.as_ref()?;
            let (card, need_mib) = (loaded.card?, self.cards.ledger().need_mib(loaded.ticket?)?);
            model.seen_mib.fetch_max(need_mib, Ordering::SeqCst);
            // Another MiB with every job is no news.
            let told_mib = model.told_mib.load(Ordering::SeqCst);
            if need_mib <= told_mib + told_mib / 50 {
                return None;
            }
            let version = &model.spec.version;
            Some(LearnedNeed {
                tenant: model.tenant.clone(),
                endpoint: version.name.clone(),
                version: version.version,
                gpu: self.cards.gpus().iter().find(|gpu| gpu.index == card)?.name.clone(),
                need_mib,
            })
        };
        self.known().iter().filter_map(learn).collect()
    }

    /// The gateway knows what these need.
    pub(crate) fn told(&self, learned: &[LearnedNeed]) {
        for need in learned {
            let key = (need.tenant.clone(), need.endpoint.clone(), need.version);
            if let Some(model) = lock(&self.models).get(&key).and_then(|cell| cell.get()) {
                model.told_mib.store(need.need_mib, Ordering::SeqCst);
            }
        }
    }
}
