//! The contract: one method per verb. `redis_queue.rs` and the crate `queue-model` implement it;
//! `tests/it/conformance.rs` tests both.

mod events;
pub(crate) mod lease;
mod list;
mod settle;
mod signal;
mod submit;

use std::future::Future;
use std::ops::RangeInclusive;

use crate::budgets::{Budget, Budgeted, Running, Stood};
use crate::capability::Capability;
use crate::costs::Spent;
use crate::error::Error;
use crate::flow::Flow;
use crate::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, LeaseRef};
use crate::id::JobId;
use crate::job::{Job, JobSpec, JobState, NewJob};
pub use crate::limit_scope::LimitScope;
pub use crate::limits::{HeldBy, Limits, Usage};
pub use events::{KeptEvent, KeptOutputs, OUTPUTS_BYTES_KEPT, OUTPUTS_KEPT, OUTPUTS_LIFE_MS, OutputsPosition};
pub use lease::{
    AGE_AFTER_MS, HOLD_AFTER_MS, HOLD_MS, LEASE_BYTES, LEASES_MAX, Lease, LeaseQuery, Waiter, WarmLane, patience_ms,
};
pub use list::{JobPage, LaneDepth, ListFilter};
pub use settle::{Due, Settlement, Verdict};
pub(crate) use signal::WATCH_MS;
pub use signal::{AUTOSCALER, RelayedOutputs, Signal, Work};
pub use submit::{BatchGuard, Submitted};

/// Maximum number of jobs in one [`Queue::submit`].
pub const SUBMIT_MAX: usize = 1_000;

/// Maximum number of attempts in one [`Queue::lease`], [`Queue::finish`] or [`Queue::release`].
pub const BATCH_MAX: usize = 100;

/// The outcome of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// The job is cancelled and will never have a result.
    Cancelled,
    /// The job had already ended in this state.
    AlreadyEnded(JobState),
    /// The job's record cannot be read: an operator must handle it first (quarantine.rs).
    Quarantined,
    /// The job does not exist.
    NotFound,
}

/// The outcome of a round of `promote`, `reap` or `expire`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Jobs moved.
    pub jobs: u32,
    /// Time at which the next job is due, Unix milliseconds, if known.
    pub next_due_ms: Option<u64>,
}

/// The queue. Every verb is atomic, idempotent where a retry is possible, and uses the queue's own clock.
///
/// # Errors
/// [`Error::Unavailable`] means that the outcome is unknown: the verb may or may not have happened. Each verb documents
/// how to find out or why a retry is safe.
pub trait Queue: Send + Sync + 'static {
    /// Accepts all of `jobs` or none (at most 1,000, one shard). Retry with the same ids: a known id returns `New`
    /// again.
    ///
    /// # Errors
    /// [`Error::IdempotencyConflict`] if a key was used with another request; then no job is accepted.
    fn submit(&self, jobs: Vec<NewJob>) -> impl Future<Output = Result<Vec<Submitted>, Error>> + Send;

    /// Leases up to `want` ready jobs, or parks the waiter. A lost reply costs one lease period: the reaper requeues
    /// the jobs.
    ///
    /// # Errors
    /// [`Error::Full`] if a job is ready but the worker has as many leases as it may: no job is leased and no waiter is
    /// parked.
    fn lease(&self, query: LeaseQuery) -> impl Future<Output = Result<Vec<Lease>, Error>> + Send;

    /// Returns a class whose next job has been the same for [`HOLD_AFTER_MS`] although this worker's GPUs could take it
    /// if they were not full: the worker must reserve room. One worker at a time is asked per class.
    fn hold(
        &self,
        worker_id: &str,
        now: &Capability,
        could: &Capability,
    ) -> impl Future<Output = Result<Option<u32>, Error>> + Send;

    /// Removes a waiter that was parked with this capability. `false` means that a wakeup for it is on its way: poll
    /// once more, or pass it on.
    fn unpark(&self, waiter: &Waiter, reach: &Capability) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Passes a wakeup without a waiter to the next waiter that can use it.
    fn wake_next(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Extends leases. Returns one answer each, in order.
    fn extend(&self, leases: &[LeaseRef]) -> impl Future<Output = Result<Vec<ExtendAnswer>, Error>> + Send;

    /// Ends attempts (at most 100). Returns one answer each, in order; a repeated report returns `AlreadyEnded`.
    fn finish(&self, reports: &[FinishReport]) -> impl Future<Output = Result<Vec<FinishAnswer>, Error>> + Send;

    /// Returns leases without any cost to their jobs, which are requeued (at most 100).
    fn release(&self, leases: &[LeaseRef]) -> impl Future<Output = Result<Vec<FinishAnswer>, Error>> + Send;

    /// Cancels jobs for their owner (at most 100). A running attempt loses its lease in the same step. A job of another
    /// tenant is `NotFound`.
    fn cancel(&self, tenant: &str, ids: &[JobId]) -> impl Future<Output = Result<Vec<CancelAnswer>, Error>> + Send;

    /// Moves scheduled jobs that are due into their lanes (at most 100 per call).
    fn promote(&self) -> impl Future<Output = Result<Swept, Error>> + Send;

    /// Reaps expired leases (at most 100 per call): the job is requeued, or fails if its retry budget is exhausted.
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
    fn limit(&self, scope: &LimitScope, limits: Option<&Limits>) -> impl Future<Output = Result<(), Error>> + Send;

    /// The limits and the usage of a tenant or of one of its endpoints.
    fn usage(&self, scope: &LimitScope) -> impl Future<Output = Result<(Limits, Usage), Error>> + Send;

    /// The reason why limits block a queued job of this spec now, without budgets.
    fn held_by(&self, spec: &JobSpec) -> impl Future<Output = Result<Option<HeldBy>, Error>> + Send;

    /// The limit scopes with a budget, and their spending on this day (days since 1970, UTC).
    fn budgets(&self, day: u32) -> impl Future<Output = Result<Vec<Budgeted>, Error>> + Send;

    /// Stores the state of a limit scope's budget. Once the budget is exhausted, nothing more starts there until the
    /// day is over or the budget is raised. Returns the previous state; `None` if the scope has another budget or none
    /// by now, and nothing was done.
    fn pause(
        &self,
        scope: &LimitScope,
        budget: &Budget,
        stood: &Stood,
    ) -> impl Future<Output = Result<Option<Option<Stood>>, Error>> + Send;

    /// Disables a tenant or enables it again: while it is disabled none of its jobs start, regardless of its limits.
    /// Running jobs finish.
    fn disable(&self, tenant: &str, disabled: bool) -> impl Future<Output = Result<(), Error>> + Send;

    /// The running attempts, at most [`crate::budgets::RUNNING_MAX`]: those whose leases expire first.
    fn running(&self) -> impl Future<Output = Result<Vec<Running>, Error>> + Send;

    /// The record, if it exists.
    fn get(&self, id: JobId) -> impl Future<Output = Result<Option<Job>, Error>> + Send;

    /// The record, if it exists. For one minute `replica` also receives a [`Signal::Job`] at each change; repeat the
    /// call to keep watching.
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

    /// Like [`append_events`](Self::append_events), for outputs that connected readers have received: no replica is
    /// signalled.
    fn append_relayed(&self, events: &[JobEventReport]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Events of a job after `after` (all if empty), oldest first, at most `limit`.
    fn read_events(
        &self,
        id: JobId,
        after: &str,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<KeptEvent>, Error>> + Send;

    /// Stored outputs of a job that end after this position, oldest first, at most `limit` records of several outputs.
    fn read_outputs(
        &self,
        id: JobId,
        after: OutputsPosition,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<KeptOutputs>, Error>> + Send;

    /// The depth of the fullest 1,000 lanes.
    fn depth(&self) -> impl Future<Output = Result<Vec<LaneDepth>, Error>> + Send;

    /// Arrivals, waiting, running and ended jobs of each endpoint, by tenant and name.
    fn flow(&self) -> impl Future<Output = Result<Vec<Flow>, Error>> + Send;

    /// The spending of ended attempts on these days (days since 1970, UTC), by day and owner: of all tenants, or of
    /// one.
    fn spent(
        &self,
        days: RangeInclusive<u32>,
        tenant: Option<&str>,
    ) -> impl Future<Output = Result<Vec<Spent>, Error>> + Send;

    /// Checks that the caller has this lease now. Returns the data for signing its uploads.
    fn held(&self, lease: &LeaseRef) -> impl Future<Output = Result<Option<(JobSpec, u32)>, Error>> + Send;

    /// Signals for `replica`, from now on. Ends when the queue is dropped.
    fn listen(&self, replica: &str) -> impl Future<Output = Result<tokio::sync::mpsc::Receiver<Signal>, Error>> + Send;
}
