//! Messages from clients and workers to a replica, from there to the queue, and back. On each way they may be delayed,
//! lost or duplicated, and a replica may be killed while it processes one.

use std::collections::BTreeMap;

use rand::Rng;
use stokehold_queue::Queue;
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{ExtendAnswer, FinishReport, LeaseRef};
use stokehold_queue::job::Job;
use stokehold_queue::queue::{Lease, Signal, Submitted, Waiter};
use tokio::sync::mpsc::Receiver;

use crate::client::{self, Ask};
use crate::faults::Fault;
use crate::witness::Verdict;
use crate::worker;
use crate::world::{Event, World, now};

/// Number of replicas.
pub(crate) const REPLICAS: usize = 2;

/// A request to the queue.
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
    /// The connection broke: the operation may or may not have happened.
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
    pub(crate) replica: usize,
    /// The life of the replica in which the call arrived.
    pub(crate) life: u32,
}

pub(crate) struct Replica {
    pub(crate) life: u32,
    pub(crate) up: bool,
    pub(crate) signals: Receiver<Signal>,
    /// Lease polls that wait for work.
    pub(crate) parked: BTreeMap<u64, Call>,
}

impl<Q: Queue> World<Q> {
    /// Sends a request to a replica and ensures that the sender receives a reply or a timeout.
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
        // Proxies and clients repeat requests; a submit without a key is never repeated.
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

    pub(crate) fn at_replica(&mut self, mut call: Call) {
        let replica = &self.replicas[call.replica];
        if !replica.up {
            return self.reply(call, Answer::Unknown);
        }
        call.life = replica.life;
        client::prepare(self, &mut call);
        let delay = self.delay();
        self.after(delay, Event::AtQueue(call));
    }

    pub(crate) fn at_queue(&mut self, call: Call) -> Verdict {
        let alive = self.lives(call.replica, call.life);
        // The replica was killed in between: what it had sent by then takes effect, and the sender gets no reply.
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

    pub(crate) fn back(&mut self, call: &Call, answer: Answer) -> Verdict {
        if self.is_cut_off(call.from) {
            return Ok(());
        }
        let broke = !self.lives(call.replica, call.life);
        self.answer(call.from, call.number, Some(&call.op), if broke { Answer::Unknown } else { answer })
    }

    /// Delivers a reply. `op` is the request; `None` if there was no reply.
    pub(crate) fn answer(&mut self, party: Party, number: u64, op: Option<&Op>, answer: Answer) -> Verdict {
        match party {
            Party::Client(n) => client::hears(self, n, number, answer),
            Party::Worker(n, life) => {
                worker::hears(self, (n, life), number, op, answer);
                Ok(())
            }
        }
    }

    /// Ends a lease poll that found nothing after a while. A wakeup that is in flight by then is passed on.
    pub(crate) fn pull_over(&mut self, replica: usize, life: u32, number: u64) {
        if !self.lives(replica, life) {
            return;
        }
        if let Some(call) = self.replicas[replica].parked.remove(&number) {
            let waiter = Waiter { replica: replica_name(replica, life), waiter: number };
            // The poll as it was parked: by a worker, whose capability is constant for its life.
            let Party::Worker(n, _) = call.from else { unreachable!("only workers pull") };
            let reach = Capability::usual(self.workers[n].reach_gib);
            if !now(self.queue.unpark(&waiter, &reach)).expect("memory forgets") {
                now(self.queue.wake_next()).expect("memory wakes");
            }
            self.reply(call, Answer::Leases(Vec::new()));
        }
    }

    /// Delivers the queue's signals a little later, unless they are lost.
    pub(crate) fn hear(&mut self) {
        for n in 0..REPLICAS {
            while let Ok(signal) = self.replicas[n].signals.try_recv() {
                if !self.strikes(Fault::SignalLost) {
                    let life = self.replicas[n].life;
                    self.after(1..20, Event::Signal(n, life, signal));
                }
            }
        }
    }

    pub(crate) fn signal(&mut self, n: usize, life: u32, signal: &Signal) {
        if let (Signal::Wake(waiter), true) = (signal, self.lives(n, life)) {
            match self.replicas[n].parked.get(waiter).cloned() {
                Some(call) => self.after(1..20, Event::AtQueue(call)),
                None => now(self.queue.wake_next()).expect("memory wakes"),
            }
        }
    }
}

pub(crate) fn replica_name(n: usize, life: u32) -> String {
    format!("a{n}.{life}")
}

impl Op {
    fn may_be_repeated(&self) -> bool {
        match self {
            Self::Ask(ask) => ask.may_be_repeated(),
            // A second lease poll would be a separate one, with leases that no sender waits for; a lost reply has the
            // same effect.
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

pub(crate) fn heard(answer: &Answer) -> String {
    match answer {
        Answer::Leases(leases) => {
            let leases: Vec<_> = leases.iter().map(|lease| format!("{}/{}", lease.job_id, lease.fence)).collect();
            format!("leases {}", leases.join(" "))
        }
        Answer::Seen(job) => format!("sees {}", job.as_ref().map_or("nothing", |job| job.state.as_str())),
        other => format!("{other:?}"),
    }
}
