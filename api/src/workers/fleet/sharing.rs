//! How many jobs of a class the workers run at once, and which classes use the same workers.

use stokehold_queue::WorkerRecord;
use stokehold_queue::vram::sold_gib;

use super::{Fleet, cards, has_gpus, leased_slots};
use crate::workers::coming::slots_on;

impl Fleet {
    /// Number of jobs of this class, with these requirements, that workers run at once which are not draining. 0 if no
    /// worker could ever run one.
    pub(crate) fn slots(&self, class_gib: u32, demands: u32) -> u64 {
        let Some(demands) = self.0.demands.get(&demands) else { return 0 };
        let open = self.0.workers.iter().filter(|worker| !worker.status.draining);
        let able = open.filter(|worker| {
            demands.refusal(&worker.offer()).is_none() && (class_gib == 0 || has_gpus(worker, class_gib, demands))
        });
        let of = |worker: &WorkerRecord| {
            let gib = cards(worker, class_gib, demands).map(|gpu| sold_gib(gpu.vram_mib));
            slots_on(leased_slots(worker), gib, class_gib, demands.gpus)
        };
        able.map(of).sum()
    }

    /// Returns whether a worker that could run jobs of the class `one` could also run jobs of the class `other`. Each
    /// class is the GPU memory and the number of a requirement set.
    pub(crate) fn shares(&self, one: (u32, u32), other: (u32, u32)) -> bool {
        let able = |worker: &WorkerRecord, (class_gib, demands): (u32, u32)| {
            let Some(demands) = self.0.demands.get(&demands) else { return false };
            demands.refusal(&worker.offer()).is_none() && (class_gib == 0 || has_gpus(worker, class_gib, demands))
        };
        one == other || self.0.workers.iter().any(|worker| able(worker, one) && able(worker, other))
    }
}
