//! Relays outputs of running jobs to their connected readers, without storing them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use moka::sync::Cache;
use serde_json::value::RawValue;
use stokehold_queue::gateway::{JobEventReport, JobMessage, LeaseRef};
use stokehold_queue::now_ms;
use stokehold_queue::queue::{KeptOutputs, RelayedOutputs};
use stokehold_queue::{JobId, WatchedAttempt};

use crate::database::{Database, Error};
use crate::jobs::watchers::JobWatchers;

/// Cache time of a lease and its readers: each token of a language model is a call. Readers that join another replica
/// receive outputs after this time; outputs of a lost lease are relayed until then at the latest.
const ATTEMPT_FOR: Duration = Duration::from_secs(1);

/// How long an attempt without outputs is remembered, and how many are.
const IDLE: Duration = Duration::from_secs(60);
const ATTEMPTS_MAX: u64 = 10_000;

/// The names of replicas begin with this. Those of the previous release, which do not understand relayed outputs, begin
/// with `r_`.
pub(crate) const REPLICA_PREFIX: &str = "replica_";

/// The running attempts whose outputs are relayed.
pub(crate) struct OutputRelay {
    db: Arc<Database>,
    job_watchers: Arc<JobWatchers>,
    replica: Arc<str>,
    attempts: Cache<LeaseRef, Arc<Known>>,
}

/// What is known of a lease.
struct Known {
    /// Absent if the lease is not valid.
    attempt: Option<WatchedAttempt>,
    read_at: Instant,
}

impl OutputRelay {
    pub(crate) fn new(db: Arc<Database>, job_watchers: Arc<JobWatchers>, replica: Arc<str>) -> Self {
        let attempts = Cache::builder().max_capacity(ATTEMPTS_MAX).time_to_idle(IDLE).build();
        Self { db, job_watchers, replica, attempts }
    }

    /// Sends the outputs of these events to their readers. Those of a lease that this worker does not hold are dropped,
    /// and so are events of other kinds. Returns the jobs for which what was relayed so far should be stored: for a
    /// reader that has joined since, or for a webhook.
    pub(super) async fn relay(&self, worker_id: &str, events: Vec<JobEventReport>) -> Result<Vec<JobId>, Error> {
        let outputs = |JobEventReport { job_id, fence, event }| match event {
            JobMessage::Outputs { index, values } => Some((LeaseRef { job_id, fence }, index, values)),
            _ => None,
        };
        let events: Vec<_> = events.into_iter().filter_map(outputs).collect();
        // At once: the sequences of an engine come in one call, and their leases are read again at the same time.
        let known = try_join_all(events.iter().map(|(lease, ..)| self.known(lease))).await?;
        let (mut needed, mut remote) = (Vec::new(), Vec::new());
        for ((lease, index, values), (known, has_joined)) in events.into_iter().zip(&known) {
            let Some(running) = known.attempt.as_ref().filter(|attempt| attempt.worker_id == worker_id) else {
                continue;
            };
            let (job_id, attempt) = (lease.job_id, running.attempt);
            let is_other = |name: &&String| **name != *self.replica && name.starts_with(REPLICA_PREFIX);
            let others: Vec<&String> = running.replicas.iter().filter(is_other).collect();
            if !others.is_empty() {
                remote.push((others, RelayedOutputs { job_id, attempt, index, values: array(&values) }));
            }
            // The readers here come first: they need no Redis.
            let outputs = KeptOutputs { attempt, index, values, at_ms: now_ms() };
            let has_joined_here = self.job_watchers.relay(job_id, outputs);
            if index > 0 && (*has_joined || has_joined_here) {
                needed.push(job_id);
            }
        }
        try_join_all(remote.iter().flat_map(|(others, outputs)| {
            others.iter().map(move |replica| self.db.ask("relay outputs", self.db.queue.relay(replica, outputs)))
        }))
        .await?;
        Ok(needed)
    }

    /// Whether this worker is known to hold the lease. A fence belongs to one lease only, so the answer does not age.
    pub(super) fn is_run_by(&self, lease: &LeaseRef, worker_id: &str) -> bool {
        let known = self.attempts.get(lease);
        known.is_some_and(|known| known.attempt.as_ref().is_some_and(|attempt| attempt.worker_id == worker_id))
    }

    /// The attempt under a lease, and whether stored outputs are needed since it was last read.
    async fn known(&self, lease: &LeaseRef) -> Result<(Arc<Known>, bool), Error> {
        let before = self.attempts.get(lease);
        if let Some(known) = before.as_ref().filter(|known| known.read_at.elapsed() < ATTEMPT_FOR) {
            return Ok((known.clone(), false));
        }
        let attempt = self.db.ask("read who watches a job", self.db.queue.watched_attempt(lease)).await?;
        let is_needed = attempt.as_ref().is_some_and(|attempt| {
            // Another replica may have relayed what came before, to readers that were there then.
            let was_there = |name| {
                let before = before.as_ref().and_then(|known| known.attempt.as_ref());
                before.is_some_and(|attempt| attempt.replicas.contains(name))
            };
            attempt.has_output_webhook || !attempt.replicas.iter().all(was_there)
        });
        let known = Arc::new(Known { attempt, read_at: Instant::now() });
        self.attempts.insert(lease.clone(), known.clone());
        Ok((known, is_needed))
    }
}

/// Values as a JSON array.
fn array(values: &[Box<RawValue>]) -> String {
    let texts: Vec<&str> = values.iter().map(|value| value.get()).collect();
    format!("[{}]", texts.join(","))
}
