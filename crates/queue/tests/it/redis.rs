//! The queue in Redis: the conformance cases, and the faults that only Redis can have.

mod boot_checks;
mod lane_places;
mod leftovers;
mod open_jobs;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::value::RawValue;
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{FinishAnswer, JobEventReport, JobMessage, LogStream};
use stokehold_queue::job::{Hook, HookEvent, JobSpec, JobState};
use stokehold_queue::queue::{AUTOSCALER, LeaseQuery, OutputsPosition, Signal};
use stokehold_queue::{Clock, Error, ManualClock, Queue, RedisConfig, RedisQueue};
use stokehold_tests::redis_server::RedisServer;
use stokehold_tests::tie::Tie;
use tempfile::TempDir;

use crate::conformance::{LEASE_MS, START_MS, job, of, spec, succeed};

/// A server for this test alone.
pub(crate) fn server(extra: &[&str]) -> (RedisServer, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (RedisServer::start(dir.path(), extra), dir)
}

/// A server for the life of this process: tests that share it use separate key prefixes.
pub(crate) fn shared_server() -> (RedisServer, Tie) {
    let dir = tempfile::tempdir().unwrap().keep();
    let server = RedisServer::start(&dir, &[]);
    let tie = Tie::new(&dir, [server.pid()]);
    (server, tie)
}

/// A queue under a separate key prefix.
pub(crate) async fn queue(server: &RedisServer, clock: Clock) -> RedisQueue {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let config = RedisConfig { url: server.url(), prefix, lease_ms: LEASE_MS, clock, ..RedisConfig::default() };
    RedisQueue::connect(config).await.unwrap()
}

pub(crate) async fn raw(server: &RedisServer) -> ::redis::aio::MultiplexedConnection {
    server.connection().await
}

/// A queue on the server that all conformance cases share.
async fn fresh() -> (RedisQueue, ManualClock) {
    static SERVER: OnceLock<(RedisServer, Tie)> = OnceLock::new();
    let (server, _) = SERVER.get_or_init(shared_server);
    let clock = ManualClock::new(START_MS);
    (queue(server, Clock::Manual(clock.clone())).await, clock)
}

mod conformance {
    crate::conformance::cases!(crate::redis::fresh);
}

#[tokio::test]
async fn every_key_of_a_shard_lies_in_one_cluster_slot() {
    // A cluster of one node: it refuses keys of other slots, and reports the slot of each key.
    let (server, _dir) = server(&["--cluster-enabled", "yes"]);
    let mut redis = raw(&server).await;
    let _: () = ::redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16383).query_async(&mut redis).await.unwrap();
    loop {
        let info: String = ::redis::cmd("CLUSTER").arg("INFO").query_async(&mut redis).await.unwrap();
        if info.contains("cluster_state:ok") {
            break;
        }
    }
    let queue = queue(&server, Clock::Own).await;
    let jobs = [job("a"), job("b")].to_vec();
    queue.submit(jobs).await.unwrap();
    let leases = queue.lease(LeaseQuery::new("w", 1, Capability::usual(0))).await.unwrap();
    queue.finish(&[succeed(&leases[0])]).await.unwrap();
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query_async(&mut redis).await.unwrap();
    assert!(keys.len() > 3);
    let mut slots = std::collections::BTreeSet::new();
    for key in keys.iter().filter(|key| !key.contains("registry")) {
        let slot: u32 = ::redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query_async(&mut redis).await.unwrap();
        slots.insert(slot);
    }
    assert_eq!(slots.len(), 1, "{keys:?}");
}

#[tokio::test]
async fn a_full_redis_refuses_new_jobs_and_lets_the_old_ones_drain() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let first = job("echo");
    let id = first.id;
    queue.submit(vec![first]).await.unwrap();
    let mut redis = raw(&server).await;
    let _: () = ::redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query_async(&mut redis).await.unwrap();

    assert!(matches!(queue.submit(vec![job("echo")]).await, Err(Error::Closed(_))));
    let query = LeaseQuery::new("w", 10, Capability::usual(0));
    let leases = queue.lease(query).await.unwrap();
    assert_eq!(queue.finish(&[succeed(&leases[0])]).await.unwrap(), [FinishAnswer::Ok]);
    assert_eq!(queue.get(id).await.unwrap().unwrap().state, JobState::Succeeded);
}

#[tokio::test]
async fn scripts_survive_a_redis_that_has_forgotten_them() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    queue.submit(vec![job("echo")]).await.unwrap();
    let mut redis = raw(&server).await;
    let _: () = ::redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut redis).await.unwrap();
    queue.submit(vec![job("echo")]).await.unwrap();
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 2);
}

#[tokio::test]
async fn outputs_are_kept_in_memory_alone() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = queue.lease(LeaseQuery::new("w", 1, Capability::usual(0))).await.unwrap().remove(0);
    let mut redis = raw(&server).await;
    let mut written = async || {
        let info: String = ::redis::cmd("INFO").arg("persistence").query_async(&mut redis).await.unwrap();
        let size = info.lines().find_map(|line| line.strip_prefix("aof_current_size:")).unwrap();
        size.trim().parse::<u64>().unwrap()
    };
    let say = async |event| {
        let event = JobEventReport { job_id: lease.job_id, fence: lease.fence.clone(), event };
        queue.append_events(&[event]).await.unwrap();
    };
    let value = || RawValue::from_string(format!("\"{}\"", "x".repeat(1_000))).unwrap();
    // The first call loads the script.
    say(JobMessage::Output { index: 0, value: value() }).await;
    let before = written().await;
    for index in 1..100 {
        say(JobMessage::Outputs { index: index * 10, values: (0..10).map(|_| value()).collect() }).await;
    }
    assert_eq!(written().await, before);
    assert_eq!(queue.read_outputs(lease.job_id, OutputsPosition::default(), 200).await.unwrap().len(), 100);
    say(JobMessage::Log { stream: LogStream::Stdout, text: "durable".to_owned() }).await;
    assert!(written().await > before, "as everything else is");
}

/// Outputs of a language model: chunks that repeat one another.
fn chunks() -> Vec<Box<RawValue>> {
    let chunk =
        |n: usize| format!(r#"{{"object":"chat.completion.chunk","choices":[{{"delta":{{"content":"{n}"}}}}]}}"#);
    (0..500).map(|n| RawValue::from_string(chunk(n)).unwrap()).collect()
}

#[tokio::test]
async fn outputs_that_repeat_one_another_are_stored_compressed() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = queue.lease(LeaseQuery::new("w", 1, Capability::usual(0))).await.unwrap().remove(0);
    let event = JobMessage::Outputs { index: 0, values: chunks() };
    let report = JobEventReport { job_id: lease.job_id, fence: lease.fence.clone(), event };
    queue.append_relayed(&[report]).await.unwrap();

    let mut redis = raw(&server).await;
    let mut find = ::redis::cmd("KEYS");
    let keys: Vec<String> = find.arg(format!("*:o:{}", lease.job_id)).query_async(&mut redis).await.unwrap();
    let mut usage = ::redis::cmd("MEMORY");
    let bytes: usize = usage.arg("USAGE").arg(&keys[0]).query_async(&mut redis).await.unwrap();
    let plain: usize = chunks().iter().map(|chunk| chunk.get().len()).sum();
    assert!(bytes * 5 < plain, "{bytes} of {plain} bytes");
    let kept = queue.read_outputs(lease.job_id, OutputsPosition::default(), 10).await.unwrap().remove(0);
    let texts = |values: &[Box<RawValue>]| values.iter().map(|value| value.get().to_owned()).collect::<Vec<_>>();
    assert_eq!((kept.index, texts(&kept.values)), (0, texts(&chunks())));
}

#[tokio::test]
async fn outputs_that_cannot_be_read_are_a_gap_between_the_others() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = queue.lease(LeaseQuery::new("w", 1, Capability::usual(0))).await.unwrap().remove(0);
    let store = async |index: u64| {
        let event = JobMessage::Outputs { index, values: chunks()[..2].to_vec() };
        let report = JobEventReport { job_id: lease.job_id, fence: lease.fence.clone(), event };
        queue.append_relayed(&[report]).await.unwrap();
    };
    store(0).await;
    let mut redis = raw(&server).await;
    let mut find = ::redis::cmd("KEYS");
    let keys: Vec<String> = find.arg(format!("*:o:{}", lease.job_id)).query_async(&mut redis).await.unwrap();
    let mut add = ::redis::cmd("XADD");
    let damaged = [("t", "1"), ("i", "2"), ("b", "9"), ("z", "no frame")];
    add.arg(&keys[0]).arg("1-4").arg(&damaged[..]).query_async::<()>(&mut redis).await.unwrap();
    store(4).await;
    let kept = queue.read_outputs(lease.job_id, OutputsPosition::default(), 10).await.unwrap();
    let kept: Vec<(u32, u64, usize)> = kept.iter().map(|kept| (kept.attempt, kept.index, kept.values.len())).collect();
    assert_eq!(kept, [(1, 0, 2), (1, 4, 0), (1, 4, 2)]);
}

/// The script reads the outputs of such a job, and stores the events of a call in their order.
#[tokio::test]
async fn each_output_for_a_webhook_is_queued_although_outputs_are_compressed() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let hook = Hook { url: "https://example.com/".into(), events: vec![HookEvent::JobOutput] };
    queue.submit(vec![of(JobSpec { hook: Some(hook), ..spec("echo") })]).await.unwrap();
    let lease = queue.lease(LeaseQuery::new("w", 1, Capability::usual(0))).await.unwrap().remove(0);
    let report = |event| JobEventReport { job_id: lease.job_id, fence: lease.fence.clone(), event };
    let outputs = JobMessage::Outputs { index: 0, values: chunks()[..40].to_vec() };
    let log = JobMessage::Log { stream: LogStream::Stdout, text: "after them".to_owned() };
    queue.append_events(&[report(outputs), report(log)]).await.unwrap();

    let events = queue.read_events(lease.job_id, "", 100).await.unwrap();
    let (last, outputs) = events.split_last().unwrap();
    assert!(matches!(last.message, JobMessage::Log { .. }), "{last:?}");
    assert_eq!(outputs.len(), 40);
    for (n, (event, chunk)) in outputs.iter().zip(chunks()).enumerate() {
        let JobMessage::Output { index, value } = &event.message else { panic!("{event:?}") };
        assert_eq!((*index, value.get()), (n as u64, chunk.get()));
    }
    assert_eq!(queue.outbox().claim(100, 60_000).await.unwrap().deliveries.len(), 40);
}

#[tokio::test]
async fn the_reaper_gives_workers_one_lease_period_after_redis_came_up() {
    let (server, _dir) = server(&[]);
    // The server's own clock, and a lease longer than this test: the server's uptime is shorter than the lease.
    let queue = queue(&server, Clock::Own).await;
    queue.submit(vec![job("echo")]).await.unwrap();
    let query = LeaseQuery::new("w", 1, Capability::usual(0));
    let lease = queue.lease(query).await.unwrap().remove(0);
    let mut redis = raw(&server).await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*:leases").query_async(&mut redis).await.unwrap();
    let _: () =
        ::redis::cmd("ZADD").arg(&keys[0]).arg(1).arg(lease.job_id.to_string()).query_async(&mut redis).await.unwrap();
    assert_eq!(queue.reap().await.unwrap().jobs, 0);
    assert_eq!(queue.get(lease.job_id).await.unwrap().unwrap().state, JobState::Running);
}

#[tokio::test]
async fn the_autoscaler_hears_of_ready_work_that_nobody_waits_for() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let mut heard = queue.listen(AUTOSCALER).await.unwrap();
    queue.submit(vec![job("echo")]).await.unwrap();
    assert_eq!(heard.recv().await, Some(Signal::Unmet));
}
