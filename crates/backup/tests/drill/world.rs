//! The test environment: a Redis, a store behind the S3 protocol, and jobs in every state.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use stokehold_backup::{BackupId, BackupKeys, Creation, Error, Manifest, Outcome, Restoration, Store, create, restore};
use stokehold_objects::store::{self, StoreConfig};
use stokehold_objects::{Objects, ObjectsConfig};
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{FinishAnswer, FinishOutcome, FinishReport};
use stokehold_queue::job::{
    Concurrency, Dependency, DependencyOn, ErrorCode, Hook, HookEvent, Idempotency, Job, JobError, JobSpec, NewJob,
    Timing,
};
use stokehold_queue::queue::{Lease, LeaseQuery, LimitScope, Limits};
use stokehold_queue::registry::{Caps, MachineRecord, SealedSecret, Wanted};
use stokehold_queue::{JobId, Queue, RedisConfig, Shards, TokenKind, TokenRecord, now_ms, requirements::Trust};
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;

pub(crate) const TENANTS: [&str; 3] = ["acme", "beta", "gamma"];
pub(crate) const SHARDS: u8 = 2;

/// A text that occurs only in inputs and in encrypted values.
pub(crate) const CANARY: &str = "canary-51c07be2";

/// Number of jobs per thousand that run when the backup is made.
const RUNNING_OF_THOUSAND: usize = 30;

/// One in this number of successful jobs has its result in S3.
const STORED_EVERY: usize = 100;

pub(crate) struct World {
    server: RedisServer,
    pub(crate) objects: Objects,
    pub(crate) store: Store,
    pub(crate) keys: BackupKeys,
    dir: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (redis, s3) = (dir.path().join("redis"), dir.path().join("s3"));
        std::fs::create_dir_all(&redis).unwrap();
        // Otherwise each start would wait for the disk with each of its commands.
        let server = RedisServer::start(&redis, &["--appendfsync", "everysec", "--maxmemory", "2gb"]);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (id, secret) = ("test", "a test's secret");
        let config = StoreConfig { dir: s3, access_key_id: id.to_owned(), secret_access_key: secret.into() };
        tokio::spawn(store::serve(listener, config, std::future::pending()));
        let objects = Objects::connect(ObjectsConfig {
            endpoint_url: Some(url),
            public_url: None,
            region: "us-east-1".to_owned(),
            bucket: "stokehold".to_owned(),
            access_key_id: Some(id.to_owned()),
            secret_access_key: Some(secret.into()),
            path_style: true,
        });
        let objects = objects.await.unwrap();
        objects.ensure_bucket().await.unwrap();
        let store = Store::new(objects.clone(), "backups");
        Self { server, objects, store, keys: BackupKeys::parse(&"5a".repeat(32)).unwrap(), dir }
    }

    pub(crate) fn redis(&self) -> RedisConfig {
        RedisConfig { url: self.server.url(), shards: SHARDS, ..RedisConfig::default() }
    }

    pub(crate) async fn queue(&self) -> Shards {
        Shards::connect(self.redis()).await.unwrap()
    }

    pub(crate) async fn backup(&self) -> Manifest {
        let (redis, pause) = (self.redis(), Some(Duration::from_secs(60)));
        let creation = Creation {
            redis: &redis,
            store: &self.store,
            keys: &self.keys,
            pause,
            scratch: self.dir.path(),
            progress: &|_| {},
        };
        create(creation).await.unwrap()
    }

    pub(crate) async fn restore(&self, id: Option<&BackupId>) -> Result<Outcome, Error> {
        self.restore_with(self.redis(), &self.keys, id).await
    }

    pub(crate) async fn restore_with(
        &self,
        redis: RedisConfig,
        keys: &BackupKeys,
        id: Option<&BackupId>,
    ) -> Result<Outcome, Error> {
        let results = Some(&self.objects);
        restore(Restoration { redis, store: &self.store, keys, id, results, progress: &|_, _| {} }).await
    }

    pub(crate) async fn raw(&self) -> redis::aio::MultiplexedConnection {
        redis::Client::open(self.server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    pub(crate) async fn wipe(&self) {
        redis::cmd("FLUSHALL").arg("ASYNC").query_async::<()>(&mut self.raw().await).await.unwrap();
    }

    /// Every object of the store, by key.
    pub(crate) async fn stored(&self, prefix: &str) -> BTreeMap<String, bytes::Bytes> {
        let mut found = BTreeMap::new();
        for object in self.objects.list(prefix, None, 1_000).await.unwrap().objects {
            let body = self.objects.get(&object.key, u64::MAX).await.unwrap().unwrap();
            found.insert(object.key, body);
        }
        found
    }
}

fn raw(json: impl Into<String>) -> Box<RawValue> {
    RawValue::from_string(json.into()).unwrap()
}

/// The changes made to a queue.
pub(crate) struct Made {
    pub(crate) ids: Vec<JobId>,
    pub(crate) held: Vec<Lease>,
}

/// `jobs` jobs of three tenants on two shards. Of each twenty, one is scheduled, one waits for another and one for its
/// key. Of the others some have failed, most have succeeded, some run and the rest wait.
pub(crate) async fn populate(queue: &Shards, objects: &Objects, jobs: usize) -> Made {
    register(queue).await;
    let mut ids = Vec::with_capacity(jobs);
    let mut homes = Vec::new();
    for tenant in TENANTS {
        homes.push(queue.home(tenant).await.unwrap());
    }
    let numbers: Vec<usize> = (0..jobs).collect();
    for numbers in numbers.chunks(500) {
        for (which, tenant) in TENANTS.into_iter().enumerate() {
            let mine = numbers.iter().filter(|number| *number % TENANTS.len() == which);
            let mut before = None;
            let mine: Vec<NewJob> = mine.map(|number| job(tenant, homes[which], *number, &mut before)).collect();
            ids.extend(mine.iter().map(|job| job.id));
            queue.submit(mine).await.unwrap();
        }
    }
    let cancelled: Vec<JobId> = ids.iter().rev().take(jobs / 100).copied().collect();
    for tenant in TENANTS {
        for cancelled in cancelled.chunks(100) {
            queue.cancel(tenant, cancelled).await.unwrap();
        }
    }
    let (mut done, mut held) = (0, Vec::new());
    while done < jobs * 6 / 10 {
        let leases = take(queue).await;
        assert!(!leases.is_empty());
        let wanted = (jobs * RUNNING_OF_THOUSAND / 1_000).saturating_sub(held.len()).min(leases.len() / 2);
        let (keep, end) = leases.split_at(wanted);
        held.extend_from_slice(keep);
        finish(queue, objects, end, done).await;
        done += end.len();
    }
    Made { ids, held }
}

pub(crate) async fn take(queue: &Shards) -> Vec<Lease> {
    queue.lease(LeaseQuery::new("w1", 100, Capability::usual(0))).await.unwrap()
}

/// Ends these jobs, of which the first has this number.
pub(crate) async fn finish(queue: &Shards, objects: &Objects, leases: &[Lease], first: usize) {
    let mut reports = Vec::with_capacity(leases.len());
    for (number, lease) in leases.iter().enumerate().map(|(number, lease)| (first + number, lease)) {
        let outcome = if number % 10 == 9 {
            let code = ErrorCode::HandlerError;
            let error = JobError { code, class: "E".into(), message: "no luck".into(), traceback: None, stderr: None };
            FinishOutcome::Failed { error }
        } else if number % STORED_EVERY == 0 {
            let prefix = Job::attempt_prefix(&lease.spec.tenant, lease.job_id, lease.attempt, &lease.fence);
            objects.put(&format!("{prefix}output.json"), "\"large\"".into(), "application/json").await.unwrap();
            FinishOutcome::Stored { size_bytes: 7 }
        } else {
            FinishOutcome::Succeeded { result: raw(format!("{{\"number\": {number}}}")) }
        };
        reports.push(FinishReport::new(lease.named(), Timing { run_ms: 5, ..Timing::default() }, outcome));
    }
    let answers = queue.finish(&reports).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == FinishAnswer::Ok), "{answers:?}");
}

fn job(tenant: &str, shard: u8, number: usize, before: &mut Option<JobId>) -> NewJob {
    let id = JobId::new(shard);
    let mut spec = JobSpec {
        tenant: tenant.to_owned(),
        endpoint: format!("model-{}", number % 7),
        version: 1,
        timeout_ms: 60_000,
        max_attempts: 1,
        ..JobSpec::default()
    };
    let mut run_after_ms = 0;
    match number / TENANTS.len() % 20 {
        0 => run_after_ms = now_ms() + 3_600_000,
        1 => {
            let on = DependencyOn::Completion;
            spec.depends_on = before.iter().map(|job| Dependency { job: *job, on }).collect();
        }
        2 => spec.concurrency = Some(Concurrency { key: "one".to_owned(), max: 1 }),
        3 => spec.deadline_ms = Some(now_ms() + 7_200_000),
        4 => {
            let url = "https://hooks.example.com/".to_owned();
            spec.hook = Some(Hook { url, events: vec![HookEvent::JobCompleted] });
        }
        _ => {}
    }
    *before = Some(id);
    let idempotency = number.is_multiple_of(10).then(|| Idempotency::new(format!("key-{number}"), "hash"));
    let input = raw(format!("{{\"number\": {number}, \"said\": \"{CANARY}\"}}"));
    NewJob { run_after_ms, idempotency, ..NewJob::new(id, spec, input) }
}

/// Registers tokens, a secret, a limit and an instance.
async fn register(queue: &Shards) {
    let registry = queue.registry();
    for tenant in TENANTS {
        registry.put_token(&token(tenant)).await.unwrap();
        let secret = SealedSecret {
            key_id: "token-key".into(),
            sealed_key: "c2VhbGVk".into(),
            sealed_value: "c2VhbGVk".into(),
            updated_ms: 1,
        };
        registry.put_secret(tenant, "HF_TOKEN", &secret).await.unwrap();
        let limits = Limits { max_open: Some(1_000_000), ..Limits::default() };
        queue.limit(&LimitScope::Tenant(tenant.into()), Some(&limits)).await.unwrap();
    }
    let term = registry.lead("autoscaler-1", 60_000).await.unwrap().unwrap();
    let caps = Caps { machines: 9, usd_micros_per_hour: 1_000_000, rents: 9, window_ms: 3_600_000 };
    registry.rent(term, &machine(), caps, None).await.unwrap();
}

fn token(tenant: &str) -> TokenRecord {
    TokenRecord {
        id: format!("token-of-{tenant}"),
        hash: "00".repeat(32),
        kind: TokenKind::Api,
        tenant: tenant.to_owned(),
        scopes: vec!["submit".into()],
        user: String::new(),
        name: "a token".into(),
        created_ms: 1,
        expires_ms: None,
        single_use: false,
        trust: Trust::Owned,
        region: String::new(),
        machine: None,
        spent: None,
    }
}

pub(crate) fn machine() -> MachineRecord {
    MachineRecord {
        id: "m-1".to_owned(),
        provider: "cloud".to_owned(),
        rental: Some("4711".to_owned()),
        offer: Value::Null,
        wanted: Wanted::Running,
        wanted_ms: 1,
        is_done: true,
        rented_ms: 1,
        drained_ms: None,
        then: None,
        usd_micros_per_hour: 400_000,
        agreed_usd_micros_per_hour: None,
        booting_usd_micros_per_hour: None,
        made_ms: None,
        listed_ms: None,
        released_ms: None,
        stopped_usd_micros_per_hour: 0,
        is_interruptible: false,
        missed_ms: None,
        on_disk: Vec::new(),
    }
}

/// Every job, as a reader sees it.
pub(crate) async fn jobs(queue: &Shards, ids: &[JobId]) -> BTreeMap<JobId, Job> {
    let mut jobs = BTreeMap::new();
    for ids in ids.chunks(100) {
        let asked = futures::future::join_all(ids.iter().map(|id| queue.get(*id))).await;
        jobs.extend(ids.iter().copied().zip(asked.into_iter().map(|job| job.unwrap().unwrap())));
    }
    jobs
}
