//! What happens to the dependents of a resource that is deleted by force: open jobs are cancelled, batches stopped and
//! schedules paused. Every step is safe to repeat.

use stokehold_queue::batches::StopReason;
use stokehold_queue::{BATCH_MAX, JobId, Queue};

use super::walk::{JobWalk, batches, schedules};
use super::{Error, Subject};
use crate::database::Database;

/// What was ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Number of jobs that were cancelled or had ended meanwhile.
    pub(crate) jobs: usize,
    /// Number of batches that were stopped.
    pub(crate) batches: usize,
    /// Number of schedules that were paused.
    pub(crate) schedules: usize,
}

/// Ends everything that would use a tenant's resource: first what creates jobs, then the jobs.
pub(crate) async fn end(db: &Database, tenant: &str, subject: &Subject) -> Result<Ended, Error> {
    let mut ended = Ended::default();
    let home = db.home(tenant).await?;
    let paused = home.schedules();
    for id in schedules(db, tenant, subject).await? {
        ended.schedules += usize::from(db.ask_again("pause a schedule", || paused.pause(tenant, &id)).await?);
    }
    let stopped = home.batches();
    for id in batches(db, tenant, subject).await? {
        db.ask_again("cancel a batch", || stopped.stop(tenant, &id, StopReason::Cancelled)).await?;
        ended.batches += 1;
    }
    let mut walk = JobWalk::new(db, tenant, subject).await?;
    while let Some(uses) = walk.next().await? {
        let ids: Vec<JobId> = uses.iter().map(|one| one.id).collect();
        cancel(db, tenant, &ids).await?;
        ended.jobs += ids.len();
        // The open steps of these jobs are no longer needed.
        let mut steps = Vec::new();
        for one in uses.iter().filter(|one| one.has_steps) {
            let job = db.ask("read a job", db.queue.get(one.id)).await?;
            steps.extend(job.and_then(|job| job.open_step()));
        }
        cancel(db, tenant, &steps).await?;
    }
    Ok(ended)
}

async fn cancel(db: &Database, tenant: &str, ids: &[JobId]) -> Result<(), Error> {
    for ids in ids.chunks(BATCH_MAX) {
        db.ask_again("cancel", || db.queue.cancel(tenant, ids)).await?;
    }
    Ok(())
}
