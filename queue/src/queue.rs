//! The contract: one method per verb. `redis.rs` and `memory.rs` implement it; `conformance.rs` says what they owe.

use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;

use serde_json::value::RawValue;

use crate::budgets::{Budget, Budgeted, Running, Stood};
use crate::costs::Spent;
use crate::error::Error;
use crate::flow::Flow;
use crate::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, JobMessage, LeaseRef};
use crate::id::{Fence, JobId};
use crate::job::{ErrorCode, Job, JobError, JobSpec, JobState, NewJob, Priority, StepRun};
use crate::reach::Reach;

/// How long work waits before it may go ahead of more urgent work, unless the queue is set up otherwise: 5 minutes.
pub const AGE_AFTER_MS: u64 = 5 * 60 * 1000;

/// A call of [`Queue::lease`] adds no further job once it has this many bytes of specs and inputs: 8 MiB. A hundred inputs of 1 MiB would hold Redis
/// for half a second, and the worker that runs the first of them would wait for the last.
pub const LEASE_BYTES: usize = 8 << 20;

/// When the next job of a class stays the same for so long, since no card has room for it, a card is held.
pub const HOLD_AFTER_MS: u64 = 20 * 1000;

/// So long only one worker is asked to hold a card for a class. It needs about as long for what runs there to end.
pub const HOLD_MS: u64 = 60 * 1000;

/// Who listens for [`Signal::Unmet`].
pub const AUTOSCALER: &str = "autoscaler";

/// A replica that watches a job is told of its changes for so long; looking again prolongs it.
pub(crate) const WATCH_MS: u64 = 60_000;

/// What became of one submitted job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// Accepted under its own id.
    New(JobId),
    /// The idempotency key was known with the same request: this is the first submit's job.
    Repeat(JobId),
}

impl Submitted {
    /// The job's id either way.
    #[must_use]
    pub fn id(self) -> JobId {
        match self {
            Self::New(id) | Self::Repeat(id) => id,
        }
    }
}

/// A piece of a batch may be fed once: the batch must have been fed up to `from_line`, and is then fed up to `to_line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchGuard {
    /// `batch_<32 hex>`.
    pub batch: String,
    /// Lines fed before.
    pub from_line: u64,
    /// Lines fed afterwards.
    pub to_line: u64,
}

/// Who asks for leases, and for what.
#[derive(Debug, Clone)]
pub struct LeaseQuery {
    /// The worker.
    pub worker_id: String,
    /// At most this many, 1 to 100.
    pub want: u32,
    /// What it can take.
    pub reach: Reach,
    /// The lanes of what it has loaded: they go first, unless whoever's turn it is has waited for `patience_ms`, and also where their class
    /// is out of reach. Each once.
    pub warm: Vec<WarmLane>,
    /// See [`patience_ms`].
    pub patience_ms: u64,
    /// The class that it has made room for (see [`Queue::hold`]): nothing else is leased.
    pub only: Option<u32>,
    /// Of waiters with the same reach the one with the lowest rank is woken, 0 to 999,999.
    pub rank: u32,
    /// Once the specs and inputs of its jobs have this many bytes, no further job is added; at least one job is.
    pub max_bytes: usize,
    /// How many slots it has: it is leased no more than these run at once, and a few ahead ([`ahead`]). `None`: as many as it asks for.
    pub slots: Option<u32>,
    /// What its leases on other shards take, in [`SLOT_PARTS`](crate::job::SLOT_PARTS).
    pub taken_elsewhere: u64,
    /// When nothing is there: remember this waiter, in the same step, so that no wake is lost in between.
    pub park: Option<Waiter>,
}

/// Leases that a worker may hold ahead of its slots, whatever its jobs: those whose results and ends are on their way.
const SPARE: u32 = 32;

/// Work that it may hold beside: what its slots do in half a second, and at most so many jobs. Workers ask for a tenth of it.
const AHEAD_MS: f64 = 500.0;
const AHEAD_MAX: f64 = 300.0;

/// Leases that a worker holds at the most, whatever its slots: as many as one heartbeat extends.
pub const LEASES_MAX: usize = 1_000;

/// How many leases a worker with so many slots may hold ahead, where a run is expected to take so long.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to AHEAD_MAX")]
pub(crate) fn ahead(slots: u32, expected_ms: f64) -> u32 {
    SPARE + (f64::from(slots) * AHEAD_MS / expected_ms.max(1.0)).floor().min(AHEAD_MAX) as u32
}

/// A lane whose model a worker has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmLane {
    /// Without its priority: `<class>:<tenant>:<endpoint>`.
    pub place: String,
    /// How many jobs more the model takes there.
    pub takes: u32,
}

impl fmt::Display for WarmLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*{}", self.place, self.takes)
    }
}

/// For how long another job is passed over for those of loaded models, where it takes `cold_ms` to load one: three times that, at most
/// 20 seconds (docs/adr/0015 has what other times lead to).
#[must_use]
pub fn patience_ms(cold_ms: u64) -> u64 {
    cold_ms.saturating_mul(3).min(20_000)
}

impl LeaseQuery {
    /// Of a worker with nothing loaded, that does not wait.
    #[must_use]
    pub fn new(worker_id: impl Into<String>, want: u32, reach: Reach) -> Self {
        Self {
            worker_id: worker_id.into(),
            want,
            reach,
            warm: Vec::new(),
            patience_ms: 0,
            only: None,
            rank: 0,
            max_bytes: LEASE_BYTES,
            slots: None,
            taken_elsewhere: 0,
            park: None,
        }
    }
}

/// A parked pull: the API replica that holds it and its number there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The replica, as in [`Queue::listen`].
    pub replica: String,
    /// Unique within the replica.
    pub waiter: u64,
}

impl Waiter {
    /// As it stands in the lists of those that wait: with the numbers of the demands that it meets, for each of them has a list.
    pub(crate) fn listed(&self, reach: &Reach) -> String {
        format!("{self}/{}", reach.met())
    }
}

impl std::fmt::Display for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.replica, self.waiter)
    }
}

/// A granted lease.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The job.
    pub job_id: JobId,
    /// Its fixed part.
    pub spec: JobSpec,
    /// Its input.
    pub input: Box<RawValue>,
    /// Which try this is.
    pub attempt: u32,
    /// The right to end it.
    pub fence: Fence,
    /// How long it was ready before, milliseconds.
    pub queued_ms: u64,
    /// Jobs that its lane has left after this call, as far as the limits of tenant and endpoint let them start.
    pub behind: u64,
}

impl Lease {
    /// Its name.
    #[must_use]
    pub fn named(&self) -> LeaseRef {
        LeaseRef { job_id: self.job_id, fence: self.fence.clone() }
    }
}

/// What became of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// Ended now; no result will ever appear.
    Cancelled,
    /// It had already ended like this.
    AlreadyEnded(JobState),
    /// Its record cannot be read: an operator has to look at it first (quarantine.rs).
    Quarantined,
    /// No such job.
    NotFound,
}

/// Work of `settle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Due {
    /// This job has ended, and others may wait for it: [`Queue::unblock`].
    Ended(JobId),
    /// This blocked job has nothing left to wait for: [`Queue::settle`].
    Ready(JobId),
}

/// What becomes of a blocked job.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The job.
    pub id: JobId,
    /// [`Job::revision`] as it was when this was decided.
    pub revision: String,
    /// Its steps from now on.
    pub steps: Vec<StepRun>,
    /// What happens to it.
    pub verdict: Verdict,
}

/// What happens to a blocked job.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// It may run, with this input if it is another than before.
    Queue {
        /// JSON.
        input: Option<Box<RawValue>>,
    },
    /// One of its steps runs next; the job waits for that.
    Step {
        /// The job's own input, if it is another than before.
        input: Option<Box<RawValue>>,
        /// The job that runs the step.
        job: Box<NewJob>,
    },
    /// It has succeeded, with this result if it is another than its attempt gave.
    Succeed {
        /// JSON, at most [`crate::job::INLINE_RESULT_BYTES`].
        result: Option<Box<RawValue>>,
    },
    /// It has failed.
    Fail {
        /// Why.
        error: JobError,
    },
}

/// Whose limits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Gate {
    /// A tenant's.
    Tenant(String),
    /// Of one of a tenant's endpoints.
    Endpoint {
        /// The tenant.
        tenant: String,
        /// The endpoint's name.
        endpoint: String,
    },
}

impl Gate {
    /// The gates of a job, in the order in which it passes them.
    pub(crate) fn of(spec: &JobSpec) -> [Self; 2] {
        let endpoint = Self::Endpoint { tenant: spec.tenant.clone(), endpoint: spec.endpoint.clone() };
        [Self::Tenant(spec.tenant.clone()), endpoint]
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &str {
        match self {
            Self::Tenant(tenant) | Self::Endpoint { tenant, .. } => tenant,
        }
    }

    /// From its name, as scripts have it.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match (name.strip_prefix("t:"), name.strip_prefix("e:").and_then(|rest| rest.split_once(':'))) {
            (Some(tenant), _) => Some(Self::Tenant(tenant.to_owned())),
            (None, Some((tenant, endpoint))) => {
                Some(Self::Endpoint { tenant: tenant.to_owned(), endpoint: endpoint.to_owned() })
            }
            (None, None) => None,
        }
    }
}

impl std::fmt::Display for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(f, "t:{tenant}"),
            Self::Endpoint { tenant, endpoint } => write!(f, "e:{tenant}:{endpoint}"),
        }
    }
}

/// What may pass a gate. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Share of a shelf beside other tenants; 1 when absent. Of tenants only.
    pub weight: Option<f64>,
    /// Jobs that run at once.
    pub max_running: Option<u32>,
    /// Jobs that have not ended.
    pub max_open: Option<u64>,
    /// Starts a minute; a burst is what one second lets through, at least one.
    pub starts_per_minute: Option<u32>,
    /// Bytes of Redis that the records of its jobs may take, also of those that have ended. Of tenants only; without it a tenant has a share of
    /// the memory once that gets scarce ([`crate::RedisQueue::look`]). The queue in memory does not count them.
    pub max_memory_bytes: Option<u64>,
    /// What may be spent on a day.
    pub budget: Option<Budget>,
}

/// What a tenant or an endpoint takes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Jobs that have not ended.
    pub open: u64,
    /// Jobs that run.
    pub running: u64,
}

/// What keeps a queued job from starting, whatever workers are free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldBy {
    /// Its tenant is disabled.
    Disabled,
    /// As many jobs run as the gate's `max_running` allows.
    Running {
        /// The tenant's or the endpoint's.
        gate: Gate,
        /// The limit.
        most: u32,
    },
    /// The gate's `starts_per_minute` are used up.
    Rate {
        /// The tenant's or the endpoint's.
        gate: Gate,
        /// The limit.
        per_minute: u32,
        /// When the next one may start, unix milliseconds; `None` where none may.
        until_ms: Option<u64>,
    },
    /// As many jobs with its concurrency key run as may.
    Key {
        /// The limit.
        most: u32,
    },
}

/// How a gate stands, as implementations keep it.
#[derive(Debug, Default)]
pub(crate) struct GateNow {
    pub(crate) limits: Limits,
    pub(crate) running: u64,
    /// Theoretical arrival time of its next start, unix milliseconds.
    pub(crate) arrival_ms: f64,
}

impl Due {
    /// The job.
    #[must_use]
    pub fn id(self) -> JobId {
        match self {
            Self::Ended(id) | Self::Ready(id) => id,
        }
    }
}

impl HeldBy {
    /// What holds a job back at one of its gates: as `room` of `lua/lib/room.lua`, without budgets.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times")]
    pub(crate) fn at(gate: Gate, stands: &GateNow, now_ms: u64) -> Option<Self> {
        let limits = &stands.limits;
        if let Some(most) = limits.max_running
            && stands.running >= u64::from(most)
        {
            return Some(Self::Running { gate, most });
        }
        let per_minute = limits.starts_per_minute?;
        if per_minute == 0 {
            return Some(Self::Rate { gate, per_minute, until_ms: None });
        }
        let (every, burst) = (60_000.0 / f64::from(per_minute), f64::from((per_minute / 60).max(1)));
        let now = now_ms as f64;
        let arrival = stands.arrival_ms.max(now);
        let allowed = ((now + burst * every - arrival) / every + 1e-6).floor();
        let until_ms = Some((arrival + every - burst * every).ceil() as u64);
        (allowed < 1.0).then_some(Self::Rate { gate, per_minute, until_ms })
    }
}

/// What a round of `promote`, `reap` or `expire` did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Jobs moved.
    pub jobs: u32,
    /// When the next one falls due, unix milliseconds, if any is known.
    pub next_due_ms: Option<u64>,
}

/// What a replica is told without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// One of its parked pulls may now find something. A wake that meets no waiter must be handed on ([`Queue::wake_next`]).
    Wake(u64),
    /// A watched job changed state or said something.
    Job(JobId),
    /// There is something to do that any replica may do; the one that does it first takes it.
    Work(Work),
    /// Work is ready and nobody waits for it: told to the replica [`AUTOSCALER`] alone, and not more often than twice a second.
    Unmet,
    /// The connection was lost and is back: signals may have been missed, look at everything again.
    Missed,
}

/// The kinds of work that a replica is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// A webhook waits to be delivered.
    Hooks,
    /// A job that others wait for has ended.
    Settle,
    /// A batch has something to feed, collect or complete.
    Batches,
}

impl Work {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Hooks, Self::Settle, Self::Batches];

    /// The word that scripts publish.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hooks => "hooks",
            Self::Settle => "settle",
            Self::Batches => "batches",
        }
    }

    /// The kind a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.as_str() == word)
    }
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only of this endpoint.
    pub endpoint: Option<String>,
    /// Only with these labels, all of them.
    pub metadata: Vec<(String, String)>,
    /// Only lines of this batch.
    pub batch: Option<String>,
    /// Only those that this schedule made.
    pub schedule: Option<String>,
    /// Only this urgent.
    pub priority: Option<Priority>,
    /// Only those that failed like this.
    pub error_code: Option<ErrorCode>,
}

impl ListFilter {
    /// Whether every job passes.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        let Self { state, endpoint, metadata, batch, schedule, priority, error_code } = self;
        state.is_none()
            && endpoint.is_none()
            && metadata.is_empty()
            && batch.is_none()
            && schedule.is_none()
            && priority.is_none()
            && error_code.is_none()
    }

    /// Whether a job in this state, with this fixed part and this last error, passes.
    #[must_use]
    pub fn matches(&self, state: JobState, spec: &JobSpec, error_code: Option<ErrorCode>) -> bool {
        let Self { state: wanted, endpoint, metadata, batch, schedule, priority, error_code: code } = self;
        wanted.is_none_or(|wanted| wanted == state)
            && endpoint.as_ref().is_none_or(|wanted| *wanted == spec.endpoint)
            && metadata.iter().all(|(key, value)| spec.metadata.get(key) == Some(value))
            && batch.as_ref().is_none_or(|wanted| spec.batch.as_ref().is_some_and(|line| line.id == *wanted))
            && schedule.as_ref().is_none_or(|wanted| spec.schedule.as_ref() == Some(wanted))
            && priority.is_none_or(|wanted| wanted == spec.priority)
            && code.is_none_or(|wanted| error_code == Some(wanted))
    }
}

/// One page of a list, newest first.
#[derive(Debug, Clone)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where the next page starts; `None` at the end. A page may be short, even empty, and still have a next one.
    pub next_cursor: Option<String>,
}

/// A kept event of a job.
#[derive(Debug, Clone)]
pub struct KeptEvent {
    /// Its place: grows; what `Last-Event-ID` carries.
    pub id: String,
    /// Which attempt said it.
    pub attempt: u32,
    /// What was said.
    pub message: JobMessage,
}

/// Of the outputs of a job that many events are kept, of several outputs each; older ones make room.
pub const OUTPUTS_KEPT: usize = 1_000;

/// Of the outputs of a job so many bytes are kept.
pub const OUTPUTS_BYTES_KEPT: usize = 1 << 20;

/// Outputs are kept for this long after the last one, milliseconds.
pub const OUTPUTS_LIFE_MS: u64 = 60 * 60 * 1000;

/// Outputs of a job, one after the other, as they are kept for its readers.
#[derive(Debug, Clone)]
pub struct KeptOutputs {
    /// Which attempt yielded them.
    pub attempt: u32,
    /// The index of the first.
    pub index: u64,
    /// The items; none where the attempt has yielded all of its items, which are those below `index`.
    pub values: Vec<Box<serde_json::value::RawValue>>,
    /// When they were kept, unix milliseconds.
    pub at_ms: u64,
}

/// A place among the outputs of a job: all attempts before this one, and the outputs of this one below `next`, lie before it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputsPlace {
    /// The attempt; 0 is before all.
    pub attempt: u32,
    /// The index of the output that comes next.
    pub next: u64,
}

/// How full one lane is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneDepth {
    /// `<priority digit>:<class>:<tenant>:<endpoint>`.
    pub lane: String,
    /// Jobs ready.
    pub jobs: u64,
    /// Since when the first of them is ready, unix milliseconds; `None` where all stand at a concurrency key.
    pub since_ms: Option<u64>,
}

/// The queue. Every verb is atomic, idempotent where it can be repeated, and takes its time from the queue's own clock.
///
/// # Errors
/// [`Error::Unavailable`] means *unknown*: the verb may or may not have happened. Each verb says how to find out or why
/// repeating is safe.
pub trait Queue: Send + Sync + 'static {
    /// Accepts all of `jobs` or none (at most 1,000, one shard). Repeat with the same ids: a known id is answered `New` again.
    ///
    /// # Errors
    /// [`Error::IdempotencyConflict`] when a key is known with another request; nothing is accepted then.
    fn submit(&self, jobs: Vec<NewJob>) -> impl Future<Output = Result<Vec<Submitted>, Error>> + Send;

    /// Leases up to `want` ready jobs, or parks the waiter. A reply that is lost costs one lease period: the reaper returns the jobs.
    ///
    /// # Errors
    /// [`Error::Full`] when a job is there, and the worker holds as many as it may: nothing is leased, and nobody parked.
    fn lease(&self, query: LeaseQuery) -> impl Future<Output = Result<Vec<Lease>, Error>> + Send;

    /// A class whose next job has been the same for [`HOLD_AFTER_MS`], as far as this was asked, though this worker's cards could take it,
    /// if they were not full: the worker is to make room. Of each class one worker is asked at a time.
    fn hold(
        &self,
        worker_id: &str,
        now: &Reach,
        could: &Reach,
    ) -> impl Future<Output = Result<Option<u32>, Error>> + Send;

    /// Forgets a waiter that was parked with this reach. `false` means a wake for it is under way: look once more, or hand it on.
    fn unpark(&self, waiter: &Waiter, reach: &Reach) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Passes a wake that met no waiter to the next one that could use it.
    fn wake_next(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Prolongs leases. One answer each, in order.
    fn extend(&self, leases: &[LeaseRef]) -> impl Future<Output = Result<Vec<ExtendAnswer>, Error>> + Send;

    /// Ends attempts (at most 100). One answer each, in order; repeating an accepted report is answered `AlreadyEnded`.
    fn finish(&self, reports: &[FinishReport]) -> impl Future<Output = Result<Vec<FinishAnswer>, Error>> + Send;

    /// Hands leases back unharmed, to the front of their lanes (at most 100).
    fn release(&self, leases: &[LeaseRef]) -> impl Future<Output = Result<Vec<FinishAnswer>, Error>> + Send;

    /// Ends jobs at their owner's wish (at most 100). A running attempt loses its lease in the same step. A job of another tenant
    /// is `NotFound`.
    fn cancel(&self, tenant: &str, ids: &[JobId]) -> impl Future<Output = Result<Vec<CancelAnswer>, Error>> + Send;

    /// Moves scheduled jobs whose time has come into their lanes (at most 100 a call).
    fn promote(&self) -> impl Future<Output = Result<Swept, Error>> + Send;

    /// Takes back leases that ran out (at most 100 a call): to the front, or failed when the budget is spent.
    fn reap(&self) -> impl Future<Output = Result<Swept, Error>> + Send;

    /// Takes back the jobs of a worker that is known to have ended, as [`Queue::reap`] does when a lease ran out, and says how many.
    fn abandon(&self, worker_id: &str) -> impl Future<Output = Result<u32, Error>> + Send;

    /// Ends jobs whose time is over (at most 100 a call).
    fn expire(&self) -> impl Future<Output = Result<Swept, Error>> + Send;

    /// What there is to settle (at most 100), claimed for `claim_ms`: what is not settled by then is given out again.
    fn due(&self, claim_ms: u64) -> impl Future<Output = Result<Vec<Due>, Error>> + Send;

    /// Lets claims of [`Queue::due`] go on for so long from now. What has been settled is left as it is.
    fn keep_due(&self, due: &[Due], claim_ms: u64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Tells those that wait for an ended job of it (at most 100 a call). `true` when that were all.
    fn unblock(&self, id: JobId) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Decides what becomes of a blocked job. `false` when it has moved, or was settled, since it was looked at.
    fn settle(&self, settlement: &Settlement) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Sets what a tenant, or one of its endpoints, may take; `None` lifts every limit.
    fn limit(&self, gate: &Gate, limits: Option<&Limits>) -> impl Future<Output = Result<(), Error>> + Send;

    /// What a tenant, or one of its endpoints, may take and takes now.
    fn usage(&self, gate: &Gate) -> impl Future<Output = Result<(Limits, Usage), Error>> + Send;

    /// What holds a queued job of this spec back at its gates now, budgets aside.
    fn held_by(&self, spec: &JobSpec) -> impl Future<Output = Result<Option<HeldBy>, Error>> + Send;

    /// The gates that have a budget, and what was spent there on this day (UTC, since 1970).
    fn budgets(&self, day: u32) -> impl Future<Output = Result<Vec<Budgeted>, Error>> + Send;

    /// Writes down how a gate stands to its budget; where that is reached, nothing more starts there until the day is over or the budget is
    /// raised. How it stood before; `None` when it has another budget by now, or none, and nothing was done.
    fn pause(
        &self,
        gate: &Gate,
        budget: &Budget,
        stood: &Stood,
    ) -> impl Future<Output = Result<Option<Option<Stood>>, Error>> + Send;

    /// Disables a tenant, or enables it again: while it is disabled nothing more of it starts, whatever its limits. What runs ends.
    fn disable(&self, tenant: &str, disabled: bool) -> impl Future<Output = Result<(), Error>> + Send;

    /// What runs now, at most [`crate::budgets::RUNNING_MAX`] attempts: those whose leases end first.
    fn running(&self) -> impl Future<Output = Result<Vec<Running>, Error>> + Send;

    /// The record, if there is one.
    fn get(&self, id: JobId) -> impl Future<Output = Result<Option<Job>, Error>> + Send;

    /// The record, and from now on a [`Signal::Job`] to `replica` at each change, for a minute; repeat to keep watching.
    fn watch(&self, id: JobId, replica: &str) -> impl Future<Output = Result<Option<Job>, Error>> + Send;

    /// A tenant's jobs, newest first. Looks at a bounded number of records a call.
    fn list(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> impl Future<Output = Result<JobPage, Error>> + Send;

    /// Keeps what running jobs said. Events of lost leases are dropped; the last 1,000 of a job are kept. Outputs are kept apart, in memory
    /// alone and within [`OUTPUTS_KEPT`] and [`OUTPUTS_BYTES_KEPT`]: whoever reads them finds gaps by their indexes.
    fn append_events(&self, events: &[JobEventReport]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Events of a job after `after` (all when empty), oldest first, at most `limit`.
    fn read_events(
        &self,
        id: JobId,
        after: &str,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<KeptEvent>, Error>> + Send;

    /// Kept outputs of a job that end after this place, oldest first, at most `limit` times several.
    fn read_outputs(
        &self,
        id: JobId,
        after: OutputsPlace,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<KeptOutputs>, Error>> + Send;

    /// How full the lanes are, the fullest 1,000.
    fn depth(&self) -> impl Future<Output = Result<Vec<LaneDepth>, Error>> + Send;

    /// What comes to each endpoint, waits there, runs and has run, by tenant and name.
    fn flow(&self) -> impl Future<Output = Result<Vec<Flow>, Error>> + Send;

    /// What ended attempts took on these days (UTC, since 1970), by day and by whom: all tenants', or one's.
    fn spent(
        &self,
        days: RangeInclusive<u32>,
        tenant: Option<&str>,
    ) -> impl Future<Output = Result<Vec<Spent>, Error>> + Send;

    /// Checks that the caller holds this lease now; gives what is needed to sign its uploads.
    fn held(&self, lease: &LeaseRef) -> impl Future<Output = Result<Option<(JobSpec, u32)>, Error>> + Send;

    /// Signals for `replica`, from now on. Ends when the queue is dropped.
    fn listen(&self, replica: &str) -> impl Future<Output = Result<tokio::sync::mpsc::Receiver<Signal>, Error>> + Send;
}
