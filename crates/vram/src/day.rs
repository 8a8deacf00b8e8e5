//! Simulates a day of many models on few GPUs in virtual time, with the real queue and the real ledger, and models and
//! GPUs as numbers. Measures the value of warm-first scheduling and of packing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Read as _;

use flate2::read::GzDecoder;
use futures::FutureExt as _;
use stokehold_protocol::capability::Capability;
use stokehold_protocol::gateway::{FinishOutcome, FinishReport};
use stokehold_protocol::job::{JobSpec, NewJob, Priority, Timing};
use stokehold_protocol::vram::class_of_gib;
use stokehold_protocol::{Clock, JobId, ManualClock};
use stokehold_queue::Queue;
use stokehold_queue::queue::{Lease, LeaseQuery, WarmLane, patience_ms};
use stokehold_queue_model::MemoryQueue;

use super::tests::{ALL, ledger};
use super::*;

const GPUS: usize = 3;
pub(super) const GPU_MIB: u64 = 24_564;

/// Target time within which an interactive job starts.
const TARGET_MS: u64 = 30_000;

/// Enabled features.
#[derive(Debug, Clone, Copy)]
struct Policy {
    warm_first: bool,
    /// Whether several models share a GPU.
    packs: bool,
}

pub(super) struct Request {
    pub(super) at_ms: u64,
    pub(super) endpoint: String,
    pub(super) service_ms: u64,
    pub(super) vram_mib: u64,
    is_interactive: bool,
}

/// The jobs of a trace: time, endpoint, seconds of work, GiB of a GPU, priority.
pub(super) fn requests(packed: &[u8]) -> Vec<Request> {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let ms = |seconds: &str| (seconds.parse::<f64>().unwrap() * 1_000.0).round() as u64;
    let request = |line: &str| {
        let [at, endpoint, service, vram, priority] = line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let vram_mib = (vram.parse::<f64>().unwrap() * 1_024.0) as u64;
        let is_interactive = priority == "interactive";
        Request { at_ms: ms(at), endpoint: endpoint.to_owned(), service_ms: ms(service), vram_mib, is_interactive }
    };
    text.lines().skip(1).map(request).collect()
}

/// A worker with one GPU, which runs one job at a time.
struct Machine {
    ledger: Ledger,
    models: BTreeMap<String, Model>,
    on_disk: Vec<String>,
    is_busy: bool,
}

struct Model {
    part: Reservation,
    lane: String,
    load_ms: u64,
    used_ms: u64,
}

impl Machine {
    fn idle(&self, now_ms: u64) -> Vec<Idle> {
        let value = |model: &Model| model.load_ms as f64 / (1_000.0 + (now_ms - model.used_ms) as f64);
        self.models.values().map(|model| Idle { ticket: model.part.ticket, value: value(model) }).collect()
    }

    /// Loads a model and returns the time until it is loaded.
    fn get_ready(&mut self, policy: Policy, lane: String, endpoint: &str, vram_mib: u64, now_ms: u64) -> u64 {
        if let Some(model) = self.models.get_mut(endpoint) {
            model.used_ms = now_ms;
            return 0;
        }
        if !policy.packs {
            self.models.clear();
        }
        let part = self.ledger.reserve(&Need::part(vram_mib), &ALL).unwrap_or_else(|| {
            let victims = self.ledger.victims(&Need::part(vram_mib), &ALL, &self.idle(now_ms)).unwrap();
            self.models.retain(|_, model| !victims.contains(&model.part.ticket));
            self.ledger.reserve(&Need::part(vram_mib), &ALL).unwrap()
        });
        let load_ms = load_ms(&mut self.on_disk, endpoint, vram_mib);
        self.models.insert(endpoint.to_owned(), Model { part, lane, load_ms, used_ms: now_ms });
        load_ms
    }
}

/// The next events, in order of time: a request arrives (`None`), or a GPU has finished one.
type Events = BinaryHeap<Reverse<(u64, Option<usize>)>>;

struct Day {
    policy: Policy,
    clock: ManualClock,
    start_ms: u64,
    queue: MemoryQueue,
    gpus: Vec<Machine>,
    requests: BTreeMap<JobId, Request>,
    leases: BTreeMap<usize, Lease>,
    waits_ms: Vec<(bool, u64)>,
    loads: usize,
    events: Events,
}

/// Load time: from the network the first time, then from the host's disk.
pub(super) fn load_ms(on_disk: &mut Vec<String>, endpoint: &str, vram_mib: u64) -> u64 {
    let vram_gib = vram_mib as f64 / 1_024.0;
    let is_here = on_disk.iter().any(|known| known == endpoint);
    if !is_here {
        on_disk.push(endpoint.to_owned());
    }
    let seconds = if is_here { 3.0 + 0.1 * vram_gib } else { (5.0 + 1.2 * vram_gib).clamp(10.0, 60.0) };
    (seconds * 1_000.0) as u64
}

/// Submits a job of a trace.
pub(super) fn submit(queue: &MemoryQueue, request: &Request) -> JobId {
    let spec = JobSpec {
        tenant: "all".to_owned(),
        endpoint: request.endpoint.clone(),
        version: 1,
        priority: if request.is_interactive { Priority::Interactive } else { Priority::Batch },
        vram_class_gib: class_of_gib(request.vram_mib as f64 / 1_024.0).unwrap(),
        max_attempts: 1,
        timeout_ms: 600_000,
        ..JobSpec::default()
    };
    let input = serde_json::value::RawValue::from_string("{}".to_owned()).unwrap();
    let id = JobId::new(0);
    let job = NewJob::new(id, spec, input);
    now(queue.submit(vec![job])).unwrap();
    id
}

pub(super) fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("memory answers at once")
}

/// The share of interactive jobs that started in time, and the number of loads.
fn replay(policy: Policy) -> (f64, usize) {
    let start_ms = 1_700_000_000_000;
    let clock = ManualClock::new(start_ms);
    let gpu = |_| Machine { ledger: ledger(&[GPU_MIB]), models: BTreeMap::new(), on_disk: Vec::new(), is_busy: false };
    let mut day = Day {
        policy,
        queue: MemoryQueue::seeded(Clock::Manual(clock.clone()), 3_600_000, 1),
        clock,
        start_ms,
        gpus: (0..GPUS).map(gpu).collect(),
        requests: BTreeMap::new(),
        leases: BTreeMap::new(),
        waits_ms: Vec::new(),
        loads: 0,
        events: Events::new(),
    };
    let trace = include_bytes!("../../../tests/data/vlm_servegen_day.csv.gz");
    let mut coming = requests(trace).into_iter().peekable();
    loop {
        if let Some(next) = coming.peek()
            && day.events.peek().is_none_or(|Reverse((at_ms, _))| next.at_ms <= *at_ms)
        {
            let next = coming.next().unwrap();
            day.to(next.at_ms);
            day.submit(next);
        } else if let Some(Reverse((at_ms, Some(gpu)))) = day.events.pop() {
            day.to(at_ms);
            day.end(gpu);
        } else {
            break;
        }
        day.lease();
    }
    let interactive: Vec<u64> =
        day.waits_ms.iter().filter(|(is_interactive, _)| *is_interactive).map(|(_, wait_ms)| *wait_ms).collect();
    let in_time = interactive.iter().filter(|wait_ms| **wait_ms <= TARGET_MS).count();
    (in_time as f64 / interactive.len() as f64, day.loads)
}

impl Day {
    fn now_ms(&self) -> u64 {
        self.clock.now_ms() - self.start_ms
    }

    fn to(&self, at_ms: u64) {
        self.clock.advance_ms(at_ms - self.now_ms());
    }

    fn submit(&mut self, request: Request) {
        let id = submit(&self.queue, &request);
        self.requests.insert(id, request);
    }

    fn end(&mut self, gpu: usize) {
        self.gpus[gpu].is_busy = false;
        let lease = self.leases.remove(&gpu).unwrap();
        let result = serde_json::value::RawValue::from_string("0".to_owned()).unwrap();
        let outcome = FinishOutcome::Succeeded { result };
        now(self.queue.finish(&[FinishReport::new(lease.named(), Timing::default(), outcome)])).unwrap();
    }

    /// Every idle GPU requests a lease. Those with a loaded model that has waiting jobs go first, like in a wakeup.
    fn lease(&mut self) {
        let now_ms = self.now_ms();
        for gpu in 0..GPUS {
            if self.gpus[gpu].is_busy {
                continue;
            }
            let mut query = LeaseQuery::new(format!("w{gpu}"), 1, Capability::usual(24));
            let models = &self.gpus[gpu].models;
            if self.policy.warm_first && !models.is_empty() {
                query.warm = models.values().map(|model| WarmLane { place: model.lane.clone(), takes: 1 }).collect();
                query.patience_ms =
                    patience_ms(models.values().map(|model| model.load_ms).sum::<u64>() / models.len() as u64);
            }
            let Some(lease) = now(self.queue.lease(query)).unwrap().pop() else { continue };
            let request = &self.requests[&lease.job_id];
            let lane = format!("{}:all:{}", lease.spec.class(), request.endpoint);
            let load_ms = self.gpus[gpu].get_ready(self.policy, lane, &request.endpoint, request.vram_mib, now_ms);
            self.loads += usize::from(load_ms > 0);
            self.waits_ms.push((request.is_interactive, now_ms + load_ms - request.at_ms));
            self.events.push(Reverse((now_ms + load_ms + request.service_ms, Some(gpu))));
            self.gpus[gpu].is_busy = true;
            self.leases.insert(gpu, lease);
        }
    }
}

#[test]
fn warm_first_and_packing_keep_interactive_jobs_in_time() {
    let mut shares = Vec::new();
    for (warm_first, packs) in [(true, true), (true, false), (false, true), (false, false)] {
        let (share, loads) = replay(Policy { warm_first, packs });
        println!("warm first {warm_first}, packs {packs}: {:.1} % in time, {loads} loads", share * 100.0);
        shares.push(share);
    }
    assert!(shares[0] >= 0.89, "{shares:?}");
    assert!(shares[3] < 0.5, "{shares:?}");
}
