//! Placement of models that workers keep loaded without jobs. Pure: the same fleet gives the same result.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use stokehold_queue::WorkerRecord;
use stokehold_queue::gateway::{GpuHealth, ModelRef};
use stokehold_queue::requirements::Requirements;
use stokehold_queue::vram::{VramNeed, usable_mib};

use crate::workers::fleet;
use crate::workers::fleet::RequirementSets;

/// A model and the number of workers that must keep it loaded.
#[derive(Debug, Clone)]
pub(crate) struct Floor {
    pub(crate) model: ModelRef,
    /// VRAM class of its jobs, GiB; 0 means CPU.
    pub(crate) vram_class_gib: u32,
    /// GPU memory that it needs on each GPU.
    pub(crate) need: VramNeed,
    /// Number of its requirement set.
    pub(crate) demands: u32,
    pub(crate) workers: u32,
}

/// Unassigned memory of each GPU, MiB, by worker and index.
type Room<'a> = BTreeMap<(&'a str, u32), u64>;

/// Models that each worker should keep loaded, by worker ID. A worker that has a model keeps it; otherwise the cheapest
/// worker with enough memory gets it. The largest models are placed first, so that the small ones fit beside them.
pub(crate) fn keepers(
    mut floors: Vec<Floor>,
    workers: &[WorkerRecord],
    demands: &RequirementSets,
) -> BTreeMap<String, Vec<ModelRef>> {
    let name = |floor: &Floor| (floor.model.tenant.clone(), floor.model.endpoint.clone());
    floors.sort_by_key(|floor| (Reverse(floor.vram_class_gib), name(floor)));
    let able: Vec<&WorkerRecord> = workers.iter().filter(|worker| !worker.status.draining).collect();
    let mut room: Room<'_> = BTreeMap::new();
    for worker in &able {
        let is_sound = |index| fleet::health(worker, index) != GpuHealth::Faulty;
        for gpu in worker.gpus.iter().filter(|gpu| is_sound(gpu.index)) {
            room.insert((&worker.worker_id, gpu.index), usable_mib(gpu.vram_mib));
        }
    }
    let mut kept: BTreeMap<String, Vec<ModelRef>> = BTreeMap::new();
    for floor in floors {
        let Some(demands) = demands.get(&floor.demands) else { continue };
        let mut able = able.clone();
        able.retain(|worker| demands.refusal(&worker.offer()).is_none());
        able.sort_by_key(|worker| (!has(worker, &floor.model), fleet::price(worker), worker.worker_id.clone()));
        let mut missing = floor.workers;
        for worker in able {
            if missing == 0 {
                break;
            }
            if take(&mut room, worker, &floor, demands) {
                kept.entry(worker.worker_id.clone()).or_default().push(floor.model.clone());
                missing -= 1;
            }
        }
    }
    kept
}

fn has(worker: &WorkerRecord, model: &ModelRef) -> bool {
    let name = format!("{}@{}", model.endpoint, model.version);
    worker.status.models.iter().any(|loaded| loaded.tenant == model.tenant && loaded.name == name)
}

/// Assigns memory on a worker's GPUs, where the least remains. Returns `false` when there is not enough.
fn take<'a>(room: &mut Room<'a>, worker: &'a WorkerRecord, floor: &Floor, demands: &Requirements) -> bool {
    if floor.vram_class_gib == 0 {
        return true;
    }
    let is_whole = demands.gpus > 1;
    let mut fitting: Vec<(u64, u32, u64)> = Vec::new();
    for gpu in fleet::cards(worker, floor.vram_class_gib, demands) {
        let Some(free_mib) = room.get(&(worker.worker_id.as_str(), gpu.index)).copied() else { continue };
        let held_mib = floor.need.on(gpu);
        let is_free = if is_whole { free_mib == usable_mib(gpu.vram_mib) } else { free_mib >= held_mib };
        if is_free && free_mib >= held_mib {
            fitting.push((free_mib - held_mib, gpu.index, if is_whole { 0 } else { free_mib - held_mib }));
        }
    }
    fitting.sort_unstable();
    let wanted = demands.gpus.max(1) as usize;
    if fitting.len() < wanted {
        return false;
    }
    for (_, index, left_mib) in fitting.into_iter().take(wanted) {
        room.insert((&worker.worker_id, index), left_mib);
    }
    true
}

#[cfg(test)]
mod tests {
    use stokehold_queue::gateway::{GpuReading, ModelState, ModelStatus};

    use super::*;
    use crate::workers::fleet::tests::worker;

    fn floor(endpoint: &str, vram_class_gib: u32, workers: u32) -> Floor {
        let model = ModelRef { tenant: "acme".to_owned(), endpoint: endpoint.to_owned(), version: 1 };
        Floor { model, vram_class_gib, need: VramNeed::of_mib(u64::from(vram_class_gib) * 1024), demands: 0, workers }
    }

    fn machine(id: &str, cards_mib: &[u64], price: u64, loaded: &[&str]) -> WorkerRecord {
        let mut machine = worker(cards_mib, 0, vec![]);
        machine.worker_id = id.to_owned();
        machine.price_usd_micros_per_hour = price;
        machine.status.models = loaded
            .iter()
            .map(|name| ModelStatus {
                tenant: "acme".to_owned(),
                name: format!("{name}@1"),
                state: ModelState::Loading,
                cards: vec![],
                succeeded_ms: None,
                mean_ms: None,
                p95_ms: None,
            })
            .collect();
        machine
    }

    fn placed(floors: Vec<Floor>, workers: &[WorkerRecord]) -> Vec<(String, Vec<String>)> {
        let several = Requirements { gpus: 2, ..Requirements::default() };
        let demands = BTreeMap::from([(0, Requirements::default()), (1, several)]);
        let names = |models: Vec<ModelRef>| models.into_iter().map(|model| model.endpoint).collect();
        keepers(floors, workers, &demands).into_iter().map(|(id, models)| (id, names(models))).collect()
    }

    fn is(found: Vec<(String, Vec<String>)>, wanted: &[(&str, &[&str])]) {
        let words = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(found, wanted.iter().map(|(id, names)| ((*id).to_owned(), words(names))).collect::<Vec<_>>());
    }

    #[test]
    fn the_cheapest_with_room_keep_a_model_and_who_has_it_keeps_it() {
        let workers = [machine("a", &[24_564], 900_000, &[]), machine("b", &[24_564], 0, &[])];
        is(placed(vec![floor("chat", 16, 1)], &workers), &[("b", &["chat"])]);
        is(placed(vec![floor("chat", 16, 5)], &workers), &[("a", &["chat"]), ("b", &["chat"])]);
        let workers = [machine("a", &[24_564], 900_000, &["chat"]), machine("b", &[24_564], 0, &[])];
        is(placed(vec![floor("chat", 16, 1)], &workers), &[("a", &["chat"])]);
    }

    #[test]
    fn no_gpu_is_given_away_twice() {
        let workers = [machine("a", &[24_564], 0, &[]), machine("b", &[24_564], 1_000_000, &[])];
        let floors = || vec![floor("small", 6, 1), floor("large", 16, 1), floor("larger", 24, 1)];
        is(placed(floors(), &workers), &[("a", &["larger"]), ("b", &["large", "small"])]);
        is(placed(floors(), &workers[..1]), &[("a", &["larger"])]);
        let on_cpu = vec![floor("one", 0, 1), floor("two", 0, 1)];
        is(placed(on_cpu, &[machine("a", &[], 0, &[])]), &[("a", &["one", "two"])]);
    }

    #[test]
    fn several_gpus_are_empty_ones_of_one_machine() {
        let pair = Floor { demands: 1, ..floor("pair", 24, 1) };
        let one_each = [machine("a", &[24_564], 0, &[]), machine("b", &[24_564], 0, &[])];
        is(placed(vec![pair.clone()], &one_each), &[]);
        let three = [machine("a", &[24_564, 24_564, 24_564], 0, &[])];
        let floors = vec![pair.clone(), floor("small", 4, 1)];
        is(placed(floors, &three), &[("a", &["pair", "small"])]);
        let full = placed(vec![pair, floor("whole", 24, 1), floor("more", 24, 1)], &three);
        assert_eq!(full[0].1.len(), 2, "{full:?}");
    }

    #[test]
    fn those_that_leave_or_have_failed_keep_nothing() {
        let mut leaving = machine("a", &[24_564], 0, &[]);
        leaving.status.draining = true;
        let mut failed = machine("b", &[24_564], 0, &[]);
        failed.status.gpus = vec![GpuReading { health: GpuHealth::Faulty, ..GpuReading::default() }];
        is(placed(vec![floor("chat", 16, 2)], &[leaving, failed]), &[]);
    }
}
