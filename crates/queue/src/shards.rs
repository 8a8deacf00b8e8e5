//! N shards as one queue. A tenant is on one shard, and a job's id contains its shard; calls about one job or one
//! tenant go to one shard, calls about all go to each. A shard that is unavailable stops only its own tenants.

mod lease;
mod spread;
mod tenant_shards;
mod verbs;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use futures::FutureExt as _;
use futures::future::{join_all, try_join_all};

use crate::connection::{Connection, Location};
use crate::error::Error;
use crate::feedback::FeedbackCounters;
use crate::gateway::{JobEventReport, LeaseRef, ModelRef};
use crate::keys::RegistryKeys;
use crate::limit_scope::LimitScope;
use crate::queue::{Queue, RelayedOutputs};
use crate::redis_checks::{Durability, RedisChecks};
use crate::redis_queue::{Health, Holding, RedisConfig, RedisQueue, WatchedAttempt};
use crate::registry::Registry;
use tenant_shards::TenantShards;

/// Maximum number of shards: a lease call queries them in turn, and parks on each.
pub const SHARDS_MAX: u8 = 64;

/// The value of `woken` if no shard has woken a waiter since the last lease call.
const NOBODY: usize = usize::MAX;

/// All shards. Clones share their connections.
#[derive(Clone)]
pub struct Shards(Arc<Parts>);

struct Parts {
    shards: Vec<RedisQueue>,
    registry: Connection,
    homes: TenantShards,
    /// The shard at which the next lease call begins, so that no shard is always first.
    turn: AtomicUsize,
    /// The shard of the last wakeup; the lease call of the waiter begins there.
    woken: AtomicUsize,
}

impl Shards {
    /// Connects to every shard.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the URL is invalid or there were more shards before, [`Error::Unavailable`] if no server
    /// answers.
    pub async fn connect(config: RedisConfig) -> Result<Self, Error> {
        if !(1..=SHARDS_MAX).contains(&config.shards) {
            return Err(Error::Unfit(format!("shards must be 1 to {SHARDS_MAX}")));
        }
        let place = Location::parse(&config.url)?;
        let registry = Connection::open(&place, RegistryKeys::new(&config.prefix).root(), config.long_calls).await?;
        let open = |shard| RedisQueue::shard(&place, &registry, config.clone(), shard);
        let shards = try_join_all((0..config.shards).map(open)).await?;
        let homes = TenantShards::open(Registry::new(registry.clone(), &config.prefix), config.shards).await?;
        let (turn, woken) = (AtomicUsize::new(rand::random_range(0..shards.len())), AtomicUsize::new(NOBODY));
        Ok(Self(Arc::new(Parts { shards, registry, homes, turn, woken })))
    }

    /// Every shard, in order.
    #[must_use]
    pub fn all(&self) -> &[RedisQueue] {
        &self.0.shards
    }

    /// The number of a tenant's shard. The first call for a tenant assigns the shard permanently.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Unfit`] if it is on a shard that this process is not configured for.
    pub async fn home(&self, tenant: &str) -> Result<u8, Error> {
        self.0.homes.of(tenant).await
    }

    /// A tenant's shard.
    ///
    /// # Errors
    /// Those of [`Shards::home`].
    pub async fn of(&self, tenant: &str) -> Result<&RedisQueue, Error> {
        Ok(&self.0.shards[usize::from(self.home(tenant).await?)])
    }

    /// Whether a replica of the previous release uses the same Redis. Such a replica does not support inputs that are
    /// stored as files.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn has_older_replicas(&self) -> Result<bool, Error> {
        match self.0.shards.first() {
            Some(shard) => shard.has_older_replicas().await,
            None => Ok(false),
        }
    }

    /// The registry: endpoints, tokens, workers.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.0.shards[0].registry()
    }

    /// Whether a version of this size may be deployed. The rules are those of a submit, because versions use the same
    /// memory.
    ///
    /// # Errors
    /// [`Error::Closed`] while no new work is accepted, [`Error::Memory`] for a tenant over its limit; then nothing is
    /// deployed.
    pub async fn admits_version(&self, tenant: &str, bytes: u64) -> Result<(), Error> {
        let (home, first) = (self.of(tenant).await?, &self.0.shards[0]);
        home.admits()?;
        first.admits()?;
        let (limits, _) = home.usage(&LimitScope::Tenant(tenant.to_owned())).await?;
        let Some(most_bytes) = limits.max_memory_bytes.or_else(|| first.share_bytes()) else { return Ok(()) };
        let held_bytes = home.memory_of(tenant).await? + self.registry().version_bytes(tenant).await?;
        if held_bytes.saturating_add(bytes) <= most_bytes {
            return Ok(());
        }
        Err(Error::Memory { tenant: tenant.to_owned(), most_bytes, held_bytes })
    }

    /// The feedback counters.
    #[must_use]
    pub fn feedback(&self) -> FeedbackCounters {
        self.0.shards[0].feedback()
    }

    /// Retention of ended jobs that set none, milliseconds.
    #[must_use]
    pub fn retention_ms(&self) -> u64 {
        self.0.shards[0].retention_ms()
    }

    /// Duration of a lease unless it is extended, milliseconds.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        self.0.shards[0].lease_ms()
    }

    /// Runs the boot checks on every primary. The weakest primary determines the durability of a 202. Every shard has
    /// been inspected afterwards.
    ///
    /// # Errors
    /// [`Error::Unfit`] with what to change.
    pub async fn check_fitness(&self, allow_ephemeral: bool) -> Result<RedisChecks, Error> {
        let mut asked: Vec<&RedisQueue> = Vec::new();
        for shard in self.all() {
            if !asked.iter().any(|other| other.primary() == shard.primary()) {
                asked.push(shard);
            }
        }
        let found = try_join_all(asked.into_iter().map(|shard| shard.check_fitness(allow_ephemeral))).await?;
        try_join_all(self.all().iter().map(RedisQueue::look)).await?;
        let rank = |fitness: &RedisChecks| match fitness.durability {
            Durability::Strict => 2,
            Durability::Standard => 1,
            Durability::Ephemeral => 0,
        };
        let replicas_to_wait = found.iter().map(|fitness| fitness.replicas_to_wait).min().unwrap_or(0);
        let durability = found.iter().min_by_key(|fitness| rank(fitness)).map(|fitness| fitness.durability);
        let mut notes: Vec<String> = found.into_iter().flat_map(|fitness| fitness.notes).collect();
        notes.dedup();
        Ok(RedisChecks { durability: durability.unwrap_or(Durability::Ephemeral), replicas_to_wait, notes })
    }

    /// Checks whether the registry and at least one shard answer. The jobs of a tenant need only the tenant's own
    /// shard.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn ping(&self) -> Result<(), Error> {
        let _: String =
            redis::cmd("PING").query_async(&mut self.0.registry.redis()).await.map_err(Error::redis("ping"))?;
        let answers = join_all(self.all().iter().map(RedisQueue::ping)).await;
        answers.into_iter().reduce(Result::or).unwrap_or(Ok(()))
    }

    /// The health of each shard at the last inspection, in order.
    #[must_use]
    pub fn health(&self) -> Vec<Health> {
        self.all().iter().map(RedisQueue::health).collect()
    }

    /// Like [`RedisQueue::holdings`].
    ///
    /// # Errors
    /// Those of [`RedisQueue::holdings`].
    pub async fn holdings(&self, leases: &[LeaseRef]) -> Result<Vec<Option<Holding>>, Error> {
        self.each(
            leases,
            |lease| lease.job_id,
            None,
            |shard, leases| Box::pin(async move { shard.holdings(&leases).await }),
        )
        .await
    }

    /// Like [`RedisQueue::watched_attempt`].
    ///
    /// # Errors
    /// Those of [`RedisQueue::watched_attempt`].
    pub async fn watched_attempt(&self, lease: &LeaseRef) -> Result<Option<WatchedAttempt>, Error> {
        match self.holds(lease.job_id) {
            Some(shard) => shard.watched_attempt(lease).await,
            None => Ok(None),
        }
    }

    /// Like [`RedisQueue::relay`], on the shard of the job.
    ///
    /// # Errors
    /// Those of [`RedisQueue::relay`].
    pub async fn relay(&self, replica: &str, outputs: &RelayedOutputs) -> Result<(), Error> {
        match self.holds(outputs.job_id) {
            Some(shard) => shard.relay(replica, outputs).await,
            None => Ok(()),
        }
    }

    async fn store_events(&self, events: &[JobEventReport], is_relayed: bool) -> Result<(), Error> {
        if let Some(only) = self.only() {
            return only.store_events(events, is_relayed).await;
        }
        let ask = |shard, part: Vec<JobEventReport>| {
            async move { RedisQueue::store_events(shard, &part, is_relayed).await.map(|()| Vec::new()) }.boxed()
        };
        self.each(events, |event| event.job_id, (), ask).await.map(drop)
    }

    /// Like [`RedisQueue::runs`]: a tenant's jobs are on its own shard.
    ///
    /// # Errors
    /// Those of [`RedisQueue::runs`].
    pub async fn runs(&self, worker_id: &str, model: &ModelRef) -> Result<bool, Error> {
        self.of(&model.tenant).await?.runs(worker_id, model).await
    }

    /// Like [`RedisQueue::evict`], on every shard.
    ///
    /// # Errors
    /// Those of [`RedisQueue::evict`].
    pub async fn evict(&self, worker_id: &str) -> Result<u32, Error> {
        let evicted = try_join_all(self.all().iter().map(|shard| shard.evict(worker_id))).await?;
        Ok(evicted.into_iter().sum())
    }
}
