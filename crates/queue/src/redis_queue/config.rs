//! How to reach the queue in Redis, and its times.

use crate::clock::Clock;
use crate::queue::AGE_AFTER_MS;
use crate::redis_checks::Durability;

/// How to reach the queue, and its times.
#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://[user:password@]host:port/db`, `rediss://` or `redis+unix:///path`; behind Sentinels
    /// `redis+sentinel://[user:password@]host:port,.../service/db`; a cluster `redis+cluster://[user:password@]host:port,...`.
    pub url: String,
    /// What all keys start with. Default `stoke`.
    pub prefix: String,
    /// Among how many shards the tenants are spread, 1 to 64. Default 1.
    pub shards: u8,
    /// How long a lease lasts unless extended. Default 30 s.
    pub lease_ms: u64,
    /// How long an ended job stays before the history sweep takes it, unless the job sets it. Default 24 h.
    pub retention_ms: u64,
    /// How long work waits before it may go ahead of more urgent work. Default 5 minutes.
    pub age_after_ms: u64,
    /// What an accepted job is to survive. Default `strict`.
    pub durability: Durability,
    /// How many replicas must have what is promised before it is; `None` for one where the class is `strict` and there is one.
    pub replicas_to_wait: Option<u32>,
    /// Where time comes from; tests put a clock of their own here.
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
            clock: Clock::Own,
        }
    }
}

impl std::fmt::Debug for RedisConfig {
    /// Without the URL: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("lease_ms", &self.lease_ms)
            .finish_non_exhaustive()
    }
}
