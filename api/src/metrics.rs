//! Every metric: its name, its unit, what it means, and the one function that moves it. Labels are bounded.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::job::Priority;
use stokehold_queue::{Health, Recovered};

const HTTP_REQUESTS: &str = "stokehold_http_requests_total";
const HTTP_SECONDS: &str = "stokehold_http_request_duration_seconds";
const CONNECTIONS: &str = "stokehold_http_connections";
const CONNECTIONS_SHOWN_OUT: &str = "stokehold_http_connections_shown_out_total";
const JOBS_SUBMITTED: &str = "stokehold_jobs_submitted_total";
const JOBS_PROMOTED: &str = "stokehold_jobs_promoted_total";
const JOBS_ARCHIVED: &str = "stokehold_jobs_archived_total";
const JOBS_ENDED: &str = "stokehold_jobs_ended";
const JOBS_EXPIRED: &str = "stokehold_jobs_expired_total";
const JOBS_SETTLED: &str = "stokehold_jobs_settled_total";
const LEASES_GRANTED: &str = "stokehold_leases_granted_total";
const LEASES_REAPED: &str = "stokehold_leases_reaped_total";
const PULLS_PARKED: &str = "stokehold_pulls_parked";
const ATTEMPTS_FINISHED: &str = "stokehold_attempts_finished_total";
const TRACES_EXPORTED: &str = "stokehold_traces_exported_total";
const TRACES_DROPPED: &str = "stokehold_traces_dropped_total";
const WEBHOOK_TRIES: &str = "stokehold_webhook_tries_total";
const SCHEDULE_TICKS: &str = "stokehold_schedule_ticks_total";
const RECORDS_CHECKED: &str = "stokehold_records_checked_total";
const RECORDS_REPAIRED: &str = "stokehold_records_repaired_total";
const REDIS_USED: &str = "stokehold_redis_memory_used_bytes";
const REDIS_MAX: &str = "stokehold_redis_memory_max_bytes";
const REDIS_REPLICAS: &str = "stokehold_redis_replicas";
const ADMISSION_OPEN: &str = "stokehold_admission_open";
const BUDGETS: &str = "stokehold_budgets";
const QUEUE_DEPTH: &str = "stokehold_queue_depth_jobs";

/// From half a millisecond (a warm submit) to a minute (the longest wait).
const SECONDS: [f64; 14] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0, 60.0];

/// The process has one recorder; where another part has set one, this one's numbers stay empty and that is logged.
static RECORDER: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the buckets are a constant and not empty")]
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(HTTP_SECONDS.to_owned()), &SECONDS)
        .expect("there are buckets");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("another metrics recorder is in place; /metrics stays empty");
    }
    describe();
    handle
});

fn describe() {
    describe_counter!(HTTP_REQUESTS, "HTTP requests answered, by route, method and status.");
    describe_histogram!(HTTP_SECONDS, "Seconds from a request's head to its answer's head, by route.");
    describe_gauge!(CONNECTIONS, "Open connections.");
    describe_counter!(CONNECTIONS_SHOWN_OUT, "Connections ended to make room for another one: all were taken.");
    describe_counter!(JOBS_SUBMITTED, "Jobs accepted, by priority. Repeats of an idempotency key are not counted.");
    describe_counter!(JOBS_PROMOTED, "Scheduled jobs made ready by this replica.");
    describe_counter!(JOBS_ARCHIVED, "Ended jobs moved from Redis to the archive by this replica.");
    describe_gauge!(JOBS_ENDED, "Ended jobs in Redis, by the replica that archives them: those of the retention time.");
    describe_counter!(LEASES_GRANTED, "Leases granted to workers.");
    describe_counter!(LEASES_REAPED, "Leases that ran out and were taken back by this replica.");
    describe_gauge!(PULLS_PARKED, "Workers' pulls that wait for a job on this replica.");
    describe_counter!(ATTEMPTS_FINISHED, "Reported ends of attempts, by what was reported and what became of it.");
    describe_counter!(TRACES_EXPORTED, "Traces of ended jobs that this replica has sent to the collector.");
    describe_counter!(
        TRACES_DROPPED,
        "Traces that the collector will never get, by why: too_many wait, too_late, refused."
    );
    describe_counter!(WEBHOOK_TRIES, "Tries to deliver a webhook, by what became of them.");
    describe_counter!(SCHEDULE_TICKS, "Ticks of schedules, by what became of them: a job, none (refused), or missed.");
    describe_counter!(RECORDS_CHECKED, "Job records that this replica's recovery sweeps looked at.");
    describe_counter!(
        RECORDS_REPAIRED,
        "What recovery sweeps put back where a record should stand, by kind. 0 in a healthy queue."
    );
    describe_gauge!(REDIS_USED, "Memory that the Redis of a shard uses.");
    describe_gauge!(REDIS_MAX, "Memory that Redis may use; 0 without a limit.");
    describe_gauge!(REDIS_REPLICAS, "Replicas of Redis that are in step.");
    describe_gauge!(ADMISSION_OPEN, "1 while a shard takes new work, 0 while not.");
    describe_gauge!(
        BUDGETS,
        "Budgets of a day by how they stand: within, warned (80 %) or reached; by the replica that keeps them."
    );
    describe_gauge!(QUEUE_DEPTH, "Jobs ready to be leased, by priority and VRAM class in GiB.");
}

/// Sets the recorder, if that has not happened yet.
pub(crate) fn install() {
    LazyLock::force(&RECORDER);
}

/// Everything, in Prometheus' text form.
pub(crate) fn render() -> String {
    RECORDER.render()
}

/// Folds recorded samples and notes how many pulls are parked; called every few seconds.
pub(crate) fn upkeep(parked: usize) {
    RECORDER.run_upkeep();
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    gauge!(PULLS_PARKED).set(parked as f64);
}

pub(crate) fn request(route: &str, method: &'static str, status: u16, took: Duration) {
    let route = route.to_owned();
    counter!(HTTP_REQUESTS, "route" => route.clone(), "method" => method, "status" => status.to_string()).increment(1);
    histogram!(HTTP_SECONDS, "route" => route).record(took);
}

/// Budgets of a shard that are within, warned of and reached.
pub(crate) fn budgets(shard: u8, gates: [usize; 3]) {
    for (state, gates) in ["within", "warned", "reached"].into_iter().zip(gates) {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        gauge!(BUDGETS, "shard" => shard.to_string(), "state" => state).set(gates as f64);
    }
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

pub(crate) fn submitted(priority: Priority, jobs: u64) {
    counter!(JOBS_SUBMITTED, "priority" => word(priority)).increment(jobs);
}

pub(crate) fn promoted(jobs: u32) {
    counter!(JOBS_PROMOTED).increment(jobs.into());
}

pub(crate) fn archived(jobs: usize) {
    counter!(JOBS_ARCHIVED).increment(jobs as u64);
}

pub(crate) fn ended(jobs: u64) {
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    gauge!(JOBS_ENDED).set(jobs as f64);
}

pub(crate) fn leased(leases: usize) {
    counter!(LEASES_GRANTED).increment(leases as u64);
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

pub(crate) fn finished(outcome: &'static str, answer: FinishAnswer) {
    let answer = match answer {
        FinishAnswer::Ok => "ok",
        FinishAnswer::StaleFence => "stale_fence",
        FinishAnswer::AlreadyEnded => "already_ended",
        FinishAnswer::NotFound => "not_found",
    };
    counter!(ATTEMPTS_FINISHED, "outcome" => outcome, "answer" => answer).increment(1);
}

pub(crate) fn traces_exported(traces: usize) {
    counter!(TRACES_EXPORTED).increment(traces as u64);
}

/// Why a trace is not exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceDrop {
    /// More wait than may.
    TooMany,
    /// The collector has been away for too long.
    TooLate,
    /// The collector will not take it.
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

/// `outcome` is `submitted`, `refused` or `missed`.
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

pub(crate) fn queue_depth(priority: Priority, class_gib: u32, jobs: u64) {
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    gauge!(QUEUE_DEPTH, "priority" => word(priority), "vram_class_gib" => class_gib.to_string()).set(jobs as f64);
}

fn word(priority: Priority) -> &'static str {
    match priority {
        Priority::Interactive => "interactive",
        Priority::Standard => "standard",
        Priority::Batch => "batch",
    }
}
