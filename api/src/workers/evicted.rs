//! Workers that an operator evicted. The gateway refuses their calls, their jobs go back to the queue, and they cannot join again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use stokehold_queue::WorkerRecord;
use stokehold_queue::registry::Eviction;

use crate::error::{Code, Problem};
use crate::state::App;

/// Delay before the worker's jobs are requeued a second time: a replica with a cached record may have granted it a lease meanwhile.
const AGAIN: Duration = Duration::from_secs(5);

/// All evictions, at most a second old.
#[derive(Default)]
pub(crate) struct Evicted {
    workers: HashSet<String>,
    /// Id of the join token, and name of the worker.
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

    /// Whether this worker was evicted.
    pub(crate) fn has(&self, worker_id: &str) -> bool {
        self.workers.contains(worker_id)
    }

    /// Whether a worker with this name that joined with this token was evicted.
    pub(crate) fn has_host(&self, token_id: &str, name: &str) -> bool {
        self.hosts.contains(&(token_id.to_owned(), name.to_owned()))
    }
}

impl App {
    /// All evictions, at most a second old.
    pub(crate) async fn evicted(&self) -> Result<Arc<Evicted>, Problem> {
        if let Some(evicted) = self.evicted.get(&()) {
            return Ok(evicted);
        }
        self.evicted_now().await
    }

    /// All evictions, read from Redis.
    pub(crate) async fn evicted_now(&self) -> Result<Arc<Evicted>, Problem> {
        let evictions = self.ask("read evictions", self.registry.evictions()).await?;
        let evicted = Arc::new(Evicted::of(evictions));
        self.evicted.insert((), evicted.clone());
        Ok(evicted)
    }

    /// Evicts a worker and returns how many of its jobs went back to the queue.
    pub(crate) async fn evict(&self, worker: &WorkerRecord) -> Result<u32, Problem> {
        let eviction = Eviction::of(worker);
        self.ask_again("evict a worker", || self.registry.evict(&eviction)).await?;
        self.evicted.invalidate(&());
        self.workers.invalidate(&worker.worker_id);
        self.fleets.invalidate(&());
        let requeued = self.ask_again("requeue a worker's jobs", || self.queue.evict(&worker.worker_id)).await?;
        let (app, worker_id) = (self.clone(), worker.worker_id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(AGAIN).await;
            if let Err(problem) = app.ask_again("requeue a worker's jobs", || app.queue.evict(&worker_id)).await {
                tracing::warn!(
                    worker.id = worker_id,
                    problem = problem.detail(),
                    "cannot requeue the jobs of an evicted worker again; they are requeued when their leases expire"
                );
            }
        });
        tracing::warn!(worker.id = worker.worker_id, name = worker.name, requeued, "a worker was evicted");
        Ok(requeued)
    }
}

/// Refuses a call of an evicted worker.
pub(crate) async fn check_stays(app: &App, worker_id: &str) -> Result<(), Problem> {
    if app.evicted().await?.has(worker_id) {
        return Err(Problem::new(Code::Unauthorized, "this worker was evicted"));
    }
    Ok(())
}

/// Refuses a join under the name and token of an evicted worker.
pub(crate) async fn check_joins(app: &App, token_id: &str, name: &str) -> Result<(), Problem> {
    if app.evicted_now().await?.has_host(token_id, name) {
        return Err(Problem::new(
            Code::Forbidden,
            "a worker with this name and this join token was evicted; use another join token to let it join again",
        ));
    }
    Ok(())
}
