//! One seed: clients, API replicas and workers around a queue, in virtual time. Every choice is drawn from the seed, so
//! that a run can be repeated. Time advances from one event to the next.

use std::collections::{BTreeMap, BinaryHeap};

use futures::FutureExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use stokehold_queue::queue::{Due, LimitScope, Settlement, Signal};
use stokehold_queue::{JobId, ManualClock, Queue};

use crate::client::Client;
use crate::faults::{Fault, Faults};
use crate::network::{Answer, Call, Party, REPLICAS, Replica, replica_name};
use crate::witness::{Broken, Verdict, Witness};
use crate::worker::Worker;
use crate::{client, settler, worker};

pub(crate) const LEASE_MS: u64 = 30_000;
pub(crate) const START_MS: u64 = 1_795_000_000_000;

/// Duration of the faulty phase.
const TROUBLE_MS: u64 = 240_000;

/// Maximum duration of a drain once the faults have ended: two leases, the longest wait before a retry, and for each
/// open job and attempt the longest run behind every other one's.
const DRAIN_MS: u64 = 2 * LEASE_MS + 60_000 + 60_000;

pub(crate) const TENANTS: [&str; 3] = ["acme", "globex", "v"];
const WORKERS: usize = 4;

/// The plan of a run: the seed, and the jobs and faults that are left out to find the shortest failing run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) jobs: usize,
    pub(crate) without: Vec<Fault>,
}

/// Counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) jobs: usize,
    pub(crate) ends: BTreeMap<&'static str, usize>,
    pub(crate) events: u64,
    pub(crate) verbs: u64,
    /// Expired leases that were reaped.
    pub(crate) reaped: u64,
    /// Reports that were refused because the attempt no longer belonged to the sender.
    pub(crate) stale: u64,
    pub(crate) virtual_ms: u64,
    pub(crate) landed: BTreeMap<Fault, u64>,
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    AtReplica(Call),
    AtQueue(Call),
    Back(Call, Answer),
    /// The timeout of the caller has passed.
    GaveUp(Party, u64),
    /// The timeout of a parked lease poll has passed.
    PullOver(usize, u32, u64),
    Signal(usize, u32, Signal),
    Maintain(usize, u32),
    Settle(usize, u32),
    SettleOne(usize, u32, Due),
    Apply(usize, u32, Box<Settlement>),
    ReplicaBack(usize),
    Client(usize),
    Worker(usize, u32, worker::Step),
    Trouble,
}

struct Entry(u64, u64, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    // The heap returns the largest, which is the earliest event, then the one that was added first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

pub(crate) struct World<Q> {
    pub(crate) queue: Q,
    clock: ManualClock,
    pub(crate) rng: StdRng,
    pub(crate) faults: Faults,
    pub(crate) witness: Witness,
    pub(crate) clients: Vec<Client>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) replicas: Vec<Replica>,
    events: BinaryHeap<Entry>,
    pub(crate) number: u64,
    pub(crate) healed: bool,
    pub(crate) report: Report,
    /// The events, if they are recorded.
    trace: Option<Vec<(u64, String)>>,
}

/// The output of a future that never has to wait, because everything is in memory.
pub(crate) fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("a queue in memory answers at once")
}

impl<Q: Queue> World<Q> {
    pub(crate) fn new(plan: &Plan, queue: Q, clock: ManualClock, traced: bool) -> Self {
        let mut rng = StdRng::seed_from_u64(plan.seed);
        let faults = Faults::draw(&mut rng, &plan.without);
        let replicas = (0..REPLICAS).map(|n| Replica {
            life: 0,
            up: true,
            signals: now(queue.listen(&replica_name(n, 0))).expect("memory listens"),
            parked: BTreeMap::new(),
        });
        let mut world = Self {
            replicas: replicas.collect(),
            clients: client::all(plan.jobs, &mut rng),
            workers: (0..WORKERS).map(|n| Worker::new(n, &mut rng)).collect(),
            queue,
            clock,
            rng,
            faults,
            witness: Witness::new(LEASE_MS),
            events: BinaryHeap::new(),
            number: 0,
            healed: false,
            report: Report::default(),
            trace: traced.then(Vec::new),
        };
        client::set_limits(&mut world);
        for n in 0..REPLICAS {
            world.start_loops(n);
        }
        for n in 0..world.clients.len() {
            world.after(0..2_000, Event::Client(n));
        }
        for n in 0..WORKERS {
            let life = world.workers[n].life;
            world.after(0..500, Event::Worker(n, life, worker::Step::Pull));
            world.after(5_000..10_000, Event::Worker(n, life, worker::Step::Beat));
        }
        world.after(500..3_000, Event::Trouble);
        world
    }

    /// Runs the faulty phase and the quiet phase, after which every job must have ended.
    pub(crate) fn run(mut self) -> (Result<Report, Broken>, Vec<(u64, String)>) {
        let verdict = self.live();
        let landed = std::mem::take(&mut self.faults.landed);
        let report = Report { landed, virtual_ms: self.now_ms() - START_MS, ..self.report };
        (verdict.map(|()| report), self.trace.unwrap_or_default())
    }

    fn live(&mut self) -> Verdict {
        while self.now_ms() < START_MS + TROUBLE_MS {
            self.step()?;
        }
        self.heal();
        let until = self.now_ms() + self.drain_ms();
        while self.now_ms() < until && !(self.witness.all_ended() && self.clients.iter().all(Client::is_done)) {
            self.step()?;
        }
        self.look_at_all()?;
        let empty = now(self.queue.depth()).is_ok_and(|lanes| lanes.is_empty());
        let mut idle = true;
        for tenant in TENANTS {
            let (_, usage) = now(self.queue.usage(&LimitScope::Tenant(tenant.into()))).expect("memory counts");
            idle &= usage.open == 0 && usage.running == 0;
        }
        self.witness.at_rest(empty && idle)?;
        for id in self.witness.jobs() {
            if let Some(job) = now(self.queue.get(id)).expect("memory reads") {
                self.report.jobs += 1;
                *self.report.ends.entry(job.state.as_str()).or_default() += 1;
            }
        }
        Ok(())
    }

    fn heal(&mut self) {
        self.note(|| "everything works from here on".into());
        self.healed = true;
        self.faults.heal();
        client::lift_limits(self);
        for worker in &mut self.workers {
            worker.heal();
        }
    }

    fn drain_ms(&self) -> u64 {
        let mut open = 0;
        let mut latest_ms = 0;
        for id in self.witness.jobs() {
            if let Some(job) = now(self.queue.get(id)).expect("memory reads").filter(|job| !job.state.is_terminal()) {
                open += 1 + job.spec.steps.len() as u64;
                latest_ms = latest_ms.max(job.run_after_ms.unwrap_or(0).saturating_sub(self.now_ms()));
            }
        }
        DRAIN_MS + latest_ms + open * worker::LONGEST_RUN_MS
    }

    fn step(&mut self) -> Verdict {
        let Entry(at, _, event) = self.events.pop().expect("the loops never end");
        self.clock.advance_ms(at.saturating_sub(self.now_ms()));
        self.report.events += 1;
        self.handle(event)?;
        self.hear();
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Verdict {
        match event {
            Event::AtReplica(call) => self.at_replica(call),
            Event::AtQueue(call) => return self.at_queue(call),
            Event::Back(call, answer) => return self.back(&call, answer),
            Event::GaveUp(party, number) => return self.answer(party, number, None, Answer::Unknown),
            Event::PullOver(replica, life, number) => self.pull_over(replica, life, number),
            Event::Signal(replica, life, signal) => self.signal(replica, life, &signal),
            Event::Maintain(replica, life) if self.lives(replica, life) => {
                self.after(500..1_500, Event::Maintain(replica, life));
                return self.maintain();
            }
            Event::Settle(replica, life) if self.lives(replica, life) => {
                self.after(500..1_500, Event::Settle(replica, life));
                for due in now(self.queue.due(10_000)).expect("memory answers") {
                    self.after(1..400, Event::SettleOne(replica, life, due));
                }
            }
            Event::SettleOne(replica, life, due) if self.lives(replica, life) => settler::one(self, replica, life, due),
            Event::Apply(replica, life, settlement) if self.lives(replica, life) => {
                return settler::apply(self, &settlement);
            }
            Event::Maintain(..) | Event::Settle(..) | Event::SettleOne(..) | Event::Apply(..) => {}
            Event::ReplicaBack(n) => {
                let life = self.replicas[n].life;
                self.replicas[n].up = true;
                self.replicas[n].signals = now(self.queue.listen(&replica_name(n, life))).expect("memory listens");
                self.start_loops(n);
            }
            Event::Client(n) => client::act(self, n),
            Event::Worker(n, life, step) => worker::act(self, n, life, step),
            Event::Trouble => self.trouble(),
        }
        Ok(())
    }

    // --- time, chance and the trace
    // ---------------------------------------------------------------------------------------------

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub(crate) fn after(&mut self, ms: std::ops::Range<u64>, event: Event) {
        let at = self.now_ms() + self.rng.random_range(ms);
        self.at(at, event);
    }

    pub(crate) fn at(&mut self, at_ms: u64, event: Event) {
        self.number += 1;
        self.events.push(Entry(at_ms, self.number, event));
    }

    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let struck = self.faults.strikes(fault, &mut self.rng);
        if struck {
            self.note(|| format!("!! {fault:?}"));
        }
        struck
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        let at = self.clock.now_ms() - START_MS;
        if let Some(trace) = &mut self.trace {
            trace.push((at, text()));
        }
    }

    pub(crate) fn new_id(&mut self) -> JobId {
        let (time, random) = (self.now_ms(), self.rng.random::<u64>());
        let id = format!(
            "{time:012x}7{:03x}{:016x}",
            random >> 52,
            (random & 0x3fff_ffff_ffff_ff00) | 0x8000_0000_0000_0000
        );
        id.parse().expect("a version 7 id")
    }

    pub(crate) fn lives(&self, replica: usize, life: u32) -> bool {
        self.replicas[replica].up && self.replicas[replica].life == life
    }

    fn start_loops(&mut self, n: usize) {
        let life = self.replicas[n].life;
        self.after(0..1_000, Event::Maintain(n, life));
        self.after(0..1_000, Event::Settle(n, life));
    }

    // --- faults
    // -----------------------------------------------------------------------------------------------------------------

    /// Kills, pauses or disconnects a party from time to time.
    fn trouble(&mut self) {
        if self.healed {
            return;
        }
        self.after(500..3_000, Event::Trouble);
        let n = self.rng.random_range(0..REPLICAS);
        if self.replicas[n].up && self.strikes(Fault::ReplicaKilled) {
            let replica = &mut self.replicas[n];
            replica.up = false;
            replica.life += 1;
            replica.parked.clear();
            self.note(|| format!("a{n} is killed"));
            self.after(200..10_000, Event::ReplicaBack(n));
        }
        worker::trouble(self);
    }
}
