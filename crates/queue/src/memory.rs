//! The in-memory queue, with the same guarantees as the one in Redis: every transition goes through `state::next`.
//! Simulations run on it and the Lua scripts are compared with it, so it keeps the same sets under the same names and
//! adds in the same order. It does not feed batches, deliver webhooks or move records to history.

mod ends;
mod gates;
mod pick;
mod ranked;
mod record;
mod settle;
mod shelves;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;

use crate::budgets::{Budget, Budgeted, RUNNING_MAX, Running, Stood};
use crate::clock::Clock;
use crate::costs::{self, Spent};
use crate::error::Error;
use crate::flow::{self, Flow, Seen};
use crate::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, JobMessage, LeaseRef};
use crate::id::{JobId, nonce};
use crate::job::{DependencyOn, Job, JobSpec, NewJob, Progress};
use crate::queue::{
    CancelAnswer, Due, Gate, HeldBy, JobPage, KeptEvent, KeptOutputs, LaneDepth, Lease, LeaseQuery, Limits, ListFilter,
    OutputsPlace, Queue, Settlement, Signal, Submitted, Swept, Usage, Waiter, Work,
};
use crate::reach::{Reach, parts_of};
use crate::state::{self, JobEvent};

use gates::Counts;
use ranked::Ranked;
use record::{Place, Record};
use shelves::{Lane, Shelf, ShelfName};

const EVENTS_KEPT: usize = 1_000;
const SWEEP_MAX: usize = 100;
const SIGNAL_BACKLOG: usize = 10_000;

/// The in-memory queue.
#[derive(Default)]
pub struct MemoryQueue {
    clock: Clock,
    lease_ms: u64,
    inner: Mutex<Inner>,
}

impl MemoryQueue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(clock: Clock, lease_ms: u64) -> Self {
        Self { clock, lease_ms, inner: Mutex::default() }
    }

    /// Like [`MemoryQueue::new`], with the random part of fences taken from `seed`, for reproducible simulations.
    #[must_use]
    pub fn seeded(clock: Clock, lease_ms: u64, seed: u64) -> Self {
        let inner = Inner { nonces: Some(StdRng::seed_from_u64(seed)), ..Inner::default() };
        Self { clock, lease_ms, inner: Mutex::new(inner) }
    }

    /// A panic with the lock held is a bug that has already been reported; other calls continue.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now = self.clock.now_ms();
        inner
    }
}

/// The data that `keys.rs` lists, except that of records, webhooks and batches.
#[derive(Default)]
struct Inner {
    now: u64,
    /// Random numbers for nonces; the system's generator if `None`.
    nonces: Option<StdRng>,
    turn: u64,
    /// Number of submitted jobs.
    arrived: u64,
    jobs: HashMap<JobId, Record>,
    dependents: HashMap<JobId, VecDeque<(JobId, DependencyOn)>>,
    lanes: HashMap<String, Lane>,
    lanes_of: HashMap<(ShelfName, String), Ranked<String>>,
    shelves: HashMap<ShelfName, Shelf>,
    /// Classes with ready jobs, by priority.
    tags: [Ranked<u32>; 3],
    passed: [u32; 3],
    /// Charges to tenants by class queue, and limit scopes to unblock, at the end of this call.
    charges: BTreeMap<(ShelfName, String), f64>,
    freed: Vec<String>,
    costs: HashMap<String, f64>,
    /// Counters that only grow.
    flow: BTreeMap<String, u64>,
    /// Spending by day and owner, named like in `count_spent` of lib/spent.lua.
    spent: BTreeMap<u32, BTreeMap<String, [u64; 4]>>,
    ready: Counts,
    open: Counts,
    running: Counts,
    limits: HashMap<String, Limits>,
    /// The recorded states of budgets, and until when limit scopes are paused.
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
    /// Jobs to settle: ended ones (`false`) and blocked ones that are ready (`true`).
    due: Ranked<(bool, JobId)>,
    parked: BTreeMap<String, Parked>,
    /// Classes that a worker reserves room for, and until when no other worker is asked.
    holds_of: BTreeMap<u32, u64>,
    /// Since when the same job has been the next one of its class queue.
    heads: HashMap<ShelfName, (JobId, u64)>,
    index: HashMap<String, Vec<JobId>>,
    /// The request hash and the jobs of a tenant's idempotency key.
    idempotency: HashMap<(String, String), (String, Vec<JobId>)>,
    listeners: HashMap<String, mpsc::Sender<Signal>>,
}

/// The capability of a parked lease poll, and what orders the polls that qualify.
struct Parked {
    reach: Reach,
    rank: u32,
    warm: Vec<String>,
}

/// Lanes that received jobs; one lane of each class is signalled.
#[derive(Default)]
struct Lanes(BTreeMap<u32, String>);

impl Extend<String> for Lanes {
    fn extend<I: IntoIterator<Item = String>>(&mut self, lanes: I) {
        self.0.extend(lanes.into_iter().map(|lane| (shelves::parts_of(&lane).0.1, lane)));
    }
}

impl Inner {
    fn nonce(&mut self) -> String {
        self.nonces.as_mut().map_or_else(nonce, |seeded| format!("{:016x}", seeded.random::<u64>()))
    }

    fn record(&mut self, id: JobId) -> &mut Record {
        // Every id in a lane or a set has a record; otherwise an invariant is broken.
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
        // Callers check the state first; otherwise an invariant is broken.
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

    /// Wakes one waiter that can take a job of this class, from this lane if given. A waiter with the model loaded
    /// comes first, then the one with the smallest GPU that fits; among equals the cheapest, then the least busy.
    fn wake(&mut self, class: u32, lane: Option<&str>) -> bool {
        let (demands, gib) = parts_of(class);
        loop {
            let able =
                || self.parked.iter().filter_map(|(listed, parked)| Some((parked.reach.of(demands)?, parked, listed)));
            let place = lane.and_then(|lane| lane.split_once(':')).map(|(_, place)| place);
            let has_it = |parked: &Parked| place.is_some_and(|place| parked.warm.iter().any(|warm| warm == place));
            // A loaded model takes the job however much room there is.
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

impl Queue for MemoryQueue {
    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Submitted>, Error> {
        self.lock().submit(jobs)
    }

    async fn lease(&self, query: LeaseQuery) -> Result<Vec<Lease>, Error> {
        self.lock().lease(&query, self.lease_ms)
    }

    async fn hold(&self, _: &str, now: &Reach, could: &Reach) -> Result<Option<u32>, Error> {
        Ok(self.lock().hold_card(now, could))
    }

    async fn unpark(&self, waiter: &Waiter, reach: &Reach) -> Result<bool, Error> {
        Ok(self.lock().parked.remove(&waiter.listed(reach)).is_some())
    }

    async fn wake_next(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        let classes: Vec<u32> = inner.tags.iter().flat_map(|tags| tags.iter().map(|(class, _)| *class)).collect();
        for class in classes {
            if inner.wake(class, None) {
                break;
            }
        }
        Ok(())
    }

    async fn extend(&self, leases: &[LeaseRef]) -> Result<Vec<ExtendAnswer>, Error> {
        let mut inner = self.lock();
        let ends = (inner.now + self.lease_ms) as f64;
        let mut answers = Vec::with_capacity(leases.len());
        for lease in leases {
            let held = inner.jobs.get(&lease.job_id).is_some_and(|record| record.holds(&lease.fence));
            if held {
                inner.leases.put(lease.job_id, ends);
            }
            answers.push(if held { ExtendAnswer::Held } else { ExtendAnswer::Lost });
        }
        Ok(answers)
    }

    async fn finish(&self, reports: &[FinishReport]) -> Result<Vec<FinishAnswer>, Error> {
        let mut inner = self.lock();
        let (answers, came): (Vec<FinishAnswer>, Vec<Option<String>>) =
            reports.iter().map(|report| inner.finish(report)).unzip();
        inner.flush();
        let mut lanes = Lanes::default();
        lanes.extend(came.into_iter().flatten());
        inner.wake_all(lanes);
        Ok(answers)
    }

    async fn release(&self, leases: &[LeaseRef]) -> Result<Vec<FinishAnswer>, Error> {
        let mut inner = self.lock();
        let (mut answers, mut lanes) = (Vec::with_capacity(leases.len()), Lanes::default());
        for lease in leases {
            answers.push(match inner.release(lease) {
                Ok(lane) => {
                    lanes.extend([lane]);
                    FinishAnswer::Ok
                }
                Err(answer) => answer,
            });
        }
        inner.wake_all(lanes);
        inner.flush();
        Ok(answers)
    }

    async fn cancel(&self, tenant: &str, ids: &[JobId]) -> Result<Vec<CancelAnswer>, Error> {
        let mut inner = self.lock();
        let answers = ids.iter().map(|id| inner.cancel(tenant, *id)).collect();
        inner.flush();
        Ok(answers)
    }

    async fn promote(&self) -> Result<Swept, Error> {
        Ok(self.lock().promote())
    }

    async fn reap(&self) -> Result<Swept, Error> {
        Ok(self.lock().reap(SWEEP_MAX))
    }

    async fn abandon(&self, worker_id: &str) -> Result<u32, Error> {
        let mut inner = self.lock();
        let runs = inner.jobs.values().filter_map(Record::running);
        let ids: Vec<JobId> = runs.filter(|run| run.worker_id == worker_id).map(|run| run.id).collect();
        ids.iter().for_each(|id| inner.leases.put(*id, 0.0));
        inner.reap(ids.len());
        Ok(count(&ids))
    }

    async fn expire(&self) -> Result<Swept, Error> {
        Ok(self.lock().expire())
    }

    async fn due(&self, claim_ms: u64) -> Result<Vec<Due>, Error> {
        Ok(self.lock().due(claim_ms))
    }

    async fn keep_due(&self, due: &[Due], claim_ms: u64) -> Result<(), Error> {
        self.lock().keep_due(due, claim_ms);
        Ok(())
    }

    async fn unblock(&self, id: JobId) -> Result<bool, Error> {
        Ok(self.lock().unblock(id))
    }

    async fn settle(&self, settlement: &Settlement) -> Result<bool, Error> {
        Ok(self.lock().settle(settlement))
    }

    async fn limit(&self, gate: &Gate, limits: Option<&Limits>) -> Result<(), Error> {
        self.lock().limit(&gate.to_string(), limits);
        Ok(())
    }

    async fn usage(&self, gate: &Gate) -> Result<(Limits, Usage), Error> {
        let (inner, gate) = (self.lock(), gate.to_string());
        Ok((inner.limits_of(&gate), Usage { open: inner.open.of(&gate), running: inner.running.of(&gate) }))
    }

    async fn held_by(&self, spec: &JobSpec) -> Result<Option<HeldBy>, Error> {
        Ok(self.lock().held_by(spec))
    }

    async fn budgets(&self, day: u32) -> Result<Vec<Budgeted>, Error> {
        Ok(self.lock().budgets(day))
    }

    async fn pause(&self, gate: &Gate, budget: &Budget, stood: &Stood) -> Result<Option<Option<Stood>>, Error> {
        Ok(self.lock().pause(&gate.to_string(), budget, stood))
    }

    async fn disable(&self, tenant: &str, disabled: bool) -> Result<(), Error> {
        self.lock().disable(tenant, disabled);
        Ok(())
    }

    async fn running(&self) -> Result<Vec<Running>, Error> {
        let inner = self.lock();
        Ok(inner.leases.iter().filter_map(|(id, _)| inner.jobs.get(id)?.running()).take(RUNNING_MAX).collect())
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>, Error> {
        Ok(self.lock().jobs.get(&id).map(Record::shown))
    }

    async fn watch(&self, id: JobId, replica: &str) -> Result<Option<Job>, Error> {
        let mut inner = self.lock();
        Ok(inner.jobs.get_mut(&id).map(|record| {
            record.watchers.insert(replica.to_owned());
            record.shown()
        }))
    }

    async fn list(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<JobPage, Error> {
        let inner = self.lock();
        let ids = inner.index.get(tenant).map_or(&[][..], Vec::as_slice);
        let end = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(ids.len()).min(ids.len());
        let matches = |job: &Job| filter.matches(job.state, &job.spec, job.error.as_ref().map(|error| error.code));
        let mut jobs = Vec::new();
        for (place, id) in ids[..end].iter().enumerate().rev() {
            let Some(record) = inner.jobs.get(id).filter(|record| matches(&record.job)) else { continue };
            jobs.push(record.shown());
            if jobs.len() == limit as usize {
                return Ok(JobPage { jobs, next_cursor: Some(place.to_string()) });
            }
        }
        Ok(JobPage { jobs, next_cursor: None })
    }

    async fn append_events(&self, events: &[JobEventReport]) -> Result<(), Error> {
        let mut inner = self.lock();
        let now = inner.now;
        for report in events {
            let Some(record) = inner.jobs.get_mut(&report.job_id).filter(|record| record.holds(&report.fence)) else {
                continue;
            };
            if let JobMessage::Progress { fraction, message } = &report.event {
                record.job.progress = Some(Progress { fraction: *fraction, message: message.clone() });
            }
            match &report.event {
                JobMessage::Output { index, value } => record.keep_outputs(*index, vec![value.clone()], now),
                JobMessage::Outputs { index, values } => record.keep_outputs(*index, values.clone(), now),
                JobMessage::Progress { .. } | JobMessage::Log { .. } => record.keep_event(report.event.clone()),
            }
            inner.tell_watchers(report.job_id);
        }
        Ok(())
    }

    async fn read_events(&self, id: JobId, after: &str, limit: u32) -> Result<Vec<KeptEvent>, Error> {
        let inner = self.lock();
        let Some(record) = inner.jobs.get(&id) else { return Ok(Vec::new()) };
        Ok(record.events.iter().filter(|event| event.id.as_str() > after).take(limit as usize).cloned().collect())
    }

    async fn read_outputs(&self, id: JobId, after: OutputsPlace, limit: u32) -> Result<Vec<KeptOutputs>, Error> {
        let inner = self.lock();
        let Some(record) = inner.jobs.get(&id) else { return Ok(Vec::new()) };
        let end = |kept: &&KeptOutputs| (kept.attempt, kept.index + (kept.values.len() as u64).max(1));
        let later = record.outputs.iter().filter(|kept| end(kept) > (after.attempt, after.next));
        Ok(later.take(limit as usize).cloned().collect())
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        let inner = self.lock();
        let depth = |(name, jobs): (&String, u64)| LaneDepth {
            lane: name.clone(),
            jobs,
            since_ms: inner.lanes.get(name).and_then(|lane| inner.since_ms(lane)),
        };
        let mut depths: Vec<LaneDepth> = inner.ready.iter().map(depth).collect();
        depths.sort_by(|a, b| (b.jobs, &a.lane).cmp(&(a.jobs, &b.lane)));
        Ok(depths)
    }

    async fn flow(&self) -> Result<Vec<Flow>, Error> {
        let inner = self.lock();
        let mut seen = Seen {
            counters: inner.flow.iter().map(|(field, by)| (field.clone(), *by)).collect(),
            running: inner.running.iter().map(|(gate, jobs)| (gate.clone(), jobs)).collect(),
            limits: inner.limits.clone(),
            paused: inner
                .paused
                .iter()
                .filter(|(_, until)| **until > inner.now)
                .map(|(gate, _)| gate.clone())
                .chain(inner.disabled.iter().cloned())
                .collect(),
            ..Seen::default()
        };
        for (name, lane) in &inner.lanes {
            let jobs = (lane.front.len() + lane.queue.len()) as u64;
            if let Some(since_ms) = inner.since_ms(lane) {
                seen.waiting
                    .push((name.clone(), flow::Waiting { jobs, oldest_ms: inner.now.saturating_sub(since_ms) }));
            }
        }
        Ok(flow::assemble(seen))
    }

    async fn spent(&self, days: RangeInclusive<u32>, tenant: Option<&str>) -> Result<Vec<Spent>, Error> {
        let inner = self.lock();
        let named = inner.spent.iter().filter(|(day, _)| days.contains(day));
        Ok(costs::spent_of(named.flat_map(|(day, of)| of.iter().map(|(field, took)| (*day, field, *took))), tenant))
    }

    async fn held(&self, lease: &LeaseRef) -> Result<Option<(JobSpec, u32)>, Error> {
        let inner = self.lock();
        let record = inner.jobs.get(&lease.job_id).filter(|record| record.holds(&lease.fence));
        Ok(record.map(|record| (record.job.spec.clone(), record.attempt)))
    }

    async fn listen(&self, replica: &str) -> Result<mpsc::Receiver<Signal>, Error> {
        let (sender, receiver) = mpsc::channel(SIGNAL_BACKLOG);
        self.lock().listeners.insert(replica.to_owned(), sender);
        Ok(receiver)
    }
}
