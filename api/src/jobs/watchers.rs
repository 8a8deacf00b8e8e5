//! Waiting for jobs without polling Redis: many waiters share one subscription per replica.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stokehold_queue::job::Job;
use stokehold_queue::{JobId, Queue, Shards};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::database::{Error, QueueTimeout};

/// Interval at which a waiter reads its job by itself, because signals can be lost with their connection. This also
/// renews its watch.
const RELOOK: Duration = Duration::from_secs(5);

type Watched = HashMap<JobId, watch::Sender<()>>;

/// The jobs that clients of this replica wait for.
pub(crate) struct JobWatchers {
    queue: Shards,
    replica: String,
    timeout: QueueTimeout,
    watched: Mutex<Watched>,
    shutdown: CancellationToken,
}

impl JobWatchers {
    pub(crate) fn new(queue: Shards, replica: String, timeout: QueueTimeout, shutdown: CancellationToken) -> Self {
        Self { queue, replica, timeout, watched: Mutex::default(), shutdown }
    }

    /// Signals a change of a job.
    pub(crate) fn tell(&self, id: JobId) {
        if let Some(waiters) = lock(&self.watched).get(&id) {
            waiters.send_replace(());
        }
    }

    /// Signals that any job may have changed.
    pub(crate) fn tell_all(&self) {
        for waiters in lock(&self.watched).values() {
            waiters.send_replace(());
        }
    }

    /// Follows a job. The subscription starts before the first read, so that no change falls in between.
    pub(crate) fn follow(&self, id: JobId) -> Follow<'_> {
        let changes = lock(&self.watched).entry(id).or_insert_with(|| watch::channel(()).0).subscribe();
        Follow { job_watchers: self, id, changes }
    }

    /// Returns the job once it has ended, or its state at `deadline` or when the replica shuts down; `None` if it does
    /// not exist.
    pub(crate) async fn until_end(&self, id: JobId, deadline: Instant) -> Result<Option<Job>, Error> {
        let mut follow = self.follow(id);
        match follow.look().await? {
            Some(job) if !job.state.is_terminal() => follow.until_end(deadline).await,
            seen => Ok(seen),
        }
    }
}

/// One waiter of one job.
pub(crate) struct Follow<'a> {
    job_watchers: &'a JobWatchers,
    id: JobId,
    changes: watch::Receiver<()>,
}

impl Follow<'_> {
    /// Reads the job now. Later changes are signalled.
    pub(crate) async fn look(&mut self) -> Result<Option<Job>, Error> {
        self.changes.mark_unchanged();
        self.job_watchers
            .timeout
            .ask("watch a job", self.job_watchers.queue.watch(self.id, &self.job_watchers.replica))
            .await
    }

    /// Waits for a change of a watched job that had not ended; then see [`JobWatchers::until_end`].
    pub(crate) async fn until_end(&mut self, deadline: Instant) -> Result<Option<Job>, Error> {
        loop {
            let changed = self.changed(deadline).await;
            match self.look().await? {
                Some(job) if !job.state.is_terminal() && changed => {}
                seen => return Ok(seen),
            }
        }
    }

    /// Waits until another read makes sense. Returns `false` when `deadline` has passed or the replica shuts down.
    pub(crate) async fn changed(&mut self, deadline: Instant) -> bool {
        let relook = Instant::now() + RELOOK.mul_f64(0.8 + 0.4 * rand::random::<f64>());
        tokio::select! {
            _ = self.changes.changed() => true,
            () = sleep_until(relook.min(deadline)) => relook < deadline,
            () = self.job_watchers.shutdown.cancelled() => false,
        }
    }
}

impl Drop for Follow<'_> {
    fn drop(&mut self) {
        let mut watched = lock(&self.job_watchers.watched);
        // The own receiver is dropped under the lock, so that of two waiters that leave at once the second one detects
        // that it is the last.
        self.changes = watch::channel(()).1;
        if watched.get(&self.id).is_some_and(|waiters| waiters.receiver_count() == 0) {
            watched.remove(&self.id);
        }
    }
}

/// Locks the map. It is consistent at every unlock, so a poisoned lock is safe to use.
fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}
