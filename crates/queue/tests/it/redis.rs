//! Redis: the shared promises, and what only Redis owes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::join_all;
use serde_json::value::RawValue;
use stokehold_queue::demands::Trust;
use stokehold_queue::endpoint::{EndpointSpec, EndpointVersion, Traffic};
use stokehold_queue::gateway::{FinishAnswer, JobEventReport, JobMessage, LogStream};
use stokehold_queue::job::{
    Concurrency, Dependency, DependencyOn, ErrorCode, Idempotency, JobError, JobSpec, JobState, NewJob, Priority, Stage,
};
use stokehold_queue::queue::{
    AUTOSCALER, Due, Gate, Lease, LeaseQuery, Limits, OutputsPlace, Settlement, Signal, Verdict,
};
use stokehold_queue::reach::Reach;
use stokehold_queue::registry::{Caps, Deployed, Granted, MachineRecord, TrafficSet, Undeployed, Wanted};
use stokehold_queue::{
    Clock, Durability, Error, ManualClock, Queue, RedisConfig, RedisQueue, TokenKind, TokenRecord, nonce, now_ms,
};
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;

use crate::conformance::{self, LEASE_MS, START_MS, fail, held, job, of, query, spec, step_spec, succeed};

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

pub(crate) async fn raw(server: &RedisServer) -> ::redis::aio::MultiplexedConnection {
    server.connection().await
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
    let leases = queue.lease(LeaseQuery::new("w", 1, Reach::usual(0))).await.unwrap();
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

/// What a queue without open jobs may keep: records, what they leave for lists and history, and what is learnt for ever.
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

    // Work that was passed over and then cancelled takes the count of it along.
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

/// SplitMix64: the same history at every run.
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

/// Ends an attempt in one of the ways there are, or leaves it to the reaper.
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

/// Everything that is done without being asked, once.
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

/// 2,000 jobs that end in every way there is; 100,000 with `STOKE_FULL_SIZE`.
#[tokio::test]
async fn no_counter_is_left_however_jobs_end() {
    let scale: u64 = if std::env::var_os("STOKE_FULL_SIZE").is_some() { 50 } else { 1 };
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let mut draw = Draw(3);
    let endpoint = |endpoint: &str| Gate::Endpoint { tenant: "t1".into(), endpoint: endpoint.into() };
    let gates = [
        (Gate::Tenant("t0".into()), Limits { max_running: Some(3), weight: Some(0.5), ..Limits::default() }),
        (Gate::Tenant("t2".into()), Limits { starts_per_minute: Some(600), ..Limits::default() }),
        (endpoint("a"), Limits { max_running: Some(1), starts_per_minute: Some(300), ..Limits::default() }),
        (endpoint("b"), Limits { max_running: Some(0), ..Limits::default() }),
    ];
    for (gate, limits) in &gates {
        queue.limit(gate, Some(limits)).await.unwrap();
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
            open += queue.usage(&Gate::Tenant(format!("t{tenant}"))).await.unwrap().1.open;
        }
        if open == 0 && round > 20 {
            break;
        }
        assert!(round < 2_000 * scale, "{open} jobs never end: {:?}", left_over(&server).await);
    }
    assert_eq!(open, 0);
    sweep(&queue, &mut draw).await;
    assert!(queue.lease(query(50, 24)).await.unwrap().is_empty());
    for (gate, _) in &gates {
        queue.limit(gate, None).await.unwrap();
    }
    let mut ends = BTreeMap::<&str, usize>::new();
    for job in &jobs {
        let state = queue.get(job.id).await.unwrap().unwrap().state;
        assert!(state.is_terminal());
        *ends.entry(state.as_str()).or_default() += 1;
    }
    println!("{} jobs, {leases} attempts: {ends:?}", jobs.len());
    assert_eq!(left_over(&server).await, [""; 0]);
    // What the records take is counted until they go, and then nothing is.
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
    // Of one that never started there is little to see.
    assert_eq!(until, [5_000, 30 * 60_000]);
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
    let query = LeaseQuery::new("w", 10, Reach::usual(0));
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
    let lease = queue.lease(LeaseQuery::new("w", 1, Reach::usual(0))).await.unwrap().remove(0);
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
    // The first call brings the script.
    say(JobMessage::Output { index: 0, value: value() }).await;
    let before = written().await;
    for index in 1..100 {
        say(JobMessage::Outputs { index: index * 10, values: (0..10).map(|_| value()).collect() }).await;
    }
    assert_eq!(written().await, before);
    assert_eq!(queue.read_outputs(lease.job_id, OutputsPlace::default(), 200).await.unwrap().len(), 100);
    say(JobMessage::Log { stream: LogStream::Stdout, text: "durable".to_owned() }).await;
    assert!(written().await > before, "as everything else is");
}

/// Each writes and reads back a probe of its own.
#[tokio::test]
async fn replicas_that_start_together_are_all_fit() {
    let (server, _dir) = server(&[]);
    let queues = join_all((0..8).map(|_| queue(&server, Clock::Own))).await;
    for _ in 0..20 {
        for fitness in join_all(queues.iter().map(|queue| queue.check_fitness(false))).await {
            fitness.unwrap();
        }
    }
}

#[tokio::test]
async fn the_boot_checks_tell_a_fit_redis_from_an_unfit_one() {
    let (fit, _dir) = server(&[]);
    let class = async |queue: RedisQueue, ephemeral| queue.check_fitness(ephemeral).await.map(|fit| fit.durability);
    assert_eq!(class(queue(&fit, Clock::Own).await, false).await.unwrap(), Durability::Strict);

    let (lazy, _dir) = server(&["--appendfsync", "everysec"]);
    let refused = class(queue(&lazy, Clock::Own).await, false).await.unwrap_err();
    assert!(refused.to_string().contains("CONFIG SET appendfsync always"), "{refused}");
    let standard = RedisConfig { url: lazy.url(), durability: Durability::Standard, ..RedisConfig::default() };
    let queue_of = RedisQueue::connect(standard).await.unwrap();
    assert_eq!(class(queue_of, false).await.unwrap(), Durability::Standard);

    // A managed service: CONFIG is not for us.
    let (managed, _dir) = server(&["--rename-command", "CONFIG", ""]);
    let refused = class(queue(&managed, Clock::Own).await, false).await.unwrap_err();
    assert!(refused.to_string().contains("STOKE_DURABILITY=standard"), "{refused}");

    let (evicting, _dir) = server(&["--maxmemory-policy", "allkeys-lru"]);
    let refused = queue(&evicting, Clock::Own).await.check_fitness(false).await.unwrap_err();
    assert!(refused.to_string().contains("noeviction"), "{refused}");

    let (forgetful, _dir) = server(&["--appendonly", "no"]);
    let queue = queue(&forgetful, Clock::Own).await;
    let refused = queue.check_fitness(false).await.unwrap_err();
    assert!(refused.to_string().contains("--ephemeral"), "{refused}");
    assert_eq!(class(queue, true).await.unwrap(), Durability::Ephemeral);
}

#[tokio::test]
async fn the_reaper_gives_workers_one_lease_period_after_redis_came_up() {
    let (server, _dir) = server(&[]);
    // Own clock, a lease longer than this test: the server's uptime is shorter than it.
    let queue = queue(&server, Clock::Own).await;
    queue.submit(vec![job("echo")]).await.unwrap();
    let query = LeaseQuery::new("w", 1, Reach::usual(0));
    let lease = queue.lease(query).await.unwrap().remove(0);
    let mut redis = raw(&server).await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*:leases").query_async(&mut redis).await.unwrap();
    let _: () =
        ::redis::cmd("ZADD").arg(&keys[0]).arg(1).arg(lease.job_id.to_string()).query_async(&mut redis).await.unwrap();
    assert_eq!(queue.reap().await.unwrap().jobs, 0);
    assert_eq!(queue.get(lease.job_id).await.unwrap().unwrap().state, JobState::Running);
}

fn endpoint_spec(entry: &str) -> EndpointSpec {
    serde_json::from_value(serde_json::json!({
        "package_sha256": "00", "package_size_bytes": 1, "entry": entry, "input_schema": {},
    }))
    .unwrap()
}

fn deployed(deployed: Deployed) -> (EndpointVersion, Traffic, bool) {
    let Deployed::Done { version, traffic, is_new } = deployed else { panic!("{deployed:?}") };
    (*version, traffic, is_new)
}

#[tokio::test]
async fn versions_are_immutable_numbered_and_only_added_when_something_changed() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let deploy = async |entry: &str| deployed(registry.deploy("t", "echo", endpoint_spec(entry), 100).await.unwrap());
    let (first, _, created) = deploy("a.py:f").await;
    assert_eq!((first.version, created), (1, true));
    let (same, _, created) = deploy("a.py:f").await;
    assert_eq!((&same, created), (&first, false));
    let (second, _, created) = deploy("a.py:g").await;
    assert_eq!((second.version, created), (2, true));

    assert_eq!(registry.endpoint("t", "echo", None).await.unwrap(), Some(second.clone()));
    assert_eq!(registry.endpoint("t", "echo", Some(1)).await.unwrap(), Some(first.clone()));
    assert_eq!(registry.endpoint("other", "echo", None).await.unwrap(), None);
    assert_eq!(registry.versions("t", "echo").await.unwrap(), [second.clone(), first]);
    assert_eq!(registry.endpoints("t").await.unwrap(), [second]);
}

#[tokio::test]
async fn a_deleted_version_gives_back_its_memory_and_keeps_its_number() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let deploy =
        async |entry: &str| deployed(registry.deploy("t", "echo", endpoint_spec(entry), 100).await.unwrap()).0.version;
    let undeploy = async |version| registry.undeploy("t", "echo", version).await.unwrap();
    let numbers = async || -> Vec<u32> {
        registry.versions("t", "echo").await.unwrap().iter().map(|version| version.version).collect()
    };
    assert_eq!(undeploy(None).await, Undeployed::UnknownEndpoint);
    let long = format!("a.py:{}", "f".repeat(10_000));
    for entry in ["a.py:f", &long, "a.py:g", "a.py:h"] {
        deploy(entry).await;
    }
    let taken = registry.version_bytes("t").await.unwrap();
    assert_eq!(undeploy(Some(5)).await, Undeployed::UnknownVersion);
    assert_eq!(undeploy(Some(4)).await, Undeployed::HasTraffic);
    registry.set_traffic("t", "echo", 1, 10).await.unwrap();
    assert_eq!(undeploy(Some(1)).await, Undeployed::HasTraffic, "a part of it");
    registry.set_traffic("t", "echo", 4, 100).await.unwrap();
    assert_eq!(undeploy(Some(2)).await, Undeployed::Done(1));
    assert_eq!(undeploy(Some(2)).await, Undeployed::UnknownVersion, "it is deleted");
    let given_back = taken - registry.version_bytes("t").await.unwrap();
    assert!((9_900..10_500).contains(&given_back), "{given_back}");
    assert_eq!(numbers().await, [4, 3, 1]);
    assert_eq!(registry.endpoint("t", "echo", Some(2)).await.unwrap(), None);
    assert_eq!(registry.set_traffic("t", "echo", 2, 1).await.unwrap(), TrafficSet::UnknownVersion);
    // Nobody goes back to what is not there.
    assert_eq!(registry.traffic("t", "echo").await.unwrap().unwrap().previous, Some(3));
    assert_eq!(undeploy(Some(3)).await, Undeployed::Done(1));
    assert_eq!(registry.traffic("t", "echo").await.unwrap().unwrap().previous, None);
    assert_eq!(deploy("a.py:i").await, 5);

    // The endpoint as a whole, with what keeps it loaded and what it was seen to need; its numbers go on.
    registry.set_floor("t", "echo", 5, 1).await.unwrap();
    assert_eq!(undeploy(None).await, Undeployed::Done(3));
    assert_eq!(registry.traffic("t", "echo").await.unwrap(), None);
    assert_eq!(numbers().await, [0; 0]);
    assert!(registry.endpoints("t").await.unwrap().is_empty() && registry.floors().await.unwrap().is_empty());
    assert_eq!(deploy("a.py:f").await, 6);
    assert_eq!(numbers().await, [6]);
}

#[tokio::test]
async fn traffic_is_given_to_a_version_in_part_or_whole_and_taken_back() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let deploy = async |entry: &str, percent| {
        let (version, traffic, created) =
            deployed(registry.deploy("t", "echo", endpoint_spec(entry), percent).await.unwrap());
        (version.version, traffic.parts().collect::<Vec<_>>(), created)
    };
    let set = async |version, percent| match registry.set_traffic("t", "echo", version, percent).await.unwrap() {
        TrafficSet::Done(traffic) => traffic.parts().collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(registry.set_traffic("t", "echo", 1, 100).await.unwrap(), TrafficSet::UnknownEndpoint);
    // The first gets all, whatever it was to get.
    assert_eq!(deploy("a.py:f", 10).await, (1, vec![(1, 100)], true));
    assert_eq!(deploy("a.py:g", 10).await, (2, vec![(1, 90), (2, 10)], true));
    // The same again is the same version, and what it gets is what was said last.
    assert_eq!(deploy("a.py:g", 10).await, (2, vec![(1, 90), (2, 10)], false));
    assert_eq!(deploy("a.py:g", 50).await, (2, vec![(1, 50), (2, 50)], false));
    assert_eq!(registry.endpoint("t", "echo", None).await.unwrap().unwrap().version, 1);
    assert_eq!(set(2, 100).await, [(2, 100)]);
    assert_eq!(set(1, 100).await, [(1, 100)]);
    // A number is never given twice, whatever is current.
    assert_eq!(deploy("a.py:h", 0).await, (3, vec![(1, 100), (3, 0)], true));
    assert_eq!(set(1, 30).await, [(1, 100)]);
    assert_eq!(registry.set_traffic("t", "echo", 4, 1).await.unwrap(), TrafficSet::UnknownVersion);
    assert_eq!(registry.traffic("t", "none").await.unwrap(), None);
}

#[tokio::test]
async fn what_was_current_before_is_known_until_somebody_goes_back_to_it() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let deploy = async |entry: &str, percent| {
        deployed(registry.deploy("t", "echo", endpoint_spec(entry), percent).await.unwrap()).1.previous
    };
    let set = async |version, percent| match registry.set_traffic("t", "echo", version, percent).await.unwrap() {
        TrafficSet::Done(traffic) => traffic.previous,
        other => panic!("{other:?}"),
    };
    assert_eq!(deploy("a.py:f", 100).await, None);
    assert_eq!(deploy("a.py:g", 0).await, None, "a version that is tried has not been current");
    assert_eq!(deploy("a.py:h", 100).await, Some(1), "not 2, which never was");
    assert_eq!(deploy("a.py:h", 100).await, Some(1), "repeated");
    assert_eq!(set(2, 10).await, Some(1));
    assert_eq!(deploy("a.py:g", 50).await, Some(1));
    assert_eq!(set(3, 100).await, Some(1), "the trial ends");
    assert_eq!(set(1, 100).await, None, "nobody wants the one that was left");
    assert_eq!(set(1, 100).await, None, "repeated");
    assert_eq!(deploy("a.py:g", 100).await, Some(1), "promoted by a deploy");
    assert_eq!(set(3, 100).await, Some(4));
}

#[tokio::test]
async fn a_single_use_token_is_claimed_once() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let token = token("00");
    registry.put_token(&token).await.unwrap();
    assert_eq!(registry.tokens().await.unwrap(), std::slice::from_ref(&token));
    let (one, two) = tokio::join!(registry.claim_token(&token.id), registry.claim_token(&token.id));
    assert_eq!([one.unwrap(), two.unwrap()].iter().flatten().count(), 1);
    assert_eq!(registry.tokens().await.unwrap(), []);
}

#[tokio::test]
async fn a_machines_token_gives_way_to_the_next_once_and_goes_with_its_machine() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let term = registry.lead("one", 60_000).await.unwrap().unwrap();
    registry.put_machine(term, &machine("m1")).await.unwrap();
    assert_eq!(registry.machine("m1").await.unwrap(), Some(machine("m1")));
    assert_eq!(registry.machine("m2").await.unwrap(), None);
    let first =
        TokenRecord { id: TokenRecord::id_of_machine("m1"), expires_ms: Some(now_ms() + 60_000), ..token("00") };
    let next = TokenRecord { hash: "11".into(), expires_ms: None, ..first.clone() };
    assert!(!registry.swap_token("00", &next).await.unwrap(), "there is none yet");
    registry.put_token(&first).await.unwrap();
    let (one, two) = tokio::join!(registry.swap_token("00", &next), registry.swap_token("00", &next));
    assert_eq!(u8::from(one.unwrap()) + u8::from(two.unwrap()), 1);
    assert_eq!(registry.token(&first.id).await.unwrap(), Some(next));

    assert!(registry.drop_machine(term, "m1").await.unwrap());
    assert_eq!(registry.token(&first.id).await.unwrap(), None);
    assert_eq!(registry.tokens().await.unwrap(), []);
}

pub(crate) fn token(hash: &str) -> TokenRecord {
    TokenRecord {
        trust: Trust::Owned,
        region: String::new(),
        id: nonce(),
        hash: hash.into(),
        kind: TokenKind::Join,
        tenant: "t".into(),
        scopes: vec![],
        user: String::new(),
        name: "box".into(),
        created_ms: 1,
        expires_ms: None,
        single_use: true,
        machine: None,
        spent: None,
    }
}

fn machine(id: &str) -> MachineRecord {
    MachineRecord {
        id: id.to_owned(),
        provider: "cloud".to_owned(),
        rental: None,
        offer: serde_json::Value::Null,
        wanted: Wanted::Running,
        wanted_ms: 1,
        is_done: false,
        rented_ms: 1,
        drained_ms: None,
        then: None,
        usd_micros_per_hour: 0,
        agreed_usd_micros_per_hour: None,
        booting_usd_micros_per_hour: None,
        made_ms: None,
        released_ms: None,
        stopped_usd_micros_per_hour: 0,
        is_interruptible: false,
        missed_ms: None,
        on_disk: Vec::new(),
    }
}

#[tokio::test]
async fn of_two_autoscalers_only_the_one_that_leads_writes_machines_down() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let first = registry.lead("first", 60_000).await.unwrap().expect("nobody else leads");
    assert_eq!(registry.lead("second", 60_000).await.unwrap(), None);
    assert_eq!(registry.lead("first", 60_000).await.unwrap(), Some(first), "the same term goes on");
    assert!(registry.put_machine(first, &machine("m-1")).await.unwrap());
    assert!(registry.drain(first, "m-1", Some(7)).await.unwrap());

    registry.lead("first", 0).await.unwrap();
    let second = registry.lead("second", 60_000).await.unwrap().expect("the lead was given up");
    assert!(second > first);
    assert!(!registry.put_machine(first, &machine("m-2")).await.unwrap(), "its term is over");
    assert!(!registry.shun(first, "box", 9).await.unwrap());
    assert_eq!(registry.machines().await.unwrap().into_keys().collect::<Vec<_>>(), ["m-1"]);
    assert_eq!(registry.drains().await.unwrap(), [("m-1".to_owned(), 7)].into());
    assert!(registry.drop_machine(second, "m-1").await.unwrap());
    assert!(registry.machines().await.unwrap().is_empty() && registry.drains().await.unwrap().is_empty());
}

#[tokio::test]
async fn machines_are_only_rented_within_the_limits_whoever_asks() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let term = registry.lead("first", 60_000).await.unwrap().expect("nobody else leads");
    let caps = Caps { machines: 3, usd_micros_per_hour: 1_000_000, rents: 4, window_ms: 60_000 };
    let costing = |id: &str| MachineRecord { usd_micros_per_hour: 400_000, is_done: true, ..machine(id) };
    let (rented_of, costing_of) = (&registry, &costing);
    let rent = |id: &'static str, at_ms| async move {
        rented_of.rent(term, &costing_of(id), caps, Some(at_ms)).await.unwrap()
    };
    assert_eq!(rent("m-1", 1_000).await, Granted::Yes);
    assert_eq!(rent("m-1", 1_000).await, Granted::Yes, "it is the same");
    assert_eq!(rent("m-2", 2_000).await, Granted::Yes);
    assert_eq!(rent("m-3", 3_000).await, Granted::Spend(800_000));
    let ending = MachineRecord { wanted: Wanted::Gone, ..costing("m-2") };
    assert!(registry.put_machine(term, &ending).await.unwrap());
    assert_eq!(rent("m-3", 4_000).await, Granted::Spend(800_000), "it may be there still");
    let stopped = MachineRecord { wanted: Wanted::Stopped, stopped_usd_micros_per_hour: 100_000, ..costing("m-2") };
    assert!(registry.put_machine(term, &stopped).await.unwrap());
    assert_eq!(rent("m-3", 5_000).await, Granted::Yes, "a disk costs less");
    assert_eq!(rent("m-2", 6_000).await, Granted::Spend(800_000), "to be resumed it is counted anew");
    assert!(registry.drop_machine(term, "m-3").await.unwrap());
    assert_eq!(rent("m-4", 7_000).await, Granted::Yes);
    assert!(registry.drop_machine(term, "m-4").await.unwrap());
    assert_eq!(rent("m-5", 8_000).await, Granted::Rents(4), "as many as may be within a minute");
    assert_eq!(rent("m-5", 61_500).await, Granted::Yes);
    let many = Caps { machines: 2, ..caps };
    assert_eq!(registry.rent(term, &machine("desk"), many, Some(62_000)).await.unwrap(), Granted::Machines(2));
    assert_eq!(registry.rent(0.into(), &machine("desk"), caps, Some(62_000)).await.unwrap(), Granted::Stale);
}

#[tokio::test]
async fn the_autoscaler_hears_of_ready_work_that_nobody_waits_for() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let mut heard = queue.listen(AUTOSCALER).await.unwrap();
    queue.submit(vec![job("echo")]).await.unwrap();
    assert_eq!(heard.recv().await, Some(Signal::Unmet));
}
