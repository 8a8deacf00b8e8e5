//! Waiting for jobs without polling Redis: many waiters share one subscription per replica. Readers of outputs also
//! receive those that are relayed, before they are stored.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stokehold_queue::job::Job;
use stokehold_queue::queue::{KeptOutputs, OutputsPosition};
use stokehold_queue::{JobId, Queue, Shards};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::database::{Error, QueueTimeout};

/// Interval at which a waiter reads its job by itself, because signals can be lost with their connection. This also
/// renews its watch.
const RELOOK: Duration = Duration::from_secs(5);

/// Relayed outputs that a reader may fall behind. Beyond it, it reads the stored ones.
const RELAYED_MAX: usize = 64;

/// Interval at which a reader that misses outputs before relayed ones reads the stored ones.
const CATCH_UP: Duration = Duration::from_millis(250);

type Watched = HashMap<JobId, Senders>;

/// The senders to the waiters of one job.
struct Senders {
    changes: watch::Sender<()>,
    /// Only of a job whose outputs are read: it is 64 places large.
    outputs: Option<broadcast::Sender<Arc<KeptOutputs>>>,
    /// Whether a reader has joined or fallen behind since outputs were last relayed.
    needs_stored: bool,
}

impl Default for Senders {
    fn default() -> Self {
        Self { changes: watch::channel(()).0, outputs: None, needs_stored: false }
    }
}

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
    pub(crate) fn signal(&self, id: JobId) {
        if let Some(waiters) = lock(&self.watched).get(&id) {
            waiters.changes.send_replace(());
        }
    }

    /// Passes outputs that are not stored yet to the readers of a job. Returns whether a reader has joined or fallen
    /// behind since the last ones, and needs those before these from the store.
    pub(crate) fn relay(&self, id: JobId, outputs: KeptOutputs) -> bool {
        let mut watched = lock(&self.watched);
        let Some(Senders { outputs: Some(readers), needs_stored, .. }) = watched.get_mut(&id) else { return false };
        // An error means that the last reader has left.
        let _ = readers.send(Arc::new(outputs));
        std::mem::take(needs_stored)
    }

    /// Signals that any job may have changed.
    pub(crate) fn signal_all(&self) {
        for waiters in lock(&self.watched).values() {
            waiters.changes.send_replace(());
        }
    }

    /// Follows a job. The subscription starts before the first read, so that no change falls in between.
    pub(crate) fn follow(&self, id: JobId) -> Follow<'_> {
        let changes = lock(&self.watched).entry(id).or_default().changes.subscribe();
        Follow { job_watchers: self, id, changes, relook: Instant::now() + RELOOK, reader: None }
    }

    /// Follows a job and its outputs.
    pub(crate) fn follow_outputs(&self, id: JobId) -> Follow<'_> {
        let mut watched = lock(&self.watched);
        let senders = watched.entry(id).or_default();
        senders.needs_stored = true;
        let outputs = senders.outputs.get_or_insert_with(|| broadcast::Sender::new(RELAYED_MAX));
        let (changes, reader) = (senders.changes.subscribe(), Reader::new(outputs.subscribe()));
        Follow { job_watchers: self, id, changes, relook: Instant::now() + RELOOK, reader: Some(reader) }
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
    /// When the job is read without a signal.
    relook: Instant,
    reader: Option<Reader>,
}

/// What ends a wait of a reader of outputs.
pub(crate) enum Next {
    /// The job may have changed, or outputs are stored that were not relayed: read both.
    Changed,
    /// These outputs follow those before the position; some of them may lie before it.
    Outputs(Arc<KeptOutputs>),
    /// The deadline has passed, or the replica shuts down.
    Over,
}

/// The relayed outputs of a job.
struct Reader {
    relayed: broadcast::Receiver<Arc<KeptOutputs>>,
    /// Those that came while outputs before them are missing, in order.
    early: VecDeque<Arc<KeptOutputs>>,
    /// The last attempt when the job was read.
    attempt: u32,
    /// The attempt for whose relayed outputs the job was read again.
    looked_for: u32,
}

impl Reader {
    fn new(relayed: broadcast::Receiver<Arc<KeptOutputs>>) -> Self {
        Self { relayed, early: VecDeque::new(), attempt: 0, looked_for: 0 }
    }

    /// The next outputs after a position, if they were relayed.
    fn next(&mut self, after: OutputsPosition) -> Option<Arc<KeptOutputs>> {
        while let Some(first) = self.early.pop_front() {
            let end = OutputsPosition { attempt: first.attempt, next: first.index + first.values.len() as u64 };
            if end <= after {
                continue;
            }
            let is_next = if first.attempt == after.attempt {
                first.index <= after.next
            } else {
                // What is stored of the attempts before comes first, and the state of this one.
                first.index == 0 && first.attempt <= self.attempt
            };
            if is_next {
                return Some(first);
            }
            self.early.push_front(first);
            return None;
        }
        None
    }

    /// Whether outputs of an attempt were relayed before its start was signalled. Returns `true` once per attempt.
    fn is_ahead_of_signal(&mut self) -> bool {
        let newest = self.early.back().map_or(0, |last| last.attempt);
        let is_ahead = newest > self.attempt.max(self.looked_for);
        self.looked_for = self.looked_for.max(newest);
        is_ahead
    }

    fn keep(&mut self, outputs: Arc<KeptOutputs>) {
        if self.early.len() == RELAYED_MAX {
            self.early.pop_front();
        }
        self.early.push_back(outputs);
    }
}

impl Follow<'_> {
    /// Reads the job now. Later changes are signalled.
    pub(crate) async fn look(&mut self) -> Result<Option<Job>, Error> {
        self.changes.mark_unchanged();
        let job_watchers = self.job_watchers;
        let watched = job_watchers.queue.watch(self.id, &job_watchers.replica);
        let job = job_watchers.timeout.ask("watch a job", watched).await?;
        self.relook = Instant::now() + RELOOK.mul_f64(0.8 + 0.4 * rand::random::<f64>());
        if let (Some(reader), Some(last)) = (&mut self.reader, job.as_ref().and_then(|job| job.attempts.last())) {
            reader.attempt = last.attempt;
        }
        Ok(job)
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
        tokio::select! {
            _ = self.changes.changed() => true,
            () = sleep_until(self.relook.min(deadline)) => self.relook < deadline,
            () = self.job_watchers.shutdown.cancelled() => false,
        }
    }

    /// Waits for the outputs after a position, or until another read of the job and its stored outputs makes sense.
    pub(crate) async fn next(&mut self, after: OutputsPosition, deadline: Instant) -> Next {
        let catch_up = Instant::now() + CATCH_UP;
        loop {
            // A change that was signalled is older than outputs that follow.
            if self.changes.has_changed().unwrap_or(false) || self.relook <= Instant::now() {
                return Next::Changed;
            }
            let Some(reader) = &mut self.reader else {
                return if self.changed(deadline).await { Next::Changed } else { Next::Over };
            };
            if let Some(outputs) = reader.next(after) {
                return Next::Outputs(outputs);
            }
            if reader.is_ahead_of_signal() {
                return Next::Changed;
            }
            let relook = if reader.early.is_empty() { self.relook } else { self.relook.min(catch_up) };
            let relayed = tokio::select! {
                biased;
                () = self.job_watchers.shutdown.cancelled() => return Next::Over,
                _ = self.changes.changed() => return Next::Changed,
                relayed = reader.relayed.recv() => relayed,
                () = sleep_until(relook.min(deadline)) => {
                    return if relook < deadline { Next::Changed } else { Next::Over };
                }
            };
            match relayed {
                Ok(outputs) => reader.keep(outputs),
                // The stored outputs have those that are missing now.
                Err(RecvError::Lagged(_)) => {
                    if let Some(senders) = lock(&self.job_watchers.watched).get_mut(&self.id) {
                        senders.needs_stored = true;
                    }
                }
                Err(RecvError::Closed) => self.reader = None,
            }
        }
    }
}

impl Drop for Follow<'_> {
    fn drop(&mut self) {
        let mut watched = lock(&self.job_watchers.watched);
        // The own receiver is dropped under the lock, so that of two waiters that leave at once the second one detects
        // that it is the last.
        self.changes = watch::channel(()).1;
        if watched.get(&self.id).is_some_and(|waiters| waiters.changes.receiver_count() == 0) {
            watched.remove(&self.id);
        }
    }
}

/// Locks the map. It is consistent at every unlock, so a poisoned lock is safe to use.
fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(attempt: u32, index: u64, count: usize) -> Arc<KeptOutputs> {
        let values = vec![serde_json::value::RawValue::NULL.to_owned(); count];
        Arc::new(KeptOutputs { attempt, index, values, at_ms: 0 })
    }

    /// The first index of the next outputs after a position.
    fn next(reader: &mut Reader, attempt: u32, next: u64) -> Option<u64> {
        reader.next(OutputsPosition { attempt, next }).map(|outputs| outputs.index)
    }

    #[test]
    fn relayed_outputs_wait_for_those_before_them() {
        let sender = broadcast::Sender::new(1);
        let mut reader = Reader::new(sender.subscribe());
        for each in [outputs(1, 0, 2), outputs(1, 2, 3), outputs(1, 7, 1), outputs(1, 8, 1)] {
            reader.keep(each);
        }
        assert_eq!(next(&mut reader, 0, 0), None, "the job was read before the attempt began");
        assert!(reader.is_ahead_of_signal());
        assert!(!reader.is_ahead_of_signal(), "one look is enough");
        reader.attempt = 1;
        assert_eq!(next(&mut reader, 0, 0), Some(0));
        assert_eq!(next(&mut reader, 1, 3), Some(2), "a part of them is new");
        assert_eq!(next(&mut reader, 1, 5), None, "two are missing");
        assert_eq!(next(&mut reader, 1, 8), Some(8), "the reader has the one before from elsewhere");
        assert_eq!(next(&mut reader, 1, 9), None);
        // A reader that comes late.
        reader.keep(outputs(1, 9, 1));
        assert_eq!(next(&mut reader, 0, 0), None);
    }

    #[test]
    fn outputs_of_a_retry_follow_once_the_job_was_read() {
        let sender = broadcast::Sender::new(1);
        let mut reader = Reader::new(sender.subscribe());
        reader.keep(outputs(1, 5, 1));
        reader.keep(outputs(2, 0, 1));
        reader.attempt = 1;
        assert_eq!(next(&mut reader, 1, 6), None);
        reader.attempt = 2;
        assert_eq!(next(&mut reader, 1, 6), Some(0));
        assert_eq!(next(&mut reader, 2, 1), None);
    }

    #[test]
    fn the_outputs_that_wait_are_bounded() {
        let sender = broadcast::Sender::new(1);
        let mut reader = Reader::new(sender.subscribe());
        for index in 1..=2 * RELAYED_MAX as u64 {
            reader.keep(outputs(1, index, 1));
        }
        assert_eq!(reader.early.len(), RELAYED_MAX);
    }
}
