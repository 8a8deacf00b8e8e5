//! Workers that an operator has put out: nothing of theirs is answered any more, what they ran goes to others, and they do not come back.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use stokehold_queue::WorkerRecord;
use stokehold_queue::registry::Eviction;

use crate::error::{Code, Problem};
use crate::state::App;

/// Replicas that knew it as a worker a moment ago may have granted it a lease since: what it holds comes back once more.
const AGAIN: Duration = Duration::from_secs(5);

/// Who was put out, as of a second ago at most.
#[derive(Default)]
pub(crate) struct Evicted {
    workers: HashSet<String>,
    /// The public part of the token that it joined with, and its name.
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

    /// Whether a worker was put out.
    pub(crate) fn has(&self, worker_id: &str) -> bool {
        self.workers.contains(worker_id)
    }

    /// Whether a worker of this name was put out that had joined with this token.
    pub(crate) fn has_host(&self, token_id: &str, name: &str) -> bool {
        self.hosts.contains(&(token_id.to_owned(), name.to_owned()))
    }
}

impl App {
    /// Who was put out, as of a second ago at most.
    pub(crate) async fn evicted(&self) -> Result<Arc<Evicted>, Problem> {
        if let Some(evicted) = self.evicted.get(&()) {
            return Ok(evicted);
        }
        self.evicted_now().await
    }

    /// Who was put out, read afresh.
    pub(crate) async fn evicted_now(&self) -> Result<Arc<Evicted>, Problem> {
        let evictions = self.ask("read who was put out", self.registry.evictions()).await?;
        let evicted = Arc::new(Evicted::of(evictions));
        self.evicted.insert((), evicted.clone());
        Ok(evicted)
    }

    /// Puts a worker out, and says how many of its jobs went back to the queue.
    pub(crate) async fn evict(&self, worker: &WorkerRecord) -> Result<u32, Problem> {
        let eviction = Eviction::of(worker);
        self.ask_again("put a worker out", || self.registry.evict(&eviction)).await?;
        self.evicted.invalidate(&());
        self.workers.invalidate(&worker.worker_id);
        self.fleets.invalidate(&());
        let requeued = self.ask_again("hand a worker's jobs back", || self.queue.evict(&worker.worker_id)).await?;
        let (app, worker_id) = (self.clone(), worker.worker_id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(AGAIN).await;
            if let Err(problem) = app.ask_again("hand a worker's jobs back", || app.queue.evict(&worker_id)).await {
                tracing::warn!(worker.id = worker_id, problem = problem.detail(), "its leases run out by themselves");
            }
        });
        tracing::warn!(worker.id = worker.worker_id, name = worker.name, requeued, "a worker was evicted");
        Ok(requeued)
    }
}

/// Refuses the worker of this id if it was put out.
pub(crate) async fn check_stays(app: &App, worker_id: &str) -> Result<(), Problem> {
    if app.evicted().await?.has(worker_id) {
        return Err(Problem::new(Code::Unauthorized, "this worker was evicted: it is no longer one of ours"));
    }
    Ok(())
}

/// Refuses a join by what was put out.
pub(crate) async fn check_joins(app: &App, token_id: &str, name: &str) -> Result<(), Problem> {
    if app.evicted_now().await?.has_host(token_id, name) {
        return Err(Problem::new(
            Code::Forbidden,
            "a worker of this name that joined with this token was evicted; to take it back, give it another join token",
        ));
    }
    Ok(())
}
