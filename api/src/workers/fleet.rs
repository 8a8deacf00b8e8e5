//! The connected workers. Everything but [`Fleets`] is pure.

mod reasons;
mod sharing;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{ForgottenNeeds, Gpu, GpuCapability, GpuHealth};
use stokehold_queue::requirements::Requirements;
use stokehold_queue::vram::sold_gib;
use stokehold_queue::{WorkerRecord, now_ms};

pub(crate) use self::reasons::Waiting;
use crate::database::{Database, Error};
use crate::endpoints::catalog::Catalog;
use crate::workers::lease_polls::LeasePolls;

/// Heartbeats that a worker may miss before it counts as lost.
pub(crate) const MISSED_MAX: u64 = 5;

/// Cache time of the workers' records.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// The workers that are alive and all sets of requirements, at most one second old. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fleet(Arc<Parts>);

struct Parts {
    workers: Vec<WorkerRecord>,
    /// Workers that have missed several heartbeats.
    lost: Vec<WorkerRecord>,
    demands: Arc<RequirementSets>,
}

/// All sets of requirements, by number.
pub(crate) type RequirementSets = BTreeMap<u32, Requirements>;

/// Times at which workers were drained, by worker name.
pub(crate) type Drains = HashMap<String, u64>;

/// Reads the fleet, at most once a second.
pub(crate) struct Fleets {
    db: Arc<Database>,
    catalog: Arc<Catalog>,
    lease_polls: LeasePolls,
    extend_every_ms: u64,
    /// Records of the workers that called recently, by worker ID.
    records: Cache<String, Arc<WorkerRecord>>,
    fleet: Cache<(), Fleet>,
    demands: Cache<(), Arc<RequirementSets>>,
    drains: Cache<(), Arc<Drains>>,
    forgotten: Cache<(), Arc<Vec<ForgottenNeeds>>>,
}

impl Fleets {
    pub(crate) fn new(db: Arc<Database>, catalog: Arc<Catalog>, lease_polls: LeasePolls, extend_every_ms: u64) -> Self {
        Self {
            db,
            catalog,
            lease_polls,
            extend_every_ms,
            records: Cache::builder().max_capacity(10_000).time_to_idle(Duration::from_secs(60)).build(),
            fleet: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build(),
            demands: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build(),
            drains: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build(),
            forgotten: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build(),
        }
    }

    /// Discards the cached fleet: the next caller reads it from Redis.
    pub(crate) fn forget(&self) {
        self.fleet.invalidate(&());
    }

    /// Record of a worker that has joined.
    pub(crate) async fn worker(&self, worker_id: &str) -> Result<Option<Arc<WorkerRecord>>, Error> {
        if let Some(known) = self.records.get(worker_id) {
            return Ok(Some(known));
        }
        let known = self.db.ask("read a worker", self.db.registry.worker(worker_id)).await?.map(Arc::new);
        if let Some(known) = &known {
            self.records.insert(worker_id.to_owned(), known.clone());
        }
        Ok(known)
    }

    /// Discards the cached list of endpoints whose learned memory was reset.
    pub(crate) fn invalidate_forgotten(&self) {
        self.forgotten.invalidate(&());
    }

    /// Discards the cached record of a worker.
    pub(crate) fn forget_worker(&self, worker_id: &str) {
        self.records.invalidate(worker_id);
    }

    /// The workers that are alive.
    pub(crate) async fn fleet(&self) -> Result<Fleet, Error> {
        if let Some(fleet) = self.fleet.get(&()) {
            return Ok(fleet);
        }
        let (mut workers, demands, drains) =
            tokio::try_join!(self.db.ask("list workers", self.db.registry.workers()), self.demands(), self.drains())?;
        let now_ms = now_ms();
        let lost = workers.extract_if(.., |worker| is_lost(worker, now_ms, self.extend_every_ms)).collect();
        for worker in &mut workers {
            worker.status.draining |= drains.contains_key(&worker.name);
        }
        let fleet = Fleet(Arc::new(Parts { workers, lost, demands }));
        self.fleet.insert((), fleet.clone());
        Ok(fleet)
    }

    /// All sets of requirements, at most one second old.
    pub(crate) async fn demands(&self) -> Result<Arc<RequirementSets>, Error> {
        if let Some(demands) = self.demands.get(&()) {
            return Ok(demands);
        }
        let demands = Arc::new(self.db.ask("read the requirement sets", self.db.registry.demands()).await?);
        self.demands.insert((), demands.clone());
        Ok(demands)
    }

    /// The drained workers, which lease no more jobs. At most one second old.
    pub(crate) async fn drains(&self) -> Result<Arc<Drains>, Error> {
        if let Some(drains) = self.drains.get(&()) {
            return Ok(drains);
        }
        let drains = Arc::new(self.db.ask("read which workers are draining", self.db.registry.drains()).await?);
        self.drains.insert((), drains.clone());
        Ok(drains)
    }

    /// The endpoints whose learned memory was reset recently, at most one second old.
    pub(crate) async fn forgotten(&self) -> Result<Arc<Vec<ForgottenNeeds>>, Error> {
        if let Some(forgotten) = self.forgotten.get(&()) {
            return Ok(forgotten);
        }
        let forgotten = self.db.ask("read which learned GPU memory was reset", self.db.registry.forgotten()).await?;
        // Another replica may have made its caller discard them.
        for ForgottenNeeds { tenant, endpoint, .. } in &forgotten {
            self.catalog.forgotten_now(tenant, endpoint);
        }
        let forgotten = Arc::new(forgotten);
        self.forgotten.insert((), forgotten.clone());
        Ok(forgotten)
    }

    /// Handles a deploy on this replica that uses these requirements. If they are new, the lease polls on this replica
    /// check the queue again, with a capability that includes them. Polls on other replicas do so within ten seconds.
    pub(crate) async fn requirements_added(&self, number: u32) -> Result<(), Error> {
        if !self.demands().await?.contains_key(&number) {
            self.demands.invalidate(&());
            self.forget();
            self.lease_polls.wake_all();
        }
        Ok(())
    }
}

/// Returns whether a worker has missed several heartbeats.
pub(crate) fn is_lost(worker: &WorkerRecord, now_ms: u64, extend_every_ms: u64) -> bool {
    now_ms.saturating_sub(worker.seen_ms) > extend_every_ms.saturating_mul(MISSED_MAX)
}

impl Fleet {
    /// Returns whether a GPU of this class meets these requirements, busy or not.
    pub(crate) fn has_gpu(&self, class_gib: u32, demands: u32) -> bool {
        let Some(demands) = self.0.demands.get(&demands) else { return false };
        self.0.workers.iter().any(|worker| has_gpus(worker, class_gib, demands))
    }

    /// The workers that are alive.
    pub(crate) fn workers(&self) -> &[WorkerRecord] {
        &self.0.workers
    }

    /// The workers that have missed several heartbeats.
    pub(crate) fn lost(&self) -> &[WorkerRecord] {
        &self.0.lost
    }

    /// All sets of requirements, by number.
    pub(crate) fn all_demands(&self) -> &RequirementSets {
        &self.0.demands
    }

    /// The set of requirements with this number.
    pub(crate) fn demands(&self, number: u32) -> Option<&Requirements> {
        self.0.demands.get(&number)
    }
}

/// Maximum number of slots of a worker whose number of slots is not in a ledger. It exceeds the threads of any host.
const SLOTS_MAX: u32 = 512;

/// Maximum number of slots for which a worker leases jobs. The worker itself reports how many it has.
pub(crate) fn leased_slots(worker: &WorkerRecord) -> u32 {
    worker.slots.min(worker.leased_slots.unwrap_or(SLOTS_MAX)).min(SLOTS_MAX)
}

/// Current capability of a worker, as it reports it, among all requirement sets.
pub(crate) fn reach(
    demands: &RequirementSets,
    worker: &WorkerRecord,
    reach_gib: u32,
    by_card: &[GpuCapability],
) -> Capability {
    // Among several GPUs the smallest decides; of all suitable GPUs, the largest are taken.
    let on_cards = |demands: &Requirements| {
        let able = worker.gpus.iter().filter(|gpu| demands.is_met_by(gpu));
        let told = able.flat_map(|gpu| by_card.iter().filter(|card| card.index == gpu.index));
        let mut classes_gib: Vec<u32> =
            told.map(|card| if demands.gpus > 1 { card.whole_gib } else { card.reach_gib }).collect();
        classes_gib.sort_unstable_by_key(|gib| Reverse(*gib));
        classes_gib.get((demands.gpus as usize).saturating_sub(1)).copied()
    };
    let reach = |(number, demands): (&u32, &Requirements)| {
        if demands.refusal(&worker.offer()).is_some() {
            return None;
        }
        let reach_gib = if demands.asks_of_gpus() { on_cards(demands)? } else { reach_gib };
        Some((*number, reach_gib))
    };
    demands.iter().filter_map(reach).collect()
}

/// Order in which workers that could take the same job are woken: the cheaper first, then the less busy. 0 to 999,999:
/// dollars per slot and hour in steps of 0.1 cents, then the share of its slots in use.
pub(crate) fn rank(worker: &WorkerRecord) -> u32 {
    let busy = u64::from(worker.status.running) * 99 / u64::from(worker.slots.max(1));
    u32::try_from(price(worker).min(9_999) * 100 + busy.min(99)).unwrap_or(999_999)
}

/// Price per slot and hour, in steps of 0.1 cents.
pub(crate) fn price(worker: &WorkerRecord) -> u64 {
    const STEP_USD_MICROS: u64 = 1_000;
    worker.price_usd_micros_per_hour / u64::from(worker.slots.max(1)) / STEP_USD_MICROS
}

/// GPUs of a worker that suit a job of this class with these requirements, busy or not.
pub(crate) fn cards<'a>(
    worker: &'a WorkerRecord,
    class_gib: u32,
    demands: &'a Requirements,
) -> impl Iterator<Item = &'a Gpu> {
    let is_met = demands.refusal(&worker.offer()).is_none();
    let able = worker.gpus.iter().filter(move |gpu| is_met && sold_gib(gpu.vram_mib) >= class_gib);
    able.filter(|gpu| demands.is_met_by(gpu))
}

/// Returns whether a worker has enough GPUs for such a job, busy or not.
fn has_gpus(worker: &WorkerRecord, class_gib: u32, demands: &Requirements) -> bool {
    cards(worker, class_gib, demands).count() >= demands.gpus.max(1) as usize
}

/// Health of a worker's GPU.
pub(crate) fn health(worker: &WorkerRecord, index: u32) -> GpuHealth {
    let reading = worker.status.gpus.iter().find(|gpu| gpu.index == index);
    reading.map(|reading| reading.health).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use stokehold_queue::gateway::{GpuReading, WorkerStatus};
    use stokehold_queue::requirements::Trust;

    use super::*;

    pub(crate) fn worker(cards_mib: &[u64], running: u32, readings: Vec<GpuReading>) -> WorkerRecord {
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
            sandbox: None,
            trust: Trust::Owned,
            region: "eu".to_owned(),
            leased_slots: None,
            joined_with: None,
            joined_ms: 0,
            seen_ms: 0,
            status: WorkerStatus { running, gpus: readings, ..WorkerStatus::default() },
        }
    }

    pub(super) fn reading(index: u32, vram_free_mib: u64, health: GpuHealth) -> GpuReading {
        let why = (health == GpuHealth::Faulty).then(|| "Xid 79".to_owned());
        GpuReading { index, vram_free_mib, health, why, ..GpuReading::default() }
    }

    pub(super) fn fleet(workers: Vec<WorkerRecord>, demands: Requirements) -> Fleet {
        Fleet(Arc::new(Parts {
            workers,
            lost: Vec::new(),
            demands: Arc::new(BTreeMap::from([(0, Requirements::default()), (1, demands)])),
        }))
    }

    #[test]
    fn a_worker_reaches_what_its_gpus_and_its_place_allow() {
        let mut desk = worker(&[24_564, 12_288], 0, vec![]);
        desk.gpus[0].name = "NVIDIA GeForce RTX 4090".to_owned();
        desk.gpus[1].name = "NVIDIA GeForce RTX 3060".to_owned();
        let cards = [
            GpuCapability { index: 0, reach_gib: 8, whole_gib: 0 },
            GpuCapability { index: 1, reach_gib: 12, whole_gib: 12 },
        ];
        let of =
            |worker: &WorkerRecord, demands: Requirements| reach(&fleet(vec![], demands).0.demands, worker, 12, &cards);
        let models = |model: &str| Requirements { gpu_models: vec![model.to_owned()], ..Requirements::default() };
        assert_eq!(of(&desk, models("RTX 4090")).to_string(), "0:12 1:8");
        assert_eq!(of(&desk, models("RTX 3060")).to_string(), "0:12 1:12");
        assert_eq!(of(&desk, models("H100")).to_string(), "0:12", "it has none");
        let in_region = |region: &str| Requirements { regions: vec![region.to_owned()], ..Requirements::default() };
        assert_eq!(of(&desk, in_region("eu")).to_string(), "0:12 1:12");
        assert_eq!(of(&desk, in_region("us")).to_string(), "0:12");
        let several = |gpus| Requirements { gpus, ..Requirements::default() };
        assert_eq!(of(&desk, several(2)).to_string(), "0:12 1:0", "somebody is on the one");
        assert_eq!(of(&desk, several(3)).to_string(), "0:12");
        let empty = [24, 12].into_iter().zip(0..);
        let empty: Vec<GpuCapability> =
            empty.map(|(gib, index)| GpuCapability { index, reach_gib: gib, whole_gib: gib }).collect();
        let both = reach(&fleet(vec![], several(2)).0.demands, &desk, 24, &empty);
        assert_eq!(both.to_string(), "0:24 1:12", "the smaller decides");
        let rented = WorkerRecord { trust: Trust::Community, ..desk.clone() };
        let anybody = Requirements { min_trust: Trust::Community, ..Requirements::default() };
        assert_eq!(of(&rented, anybody).to_string(), "1:12", "a stranger's machine sees what may be seen");
    }

    #[test]
    fn the_cheaper_and_then_the_less_busy_are_woken_first() {
        let at = |usd_micros, slots, running| {
            rank(&WorkerRecord { price_usd_micros_per_hour: usd_micros, slots, ..worker(&[], running, vec![]) })
        };
        // The operator's own workers, idle and half busy; rented ones by price per slot; the highest possible price.
        let in_order =
            [at(0, 4, 0), at(0, 4, 2), at(400_000, 4, 0), at(400_000, 2, 0), at(400_000, 2, 1), at(u64::MAX, 1, 1)];
        assert!(in_order.is_sorted_by(|a, b| a < b), "{in_order:?}");
        assert!(in_order[5] <= 999_999);
    }
}
