//! The records in Redis: the queue and the registry, with a timeout on every call.

use std::time::Duration;

use stokehold_queue::{Clock, Error as QueueError, RedisQueue, Registry, Shards};
use tokio::time::timeout;

use crate::metrics;

/// Pause before a repeat, multiplied by a random factor from 0.5 to 1.5.
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// A call of the queue or the registry that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There was no answer in time. The outcome is unknown; repeat the call if that is safe.
    #[error("failed to {step}: the queue did not answer in time")]
    Timeout {
        /// The step that failed.
        step: &'static str,
    },
    /// The queue answered with an error, or could not be reached.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl Error {
    /// Returns whether the same call may succeed in a moment.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Queue(QueueError::Unavailable { .. } | QueueError::Closed(_) | QueueError::Full) => true,
            Self::Queue(_) => false,
        }
    }
}

/// The queue and the registry.
pub(crate) struct Database {
    pub(crate) queue: Shards,
    pub(crate) registry: Registry,
    timeout: QueueTimeout,
    clock: Clock,
}

impl Database {
    pub(crate) fn new(queue: Shards, timeout: QueueTimeout, clock: Clock) -> Self {
        Self { registry: queue.registry(), queue, timeout, clock }
    }

    /// The current time, Unix milliseconds, by the queue's clock; hourly and daily data use the same clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Runs a call of the queue or the registry with the timeout of a client's request.
    pub(crate) async fn ask<T>(
        &self,
        step: &'static str,
        question: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, Error> {
        self.timeout.ask(step, question).await
    }

    /// Like [`Database::ask`], for calls that are safe to repeat when their outcome is unknown: repeats up to twice
    /// within the same time.
    pub(crate) async fn ask_again<T, F>(&self, step: &'static str, question: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, QueueError>>,
    {
        let repeated = async {
            for _ in 0..2 {
                match question().await {
                    Err(QueueError::Unavailable { source, .. }) => {
                        tracing::warn!(step, %source, "the queue is unavailable, trying again");
                        tokio::time::sleep(REPEAT_PAUSE.mul_f64(0.5 + rand::random::<f64>())).await;
                    }
                    answer => return answer,
                }
            }
            question().await
        };
        self.ask(step, repeated).await
    }

    /// Runs calls one after the other within the timeout of one: a client whose request needs several does not wait that
    /// long for each.
    pub(crate) async fn within<T, E: From<Error>>(
        &self,
        step: &'static str,
        calls: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        timeout(self.timeout.0, calls).await.unwrap_or_else(|_| Err(late(step).into()))
    }

    /// The shard of a tenant.
    pub(crate) async fn home(&self, tenant: &str) -> Result<&RedisQueue, Error> {
        self.ask("find a tenant's shard", self.queue.of(tenant)).await
    }
}

/// Timeout of one call to the queue or the registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueTimeout(pub(crate) Duration);

impl QueueTimeout {
    /// Runs a call with the timeout; `step` completes "failed to ...".
    pub(crate) async fn ask<T>(
        self,
        step: &'static str,
        question: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, Error> {
        match timeout(self.0, question).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(late(step)),
        }
    }
}

fn late(step: &'static str) -> Error {
    metrics::queue_late();
    Error::Timeout { step }
}
