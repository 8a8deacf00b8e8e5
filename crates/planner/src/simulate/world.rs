//! The simulated world: jobs of a trace arrive, the queue assigns them to machines, and the policy rents and releases
//! machines. The queue with its lanes, and the ledger that packs models onto GPUs, are the product's own code;
//! machines, loads and runs are simulated.

mod machines;
mod sight;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use futures::FutureExt as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::value::RawValue;
use stokehold_protocol::capability::class_of;
use stokehold_protocol::gateway::{FinishOutcome, FinishReport};
use stokehold_protocol::job::{self, JobSpec, NewJob, Timing};
use stokehold_protocol::vram::class_of_gib;
use stokehold_protocol::{Clock, JobId, ManualClock};
use stokehold_queue::Queue;
use stokehold_queue::queue::{Lease, Signal, Waiter};
use stokehold_queue_model::MemoryQueue;
use stokehold_units::Mib;
use stokehold_vram::Ticket;
use tokio::sync::mpsc;

use super::machine::{Load, Machine, Wanted};
use super::offers::Kind;
use super::outcome::Sample;
use super::rules::Rules;
use super::scaler::Scaler;
use super::tally::Tally;
use super::trace::{Job, Priority};
use crate::durations::millis;
use crate::name::Name;
use crate::observation::{Endpoint, Observation, Phase, Runs, Work};

/// A Monday, 00:00 UTC.
const START_MS: u64 = 1_700_438_400_000;

/// The replica under which all machines wait.
const REPLICA: &str = "simulation";

/// Number of ticks between two decisions while nothing happens.
const QUIET_TICKS: u64 = 15;

/// Time after the last arrival at which unserved jobs count as never served, milliseconds: two days.
const PATIENCE_MS: u64 = 2 * 86_400 * 1_000;

/// Maximum number of samples for a plot.
const SAMPLES: f64 = 1_200.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(usize),
    /// A boot or a resume is over, in this life of the machine.
    Ready(usize, u32),
    /// A run is over: machine, life, ticket, job.
    Ends(usize, u32, Ticket, usize),
    /// An interruptible machine is outbid.
    Lost(usize, u32),
    /// An outbid machine is available again.
    Back(usize, u32),
    Decide,
    Sample,
}

/// Facts about an endpoint beyond those in its observation.
struct Known {
    vram_gb: f64,
    class_gib: u32,
    lane: String,
    waiting: [VecDeque<usize>; 3],
}

pub(super) struct World<'a> {
    jobs: &'a [Job],
    kinds: &'a [Kind],
    rules: &'a Rules,
    now_ms: u64,
    clock: ManualClock,
    queue: MemoryQueue,
    signals: mpsc::Receiver<Signal>,
    /// Machines by number, in the order of their rents.
    machines: BTreeMap<usize, Machine>,
    rented: usize,
    /// Time of the next decision. Decisions scheduled for other times are ignored.
    decide_ms: u64,
    ids: HashMap<JobId, usize>,
    leases: HashMap<usize, Lease>,
    endpoint_of: Vec<usize>,
    known: Vec<Known>,
    seen: Observation,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    random: StdRng,
    tally: Tally,
    left: usize,
}

fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("the queue in memory answers at once")
}

fn digit(priority: Priority) -> usize {
    match priority {
        Priority::Interactive => 0,
        Priority::Batch => 2,
    }
}

impl<'a> World<'a> {
    pub(super) fn new(jobs: &'a [Job], kinds: &'a [Kind], rules: &'a Rules) -> Self {
        let clock = ManualClock::new(START_MS);
        // A lease is longer than any trace, because it is never extended here.
        let queue = MemoryQueue::seeded(Clock::Manual(clock.clone()), 1 << 40, rules.seed);
        let signals = now(queue.listen(REPLICA)).expect("the queue in memory listens");
        let mut names: Vec<&Name> = jobs.iter().map(|job| &job.endpoint).collect();
        names.sort_unstable();
        names.dedup();
        let place: HashMap<&Name, usize> = names.iter().enumerate().map(|(place, name)| (*name, place)).collect();
        let endpoint_of: Vec<usize> = jobs.iter().map(|job| place[&job.endpoint]).collect();
        let mut vram_gb = vec![0.0; names.len()];
        jobs.iter().zip(&endpoint_of).for_each(|(job, place)| vram_gb[*place] = job.vram_gb);
        let known = names.iter().zip(&vram_gb).map(|(name, vram_gb)| {
            let class_gib = class_of_gib(*vram_gb).unwrap_or(u32::MAX);
            let lane = format!("{}:all:{name}", class_of(0, class_gib));
            Known { vram_gb: *vram_gb, class_gib, lane, waiting: Default::default() }
        });
        let endpoints = names.iter().zip(&vram_gb).map(|(name, vram_gb)| Endpoint {
            name: (*name).clone(),
            vram: Mib::from_gib(*vram_gb),
            demands: Default::default(),
            work: [Work::default(); 3],
            running: 0,
            at_once: rules.max_concurrency,
            vram_fraction: None,
            runs: Vec::new(),
        });
        let seen = Observation { endpoints: endpoints.collect(), ..Observation::default() };
        let mut world = Self {
            jobs,
            kinds,
            rules,
            now_ms: 0,
            clock,
            queue,
            signals,
            machines: BTreeMap::new(),
            rented: 0,
            decide_ms: 0,
            ids: HashMap::new(),
            leases: HashMap::new(),
            known: known.collect(),
            endpoint_of,
            seen,
            events: BinaryHeap::new(),
            random: StdRng::seed_from_u64(rules.seed),
            tally: Tally::default(),
            left: jobs.len(),
        };
        if let Some(first) = jobs.first() {
            world.at(millis(first.arrival_s), Event::Arrives(0));
            world.at(0, Event::Decide);
            world.at(0, Event::Sample);
        }
        world
    }

    fn at(&mut self, at_ms: u64, event: Event) {
        self.events.push(Reverse((at_ms, event)));
    }

    /// Runs until the last job has ended.
    pub(super) fn run(mut self, scaler: &mut dyn Scaler) -> (Tally, Vec<Sample>) {
        let span_s = self.jobs.last().map_or(0.0, |job| job.arrival_s);
        let sample_ms = millis((span_s / SAMPLES).max(1.0));
        let tick_ms = millis(self.rules.tick_s).max(1);
        let end_ms = millis(span_s) + PATIENCE_MS;
        let mut samples = Vec::new();
        while self.left > 0 {
            let Some(Reverse((at_ms, event))) = self.events.pop() else { break };
            if at_ms > end_ms {
                break;
            }
            self.clock.advance_ms(at_ms - self.now_ms);
            self.now_ms = at_ms;
            match event {
                Event::Arrives(job) => self.arrive(job),
                Event::Ready(machine, life) => self.get_ready(machine, life),
                Event::Ends(machine, life, ticket, job) => self.end(machine, life, ticket, job),
                Event::Lost(machine, life) => self.lose(machine, life),
                Event::Back(machine, life) => self.come_back(machine, life),
                Event::Decide if at_ms == self.decide_ms => {
                    self.hold_gpus();
                    self.observe();
                    let plan = scaler.plan(&self.seen);
                    self.apply(&plan);
                    let pause_ms = if self.is_quiet() { tick_ms * QUIET_TICKS } else { tick_ms };
                    self.decide_by(at_ms + pause_ms);
                }
                Event::Decide => {}
                Event::Sample => {
                    samples.push(self.sample());
                    self.at(at_ms + sample_ms, Event::Sample);
                }
            }
            self.wake();
        }
        samples.push(self.sample());
        self.give_up();
        (self.tally, samples)
    }

    /// Counts jobs that were never served as late.
    fn give_up(&mut self) {
        for number in self.known.iter().flat_map(|known| known.waiting.iter().flatten()) {
            let job = &self.jobs[*number];
            self.tally.never_started(job, s(self.now_ms) - job.arrival_s, self.rules);
        }
    }

    /// Whether nothing runs, waits, or is starting.
    fn is_quiet(&self) -> bool {
        self.machines.values().all(|machine| machine.phase == Phase::Stopped)
            && self.known.iter().all(|known| known.waiting.iter().all(VecDeque::is_empty))
    }

    fn decide_by(&mut self, at_ms: u64) {
        self.decide_ms = at_ms;
        self.at(at_ms, Event::Decide);
    }

    fn arrive(&mut self, number: usize) {
        if let Some(next) = self.jobs.get(number + 1) {
            self.at(millis(next.arrival_s), Event::Arrives(number + 1));
        }
        let (request, place) = (&self.jobs[number], self.endpoint_of[number]);
        let known = &mut self.known[place];
        let spec = JobSpec {
            tenant: "all".to_owned(),
            endpoint: request.endpoint.to_string(),
            version: 1,
            priority: match request.priority {
                Priority::Interactive => job::Priority::Interactive,
                Priority::Batch => job::Priority::Batch,
            },
            vram_class_gib: known.class_gib,
            max_attempts: 1,
            timeout_ms: 1 << 40,
            ..JobSpec::default()
        };
        let input = RawValue::from_string("{}".to_owned()).expect("it is JSON");
        let id = JobId::new(0);
        let new = NewJob { id, spec, input, run_after_ms: 0, idempotency: None, archived: vec![], watcher: None };
        now(self.queue.submit(vec![new])).expect("the queue in memory takes jobs");
        self.ids.insert(id, number);
        let priority = digit(request.priority);
        known.waiting[priority].push_back(number);
        let work = &mut self.seen.endpoints[place].work[priority];
        work.arrived += 1;
        work.waiting += 1;
        self.tally.arrived(request, self.rules);
        // Decisions are far apart while nothing happens, so the next one is moved forward.
        if self.decide_ms > self.now_ms + millis(self.rules.tick_s).max(1) {
            self.decide_by(self.now_ms);
        }
    }

    /// Passes wakeups on to the waiting machines.
    fn wake(&mut self) {
        while let Ok(signal) = self.signals.try_recv() {
            let Signal::Wake(machine) = signal else { continue };
            let number = usize::try_from(machine).unwrap_or(usize::MAX);
            let Some(machine) = self.machines.get_mut(&number) else { continue };
            machine.parked = None;
            if !machine.is_open() {
                now(self.queue.wake_next()).expect("the queue in memory answers");
            }
            self.serve(number);
        }
    }

    fn unpark(&mut self, number: usize) {
        let Some(machine) = self.machines.get_mut(&number) else { return };
        if let Some(reach) = machine.parked.take() {
            let gone = now(self.queue.unpark(&waiter(number), &reach)).expect("the queue in memory answers");
            debug_assert!(gone, "it waited");
        }
    }

    /// Gives a machine the jobs that it can take, and parks it for further ones.
    fn serve(&mut self, number: usize) {
        self.unpark(number);
        loop {
            let Some(machine) = self.machines.get_mut(&number) else { return };
            if !machine.is_open() {
                return;
            }
            let mut query = machine.query();
            if let Some(class) = machine.holds {
                if !query.reach.has(class) {
                    return;
                }
                query.only = Some(class);
            } else {
                query.park = Some(waiter(number));
                query.rank = rank(machine.usd_per_hour);
            }
            let reach = query.reach.clone();
            let lease = now(self.queue.lease(query)).expect("the queue in memory answers").pop();
            if machine.holds.take().is_none() && lease.is_none() {
                machine.parked = Some(reach);
                return;
            }
            if let Some(lease) = lease {
                self.start(number, lease);
            }
        }
    }

    fn start(&mut self, number: usize, lease: Lease) {
        let job = self.ids[&lease.job_id];
        let place = self.endpoint_of[job];
        let Some(machine) = self.machines.get_mut(&number) else { return };
        let known = &mut self.known[place];
        let wanted = Wanted { endpoint: place, vram_gb: known.vram_gb, lane: &known.lane };
        let (ticket, load, load_ms) = machine.place(&wanted, self.now_ms);
        let kind = &self.kinds[machine.kind];
        let request = &self.jobs[job];
        let run_ms = millis(request.service_s / kind.speed);
        let priority = digit(request.priority);
        known.waiting[priority].retain(|waiting| *waiting != job);
        let endpoint = &mut self.seen.endpoints[place];
        endpoint.running += 1;
        let wait_s = (self.now_ms + load_ms) as f64 / 1_000.0 - request.arrival_s;
        let work = &mut endpoint.work[priority];
        work.waiting -= 1;
        work.started += 1;
        work.late += u64::from(wait_s > request.priority.target_s());
        let runs = runs_of(endpoint, &kind.name);
        match load {
            Load::Resident => {}
            Load::FromDisk => {
                (runs.disk_loads, runs.disk_load_s) = (runs.disk_loads + 1, runs.disk_load_s + s(load_ms))
            }
            Load::Cold => (runs.cold_loads, runs.cold_load_s) = (runs.cold_loads + 1, runs.cold_load_s + s(load_ms)),
        }
        self.tally.started(job, wait_s, load);
        let life = machine.life;
        self.leases.insert(job, lease);
        self.at(self.now_ms + load_ms + run_ms, Event::Ends(number, life, ticket, job));
    }

    fn end(&mut self, number: usize, life: u32, ticket: Ticket, job: usize) {
        let Some(machine) = self.machines.get_mut(&number).filter(|it| it.life == life) else { return };
        let place = self.endpoint_of[job];
        let (vram_gb, request) = (self.known[place].vram_gb, &self.jobs[job]);
        machine.free(ticket, vram_gb, self.now_ms);
        let kind = &self.kinds[machine.kind];
        let run_s = request.service_s / kind.speed;
        let endpoint = &mut self.seen.endpoints[place];
        endpoint.running -= 1;
        let runs = runs_of(endpoint, &kind.name);
        (runs.ended, runs.run_s) = (runs.ended + 1, runs.run_s + run_s);
        self.tally.ended(job, request, run_s * self.rules.share(vram_gb), self.rules);
        self.left -= 1;
        if let Some(lease) = self.leases.remove(&job) {
            let result = RawValue::from_string("0".to_owned()).expect("it is JSON");
            let outcome = FinishOutcome::Succeeded { result };
            let report = FinishReport::new(lease.named(), Timing::default(), outcome);
            now(self.queue.finish(&[report])).expect("the queue in memory answers");
        }
        self.serve(number);
    }
}

fn waiter(number: usize) -> Waiter {
    Waiter { replica: REPLICA.to_owned(), waiter: number as u64 }
}

/// Rank of a machine, same as in the gateway: cheaper machines get jobs first.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "dollars per hour, never negative")]
fn rank(usd_per_hour: f64) -> u32 {
    (usd_per_hour * 1_000.0).round().min(9_999.0) as u32 * 100
}

fn runs_of<'a>(endpoint: &'a mut Endpoint, kind: &Name) -> &'a mut Runs {
    let place = endpoint.runs.iter().position(|runs| runs.kind == *kind).unwrap_or_else(|| {
        endpoint.runs.push(Runs { kind: kind.clone(), ..Runs::default() });
        endpoint.runs.len() - 1
    });
    &mut endpoint.runs[place]
}

/// Milliseconds in seconds.
fn s(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}
