//! The workers that are here, and why a job waits for them. Pure but for [`App::fleet`].

use std::sync::Arc;

use stokehold_queue::gateway::GpuHealth;
use stokehold_queue::vram::class_of_card_gib;
use stokehold_queue::{WorkerRecord, now_ms};

use crate::error::Problem;
use crate::state::App;

/// Heartbeats that a worker may miss before it counts as lost.
const MISSED_MAX: u64 = 5;

/// The workers that are alive, as of a second ago at most. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fleet(Arc<Vec<WorkerRecord>>);

/// Why a job that is ready has not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// No worker that is here could ever run it.
    Unschedulable(String),
    /// Workers that could run it are occupied.
    Busy(String),
    /// It is about to start.
    Soon,
}

impl App {
    /// The workers that are alive.
    pub(crate) async fn fleet(&self) -> Result<Fleet, Problem> {
        if let Some(fleet) = self.fleets.get(&()) {
            return Ok(fleet);
        }
        let mut workers = self.ask("list workers", self.registry.workers()).await?;
        let now_ms = now_ms();
        workers.retain(|worker| !is_lost(worker, now_ms, self.config.extend_every_ms));
        let fleet = Fleet(Arc::new(workers));
        self.fleets.insert((), fleet.clone());
        Ok(fleet)
    }
}

/// Whether a worker has been silent for several heartbeats.
pub(crate) fn is_lost(worker: &WorkerRecord, now_ms: u64, extend_every_ms: u64) -> bool {
    now_ms.saturating_sub(worker.seen_ms) > extend_every_ms.saturating_mul(MISSED_MAX)
}

impl Fleet {
    /// Whether there is a card of this class, whatever it does now.
    pub(crate) fn has_card(&self, class_gib: u32) -> bool {
        self.0.iter().flat_map(|worker| &worker.gpus).any(|gpu| class_of_card_gib(gpu.vram_mib) >= class_gib)
    }

    /// Why a job of this class waits.
    pub(crate) fn why(&self, class_gib: u32) -> Waiting {
        if self.0.is_empty() {
            return Waiting::Unschedulable("no worker is here; `stoke worker` starts one".to_owned());
        }
        let open: Vec<&WorkerRecord> = self.0.iter().filter(|worker| !worker.status.draining).collect();
        if class_gib == 0 {
            return occupied(&open, |worker| worker.status.running < worker.slots, "every slot is taken");
        }
        if !self.has_card(class_gib) {
            let largest =
                self.0.iter().flat_map(|worker| &worker.gpus).map(|gpu| class_of_card_gib(gpu.vram_mib)).max();
            let largest = largest
                .map_or("no worker here has a card".to_owned(), |class| format!("the largest here is of {class}"));
            return Waiting::Unschedulable(format!("it needs a card of {class_gib} GiB, and {largest}"));
        }
        let fenced: Vec<String> = self.0.iter().filter_map(|worker| fenced(worker, class_gib)).flatten().collect();
        let able: Vec<&WorkerRecord> = open.into_iter().filter(|worker| has_sound_card(worker, class_gib)).collect();
        if able.is_empty() && !fenced.is_empty() {
            let why = format!("every card of {class_gib} GiB or more is fenced off or draining: {}", fenced.join("; "));
            return Waiting::Unschedulable(why);
        }
        let has_room = |worker: &WorkerRecord| {
            worker.status.running < worker.slots && worker.status.gpus.iter().any(|gpu| gpu.vram_free_mib > 0)
        };
        occupied(&able, has_room, "the cards that are large enough are taken")
    }
}

fn occupied(workers: &[&WorkerRecord], is_free: impl Fn(&WorkerRecord) -> bool, why: &str) -> Waiting {
    if workers.is_empty() {
        return Waiting::Busy("every worker that could run it is draining".to_owned());
    }
    if workers.iter().any(|worker| is_free(worker)) { Waiting::Soon } else { Waiting::Busy(why.to_owned()) }
}

fn health(worker: &WorkerRecord, index: u32) -> GpuHealth {
    let reading = worker.status.gpus.iter().find(|gpu| gpu.index == index);
    reading.map(|reading| reading.health).unwrap_or_default()
}

fn has_sound_card(worker: &WorkerRecord, class_gib: u32) -> bool {
    let cards = worker.gpus.iter().filter(|gpu| class_of_card_gib(gpu.vram_mib) >= class_gib);
    cards.into_iter().any(|gpu| health(worker, gpu.index) != GpuHealth::Fenced)
}

/// The cards of a worker that would be large enough and are fenced off, in words.
fn fenced(worker: &WorkerRecord, class_gib: u32) -> Option<Vec<String>> {
    let cards = worker.gpus.iter().filter(|gpu| class_of_card_gib(gpu.vram_mib) >= class_gib);
    let words = cards.filter(|gpu| health(worker, gpu.index) == GpuHealth::Fenced).map(|gpu| {
        let reading = worker.status.gpus.iter().find(|reading| reading.index == gpu.index);
        let why = reading.and_then(|reading| reading.why.clone()).unwrap_or_default();
        format!("{} card {}: {why}", worker.name, gpu.index)
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use stokehold_queue::gateway::{Gpu, GpuReading, WorkerStatus};

    use super::*;

    fn worker(cards_mib: &[u64], running: u32, readings: Vec<GpuReading>) -> WorkerRecord {
        let card = |(index, vram_mib): (u32, &u64)| Gpu { index, vram_mib: *vram_mib, ..Gpu::default() };
        WorkerRecord {
            worker_id: "w_1".to_owned(),
            name: "desk".to_owned(),
            release: String::new(),
            slots: 2,
            gpus: (0..).zip(cards_mib).map(card).collect(),
            driver: None,
            cuda: None,
            price_usd_micros_per_hour: 0,
            joined_ms: 0,
            seen_ms: 0,
            status: WorkerStatus { running, gpus: readings, ..WorkerStatus::default() },
        }
    }

    fn reading(index: u32, vram_free_mib: u64, health: GpuHealth) -> GpuReading {
        let why = (health == GpuHealth::Fenced).then(|| "Xid 79".to_owned());
        GpuReading { index, vram_free_mib, health, why, ..GpuReading::default() }
    }

    fn why(workers: Vec<WorkerRecord>, class_gib: u32) -> Waiting {
        Fleet(Arc::new(workers)).why(class_gib)
    }

    #[test]
    fn what_no_worker_could_ever_run_is_told_why() {
        let unschedulable = |waiting| match waiting {
            Waiting::Unschedulable(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(unschedulable(why(vec![], 0)).contains("stoke worker"));
        assert!(unschedulable(why(vec![worker(&[], 0, vec![])], 4)).contains("no worker here has a card"));
        let small = || worker(&[12_288], 0, vec![reading(0, 11_000, GpuHealth::Well)]);
        let told = unschedulable(why(vec![small()], 24));
        assert_eq!(told, "it needs a card of 24 GiB, and the largest here is of 12");
        let broken = worker(&[24_564], 0, vec![reading(0, 0, GpuHealth::Fenced)]);
        assert!(unschedulable(why(vec![small(), broken], 24)).ends_with("desk card 0: Xid 79"));
    }

    #[test]
    fn what_waits_for_its_turn_is_told_what_for() {
        let card = |free_mib| worker(&[24_564], 1, vec![reading(0, free_mib, GpuHealth::Well)]);
        assert_eq!(why(vec![card(20_000)], 12), Waiting::Soon);
        assert!(matches!(why(vec![card(0)], 12), Waiting::Busy(why) if why.contains("taken")));
        assert!(matches!(why(vec![worker(&[], 2, vec![])], 0), Waiting::Busy(why) if why.contains("slot")));
        let mut leaving = card(20_000);
        leaving.status.draining = true;
        assert!(matches!(why(vec![leaving], 12), Waiting::Busy(why) if why.contains("draining")));
    }
}
