//! The registry: endpoints, tokens, tenants and workers. It uses Redis only; every key comes from `keys.rs`.

mod audit;
mod autoscaler;
mod bills;
mod deletions;
mod endpoints;
mod evictions;
mod machines;
mod requirements;
mod secrets;
mod tenants;
mod tokens;

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};

use crate::clock::now_ms;
use crate::connection::Connection;
use crate::error::Error;
use crate::gateway::{ForgottenNeeds, Gpu, WorkerStatus};
use crate::keys::RegistryKeys;
use crate::readings::{self, WorkerReading};
use crate::requirements::{Offer, SandboxLevel, Trust};
use crate::scripts;

pub use self::audit::{Actor, AuditPage, Change, ChangeEnd, KeptChange, Which};
pub use self::autoscaler::{AutoscalerStatus, DECISIONS_MAX, Decision, Eta, Notice};
pub use self::deletions::{Claim, Deletion};
use self::endpoints::parsed as parsed_traffic;
pub use self::endpoints::{Deployed, ENDPOINTS_MAX, TrafficSet, Undeployed, VERSIONS_MAX};
pub use self::evictions::Eviction;
pub use self::machines::{Caps, Granted, MachineRecord, MachineState, Term, Wanted};
pub use self::requirements::{REQUIREMENT_SETS_MAX, REQUIREMENT_SETS_OF_TENANT_MAX, RequirementNumber, RequirementUse};
pub use self::secrets::{SECRETS_MAX, SealedSecret, SecretPut};
pub use self::tenants::{Quotas, TenantRecord};
pub use self::tokens::{SpentToken, TokenKind, TokenRecord};

/// Maximum number of versions, endpoints, tokens or workers in one list.
pub const LIST_MAX: usize = 10_000;

/// Time for which heartbeats ask workers to reset an endpoint's learned memory, milliseconds.
const FORGOTTEN_FOR_MS: u64 = 600_000;

/// Number of learned memory needs that are stored for one endpoint, over all versions and GPU models.
const NEEDS_MAX: usize = 1_000;

fn owned() -> Trust {
    Trust::Owned
}

/// A worker that has joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Id of the worker for the life of its process.
    pub worker_id: String,
    /// Name of the worker, set by its operator.
    pub name: String,
    /// Release of the worker.
    pub release: String,
    /// Number of attempts that it runs at once.
    pub slots: u32,
    /// GPUs of the worker.
    pub gpus: Vec<Gpu>,
    /// The GPU driver's version.
    #[serde(default)]
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports.
    #[serde(default)]
    pub cuda: Option<String>,
    /// Price of an hour of the whole host; 0 if unknown.
    #[serde(default)]
    pub price_usd_micros_per_hour: u64,
    /// The sandbox level that it reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLevel>,
    /// Owner of the host, from the join token.
    #[serde(default = "owned")]
    pub trust: Trust,
    /// Region of the host, from the join token.
    #[serde(default)]
    pub region: String,
    /// Maximum number of its slots for which it is leased jobs; `None` in a record of the previous release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_slots: Option<u32>,
    /// The public part of the token that it joined with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_with: Option<String>,
    /// Time of the join, Unix milliseconds.
    pub joined_ms: u64,
    /// Time of the last report, Unix milliseconds.
    pub seen_ms: u64,
    /// Last reported status.
    pub status: WorkerStatus,
}

/// The current generation of a tenant's webhook secret. The secrets themselves are derived from it and stored nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WebhookGeneration {
    /// Number of rotations of the secret: 0, 1, ...
    pub generation: u32,
    /// Time of the last rotation, Unix milliseconds.
    pub rotated_ms: Option<u64>,
}

impl WorkerRecord {
    /// The properties that requirements other than memory apply to.
    #[must_use]
    pub fn offer(&self) -> Offer<'_> {
        Offer {
            gpus: &self.gpus,
            cuda: self.cuda.as_deref().and_then(|cuda| cuda.parse().ok()),
            region: &self.region,
            trust: self.trust,
            // A worker that reports no level counts as not confined.
            sandbox: self.sandbox.unwrap_or_default(),
        }
    }

    /// The cost of `occupied_ms` of one slot: an equal part of the host's price. `None` if the price is unknown.
    /// Example: an hour on one of 4 slots at 2 dollars costs 500,000.
    #[must_use]
    pub fn cost_usd_micros(&self, occupied_ms: u64) -> Option<u64> {
        const HOUR_MS: u128 = 3_600_000;
        if self.price_usd_micros_per_hour == 0 {
            return None;
        }
        let cost = u128::from(self.price_usd_micros_per_hour) * u128::from(occupied_ms)
            / (HOUR_MS * u128::from(self.slots.max(1)));
        Some(u64::try_from(cost).unwrap_or(u64::MAX))
    }
}

/// The registry.
#[derive(Clone)]
pub struct Registry {
    connection: Connection,
    keys: RegistryKeys,
}

impl Registry {
    pub(crate) fn new(connection: Connection, prefix: &str) -> Self {
        Self { connection, keys: RegistryKeys::new(prefix) }
    }

    /// The connection and keys, for modules that store records next to these.
    pub(crate) fn parts(&self) -> (Connection, RegistryKeys) {
        (self.connection.clone(), self.keys.clone())
    }

    /// Stores the GPU memory that a version was observed to need on a GPU model, MiB. The largest observed value is
    /// kept. Nothing is stored for a deleted version.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn learn(&self, tenant: &str, name: &str, version: u32, gpu: &str, need_mib: u64) -> Result<(), Error> {
        let mut call = scripts::LEARN.call(&[&self.keys.needs(tenant, name), &self.keys.versions(tenant, name)]);
        call.arg(format!("{version} {gpu}")).arg(need_mib).arg(NEEDS_MAX);
        let _: Vec<String> = self.connection.eval(&scripts::LEARN, &call).await?;
        Ok(())
    }

    /// The learned memory needs of a version, MiB by GPU model.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn needs(&self, tenant: &str, name: &str, version: u32) -> Result<BTreeMap<String, u64>, Error> {
        let all = self.all_needs(tenant, name).await?;
        let of_version = |((number, gpu), mib)| (number == version).then_some((gpu, mib));
        Ok(all.into_iter().filter_map(of_version).collect())
    }

    /// The learned memory needs of all versions of an endpoint, MiB by version and GPU model.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn all_needs(&self, tenant: &str, name: &str) -> Result<BTreeMap<(u32, String), u64>, Error> {
        let all: HashMap<String, u64> = self
            .connection
            .redis()
            .hgetall(self.keys.needs(tenant, name))
            .await
            .map_err(Error::redis("read the GPU memory that a version needs"))?;
        let need = |(field, mib): (String, u64)| {
            let (version, gpu) = field.split_once(' ')?;
            Some(((version.parse().ok()?, gpu.to_owned()), mib))
        };
        Ok(all.into_iter().filter_map(need).collect())
    }

    /// Deletes the learned memory needs of all versions of an endpoint, and returns their number.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn forget_needs(&self, tenant: &str, name: &str) -> Result<u64, Error> {
        let needs = self.keys.needs(tenant, name);
        let (known,): (u64,) = redis::pipe()
            .atomic()
            .hlen(&needs)
            .del(&needs)
            .ignore()
            .hset(self.keys.forgotten(), format!("{tenant}:{name}"), now_ms())
            .ignore()
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("reset an endpoint's learned GPU memory"))?;
        Ok(known)
    }

    /// The endpoints whose learned memory was reset recently.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn forgotten(&self) -> Result<Vec<ForgottenNeeds>, Error> {
        let (step, mut redis) = ("read which learned GPU memory was reset", self.connection.redis());
        let all: HashMap<String, u64> = redis.hgetall(self.keys.forgotten()).await.map_err(Error::redis(step))?;
        let now_ms = now_ms();
        let (lately, over): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, at_ms)| now_ms.saturating_sub(*at_ms) < FORGOTTEN_FOR_MS);
        if !over.is_empty() {
            let fields: Vec<String> = over.into_iter().map(|(field, _)| field).collect();
            let _: u64 = redis.hdel(self.keys.forgotten(), fields).await.map_err(Error::redis(step))?;
        }
        let forgotten = |(field, at_ms): (String, u64)| {
            let (tenant, endpoint) = field.split_once(':')?;
            Some(ForgottenNeeds { tenant: tenant.to_owned(), endpoint: endpoint.to_owned(), at_ms })
        };
        Ok(lately.into_iter().filter_map(forgotten).collect())
    }

    /// Stores the record of a worker for `ttl_ms`.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; the next heartbeat repeats it.
    pub async fn put_worker(&self, worker: &WorkerRecord, ttl_ms: u64) -> Result<(), Error> {
        let mut pipe = redis::pipe();
        pipe.atomic()
            .pset_ex(self.keys.worker(&worker.worker_id), to_json("store a worker", worker)?, ttl_ms)
            .ignore()
            .sadd(self.keys.workers(), &worker.worker_id)
            .ignore();
        readings::note(&mut pipe, &self.keys, worker)?;
        pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("store a worker"))
    }

    /// The readings of a worker in the last hour, oldest first; empty for an unknown worker.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn readings(&self, worker_id: &str, now_ms: u64) -> Result<Vec<WorkerReading>, Error> {
        readings::read(&self.connection.long(), &self.keys, worker_id, now_ms).await
    }

    /// A worker with a recent heartbeat. An evicted worker is left out, because a replica that had not read the
    /// eviction may have stored its record since.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn worker(&self, id: &str) -> Result<Option<WorkerRecord>, Error> {
        let (text, is_evicted): (Option<String>, bool) = redis::pipe()
            .get(self.keys.worker(id))
            .hexists(self.keys.evicted(), id)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read a worker"))?;
        text.filter(|_| !is_evicted).map(|text| from_json("read a worker", &text)).transpose()
    }

    /// The workers with a recent heartbeat, by name, without evicted ones.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn workers(&self) -> Result<Vec<WorkerRecord>, Error> {
        let mut workers: Vec<WorkerRecord> = self.members(&self.keys.workers(), |id| self.keys.worker(id)).await?;
        self.without_evicted(&mut workers).await?;
        workers.sort_by(|a, b| (&a.name, &a.worker_id).cmp(&(&b.name, &b.worker_id)));
        Ok(workers)
    }

    /// Deletes the records of workers whose instance is gone. A worker that still runs joins again.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry. Each record also expires by itself without heartbeats.
    pub async fn drop_workers(&self, ids: &[&str]) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = ids.iter().map(|id| self.keys.worker(id)).collect();
        let mut pipe = redis::pipe();
        pipe.atomic().del(keys).ignore().srem(self.keys.workers(), ids).ignore();
        pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("remove workers"))
    }

    /// The generation of a tenant's webhook secret.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn webhook_generation(&self, tenant: &str) -> Result<WebhookGeneration, Error> {
        let (generation, rotated_ms): (Option<u32>, Option<u64>) = self
            .connection
            .redis()
            .hmget(self.keys.webhook(tenant), &["generation", "rotated"])
            .await
            .map_err(Error::redis("read the generation of a webhook secret"))?;
        Ok(WebhookGeneration { generation: generation.unwrap_or(0), rotated_ms })
    }

    /// Rotates a tenant's webhook secret to the next generation.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown. Read the generation before retrying, because each call creates a
    /// new one.
    pub async fn rotate_webhook(&self, tenant: &str) -> Result<WebhookGeneration, Error> {
        let (key, now_ms) = (self.keys.webhook(tenant), now_ms());
        let (generation,): (u32,) = redis::pipe()
            .atomic()
            .hincr(&key, "generation", 1)
            .hset(&key, "rotated", now_ms)
            .ignore()
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("rotate a webhook secret"))?;
        Ok(WebhookGeneration { generation, rotated_ms: Some(now_ms) })
    }

    /// The shard of a tenant: `drawn`, unless it already has one.
    pub(crate) async fn home(&self, tenant: &str, drawn: u8) -> Result<u8, Error> {
        let (mut redis, homes, step) = (self.connection.redis(), self.keys.homes(), "find a tenant's shard");
        // Read first: even if Redis is full, tenants that have a shard must be served.
        let home: Option<u8> = redis.hget(&homes, tenant).await.map_err(Error::redis(step))?;
        if let Some(home) = home {
            return Ok(home);
        }
        let _: bool = redis.hset_nx(&homes, tenant, drawn).await.map_err(Error::redis(step))?;
        redis.hget(&homes, tenant).await.map_err(Error::redis(step))
    }

    /// The backup whose restore into this queue has begun and not ended.
    pub(crate) async fn restoring(&self) -> Result<Option<String>, Error> {
        let step = "check whether a backup is being restored";
        self.connection.redis().get(self.keys.restoring()).await.map_err(Error::redis(step))
    }

    /// Stores the number of shards, and returns the highest number so far.
    pub(crate) async fn raise_shards(&self, shards: u8) -> Result<u8, Error> {
        let (mut redis, key, step) = (self.connection.redis(), self.keys.shards(), "store the number of shards");
        let before: Option<u8> = redis.get(&key).await.map_err(Error::redis(step))?;
        let before = before.unwrap_or(0);
        if before < shards {
            let _: () = redis.set(&key, shards).await.map_err(Error::redis(step))?;
        }
        Ok(before)
    }

    /// The records of a set's members; members whose record has expired are dropped from the set.
    async fn members<T: for<'de> Deserialize<'de>>(
        &self,
        set: &str,
        key: impl Fn(&str) -> String,
    ) -> Result<Vec<T>, Error> {
        let step = "list a set of records";
        let mut redis = self.connection.long();
        let ids: Vec<String> = redis.smembers(set).await.map_err(Error::redis(step))?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<String> = ids.iter().take(LIST_MAX).map(|id| key(id)).collect();
        let texts: Vec<Option<String>> = redis.mget(&keys).await.map_err(Error::redis(step))?;
        let gone: Vec<&String> = ids.iter().zip(&texts).filter(|(_, text)| text.is_none()).map(|(id, _)| id).collect();
        if !gone.is_empty() {
            let _: u32 = redis.srem(set, gone).await.map_err(Error::redis(step))?;
        }
        Ok(texts.iter().flatten().filter_map(|text| readable(step, text)).collect())
    }
}

pub(crate) fn to_json<T: Serialize>(step: &str, value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Corrupt { key: step.to_owned(), why: error.to_string() })
}

/// A record of a list; `None`, and an error in the log, if this release cannot read it. A corrupt record must not hide
/// the others.
fn readable<'a, T: Deserialize<'a>>(step: &str, text: &'a str) -> Option<T> {
    from_json(step, text)
        .inspect_err(|error| {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "a record cannot be read; leaving it out of a list"
            )
        })
        .ok()
}

fn from_json<'a, T: Deserialize<'a>>(step: &str, text: &'a str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Corrupt { key: step.to_owned(), why: error.to_string() })
}
