//! The queue in one process, without Redis: the same promises, every move through `state::next`. Simulations run on it
//! and the Lua scripts are compared with it, so it keeps the same sets under the same names and adds in the same order.
//! It loses everything when it is dropped. It has no batches to feed, no webhooks to deliver and no records that go to
//! history.

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

    /// As [`MemoryQueue::new`], with fences whose random part comes from `seed`: a simulation that is run again gets
    /// the same ones.
    #[must_use]
    pub fn seeded(clock: Clock, lease_ms: u64, seed: u64) -> Self {
        let inner = Inner { nonces: Some(StdRng::seed_from_u64(seed)), ..Inner::default() };
        Self { clock, lease_ms, inner: Mutex::new(inner) }
    }

    /// A panic while the lock was held is a bug that has already been reported; the others go on.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now = self.clock.now_ms();
        inner
    }
}

/// What `keys.rs` lists, but for what only records, webhooks and batches need.
#[derive(Default)]
struct Inner {
    now: u64,
    /// Instead of the system's generator.
    nonces: Option<StdRng>,
    turn: u64,
    /// How many jobs were submitted.
    arrived: u64,
    jobs: HashMap<JobId, Record>,
    dependents: HashMap<JobId, VecDeque<(JobId, DependencyOn)>>,
    lanes: HashMap<String, Lane>,
    lanes_of: HashMap<(ClassQueueName, String), Ranked<String>>,
    class_queues: HashMap<ClassQueueName, ClassQueue>,
    /// Of each priority: classes with ready jobs.
    tags: [Ranked<u32>; 3],
    passed: [u32; 3],
    /// Of this call: what tenants are charged on a shelf, and the gates that one passed out of.
    charges: BTreeMap<(ClassQueueName, String), f64>,
    freed: Vec<String>,
    costs: HashMap<String, f64>,
    /// What only grows.
    flow: BTreeMap<String, u64>,
    /// By day and owner, in the naming of `count_spent` of lib/spent.lua.
    spent: BTreeMap<u32, BTreeMap<String, [u64; 4]>>,
    ready: Counts,
    open: Counts,
    running: Counts,
    limits: HashMap<String, Limits>,
    /// How gates stood to their budgets, and until when they are paused.
    stood: HashMap<String, Stood>,
    paused: HashMap<String, u64>,
    /// Gates of tenants that are disabled.
    disabled: HashSet<String>,
    rates: HashMap<String, f64>,
    held: HashMap<String, Ranked<String>>,
    holds: Ranked<String>,
    /// Queued jobs with a concurrency key, by arrival.
    waiting: HashMap<String, Ranked<(JobId, String)>>,
    leases: Ranked<JobId>,
    scheduled: Ranked<JobId>,
    deadlines: Ranked<JobId>,
    /// What there is to settle: ended jobs (`false`) and blocked ones that are ready (`true`).
    due: Ranked<(bool, JobId)>,
    parked: BTreeMap<String, Parked>,
    /// Classes that a worker makes room for, until when others are not asked.
    holds_of: BTreeMap<u32, u64>,
    /// Since when a job has been the next one of its shelf.
    heads: HashMap<ClassQueueName, (JobId, u64)>,
    index: HashMap<String, Vec<JobId>>,
    /// The request hash and the jobs of what came under a tenant's key.
    idempotency: HashMap<(String, String), (String, Vec<JobId>)>,
    listeners: HashMap<String, mpsc::Sender<Signal>>,
}

/// What a waiting pull can take, and what decides between those that can.
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

    /// Notifies every replica of work that any of them may do.
    fn announce(&self, work: Work) {
        for listener in self.listeners.values() {
            let _ = listener.try_send(Signal::Work(work));
        }
    }

    /// Wakes one who can take a job of this class, from this lane if it is known: one that has the model loaded, else the smallest card
    /// that fits, of those the cheapest, of those the least busy.
    fn wake(&mut self, class: u32, lane: Option<&str>) -> bool {
        let (demands, gib) = parts_of(class);
        loop {
            let able =
                || self.parked.iter().filter_map(|(listed, parked)| Some((parked.reach.of(demands)?, parked, listed)));
            let place = lane.and_then(|lane| lane.split_once(':')).map(|(_, place)| place);
            let has_it = |parked: &Parked| place.is_some_and(|place| parked.warm.iter().any(|warm| warm == place));
            // A loaded model takes the job whatever room there is.
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
