//! The keys of the registry, which have a root of their own, `{prefix:registry}`.

use crate::id::JobId;

/// The registry's keys.
#[derive(Debug, Clone)]
pub(crate) struct RegistryKeys {
    root: String,
}

impl RegistryKeys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { root: format!("{{{prefix}:registry}}") }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// HASH: the shard of each tenant.
    pub(crate) fn homes(&self) -> String {
        format!("{}:homes", self.root)
    }

    /// STRING: the highest number of shards so far.
    pub(crate) fn shards(&self) -> String {
        format!("{}:shards", self.root)
    }

    /// STRING: the backup that is being restored. Nothing may start on a half-restored queue.
    pub(crate) fn restoring(&self) -> String {
        format!("{}:restoring", self.root)
    }

    pub(crate) fn token(&self, id: &str) -> String {
        format!("{}:token:{id}", self.root)
    }

    pub(crate) fn tokens(&self) -> String {
        format!("{}:tokens", self.root)
    }

    /// STRING: when a token was last used, Unix milliseconds; for 400 days.
    pub(crate) fn used(&self, id: &str) -> String {
        format!("{}:used:{id}", self.root)
    }

    /// SET: the tenants that an operator has created.
    pub(crate) fn tenants(&self) -> String {
        format!("{}:tenants", self.root)
    }

    /// HASH: a tenant: when it was created and disabled, Unix ms, and its limits that the API enforces (tenants.rs).
    pub(crate) fn tenant(&self, name: &str) -> String {
        format!("{}:tenant:{name}", self.root)
    }

    /// HASH: bytes for which a tenant received upload URLs, by minute since 1970; an hour.
    pub(crate) fn announced(&self, tenant: &str) -> String {
        format!("{}:announced:{tenant}", self.root)
    }

    /// HASH: changes that have begun and not ended, JSON by id (audit.rs).
    pub(crate) fn changes(&self) -> String {
        format!("{}:changes", self.root)
    }

    /// STREAM: the changes of a tenant, about the last 10,000 of 400 days; without one, of all, the last 50,000.
    pub(crate) fn audit(&self, tenant: Option<&str>) -> String {
        match tenant {
            Some(tenant) => format!("{}:audit:{tenant}", self.root),
            None => format!("{}:audits", self.root),
        }
    }

    pub(crate) fn worker(&self, id: &str) -> String {
        format!("{}:worker:{id}", self.root)
    }

    /// HASH: a worker's readings of the last hour, JSON by half minute.
    pub(crate) fn readings(&self, id: &str) -> String {
        format!("{}:readings:{id}", self.root)
    }

    /// STRING: jobs that arrived, ran and waited in an hour (since 1970), of a tenant, or of all if `*` (series.rs).
    pub(crate) fn series(&self, of: &str, hour: u64) -> String {
        format!("{}:series:{of}:{hour}", self.root)
    }

    pub(crate) fn workers(&self) -> String {
        format!("{}:workers", self.root)
    }

    pub(crate) fn endpoints(&self, tenant: &str) -> String {
        format!("{}:endpoints:{tenant}", self.root)
    }

    /// HASH: number of deleted versions of each of a tenant's endpoints, including deleted endpoints.
    pub(crate) fn deleted(&self, tenant: &str) -> String {
        format!("{}:deleted:{tenant}", self.root)
    }

    pub(crate) fn webhook(&self, tenant: &str) -> String {
        format!("{}:webhook:{tenant}", self.root)
    }

    pub(crate) fn feedback(&self, tenant: &str) -> String {
        format!("{}:feedback:{tenant}", self.root)
    }

    pub(crate) fn judged(&self, id: JobId) -> String {
        format!("{}:fb:{id}", self.root)
    }

    /// HASH: `<version> <workers>` by `<tenant>:<endpoint>`, for models to keep loaded without jobs.
    pub(crate) fn floors(&self) -> String {
        format!("{}:floors", self.root)
    }

    /// HASH: the leading autoscaler, its term, and until when it leads.
    pub(crate) fn lead(&self) -> String {
        format!("{}:lead", self.root)
    }

    /// HASH: the status of the leading autoscaler.
    pub(crate) fn autoscaler(&self) -> String {
        format!("{}:autoscaler", self.root)
    }

    /// HASH: the instances that the autoscaler has rented or is about to rent, JSON by instance.
    pub(crate) fn machines(&self) -> String {
        format!("{}:machines", self.root)
    }

    /// ZSET: the instances that were rented recently, by the time of their rental.
    pub(crate) fn rents(&self) -> String {
        format!("{}:rents", self.root)
    }

    /// HASH: the bills of instances, JSON by instance.
    pub(crate) fn bills(&self) -> String {
        format!("{}:bills", self.root)
    }

    /// HASH: since when a worker is drained, Unix milliseconds by its name.
    pub(crate) fn drains(&self) -> String {
        format!("{}:drains", self.root)
    }

    /// HASH: workers that an operator has evicted, JSON by id.
    pub(crate) fn evicted(&self) -> String {
        format!("{}:evicted", self.root)
    }

    /// HASH: until when a host or an offer is in cooldown, Unix milliseconds.
    pub(crate) fn shunned(&self) -> String {
        format!("{}:shunned", self.root)
    }

    /// HASH: a tenant's secrets by name, sealed, JSON.
    pub(crate) fn secrets(&self, tenant: &str) -> String {
        format!("{}:secrets:{tenant}", self.root)
    }

    /// SET: the tenants that have or had secrets.
    pub(crate) fn secret_tenants(&self) -> String {
        format!("{}:secrets", self.root)
    }

    /// HASH: the number of each requirement set, JSON.
    pub(crate) fn demands(&self) -> String {
        format!("{}:demands", self.root)
    }

    /// SET, followed by a tenant: the numbers of its requirement sets.
    pub(crate) fn demands_of(&self) -> String {
        format!("{}:demands_of", self.root)
    }

    /// ZSET, followed by a set's number: the tenants that use the set, by the time of the last use, Unix milliseconds.
    pub(crate) fn demand_users(&self) -> String {
        format!("{}:demand_users", self.root)
    }

    /// HASH: `<version> <GPU model>` to the memory need that was learned, MiB.
    pub(crate) fn needs(&self, tenant: &str, name: &str) -> String {
        format!("{}:needs:{tenant}:{name}", self.root)
    }

    /// HASH: `<tenant>:<endpoint>` to when its learned memory needs were reset, Unix milliseconds; for ten minutes.
    pub(crate) fn forgotten(&self) -> String {
        format!("{}:forgotten", self.root)
    }

    /// HASH: an endpoint's versions, JSON by number; empty once deleted.
    pub(crate) fn versions(&self, tenant: &str, name: &str) -> String {
        format!("{}:versions:{tenant}:{name}", self.root)
    }
    /// HASH: deletions of the last minutes, JSON by id (registry/deletions.rs).
    pub(crate) fn deletions(&self) -> String {
        format!("{}:deletions", self.root)
    }

    /// ZSET: objects of deleted versions, `<tenant>/<kind>/<SHA-256>`, by the time to check them, Unix milliseconds.
    pub(crate) fn orphans(&self) -> String {
        format!("{}:orphans", self.root)
    }

    /// HASH: a tenant's objects that are being deleted, to until when; `swept`: how often objects were deleted.
    pub(crate) fn sweeps(&self, tenant: &str) -> String {
        format!("{}:sweeps:{tenant}", self.root)
    }
}
