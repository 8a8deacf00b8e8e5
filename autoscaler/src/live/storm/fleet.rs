//! The workers on the machines, and the work they do, in simulated time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::json;
use stokehold_fake_vast::Event;
use stokehold_queue::WorkerRecord;
use stokehold_queue::flow::{CardRuns, Flow, LaneFlow};
use stokehold_queue::job::Priority;
use stokehold_queue::registry::Wanted;

use super::cloud::{World, id_of};

/// What a job takes, seconds.
const RUN_S: f64 = 20.0;

/// A worker is gone from the registry so long after it was last heard of, milliseconds.
const LISTED_MS: u64 = 900_000;

/// The endpoints: the class of card that each needs, GiB, and the least time between two bursts is a round.
const ENDPOINTS: [(&str, u32); 3] = [("draw", 10), ("write", 24), ("film", 48)];

struct Machine {
    joins_ms: u64,
    seen_ms: u64,
    joined_ms: u64,
    cards: usize,
    card_mb: u64,
    is_up: bool,
}

#[derive(Default)]
struct Parts {
    /// By label's machine.
    machines: BTreeMap<String, Machine>,
    numbers: BTreeMap<u64, String>,
    waiting: [f64; 3],
    arrived: [u64; 3],
    started: [u64; 3],
    stepped_ms: u64,
    /// Nobody is heard until then.
    deaf_until_ms: u64,
    drained: BTreeSet<String>,
}

/// All of them. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Fleet(Arc<Mutex<Parts>>);

impl Fleet {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this machine's worker is here.
    pub(super) fn serves(&self, id: &str) -> bool {
        self.parts().machines.get(id).is_some_and(|machine| machine.is_up && machine.joined_ms > 0)
    }

    /// Time has passed: machines come and go, jobs arrive and are done.
    pub(super) fn step(&self, world: &World, random: &mut StdRng, is_calm: bool) {
        let happened = world.cloud.happened();
        let now_ms = world.cloud.clock().now_ms();
        let mut parts = self.parts();
        for happened in happened {
            match happened.event {
                Event::Started(started) => {
                    let id = id_of(started.label.as_deref().unwrap_or_default()).to_owned();
                    parts.numbers.insert(started.instance, id.clone());
                    // Some never do.
                    let joins_ms =
                        if random.random_bool(0.08) { u64::MAX } else { now_ms + random.random_range(1_000..60_000) };
                    let machine = Machine {
                        joins_ms,
                        seen_ms: 0,
                        joined_ms: 0,
                        cards: started.num_gpus,
                        card_mb: started.gpu_ram_mb,
                        is_up: true,
                    };
                    parts.machines.insert(id, machine);
                }
                Event::Halted { instance } | Event::Destroyed { instance } => {
                    if let Some(id) = parts.numbers.get(&instance).cloned()
                        && let Some(machine) = parts.machines.get_mut(&id)
                    {
                        machine.is_up = false;
                    }
                }
            }
        }
        let (wanted, drains) = {
            let rows = world.ledger.rows();
            let wanted: BTreeSet<String> =
                rows.machines.values().filter(|it| it.wanted == Wanted::Running).map(|it| it.id.clone()).collect();
            (wanted, rows.drains.keys().cloned().collect::<BTreeSet<_>>())
        };
        if !is_calm && random.random_bool(0.01) {
            parts.deaf_until_ms = now_ms + random.random_range(20_000..400_000);
        }
        let is_deaf = now_ms < parts.deaf_until_ms && !is_calm;
        parts.drained = drains;
        let mut at_work = 0.0;
        for (id, machine) in &mut parts.machines {
            if machine.is_up && !is_deaf && now_ms >= machine.joins_ms && (machine.joined_ms > 0 || wanted.contains(id))
            {
                machine.seen_ms = now_ms;
                if machine.joined_ms == 0 {
                    machine.joined_ms = now_ms;
                }
                at_work += machine.cards as f64;
            }
        }
        let passed_s = now_ms.saturating_sub(parts.stepped_ms.max(1)).min(60_000) as f64 / 1e3;
        parts.stepped_ms = now_ms;
        let mut done = at_work * passed_s / RUN_S;
        for n in 0..ENDPOINTS.len() {
            if !is_calm && random.random_bool(0.1) {
                let jobs = random.random_range(1..60);
                parts.arrived[n] += jobs;
                parts.waiting[n] += jobs as f64;
            }
            // In the end what waits is called off, so that nothing is left to rent for.
            let served = if is_calm { parts.waiting[n] } else { parts.waiting[n].min(done) };
            parts.waiting[n] -= served;
            done -= served.min(done);
            parts.started[n] = parts.arrived[n] - parts.waiting[n].ceil() as u64;
        }
    }

    /// What the queue and the registry say.
    pub(super) fn seen(&self, now_ms: u64) -> (Vec<Flow>, Vec<WorkerRecord>) {
        let parts = self.parts();
        let flow = |n: usize| {
            let (name, class) = ENDPOINTS[n];
            let waiting = parts.waiting[n].ceil() as u64;
            let priority = if n == 2 { Priority::Batch } else { Priority::Interactive };
            let (arrived, started) = (parts.arrived[n], parts.started[n]);
            let lane = LaneFlow {
                priority,
                class,
                arrived,
                started,
                late: 0,
                waiting,
                oldest_ms: if waiting > 0 { 20_000 } else { 0 },
            };
            let runs = CardRuns {
                kind: "RTX 4090".to_owned(),
                ended: started,
                run_ms: started * 20_000,
                ..CardRuns::default()
            };
            Flow {
                tenant: "acme".to_owned(),
                endpoint: name.to_owned(),
                running: 0,
                may_start: None,
                lanes: vec![lane],
                runs: vec![runs],
            }
        };
        let is_listed = |machine: &&Machine| machine.seen_ms > 0 && now_ms.saturating_sub(machine.seen_ms) < LISTED_MS;
        let is_busy = parts.waiting.iter().any(|waiting| *waiting > 0.0);
        let worker = |(id, machine): (&String, &Machine)| {
            let gpu = |index: usize| json!({"index": index, "uuid": format!("GPU-{index}"), "name": "NVIDIA GeForce RTX 4090", "vram_mib": machine.card_mb});
            let record = json!({"worker_id": format!("w_{id}"), "name": id, "release": "", "slots": machine.cards.max(1),
                "joined_ms": machine.joined_ms, "seen_ms": machine.seen_ms, "trust": "datacenter",
                "gpus": (0..machine.cards).map(gpu).collect::<Vec<_>>(),
                "status": {"running": u32::from(is_busy && !parts.drained.contains(id)), "draining": parts.drained.contains(id)}});
            serde_json::from_value(record).unwrap()
        };
        let workers = parts.machines.iter().filter(|(_, machine)| is_listed(machine)).map(worker).collect();
        ((0..ENDPOINTS.len()).map(flow).collect(), workers)
    }
}
