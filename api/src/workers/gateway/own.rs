//! What is a worker's own: the leases that it was given, and the models that it may know of.

use std::sync::Arc;

use stokehold_queue::budgets::Running;
use stokehold_queue::gateway::{LeaseRef, ModelRef};
use stokehold_queue::{Holding, Queue, WorkerRecord};

use super::advice;
use crate::error::{Code, Problem};
use crate::state::App;

/// Leases of one endpoint that are looked at one by one.
const LOOKS_MAX: usize = 20;

/// Who holds these leases; `None` of one that is not held now.
pub(super) async fn holdings(app: &App, leases: &[LeaseRef]) -> Result<Vec<Option<Holding>>, Problem> {
    app.ask("read who holds leases", app.queue.holdings(leases)).await
}

/// Whether another worker holds the lease. A lease that is not held at all passes this check; its stale fence is refused by the queue.
pub(super) fn is_anothers(holding: Option<&Holding>, worker_id: &str) -> bool {
    holding.is_some_and(|holding| holding.worker_id != worker_id)
}

/// Refuses a lease that was given to another worker.
pub(super) async fn check_own(app: &App, worker_id: &str, lease: &LeaseRef) -> Result<(), Problem> {
    let holdings = holdings(app, std::slice::from_ref(lease)).await?;
    if holdings.iter().any(|holding| is_anothers(holding.as_ref(), worker_id)) {
        tracing::warn!(worker.id = worker_id, job.id = %lease.job_id, "a worker sent the fence of a lease that another worker holds");
        return Err(Problem::new(Code::StaleFence, "this lease belongs to another worker"));
    }
    Ok(())
}

/// Whether a worker may know what a version is made of: it holds a job of it, is to keep it loaded, or is to fetch it ahead.
pub(super) async fn may_know(app: &App, worker: &WorkerRecord, model: &ModelRef) -> Result<bool, Problem> {
    let worker_id = &worker.worker_id;
    if app.ask("look for a lease of a version", app.queue.runs(worker_id, model)).await? {
        return Ok(true);
    }
    // The worker may still be fetching what an earlier heartbeat advised, even if no job waits for it by now.
    if app.advised.contains_key(&(worker_id.clone(), model.clone())) || app.is_to_keep(worker_id, model).await? {
        return Ok(true);
    }
    Ok(advice::is_next(app, worker, model).await? || runs_unlisted(app, worker_id, model).await?)
}

/// Whether a worker holds a job of a version that a replica of the release before has leased to it: such a replica lists no leases by worker.
async fn runs_unlisted(app: &App, worker_id: &str, model: &ModelRef) -> Result<bool, Problem> {
    let running = match app.running.get(&()) {
        Some(running) => running,
        None => {
            let running = Arc::new(app.ask("read the running jobs", app.queue.running()).await?);
            app.running.insert((), running.clone());
            running
        }
    };
    let is_its_own =
        |run: &&Running| run.worker_id == worker_id && (&run.tenant, &run.endpoint) == (&model.tenant, &model.endpoint);
    for run in running.iter().filter(is_its_own).take(LOOKS_MAX) {
        let lease = LeaseRef { job_id: run.id, fence: run.fence.clone() };
        let held = app.ask("check a lease", app.queue.held(&lease)).await?;
        if held.is_some_and(|(spec, _)| spec.version == model.version) {
            return Ok(true);
        }
    }
    Ok(false)
}
