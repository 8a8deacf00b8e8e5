//! The queue in one process, without Redis: the same promises, every move through `state::next`. It is what simulations run on
//! and what the Lua scripts are compared with. It forgets everything when it is dropped.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::error::Error;
use crate::gateway::{ExtendAnswer, FinishAnswer, FinishOutcome, FinishReport, JobEventReport, JobMessage, LeaseRef};
use crate::id::{Fence, JobId, nonce};
use crate::job::{
    Attempt, AttemptOutcome, Fault, Job, JobError, JobResult, JobSpec, JobState, NewJob, OUTPUT_NAME, Priority,
    Progress, Timing, VRAM_CLASSES_GIB,
};
use crate::keys;
use crate::queue::{
    CancelAnswer, Due, Gate, JobPage, KeptEvent, LaneDepth, Lease, LeaseQuery, Limits, ListFilter, Queue, Settlement,
    Signal, Submitted, Swept, Usage, Waiter,
};
use crate::retry::{MAX_INFRA_ATTEMPTS, backoff_ms, jitter};
use crate::state::{self, JobEvent};

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

    /// A panic while the lock was held is a bug that has already been reported; the others go on.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now = self.clock.now_ms();
        inner
    }
}

/// Shelf order: priority, then the largest class.
type Shelf = (u8, Reverse<u32>);

#[derive(Default)]
struct Inner {
    now: u64,
    turn: u64,
    jobs: HashMap<JobId, Record>,
    lanes: HashMap<String, Lane>,
    shelves: BTreeMap<Shelf, BTreeMap<u64, String>>,
    leases: BTreeSet<(u64, JobId)>,
    scheduled: BTreeSet<(u64, JobId)>,
    parked: BTreeSet<(u32, String)>,
    index: HashMap<String, Vec<JobId>>,
    idempotency: HashMap<(String, String), (JobId, String)>,
    listeners: HashMap<String, mpsc::Sender<Signal>>,
}

#[derive(Default)]
struct Lane {
    front: VecDeque<JobId>,
    queue: VecDeque<JobId>,
    turn: Option<u64>,
}

struct Record {
    job: Job,
    attempt: u32,
    fence: u64,
    failures: u32,
    lost: u32,
    ready_ms: u64,
    lease_ends_ms: u64,
    events: VecDeque<KeptEvent>,
    event_count: u64,
    watchers: HashSet<String>,
}

impl Record {
    fn new(job: NewJob) -> Self {
        Self {
            job: Job {
                id: job.id,
                spec: job.spec,
                input: job.input,
                state: JobState::Queued,
                attempts: Vec::new(),
                result: None,
                held: None,
                error: None,
                progress: None,
                run_after_ms: None,
                ended_ms: None,
                steps: Vec::new(),
                revision: String::new(),
            },
            attempt: 0,
            fence: 0,
            failures: 0,
            lost: 0,
            ready_ms: 0,
            lease_ends_ms: 0,
            events: VecDeque::new(),
            event_count: 0,
            watchers: HashSet::new(),
        }
    }

    /// The running attempt, if `fence` is the right to end it.
    fn holds(&self, fence: &Fence) -> bool {
        self.job.state == JobState::Running && self.job.attempts.last().is_some_and(|attempt| attempt.fence == *fence)
    }
}

fn shelf_of(spec: &JobSpec) -> Shelf {
    (spec.priority.digit(), Reverse(spec.vram_class_gib))
}

impl Inner {
    fn record(&mut self, id: JobId) -> &mut Record {
        // Every id in a lane or a set has a record; the opposite is a broken invariant.
        self.jobs.get_mut(&id).expect("a job in the queue has a record")
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
        let watchers: Vec<String> = record.watchers.iter().cloned().collect();
        self.tell(&watchers, Signal::Job(id));
    }

    fn tell(&mut self, replicas: &[String], signal: Signal) {
        for replica in replicas {
            if let Some(listener) = self.listeners.get(replica) {
                let _ = listener.try_send(signal.clone());
            }
        }
    }

    fn enqueue(&mut self, id: JobId, at_front: bool) -> u32 {
        self.turn += 1;
        let (now, turn) = (self.now, self.turn);
        let record = self.record(id);
        record.ready_ms = now;
        record.job.run_after_ms = None;
        let (name, shelf, class) =
            (keys::lane(&record.job.spec), shelf_of(&record.job.spec), record.job.spec.vram_class_gib);
        let lane = self.lanes.entry(name.clone()).or_default();
        if at_front {
            lane.front.push_back(id)
        } else {
            lane.queue.push_back(id)
        }
        if lane.turn.is_none() {
            lane.turn = Some(turn);
            self.shelves.entry(shelf).or_default().insert(turn, name);
        }
        class
    }

    /// Takes a lane without jobs off its shelf, or moves it to the end of it.
    fn settle(&mut self, shelf: Shelf, name: &str, to_the_end: bool) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        let Some(lanes) = self.shelves.get_mut(&shelf) else { return };
        if lane.front.is_empty() && lane.queue.is_empty() {
            if let Some(turn) = lane.turn {
                lanes.remove(&turn);
            }
            self.lanes.remove(name);
            if lanes.is_empty() {
                self.shelves.remove(&shelf);
            }
        } else if to_the_end && lanes.len() > 1 {
            self.turn += 1;
            if let Some(turn) = lane.turn.replace(self.turn) {
                lanes.remove(&turn);
            }
            lanes.insert(self.turn, name.to_owned());
        }
    }

    fn wake(&mut self, class: u32) -> bool {
        while let Some(found) = self.parked.range((class, String::new())..).next().cloned() {
            self.parked.remove(&found);
            if let Some((replica, waiter)) = found.1.rsplit_once('/')
                && let Some(listener) = self.listeners.get(replica)
                && let Ok(waiter) = waiter.parse()
                && listener.try_send(Signal::Wake(waiter)).is_ok()
            {
                return true;
            }
        }
        false
    }

    fn close_attempt(&mut self, id: JobId, outcome: AttemptOutcome, timing: Timing, error: Option<JobError>) {
        let now = self.now;
        let record = self.record(id);
        let lease = (record.lease_ends_ms, id);
        if let Some(attempt) = record.job.attempts.last_mut() {
            attempt.ended_ms = Some(now);
            attempt.outcome = outcome;
            attempt.timing = Timing { queued_ms: attempt.timing.queued_ms, ..timing };
            attempt.error = error;
        }
        self.leases.remove(&lease);
    }

    fn start(&mut self, id: JobId, worker_id: &str, nonce: &str, lease_ms: u64) -> Lease {
        self.step(id, JobEvent::Lease);
        let now = self.now;
        let record = self.record(id);
        record.attempt += 1;
        record.fence += 1;
        record.lease_ends_ms = now + lease_ms;
        let fence = Fence::new(record.fence, nonce);
        record.job.attempts.push(Attempt {
            attempt: record.attempt,
            worker_id: worker_id.to_owned(),
            fence: fence.clone(),
            leased_ms: now,
            ended_ms: None,
            outcome: AttemptOutcome::Running,
            timing: Timing { queued_ms: now.saturating_sub(record.ready_ms), ..Timing::default() },
            cost_usd_micros: None,
            error: None,
        });
        let lease = Lease {
            job_id: id,
            spec: record.job.spec.clone(),
            input: record.job.input.clone(),
            attempt: record.attempt,
            fence,
        };
        self.leases.insert((now + lease_ms, id));
        lease
    }

    /// Back to the front of its lane, under a new fence.
    fn requeue(&mut self, id: JobId, event: JobEvent) -> u32 {
        self.step(id, event);
        let record = self.record(id);
        record.fence += 1;
        record.job.progress = None;
        self.enqueue(id, true)
    }

    fn finish(&mut self, report: &FinishReport) -> FinishAnswer {
        let (id, now) = (report.job_id, self.now);
        let Some(record) = self.jobs.get_mut(&id) else { return FinishAnswer::NotFound };
        if !record.holds(&report.fence) {
            let ended_by_it = record.job.state.is_terminal()
                && record.job.state != JobState::Cancelled
                && record.job.attempts.last().is_some_and(|attempt| attempt.fence == report.fence)
                && record.job.attempts.last().is_some_and(|attempt| attempt.outcome != AttemptOutcome::Lost);
            return if ended_by_it { FinishAnswer::AlreadyEnded } else { FinishAnswer::StaleFence };
        }
        let (spec, attempt) = (record.job.spec.clone(), record.attempt);
        let result = match &report.outcome {
            FinishOutcome::Succeeded { result } => JobResult::Inline(result.clone()),
            FinishOutcome::Stored { size_bytes } => {
                let key = format!("{}{OUTPUT_NAME}", Job::attempt_prefix(&spec.tenant, id, attempt, &report.fence));
                JobResult::Object { key, size_bytes: *size_bytes }
            }
            FinishOutcome::Failed { error } => {
                let (used, most) = match error.code.fault() {
                    Fault::Final => (1, 1),
                    Fault::Model | Fault::Crash | Fault::Oom => {
                        record.failures += 1;
                        (record.failures, spec.max_attempts)
                    }
                    Fault::Infra => {
                        record.lost += 1;
                        (record.lost, MAX_INFRA_ATTEMPTS)
                    }
                };
                self.close_attempt(id, AttemptOutcome::Failed, report.timing, Some(error.clone()));
                if used >= most {
                    self.record(id).job.error = Some(error.clone());
                    self.step(id, JobEvent::Fail);
                } else {
                    let due = now + backoff_ms(&spec.retry, used, jitter(id, &report.fence));
                    let record = self.record(id);
                    record.fence += 1;
                    record.job.run_after_ms = Some(due);
                    record.job.progress = None;
                    self.scheduled.insert((due, id));
                    self.step(id, JobEvent::Retry);
                }
                return FinishAnswer::Ok;
            }
        };
        self.close_attempt(id, AttemptOutcome::Succeeded, report.timing, None);
        self.record(id).job.result = Some(result);
        self.step(id, JobEvent::Succeed);
        FinishAnswer::Ok
    }

    fn cancel(&mut self, tenant: &str, id: JobId) -> CancelAnswer {
        let Some(record) = self.jobs.get(&id).filter(|record| record.job.spec.tenant == tenant) else {
            return CancelAnswer::NotFound;
        };
        let spec = record.job.spec.clone();
        match record.job.state {
            JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::Expired => {
                return CancelAnswer::AlreadyEnded(record.job.state);
            }
            JobState::Running => self.close_attempt(id, AttemptOutcome::Cancelled, Timing::default(), None),
            JobState::Queued => {
                let name = keys::lane(&spec);
                if let Some(lane) = self.lanes.get_mut(&name) {
                    lane.front.retain(|other| *other != id);
                    lane.queue.retain(|other| *other != id);
                }
                self.settle(shelf_of(&spec), &name, false);
            }
            JobState::Scheduled => {
                self.scheduled.retain(|(_, other)| *other != id);
            }
            JobState::Blocked => {}
        }
        self.record(id).fence += 1;
        self.record(id).job.run_after_ms = None;
        self.step(id, JobEvent::Cancel);
        CancelAnswer::Cancelled
    }
}

fn due(set: &BTreeSet<(u64, JobId)>, now: u64) -> Vec<JobId> {
    set.iter().take_while(|(due, _)| *due <= now).take(SWEEP_MAX).map(|(_, id)| *id).collect()
}

impl Queue for MemoryQueue {
    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Submitted>, Error> {
        let mut inner = self.lock();
        let mut known: HashMap<usize, JobId> = HashMap::new();
        for (n, job) in jobs.iter().enumerate() {
            if let Some(idempotency) = &job.idempotency {
                match inner.idempotency.get(&(job.spec.tenant.clone(), idempotency.key.clone())) {
                    Some((_, hash)) if *hash != idempotency.request_hash => {
                        return Err(Error::IdempotencyConflict { key: idempotency.key.clone() });
                    }
                    Some((id, _)) => {
                        known.insert(n, *id);
                    }
                    None => {}
                }
            }
            if inner.jobs.contains_key(&job.id) {
                known.entry(n).or_insert(job.id);
            }
        }
        let (mut answers, mut classes) = (Vec::with_capacity(jobs.len()), BTreeSet::new());
        for (n, job) in jobs.into_iter().enumerate() {
            let id = job.id;
            if let Some(first) = known.get(&n) {
                answers.push(if *first == id { Submitted::New(id) } else { Submitted::Repeat(*first) });
                continue;
            }
            answers.push(Submitted::New(id));
            let tenant = job.spec.tenant.clone();
            if let Some(idempotency) = &job.idempotency {
                let key = (tenant.clone(), idempotency.key.clone());
                inner.idempotency.insert(key, (id, idempotency.request_hash.clone()));
            }
            let run_after_ms = job.run_after_ms;
            inner.jobs.insert(id, Record::new(job));
            inner.index.entry(tenant).or_default().push(id);
            if run_after_ms > inner.now {
                let record = inner.record(id);
                record.job.state = JobState::Scheduled;
                record.job.run_after_ms = Some(run_after_ms);
                inner.scheduled.insert((run_after_ms, id));
            } else {
                classes.insert(inner.enqueue(id, false));
            }
        }
        for class in classes {
            inner.wake(class);
        }
        Ok(answers)
    }

    async fn lease(&self, query: LeaseQuery) -> Result<Vec<Lease>, Error> {
        let mut inner = self.lock();
        let (want, nonce) = (query.want as usize, nonce());
        let mut leases: Vec<Lease> = Vec::new();
        let mut more = None;
        let shelves: Vec<Shelf> =
            inner.shelves.keys().filter(|(_, class)| class.0 <= query.reach_gib).copied().collect();
        for shelf in shelves {
            while let Some(lanes) = inner.shelves.get(&shelf) {
                if leases.len() >= want {
                    more.get_or_insert(shelf.1.0);
                    break;
                }
                let share = (want - leases.len()).div_ceil(lanes.len());
                let Some(name) = lanes.values().next().cloned() else { break };
                let Some(lane) = inner.lanes.get_mut(&name) else { break };
                let from_front = lane.front.len().min(share);
                let from_queue = lane.queue.len().min(share - from_front);
                let ids: Vec<JobId> = lane.front.drain(..from_front).chain(lane.queue.drain(..from_queue)).collect();
                for id in ids {
                    leases.push(inner.start(id, &query.worker_id, &nonce, self.lease_ms));
                }
                inner.settle(shelf, &name, true);
            }
        }
        if let (false, Some(class)) = (leases.is_empty(), more) {
            inner.wake(class);
        }
        if let (true, Some(waiter)) = (leases.is_empty(), query.park) {
            inner.parked.insert((query.reach_gib, waiter.to_string()));
        }
        Ok(leases)
    }

    async fn unpark(&self, waiter: &Waiter) -> Result<bool, Error> {
        let mut inner = self.lock();
        let (before, name) = (inner.parked.len(), waiter.to_string());
        inner.parked.retain(|(_, other)| *other != name);
        Ok(inner.parked.len() < before)
    }

    async fn wake_next(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        let classes: Vec<u32> = inner.shelves.keys().map(|(_, class)| class.0).collect();
        for class in classes {
            if inner.wake(class) {
                break;
            }
        }
        Ok(())
    }

    async fn extend(&self, leases: &[LeaseRef]) -> Result<Vec<ExtendAnswer>, Error> {
        let mut inner = self.lock();
        let ends = inner.now + self.lease_ms;
        Ok(leases
            .iter()
            .map(|lease| match inner.jobs.get_mut(&lease.job_id) {
                Some(record) if record.holds(&lease.fence) => {
                    let before = std::mem::replace(&mut record.lease_ends_ms, ends);
                    inner.leases.remove(&(before, lease.job_id));
                    inner.leases.insert((ends, lease.job_id));
                    ExtendAnswer::Held
                }
                _ => ExtendAnswer::Lost,
            })
            .collect())
    }

    async fn finish(&self, reports: &[FinishReport]) -> Result<Vec<FinishAnswer>, Error> {
        let mut inner = self.lock();
        Ok(reports.iter().map(|report| inner.finish(report)).collect())
    }

    async fn release(&self, leases: &[LeaseRef]) -> Result<Vec<FinishAnswer>, Error> {
        let mut inner = self.lock();
        let (mut answers, mut classes) = (Vec::with_capacity(leases.len()), BTreeSet::new());
        for lease in leases {
            let answer = match inner.jobs.get(&lease.job_id) {
                None => FinishAnswer::NotFound,
                Some(record) if !record.holds(&lease.fence) => FinishAnswer::StaleFence,
                Some(_) => {
                    inner.close_attempt(lease.job_id, AttemptOutcome::Released, Timing::default(), None);
                    classes.insert(inner.requeue(lease.job_id, JobEvent::Release));
                    FinishAnswer::Ok
                }
            };
            answers.push(answer);
        }
        for class in classes {
            inner.wake(class);
        }
        Ok(answers)
    }

    async fn cancel(&self, tenant: &str, ids: &[JobId]) -> Result<Vec<CancelAnswer>, Error> {
        let mut inner = self.lock();
        Ok(ids.iter().map(|id| inner.cancel(tenant, *id)).collect())
    }

    async fn expire(&self) -> Result<Swept, Error> {
        todo!()
    }

    async fn due(&self, _: u64) -> Result<Vec<Due>, Error> {
        todo!()
    }

    async fn unblock(&self, _: JobId) -> Result<bool, Error> {
        todo!()
    }

    async fn settle(&self, _: &Settlement) -> Result<bool, Error> {
        todo!()
    }

    async fn limit(&self, _: &Gate, _: Option<&Limits>) -> Result<(), Error> {
        todo!()
    }

    async fn usage(&self, _: &Gate) -> Result<(Limits, Usage), Error> {
        todo!()
    }

    async fn promote(&self) -> Result<Swept, Error> {
        let mut inner = self.lock();
        let ids = due(&inner.scheduled, inner.now);
        let mut classes = BTreeSet::new();
        for id in &ids {
            inner.scheduled.retain(|(_, other)| other != id);
            let tried_before = inner.record(*id).attempt > 0;
            inner.step(*id, JobEvent::Promote);
            classes.insert(inner.enqueue(*id, tried_before));
        }
        for class in classes {
            inner.wake(class);
        }
        Ok(Swept { jobs: count(&ids), next_due_ms: inner.scheduled.first().map(|(due, _)| *due) })
    }

    async fn reap(&self) -> Result<Swept, Error> {
        let mut inner = self.lock();
        let ids = due(&inner.leases, inner.now);
        let mut classes = BTreeSet::new();
        for id in &ids {
            inner.close_attempt(*id, AttemptOutcome::Lost, Timing::default(), Some(JobError::worker_lost()));
            let record = inner.record(*id);
            record.lost += 1;
            if record.lost >= MAX_INFRA_ATTEMPTS {
                record.fence += 1;
                record.job.error = Some(JobError::worker_lost());
                inner.step(*id, JobEvent::Fail);
            } else {
                classes.insert(inner.requeue(*id, JobEvent::Reap));
            }
        }
        for class in classes {
            inner.wake(class);
        }
        Ok(Swept { jobs: count(&ids), next_due_ms: inner.leases.first().map(|(due, _)| *due) })
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>, Error> {
        Ok(self.lock().jobs.get(&id).map(|record| record.job.clone()))
    }

    async fn watch(&self, id: JobId, replica: &str) -> Result<Option<Job>, Error> {
        let mut inner = self.lock();
        Ok(inner.jobs.get_mut(&id).map(|record| {
            record.watchers.insert(replica.to_owned());
            record.job.clone()
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
            jobs.push(record.job.clone());
            if jobs.len() == limit as usize {
                return Ok(JobPage { jobs, next_cursor: Some(place.to_string()) });
            }
        }
        Ok(JobPage { jobs, next_cursor: None })
    }

    async fn append_events(&self, events: &[JobEventReport]) -> Result<(), Error> {
        let mut inner = self.lock();
        for report in events {
            let Some(record) = inner.jobs.get_mut(&report.job_id).filter(|record| record.holds(&report.fence)) else {
                continue;
            };
            if let JobMessage::Progress { fraction, message } = &report.event {
                record.job.progress = Some(Progress { fraction: *fraction, message: message.clone() });
            }
            record.event_count += 1;
            // Zero-padded, so that ids sort as text the way they sort as numbers.
            let id = format!("{:020}", record.event_count);
            record.events.push_back(KeptEvent { id, attempt: record.attempt, message: report.event.clone() });
            if record.events.len() > EVENTS_KEPT {
                record.events.pop_front();
            }
            let watchers: Vec<String> = record.watchers.iter().cloned().collect();
            inner.tell(&watchers, Signal::Job(report.job_id));
        }
        Ok(())
    }

    async fn read_events(&self, id: JobId, after: &str, limit: u32) -> Result<Vec<KeptEvent>, Error> {
        let inner = self.lock();
        let Some(record) = inner.jobs.get(&id) else { return Ok(Vec::new()) };
        Ok(record.events.iter().filter(|event| event.id.as_str() > after).take(limit as usize).cloned().collect())
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        let inner = self.lock();
        let mut depths: Vec<LaneDepth> = inner
            .lanes
            .iter()
            .map(|(lane, jobs)| LaneDepth { lane: lane.clone(), jobs: (jobs.front.len() + jobs.queue.len()) as u64 })
            .collect();
        depths.sort_by(|a, b| (b.jobs, &a.lane).cmp(&(a.jobs, &b.lane)));
        debug_assert!(inner.shelves.keys().all(|(priority, class)| {
            Priority::ALL.iter().any(|known| known.digit() == *priority) && VRAM_CLASSES_GIB.contains(&class.0)
        }));
        Ok(depths)
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

fn count(ids: &[JobId]) -> u32 {
    u32::try_from(ids.len()).unwrap_or(u32::MAX)
}
