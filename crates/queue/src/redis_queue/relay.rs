//! Outputs that are relayed from the replica that receives them to the replicas whose clients read them. They are not
//! stored.

use redis::AsyncCommands;

use super::RedisQueue;
use crate::error::Error;
use crate::gateway::LeaseRef;
use crate::queue::RelayedOutputs;

/// A running attempt, and the replicas that watch its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedAttempt {
    /// The worker that runs it.
    pub worker_id: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// The names of the replicas.
    pub replicas: Vec<String>,
    /// Whether each output goes to a webhook.
    pub has_output_webhook: bool,
}

impl RedisQueue {
    /// The attempt under this lease; `None` if the lease is not valid now.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn watched_attempt(&self, lease: &LeaseRef) -> Result<Option<WatchedAttempt>, Error> {
        let mut read = redis::pipe();
        read.hmget(self.keys.job(lease.job_id), &["fence", "run", "attempt", "watch", "hook"]);
        let mut rows: Vec<Option<[Option<String>; 5]>> =
            self.connection.read_each(&mut read).await.map_err(Error::redis("read who watches a job"))?;
        let Some([Some(fence), Some(run), Some(attempt), watch, hook]) = rows.pop().flatten() else { return Ok(None) };
        let Some(attempt) = attempt.parse().ok().filter(|_| fence == lease.fence.0) else { return Ok(None) };
        let worker_id = run.split(' ').next().unwrap_or_default().to_owned();
        let watchers = watch.unwrap_or_default();
        let replicas = watchers.split(' ').filter_map(|entry| entry.split_once('=')).map(|(name, _)| name.to_owned());
        // The events, then the address.
        let events = hook.as_deref().and_then(|hook| hook.split(' ').next()).unwrap_or_default();
        let has_output_webhook = events.split(',').any(|event| event == "job.output");
        Ok(Some(WatchedAttempt { worker_id, attempt, replicas: replicas.collect(), has_output_webhook }))
    }

    /// Sends outputs to a replica, which receives them as [`Signal::Outputs`](crate::queue::Signal::Outputs) if it
    /// listens.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn relay(&self, replica: &str, outputs: &RelayedOutputs) -> Result<(), Error> {
        let channel = self.keys.signal(replica);
        let mut redis = self.connection.redis();
        redis.publish(channel, outputs.to_string()).await.map_err(Error::redis("relay outputs"))
    }
}
