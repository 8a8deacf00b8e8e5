//! Workers that an operator evicted. The gateway refuses their calls, their jobs are requeued, and they cannot join
//! again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_queue::WorkerRecord;
use stokehold_queue::registry::Eviction;

use crate::database::{Database, Error};
use crate::error::{Code, Problem};
use crate::workers::fleet::Fleets;

/// Delay before the worker's jobs are requeued a second time: a replica with a cached record may have granted it a
/// lease meanwhile.
const AGAIN: Duration = Duration::from_secs(5);

/// Cache time of the evictions.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// The evicted workers.
#[derive(Default)]
pub(crate) struct Evicted {
    workers: HashSet<String>,
    /// ID of the join token, and name of the worker.
    hosts: HashSet<(String, String)>,
}

impl Evicted {
    fn of(evictions: Vec<Eviction>) -> Self {
        let mut evicted = Self::default();
        for Eviction { worker_id, name, joined_with, .. } in evictions {
            evicted.workers.insert(worker_id);
            evicted.hosts.extend(joined_with.map(|token_id| (token_id, name)));
        }
        evicted
    }

    /// Returns whether this worker was evicted.
    pub(crate) fn has(&self, worker_id: &str) -> bool {
        self.workers.contains(worker_id)
    }

    /// Returns whether a worker with this name that joined with this token was evicted.
    pub(crate) fn has_host(&self, token_id: &str, name: &str) -> bool {
        self.hosts.contains(&(token_id.to_owned(), name.to_owned()))
    }
}

/// Evicts workers and checks whether they were evicted.
pub(crate) struct Evictions {
    db: Arc<Database>,
    fleets: Arc<Fleets>,
    evicted: Cache<(), Arc<Evicted>>,
}

impl Evictions {
    pub(crate) fn new(db: Arc<Database>, fleets: Arc<Fleets>) -> Self {
        Self { db, fleets, evicted: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build() }
    }

    /// All evictions, at most one second old.
    pub(crate) async fn evicted(&self) -> Result<Arc<Evicted>, Error> {
        if let Some(evicted) = self.evicted.get(&()) {
            return Ok(evicted);
        }
        self.evicted_now().await
    }

    /// All evictions, read from Redis.
    async fn evicted_now(&self) -> Result<Arc<Evicted>, Error> {
        let evictions = self.db.ask("read evictions", self.db.registry.evictions()).await?;
        let evicted = Arc::new(Evicted::of(evictions));
        self.evicted.insert((), evicted.clone());
        Ok(evicted)
    }

    /// Evicts a worker and returns the number of its jobs that were requeued.
    pub(crate) async fn evict(&self, worker: &WorkerRecord) -> Result<u32, Error> {
        let eviction = Eviction::of(worker);
        self.db.ask_again("evict a worker", || self.db.registry.evict(&eviction)).await?;
        self.evicted.invalidate(&());
        self.fleets.forget_worker(&worker.worker_id);
        self.fleets.forget();
        let requeued = self.db.ask_again("requeue a worker's jobs", || self.db.queue.evict(&worker.worker_id)).await?;
        let (db, worker_id) = (self.db.clone(), worker.worker_id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(AGAIN).await;
            if let Err(error) = db.ask_again("requeue a worker's jobs", || db.queue.evict(&worker_id)).await {
                tracing::warn!(
                    worker.id = worker_id,
                    error = &error as &dyn std::error::Error,
                    "cannot requeue the jobs of an evicted worker again; they are requeued when their leases expire"
                );
            }
        });
        tracing::warn!(worker.id = worker.worker_id, name = worker.name, requeued, "a worker was evicted");
        Ok(requeued)
    }

    /// Refuses a call of an evicted worker.
    pub(crate) async fn check_stays(&self, worker_id: &str) -> Result<(), Problem> {
        if self.evicted().await?.has(worker_id) {
            return Err(Problem::new(Code::Unauthorized, "this worker was evicted"));
        }
        Ok(())
    }

    /// Refuses a join under the name and token of an evicted worker.
    pub(crate) async fn check_joins(&self, token_id: &str, name: &str) -> Result<(), Problem> {
        if self.evicted_now().await?.has_host(token_id, name) {
            return Err(Problem::new(
                Code::Forbidden,
                "a worker with this name and this join token was evicted; use another join token to let it join again",
            ));
        }
        Ok(())
    }
}
