//! A worker: it leases, runs, extends its leases, and reports until it gets a reply. It dies, pauses, and loses its
//! connection.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::value::RawValue;
use stokehold_queue::gateway::{ExtendAnswer, FinishOutcome, FinishReport, LeaseRef};
use stokehold_queue::job::{ErrorCode, JobError, Timing};
use stokehold_queue::queue::Lease;
use stokehold_queue::{Fence, JobId, Queue};

use crate::faults::Fault;
use crate::network::{Answer, Op, Party};
use crate::world::{Event, LEASE_MS, World};

pub(crate) const LONGEST_RUN_MS: u64 = 5_000;
const BEAT_MS: u64 = LEASE_MS / 3;
const HOUR_MS: i64 = 3_600_000;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Pull,
    Beat,
    /// An attempt ends.
    End(LeaseRef),
    /// Ended attempts are reported again until a reply states their outcome.
    Report,
    Start,
}

enum Run {
    Under { step: bool, started_wall_ms: u64 },
    Ended(Box<FinishReport>),
}

struct Held {
    run: Run,
    /// Time of the last message that extended the lease.
    sure_ms: u64,
}

pub(crate) struct Worker {
    number: usize,
    pub(crate) life: u32,
    pub(crate) reach_gib: u32,
    slots: usize,
    held: BTreeMap<(JobId, String), Held>,
    pull: Option<u64>,
    beat: Option<(u64, u64)>,
    draining: bool,
    stands_until_ms: u64,
    cut_until_ms: u64,
    /// Offset of its wall clock.
    off_ms: i64,
    down: bool,
}

impl Worker {
    pub(crate) fn new(number: usize, rng: &mut StdRng) -> Self {
        Self {
            number,
            life: 0,
            // One worker meets every requirement, so that no job waits for ever.
            reach_gib: if number == 0 { 24 } else { [0, 8, 24][rng.random_range(0..3)] },
            slots: rng.random_range(1..4),
            held: BTreeMap::new(),
            pull: None,
            beat: None,
            draining: false,
            stands_until_ms: 0,
            cut_until_ms: 0,
            off_ms: 0,
            down: false,
        }
    }

    /// Id of the worker; after a restart it is a new worker.
    pub(crate) fn id(&self, life: u32) -> String {
        format!("w{}.{life}", self.number)
    }

    pub(crate) fn is_cut_off(&self, now_ms: u64) -> bool {
        now_ms < self.cut_until_ms
    }

    pub(crate) fn heal(&mut self) {
        (self.stands_until_ms, self.cut_until_ms) = (0, 0);
    }

    fn wall_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add_signed(self.off_ms)
    }

    fn refs(&self, ended: bool) -> Vec<LeaseRef> {
        let wanted = |held: &Held| ended || matches!(held.run, Run::Under { .. });
        let held = self.held.iter().filter(|(_, held)| wanted(held));
        held.map(|((job_id, fence), _)| LeaseRef { job_id: *job_id, fence: Fence(fence.clone()) }).collect()
    }
}

fn key(lease: &LeaseRef) -> (JobId, String) {
    (lease.job_id, lease.fence.0.clone())
}

pub(crate) fn act<Q: Queue>(world: &mut World<Q>, n: usize, life: u32, step: Step) {
    let (now_ms, worker) = (world.now_ms(), &mut world.workers[n]);
    if worker.life != life {
        return;
    }
    if now_ms < worker.stands_until_ms {
        // A paused process does everything late.
        let later = worker.stands_until_ms;
        return world.at(later, Event::Worker(n, life, step));
    }
    match step {
        Step::Start => {
            worker.down = false;
            world.after(0..100, Event::Worker(n, life, Step::Pull));
            world.after(BEAT_MS..BEAT_MS + 1, Event::Worker(n, life, Step::Beat));
        }
        Step::Pull => {
            let free = worker.slots.saturating_sub(worker.held.len());
            world.after(500..1_500, Event::Worker(n, life, Step::Pull));
            if world.workers[n].pull.is_none() && free > 0 && !world.workers[n].draining {
                let want = u32::try_from(free).expect("a few slots");
                world.workers[n].pull = Some(world.send(Party::Worker(n, life), Op::Lease { want }, 30_000));
            }
        }
        Step::Beat => {
            world.after(BEAT_MS..BEAT_MS + 200, Event::Worker(n, life, Step::Beat));
            beat(world, n);
        }
        Step::End(lease) => end(world, n, &lease),
        Step::Report => report(world, n),
    }
}

/// Extends its leases, and drops those that it can no longer be sure of.
fn beat<Q: Queue>(world: &mut World<Q>, n: usize) {
    let (now_ms, worker) = (world.now_ms(), &mut world.workers[n]);
    let life = worker.life;
    worker.held.retain(|_, held| matches!(held.run, Run::Ended(_)) || now_ms < held.sure_ms + LEASE_MS);
    let leases = worker.refs(true);
    if !leases.is_empty() {
        let number = world.send(Party::Worker(n, life), Op::Extend(leases), 5_000);
        world.workers[n].beat = Some((number, now_ms));
    }
}

fn begin<Q: Queue>(world: &mut World<Q>, n: usize, lease: &Lease) {
    let (now_ms, life) = (world.now_ms(), world.workers[n].life);
    let started_wall_ms = world.workers[n].wall_ms(now_ms);
    let lease_ref = LeaseRef { job_id: lease.job_id, fence: lease.fence.clone() };
    let run = Run::Under { step: lease.spec.step_of.is_some(), started_wall_ms };
    world.workers[n].held.insert(key(&lease_ref), Held { run, sure_ms: now_ms });
    // Some runs take longer than a lease, so that only the heartbeat keeps them.
    let longest = if world.healed || world.rng.random_bool(0.8) { LONGEST_RUN_MS } else { 2 * LEASE_MS };
    world.after(50..longest, Event::Worker(n, life, Step::End(lease_ref)));
}

fn end<Q: Queue>(world: &mut World<Q>, n: usize, lease: &LeaseRef) {
    let Some(Run::Under { step, started_wall_ms }) = world.workers[n].held.get(&key(lease)).map(|held| &held.run)
    else {
        return;
    };
    let (step, started_wall_ms) = (*step, *started_wall_ms);
    let faults = [
        (Fault::RunnerCrashed, ErrorCode::RunnerCrashed),
        (Fault::HandlerFailed, ErrorCode::HandlerError),
        (Fault::OutOfMemory, ErrorCode::OomGpu),
    ];
    let failed = faults.into_iter().find(|(fault, _)| world.strikes(*fault));
    let outcome = match failed {
        Some((_, code)) => FinishOutcome::Failed { error: JobError::new(code, "as the seed wants it") },
        None => {
            world.witness.ran(lease);
            let text = if step { r#"{"decision": "allow"}"#.to_owned() } else { format!("\"{}\"", lease.fence) };
            FinishOutcome::Succeeded { result: RawValue::from_string(text).expect("JSON") }
        }
    };
    let now_ms = world.now_ms();
    let worker = &mut world.workers[n];
    // By its own clock, which may have jumped.
    let timing = Timing { run_ms: worker.wall_ms(now_ms).saturating_sub(started_wall_ms), ..Timing::default() };
    let report = FinishReport::new(lease.clone(), timing, outcome);
    if let Some(held) = worker.held.get_mut(&key(lease)) {
        held.run = Run::Ended(Box::new(report));
    }
    self::report(world, n);
}

fn report<Q: Queue>(world: &mut World<Q>, n: usize) {
    let worker = &world.workers[n];
    let ended: Vec<FinishReport> = worker
        .held
        .values()
        .filter_map(|held| match &held.run {
            Run::Ended(report) => Some((**report).clone()),
            Run::Under { .. } => None,
        })
        .collect();
    if !ended.is_empty() {
        let life = worker.life;
        world.send(Party::Worker(n, life), Op::Finish(ended), 5_000);
        world.after(2_000..4_000, Event::Worker(n, life, Step::Report));
    }
}

/// Receives a reply. A paused worker receives it at once and acts on it later: the kernel buffers it.
pub(crate) fn hears<Q: Queue>(
    world: &mut World<Q>,
    (n, life): (usize, u32),
    number: u64,
    op: Option<&Op>,
    answer: Answer,
) {
    if world.workers[n].life != life {
        return;
    }
    match (answer, op) {
        (Answer::Leases(leases), _) if world.workers[n].pull == Some(number) => {
            world.workers[n].pull = None;
            for lease in &leases {
                begin(world, n, lease);
            }
            if !leases.is_empty() {
                world.after(0..50, Event::Worker(n, life, Step::Pull));
            }
        }
        (Answer::Extended(answers), Some(Op::Extend(leases))) => {
            let worker = &mut world.workers[n];
            let sent_ms = worker.beat.filter(|(beat, _)| *beat == number).map(|(_, sent_ms)| sent_ms);
            for (lease, answer) in leases.iter().zip(answers) {
                match (answer, worker.held.get_mut(&key(lease)), sent_ms) {
                    (ExtendAnswer::Held, Some(held), Some(sent_ms)) => held.sure_ms = held.sure_ms.max(sent_ms),
                    (ExtendAnswer::Held, _, _) => {}
                    (ExtendAnswer::Lost, _, _) => drop(worker.held.remove(&key(lease))),
                }
            }
        }
        // Whatever the reply is, it is final for that attempt.
        (Answer::Ended, Some(Op::Finish(reports))) => {
            for report in reports {
                world.workers[n].held.remove(&(report.job_id, report.fence.0.clone()));
            }
        }
        (Answer::Unknown, _) if world.workers[n].pull == Some(number) => world.workers[n].pull = None,
        _ => {}
    }
}

/// Injects faults of workers.
pub(crate) fn trouble<Q: Queue>(world: &mut World<Q>) {
    for n in 0..world.workers.len() {
        let now_ms = world.now_ms();
        if world.workers[n].down {
            continue;
        }
        if world.strikes(Fault::WorkerKilled) {
            restart(world, n);
        } else if world.strikes(Fault::WorkerPaused) {
            world.workers[n].stands_until_ms = now_ms + world.rng.random_range(LEASE_MS + 1_000..3 * LEASE_MS);
        } else if world.strikes(Fault::WorkerCutOff) {
            world.workers[n].cut_until_ms = now_ms + world.rng.random_range(5_000..2 * LEASE_MS);
        } else if world.strikes(Fault::ClockStepped) {
            world.workers[n].off_ms = if world.rng.random_bool(0.5) { HOUR_MS } else { -HOUR_MS };
        } else if world.strikes(Fault::WorkerDrained) {
            let (life, leases) = (world.workers[n].life, world.workers[n].refs(false));
            if !leases.is_empty() {
                world.send(Party::Worker(n, life), Op::Release(leases), 5_000);
            }
            restart(world, n);
        }
    }
}

fn restart<Q: Queue>(world: &mut World<Q>, n: usize) {
    let worker = &mut world.workers[n];
    worker.life += 1;
    worker.held.clear();
    (worker.pull, worker.beat) = (None, None);
    (worker.down, worker.stands_until_ms, worker.cut_until_ms) = (true, 0, 0);
    let life = worker.life;
    world.after(500..15_000, Event::Worker(n, life, Step::Start));
}
