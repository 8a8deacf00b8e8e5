//! Requirement sets: a bound per tenant, shared numbers, and numbers that are reused.

use std::collections::BTreeSet;

use stokehold_queue::capability::Capability;
use stokehold_queue::endpoint::EndpointSpec;
use stokehold_queue::job::{JobSpec, NewJob, Stage, StepSpec};
use stokehold_queue::queue::LeaseQuery;
use stokehold_queue::registry::{REQUIREMENT_SETS_MAX, REQUIREMENT_SETS_OF_TENANT_MAX, RequirementNumber};
use stokehold_queue::requirements::Requirements;
use stokehold_queue::{Clock, Queue, Registry, Shards};
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;

use crate::conformance::{job, spec, step_spec, succeed};
use crate::redis::{raw, server};

async fn shards() -> (Shards, RedisServer, TempDir) {
    let (server, dir) = server(&[]);
    (crate::shards::on_one(&server, Clock::Own).await, server, dir)
}

fn set(n: u32) -> Requirements {
    Requirements { regions: vec![format!("region-{n}")], ..Requirements::default() }
}

async fn deploys(registry: &Registry, tenant: &str, n: u32) -> RequirementNumber {
    registry.number_requirements(tenant, &set(n), true).await.unwrap()
}

fn number(numbered: RequirementNumber) -> u32 {
    match numbered {
        RequirementNumber::Number(number) => number,
        full => panic!("{full:?}"),
    }
}

#[tokio::test]
async fn a_tenant_has_a_bounded_number_of_sets_and_stops_nobody_else() {
    let (shards, _server, _dir) = shards().await;
    let registry = shards.registry();
    let most = REQUIREMENT_SETS_OF_TENANT_MAX;
    let numbers: BTreeSet<u32> = {
        let mut numbers = BTreeSet::new();
        for n in 0..most {
            numbers.insert(number(deploys(&registry, "greedy", n).await));
        }
        numbers
    };
    assert_eq!(numbers.len(), most as usize, "each has its own");
    assert_eq!(deploys(&registry, "greedy", most).await, RequirementNumber::TenantFull(most));
    let empty = registry.number_requirements("greedy", &Requirements::default(), true).await.unwrap();
    assert_eq!(empty, RequirementNumber::Number(0), "the empty set needs no place");
    let again = number(deploys(&registry, "greedy", 7).await);
    assert!(numbers.contains(&again), "what it has it may use");

    let shared = number(deploys(&registry, "acme", 7).await);
    assert_eq!(shared, again, "equal sets share a number");
    let own = number(deploys(&registry, "acme", most).await);
    assert!(!numbers.contains(&own));
    // A set numbered by another tenant counts as a set of this one once it deploys with it; sets that it has deployed
    // before still work.
    assert_eq!(deploys(&registry, "greedy", most).await, RequirementNumber::TenantFull(most));
    assert_eq!(number(registry.number_requirements("greedy", &set(most), false).await.unwrap()), own);
    let known = registry.demands().await.unwrap();
    assert_eq!((known.len() as u32, &known[&shared]), (most + 2, &set(7)));
}

#[tokio::test]
async fn all_tenants_together_have_a_bound_and_are_told_so() {
    let (shards, _server, _dir) = shards().await;
    let registry = shards.registry();
    for n in 0..REQUIREMENT_SETS_MAX {
        number(deploys(&registry, &format!("t{}", n / 40), n).await);
    }
    let full = RequirementNumber::Full(REQUIREMENT_SETS_MAX);
    assert_eq!(deploys(&registry, "t0", REQUIREMENT_SETS_MAX).await, full);
    let reserved = number(deploys(&registry, "late", REQUIREMENT_SETS_MAX).await);
    assert_eq!(reserved, REQUIREMENT_SETS_MAX + 1, "a tenant with few has a reserve");
    assert_eq!(number(deploys(&registry, "late", 3).await), number(deploys(&registry, "t0", 3).await));
    // The next sweep frees the unused sets, and there is room again.
    let freed = shards.free_requirements(0).await.unwrap() + shards.free_requirements(0).await.unwrap();
    assert_eq!(freed, REQUIREMENT_SETS_MAX + 1);
    assert!(
        number(deploys(&registry, "late", REQUIREMENT_SETS_MAX).await) <= REQUIREMENT_SETS_MAX,
        "one that was freed"
    );
    assert_eq!(registry.demands().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_set_is_freed_when_no_version_with_traffic_and_no_open_job_uses_it() {
    let (shards, _server, _dir) = shards().await;
    let registry = shards.registry();
    let mut numbers = Vec::new();
    for n in 0..5 {
        numbers.push(number(deploys(&registry, "acme", n).await));
    }
    let shard = shards.home("acme").await.unwrap();
    // Set 0 has a version with traffic, 1 a queued job, 2 a job that waits for a step with it, 3 nothing, 4 a version
    // without traffic.
    for (name, n) in [("old", 4), ("old", 0)] {
        let demands = set(n);
        registry.deploy("acme", name, EndpointSpec { demands, ..endpoint() }, 100).await.unwrap();
    }
    let of = |demands| JobSpec { demands, ..spec("e") };
    let steps = vec![StepSpec { demands: numbers[2], ..step_spec("guard", Stage::Before) }];
    let stepped = JobSpec { steps, ..spec("e") };
    let jobs =
        [of(numbers[1]), stepped].map(|spec| NewJob { id: stokehold_queue::JobId::new(shard), spec, ..job("e") });
    shards.submit(jobs.to_vec()).await.unwrap();

    assert_eq!(shards.free_requirements(3_600_000).await.unwrap(), 0, "all were used a moment ago");
    assert_eq!(shards.free_requirements(0).await.unwrap(), 2);
    let left: Vec<u32> = registry.demands().await.unwrap().into_keys().collect();
    assert_eq!(left, [0, numbers[0], numbers[1], numbers[2]]);
    // Both numbers are given out again, and no other.
    let again: BTreeSet<u32> =
        [number(deploys(&registry, "zoo", 90).await), number(deploys(&registry, "zoo", 91).await)].into();
    assert_eq!(again, BTreeSet::from([numbers[3], numbers[4]]));
    assert_eq!(number(deploys(&registry, "zoo", 92).await), 6);

    // The job ends, and its set is freed as well.
    let reach: Capability = [(0, 24), (numbers[1], 24)].into_iter().collect();
    let leases = shards.lease(LeaseQuery::new("w", 1, reach)).await.unwrap();
    shards.finish(&[succeed(&leases[0])]).await.unwrap();
    assert_eq!(shards.free_requirements(0).await.unwrap(), 4, "and the three of zoo");
    let left: Vec<u32> = registry.demands().await.unwrap().into_keys().collect();
    assert_eq!(left, [0, numbers[0], numbers[2]]);
}

/// A tenant served by the previous release is not recorded as a user of its sets; its jobs keep them nevertheless.
#[tokio::test]
async fn jobs_of_the_release_before_keep_their_set() {
    let (shards, server, _dir) = shards().await;
    let (registry, mut redis) = (shards.registry(), raw(&server).await);
    let n = number(deploys(&registry, "acme", 1).await);
    let shard = shards.home("zoo").await.unwrap();
    let of_zoo = JobSpec { tenant: "zoo".into(), demands: n, ..spec("e") };
    shards.submit(vec![NewJob { id: stokehold_queue::JobId::new(shard), spec: of_zoo, ..job("e") }]).await.unwrap();
    assert_eq!(shards.free_requirements(0).await.unwrap(), 0, "zoo has a job of it");
    // Numbered as in the previous release, with no user recorded.
    let next = older_number(&mut redis, r#"{"min_trust":"owned"}"#).await;
    assert_eq!(next, "2");
    assert_eq!(shards.free_requirements(0).await.unwrap(), 0, "from now on it counts as used by anybody");
    assert_eq!(shards.free_requirements(0).await.unwrap(), 1);
    // It gives out no number twice, whichever were freed.
    assert_eq!(older_number(&mut redis, r#"{"min_trust":"community"}"#).await, "3");
    let known = registry.demands().await.unwrap();
    assert_eq!(known.into_keys().collect::<Vec<_>>(), [0, n, 3]);
}

/// Does what `demand.lua` of the previous release does.
async fn older_number(redis: &mut redis::aio::MultiplexedConnection, set: &str) -> String {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:registry}:demands").query_async(redis).await.unwrap();
    let script = "local number = redis.call('HGET', KEYS[1], ARGV[1])
        if number then return {number} end
        local next = redis.call('HLEN', KEYS[1]) + 1
        redis.call('HSET', KEYS[1], ARGV[1], next)
        return {tostring(next)}";
    let reply: Vec<String> =
        redis::cmd("EVAL").arg(script).arg(1).arg(&keys[0]).arg(set).query_async(redis).await.unwrap();
    reply[0].clone()
}

/// A set written by a later release does not block other sets.
#[tokio::test]
async fn a_set_that_cannot_be_read_stops_no_other() {
    let (shards, server, _dir) = shards().await;
    let (registry, mut redis) = (shards.registry(), raw(&server).await);
    let n = number(deploys(&registry, "acme", 1).await);
    older_number(&mut redis, r#"{"min_trust":"a word of a later release"}"#).await;
    let known = registry.demands().await.unwrap();
    assert_eq!(known.into_keys().collect::<Vec<_>>(), [0, n]);
}

pub(crate) fn endpoint() -> EndpointSpec {
    serde_json::from_value(serde_json::json!({
        "package_sha256": "00", "package_size_bytes": 1, "entry": "main.py:E", "input_schema": true,
    }))
    .unwrap()
}
