//! The simulated world: a trace comes in, the queue hands its jobs to machines, and whoever decides rents and gives back machines. The queue
//! with its lanes and shelves, and the ledger that packs models onto cards, are the product's own; machines, loads and runs are numbers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use futures::FutureExt as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::value::RawValue;
use stokehold_ledger::Ticket;
use stokehold_queue::gateway::{FinishOutcome, FinishReport};
use stokehold_queue::job::{self, JobSpec, NewJob, Timing};
use stokehold_queue::queue::{Lease, Signal, Waiter};
use stokehold_queue::reach::{Reach, class_of};
use stokehold_queue::vram::class_of_gib;
use stokehold_queue::{Clock, JobId, ManualClock, MemoryQueue, Queue};
use tokio::sync::mpsc;

use super::machine::{Load, Machine, Wanted, ms};
use super::offers::Kind;
use super::outcome::Sample;
use super::rules::{Rules, cold_load_s, disk_load_s};
use super::scaler::Scaler;
use super::tally::Tally;
use super::trace::{Job, Priority};
use crate::name::Name;
use crate::observation::{Endpoint, Observation, Offer, Phase, Runs, Work};
use crate::plan::{Action, Plan};

/// A Monday, 00:00 UTC.
const START_MS: u64 = 1_700_438_400_000;

/// The replica under which all machines wait.
const REPLICA: &str = "simulation";

/// While nothing happens at all, a decision is made once in so many ticks.
const QUIET_TICKS: u64 = 15;

/// What has not been served two days after the last job came never is.
const PATIENCE_MS: u64 = 2 * 86_400 * 1_000;

/// Points of a picture, at most.
const SAMPLES: f64 = 1_200.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(usize),
    /// A boot or a resume is over, in this life of the machine.
    Ready(usize, u32),
    /// A run is over: machine, life, ticket, job.
    Ends(usize, u32, Ticket, usize),
    /// Weights that were fetched ahead are there: machine, life, endpoint.
    Fetched(usize, u32, usize),
    /// Somebody outbid an interruptible machine.
    Lost(usize, u32),
    /// Nobody does any more.
    Back(usize, u32),
    Decide,
    Sample,
}

/// What is known of an endpoint beside what is observed of it.
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
    /// By number, in the order in which they were rented.
    machines: BTreeMap<usize, Machine>,
    rented: usize,
    /// When the next decision is due; others that were planned are void.
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
        // A lease is longer than any trace: nobody extends it here.
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
            vram_gb: *vram_gb,
            demands: Default::default(),
            work: [Work::default(); 3],
            running: 0,
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
            world.at(ms(first.arrival_s), Event::Arrives(0));
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
        let sample_ms = ms((span_s / SAMPLES).max(1.0));
        let tick_ms = ms(self.rules.tick_s).max(1);
        let end_ms = ms(span_s) + PATIENCE_MS;
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
                Event::Fetched(machine, life, endpoint) => self.fetched(machine, life, endpoint),
                Event::Lost(machine, life) => self.lose(machine, life),
                Event::Back(machine, life) => self.come_back(machine, life),
                Event::Decide if at_ms == self.decide_ms => {
                    self.hold_cards();
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

    /// What has not been served by now counts as late.
    fn give_up(&mut self) {
        for number in self.known.iter().flat_map(|known| known.waiting.iter().flatten()) {
            let job = &self.jobs[*number];
            self.tally.never_started(job, s(self.now_ms) - job.arrival_s, self.rules);
        }
    }

    /// Whether nothing runs, waits, or is on its way.
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
            self.at(ms(next.arrival_s), Event::Arrives(number + 1));
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
        // In a quiet time decisions are far apart.
        if self.decide_ms > self.now_ms + ms(self.rules.tick_s).max(1) {
            self.decide_by(self.now_ms);
        }
    }

    /// Hands wakes on to the machines that wait.
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

    /// Lets a machine take what it can; it waits for the rest.
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
        let run_ms = ms(request.service_s / kind.speed);
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
        let share = self.rules.share_gb.map_or(1.0, |share_gb| vram_gb / share_gb);
        self.tally.ended(job, request, run_s * share, self.rules);
        self.left -= 1;
        if let Some(lease) = self.leases.remove(&job) {
            let result = RawValue::from_string("0".to_owned()).expect("it is JSON");
            let outcome = FinishOutcome::Succeeded { result };
            let report = FinishReport::new(lease.named(), Timing::default(), outcome);
            now(self.queue.finish(&[report])).expect("the queue in memory answers");
        }
        self.serve(number);
    }

    fn get_ready(&mut self, number: usize, life: u32) {
        let Some(machine) = self.machines.get_mut(&number).filter(|it| it.life == life) else { return };
        self.tally.bill(machine, self.now_ms, self.rules);
        self.tally.resumes += u64::from(machine.phase == Phase::Resuming);
        machine.enter(Phase::Ready, self.now_ms);
        self.fetch_ahead(number);
        self.serve(number);
    }

    /// Fetches the next of what a machine is to have on its disk, one at a time, beside its jobs.
    fn fetch_ahead(&mut self, number: usize) {
        let Some(machine) = self.machines.get_mut(&number) else { return };
        let Some(endpoint) = machine.next_fetch() else { return };
        let vram_gb = self.known[endpoint].vram_gb;
        let fetch_ms = ms(cold_load_s(vram_gb) - disk_load_s(vram_gb));
        let life = machine.life;
        self.at(self.now_ms + fetch_ms, Event::Fetched(number, life, endpoint));
    }

    fn fetched(&mut self, number: usize, life: u32, endpoint: usize) {
        let Some(machine) = self.machines.get_mut(&number).filter(|it| it.life == life) else { return };
        machine.fetched(endpoint);
        self.fetch_ahead(number);
    }

    /// Takes an interruptible machine away. Its jobs go back to where they waited.
    fn lose(&mut self, number: usize, life: u32) {
        let Some(machine) = self.machines.get_mut(&number).filter(|it| it.life == life) else { return };
        self.tally.bill(machine, self.now_ms, self.rules);
        self.tally.losses += 1;
        machine.power_off();
        machine.enter(Phase::Lost, self.now_ms);
        let next_life = machine.life;
        self.unpark(number);
        for job in self.running_on(number, life) {
            let place = self.endpoint_of[job];
            let priority = digit(self.jobs[job].priority);
            self.known[place].waiting[priority].push_front(job);
            let endpoint = &mut self.seen.endpoints[place];
            endpoint.running -= 1;
            endpoint.work[priority].waiting += 1;
            if let Some(lease) = self.leases.remove(&job) {
                now(self.queue.release(&[lease.named()])).expect("the queue in memory answers");
            }
        }
        let back_ms = self.drawn_ms(self.rules.lost_s);
        self.at(self.now_ms + back_ms, Event::Back(number, next_life));
    }

    /// The jobs that a machine ran in this life.
    fn running_on(&self, number: usize, life: u32) -> Vec<usize> {
        let of = |event: &Reverse<(u64, Event)>| match event.0.1 {
            Event::Ends(machine, of_life, _, job) if (machine, of_life) == (number, life) => Some(job),
            _ => None,
        };
        let mut jobs: Vec<usize> = self.events.iter().filter_map(of).collect();
        jobs.sort_unstable();
        jobs
    }

    fn come_back(&mut self, number: usize, life: u32) {
        let Some(machine) = self.machines.get_mut(&number).filter(|it| it.life == life) else { return };
        if machine.phase != Phase::Lost {
            return;
        }
        self.tally.bill(machine, self.now_ms, self.rules);
        machine.enter(Phase::Ready, self.now_ms);
        self.expect_loss(number);
        self.serve(number);
    }

    /// A time from an exponential distribution with this mean.
    fn drawn_ms(&mut self, mean_s: f64) -> u64 {
        let share: f64 = self.random.random_range(f64::EPSILON..1.0);
        ms(-mean_s * share.ln())
    }

    fn expect_loss(&mut self, number: usize) {
        let Some(machine) = self.machines.get(&number) else { return };
        let (life, kind) = (machine.life, &self.kinds[machine.kind]);
        let per_hour = self.rules.interruptible.map_or(kind.spot_preempt_per_h, |(_, per_hour)| per_hour);
        if machine.is_interruptible && per_hour > 0.0 {
            let after_ms = self.drawn_ms(3_600.0 / per_hour);
            self.at(self.now_ms + after_ms, Event::Lost(number, life));
        }
    }

    /// Cards with room are held for jobs that are too big for what is free, as the gateway tells workers to.
    fn hold_cards(&mut self) {
        if self.rules.share_gb.is_none() {
            return;
        }
        let numbers: Vec<usize> = self.machines.keys().copied().collect();
        for number in numbers {
            let Some(machine) = self.machines.get(&number) else { continue };
            let Some(reach) = machine.parked.clone().filter(|_| machine.is_open()) else { continue };
            let could = Reach::usual(self.room_class_gib(machine.kind));
            let held = now(self.queue.hold(&machine.id, &reach, &could)).expect("the queue in memory answers");
            if held.is_some() {
                self.unpark(number);
                if let Some(machine) = self.machines.get_mut(&number) {
                    machine.holds = held;
                }
            }
        }
    }

    /// What models may hold of a card of this kind, GB.
    fn room_gb(&self, kind: usize) -> f64 {
        self.rules.share_gb.map_or(f64::INFINITY, |share_gb| share_gb).min(self.kinds[kind].vram_gb)
    }

    fn room_class_gib(&self, kind: usize) -> u32 {
        let room_gb = self.room_gb(kind);
        stokehold_queue::vram::CLASSES_GIB.into_iter().rfind(|class| f64::from(*class) <= room_gb).unwrap_or(0)
    }

    fn usd_per_hour(&self, kind: usize, is_interruptible: bool) -> f64 {
        let kind = &self.kinds[kind];
        match (is_interruptible, self.rules.interruptible) {
            (false, _) => kind.od_usd_h,
            (true, Some((of_price, _))) => kind.od_usd_h * of_price,
            (true, None) => kind.spot_usd_h,
        }
    }

    /// Brings the observation up to now.
    fn observe(&mut self) {
        self.seen.at_s = (START_MS + self.now_ms) as f64 / 1_000.0;
        let now_s = self.now_ms as f64 / 1_000.0;
        for (endpoint, known) in self.seen.endpoints.iter_mut().zip(&self.known) {
            for (work, waiting) in endpoint.work.iter_mut().zip(&known.waiting) {
                work.oldest_s = waiting.front().map_or(0.0, |job| (now_s - self.jobs[*job].arrival_s).max(0.0));
            }
        }
        let names = |places: &mut dyn Iterator<Item = usize>| -> Vec<Name> {
            places.map(|place| self.seen.endpoints[place].name.clone()).collect()
        };
        let at_s = |ms: u64| (START_MS + ms) as f64 / 1_000.0;
        let machines = self.machines.values().map(|machine| crate::observation::Machine {
            id: machine.id.clone(),
            provider: Name::from("simulated"),
            kind: self.kinds[machine.kind].name.clone(),
            host: Name::default(),
            phase: machine.phase,
            since_s: at_s(machine.since_ms),
            rented_s: at_s(machine.rented_ms),
            usd_per_hour: machine.usd_per_hour,
            stopped_usd_per_hour: self.rules.stopped_usd_per_hour,
            is_interruptible: machine.is_interruptible,
            can_stop: true,
            cards: 1,
            vram_gb: self.room_gb(machine.kind),
            slots: u32::from(self.rules.share_gb.is_none()),
            traits: Default::default(),
            running: machine.running.len() as u64,
            running_gb: machine.running_gb,
            idle_since_s: (machine.phase == Phase::Ready && machine.running.is_empty())
                .then(|| at_s(machine.idle_since_ms)),
            resident: names(&mut machine.resident()),
            on_disk: names(&mut machine.on_disk().iter().copied()),
        });
        let machines = machines.collect();
        let offers = (0..self.kinds.len()).map(|kind| self.offer(kind)).filter(|offer| offer.count > 0).collect();
        (self.seen.machines, self.seen.offers) = (machines, offers);
    }

    fn offer(&self, number: usize) -> Offer {
        let kind = &self.kinds[number];
        // Who is stopped has given its card back.
        let in_use = self.machines.values().filter(|it| it.kind == number && it.phase != Phase::Stopped);
        let in_use = u32::try_from(in_use.count()).unwrap_or(u32::MAX);
        let losses_per_hour = self.rules.interruptible.map_or(kind.spot_preempt_per_h, |(_, per_hour)| per_hour);
        Offer {
            id: kind.name.clone(),
            provider: Name::from("simulated"),
            kind: kind.name.clone(),
            host: Name::default(),
            count: kind.max_count.saturating_sub(in_use),
            cards: 1,
            gpu_ids: Vec::new(),
            vram_gb: self.room_gb(number),
            slots: u32::from(self.rules.share_gb.is_none()),
            speed: kind.speed,
            usd_per_hour: kind.od_usd_h,
            min_bid_usd_per_hour: self.rules.has_interruptible.then(|| self.usd_per_hour(number, true)),
            losses_per_hour,
            stopped_usd_per_hour: Some(self.rules.stopped_usd_per_hour),
            boot_s: f64::midpoint(kind.boot_lo_s, kind.boot_hi_s),
            inbound_usd_per_gb: 0.0,
            inbound_mbit_per_s: 0.0,
            reliability: 1.0,
            listed_for_s: None,
            traits: Default::default(),
            is_owned: false,
        }
    }

    /// Does what is planned, as far as it can be done: a machine that runs jobs is neither stopped nor given back.
    fn apply(&mut self, plan: &Plan) {
        for step in &plan.steps {
            match &step.action {
                Action::Rent { offer, bid_usd_per_hour, prefetch } => {
                    self.rent(offer, bid_usd_per_hour.is_some(), prefetch);
                }
                Action::Resume { machine } => self.resume(machine),
                Action::Drain { machine } => {
                    if let Some(number) = self.find(machine, &[Phase::Ready]) {
                        self.unpark(number);
                        self.enter(number, Phase::Draining);
                    }
                }
                Action::Undrain { machine } => {
                    if let Some(number) = self.find(machine, &[Phase::Draining]) {
                        self.enter(number, Phase::Ready);
                        self.serve(number);
                    }
                }
                Action::Stop { machine } => {
                    if let Some(number) = self.find(machine, &[Phase::Ready, Phase::Draining, Phase::Resuming]) {
                        self.power_off(number);
                        self.enter(number, Phase::Stopped);
                    }
                }
                Action::Release { machine } => {
                    let any =
                        [Phase::Booting, Phase::Ready, Phase::Draining, Phase::Stopped, Phase::Resuming, Phase::Lost];
                    if let Some(number) = self.find(machine, &any) {
                        self.power_off(number);
                        self.machines.remove(&number);
                    }
                }
            }
        }
    }

    /// The number of a machine that is in one of these phases, and that runs nothing if it is to be switched off.
    fn find(&self, id: &Name, phases: &[Phase]) -> Option<usize> {
        let is_it = |machine: &Machine| machine.id == *id && phases.contains(&machine.phase);
        let (number, machine) = self.machines.iter().find(|(_, machine)| is_it(machine))?;
        let switches_off = phases.len() > 1;
        (!switches_off || machine.running.is_empty()).then_some(*number)
    }

    fn enter(&mut self, number: usize, phase: Phase) {
        let Some(machine) = self.machines.get_mut(&number) else { return };
        self.tally.bill(machine, self.now_ms, self.rules);
        let idle_since_ms = machine.idle_since_ms;
        let is_back = machine.phase == Phase::Draining && phase == Phase::Ready;
        machine.enter(phase, self.now_ms);
        if is_back {
            machine.idle_since_ms = idle_since_ms;
        }
    }

    fn power_off(&mut self, number: usize) {
        self.unpark(number);
        let Some(machine) = self.machines.get_mut(&number) else { return };
        self.tally.bill(machine, self.now_ms, self.rules);
        machine.power_off();
    }

    fn rent(&mut self, offer: &Name, is_interruptible: bool, prefetch: &[Name]) {
        let Some(kind) = self.kinds.iter().position(|kind| kind.name == *offer) else { return };
        if self.offer(kind).count == 0 {
            return;
        }
        let number = self.rented;
        self.rented += 1;
        let id = Name::from(format!("m{number:05}"));
        let room_gb = self.room_gb(kind);
        let mut machine = Machine::new(id, kind, room_gb, self.rules.share_gb.is_some(), self.now_ms);
        (machine.is_interruptible, machine.usd_per_hour) =
            (is_interruptible, self.usd_per_hour(kind, is_interruptible));
        let place = |name: &Name| self.seen.endpoints.binary_search_by(|endpoint| endpoint.name.cmp(name)).ok();
        machine.to_fetch = prefetch.iter().rev().filter_map(place).collect();
        self.machines.insert(number, machine);
        self.tally.boots += 1;
        let Kind { boot_lo_s, boot_hi_s, .. } = self.kinds[kind];
        let boot_s = boot_lo_s + (boot_hi_s - boot_lo_s) * self.random.random::<f64>();
        self.at(self.now_ms + ms(boot_s), Event::Ready(number, 0));
        self.expect_loss(number);
    }

    fn resume(&mut self, id: &Name) {
        let Some(number) = self.find(id, &[Phase::Stopped]) else { return };
        self.enter(number, Phase::Resuming);
        let (is_taken, share) = (self.random.random::<f64>() < self.rules.resume_taken, self.random.random::<f64>());
        let Some(machine) = self.machines.get_mut(&number) else { return };
        // One whose card is taken goes on waiting for it, and costs what a stopped one does.
        machine.is_taken = is_taken;
        let life = machine.life;
        if !is_taken {
            let (lo_s, hi_s) = self.rules.resume_s;
            self.at(self.now_ms + ms(lo_s + (hi_s - lo_s) * share), Event::Ready(number, life));
        }
    }

    fn sample(&mut self) -> Sample {
        for machine in self.machines.values_mut() {
            self.tally.bill(machine, self.now_ms, self.rules);
        }
        let count = |is: &dyn Fn(&Machine) -> bool| {
            u32::try_from(self.machines.values().filter(|machine| is(machine)).count()).unwrap_or(u32::MAX)
        };
        let waiting = |priority: usize| {
            let jobs: usize = self.known.iter().map(|known| known.waiting[priority].len()).sum();
            u32::try_from(jobs).unwrap_or(u32::MAX)
        };
        let stood = Sample {
            at_s: s(self.now_ms),
            ready: count(&|machine| matches!(machine.phase, Phase::Ready | Phase::Draining)),
            busy: count(&|machine| !machine.running.is_empty()),
            booting: count(&|machine| matches!(machine.phase, Phase::Booting | Phase::Resuming)),
            stopped: count(&|machine| matches!(machine.phase, Phase::Stopped | Phase::Lost)),
            waiting_interactive: waiting(0),
            waiting_batch: waiting(2),
            ..Sample::default()
        };
        self.tally.sample(stood)
    }
}

fn waiter(number: usize) -> Waiter {
    Waiter { replica: REPLICA.to_owned(), waiter: number as u64 }
}

/// As the gateway ranks workers: the cheaper are woken first.
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
