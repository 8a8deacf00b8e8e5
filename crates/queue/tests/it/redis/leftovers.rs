//! The keys that a drained queue leaves behind: records, and no counters.

use std::collections::BTreeMap;

use stokehold_queue::job::{
    Concurrency, Dependency, DependencyOn, ErrorCode, Idempotency, JobError, JobSpec, NewJob, Priority, Stage,
};
use stokehold_queue::queue::{Due, Lease, LimitScope, Limits, Settlement, Verdict};
use stokehold_queue::{Clock, ManualClock, Queue, RedisQueue, nonce};
use stokehold_tests::redis_server::RedisServer;

use super::{queue, raw, server};
use crate::conformance::{START_MS, fail, held, job, of, query, spec, step_spec, succeed};

/// Keys that a queue without open jobs may keep: records, the entries for lists and history, and permanently learned
/// values.
const KEPT: [&str; 13] = [
    ":j:",
    ":index:",
    ":turn",
    ":ended",
    ":cost",
    ":flow",
    ":spent:",
    ":timings:",
    ":unmet",
    ":dead:",
    ":i:",
    ":tenants",
    ":bytes",
];

async fn left_over(server: &RedisServer) -> Vec<String> {
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query_async(&mut raw(server).await).await.unwrap();
    keys.into_iter().filter(|key| !KEPT.iter().any(|part| key.contains(part))).collect()
}

#[tokio::test]
async fn a_drained_queue_leaves_only_records_behind() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    queue.submit((0..50).map(|_| job("echo")).collect()).await.unwrap();
    for _ in 0..5 {
        let leases = queue.lease(query(10, 0)).await.unwrap();
        queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    }
    assert_eq!(left_over(&server).await, [""; 0]);

    // The count of jobs that were passed over goes when they are cancelled.
    let waits = job("echo");
    let urgent = of(JobSpec { priority: Priority::Interactive, ..spec("echo") });
    let id = waits.id;
    queue.submit(vec![waits, urgent]).await.unwrap();
    let leases = queue.lease(query(1, 0)).await.unwrap();
    queue.finish(&[succeed(&leases[0])]).await.unwrap();
    assert_eq!(left_over(&server).await.iter().filter(|key| key.ends_with(":passed")).count(), 1);
    queue.cancel("acme", &[id]).await.unwrap();
    assert!(queue.lease(query(1, 0)).await.unwrap().is_empty());
    assert_eq!(left_over(&server).await, [""; 0]);
}

/// SplitMix64, so that every run has the same history.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn job(&mut self, now: u64, before: &[NewJob]) -> NewJob {
        let tenant = format!("t{}", self.below(5));
        let waits_for =
            (!before.is_empty() && self.below(5) == 0).then(|| &before[self.below(before.len() as u64) as usize]);
        let depends_on = waits_for.filter(|other| other.spec.tenant == tenant).map(|other| Dependency {
            job: other.id,
            on: if self.below(2) == 0 { DependencyOn::Success } else { DependencyOn::Completion },
        });
        let mut within = |most| (self.below(5) == 0).then(|| now + self.below(most));
        let spec = JobSpec {
            tenant,
            start_by_ms: within(100_000),
            deadline_ms: within(200_000),
            ..spec(["a", "b", "c"][self.below(3) as usize])
        };
        let concurrency = (self.below(3) == 0)
            .then(|| Concurrency { key: format!("k{}", self.below(4)), max: 1 + self.below(2) as u32 });
        let steps = if self.below(10) == 0 { vec![step_spec("guard", Stage::After)] } else { vec![] };
        let spec = JobSpec {
            priority: Priority::ALL[self.below(3) as usize],
            vram_class_gib: [0, 8, 24][self.below(3) as usize],
            depends_on: depends_on.into_iter().collect(),
            concurrency,
            steps,
            ..spec
        };
        let run_after_ms = if self.below(5) == 0 { now + self.below(50_000) } else { 0 };
        let idempotency = (self.below(20) == 0).then(|| Idempotency::new(nonce(), "h"));
        NewJob { run_after_ms, idempotency, ..of(spec) }
    }
}

/// Ends an attempt in one of the possible ways, or leaves it to the reaper.
async fn end_somehow(queue: &RedisQueue, draw: &mut Draw, lease: &Lease) {
    match draw.below(12) {
        0 => drop(queue.release(&[held(lease)]).await.unwrap()),
        1 => drop(queue.cancel(&lease.spec.tenant, &[lease.job_id]).await.unwrap()),
        2 => {}
        3..6 => {
            let code = ErrorCode::ALL[draw.below(ErrorCode::ALL.len() as u64) as usize];
            queue.finish(&[fail(lease, code)]).await.unwrap();
        }
        _ => drop(queue.finish(&[succeed(lease)]).await.unwrap()),
    }
}

/// Runs every background step once.
async fn sweep(queue: &RedisQueue, draw: &mut Draw) {
    queue.promote().await.unwrap();
    queue.reap().await.unwrap();
    queue.expire().await.unwrap();
    for due in queue.due(1).await.unwrap() {
        match due {
            Due::Ended(id) => drop(queue.unblock(id).await.unwrap()),
            Due::Ready(id) => {
                let job = queue.get(id).await.unwrap().unwrap();
                let verdict = match (draw.below(4), job.attempts.is_empty()) {
                    (0, _) => Verdict::Fail { error: JobError::new(ErrorCode::DependencyFailed, "no") },
                    (_, true) => Verdict::Queue { input: None },
                    (_, false) => Verdict::Succeed { result: None },
                };
                queue.settle(&Settlement { id, revision: job.revision, steps: vec![], verdict }).await.unwrap();
            }
        }
    }
}

/// 2,000 jobs that end in every possible way; 100,000 with `STOKE_FULL_SIZE`.
#[tokio::test]
async fn no_counter_is_left_however_jobs_end() {
    let scale: u64 = if std::env::var_os("STOKE_FULL_SIZE").is_some() { 50 } else { 1 };
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let mut draw = Draw(3);
    let endpoint = |endpoint: &str| LimitScope::Endpoint { tenant: "t1".into(), endpoint: endpoint.into() };
    let limit_scopes = [
        (LimitScope::Tenant("t0".into()), Limits { max_running: Some(3), weight: Some(0.5), ..Limits::default() }),
        (LimitScope::Tenant("t2".into()), Limits { starts_per_minute: Some(600), ..Limits::default() }),
        (endpoint("a"), Limits { max_running: Some(1), starts_per_minute: Some(300), ..Limits::default() }),
        (endpoint("b"), Limits { max_running: Some(0), ..Limits::default() }),
    ];
    for (scope, limits) in &limit_scopes {
        queue.limit(scope, Some(limits)).await.unwrap();
    }
    let (mut jobs, mut leases): (Vec<NewJob>, u64) = (Vec::new(), 0);
    for _ in 0..20 * scale {
        let first = jobs.len();
        for _ in 0..100 {
            jobs.push(draw.job(clock.now_ms(), &jobs));
        }
        queue.submit(jobs[first..].to_vec()).await.unwrap();
        for lease in queue.lease(query(20, 24)).await.unwrap() {
            leases += 1;
            end_somehow(&queue, &mut draw, &lease).await;
        }
        clock.advance_ms(draw.below(2_000));
        sweep(&queue, &mut draw).await;
    }
    let any = job("a").id;
    let some: Vec<_> = (0..50 * scale).map(|_| &jobs[draw.below(jobs.len() as u64) as usize]).collect();
    for job in some {
        queue.cancel(&job.spec.tenant, &[job.id, any]).await.unwrap();
    }
    let mut open = u64::MAX;
    for round in 0.. {
        for lease in queue.lease(query(50, 24)).await.unwrap() {
            leases += 1;
            end_somehow(&queue, &mut draw, &lease).await;
        }
        clock.advance_ms(draw.below(5_000));
        sweep(&queue, &mut draw).await;
        if round == 20 {
            queue.limit(&endpoint("b"), None).await.unwrap();
        }
        open = 0;
        for tenant in 0..5 {
            open += queue.usage(&LimitScope::Tenant(format!("t{tenant}"))).await.unwrap().1.open;
        }
        if open == 0 && round > 20 {
            break;
        }
        assert!(round < 2_000 * scale, "{open} jobs never end: {:?}", left_over(&server).await);
    }
    assert_eq!(open, 0);
    sweep(&queue, &mut draw).await;
    assert!(queue.lease(query(50, 24)).await.unwrap().is_empty());
    for (scope, _) in &limit_scopes {
        queue.limit(scope, None).await.unwrap();
    }
    let mut ends = BTreeMap::<&str, usize>::new();
    for job in &jobs {
        let state = queue.get(job.id).await.unwrap().unwrap().state;
        assert!(state.is_terminal());
        *ends.entry(state.as_str()).or_default() += 1;
    }
    println!("{} jobs, {leases} attempts: {ends:?}", jobs.len());
    assert_eq!(left_over(&server).await, [""; 0]);
    // The bytes of the records are counted until the records are deleted, and nothing is counted afterwards.
    let mut taken = BTreeMap::<String, u64>::new();
    let mut redis = raw(&server).await;
    let records: Vec<String> = ::redis::cmd("KEYS").arg("*:j:*").query_async(&mut redis).await.unwrap();
    let (root, _) = records[0].split_once(":j:").unwrap();
    for job in &jobs {
        let key = format!("{root}:j:{}", job.id);
        let size: u64 = ::redis::cmd("HGET").arg(key).arg("size").query_async(&mut redis).await.unwrap();
        *taken.entry(job.spec.tenant.clone()).or_default() += size;
    }
    for (tenant, bytes) in &taken {
        assert_eq!(queue.memory_of(tenant).await.unwrap(), *bytes, "{tenant}");
    }
    for jobs in jobs.chunks(500) {
        queue.history().forget(&jobs.iter().map(|job| job.id).collect::<Vec<_>>()).await.unwrap();
    }
    let counted: Vec<String> = ::redis::cmd("KEYS").arg("*:bytes").query_async(&mut redis).await.unwrap();
    assert_eq!(counted, [""; 0]);
}

#[tokio::test]
async fn a_record_is_kept_as_long_as_its_job_says() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock)).await;
    let short = of(JobSpec { retention_ms: Some(5_000), ..spec("echo") });
    let usual = job("echo");
    let ids = [short.id, usual.id];
    queue.submit(vec![short, usual]).await.unwrap();
    queue.cancel("acme", &ids).await.unwrap();
    let mut redis = raw(&server).await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*:ended").query_async(&mut redis).await.unwrap();
    let mut until = Vec::new();
    for id in ids {
        let score: u64 =
            ::redis::cmd("ZSCORE").arg(&keys[0]).arg(id.to_string()).query_async(&mut redis).await.unwrap();
        until.push(score - START_MS);
    }
    // A job that never started has little to show.
    assert_eq!(until, [5_000, 30 * 60_000]);
}
