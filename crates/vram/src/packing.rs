//! Compares policies for choosing a GPU if several have room, on a host with several GPUs, in virtual time. The queue
//! and the ledger are the real ones; only the choice among the GPUs that fit differs. docs/adr/0016 has the results.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use stokehold_protocol::capability::Capability;
use stokehold_protocol::gateway::{FinishOutcome, FinishReport};
use stokehold_protocol::job::Timing;
use stokehold_protocol::{Clock, JobId, ManualClock};
use stokehold_queue::Queue;
use stokehold_queue::queue::{Lease, LeaseQuery, WarmLane, patience_ms};
use stokehold_queue_model::MemoryQueue;

use super::day::{GPU_MIB, Request, load_ms, now, requests, submit};
use super::tests::ledger;
use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// The GPU with the least memory left over, like in [`Ledger::reserve`].
    BestFit,
    /// The GPU with the most memory left over.
    WorstFit,
    /// The GPU with the lowest index.
    FirstFit,
    Random,
    /// The GPU on which the least memory becomes unusable for a job drawn from the mix: fragmentation gradient descent
    /// (Weng et al., USENIX ATC '23).
    LeastFragments,
}

const POLICIES: [Policy; 5] =
    [Policy::BestFit, Policy::WorstFit, Policy::FirstFit, Policy::Random, Policy::LeastFragments];

/// A loaded model.
struct Model {
    part: Reservation,
    endpoint: String,
    lane: String,
    load_ms: u64,
    used_ms: u64,
    is_busy: bool,
}

/// Result of a replay.
#[derive(Debug)]
struct Outcome {
    mean_wait_s: f64,
    p95_wait_s: f64,
    /// Mean wait of the jobs that take a whole GPU.
    mean_wait_whole_s: f64,
    loads: usize,
}

struct Machine {
    policy: Policy,
    /// Whether a GPU runs as many jobs as fit, rather than one at a time.
    side_by_side: bool,
    ledger: Ledger,
    gpus: Vec<u32>,
    models: Vec<Model>,
    on_disk: Vec<String>,
    /// Needs of jobs, each as often as it occurs.
    mix_mib: Vec<u64>,
    random: StdRng,
    loads: usize,
}

impl Machine {
    /// The GPUs on which a job can start now.
    fn open(&self) -> Vec<u32> {
        let is_busy = |gpu: &u32| self.models.iter().any(|model| model.is_busy && model.part.gpus[0] == *gpu);
        self.gpus.iter().copied().filter(|gpu| self.side_by_side || !is_busy(gpu)).collect()
    }

    fn idle(&self, now_ms: u64) -> Vec<Idle> {
        let value = |model: &Model| model.load_ms as f64 / (1_000.0 + (now_ms - model.used_ms) as f64);
        let idle = self.models.iter().filter(|model| !model.is_busy);
        idle.map(|model| Idle { ticket: model.part.ticket, value: value(model) }).collect()
    }

    fn query(&self, now_ms: u64) -> Option<LeaseQuery> {
        let open = self.open();
        let idle: Vec<Ticket> = self.idle(now_ms).iter().map(|idle| idle.ticket).collect();
        let reach = self.ledger.reach(&idle);
        let reach_gib = reach.iter().filter(|gpu| open.contains(&gpu.index)).map(|gpu| gpu.reach_gib).max()?;
        let loaded: Vec<&Model> =
            self.models.iter().filter(|model| !model.is_busy && open.contains(&model.part.gpus[0])).collect();
        let mut query = LeaseQuery::new("w1", 1, Capability::usual(reach_gib));
        query.warm = loaded.iter().map(|model| WarmLane { place: model.lane.clone(), takes: 1 }).collect();
        let cold_ms = loaded.iter().map(|model| model.load_ms).sum::<u64>() / (loaded.len() as u64).max(1);
        query.patience_ms = patience_ms(cold_ms);
        Some(query)
    }

    /// The part of this much free memory that a job drawn from the mix could not use.
    fn fragments_mib(&self, free_mib: u64) -> f64 {
        let useless = self.mix_mib.iter().filter(|need| **need > free_mib).count();
        free_mib as f64 * useless as f64 / self.mix_mib.len() as f64
    }

    fn choose(&mut self, need_mib: u64, fitting: &[(u32, u64)]) -> u32 {
        let left = |free: u64| free - need_mib.min(free);
        let chosen = match self.policy {
            Policy::BestFit => fitting.iter().min_by_key(|(gpu, free)| (left(*free), *gpu)),
            Policy::WorstFit => fitting.iter().max_by_key(|(gpu, free)| (left(*free), Reverse(*gpu))),
            Policy::FirstFit => fitting.iter().min_by_key(|(gpu, _)| *gpu),
            Policy::Random => fitting.get(self.random.random_range(0..fitting.len())),
            Policy::LeastFragments => fitting.iter().min_by(|(_, a), (_, b)| {
                let worse = |free: u64| self.fragments_mib(left(free)) - self.fragments_mib(free);
                worse(*a).total_cmp(&worse(*b))
            }),
        };
        chosen.unwrap().0
    }

    /// Places a job on a GPU. Returns the number of its model, and the time until it is loaded.
    fn place(&mut self, request: &Request, lane: String, now_ms: u64) -> (Ticket, u64) {
        let open = self.open();
        let is_free = |model: &&mut Model| {
            !model.is_busy && model.endpoint == request.endpoint && open.contains(&model.part.gpus[0])
        };
        if let Some(model) = self.models.iter_mut().find(is_free) {
            (model.is_busy, model.used_ms) = (true, now_ms);
            return (model.part.ticket, 0);
        }
        let need = &Need::part(request.vram_mib);
        let free = |ledger: &Ledger, gpu: u32| {
            let lines = ledger.lock();
            let gpu = lines.gpus.iter().find(|it| it.index == gpu).unwrap();
            (gpu.free_mib() >= gpu.asked_mib(need)).then(|| gpu.free_mib())
        };
        let fitting: Vec<(u32, u64)> = open.iter().filter_map(|gpu| Some((*gpu, free(&self.ledger, *gpu)?))).collect();
        let part = if fitting.is_empty() {
            let victims = self.ledger.victims(need, &open, &self.idle(now_ms)).expect("it is within reach");
            self.models.retain(|model| !victims.contains(&model.part.ticket));
            self.ledger.reserve(need, &open)
        } else {
            let gpu = self.choose(request.vram_mib, &fitting);
            self.ledger.reserve(need, &[gpu])
        };
        let part = part.expect("there is room");
        let load_ms = load_ms(&mut self.on_disk, &request.endpoint, request.vram_mib);
        self.loads += 1;
        let ticket = part.ticket;
        let endpoint = request.endpoint.clone();
        self.models.push(Model { part, endpoint, lane, load_ms, used_ms: now_ms, is_busy: true });
        (ticket, load_ms)
    }
}

fn replay(trace: &[u8], policy: Policy, gpus: u32, side_by_side: bool) -> Outcome {
    let start_ms = 1_700_000_000_000;
    let clock = ManualClock::new(start_ms);
    // A lease longer than any job, because it is never extended here.
    let queue = MemoryQueue::seeded(Clock::Manual(clock.clone()), 1 << 40, 1);
    let mut coming = requests(trace).into_iter().peekable();
    let mut machine = Machine {
        policy,
        side_by_side,
        ledger: ledger(&vec![GPU_MIB; gpus as usize]),
        gpus: (0..gpus).collect(),
        models: Vec::new(),
        on_disk: Vec::new(),
        mix_mib: requests(trace).iter().step_by(7).map(|request| request.vram_mib).collect(),
        random: StdRng::seed_from_u64(1),
        loads: 0,
    };
    let mut ends: BinaryHeap<Reverse<(u64, Ticket, usize)>> = BinaryHeap::new();
    let (mut asked, mut leases): (BTreeMap<JobId, Request>, Vec<Option<Lease>>) = (BTreeMap::new(), Vec::new());
    let mut waits: Vec<(u64, bool)> = Vec::new();
    loop {
        let end_ms = ends.peek().map(|Reverse((at_ms, ..))| *at_ms);
        let next_ms = coming.peek().map(|request| request.at_ms);
        let Some(at_ms) = [end_ms, next_ms].into_iter().flatten().min() else { break };
        clock.advance_ms(at_ms - (clock.now_ms() - start_ms));
        if next_ms == Some(at_ms) {
            let request = coming.next().unwrap();
            asked.insert(submit(&queue, &request), request);
        } else if let Some(Reverse((_, ticket, lease))) = ends.pop() {
            let model = machine.models.iter_mut().find(|model| model.part.ticket == ticket).unwrap();
            (model.is_busy, model.used_ms) = (false, at_ms);
            let lease = leases[lease].take().unwrap();
            let result = serde_json::value::RawValue::from_string("0".to_owned()).unwrap();
            let outcome = FinishOutcome::Succeeded { result };
            now(queue.finish(&[FinishReport::new(lease.named(), Timing::default(), outcome)])).unwrap();
        }
        while let Some(lease) = machine.query(at_ms).and_then(|query| now(queue.lease(query)).unwrap().pop()) {
            let request = &asked[&lease.job_id];
            let lane = format!("{}:all:{}", lease.spec.class(), request.endpoint);
            let (ticket, load_ms) = machine.place(request, lane, at_ms);
            waits.push((at_ms + load_ms - request.at_ms, request.vram_mib > GPU_MIB * 9 / 10));
            ends.push(Reverse((at_ms + load_ms + request.service_ms, ticket, leases.len())));
            leases.push(Some(lease));
        }
    }
    let mean_s = |waits: &[u64]| waits.iter().sum::<u64>() as f64 / 1_000.0 / waits.len().max(1) as f64;
    let mut all: Vec<u64> = waits.iter().map(|(wait, _)| *wait).collect();
    let whole: Vec<u64> = waits.iter().filter(|(_, whole)| *whole).map(|(wait, _)| *wait).collect();
    all.sort_unstable();
    Outcome {
        mean_wait_s: mean_s(&all),
        p95_wait_s: all[all.len() * 95 / 100] as f64 / 1_000.0,
        mean_wait_whole_s: mean_s(&whole),
        loads: machine.loads,
    }
}

fn table(trace: &[u8], gpus: u32, side_by_side: bool) {
    let row = |policy| (policy, replay(trace, policy, gpus, side_by_side));
    let rows: Vec<(Policy, Outcome)> = POLICIES.map(row).into();
    for (policy, Outcome { mean_wait_s, p95_wait_s, mean_wait_whole_s, loads }) in &rows {
        println!(
            "{gpus} GPUs, {policy:?}: mean {mean_wait_s:.1} s, p95 {p95_wait_s:.1} s, whole GPUs {mean_wait_whole_s:.1} s, {loads} loads"
        );
    }
    // The results that ADR 16 relies on.
    let best_s = rows.iter().map(|(_, outcome)| outcome.mean_wait_s).fold(f64::INFINITY, f64::min);
    assert!(rows[0].1.mean_wait_s <= 1.01 * best_s, "best fit is not among the best: {rows:?}");
}

/// The day of 35 models, with one job at a time per GPU.
#[test]
#[ignore = "a table of some minutes: make packing"]
fn policies_on_a_day_of_many_models() {
    for gpus in [3, 4] {
        table(include_bytes!("../../../tests/data/vlm_servegen_day.csv.gz"), gpus, false);
    }
}

/// A trace of the same form, with as many jobs per GPU as fit.
#[test]
#[ignore = "needs a trace: make packing TRACE=..."]
fn policies_on_a_trace() {
    let trace = std::fs::read(std::env::var("TRACE").expect("TRACE names a .csv.gz")).unwrap();
    for gpus in [3, 4, 5, 6] {
        table(&trace, gpus, true);
    }
}
