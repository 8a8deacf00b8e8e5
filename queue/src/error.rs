//! What can go wrong in the queue, one variant per thing a caller would do differently.

/// The queue's error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing can be said about whether it happened. Safe to repeat, as each verb says.
    #[error("the queue is unavailable: failed to {step}")]
    Unavailable {
        /// What was being done.
        step: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It certainly did not happen: there are as many as there may be.
    #[error("the queue is full")]
    Full,
    /// It certainly did not happen: no new work is taken at present.
    #[error("the queue takes no new work: {0}")]
    Closed(String),
    /// An idempotency key is known with another request.
    #[error("idempotency key {key:?} was used with another request")]
    IdempotencyConflict {
        /// The key.
        key: String,
    },
    /// It certainly did not happen: another replica has fed this part of the batch, or the batch is gone.
    #[error("another replica has fed the batch")]
    StaleGuard,
    /// It certainly did not happen: a job names one to wait for that is not in the queue.
    #[error("job {job} is not in the queue")]
    NoDependency {
        /// The number of the job that names it, from 0.
        number: usize,
        /// The one it names.
        job: String,
    },
    /// It certainly did not happen: there are as many open jobs as there may be.
    #[error("{open} of {most} jobs are open")]
    Quota {
        /// `t:<tenant>` or `e:<tenant>:<endpoint>`.
        gate: String,
        /// As many may be open.
        most: u64,
        /// As many are.
        open: u64,
    },
    /// It certainly did not happen: the records of the tenant's jobs take as much of Redis as they may.
    #[error("the jobs of tenant {tenant:?} take {held_bytes} of {most_bytes} bytes")]
    Memory {
        /// Whose.
        tenant: String,
        /// As much they may take.
        most_bytes: u64,
        /// As much they take.
        held_bytes: u64,
    },
    /// A stored value is not what this version writes.
    #[error("{key} holds a value that this version cannot read: {why}")]
    Corrupt {
        /// Where.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// Redis is set up so that promises cannot be kept.
    #[error("{0}")]
    Unfit(String),
    /// A list, text or number over its bound.
    #[error("{0}")]
    TooLarge(String),
}

/// Redis's code for a key that holds another type than the command is for.
#[cfg(feature = "redis")]
pub(crate) const WRONG_TYPE: &str = "WRONGTYPE";

#[cfg(feature = "redis")]
impl Error {
    /// A tenant or a job is on a shard that this process was not told of.
    pub(crate) fn no_shard(shard: u8) -> Self {
        Self::Unfit(format!(
            "this is on shard {shard}, but shards (STOKE_REDIS_SHARDS) is set to {shard} or less; set it to the same value on every process"
        ))
    }

    /// A backup has begun to be restored into it, and that has not ended.
    pub(crate) fn half(backup: &str) -> Self {
        Self::Unfit(format!(
            "the backup {backup} is being restored into this queue, or its restore was interrupted; wait for it to end, or empty this Redis and restore again"
        ))
    }

    /// No shard has a connection.
    pub(crate) fn away() -> Self {
        Self::Unavailable { step: "no shard has a connection", source: "none has a connection".into() }
    }

    /// How an error of Redis reads here. `step` completes "failed to ...".
    pub(crate) fn redis(step: &'static str) -> impl Fn(redis::RedisError) -> Self {
        move |error| {
            crate::metrics::redis_failed(error.code());
            match error.code() {
                Some("OOM") => Self::Closed("Redis is out of memory".to_owned()),
                Some("MISCONF") => Self::Closed("Redis cannot write to its disk".to_owned()),
                Some("NOREPLICAS") => Self::Closed("Redis has too few replicas in sync".to_owned()),
                // Asking again does not help.
                Some(WRONG_TYPE) => Self::Corrupt { key: format!("a key needed to {step}"), why: error.to_string() },
                _ => Self::Unavailable { step, source: Box::new(error) },
            }
        }
    }
}
