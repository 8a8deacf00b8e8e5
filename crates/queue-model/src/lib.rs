//! The queue in one process, without Redis, with the same guarantees. Every transition goes through `state::next`.
//! Simulations run on it, and the Lua scripts are compared with it, so it has the same sets under the same names and
//! adds in the same order. All data is lost when it is dropped. It has no batches to feed, no webhooks to deliver and
//! no records that go to history.

mod class_queues;
mod ends;
mod limit_scopes;
mod pick;
mod ranked;
mod record;
mod settle;
mod verbs;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use stokehold_protocol::capability::{Capability, parts_of};
use stokehold_protocol::clock::Clock;
use stokehold_protocol::id::{JobId, nonce};
use stokehold_protocol::job::DependencyOn;
use stokehold_protocol::state::{self, JobEvent};
use stokehold_queue::budgets::Stood;
use stokehold_queue::implementation::Numbers;
use stokehold_queue::queue::{Limits, Signal, Work};
use tokio::sync::mpsc;

use class_queues::{ClassQueue, ClassQueueName, Lane};
use limit_scopes::Counts;
use ranked::Ranked;
use record::{Position, Record};

const EVENTS_KEPT: usize = 1_000;
const SWEEP_MAX: usize = 100;
const SIGNAL_BACKLOG: usize = 10_000;

/// The queue in one process.
#[derive(Default)]
pub struct MemoryQueue {
    clock: Clock,
    lease_ms: u64,
    inner: Mutex<Inner>,
}

impl MemoryQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(clock: Clock, lease_ms: u64) -> Self {
        Self { clock, lease_ms, inner: Mutex::default() }
    }

    /// Like [`MemoryQueue::new`], with `seed` as the source of the random part of fences. A repeated simulation gets
    /// the same fences.
    #[must_use]
    pub fn seeded(clock: Clock, lease_ms: u64, seed: u64) -> Self {
        let inner = Inner { nonces: Some(StdRng::seed_from_u64(seed)), ..Inner::default() };
        Self { clock, lease_ms, inner: Mutex::new(inner) }
    }

    /// Locks the state and updates its time. A poisoned lock is used as it is, because the panic has already been
    /// reported.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now = self.clock.now_ms();
        inner
    }
}

/// The keys that `keys.rs` lists, except those of records, webhooks and batches.
#[derive(Default)]
struct Inner {
    now: u64,
    /// Source of nonces; `None` uses the system's generator.
    nonces: Option<StdRng>,
    turn: u64,
    /// Number of submitted jobs.
    arrived: u64,
    jobs: HashMap<JobId, Record>,
    dependents: HashMap<JobId, VecDeque<(JobId, DependencyOn)>>,
    lanes: HashMap<String, Lane>,
    lanes_of: HashMap<(ClassQueueName, String), Ranked<String>>,
    class_queues: HashMap<ClassQueueName, ClassQueue>,
    /// Classes with ready jobs, by priority.
    tags: [Ranked<u32>; 3],
    passed: [u32; 3],
    /// Charges of tenants per class queue, and limit scopes to unblock. Both are collected during one call.
    charges: BTreeMap<(ClassQueueName, String), f64>,
    freed: Vec<String>,
    costs: HashMap<String, f64>,
    /// Counters that only grow.
    flow: BTreeMap<String, u64>,
    /// Use of ended attempts by day and owner, named like in `count_spent` of lib/spent.lua.
    spent: BTreeMap<u32, BTreeMap<String, Numbers>>,
    ready: Counts,
    open: Counts,
    running: Counts,
    limits: HashMap<String, Limits>,
    /// State of the budgets of limit scopes, and the times until which the scopes are paused.
    stood: HashMap<String, Stood>,
    paused: HashMap<String, u64>,
    /// Limit scopes of disabled tenants.
    disabled: HashSet<String>,
    rates: HashMap<String, f64>,
    held: HashMap<String, Ranked<String>>,
    holds: Ranked<String>,
    /// Queued jobs with a concurrency key, by arrival.
    waiting: HashMap<String, Ranked<(JobId, String)>>,
    leases: Ranked<JobId>,
    scheduled: Ranked<JobId>,
    deadlines: Ranked<JobId>,
    /// Work to settle: ended jobs (`false`) and blocked jobs that are ready (`true`).
    due: Ranked<(bool, JobId)>,
    parked: BTreeMap<String, Parked>,
    /// Classes that a worker reserves room for, and the time until which no other worker is asked.
    holds_of: BTreeMap<u32, u64>,
    /// Next job of each class queue, and the time since which it has been the next one.
    heads: HashMap<ClassQueueName, (JobId, u64)>,
    index: HashMap<String, Vec<JobId>>,
    /// Request hash and jobs of each idempotency key, by tenant and key.
    idempotency: HashMap<(String, String), (String, Vec<JobId>)>,
    listeners: HashMap<String, mpsc::Sender<Signal>>,
}

/// A parked lease poll: the capability of its worker, and its rank among the polls that can take a job.
struct Parked {
    reach: Capability,
    rank: u32,
    warm: Vec<String>,
}

/// Lanes that received jobs: one of each class is signalled.
#[derive(Default)]
struct Lanes(BTreeMap<u32, String>);

impl Extend<String> for Lanes {
    fn extend<I: IntoIterator<Item = String>>(&mut self, lanes: I) {
        self.0.extend(lanes.into_iter().map(|lane| (class_queues::parts_of(&lane).0.1, lane)));
    }
}

impl Inner {
    fn nonce(&mut self) -> String {
        self.nonces.as_mut().map_or_else(nonce, |seeded| format!("{:016x}", seeded.random::<u64>()))
    }

    fn record(&mut self, id: JobId) -> &mut Record {
        // Every id in a lane or a set has a record; the opposite is a broken invariant.
        self.jobs.get_mut(&id).expect("a job in the queue has a record")
    }

    fn grow(&mut self, field: String, by: u64) {
        if by > 0 {
            *self.flow.entry(field).or_default() += by;
        }
    }

    /// The only place where a job changes state.
    fn step(&mut self, id: JobId, event: JobEvent) {
        let now = self.now;
        let record = self.record(id);
        // Callers check the state first; the opposite is a broken invariant.
        let next = state::next(record.job.state, event).unwrap_or_else(|illegal| panic!("{illegal}"));
        record.job.state = next;
        if next.is_terminal() {
            record.job.ended_ms = Some(now);
            record.job.progress = None;
        }
        self.tell_watchers(id);
    }

    fn tell_watchers(&self, id: JobId) {
        for replica in self.jobs.get(&id).into_iter().flat_map(|record| &record.watchers) {
            if let Some(listener) = self.listeners.get(replica) {
                let _ = listener.try_send(Signal::Job(id));
            }
        }
    }

    /// Notifies every replica of work that any of them can do.
    fn announce(&self, work: Work) {
        for listener in self.listeners.values() {
            let _ = listener.try_send(Signal::Work(work));
        }
    }

    /// Wakes a parked lease poll that can take a job of this class. If the lane is known, a worker with its model
    /// loaded goes first. Otherwise the smallest GPU that fits wins, then the lowest rank.
    fn wake(&mut self, class: u32, lane: Option<&str>) -> bool {
        let (demands, gib) = parts_of(class);
        loop {
            let able =
                || self.parked.iter().filter_map(|(listed, parked)| Some((parked.reach.of(demands)?, parked, listed)));
            let place = lane.and_then(|lane| lane.split_once(':')).map(|(_, place)| place);
            let has_it = |parked: &Parked| place.is_some_and(|place| parked.warm.iter().any(|warm| warm == place));
            // A worker with the loaded model takes the job regardless of its free memory.
            let warm =
                able().filter(|(_, parked, _)| has_it(parked)).min_by_key(|(_, parked, listed)| (parked.rank, *listed));
            let roomy = || able().filter(|(reach_gib, ..)| *reach_gib >= gib);
            let fits = || roomy().min_by_key(|(reach_gib, parked, listed)| (*reach_gib, parked.rank, *listed));
            let Some((.., found)) = warm.or_else(fits) else { return false };
            let found = found.clone();
            self.parked.remove(&found);
            if let Some((waiter, _)) = found.rsplit_once('/')
                && let Some((replica, waiter)) = waiter.rsplit_once('/')
                && let Some(listener) = self.listeners.get(replica)
                && let Ok(waiter) = waiter.parse()
                && listener.try_send(Signal::Wake(waiter)).is_ok()
            {
                return true;
            }
        }
    }

    fn wake_all(&mut self, lanes: Lanes) {
        for (class, lane) in lanes.0 {
            self.wake(class, Some(&lane));
        }
    }
}

fn count(ids: &[JobId]) -> u32 {
    u32::try_from(ids.len()).unwrap_or(u32::MAX)
}
