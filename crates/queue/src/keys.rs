//! Every Redis key, its type and its lifetime. No other Rust module spells a key; the `keys` files of `lua/lib` derive
//! the same ones. Old spellings (`:shelf:`, `:tags:`, `:f:`, `gates`) stay, for replicas of the previous release.
//!
//! | key below `{prefix:shard}` | type | content | lifetime |
//! |---|---|---|---|
//! | `:j:<id>` | HASH | the job record, the source of truth | until the job is in history |
//! | `:e:<id>` | STREAM | a job's messages: progress, log; output if a webhook or a replica of the previous release reads it | same as the record |
//! | `:o:<id>` | STREAM | outputs of a job, `<attempt>-<end>`; in memory only, neither in the append-only file nor on replicas | an hour after the last, 1,000 entries, 1 MiB |
//! | `:d:<id>` | LIST | jobs that depend on this one, `<id> <success or completion>` | until it has ended |
//! | `:q:<lane>` `:f:<lane>` | STREAM | ready jobs; requeued ones, which go first (reaped, released, retried) | while not empty |
//! | `:lanes:<priority>:<class>:<tenant>` | ZSET | a tenant's lanes with ready jobs, by sequence | while not empty |
//! | `:shelf:<priority>:<class>` | ZSET | a class queue: its active tenants by virtual start | while not empty |
//! | `:fair:<priority>:<class>` | HASH | the class queue's virtual time `:now`, and virtual starts of tenants that became inactive ahead of it | while the class queue is not empty |
//! | `:tags:<priority>` | ZSET | classes with ready jobs, by virtual start | while not empty |
//! | `:passed` | HASH | starts since a lower priority had one | while lower work waits |
//! | `:cost` | HASH | expected run of `<tenant>:<endpoint>`, ms | until the endpoint is deleted |
//! | `:flow` | HASH | jobs that were submitted, started, started late and run, by lane, or by endpoint and kind of GPU (flow.rs); only grows | unlimited |
//! | `:spent:<day>` | HASH | costs and tokens of attempts that ended on a day (UTC, since 1970), by tenant, endpoint, batch and instance (costs/spent.rs) | 401 days |
//! | `:spent:<day>:gates` | HASH | costs of attempts that ended on a day, by limit scope, micro-dollars | 3 days |
//! | `:timings:<tenant>:<endpoint>:<hour>` | HASH | durations of the parts of attempts that ended in an hour (since 1970), by version (timings.rs) | 49 hours |
//! | `:unmet` | STRING | the autoscaler was notified that no worker waits for the ready jobs | half a second |
//! | `:turn` | STRING | counter that orders lanes and waiters | unlimited |
//! | `:ready` | HASH | number of queued jobs of a lane | while not empty |
//! | `:open` `:running` | HASH | number of open jobs and of running jobs of a limit scope | while not empty |
//! | `:bytes` | HASH | bytes that the records of a tenant (`t:<tenant>`) take, including ended ones: the sum of their `size` | while not empty |
//! | `:beside` | HASH | bytes that a tenant's schedules and pending webhook deliveries take: the sum of their `size` | while not empty |
//! | `:streamed:<hour>` | HASH | bytes of outputs that a tenant's jobs have stored in an hour (since 1970); in memory only, like the outputs | two hours |
//! | `:limits` `:rate` | HASH | limits of a scope, until when it is paused (`p:<scope>`), and whether its tenant is disabled (`d:<scope>`); theoretical arrival time of its next start | unlimited |
//! | `:budgets` `:stood` | HASH | daily budget of a scope; its state at the last check (budgets.rs) | unlimited |
//! | `:held:<scope>` | ZSET | tenants (`<priority>:<class>`) or lanes that a limit scope blocks | until it has room |
//! | `:holds` | ZSET | scopes that time unblocks, and concurrency keys to check again, by due time | until then |
//! | `:waiting:<scope>` | ZSET | the queue of a concurrency key: its queued jobs, `<id> <lane>` by time of submit | while not empty |
//! | `:leases` | ZSET | running jobs by the expiry of their lease, unix ms | while not empty |
//! | `:runs:<worker>` | HASH | the jobs that a worker runs, and the part of a slot that each takes, in millionths | while not empty, a week after its last lease |
//! | `:scheduled` | ZSET | scheduled jobs by due time, unix ms | while not empty |
//! | `:deadlines` | ZSET | open jobs with a deadline or a queue timeout of their own by the time they expire, unix ms | while not empty |
//! | `:settle` | ZSET | `ended <id>` and `ready <id>` to settle, by time | while not empty |
//! | `:ended` | ZSET | ended jobs by the time they may move to history | until then |
//! | `:dead:<tenant>` | ZSET | failed and expired jobs that were not retried, by end | until history has them |
//! | `:hold:<class>` | STRING | the worker that reserves room for a job of this class | `HOLD_MS` |
//! | `:head:<priority>:<class>` | STRING | since when, and which job is the next one of a class that a worker has no room for | `HOLD_AFTER_MS` + `HOLD_MS` |
//! | `:warm:<class>:<tenant>:<endpoint>` | ZSET | parked lease polls of workers that have this endpoint loaded and take more jobs, by rank | a minute, or while one waits |
//! | `:parked:<requirement set>` | ZSET | parked lease polls `<replica>/<waiter>/<set>.<set>...` of workers that meet this requirement set, by GiB and rank | while not empty |
//! | `:quarantine` | ZSET | jobs whose record cannot be read, by the time this was found, unix ms (quarantine.rs) | until an operator decides |
//! | `:quarantine_why` | HASH | description of the unreadable part of each | same as `:quarantine` |
//! | `:faults` | HASH | number of failures of each part of a script that belongs to no single job, by its name | unlimited |
//! | `:recount` | HASH | the position of the recovery sweep, and the open jobs counted so far by scope and lane (lua/lib/recount.lua) | during the sweep |
//! | `:timeouts_since` | STRING | time of the first recovery sweep, unix ms: the default queue timeout counts from then at the earliest (recover.lua) | unlimited |
//! | `:drift` | HASH | excess of `:open`, `:running`, `:ready` and `:bytes` that the last sweep found | 20 minutes |
//! | `:index:<tenant>` | STREAM | ids in order of submit, for lists only | an entry as long as its record |
//! | `:i:<tenant>:<hash>` | STRING | `<request hash> <id> ...` of an idempotency key: the jobs of one submit | 24 h |
//! | `:i:<tenant>:s:<hash>` | STRING | `<schedule> <request hash>` of a schedule's idempotency key; the previous release stores it in `:i:<tenant>:<hash>` | 24 h |
//! | `:b:<batch>` | HASH | a batch: its spec, counts and progress (batches.rs) | 30 days after its end |
//! | `:b:<batch>:ended` | LIST | its ended jobs that are not collected yet | while not empty |
//! | `:b:<batch>:parts` | LIST | names of the objects that hold the collected jobs | an hour after its end |
//! | `:batches` | ZSET | batches that have not ended, by creation | while not empty |
//! | `:batches:<tenant>` | ZSET | a tenant's batches, by name | same as the batches, the last 10,000 |
//! | `:batches_tidy` | ZSET | ended batches by the time of their next cleanup | same as the batches |
//! | `:i:<tenant>:b:<hash>` | STRING | `<batch> <request hash>` of a batch's idempotency key | 24 h; 10 min for a key that the API made (openai/batch_routes.rs) |
//! | `:schedule:<id>` | HASH | a schedule | until deleted |
//! | `:schedules` | ZSET | schedules that are not paused, by the time to check them, unix ms | while not empty |
//! | `:schedules:<tenant>` | ZSET | a tenant's schedules, all with score 0: ids sort by creation | while not empty |
//! | `:b:<schedule>` | HASH | `fed`: counts a schedule's pauses and resumes; `submit` accepts a tick only while it is unchanged | until deleted |
//! | `:hooks` | ZSET | webhook deliveries by the time of their next attempt, unix ms | while not empty |
//! | `:w:<message>` | HASH | a webhook delivery: event, receiver, attempts, body | 7 days after its end |
//! | `:wl:<tenant>` | ZSET | the tenant's deliveries by their time, unix ms, for lists only | the newest 10,000 |
//! | `:tracing` | STRING | a replica exports traces | a minute after the last claim |
//! | `:traces` | ZSET | ended jobs whose trace is not exported yet, by the time of the next attempt, unix ms | while not empty, 10,000 |
//! | `:tenants` | ZSET | tenants with records, all with score 0, for the recovery sweep | same as their records |
//! | `:mark` | STRING | written before each WAIT (mark.lua) | unlimited, if writes wait for replicas |
//! | `:role:<role>` | STRING | the replica that performs a sweep at present | seconds |
//! | `:signal:<replica>` | channel | wake-ups, job changes and relayed outputs for one API replica | |
//! | `:signal:all` | channel | work that any replica can do | |
//! | `:signal:autoscaler` | channel | jobs are ready that no worker waits for | |
//!
//! A limit scope is `t:<tenant>`, `e:<tenant>:<endpoint>` or `k:<tenant>:<concurrency key>`. A lane is named
//! `<priority digit>:<class>:<tenant>:<endpoint>`. The registry's keys are in `keys/registry.rs`.

mod lane;
mod registry;

use sha2::{Digest, Sha256};

use crate::id::JobId;
pub use lane::lane;
pub(crate) use lane::parse_lane;
pub(crate) use registry::RegistryKeys;

/// Lifetime of an idempotency key (P2).
pub(crate) const IDEMPOTENCY_TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// The keys of one shard.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    root: String,
}

impl Keys {
    /// The braces make Redis Cluster place the whole shard in one slot.
    pub(crate) fn new(prefix: &str, shard: u8) -> Self {
        Self { root: format!("{{{prefix}:{shard}}}") }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    pub(crate) fn job(&self, id: JobId) -> String {
        format!("{}:j:{id}", self.root)
    }

    pub(crate) fn events(&self, id: JobId) -> String {
        format!("{}:e:{id}", self.root)
    }

    pub(crate) fn outputs(&self, id: JobId) -> String {
        format!("{}:o:{id}", self.root)
    }

    pub(crate) fn tenants(&self) -> String {
        format!("{}:tenants", self.root)
    }

    pub(crate) fn index(&self, tenant: &str) -> String {
        format!("{}:index:{tenant}", self.root)
    }

    pub(crate) fn quarantine(&self) -> String {
        format!("{}:quarantine", self.root)
    }

    pub(crate) fn quarantine_why(&self) -> String {
        format!("{}:quarantine_why", self.root)
    }

    pub(crate) fn faults(&self) -> String {
        format!("{}:faults", self.root)
    }

    pub(crate) fn ended(&self) -> String {
        format!("{}:ended", self.root)
    }

    pub(crate) fn parked(&self, demands: u32) -> String {
        format!("{}:parked:{demands}", self.root)
    }

    pub(crate) fn signal(&self, replica: &str) -> String {
        format!("{}:signal:{replica}", self.root)
    }

    pub(crate) fn schedule(&self, id: &str) -> String {
        format!("{}:schedule:{id}", self.root)
    }

    pub(crate) fn schedules_of(&self, tenant: &str) -> String {
        format!("{}:schedules:{tenant}", self.root)
    }

    pub(crate) fn ready(&self) -> String {
        format!("{}:ready", self.root)
    }

    pub(crate) fn flow(&self) -> String {
        format!("{}:flow", self.root)
    }

    /// The spending of a day.
    pub(crate) fn spent(&self, day: u32) -> String {
        format!("{}:spent:{day}", self.root)
    }

    /// The spending of a day, by limit scope.
    pub(crate) fn spent_in_scopes(&self, day: u32) -> String {
        format!("{}:spent:{day}:gates", self.root)
    }

    /// Durations of the parts of an endpoint's attempts that ended in an hour.
    pub(crate) fn timings(&self, tenant: &str, endpoint: &str, hour: u64) -> String {
        format!("{}:timings:{tenant}:{endpoint}:{hour}", self.root)
    }

    pub(crate) fn budgets(&self) -> String {
        format!("{}:budgets", self.root)
    }

    /// The recorded states of budgets, by limit scope.
    pub(crate) fn stood(&self) -> String {
        format!("{}:stood", self.root)
    }

    pub(crate) fn costs(&self) -> String {
        format!("{}:cost", self.root)
    }

    pub(crate) fn leases(&self) -> String {
        format!("{}:leases", self.root)
    }

    /// The jobs that a worker runs, and the part of a slot that each takes.
    pub(crate) fn runs(&self, worker_id: &str) -> String {
        format!("{}:runs:{worker_id}", self.root)
    }

    /// A lane's streams: the requeued jobs, which are served first, and the others.
    pub(crate) fn streams(&self, lane: &str) -> [String; 2] {
        [format!("{}:f:{lane}", self.root), format!("{}:q:{lane}", self.root)]
    }

    pub(crate) fn dead(&self, tenant: &str) -> String {
        format!("{}:dead:{tenant}", self.root)
    }

    pub(crate) fn limits(&self) -> String {
        format!("{}:limits", self.root)
    }

    pub(crate) fn rate(&self) -> String {
        format!("{}:rate", self.root)
    }

    pub(crate) fn open(&self) -> String {
        format!("{}:open", self.root)
    }

    pub(crate) fn bytes(&self) -> String {
        format!("{}:bytes", self.root)
    }

    pub(crate) fn beside(&self) -> String {
        format!("{}:beside", self.root)
    }

    pub(crate) fn running(&self) -> String {
        format!("{}:running", self.root)
    }

    /// Expected run times.
    pub(crate) fn cost(&self) -> String {
        format!("{}:cost", self.root)
    }

    pub(crate) fn hooks(&self) -> String {
        format!("{}:hooks", self.root)
    }

    pub(crate) fn traces(&self) -> String {
        format!("{}:traces", self.root)
    }

    pub(crate) fn delivery(&self, message: &str) -> String {
        format!("{}:w:{message}", self.root)
    }

    pub(crate) fn deliveries(&self, tenant: &str) -> String {
        format!("{}:wl:{tenant}", self.root)
    }

    pub(crate) fn batch(&self, id: &str) -> String {
        format!("{}:b:{id}", self.root)
    }

    pub(crate) fn batch_ended(&self, id: &str) -> String {
        format!("{}:b:{id}:ended", self.root)
    }

    pub(crate) fn batch_parts(&self, id: &str) -> String {
        format!("{}:b:{id}:parts", self.root)
    }

    pub(crate) fn batches(&self) -> String {
        format!("{}:batches", self.root)
    }

    pub(crate) fn batches_of(&self, tenant: &str) -> String {
        format!("{}:batches:{tenant}", self.root)
    }

    pub(crate) fn batches_tidy(&self) -> String {
        format!("{}:batches_tidy", self.root)
    }

    pub(crate) fn probe(&self, nonce: &str) -> String {
        format!("{}:probe:{nonce}", self.root)
    }
}

/// An idempotency key as part of a Redis key: hashed, so that its length and characters are bounded.
pub(crate) fn idempotency(key: &str) -> String {
    hex::encode(&Sha256::digest(key.as_bytes())[..16])
}
