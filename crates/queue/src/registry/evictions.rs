//! Records of workers that an operator evicted.

use std::collections::HashMap;

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};

use super::{Registry, WorkerRecord, readable, to_json};
use crate::clock::now_ms;
use crate::error::Error;

/// Number of evictions kept. The oldest are dropped first.
const EVICTIONS_MAX: usize = 10_000;

/// An evicted worker. The gateway refuses it, and every join under the same name with the same join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// Id of the worker.
    pub worker_id: String,
    /// Name of the worker.
    pub name: String,
    /// Id of its join token, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_with: Option<String>,
    /// Time of the eviction, Unix milliseconds.
    pub at_ms: u64,
}

impl Eviction {
    /// The eviction of this worker at the current time.
    #[must_use]
    pub fn of(worker: &WorkerRecord) -> Self {
        Self {
            worker_id: worker.worker_id.clone(),
            name: worker.name.clone(),
            joined_with: worker.joined_with.clone(),
            at_ms: now_ms(),
        }
    }
}

impl Registry {
    /// Evicts a worker: its tokens are refused from now on, and it is no longer listed. `Shards::evict` releases its
    /// leases.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn evict(&self, eviction: &Eviction) -> Result<(), Error> {
        let step = "evict a worker";
        let mut redis = self.connection.redis();
        let _: u64 = redis
            .hset(self.keys.evicted(), &eviction.worker_id, to_json(step, eviction)?)
            .await
            .map_err(Error::redis(step))?;
        self.drop_workers(&[&eviction.worker_id]).await?;
        let mut known = self.evictions().await?;
        if known.len() > EVICTIONS_MAX {
            known.sort_by_key(|eviction| eviction.at_ms);
            let oldest: Vec<&str> =
                known[..known.len() - EVICTIONS_MAX].iter().map(|eviction| eviction.worker_id.as_str()).collect();
            let _: u64 = redis.hdel(self.keys.evicted(), oldest).await.map_err(Error::redis(step))?;
        }
        Ok(())
    }

    /// Removes evicted workers from the list.
    pub(super) async fn without_evicted(&self, workers: &mut Vec<WorkerRecord>) -> Result<(), Error> {
        if workers.is_empty() {
            return Ok(());
        }
        let step = "read the evicted workers";
        let mut ask = redis::cmd("HMGET");
        ask.arg(self.keys.evicted());
        for worker in workers.iter() {
            ask.arg(&worker.worker_id);
        }
        let evicted: Vec<Option<String>> =
            ask.query_async(&mut self.connection.redis()).await.map_err(Error::redis(step))?;
        let mut evicted = evicted.into_iter();
        workers.retain(|_| evicted.next().flatten().is_none());
        Ok(())
    }

    /// The evicted workers.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn evictions(&self) -> Result<Vec<Eviction>, Error> {
        let step = "read the evicted workers";
        let all: HashMap<String, String> =
            self.connection.redis().hgetall(self.keys.evicted()).await.map_err(Error::redis(step))?;
        Ok(all.values().filter_map(|text| readable(step, text)).collect())
    }
}
