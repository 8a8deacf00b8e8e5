//! The metrics of a replica, and the one function that updates each. Labels are bounded. [`crate::metrics::cluster`]
//! has the metrics of the installation.

pub(crate) mod cluster;
mod handles;

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{counter, gauge};
use stokehold_metrics::{Metric, catalogue};
use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::job::{ErrorCode, Priority, Timing};
use stokehold_queue::{Health, Recovered};

use handles::HANDLES;
pub(crate) use handles::request;

/// Buckets of a request, seconds: from half a millisecond (a warm submit) to a minute (the longest wait).
const REQUEST: [f64; 14] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0, 60.0];

/// Buckets of the time in the queue, seconds: from imperceptible to unacceptable. An interactive job is late after 30
/// seconds, a standard one after 5 minutes, one of a batch after an hour.
const QUEUE: [f64; 14] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0, 14_400.0];

/// Buckets of a part of an attempt, seconds: from a handler that only computes to a run of hours.
const PART: [f64; 15] = [0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0];

catalogue! {
    /// Every metric of what happens in a replica.
    pub const METRICS;
    counter HTTP_REQUESTS = "stokehold_http_requests_total" by ["route", "method", "status"], "Answered HTTP requests.";
    histogram HTTP_SECONDS = "stokehold_http_request_duration_seconds" in REQUEST by ["route"], "Seconds from receiving a request's head to sending the response's head.";
    counter HTTP_HELD_BACK = "stokehold_http_requests_held_back_total", "Requests that waited at least 1 ms because their tenant used its share of this replica while another tenant also had requests.";
    gauge CONNECTIONS = "stokehold_http_connections", "Open connections.";
    counter CONNECTIONS_SHOWN_OUT = "stokehold_http_connections_shown_out_total", "Connections closed to make room for new ones at the connection limit.";
    counter QUEUE_LATE = "stokehold_queue_late_total", "Redis calls that took longer than a client should wait.";
    counter JOBS_SUBMITTED = "stokehold_jobs_submitted_total" by ["priority"], "Accepted jobs, without repeats of an idempotency key.";
    counter JOBS_PROMOTED = "stokehold_jobs_promoted_total", "Scheduled jobs that became ready.";
    counter JOBS_EXPIRED = "stokehold_jobs_expired_total", "Jobs that expired.";
    counter JOBS_SETTLED = "stokehold_jobs_settled_total" by ["verdict"], "Jobs that waited for other jobs, by outcome.";
    counter JOBS_ARCHIVED = "stokehold_jobs_archived_total", "Ended jobs moved from Redis to the archive.";
    histogram JOB_QUEUE_SECONDS = "stokehold_job_queue_seconds" in QUEUE by ["priority"], "Seconds from ready to leased, per attempt.";
    histogram ATTEMPT_PART_SECONDS = "stokehold_attempt_part_seconds" in PART by ["part"], "Seconds of each part of an ended attempt: env, weights, boot, load, warmup, run, upload. Parts of zero length are counted only for run.";
    counter LEASES_GRANTED = "stokehold_leases_granted_total", "Leases granted to workers.";
    counter LEASES_REAPED = "stokehold_leases_reaped_total", "Leases that expired and were reaped.";
    counter LEASES_LOST = "stokehold_leases_lost_total", "Leases that a worker still reported although they had ended: reaped, or the job was cancelled or has ended.";
    counter TIMINGS_CUT = "stokehold_timings_cut_total", "Attempts whose worker reported more time than their lease was held. They are recorded and charged for the lease's time.";
    gauge PULLS_PARKED = "stokehold_pulls_parked", "Workers' lease polls that wait for a job.";
    counter ATTEMPTS_FINISHED = "stokehold_attempts_finished_total" by ["outcome", "answer"], "Reported ends of attempts, by reported outcome and by answer; `stale_fence`: the worker no longer held the lease.";
    counter ATTEMPTS_FAILED = "stokehold_attempts_failed_total" by ["code"], "Failed attempts, by error code.";
    counter TRACES_EXPORTED = "stokehold_traces_exported_total", "Traces of ended jobs sent to the collector.";
    counter TRACES_DROPPED = "stokehold_traces_dropped_total" by ["reason"], "Traces that were dropped: `too_many` were waiting, `too_late`, or `refused` by the collector.";
    counter WEBHOOK_TRIES = "stokehold_webhook_tries_total" by ["outcome"], "Tries to deliver a webhook: `delivered`, `failed` (will be retried), `exhausted` or `disabled` (given up).";
    counter SCHEDULE_TICKS = "stokehold_schedule_ticks_total" by ["outcome"], "Schedule ticks: `submitted`, `refused` or `missed`.";
    counter RECORDS_CHECKED = "stokehold_records_checked_total", "Job records examined by recovery sweeps.";
    counter RECORDS_REPAIRED = "stokehold_records_repaired_total" by ["kind"], "Records that recovery sweeps put back in place. 0 in a healthy queue.";
    gauge REDIS_USED = "stokehold_redis_memory_used_bytes" by ["shard"], "Memory used by the Redis of a shard.";
    gauge REDIS_MAX = "stokehold_redis_memory_max_bytes" by ["shard"], "Memory limit of the Redis of a shard; 0 without a limit.";
    gauge REDIS_REPLICAS = "stokehold_redis_replicas" by ["shard"], "Replicas of the Redis of a shard that are in sync.";
    gauge ADMISSION_OPEN = "stokehold_admission_open" by ["shard"], "1 while new work is accepted, 0 while it is refused.";
}

/// Installs the recorder, if that has not happened yet.
pub(crate) fn install() {
    LazyLock::force(&HANDLES);
    // Rare events start at zero, so that the first one is an increase too.
    counter!(LEASES_LOST).increment(0);
    counter!(TIMINGS_CUT).increment(0);
    counter!(QUEUE_LATE).increment(0);
    counter!(HTTP_HELD_BACK).increment(0);
    for outcome in ["delivered", "failed", "exhausted", "disabled"] {
        counter!(WEBHOOK_TRIES, "outcome" => outcome).increment(0);
    }
}

/// Counts a request that waited while others were served.
pub(crate) fn request_held_back() {
    counter!(HTTP_HELD_BACK).increment(1);
}

/// All metrics of a process that runs the API.
#[must_use]
pub fn catalogues() -> [&'static [Metric]; 4] {
    let [queue, objects] = [stokehold_queue::metrics::METRICS, stokehold_objects::metrics::METRICS];
    [METRICS, queue, objects, stokehold_supervise::metrics::METRICS]
}

/// Folds recorded samples and sets the number of parked lease polls; called every few seconds.
pub(crate) fn upkeep(parked: usize) {
    stokehold_metrics::upkeep();
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    gauge!(PULLS_PARKED).set(parked as f64);
}

pub(crate) fn connection_opened() {
    gauge!(CONNECTIONS).increment(1.0);
}

pub(crate) fn connection_closed() {
    gauge!(CONNECTIONS).decrement(1.0);
}

pub(crate) fn connection_shown_out() {
    counter!(CONNECTIONS_SHOWN_OUT).increment(1);
}

pub(crate) fn queue_late() {
    counter!(QUEUE_LATE).increment(1);
}

pub(crate) fn submitted(priority: Priority, jobs: u64) {
    HANDLES.submitted[index(priority)].increment(jobs);
}

pub(crate) fn promoted(jobs: u32) {
    counter!(JOBS_PROMOTED).increment(jobs.into());
}

pub(crate) fn archived(jobs: usize) {
    counter!(JOBS_ARCHIVED).increment(jobs as u64);
}

/// Records a lease of a job that had been ready for this time.
pub(crate) fn leased(priority: Priority, queued_ms: u64) {
    HANDLES.granted.increment(1);
    HANDLES.queued[index(priority)].record(Duration::from_millis(queued_ms));
}

pub(crate) fn expired(jobs: u32) {
    counter!(JOBS_EXPIRED).increment(jobs.into());
}

pub(crate) fn settled(verdict: &'static str) {
    counter!(JOBS_SETTLED, "verdict" => verdict).increment(1);
}

pub(crate) fn reaped(leases: u32) {
    counter!(LEASES_REAPED).increment(leases.into());
}

pub(crate) fn lost(leases: usize) {
    counter!(LEASES_LOST).increment(leases as u64);
}

pub(crate) fn timings_cut(attempts: usize) {
    counter!(TIMINGS_CUT).increment(attempts as u64);
}

/// Records the reported end of an attempt. Its timings count only if the report was accepted.
pub(crate) fn finished(has_succeeded: bool, answer: FinishAnswer, timing: &Timing) {
    HANDLES.finished(has_succeeded, answer).increment(1);
    if answer == FinishAnswer::Ok {
        HANDLES.took(timing);
    }
}

pub(crate) fn attempt_failed(code: ErrorCode) {
    counter!(ATTEMPTS_FAILED, "code" => code.as_str()).increment(1);
}

pub(crate) fn traces_exported(traces: usize) {
    counter!(TRACES_EXPORTED).increment(traces as u64);
}

/// Reasons for which a trace is not exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceDrop {
    /// More traces wait than are allowed.
    TooMany,
    /// The collector has been unreachable for too long.
    TooLate,
    /// The collector rejects it.
    Refused,
}

pub(crate) fn traces_dropped(why: TraceDrop, traces: u64) {
    let why = match why {
        TraceDrop::TooMany => "too_many",
        TraceDrop::TooLate => "too_late",
        TraceDrop::Refused => "refused",
    };
    counter!(TRACES_DROPPED, "reason" => why).increment(traces);
}

pub(crate) fn webhook_tried(outcome: &'static str) {
    counter!(WEBHOOK_TRIES, "outcome" => outcome).increment(1);
}

/// Counts ticks. `outcome` is `submitted`, `refused` or `missed`.
pub(crate) fn ticked(outcome: &'static str, ticks: u64) {
    counter!(SCHEDULE_TICKS, "outcome" => outcome).increment(ticks);
}

pub(crate) fn recovered(step: &Recovered) {
    counter!(RECORDS_CHECKED).increment(step.looked.into());
    for (kind, records) in &step.repairs {
        counter!(RECORDS_REPAIRED, "kind" => kind.clone()).increment((*records).into());
    }
}

pub(crate) fn redis(shard: u8, health: &Health) {
    let shard = shard.to_string();
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let bytes = |bytes: u64| bytes as f64;
    gauge!(REDIS_USED, "shard" => shard.clone()).set(bytes(health.vitals.used_bytes));
    gauge!(REDIS_MAX, "shard" => shard.clone()).set(bytes(health.vitals.max_bytes));
    gauge!(REDIS_REPLICAS, "shard" => shard.clone()).set(health.vitals.replicas);
    gauge!(ADMISSION_OPEN, "shard" => shard).set(f64::from(u8::from(health.refusal.is_none())));
}

/// Index of a priority in arrays by priority.
pub(crate) fn index(priority: Priority) -> usize {
    match priority {
        Priority::Interactive => 0,
        Priority::Standard => 1,
        Priority::Batch => 2,
    }
}

/// Label values of the priorities, by [`index`].
pub(crate) const PRIORITIES: [&str; 3] = ["interactive", "standard", "batch"];
