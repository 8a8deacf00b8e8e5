//! Jobs that wait until their model is loaded, as reported with heartbeats.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use stokehold_protocol::gateway::{STARTING_MAX, StartPhase, StartingJob};
use stokehold_protocol::id::JobId;
use tokio::sync::Notify;

use super::Pool;
use super::model::{Model, ModelGuard};

/// The jobs that wait for a model, by id.
#[derive(Default)]
pub(super) struct Starting {
    jobs: Mutex<BTreeMap<JobId, Arc<Model>>>,
    /// Notified when the phase of a waiting job changes.
    changed: Notify,
}

/// A job that waits for its model, until dropped.
pub(crate) struct StartingGuard<'a> {
    starting: &'a Starting,
    job_id: JobId,
}

impl Drop for StartingGuard<'_> {
    fn drop(&mut self) {
        self.starting.jobs.lock().remove(&self.job_id);
        self.starting.changed.notify_one();
    }
}

impl Pool {
    /// Reports that a job waits for this model, until the guard is dropped. `None` if the model is loaded.
    pub(crate) fn starts(&self, job_id: JobId, model: &ModelGuard) -> Option<StartingGuard<'_>> {
        if model.is_ready() {
            return None;
        }
        self.starting.jobs.lock().insert(job_id, model.here());
        Some(StartingGuard { starting: &self.starting, job_id })
    }

    /// The jobs that wait for a model that is being loaded, oldest first.
    pub(crate) fn starting(&self) -> Vec<StartingJob> {
        let jobs = self.starting.jobs.lock().clone();
        let phase = |(job_id, model): (JobId, Arc<Model>)| {
            let (phase, since) = (*model.phase.lock())?;
            let phase_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            Some(StartingJob { job_id, phase, phase_ms })
        };
        jobs.into_iter().filter_map(phase).take(STARTING_MAX).collect()
    }

    /// Completes when the phase of a waiting job has changed since the last call.
    pub(crate) async fn starting_changed(&self) {
        self.starting.changed.notified().await;
    }

    /// Records the phase of a model that is being loaded.
    pub(super) fn enters(&self, model: &Model, phase: StartPhase) {
        let mut current = model.phase.lock();
        if current.is_none_or(|(before, _)| before != phase) {
            *current = Some((phase, Instant::now()));
            self.starting.changed.notify_one();
        }
    }
}
