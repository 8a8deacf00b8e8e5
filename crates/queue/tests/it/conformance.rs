//! The cases that every implementation of [`Queue`] must pass, one test per case and implementation (`cases.rs`).

pub(crate) mod basics;
pub(crate) mod budgets;
mod cases;
pub(crate) mod costs;
pub(crate) mod dependencies;
pub(crate) mod fairness;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod limit_scopes;
pub(crate) mod order;
pub(crate) mod retries;
pub(crate) mod signals;
pub(crate) mod steps;
pub(crate) mod time;

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::value::RawValue;
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{FinishAnswer, FinishOutcome, FinishReport, LeaseRef, Outgrown};
use stokehold_queue::job::{
    Concurrency, ErrorCode, Job, JobError, JobSpec, JobState, NewJob, Priority, Stage, StepSpec, Timing,
};
use stokehold_queue::queue::{CancelAnswer, Lease, LeaseQuery, LimitScope, Limits, Waiter, WarmLane};
use stokehold_queue::{JobId, Queue};

pub(crate) use cases::{cases, tests};

/// Start time of the tests' clock. It is in the past because the server's own clock makes the ids of stream entries.
pub(crate) const START_MS: u64 = 1_700_000_000_000;
pub(crate) const LEASE_MS: u64 = 30_000;

/// Shard of all tenants in these tests, if there are several shards: fair shares and turns are kept per shard.
pub(crate) const SHARD: u8 = 2;

pub(crate) fn spec(endpoint: &str) -> JobSpec {
    JobSpec {
        tenant: "acme".into(),
        endpoint: endpoint.into(),
        version: 1,
        priority: Priority::Standard,
        vram_class_gib: 0,
        timeout_ms: 60_000,
        max_attempts: 3,
        metadata: BTreeMap::new(),
        files: vec![],
        ..JobSpec::default()
    }
}

/// A job of `tenant`.
fn owned(tenant: &str, endpoint: &str) -> JobSpec {
    JobSpec { tenant: tenant.into(), ..spec(endpoint) }
}

/// A job with a concurrency key.
pub(crate) fn keyed(key: &str, max: u32) -> JobSpec {
    JobSpec { concurrency: Some(Concurrency { key: key.into(), max }), ..spec("echo") }
}

pub(crate) fn job(endpoint: &str) -> NewJob {
    of(spec(endpoint))
}

/// Text without repetitions, which is not stored compressed. It needs no escapes in JSON.
pub(crate) fn noise(bytes: usize) -> String {
    let mut rng = StdRng::seed_from_u64(7);
    let symbols = ('#'..='~').filter(|symbol| *symbol != '\\').collect::<Vec<char>>();
    (0..bytes).map(|_| symbols[rng.random_range(0..symbols.len())]).collect()
}

pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.into()).unwrap()
}

pub(crate) fn step_spec(endpoint: &str, stage: Stage) -> StepSpec {
    StepSpec {
        name: endpoint.into(),
        stage,
        endpoint: endpoint.into(),
        version: 1,
        vram_class_gib: 0,
        demands: 0,
        thresholds: BTreeMap::new(),
        timeout_ms: 1_000,
        max_attempts: 1,
    }
}

pub(crate) fn of(spec: JobSpec) -> NewJob {
    let input = raw(r#"{"text": "hi"}"#);
    NewJob { id: JobId::new(SHARD), spec, input, run_after_ms: 0, idempotency: None, archived: vec![], watcher: None }
}

pub(crate) fn succeed(lease: &Lease) -> FinishReport {
    report(lease, FinishOutcome::Succeeded { result: raw(&format!("\"{}\"", lease.fence)) })
}

pub(crate) fn fail(lease: &Lease, code: ErrorCode) -> FinishReport {
    let error = JobError { code, class: "E".into(), message: "no \"luck\"".into(), traceback: None, stderr: None };
    report(lease, FinishOutcome::Failed { error })
}

fn report(lease: &Lease, outcome: FinishOutcome) -> FinishReport {
    let timing = Timing { run_ms: 5, ..Timing::default() };
    FinishReport::new(held(lease), timing, outcome)
}

/// Report of a job that has outgrown its GPU.
pub(crate) fn outgrow(lease: &Lease, outgrown: Outgrown) -> FinishReport {
    FinishReport { outgrown: Some(outgrown), ..fail(lease, ErrorCode::OomGpu) }
}

pub(crate) fn held(lease: &Lease) -> LeaseRef {
    lease.named()
}

/// Lane of a loaded model that accepts `takes` more jobs.
pub(crate) fn warm(place: &str, takes: u32) -> WarmLane {
    WarmLane { place: place.to_owned(), takes }
}

pub(crate) fn query(want: u32, reach_gib: u32) -> LeaseQuery {
    LeaseQuery::new("w1", want, Capability::usual(reach_gib))
}

fn parking(reach_gib: u32, waiter: u64) -> LeaseQuery {
    LeaseQuery { park: Some(Waiter { replica: "api-1".into(), waiter }), ..query(1, reach_gib) }
}

/// Submits one job of each spec, in order.
async fn submit<Q: Queue>(queue: &Q, specs: impl IntoIterator<Item = JobSpec>) -> Vec<JobId> {
    let jobs: Vec<NewJob> = specs.into_iter().map(of).collect();
    let ids = jobs.iter().map(|job| job.id).collect();
    queue.submit(jobs).await.unwrap();
    ids
}

async fn one<Q: Queue>(queue: &Q) -> Lease {
    let mut leases = queue.lease(query(1, 0)).await.unwrap();
    assert_eq!(leases.len(), 1, "one job is ready");
    leases.remove(0)
}

async fn take<Q: Queue>(queue: &Q, want: u32) -> Vec<Lease> {
    queue.lease(query(want, 0)).await.unwrap()
}

fn ids(leases: &[Lease]) -> Vec<JobId> {
    leases.iter().map(|lease| lease.job_id).collect()
}

async fn succeeds<Q: Queue>(queue: &Q, lease: &Lease) {
    assert_eq!(queue.finish(&[succeed(lease)]).await.unwrap(), [FinishAnswer::Ok]);
}

async fn fails<Q: Queue>(queue: &Q, lease: &Lease, code: ErrorCode) {
    assert_eq!(queue.finish(&[fail(lease, code)]).await.unwrap(), [FinishAnswer::Ok]);
}

async fn cancels<Q: Queue>(queue: &Q, id: JobId) {
    assert_eq!(queue.cancel("acme", &[id]).await.unwrap(), [CancelAnswer::Cancelled]);
}

async fn look<Q: Queue>(queue: &Q, id: JobId) -> Job {
    queue.get(id).await.unwrap().unwrap()
}

async fn state<Q: Queue>(queue: &Q, id: JobId) -> JobState {
    look(queue, id).await.state
}

async fn limit_tenant<Q: Queue>(queue: &Q, tenant: &str, limits: Limits) {
    queue.limit(&LimitScope::Tenant(tenant.into()), Some(&limits)).await.unwrap();
}
