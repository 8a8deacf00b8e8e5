//! The contract: one method per verb. `redis.rs` and `memory.rs` implement it; `conformance.rs` tests both.

use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;

use serde_json::value::RawValue;

use crate::budgets::{Budget, Budgeted, Running, Stood};
use crate::costs::Spent;
use crate::error::Error;
use crate::flow::Flow;
pub use crate::gate::Gate;
use crate::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, JobMessage, LeaseRef};
use crate::id::{Fence, JobId};
use crate::job::{ErrorCode, Job, JobError, JobSpec, JobState, NewJob, Priority, StepRun};
pub use crate::limits::{HeldBy, Limits, Usage};
use crate::reach::Reach;

/// The most jobs that one [`Queue::submit`] takes.
pub const SUBMIT_MAX: usize = 1_000;

/// The most attempts that one [`Queue::lease`], [`Queue::finish`] or [`Queue::release`] takes.
pub const BATCH_MAX: usize = 100;

/// Default time that work waits before it may go ahead of more urgent work: 5 minutes.
pub const AGE_AFTER_MS: u64 = 5 * 60 * 1000;

/// A call of [`Queue::lease`] adds no further job once it has this many bytes of specs and inputs: 8 MiB. A hundred inputs of 1 MiB would hold Redis
/// for half a second, and the worker that runs the first of them would wait for the last.
pub const LEASE_BYTES: usize = 8 << 20;

/// If the next job of a class stays the same for this long because no GPU has room for it, a GPU is reserved.
pub const HOLD_AFTER_MS: u64 = 20 * 1000;

/// For this long only one worker is asked to reserve a GPU for a class: about as long as its running jobs need to end.
pub const HOLD_MS: u64 = 60 * 1000;

/// The replica name of the autoscaler, which listens for [`Signal::Unmet`].
pub const AUTOSCALER: &str = "autoscaler";

/// How long a replica receives the changes of a job that it watches; reading the job again extends it.
pub(crate) const WATCH_MS: u64 = 60_000;

/// The outcome of one submitted job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// Accepted under its own id.
    New(JobId),
    /// The idempotency key was used before with the same request: this is the job of the first submit.
    Repeat(JobId),
}

impl Submitted {
    /// The job's id in both cases.
    #[must_use]
    pub fn id(self) -> JobId {
        match self {
            Self::New(id) | Self::Repeat(id) => id,
        }
    }
}

/// Ensures that a piece of a batch is fed once: the batch must have been fed up to `from_line`, and is then fed up to
/// `to_line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchGuard {
    /// `batch_<32 hex>`.
    pub batch: String,
    /// Lines fed before.
    pub from_line: u64,
    /// Lines fed afterwards.
    pub to_line: u64,
}

/// A request for leases.
#[derive(Debug, Clone)]
pub struct LeaseQuery {
    /// The worker.
    pub worker_id: String,
    /// At most this many, 1 to 100.
    pub want: u32,
    /// What it can take.
    pub reach: Reach,
    /// The lanes of loaded models. They go first, also if their class is out of reach, unless the job whose turn it is
    /// has waited for `patience_ms`. Each lane once.
    pub warm: Vec<WarmLane>,
    /// See [`patience_ms`].
    pub patience_ms: u64,
    /// The class that the worker has made room for (see [`Queue::hold`]); only its jobs are leased.
    pub only: Option<u32>,
    /// Of waiters with the same reach, the one with the lowest rank is woken; 0 to 999,999.
    pub rank: u32,
    /// No further job is added once the specs and inputs have this many bytes; at least one job is leased.
    pub max_bytes: usize,
    /// The number of slots: the worker is leased no more than these run at once, and a few ahead ([`ahead`]). `None`:
    /// as many as requested.
    pub slots: Option<u32>,
    /// The slots used by its leases on other shards, in [`SLOT_PARTS`](crate::job::SLOT_PARTS).
    pub taken_elsewhere: u64,
    /// The waiter to park in the same step if nothing is ready, so that no wakeup is lost in between.
    pub park: Option<Waiter>,
}

/// Leases that a worker may hold ahead of its slots in any case: those whose results and ends are in transit.
const SPARE: u32 = 32;

/// Additional work that a worker may hold: half a second of its slots, up to a number of jobs. Workers request a tenth
/// of it.
const AHEAD_MS: f64 = 500.0;
const AHEAD_MAX: f64 = 300.0;

/// The most leases that a worker holds, regardless of its slots: as many as one heartbeat extends.
pub const LEASES_MAX: usize = 1_000;

/// How many leases a worker with `slots` slots may hold ahead if a run is expected to take `expected_ms`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to AHEAD_MAX")]
pub(crate) fn ahead(slots: u32, expected_ms: f64) -> u32 {
    SPARE + (f64::from(slots) * AHEAD_MS / expected_ms.max(1.0)).floor().min(AHEAD_MAX) as u32
}

/// A lane whose model a worker has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmLane {
    /// The lane without its priority: `<class>:<tenant>:<endpoint>`.
    pub place: String,
    /// How many more jobs the model takes there.
    pub takes: u32,
}

impl fmt::Display for WarmLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*{}", self.place, self.takes)
    }
}

/// How long another job is passed over for jobs of loaded models if loading its model takes `cold_ms`: three times
/// that, at most 20 seconds (docs/adr/0015 has the effect of other times).
#[must_use]
pub fn patience_ms(cold_ms: u64) -> u64 {
    cold_ms.saturating_mul(3).min(20_000)
}

impl LeaseQuery {
    /// The request of a worker with nothing loaded, which does not wait.
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

/// A parked lease poll: the API replica that holds it and its number there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The replica, as in [`Queue::listen`].
    pub replica: String,
    /// The waiter's number, unique within the replica.
    pub waiter: u64,
}

impl Waiter {
    /// The waiter's form in the waiting lists, with the numbers of the requirements that it meets: each of them has a
    /// list.
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
    /// The job's spec, which does not change.
    pub spec: JobSpec,
    /// Its input.
    pub input: Box<RawValue>,
    /// The number of this attempt.
    pub attempt: u32,
    /// The fence: the right to end the attempt.
    pub fence: Fence,
    /// How long the job was ready before, milliseconds.
    pub queued_ms: u64,
    /// Jobs left in its lane after this call, as far as the limits of tenant and endpoint let them start.
    pub behind: u64,
}

impl Lease {
    /// The reference to this lease.
    #[must_use]
    pub fn named(&self) -> LeaseRef {
        LeaseRef { job_id: self.job_id, fence: self.fence.clone() }
    }
}

/// The outcome of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// Ended now; no result will ever appear.
    Cancelled,
    /// The job had already ended in this state.
    AlreadyEnded(JobState),
    /// The job's record cannot be read: an operator must handle it first (quarantine.rs).
    Quarantined,
    /// No such job.
    NotFound,
}

/// Work for `settle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Due {
    /// This job has ended and others may wait for it: [`Queue::unblock`].
    Ended(JobId),
    /// This blocked job waits for nothing any more: [`Queue::settle`].
    Ready(JobId),
}

/// The decision on a blocked job.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The job.
    pub id: JobId,
    /// [`Job::revision`] at the time of the decision.
    pub revision: String,
    /// The job's new steps.
    pub steps: Vec<StepRun>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on a blocked job.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The job may run, with this input if it changed.
    Queue {
        /// JSON.
        input: Option<Box<RawValue>>,
    },
    /// One of its steps runs next; the job waits for it.
    Step {
        /// The job's own input, if it changed.
        input: Option<Box<RawValue>>,
        /// The job that runs the step.
        job: Box<NewJob>,
    },
    /// The job has succeeded, with this result if it differs from its attempt's.
    Succeed {
        /// JSON, at most [`crate::job::INLINE_RESULT_BYTES`].
        result: Option<Box<RawValue>>,
    },
    /// The job has failed.
    Fail {
        /// The error.
        error: JobError,
    },
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

/// The outcome of a round of `promote`, `reap` or `expire`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Jobs moved.
    pub jobs: u32,
    /// When the next job is due, Unix milliseconds, if known.
    pub next_due_ms: Option<u64>,
}

/// A signal that a replica receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// A parked lease poll may now find a job. A wakeup without a waiter must be passed on ([`Queue::wake_next`]).
    Wake(u64),
    /// A watched job changed its state or has a new event.
    Job(JobId),
    /// There is work that any replica may do; the first one takes it.
    Work(Work),
    /// Work is ready and no worker waits for it: sent only to the replica [`AUTOSCALER`], at most twice a second.
    Unmet,
    /// The connection was lost and is back: signals may have been missed, so check everything again.
    Missed,
}

/// The kinds of work that replicas are notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// A webhook is due for delivery.
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

    /// Parses a kind.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.as_str() == word)
    }
}

/// The jobs to list.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Only jobs in this state.
    pub state: Option<JobState>,
    /// Only jobs of this endpoint.
    pub endpoint: Option<String>,
    /// Only jobs with all of these labels.
    pub metadata: Vec<(String, String)>,
    /// Only lines of this batch.
    pub batch: Option<String>,
    /// Only jobs of this schedule.
    pub schedule: Option<String>,
    /// Only jobs of this priority.
    pub priority: Option<Priority>,
    /// Only jobs that failed with this error code.
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

    /// Whether a job with this state, spec and last error passes.
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
    /// The cursor of the next page; `None` at the end. A page may be short or even empty and still have a next one.
    pub next_cursor: Option<String>,
}

/// A stored event of a job.
#[derive(Debug, Clone)]
pub struct KeptEvent {
    /// The event's place, which only grows; the value of `Last-Event-ID`.
    pub id: String,
    /// The attempt that sent it.
    pub attempt: u32,
    /// The event.
    pub message: JobMessage,
}

/// How many output events of a job are stored, of several outputs each; older ones are dropped.
pub const OUTPUTS_KEPT: usize = 1_000;

/// How many bytes of a job's outputs are stored.
pub const OUTPUTS_BYTES_KEPT: usize = 1 << 20;

/// How long outputs are stored after the last one, milliseconds.
pub const OUTPUTS_LIFE_MS: u64 = 60 * 60 * 1000;

/// Consecutive outputs of a job, stored for its readers.
#[derive(Debug, Clone)]
pub struct KeptOutputs {
    /// The attempt that yielded them.
    pub attempt: u32,
    /// The index of the first output.
    pub index: u64,
    /// The outputs; empty if the attempt has yielded all of its outputs, which are those below `index`.
    pub values: Vec<Box<serde_json::value::RawValue>>,
    /// When they were stored, Unix milliseconds.
    pub at_ms: u64,
}

/// A place among a job's outputs: after all earlier attempts and after the outputs of this attempt below `next`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputsPlace {
    /// The attempt; 0 is before all.
    pub attempt: u32,
    /// The index of the next output.
    pub next: u64,
}

/// The depth of one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneDepth {
    /// `<priority digit>:<class>:<tenant>:<endpoint>`.
    pub lane: String,
    /// Ready jobs.
    pub jobs: u64,
    /// Since when the first of them is ready, Unix milliseconds; `None` if all wait for a concurrency key.
    pub since_ms: Option<u64>,
}

/// The queue. Every verb is atomic, idempotent where it can be repeated, and uses the queue's own clock.
///
/// # Errors
/// [`Error::Unavailable`] means *unknown*: the verb may or may not have happened. Each verb documents how to find out
/// or why repeating is safe.
pub trait Queue: Send + Sync + 'static {
    /// Accepts all of `jobs` or none (at most 1,000, one shard). Repeat with the same ids: a known id is answered `New` again.
    ///
    /// # Errors
    /// [`Error::IdempotencyConflict`] when a key is known with another request; nothing is accepted then.
    fn submit(&self, jobs: Vec<NewJob>) -> impl Future<Output = Result<Vec<Submitted>, Error>> + Send;

    /// Leases up to `want` ready jobs, or parks the waiter. A lost reply costs one lease period: the reaper requeues
    /// the jobs.
    ///
    /// # Errors
    /// [`Error::Full`] if a job is ready but the worker holds as many as it may: nothing is leased and no waiter is
    /// parked.
    fn lease(&self, query: LeaseQuery) -> impl Future<Output = Result<Vec<Lease>, Error>> + Send;

    /// Returns a class whose next job has been the same for [`HOLD_AFTER_MS`] although this worker's GPUs could take it
    /// if they were not full: the worker must make room. One worker at a time is asked per class.
    fn hold(
        &self,
        worker_id: &str,
        now: &Reach,
        could: &Reach,
    ) -> impl Future<Output = Result<Option<u32>, Error>> + Send;

    /// Removes a waiter that was parked with this reach. `false` means that a wakeup for it is on its way: poll once
    /// more, or pass it on.
    fn unpark(&self, waiter: &Waiter, reach: &Reach) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Passes a wakeup without a waiter to the next waiter that could use it.
    fn wake_next(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Extends leases. One answer each, in order.
    fn extend(&self, leases: &[LeaseRef]) -> impl Future<Output = Result<Vec<ExtendAnswer>, Error>> + Send;

    /// Ends attempts (at most 100). One answer each, in order; repeating an accepted report is answered `AlreadyEnded`.
    fn finish(&self, reports: &[FinishReport]) -> impl Future<Output = Result<Vec<FinishAnswer>, Error>> + Send;

    /// Returns leases unharmed, to the front of their lanes (at most 100).
    fn release(&self, leases: &[LeaseRef]) -> impl Future<Output = Result<Vec<FinishAnswer>, Error>> + Send;

    /// Cancels jobs for their owner (at most 100). A running attempt loses its lease in the same step. A job of another
    /// tenant is `NotFound`.
    fn cancel(&self, tenant: &str, ids: &[JobId]) -> impl Future<Output = Result<Vec<CancelAnswer>, Error>> + Send;

    /// Moves scheduled jobs that are due into their lanes (at most 100 per call).
    fn promote(&self) -> impl Future<Output = Result<Swept, Error>> + Send;

    /// Reaps expired leases (at most 100 per call): the job goes to the front, or fails if its budget of attempts is
    /// spent.
    fn reap(&self) -> impl Future<Output = Result<Swept, Error>> + Send;

    /// Reaps the jobs of a worker that is known to have ended, like [`Queue::reap`] for expired leases, and returns
    /// their number.
    fn abandon(&self, worker_id: &str) -> impl Future<Output = Result<u32, Error>> + Send;

    /// Expires jobs that are past their deadline (at most 100 per call).
    fn expire(&self) -> impl Future<Output = Result<Swept, Error>> + Send;

    /// Returns the work to settle (at most 100), claimed for `claim_ms`: work that is not settled by then is returned
    /// again.
    fn due(&self, claim_ms: u64) -> impl Future<Output = Result<Vec<Due>, Error>> + Send;

    /// Extends claims of [`Queue::due`] to `claim_ms` from now. Settled work does not change.
    fn keep_due(&self, due: &[Due], claim_ms: u64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Unblocks the jobs that wait for an ended job (at most 100 per call). `true` if those were all.
    fn unblock(&self, id: JobId) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Applies the decision on a blocked job. `false` if the job has moved or was settled since it was read.
    fn settle(&self, settlement: &Settlement) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Sets the limits of a tenant or of one of its endpoints; `None` removes every limit.
    fn limit(&self, gate: &Gate, limits: Option<&Limits>) -> impl Future<Output = Result<(), Error>> + Send;

    /// The limits and the usage of a tenant or of one of its endpoints.
    fn usage(&self, gate: &Gate) -> impl Future<Output = Result<(Limits, Usage), Error>> + Send;

    /// The reason why a queued job of this spec is held back at its gates now, without budgets.
    fn held_by(&self, spec: &JobSpec) -> impl Future<Output = Result<Option<HeldBy>, Error>> + Send;

    /// The gates with a budget, and their spending on this day (UTC, since 1970).
    fn budgets(&self, day: u32) -> impl Future<Output = Result<Vec<Budgeted>, Error>> + Send;

    /// Stores the state of a gate's budget; once it is reached, nothing more starts there until the day is over or the
    /// budget is raised. Returns the previous state; `None` if the gate has another budget or none by now, and nothing
    /// was done.
    fn pause(
        &self,
        gate: &Gate,
        budget: &Budget,
        stood: &Stood,
    ) -> impl Future<Output = Result<Option<Option<Stood>>, Error>> + Send;

    /// Disables a tenant or enables it again: while it is disabled none of its jobs start, regardless of its limits.
    /// Running jobs finish.
    fn disable(&self, tenant: &str, disabled: bool) -> impl Future<Output = Result<(), Error>> + Send;

    /// The running attempts, at most [`crate::budgets::RUNNING_MAX`]: those whose leases end first.
    fn running(&self) -> impl Future<Output = Result<Vec<Running>, Error>> + Send;

    /// The record, if it exists.
    fn get(&self, id: JobId) -> impl Future<Output = Result<Option<Job>, Error>> + Send;

    /// The record, and for one minute a [`Signal::Job`] to `replica` at each change; repeat to keep watching.
    fn watch(&self, id: JobId, replica: &str) -> impl Future<Output = Result<Option<Job>, Error>> + Send;

    /// A tenant's jobs, newest first. Reads a bounded number of records per call.
    fn list(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> impl Future<Output = Result<JobPage, Error>> + Send;

    /// Stores events of running jobs. Events of lost leases are dropped; the last 1,000 of a job are stored. Outputs
    /// are stored separately, only in memory and within [`OUTPUTS_KEPT`] and [`OUTPUTS_BYTES_KEPT`]: readers detect
    /// gaps by the indexes.
    fn append_events(&self, events: &[JobEventReport]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Events of a job after `after` (all when empty), oldest first, at most `limit`.
    fn read_events(
        &self,
        id: JobId,
        after: &str,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<KeptEvent>, Error>> + Send;

    /// Stored outputs of a job that end after this place, oldest first, at most `limit` times several.
    fn read_outputs(
        &self,
        id: JobId,
        after: OutputsPlace,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<KeptOutputs>, Error>> + Send;

    /// The depth of the fullest 1,000 lanes.
    fn depth(&self) -> impl Future<Output = Result<Vec<LaneDepth>, Error>> + Send;

    /// Arrivals, waiting, running and ended jobs of each endpoint, by tenant and name.
    fn flow(&self) -> impl Future<Output = Result<Vec<Flow>, Error>> + Send;

    /// The spending of ended attempts on these days (UTC, since 1970), by day and owner: all tenants', or one's.
    fn spent(
        &self,
        days: RangeInclusive<u32>,
        tenant: Option<&str>,
    ) -> impl Future<Output = Result<Vec<Spent>, Error>> + Send;

    /// Checks that the caller holds this lease now; returns what is needed to sign its uploads.
    fn held(&self, lease: &LeaseRef) -> impl Future<Output = Result<Option<(JobSpec, u32)>, Error>> + Send;

    /// Signals for `replica`, from now on. Ends when the queue is dropped.
    fn listen(&self, replica: &str) -> impl Future<Output = Result<tokio::sync::mpsc::Receiver<Signal>, Error>> + Send;
}
