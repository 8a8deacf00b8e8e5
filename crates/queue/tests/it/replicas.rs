//! Acknowledged writes are on a replica before they are acknowledged: WAIT, its reply, and the outcome when too few
//! replicas answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use nix::sys::signal::Signal;
use redis::aio::MultiplexedConnection;
use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::job::{Idempotency, JobState, NewJob};
use stokehold_queue::queue::Submitted;
use stokehold_queue::{Clock, Error, JobId, NoAdmission, Queue, RedisConfig, RedisQueue};
use stokehold_tests::process::signal;
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;

use crate::conformance::{job, query, succeed};
use crate::redis::{queue, raw, server};

/// A primary and its replica, in sync.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
    _dirs: (TempDir, TempDir),
}

impl Pair {
    async fn start() -> Self {
        let (primary, dir) = server(&[]);
        let port = primary.url().rsplit([':', '/']).nth(1).unwrap().to_owned();
        let (replica, other) = server(&["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"]);
        let pair = Self { primary, replica, _dirs: (dir, other) };
        pair.until("state=online").await;
        pair
    }

    async fn until(&self, said: &str) {
        let mut redis = raw(&self.primary).await;
        loop {
            let mut ask = redis::cmd("INFO");
            let info: String = ask.arg("replication").query_async(&mut redis).await.unwrap();
            if info.contains(said) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// A queue that has detected the number of replicas to wait for.
    async fn queue(&self) -> RedisQueue {
        let queue = queue(&self.primary, Clock::Own).await;
        assert_eq!(queue.check_fitness(false).await.unwrap().replicas_to_wait, 1);
        queue
    }

    fn pause(&self) {
        signal(self.replica.pid(), Signal::SIGSTOP);
    }

    fn resume(&self) {
        signal(self.replica.pid(), Signal::SIGCONT);
    }
}

/// Whether a server has the record of a job, whatever the prefix.
async fn has(redis: &mut MultiplexedConnection, id: JobId) -> bool {
    let keys: Vec<String> = redis::cmd("KEYS").arg(format!("*:j:{id}")).query_async(redis).await.unwrap();
    keys.len() == 1
}

fn with_key(key: &str) -> NewJob {
    NewJob { idempotency: Some(Idempotency::new(key, "h")), ..job("echo") }
}

fn is_unknown<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Unavailable { .. }))
}

#[tokio::test]
async fn an_accepted_job_is_on_the_replica() {
    let pair = Pair::start().await;
    let queue = pair.queue().await;
    let mut replica = raw(&pair.replica).await;
    let mut accepted = 0;
    for _ in 0..50 {
        let job = job("echo");
        let id = job.id;
        let submitted = queue.submit(vec![job]).await;
        // On a busy machine a replica may not acknowledge in time.
        if !is_unknown(&submitted) {
            submitted.unwrap();
            assert!(has(&mut replica, id).await);
            accepted += 1;
        }
    }
    assert!(accepted > 25, "{accepted} of 50 jobs are accepted");
}

#[tokio::test]
async fn what_no_replica_acknowledges_is_unknown_and_its_key_resolves_it() {
    let pair = Pair::start().await;
    let queue = pair.queue().await;
    let first = with_key("k");
    let id = first.id;
    queue.submit(vec![job("echo")]).await.unwrap();
    let leases = queue.lease(query(1, 0)).await.unwrap();

    pair.pause();
    assert!(is_unknown(&queue.submit(vec![first]).await));
    assert!(queue.get(id).await.unwrap().is_some(), "it may have happened, and here it has");
    // The repeat writes nothing itself, and must not count as a write that the replica has.
    assert!(is_unknown(&queue.submit(vec![with_key("k")]).await));
    let report = succeed(&leases[0]);
    assert!(is_unknown(&queue.finish(std::slice::from_ref(&report)).await));
    assert!(is_unknown(&queue.cancel("acme", &[id]).await));

    pair.resume();
    pair.until("state=online").await;
    assert_eq!(queue.submit(vec![with_key("k")]).await.unwrap(), [Submitted::Repeat(id)]);
    assert_eq!(queue.finish(&[report]).await.unwrap(), [FinishAnswer::AlreadyEnded]);
    assert!(has(&mut raw(&pair.replica).await, id).await);
}

#[tokio::test]
async fn calls_that_arrive_together_share_a_wait() {
    let pair = Pair::start().await;
    let queue = pair.queue().await;
    let submitted = join_all((0..200).map(|_| queue.submit(vec![job("echo")]))).await;
    assert!(submitted.iter().all(Result::is_ok));
    let mut ask = redis::cmd("INFO");
    let info: String = ask.arg("commandstats").query_async(&mut raw(&pair.primary).await).await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls=")).unwrap();
    let waits: u32 = line.split(',').next().unwrap().parse().unwrap();
    assert!((1..=100).contains(&waits), "{waits} waits for 200 calls");
}

#[tokio::test]
async fn a_group_survives_a_redis_that_has_forgotten_the_scripts() {
    let pair = Pair::start().await;
    let queue = pair.queue().await;
    let mut primary = raw(&pair.primary).await;
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut primary).await.unwrap();
    let submitted = join_all((0..20).map(|_| queue.submit(vec![job("echo")]))).await;
    assert!(submitted.iter().all(Result::is_ok));
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 20);
}

#[tokio::test]
async fn one_refusal_in_a_group_is_only_its_own() {
    let pair = Pair::start().await;
    let queue = pair.queue().await;
    queue.submit(vec![with_key("k")]).await.unwrap();
    let mut other = with_key("k");
    other.idempotency.as_mut().unwrap().request_hash = "other".into();
    let (good, bad) = tokio::join!(queue.submit(vec![job("echo")]), queue.submit(vec![other]));
    assert!(good.is_ok() && matches!(bad, Err(Error::IdempotencyConflict { .. })));

    let mut primary = raw(&pair.primary).await;
    let _: () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query_async(&mut primary).await.unwrap();
    let leases = queue.lease(query(2, 0)).await.unwrap();
    let (full, done) = tokio::join!(queue.submit(vec![job("echo")]), queue.finish(&[]));
    assert!(matches!(full, Err(Error::Closed(_))) && done.unwrap().is_empty());
    assert_eq!(
        queue.finish(&[succeed(&leases[0])]).await.unwrap(),
        [FinishAnswer::Ok],
        "WAIT's mark works in a full Redis"
    );
}

#[tokio::test]
async fn a_replica_that_goes_closes_admission_before_calls_run_into_it() {
    let pair = Pair::start().await;
    let queue = pair.queue().await;
    assert!(queue.look().await.unwrap() && queue.health().refusal.is_none());
    signal(pair.replica.pid(), Signal::SIGKILL);
    pair.until("connected_slaves:0").await;
    queue.look().await.unwrap();
    assert_eq!(queue.health().refusal, Some(NoAdmission::Replicas { there: 0, wanted: 1 }));
    let refused = queue.submit(vec![job("echo")]).await.unwrap_err();
    assert!(refused.to_string().contains("0 replicas in sync and requires 1"), "{refused}");
    // The configuration sets no number: once there was a replica, the queue never waits for fewer.
    assert_eq!(queue.health().replicas_to_wait, 1);
}

#[tokio::test]
async fn a_primary_that_was_demoted_takes_nothing() {
    let pair = Pair::start().await;
    let queue = pair.queue().await;
    pair.primary.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    let first = with_key("k");
    let id = first.id;
    assert!(is_unknown(&queue.submit(vec![first]).await));
    pair.primary.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    pair.until("state=online").await;
    assert!(queue.get(id).await.unwrap().is_none());
    queue.submit(vec![with_key("k")]).await.unwrap();
}

#[tokio::test]
async fn a_replica_that_comes_later_is_waited_for_from_then_on() {
    let pair = Pair::start().await;
    let _: () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut raw(&pair.replica).await).await.unwrap();
    pair.until("connected_slaves:0").await;
    let queue = queue(&pair.primary, Clock::Own).await;
    assert_eq!(queue.check_fitness(false).await.unwrap().replicas_to_wait, 0);
    let port = pair.primary.url().rsplit([':', '/']).nth(1).unwrap().to_owned();
    let mut follow = redis::cmd("REPLICAOF");
    let _: () = follow.arg("127.0.0.1").arg(port).query_async(&mut raw(&pair.replica).await).await.unwrap();
    pair.until("state=online").await;
    queue.look().await.unwrap();
    assert_eq!(queue.health().replicas_to_wait, 1);
}

/// P1 over a failover: the primary dies under load, and its replica takes over with everything that was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_replica_takes_over() {
    let pair = Pair::start().await;
    let reach = |server: &RedisServer| RedisQueue::connect(RedisConfig { url: server.url(), ..RedisConfig::default() });
    let queue = reach(&pair.primary).await.unwrap();
    assert_eq!(queue.check_fitness(false).await.unwrap().replicas_to_wait, 1);
    let killed = Arc::new(AtomicBool::new(false));
    let clients = (0..8).map(|_| {
        let (queue, killed) = (queue.clone(), killed.clone());
        tokio::spawn(async move {
            let mut told = BTreeMap::new();
            // Before the kill, a call can fail too: on a busy machine a replica may acknowledge late.
            while !killed.load(Ordering::Relaxed) {
                let new = job("echo");
                let id = new.id;
                if queue.submit(vec![new]).await.is_err() {
                    continue;
                }
                told.insert(id, JobState::Queued);
                let Ok(leases) = queue.lease(query(1, 0)).await else { continue };
                let reports: Vec<_> = leases.iter().map(succeed).collect();
                let Ok(answers) = queue.finish(&reports).await else { continue };
                for (report, answer) in reports.iter().zip(answers) {
                    assert_eq!(answer, FinishAnswer::Ok);
                    told.insert(report.job_id, JobState::Succeeded);
                }
            }
            told
        })
    });
    let clients: Vec<_> = clients.collect();
    while queue.history().waiting().await.unwrap() < 300 {
        tokio::task::yield_now().await;
    }
    signal(pair.primary.pid(), Signal::SIGKILL);
    killed.store(true, Ordering::Relaxed);
    let _: () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut raw(&pair.replica).await).await.unwrap();

    let after = reach(&pair.replica).await.unwrap();
    let mut told: BTreeMap<JobId, JobState> = BTreeMap::new();
    for client in clients {
        for (id, state) in client.await.unwrap() {
            let known = told.entry(id).or_insert(state);
            *known = if state == JobState::Succeeded { state } else { *known };
        }
    }
    for (id, state) in told {
        let job = after.get(id).await.unwrap().unwrap_or_else(|| panic!("{id} was acknowledged and is gone"));
        assert!(state == JobState::Queued || job.state == state, "{id}: told {state:?}, is {:?}", job.state);
    }
}
