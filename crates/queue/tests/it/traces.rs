//! Traces that wait for export, as the scripts record them.

use redis::AsyncCommands;
use stokehold_queue::job::{TraceContext, TraceId};
use stokehold_queue::traces::{ClaimedTraces, Traces};
use stokehold_queue::{Clock, JobId, ManualClock, Queue, RedisConfig, RedisQueue};
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;

use crate::conformance::{START_MS, job, of, query, spec, succeed};
use crate::redis::server;

const VISIBLE_MS: u64 = 30_000;

/// Time from a job's end to the export of its trace, as in lib/traces.lua.
const AFTER_MS: u64 = 2_000;

struct Rig {
    queue: RedisQueue,
    traces: Traces,
    clock: ManualClock,
    server: RedisServer,
    _dir: TempDir,
}

impl Rig {
    async fn start() -> Self {
        let (server, dir) = server(&[]);
        let clock = ManualClock::new(START_MS);
        let config = RedisConfig { url: server.url(), clock: Clock::Manual(clock.clone()), ..RedisConfig::default() };
        let queue = RedisQueue::connect(config).await.unwrap();
        Self { traces: queue.traces(), queue, clock, server, _dir: dir }
    }

    /// Runs one job to its end.
    async fn end_one(&self) -> JobId {
        self.queue.submit(vec![job("echo")]).await.unwrap();
        let leases = self.queue.lease(query(1, 0)).await.unwrap();
        self.queue.finish(&[succeed(&leases[0])]).await.unwrap();
        leases[0].job_id
    }

    async fn claim(&self) -> ClaimedTraces {
        self.traces.claim(10, VISIBLE_MS).await.unwrap()
    }

    async fn read_waiting(&self) -> u64 {
        let mut redis = self.server.connection().await;
        redis.zcard("{stoke:0}:traces").await.unwrap()
    }
}

fn of_jobs(jobs: &[JobId]) -> ClaimedTraces {
    ClaimedTraces { jobs: jobs.to_vec(), dropped: 0 }
}

#[tokio::test]
async fn ended_jobs_are_noted_only_while_somebody_exports() {
    let rig = Rig::start().await;
    rig.end_one().await;
    assert_eq!((rig.claim().await, rig.read_waiting().await), (of_jobs(&[]), 0));
    let ended = rig.end_one().await;
    assert_eq!(rig.claim().await, of_jobs(&[]), "its webhooks may still be on their way");
    rig.clock.advance_ms(AFTER_MS);
    assert_eq!(rig.claim().await, of_jobs(&[ended]));
}

#[tokio::test]
async fn a_trace_is_claimed_once_and_again_when_its_claimer_dies() {
    let rig = Rig::start().await;
    rig.claim().await;
    let ended = rig.end_one().await;
    rig.clock.advance_ms(AFTER_MS);
    assert_eq!(rig.claim().await, of_jobs(&[ended]));
    assert_eq!(rig.claim().await, of_jobs(&[]), "it is in another's hands");
    rig.clock.advance_ms(VISIBLE_MS);
    assert_eq!(rig.claim().await, of_jobs(&[ended]));
    rig.traces.forget(&[ended]).await.unwrap();
    rig.clock.advance_ms(VISIBLE_MS);
    assert_eq!((rig.claim().await, rig.read_waiting().await), (of_jobs(&[]), 0));
}

#[tokio::test]
async fn where_too_many_wait_the_longest_due_make_way() {
    let rig = Rig::start().await;
    let mut redis = rig.server.connection().await;
    let waiting: Vec<(u64, String)> = (0..10_003).map(|n| (START_MS + n, JobId::new(0).to_string())).collect();
    let _: u64 = redis.zadd_multiple("{stoke:0}:traces", &waiting).await.unwrap();
    let claimed = rig.claim().await;
    assert_eq!(claimed, ClaimedTraces { jobs: Vec::new(), dropped: 3 });
    assert_eq!(rig.read_waiting().await, 10_000);
    rig.clock.advance_ms(3);
    assert_eq!(rig.claim().await.jobs, [waiting[3].1.parse().unwrap()], "those due before it are gone");
}

#[tokio::test]
async fn a_callers_place_in_a_trace_comes_back_with_the_job_and_its_lease() {
    let rig = Rig::start().await;
    let place = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let new = of(stokehold_queue::job::JobSpec { trace: place, sdk_ms: Some(12), ..spec("echo") });
    let plain = job("plain");
    let (traced, untraced) = (new.id, plain.id);
    rig.queue.submit(vec![new, plain]).await.unwrap();
    let leases = rig.queue.lease(query(2, 0)).await.unwrap();
    let lease = leases.iter().find(|lease| lease.job_id == traced).unwrap();
    assert_eq!((lease.spec.trace, lease.spec.sdk_ms), (place, Some(12)));
    let read = rig.queue.get(traced).await.unwrap().unwrap();
    assert_eq!(read.trace_id(), place.unwrap().trace_id);
    let read = rig.queue.get(untraced).await.unwrap().unwrap();
    assert_eq!(read.trace_id(), TraceId::of(untraced));
}
