//! The reasons for which ready jobs wait for workers.

use stokehold_queue::WorkerRecord;
use stokehold_queue::gateway::{Gpu, GpuHealth};
use stokehold_queue::requirements::Requirements;
use stokehold_queue::vram::sold_gib;

use super::{Fleet, cards, has_gpus, health};

/// Reasons for which a ready job has not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// No connected worker could ever run it.
    Unschedulable(String),
    /// Workers that could run it are occupied.
    Busy(String),
    /// The budget of its tenant or of its endpoint is spent.
    Budget(String),
    /// A limit of its tenant or of its endpoint is reached.
    Limit(String),
    /// The maximum number of jobs with its concurrency key is running.
    Key(String),
    /// Another job that it depends on has not ended.
    Dependency(String),
    /// Workers that could run it are occupied, and other jobs start before it.
    Behind(String),
    /// An instance that will run it is being rented.
    Renting(String),
    /// An instance that will run it boots.
    Booting(String),
    /// It is leased, and its worker builds the environment.
    Environment(String),
    /// It is leased, and its worker downloads the weights or loads the model.
    Loading(String),
    /// The job is about to start.
    Soon,
}

impl Fleet {
    /// Reason for which a job of this class, with these requirements, waits.
    pub(crate) fn why(&self, class_gib: u32, demands: u32) -> Waiting {
        let Some(demands) = self.0.demands.get(&demands) else { return Waiting::Soon };
        let workers = &self.0.workers;
        if workers.is_empty() {
            return Waiting::Unschedulable("there are no workers; start one with `stoke worker run`".to_owned());
        }
        let meeting: Vec<&WorkerRecord> =
            workers.iter().filter(|worker| demands.refusal(&worker.offer()).is_none()).collect();
        if meeting.is_empty() {
            return Waiting::Unschedulable(unmet(demands, workers));
        }
        let open: Vec<&WorkerRecord> = meeting.iter().copied().filter(|worker| !worker.status.draining).collect();
        if class_gib == 0 {
            return occupied(&open, |worker| worker.status.running < worker.slots, "every slot is in use");
        }
        if !meeting.iter().any(|worker| has_gpus(worker, class_gib, demands)) {
            return Waiting::Unschedulable(too_small(demands, class_gib, &meeting));
        }
        let sound = |worker: &&WorkerRecord| {
            let is_sound = |gpu: &&Gpu| health(worker, gpu.index) != GpuHealth::Faulty;
            cards(worker, class_gib, demands).filter(is_sound).count() >= demands.gpus as usize
        };
        let faulty: Vec<String> = meeting.iter().flat_map(|worker| faulty(worker, class_gib, demands)).collect();
        let able: Vec<&WorkerRecord> = open.into_iter().filter(sound).collect();
        if able.is_empty() && !faulty.is_empty() {
            let why = format!("every GPU with {class_gib} GiB or more is faulty or draining: {}", faulty.join("; "));
            return Waiting::Unschedulable(why);
        }
        let has_room = |worker: &WorkerRecord| {
            worker.status.running < worker.slots && worker.status.gpus.iter().any(|gpu| gpu.vram_free_mib > 0)
        };
        occupied(&able, has_room, "every GPU that is large enough is in use")
    }
}

/// Message that no GPU of these workers is large enough.
fn too_small(demands: &Requirements, class_gib: u32, workers: &[&WorkerRecord]) -> String {
    if demands.gpus > 1 {
        return format!(
            "the job needs {} GPUs of {class_gib} GiB in one machine, and no worker has them",
            demands.gpus
        );
    }
    let able = workers.iter().flat_map(|worker| worker.gpus.iter().filter(|gpu| demands.is_met_by(gpu)));
    let largest = able.map(|gpu| sold_gib(gpu.vram_mib)).max();
    let largest = largest.map_or("no worker has a GPU".to_owned(), |class| format!("the largest one has {class} GiB"));
    format!("the job needs a GPU of {class_gib} GiB, and {largest}")
}

/// Message with the requirements that no worker meets. If the workers lack different things, it names the first of
/// each.
fn unmet(demands: &Requirements, workers: &[WorkerRecord]) -> String {
    let mut whys: Vec<String> = workers.iter().filter_map(|worker| demands.refusal(&worker.offer())).collect();
    whys.sort();
    whys.dedup();
    format!("no worker meets the job's requirements: {}", whys.join("; "))
}

fn occupied(workers: &[&WorkerRecord], is_free: impl Fn(&WorkerRecord) -> bool, why: &str) -> Waiting {
    if workers.is_empty() {
        return Waiting::Busy("every worker that could run the job is draining".to_owned());
    }
    if workers.iter().any(|worker| is_free(worker)) { Waiting::Soon } else { Waiting::Busy(why.to_owned()) }
}

/// Faulty GPUs of a worker that would otherwise suit, as text.
fn faulty(worker: &WorkerRecord, class_gib: u32, demands: &Requirements) -> Vec<String> {
    let faulty = cards(worker, class_gib, demands).filter(|gpu| health(worker, gpu.index) == GpuHealth::Faulty);
    let words = faulty.map(|gpu| {
        let reading = worker.status.gpus.iter().find(|reading| reading.index == gpu.index);
        let why = reading.and_then(|reading| reading.why.clone()).unwrap_or_default();
        format!("{} GPU {}: {why}", worker.name, gpu.index)
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fleet, reading, worker};
    use super::*;

    fn why(workers: Vec<WorkerRecord>, class_gib: u32) -> Waiting {
        fleet(workers, Requirements::default()).why(class_gib, 0)
    }

    #[test]
    fn demands_that_nobody_meets_are_named() {
        let demands = Requirements { gpu_models: vec!["H100".to_owned()], ..Requirements::default() };
        let workers = vec![worker(&[24_564], 0, vec![]), worker(&[], 0, vec![])];
        let Waiting::Unschedulable(why) = fleet(workers, demands).why(24, 1) else { panic!() };
        assert_eq!(why, "no worker meets the job's requirements: it needs a GPU of model H100");
    }

    #[test]
    fn what_no_worker_could_ever_run_is_told_why() {
        let unschedulable = |waiting| match waiting {
            Waiting::Unschedulable(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(unschedulable(why(vec![], 0)).contains("stoke worker"));
        assert!(unschedulable(why(vec![worker(&[], 0, vec![])], 4)).contains("no worker has a GPU"));
        let small = || worker(&[12_288], 0, vec![reading(0, 11_000, GpuHealth::Healthy)]);
        let told = unschedulable(why(vec![small()], 24));
        assert_eq!(told, "the job needs a GPU of 24 GiB, and the largest one has 12 GiB");
        let pair =
            fleet(vec![worker(&[24_564, 12_288], 0, vec![])], Requirements { gpus: 2, ..Requirements::default() });
        assert!(pair.has_gpu(12, 1) && !pair.has_gpu(24, 1));
        let told = unschedulable(pair.why(24, 1));
        assert_eq!(told, "the job needs 2 GPUs of 24 GiB in one machine, and no worker has them");
        let broken = worker(&[24_564], 0, vec![reading(0, 0, GpuHealth::Faulty)]);
        assert!(unschedulable(why(vec![small(), broken], 24)).ends_with("desk GPU 0: Xid 79"));
    }

    #[test]
    fn what_waits_for_its_turn_is_told_what_for() {
        let card = |free_mib| worker(&[24_564], 1, vec![reading(0, free_mib, GpuHealth::Healthy)]);
        assert_eq!(why(vec![card(20_000)], 12), Waiting::Soon);
        assert!(matches!(why(vec![card(0)], 12), Waiting::Busy(why) if why.contains("in use")));
        assert!(matches!(why(vec![worker(&[], 2, vec![])], 0), Waiting::Busy(why) if why.contains("slot")));
        let mut leaving = card(20_000);
        leaving.status.draining = true;
        assert!(matches!(why(vec![leaving], 12), Waiting::Busy(why) if why.contains("draining")));
    }
}
