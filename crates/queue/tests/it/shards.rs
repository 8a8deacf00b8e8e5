//! Shards, on one server and on a cluster of three primaries.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{ExtendAnswer, FinishAnswer};
use stokehold_queue::job::{JobSpec, JobState, NewJob};
use stokehold_queue::queue::{Lease, LeaseQuery, LimitScope, Limits, Signal, Waiter};
use stokehold_queue::{Clock, Error, JobId, ManualClock, Queue, RedisConfig, Shards};
use stokehold_tests::redis_cluster::RedisCluster;
use stokehold_tests::redis_server::RedisServer;
use stokehold_tests::tie::Tie;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::conformance::{LEASE_MS, SHARD, START_MS, held, of, query, spec, succeed};
use crate::redis::{server, shared_server};

/// The tenants of the conformance cases.
const TENANTS: [&str; 8] = ["acme", "zoo", "other", "v", "now", "paying", "slow", "comes"];

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn cluster() -> (RedisCluster, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (RedisCluster::start(dir.path(), &[]), dir)
}

fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn config(url: String, prefix: &str, clock: Clock) -> RedisConfig {
    RedisConfig { url, prefix: prefix.to_owned(), shards: 3, lease_ms: LEASE_MS, clock, ..RedisConfig::default() }
}

/// Three shards on one server; all tenants are on the last.
pub(crate) async fn on_one(server: &RedisServer, clock: Clock) -> Shards {
    let prefix = format!("s{}", number());
    seed_homes(server, &prefix);
    Shards::connect(config(server.url(), &prefix, clock)).await.unwrap()
}

/// Three shards on three primaries; all tenants are on the last.
pub(crate) async fn on_cluster(cluster: &RedisCluster, clock: Clock) -> Shards {
    let (shards, prefix) = spread(cluster, clock).await;
    seed_homes(&cluster.nodes()[cluster.owner(&format!("{{{prefix}:registry}}")).0], &prefix);
    shards
}

/// Three shards on three primaries, and their prefix.
async fn spread(cluster: &RedisCluster, clock: Clock) -> (Shards, String) {
    let prefix = cluster.spread_prefix(&format!("s{}", number()));
    let shards = Shards::connect(config(cluster.url(), &prefix, clock)).await.unwrap();
    let primaries: BTreeSet<String> = shards.all().iter().map(stokehold_queue::RedisQueue::primary).collect();
    assert_eq!(primaries.len(), 3, "each root has a primary of its own");
    (shards, prefix)
}

fn seed_homes(registry: &RedisServer, prefix: &str) {
    let (key, shard) = (format!("{{{prefix}:registry}}:homes"), SHARD.to_string());
    for tenant in TENANTS {
        let _: u32 = registry.ask(&["HSET", &key, tenant, &shard]);
    }
}

/// A tenant on this shard.
async fn tenant_on(shards: &Shards, shard: u8) -> String {
    for n in 0.. {
        let tenant = format!("tenant-{shard}-{n}");
        if shards.home(&tenant).await.unwrap() == shard {
            return tenant;
        }
    }
    unreachable!("every shard draws tenants")
}

fn job_of(tenant: &str, shard: u8) -> NewJob {
    NewJob { id: JobId::new(shard), ..of(JobSpec { tenant: tenant.to_owned(), ..spec("echo") }) }
}

/// One job on each shard.
async fn one_each(shards: &Shards) -> Vec<JobId> {
    let mut ids = Vec::new();
    for shard in 0..3 {
        let job = job_of(&tenant_on(shards, shard).await, shard);
        ids.push(job.id);
        shards.submit(vec![job]).await.unwrap();
    }
    ids
}

/// Three shards on the server that all of these cases share.
async fn fresh_on_one() -> (Shards, ManualClock) {
    static SERVER: OnceLock<(RedisServer, Tie)> = OnceLock::new();
    let (server, _) = SERVER.get_or_init(shared_server);
    let clock = ManualClock::new(START_MS);
    (on_one(server, Clock::Manual(clock.clone())).await, clock)
}

/// Three shards on the cluster that all of these cases share.
async fn fresh_on_cluster() -> (Shards, ManualClock) {
    static CLUSTER: OnceLock<(RedisCluster, Tie)> = OnceLock::new();
    let (cluster, _) = CLUSTER.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap().keep();
        let cluster = RedisCluster::start(&dir, &[]);
        let tie = Tie::new(&dir, cluster.nodes().iter().map(RedisServer::pid));
        (cluster, tie)
    });
    let clock = ManualClock::new(START_MS);
    (on_cluster(cluster, Clock::Manual(clock.clone())).await, clock)
}

mod conformance_on_one_server {
    crate::conformance::cases!(crate::shards::fresh_on_one);
}

mod conformance_on_a_cluster {
    crate::conformance::cases!(crate::shards::fresh_on_cluster);
}

#[tokio::test]
async fn one_worker_serves_every_shard_of_a_cluster() {
    let (cluster, _dir) = cluster();
    let (shards, _) = spread(&cluster, Clock::Own).await;
    shards.check_fitness(false).await.unwrap();
    shards.ping().await.unwrap();
    let ids = one_each(&shards).await;
    assert_eq!(shards.depth().await.unwrap().len(), 3);
    let leases = shards.lease(query(10, 0)).await.unwrap();
    let leased: BTreeSet<JobId> = leases.iter().map(|lease| lease.job_id).collect();
    assert_eq!(leased, ids.iter().copied().collect(), "one pull asks them all");
    let refs: Vec<_> = leases.iter().map(held).collect();
    assert_eq!(shards.extend(&refs).await.unwrap(), [const { ExtendAnswer::Held }; 3]);
    let mut reports: Vec<_> = leases.iter().map(succeed).collect();
    reports[1].fence.0.push('x');
    let answers = shards.finish(&reports).await.unwrap();
    assert_eq!(answers, [FinishAnswer::Ok, FinishAnswer::StaleFence, FinishAnswer::Ok], "in the order of the reports");
    assert_eq!(shards.release(&refs[1..2]).await.unwrap(), [FinishAnswer::Ok]);
    assert_eq!(shards.get(refs[0].job_id).await.unwrap().unwrap().state, JobState::Succeeded);
}

#[tokio::test]
async fn a_waiting_pull_is_woken_by_any_shard_and_leaves_the_others() {
    let (cluster, _dir) = cluster();
    let (shards, prefix) = spread(&cluster, Clock::Own).await;
    let mut heard = shards.listen("api-1").await.unwrap();
    let parked = |shard: u8| -> u32 {
        let root = format!("{{{prefix}:{shard}}}");
        cluster.nodes()[cluster.owner(&root).0].ask(&["ZCARD", &format!("{root}:parked:0")])
    };
    for shard in 0..3 {
        let waiter = Waiter { replica: "api-1".into(), waiter: u64::from(shard) + 1 };
        let parking = LeaseQuery { park: Some(waiter.clone()), ..query(1, 0) };
        assert!(shards.lease(parking.clone()).await.unwrap().is_empty());
        assert_eq!([parked(0), parked(1), parked(2)], [1, 1, 1], "it waits on every shard");
        shards.submit(vec![job_of(&tenant_on(&shards, shard).await, shard)]).await.unwrap();
        let signal = timeout(PATIENCE, heard.recv()).await.unwrap().unwrap();
        assert_eq!(signal, Signal::Wake(waiter.waiter), "one wake, though its primary is another one each time");
        let leases: Vec<Lease> = shards.lease(parking).await.unwrap();
        assert_eq!(leases[0].job_id.shard(), shard);
        shards.unpark(&waiter, &Capability::usual(0)).await.unwrap();
        assert_eq!([parked(0), parked(1), parked(2)], [0, 0, 0]);
    }
}

#[tokio::test]
async fn a_shard_that_is_away_stops_its_own_tenants_only() {
    let (cluster, _dir) = cluster();
    let (shards, prefix) = spread(&cluster, Clock::Own).await;
    let tenants = [tenant_on(&shards, 0).await, tenant_on(&shards, 1).await, tenant_on(&shards, 2).await];
    // Not the node of the registry: without the registry no request is authenticated.
    let registry = cluster.owner(&format!("{{{prefix}:registry}}")).0;
    let away = (0..3).find(|shard| cluster.owner(&format!("{{{prefix}:{shard}}}")).0 != registry).unwrap();
    let node = &cluster.nodes()[cluster.owner(&format!("{{{prefix}:{away}}}")).0];
    assert!(node.try_ask::<()>(&["SHUTDOWN", "NOSAVE"]).is_err(), "it is gone");
    for shard in 0..3_u8 {
        let outcome = shards.submit(vec![job_of(&tenants[usize::from(shard)], shard)]).await;
        assert_eq!(outcome.is_err(), shard == away, "{outcome:?}");
    }
    shards.ping().await.unwrap();
    assert_eq!(shards.lease(query(10, 0)).await.unwrap().len(), 2);
    shards.promote().await.unwrap();
}

#[tokio::test]
async fn a_slot_on_its_way_is_waited_for_and_loses_nothing() {
    let (cluster, _dir) = cluster();
    let (shards, prefix) = spread(&cluster, Clock::Own).await;
    let ids = one_each(&shards).await;
    let root = format!("{{{prefix}:0}}");
    let (from, slot) = cluster.owner(&root);
    let to = (from + 1) % 3;
    let (from, to, slot) = (&cluster.nodes()[from], &cluster.nodes()[to], slot.to_string());
    let name = |node: &RedisServer| node.ask::<String>(&["CLUSTER", "MYID"]);
    let _: String = to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &name(from)]);
    let _: String = from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &name(to)]);
    let tenant = tenant_on(&shards, 0).await;
    let late = job_of(&tenant, 0);
    // A client that follows the redirection runs on a node that holds almost nothing yet.
    let refused = shards.submit(vec![late.clone()]).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    assert_eq!(to.ask::<u32>(&["CLUSTER", "COUNTKEYSINSLOT", &slot]), 0, "nothing of it ran there");
    let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]);
    let port = to.port().to_string();
    let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    migrate.extend(keys.iter().map(String::as_str));
    let _: String = from.ask(&migrate);
    for node in [to, from] {
        let _: String = node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &name(to)]);
    }
    shards.submit(vec![late.clone()]).await.unwrap();
    assert!(shards.all()[0].primary().ends_with(&format!(":{}", to.port())), "the root is followed");
    let leased: BTreeSet<JobId> = shards.lease(query(10, 0)).await.unwrap().iter().map(|lease| lease.job_id).collect();
    assert_eq!(leased, ids.into_iter().chain([late.id]).collect());
}

#[tokio::test]
async fn a_tenant_stays_where_it_is_when_shards_are_added() {
    let (server, _dir) = server(&[]);
    let connect =
        async |shards| Shards::connect(RedisConfig { shards, ..config(server.url(), "grow", Clock::Own) }).await;
    let one = connect(1).await.unwrap();
    let limits = Limits { max_open: Some(1), ..Limits::default() };
    one.limit(&LimitScope::Tenant("acme".into()), Some(&limits)).await.unwrap();
    let id = job_of("acme", 0).id;
    one.submit(vec![NewJob { id, ..job_of("acme", 0) }]).await.unwrap();
    let many = connect(64).await.unwrap();
    assert_eq!(many.home("acme").await.unwrap(), 0);
    assert_eq!(many.usage(&LimitScope::Tenant("acme".into())).await.unwrap().0, limits);
    assert!(many.get(id).await.unwrap().is_some());
    let beyond = tenant_on(&many, 63).await;
    assert!(
        matches!(one.home(&beyond).await, Err(Error::Unfit(_))),
        "a replica that was not told is no worse than away"
    );
    assert!(many.get(JobId::new(200)).await.unwrap().is_none(), "no such shard, no such job");
    let Err(Error::Unfit(why)) = connect(3).await else { panic!("fewer shards would lose sight of jobs") };
    assert!(why.contains("64"), "{why}");
}
