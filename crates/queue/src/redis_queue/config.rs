//! Configuration of the queue in Redis.

use crate::clock::Clock;
use crate::queue::AGE_AFTER_MS;
use crate::redis_checks::Durability;

/// Connection, times and durability of the queue.
#[derive(Clone)]
pub struct RedisConfig {
    /// URL: `redis://[user:password@]host:port/db`, `rediss://` or `redis+unix:///path`; behind Sentinels
    /// `redis+sentinel://[user:password@]host:port,.../service/db`; a cluster
    /// `redis+cluster://[user:password@]host:port,...`.
    pub url: String,
    /// Prefix of all keys. Default `stoke`.
    pub prefix: String,
    /// Number of shards over which the tenants are spread, 1 to 64. Default 1.
    pub shards: u8,
    /// Duration of a lease unless it is extended, milliseconds. Default 30 s.
    pub lease_ms: u64,
    /// Retention of ended jobs that set none before they move to history, milliseconds. Default 24 h.
    pub retention_ms: u64,
    /// Time after which waiting work may go ahead of more urgent work, milliseconds. Default 5 minutes.
    pub age_after_ms: u64,
    /// Durability of accepted jobs. Default `strict`.
    pub durability: Durability,
    /// Number of replicas that must acknowledge a write before the reply. `None` requires one if the durability is
    /// `strict` and there is a replica.
    pub replicas_to_wait: Option<u32>,
    /// Number of connections to a primary for long calls: backups, history, lists, figures. 0 sends them over the
    /// connection of leases and heartbeats. Default 8.
    pub long_calls: usize,
    /// Source of time; tests set a clock of their own.
    pub clock: Clock,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".to_owned(),
            prefix: "stoke".to_owned(),
            shards: 1,
            lease_ms: 30_000,
            retention_ms: 24 * 60 * 60 * 1000,
            age_after_ms: AGE_AFTER_MS,
            durability: Durability::Strict,
            replicas_to_wait: None,
            long_calls: 8,
            clock: Clock::Own,
        }
    }
}

impl std::fmt::Debug for RedisConfig {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("lease_ms", &self.lease_ms)
            .finish_non_exhaustive()
    }
}
