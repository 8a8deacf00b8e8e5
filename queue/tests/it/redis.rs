//! Redis: the shared promises, and what only Redis owes.

use std::sync::atomic::{AtomicU32, Ordering};

use stokehold_queue::endpoint::EndpointSpec;
use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::job::JobState;
use stokehold_queue::queue::LeaseQuery;
use stokehold_queue::{
    Clock, Durability, Error, ManualClock, Queue, RedisConfig, RedisQueue, TokenKind, TokenRecord, nonce,
};
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;

use crate::conformance::{self, LEASE_MS, START_MS, job, succeed};

/// A server of this test's own.
pub(crate) fn server(extra: &[&str]) -> (RedisServer, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (RedisServer::start(dir.path(), extra), dir)
}

/// A queue under a key prefix of its own.
pub(crate) async fn queue(server: &RedisServer, clock: Clock) -> RedisQueue {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let config = RedisConfig { url: server.url(), prefix, lease_ms: LEASE_MS, clock, ..RedisConfig::default() };
    RedisQueue::connect(config).await.unwrap()
}

async fn raw(server: &RedisServer) -> ::redis::aio::MultiplexedConnection {
    ::redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

#[tokio::test]
async fn redis_keeps_every_promise() {
    let (server, _dir) = server(&[]);
    conformance::exercise(async || {
        let clock = ManualClock::new(START_MS);
        (queue(&server, Clock::Manual(clock.clone())).await, clock)
    })
    .await;
}

#[tokio::test]
async fn every_key_of_a_shard_lies_in_one_cluster_slot() {
    // A cluster of one node: it refuses what would leave a slot, and tells the slot of each key.
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
    let leases = queue.lease(LeaseQuery { worker_id: "w".into(), want: 1, reach_gib: 0, park: None }).await.unwrap();
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
async fn a_drained_queue_leaves_only_records_behind() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    queue.submit((0..50).map(|_| job("echo")).collect()).await.unwrap();
    for _ in 0..5 {
        let query = LeaseQuery { worker_id: "w".into(), want: 10, reach_gib: 0, park: None };
        let leases = queue.lease(query).await.unwrap();
        queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    }
    let mut redis = raw(&server).await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query_async(&mut redis).await.unwrap();
    let left: Vec<&String> = keys
        .iter()
        .filter(|key| ![":j:", ":index:", ":turn", ":ended", ":cost"].iter().any(|part| key.contains(part)))
        .collect();
    assert!(left.is_empty(), "{left:?}");
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

    assert!(matches!(queue.submit(vec![job("echo")]).await, Err(Error::Full)));
    let query = LeaseQuery { worker_id: "w".into(), want: 10, reach_gib: 0, park: None };
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
async fn the_boot_checks_tell_a_fit_redis_from_an_unfit_one() {
    let (fit, _dir) = server(&[]);
    assert_eq!(queue(&fit, Clock::Own).await.check_fitness(false).await.unwrap(), Durability::Strict);

    let (evicting, _dir) = server(&["--maxmemory-policy", "allkeys-lru"]);
    let refused = queue(&evicting, Clock::Own).await.check_fitness(false).await.unwrap_err();
    assert!(refused.to_string().contains("noeviction"), "{refused}");

    let (forgetful, _dir) = server(&["--appendonly", "no"]);
    let queue = queue(&forgetful, Clock::Own).await;
    let refused = queue.check_fitness(false).await.unwrap_err();
    assert!(refused.to_string().contains("--ephemeral"), "{refused}");
    assert_eq!(queue.check_fitness(true).await.unwrap(), Durability::Ephemeral);
}

#[tokio::test]
async fn the_reaper_gives_workers_one_lease_period_after_redis_came_up() {
    let (server, _dir) = server(&[]);
    // Own clock, a lease longer than this test: the server's uptime is shorter than it.
    let queue = queue(&server, Clock::Own).await;
    queue.submit(vec![job("echo")]).await.unwrap();
    let query = LeaseQuery { worker_id: "w".into(), want: 1, reach_gib: 0, park: None };
    let lease = queue.lease(query).await.unwrap().remove(0);
    let mut redis = raw(&server).await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*:leases").query_async(&mut redis).await.unwrap();
    let _: () =
        ::redis::cmd("ZADD").arg(&keys[0]).arg(1).arg(lease.job_id.to_string()).query_async(&mut redis).await.unwrap();
    assert_eq!(queue.reap().await.unwrap().jobs, 0);
    assert_eq!(queue.get(lease.job_id).await.unwrap().unwrap().state, JobState::Running);
}

fn spec(entry: &str) -> EndpointSpec {
    serde_json::from_value(serde_json::json!({
        "package_sha256": "00", "package_size_bytes": 1, "entry": entry, "input_schema": {},
    }))
    .unwrap()
}

#[tokio::test]
async fn versions_are_immutable_numbered_and_only_added_when_something_changed() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let (first, created) = registry.deploy("t", "echo", spec("a.py:f")).await.unwrap();
    assert_eq!((first.version, created), (1, true));
    assert_eq!(registry.deploy("t", "echo", spec("a.py:f")).await.unwrap(), (first.clone(), false));
    let (second, created) = registry.deploy("t", "echo", spec("a.py:g")).await.unwrap();
    assert_eq!((second.version, created), (2, true));

    assert_eq!(registry.endpoint("t", "echo", None).await.unwrap(), Some(second.clone()));
    assert_eq!(registry.endpoint("t", "echo", Some(1)).await.unwrap(), Some(first.clone()));
    assert_eq!(registry.endpoint("other", "echo", None).await.unwrap(), None);
    assert_eq!(registry.versions("t", "echo").await.unwrap(), [second.clone(), first]);
    assert_eq!(registry.endpoints("t").await.unwrap(), [second]);
}

#[tokio::test]
async fn a_single_use_token_is_claimed_once() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let token = TokenRecord {
        id: nonce(),
        hash: "00".into(),
        kind: TokenKind::Join,
        tenant: "t".into(),
        scopes: vec![],
        name: "box".into(),
        created_ms: 1,
        expires_ms: None,
        single_use: true,
    };
    registry.put_token(&token).await.unwrap();
    assert_eq!(registry.tokens().await.unwrap(), std::slice::from_ref(&token));
    let (one, two) = tokio::join!(registry.claim_token(&token.id), registry.claim_token(&token.id));
    assert_eq!([one.unwrap(), two.unwrap()].iter().flatten().count(), 1);
    assert_eq!(registry.tokens().await.unwrap(), []);
}
