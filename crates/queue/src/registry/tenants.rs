//! Tenants in the registry: whether they are disabled, and the limits that the API itself enforces. The queue has the
//! limits of jobs ([`crate::queue::Limits`]). A tenant without a record has no limits, like those of earlier releases.

use std::collections::{BTreeSet, HashMap};

use redis::AsyncCommands;

use super::{LIST_MAX, Registry};
use crate::clock::now_ms;
use crate::error::Error;

/// Retention of announced uploads, seconds.
const ANNOUNCED_FOR_S: i64 = 3600;

/// The limits of a tenant that the API enforces. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quotas {
    /// Maximum number of requests per minute.
    pub requests_per_minute: Option<u32>,
    /// Maximum size of uploaded files, packages and weights, bytes.
    pub max_storage_bytes: Option<u64>,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantRecord {
    /// Name of the tenant.
    pub name: String,
    /// Time of the creation by an operator, Unix milliseconds; `None` if the tenant was created with its first token.
    pub created_ms: Option<u64>,
    /// Time since which the tenant is disabled, Unix milliseconds; `None` if it is enabled.
    pub disabled_ms: Option<u64>,
    /// Limits of the tenant that the API enforces.
    pub quotas: Quotas,
}

impl TenantRecord {
    fn new(name: &str, fields: &HashMap<String, u64>) -> Self {
        let get = |field: &str| fields.get(field).copied();
        Self {
            name: name.to_owned(),
            created_ms: get("created"),
            disabled_ms: get("disabled"),
            quotas: Quotas {
                requests_per_minute: get("requests_per_minute").and_then(|rate| u32::try_from(rate).ok()),
                max_storage_bytes: get("max_storage_bytes"),
            },
        }
    }
}

impl Registry {
    /// Creates a tenant. `false` if it exists.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; if a retry returns `false`, the first call may have succeeded.
    pub async fn create_tenant(&self, name: &str) -> Result<bool, Error> {
        let (created, _): (bool, u32) = redis::pipe()
            .atomic()
            .hset_nx(self.keys.tenant(name), "created", now_ms())
            .sadd(self.keys.tenants(), name)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("create a tenant"))?;
        Ok(created)
    }

    /// A tenant, including one without a record.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn tenant(&self, name: &str) -> Result<TenantRecord, Error> {
        let fields: HashMap<String, u64> =
            self.connection.redis().hgetall(self.keys.tenant(name)).await.map_err(Error::redis("read a tenant"))?;
        Ok(TenantRecord::new(name, &fields))
    }

    /// The tenants by name, at most [`LIST_MAX`]: those that an operator created, and those that have ever had a job.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn tenants(&self) -> Result<Vec<TenantRecord>, Error> {
        let (mut redis, step) = (self.connection.redis(), "list tenants");
        let names: Vec<String> = self.tenant_names().await?.into_iter().take(LIST_MAX).collect();
        let mut pipe = redis::pipe();
        for name in &names {
            pipe.hgetall(self.keys.tenant(name));
        }
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let all: Vec<HashMap<String, u64>> = pipe.query_async(&mut redis).await.map_err(Error::redis(step))?;
        Ok(names.iter().zip(&all).map(|(name, fields)| TenantRecord::new(name, fields)).collect())
    }

    /// The names of all tenants that an operator created or that have ever had a job.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn tenant_names(&self) -> Result<BTreeSet<String>, Error> {
        let (mut names, homes): (BTreeSet<String>, BTreeSet<String>) = redis::pipe()
            .smembers(self.keys.tenants())
            .hkeys(self.keys.homes())
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("list tenants"))?;
        names.extend(homes);
        Ok(names)
    }

    /// Disables a tenant, or enables it again. Replicas refuse its tokens once they have read the change.
    /// [`crate::Queue::disable`] stops its jobs.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn disable_tenant(&self, name: &str, disabled: bool) -> Result<(), Error> {
        let key = self.keys.tenant(name);
        let mut pipe = redis::pipe();
        pipe.atomic();
        match disabled {
            true => pipe.hset_nx(key, "disabled", now_ms()).ignore().sadd(self.keys.tenants(), name).ignore(),
            false => pipe.hdel(key, "disabled").ignore(),
        };
        pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("disable or enable a tenant"))
    }

    /// Sets all limits of a tenant that the API enforces at once.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn set_quotas(&self, tenant: &str, quotas: Quotas) -> Result<(), Error> {
        let key = self.keys.tenant(tenant);
        let mut pipe = redis::pipe();
        pipe.atomic();
        let fields = [
            ("requests_per_minute", quotas.requests_per_minute.map(u64::from)),
            ("max_storage_bytes", quotas.max_storage_bytes),
        ];
        for (field, value) in fields {
            match value {
                Some(value) => pipe.hset(&key, field, value).ignore(),
                None => pipe.hdel(&key, field).ignore(),
            };
        }
        pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("set a tenant's quotas"))
    }

    /// Adds to the bytes for which a tenant received upload URLs in a minute (since 1970); a negative value subtracts.
    /// Returns the sum from minute `since` on. Earlier minutes are deleted.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; the amount expires with its hour.
    pub async fn announce(&self, tenant: &str, (minute, bytes): (u64, i64), since: u64) -> Result<u64, Error> {
        let (key, step, mut redis) =
            (self.keys.announced(tenant), "reserve storage for an upload", self.connection.redis());
        let (by_minute,): (HashMap<u64, i64>,) = redis::pipe()
            .atomic()
            .hincr(&key, minute, bytes)
            .ignore()
            .expire(&key, ANNOUNCED_FOR_S)
            .ignore()
            .hgetall(&key)
            .query_async(&mut redis)
            .await
            .map_err(Error::redis(step))?;
        let old: Vec<u64> = by_minute.keys().copied().filter(|minute| minute + 60 < since).collect();
        if !old.is_empty() {
            let _: u32 = redis.hdel(&key, old).await.map_err(Error::redis(step))?;
        }
        let bytes: i64 = by_minute.iter().filter(|(minute, _)| **minute >= since).map(|(_, bytes)| bytes).sum();
        Ok(u64::try_from(bytes).unwrap_or(0))
    }
}
