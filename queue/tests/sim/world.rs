//! One seed: clients, API replicas and workers around a queue, in virtual time. Whatever is chosen is drawn from the seed, so that a run
//! can be run again; nothing waits for anything but the next event.

use std::collections::{BTreeMap, BinaryHeap};

use futures::FutureExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use stokehold_queue::gateway::{ExtendAnswer, FinishReport, LeaseRef};
use stokehold_queue::job::{Job, JobState};
use stokehold_queue::queue::{Due, Gate, Lease, LeaseQuery, Settlement, Signal, Submitted, Waiter};
use stokehold_queue::{Error, JobId, ManualClock, Queue};
use tokio::sync::mpsc::Receiver;

use crate::client::{Ask, Client};
use crate::faults::{Fault, Faults};
use crate::witness::{Broken, Verdict, Witness};
use crate::worker::Worker;
use crate::{client, settler, worker};

pub(crate) const LEASE_MS: u64 = 30_000;
pub(crate) const START_MS: u64 = 1_795_000_000_000;

/// How long things go wrong.
const TROUBLE_MS: u64 = 240_000;

/// The longest that a drain may take once everything works: two leases, the longest wait before a retry, and per open job and attempt the
/// longest run behind every other one's.
const DRAIN_MS: u64 = 2 * LEASE_MS + 60_000 + 60_000;

pub(crate) const TENANTS: [&str; 3] = ["acme", "globex", "v"];
const REPLICAS: usize = 2;
const WORKERS: usize = 4;

/// What there is to run: the seed, and what is left out to find the shortest story of a failure.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) jobs: usize,
    pub(crate) without: Vec<Fault>,
}

/// What a run came to.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) jobs: usize,
    pub(crate) ends: BTreeMap<&'static str, usize>,
    pub(crate) events: u64,
    pub(crate) verbs: u64,
    pub(crate) virtual_ms: u64,
    pub(crate) landed: BTreeMap<Fault, u64>,
}

/// What somebody wants of the queue.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Ask(Ask),
    Lease { want: u32 },
    Extend(Vec<LeaseRef>),
    Finish(Vec<FinishReport>),
    Release(Vec<LeaseRef>),
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Submitted(Submitted),
    Refused,
    Cancelled,
    Seen(Option<Box<Job>>),
    Leases(Vec<Lease>),
    Extended(Vec<ExtendAnswer>),
    Ended,
    /// The connection broke: it may have happened or not.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    Client(usize),
    /// A worker in one of its lives.
    Worker(usize, u32),
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) from: Party,
    pub(crate) op: Op,
    replica: usize,
    /// The replica's life in which it came.
    life: u32,
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    AtReplica(Call),
    AtQueue(Call),
    Back(Call, Answer),
    /// The caller has waited long enough.
    GaveUp(Party, u64),
    /// A parked pull has waited long enough.
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
    // The heap gives the largest: the earliest, then the one that was put in first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

struct Replica {
    life: u32,
    up: bool,
    signals: Receiver<Signal>,
    /// Pulls that wait for work.
    parked: BTreeMap<u64, Call>,
}

pub(crate) struct World<Q> {
    pub(crate) queue: Q,
    clock: ManualClock,
    pub(crate) rng: StdRng,
    pub(crate) faults: Faults,
    pub(crate) witness: Witness,
    pub(crate) clients: Vec<Client>,
    pub(crate) workers: Vec<Worker>,
    replicas: Vec<Replica>,
    events: BinaryHeap<Entry>,
    number: u64,
    pub(crate) healed: bool,
    report: Report,
    /// What happened, when somebody wants to read it.
    trace: Option<Vec<(u64, String)>>,
}

/// Nothing in memory has to be waited for.
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

    /// Trouble, then peace, then everything must have come to its end.
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
            let (_, usage) = now(self.queue.usage(&Gate::Tenant(tenant.into()))).expect("memory counts");
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

    // --- time, chance and the story ---------------------------------------------------------------------------------------------

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

    fn lives(&self, replica: usize, life: u32) -> bool {
        self.replicas[replica].up && self.replicas[replica].life == life
    }

    fn start_loops(&mut self, n: usize) {
        let life = self.replicas[n].life;
        self.after(0..1_000, Event::Maintain(n, life));
        self.after(0..1_000, Event::Settle(n, life));
    }

    // --- messages ---------------------------------------------------------------------------------------------------------------

    /// Sends a request to a replica and sees to it that the sender hears something, be it that it has waited in vain.
    pub(crate) fn send(&mut self, from: Party, op: Op, patience_ms: u64) -> u64 {
        let call = Call { number: self.number, from, op, replica: self.rng.random_range(0..REPLICAS), life: 0 };
        let number = call.number;
        self.number += 1;
        self.note(|| format!("{from:?} -> a{}: #{number} {}", call.replica, told(&call.op)));
        let give_up = self.now_ms() + patience_ms;
        self.at(give_up, Event::GaveUp(from, number));
        if self.is_cut_off(from) || self.strikes(Fault::RequestLost) {
            return number;
        }
        // A request is sent again by proxies and by clients alike; a submit without a key never is.
        if call.op.may_be_repeated() && self.strikes(Fault::Duplicated) {
            let delay = self.delay();
            self.after(delay, Event::AtReplica(call.clone()));
        }
        let delay = self.delay();
        self.after(delay, Event::AtReplica(call));
        number
    }

    fn delay(&mut self) -> std::ops::Range<u64> {
        if self.strikes(Fault::Delayed) { 1_000..8_000 } else { 1..40 }
    }

    fn is_cut_off(&self, party: Party) -> bool {
        match party {
            Party::Client(_) => false,
            Party::Worker(n, _) => self.workers[n].is_cut_off(self.now_ms()),
        }
    }

    fn at_replica(&mut self, mut call: Call) {
        let replica = &self.replicas[call.replica];
        if !replica.up {
            return self.reply(call, Answer::Unknown);
        }
        call.life = replica.life;
        client::prepare(self, &mut call);
        let delay = self.delay();
        self.after(delay, Event::AtQueue(call));
    }

    fn at_queue(&mut self, call: Call) -> Verdict {
        let alive = self.lives(call.replica, call.life);
        // Killed on the way: what it had sent by then happens, and nobody is told.
        if !alive && self.rng.random_bool(0.5) {
            return Ok(());
        }
        self.report.verbs += 1;
        let answer = self.carry_out(&call)?;
        if !alive {
            return Ok(());
        }
        match (answer, call.from) {
            (Answer::Leases(leases), Party::Worker(..)) if leases.is_empty() => {
                let known = self.replicas[call.replica].parked.insert(call.number, call.clone());
                if known.is_none() {
                    self.after(20_000..20_001, Event::PullOver(call.replica, call.life, call.number));
                }
            }
            (answer, _) => {
                self.replicas[call.replica].parked.remove(&call.number);
                self.reply(call, answer);
            }
        }
        Ok(())
    }

    fn reply(&mut self, call: Call, answer: Answer) {
        if !self.strikes(Fault::ReplyLost) {
            let delay = self.delay();
            self.after(delay, Event::Back(call, answer));
        }
    }

    fn back(&mut self, call: &Call, answer: Answer) -> Verdict {
        if self.is_cut_off(call.from) {
            return Ok(());
        }
        let broke = !self.lives(call.replica, call.life);
        self.answer(call.from, call.number, Some(&call.op), if broke { Answer::Unknown } else { answer })
    }

    /// `op` is what was asked; nothing when nobody answered.
    fn answer(&mut self, party: Party, number: u64, op: Option<&Op>, answer: Answer) -> Verdict {
        match party {
            Party::Client(n) => client::hears(self, n, number, answer),
            Party::Worker(n, life) => {
                worker::hears(self, (n, life), number, op, answer);
                Ok(())
            }
        }
    }

    /// A pull that finds nothing is answered so after a while. A wake that is on its way by then is handed on.
    fn pull_over(&mut self, replica: usize, life: u32, number: u64) {
        if !self.lives(replica, life) {
            return;
        }
        if let Some(call) = self.replicas[replica].parked.remove(&number) {
            let waiter = Waiter { replica: replica_name(replica, life), waiter: number };
            if !now(self.queue.unpark(&waiter)).expect("memory forgets") {
                now(self.queue.wake_next()).expect("memory wakes");
            }
            self.reply(call, Answer::Leases(Vec::new()));
        }
    }

    /// Signals are told at once and arrive a little later, if they do.
    fn hear(&mut self) {
        for n in 0..REPLICAS {
            while let Ok(signal) = self.replicas[n].signals.try_recv() {
                if !self.strikes(Fault::SignalLost) {
                    let life = self.replicas[n].life;
                    self.after(1..20, Event::Signal(n, life, signal));
                }
            }
        }
    }

    fn signal(&mut self, n: usize, life: u32, signal: &Signal) {
        if let (Signal::Wake(waiter), true) = (signal, self.lives(n, life)) {
            match self.replicas[n].parked.get(waiter).cloned() {
                Some(call) => self.after(1..20, Event::AtQueue(call)),
                None => now(self.queue.wake_next()).expect("memory wakes"),
            }
        }
    }

    // --- the queue --------------------------------------------------------------------------------------------------------------

    fn carry_out(&mut self, call: &Call) -> Result<Answer, Broken> {
        let now_ms = self.now_ms();
        let answer = match &call.op {
            Op::Ask(ask) => client::carry_out(self, ask)?,
            Op::Lease { want } => Answer::Leases(self.lease(call, *want)?),
            Op::Extend(leases) => {
                let answers = now(self.queue.extend(leases)).expect("memory extends");
                for (lease, answer) in leases.iter().zip(&answers) {
                    self.witness.extended(lease, *answer, now_ms)?;
                }
                Answer::Extended(answers)
            }
            Op::Finish(reports) => {
                let answers = now(self.queue.finish(reports)).expect("memory finishes");
                for (report, answer) in reports.iter().zip(&answers) {
                    self.witness.finished(report, *answer, now_ms)?;
                    self.look_at(report.job_id)?;
                }
                Answer::Ended
            }
            Op::Release(leases) => {
                let answers = now(self.queue.release(leases)).expect("memory releases");
                for (lease, answer) in leases.iter().zip(&answers) {
                    self.witness.released(lease, *answer)?;
                    self.look_at(lease.job_id)?;
                }
                Answer::Ended
            }
        };
        self.note(|| format!("   #{} at the queue: {}", call.number, heard(&answer)));
        Ok(answer)
    }

    fn lease(&mut self, call: &Call, want: u32) -> Result<Vec<Lease>, Broken> {
        let Party::Worker(n, life) = call.from else { return Ok(Vec::new()) };
        let (worker, reach_gib) = (self.workers[n].id(life), self.workers[n].reach_gib);
        let park = Some(Waiter { replica: replica_name(call.replica, call.life), waiter: call.number });
        let query = LeaseQuery { worker_id: worker, want, reach_gib, park };
        let leases = now(self.queue.lease(query)).expect("memory leases");
        let now_ms = self.now_ms();
        for lease in &leases {
            self.witness.leased(lease, now_ms)?;
            self.look_at(lease.job_id)?;
        }
        if leases.iter().any(|lease| lease.spec.priority.digit() > 0) {
            let waiting = self.ungated();
            self.witness.in_order(&leases, &waiting, reach_gib, now_ms)?;
        }
        self.keys_hold(&leases)?;
        Ok(leases)
    }

    /// Queued jobs that nothing holds back: no key, no tenant with limits, no time that has passed.
    fn ungated(&self) -> Vec<Job> {
        let free = |job: &Job| {
            let limited = self.clients.iter().any(|client| client.limited && client.tenant == job.spec.tenant);
            let late =
                [job.spec.start_by_ms, job.spec.deadline_ms].into_iter().flatten().any(|due| due <= self.now_ms());
            job.state == JobState::Queued && job.spec.concurrency.is_none() && !limited && !late
        };
        let jobs = self.witness.jobs().into_iter().filter_map(|id| now(self.queue.get(id)).ok().flatten());
        jobs.filter(free).collect()
    }

    /// Of the jobs with one key only so many run at once.
    fn keys_hold(&self, leases: &[Lease]) -> Verdict {
        for lease in leases {
            let Some(limit) = &lease.spec.concurrency else { continue };
            let shares = |job: &Job| {
                job.state == JobState::Running
                    && job.spec.tenant == lease.spec.tenant
                    && job.spec.concurrency.as_ref().is_some_and(|other| other.key == limit.key)
            };
            let running =
                self.witness.jobs().into_iter().filter_map(|id| now(self.queue.get(id)).ok().flatten()).filter(shares);
            let running = running.count();
            if running > client::KEY_MAX as usize {
                let what = format!("{running} with the key {:?} run at once", limit.key);
                return Err(Broken { invariant: "key", job: Some(lease.job_id), what });
            }
        }
        Ok(())
    }

    fn maintain(&mut self) -> Verdict {
        let answers: [Result<_, Error>; 3] =
            [now(self.queue.promote()), now(self.queue.reap()), now(self.queue.expire())];
        let moved: u32 = answers.into_iter().map(|swept| swept.expect("memory sweeps").jobs).sum();
        if moved > 0 {
            self.note(|| format!("   {moved} promoted, reaped or expired"));
            self.look_at_all()?;
        }
        Ok(())
    }

    pub(crate) fn look_at(&mut self, id: JobId) -> Verdict {
        let now_ms = self.now_ms();
        match now(self.queue.get(id)).expect("memory reads") {
            Some(job) => self.witness.sees(&job, now_ms),
            None => Ok(()),
        }
    }

    fn look_at_all(&mut self) -> Verdict {
        self.witness.jobs().into_iter().try_for_each(|id| self.look_at(id))
    }

    // --- trouble ----------------------------------------------------------------------------------------------------------------

    /// From time to time something dies, stands still, or loses touch.
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

fn replica_name(n: usize, life: u32) -> String {
    format!("a{n}.{life}")
}

impl Op {
    fn may_be_repeated(&self) -> bool {
        match self {
            Self::Ask(ask) => ask.may_be_repeated(),
            // A second pull would be another one, with leases of its own that nobody waits for: a lost reply does the same.
            Self::Lease { .. } => false,
            Self::Extend(_) | Self::Finish(_) | Self::Release(_) => true,
        }
    }
}

fn told(op: &Op) -> String {
    let refs = |leases: &[LeaseRef]| {
        leases.iter().map(|lease| format!("{}/{}", lease.job_id, lease.fence)).collect::<Vec<_>>().join(" ")
    };
    match op {
        Op::Ask(ask) => format!("{ask}"),
        Op::Lease { want } => format!("lease {want}"),
        Op::Extend(leases) => format!("extend {}", refs(leases)),
        Op::Release(leases) => format!("release {}", refs(leases)),
        Op::Finish(reports) => {
            let leases: Vec<_> =
                reports.iter().map(|report| LeaseRef { job_id: report.job_id, fence: report.fence.clone() }).collect();
            format!("finish {}", refs(&leases))
        }
    }
}

fn heard(answer: &Answer) -> String {
    match answer {
        Answer::Leases(leases) => {
            let leases: Vec<_> = leases.iter().map(|lease| format!("{}/{}", lease.job_id, lease.fence)).collect();
            format!("leases {}", leases.join(" "))
        }
        Answer::Seen(job) => format!("sees {}", job.as_ref().map_or("nothing", |job| job.state.as_str())),
        other => format!("{other:?}"),
    }
}
