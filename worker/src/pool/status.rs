//! What is told of the models, and what was learned of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stokehold_queue::gateway::{LearnedNeed, ModelState, ModelStatus};

use super::{Model, Pool, lock};

impl Pool {
    /// The loaded models as `name@version`.
    pub(crate) fn loaded_names(&self) -> Vec<String> {
        let name = |model: &Arc<Model>| format!("{}@{}", model.spec.version.name, model.spec.version.version);
        let mut names: Vec<String> = self.known().iter().filter(|model| model.is_loaded()).map(name).collect();
        names.sort();
        names
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

    /// What loaded models were seen to need more than was known of them, and takes note of it.
    pub(crate) fn learn(&self) -> Vec<LearnedNeed> {
        let learn = |model: &Arc<Model>| {
            let loaded = model.loaded.try_lock().ok()?;
            let loaded = loaded.as_ref()?;
            let (card, need_mib) = (loaded.card?, self.cards.ledger().need_mib(loaded.ticket?)?);
            // Another MiB with every job is no news.
            let known_mib = model.seen_mib.load(Ordering::SeqCst);
            if need_mib <= known_mib + known_mib / 50 {
                return None;
            }
            model.seen_mib.store(need_mib, Ordering::SeqCst);
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
}
