//! Ownership checks: the leases that a worker holds, and the models that it may read.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_queue::budgets::Running;
use stokehold_queue::gateway::{LeaseRef, ModelRef};
use stokehold_queue::{Holding, Queue, WorkerRecord};

use super::advice::Advisor;
use crate::database::{Database, Error};
use crate::error::{Code, Problem};

/// Maximum number of leases of one endpoint that are read one by one.
const LOOKS_MAX: usize = 20;

/// Cache time of the running jobs.
const RUNNING_FOR: Duration = Duration::from_secs(1);

/// Checks which leases and models belong to a worker.
pub(crate) struct Ownership {
    db: Arc<Database>,
    advisor: Arc<Advisor>,
    running: Cache<(), Arc<Vec<Running>>>,
}

/// Returns whether another worker holds the lease. A lease that is not held at all passes this check; the queue refuses
/// its stale fence.
pub(super) fn is_anothers(holding: Option<&Holding>, worker_id: &str) -> bool {
    holding.is_some_and(|holding| holding.worker_id != worker_id)
}

impl Ownership {
    pub(crate) fn new(db: Arc<Database>, advisor: Arc<Advisor>) -> Self {
        Self { db, advisor, running: Cache::builder().max_capacity(1).time_to_live(RUNNING_FOR).build() }
    }

    /// Holders of these leases; `None` for a lease that is not held now.
    pub(super) async fn holdings(&self, leases: &[LeaseRef]) -> Result<Vec<Option<Holding>>, Error> {
        self.db.ask("read the workers of leases", self.db.queue.holdings(leases)).await
    }

    /// Refuses a lease that was given to another worker.
    pub(super) async fn check_own(&self, worker_id: &str, lease: &LeaseRef) -> Result<(), Problem> {
        let holdings = self.holdings(std::slice::from_ref(lease)).await?;
        if holdings.iter().any(|holding| is_anothers(holding.as_ref(), worker_id)) {
            tracing::warn!(worker.id = worker_id, job.id = %lease.job_id, "a worker sent the fence of a lease that another worker holds");
            return Err(Problem::new(Code::StaleFence, "this lease belongs to another worker"));
        }
        Ok(())
    }

    /// Returns whether a worker may read the content of a version: it holds a job of it, must keep it loaded, or should
    /// fetch it ahead.
    pub(super) async fn may_know(&self, worker: &WorkerRecord, model: &ModelRef) -> Result<bool, Error> {
        let worker_id = &worker.worker_id;
        if self.db.ask("look for a lease of a version", self.db.queue.runs(worker_id, model)).await? {
            return Ok(true);
        }
        // The worker may still be fetching a model that an earlier heartbeat advised, even if no job waits for it by
        // now.
        if self.advisor.has_advised(worker_id, model) || self.advisor.is_to_keep(worker_id, model).await? {
            return Ok(true);
        }
        Ok(self.advisor.is_next(worker, model).await? || self.runs_unlisted(worker_id, model).await?)
    }

    /// Returns whether a worker holds a job of a version that a replica of the previous release leased to it: such a
    /// replica does not list leases by worker.
    async fn runs_unlisted(&self, worker_id: &str, model: &ModelRef) -> Result<bool, Error> {
        let running = match self.running.get(&()) {
            Some(running) => running,
            None => {
                let running = Arc::new(self.db.ask("read the running jobs", self.db.queue.running()).await?);
                self.running.insert((), running.clone());
                running
            }
        };
        let is_its_own = |run: &&Running| {
            run.worker_id == worker_id && (&run.tenant, &run.endpoint) == (&model.tenant, &model.endpoint)
        };
        for run in running.iter().filter(is_its_own).take(LOOKS_MAX) {
            let lease = LeaseRef { job_id: run.id, fence: run.fence.clone() };
            let held = self.db.ask("check a lease", self.db.queue.held(&lease)).await?;
            if held.is_some_and(|(spec, _)| spec.version == model.version) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
