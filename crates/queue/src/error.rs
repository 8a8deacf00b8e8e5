//! The errors of the queue: one variant for each distinct reaction of a caller.

/// The queue's error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The outcome is unknown. Each verb documents whether a retry is safe.
    #[error("the queue is unavailable: failed to {step}")]
    Unavailable {
        /// The failed step; completes "failed to ...".
        step: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing happened: a limit on the whole queue is reached.
    #[error("the queue is full")]
    Full,
    /// Nothing happened: the queue accepts no new work at present.
    #[error("the queue accepts no new work: {0}")]
    Closed(String),
    /// The idempotency key was used with another request.
    #[error("idempotency key {key:?} was used with another request")]
    IdempotencyConflict {
        /// The key.
        key: String,
    },
    /// Nothing happened: another replica has fed this part of the batch, or the batch no longer exists.
    #[error("another replica has already fed this part of the batch")]
    StaleGuard,
    /// Nothing happened: the job depends on one that is not in the queue.
    #[error("job {job} is not in the queue")]
    NoDependency {
        /// Index of the dependent job, from 0.
        number: usize,
        /// Id of the missing job.
        job: String,
    },
    /// Nothing happened: the limit of open jobs is reached.
    #[error("{scope} has {open} open jobs, and its limit is {most}")]
    Quota {
        /// The limit scope: `t:<tenant>` or `e:<tenant>:<endpoint>`.
        scope: String,
        /// The limit.
        most: u64,
        /// Number of open jobs.
        open: u64,
    },
    /// Nothing happened: the records of the tenant's jobs use up its share of Redis memory.
    #[error("the records of tenant {tenant:?} use {held_bytes} bytes of Redis memory, and its limit is {most_bytes}")]
    Memory {
        /// The tenant.
        tenant: String,
        /// The limit, bytes.
        most_bytes: u64,
        /// The memory in use, bytes.
        held_bytes: u64,
    },
    /// A stored value that this version cannot read.
    #[error("{key} holds a value that this version cannot read: {why}")]
    Corrupt {
        /// The key that holds the value.
        key: String,
        /// Description of the error.
        why: String,
    },
    /// Redis or the configuration does not allow correct operation.
    #[error("{0}")]
    Unfit(String),
    /// A list, text or number exceeds its limit.
    #[error("{0}")]
    TooLarge(String),
}

/// Redis's error code for a key of another type than the command expects.
pub(crate) const WRONG_TYPE: &str = "WRONGTYPE";

impl Error {
    /// The error for a tenant or a job on a shard that this process is not configured for.
    pub(crate) fn no_shard(shard: u8) -> Self {
        Self::Unfit(format!(
            "this is on shard {shard}, but shards (STOKE_REDIS_SHARDS) is set to {shard} or less; set it to the same value on every process"
        ))
    }

    /// The error for a queue into which a backup is being restored, or whose restore was interrupted.
    pub(crate) fn half(backup: &str) -> Self {
        Self::Unfit(format!(
            "the backup {backup} is being restored into this queue, or its restore was interrupted; wait for it to end, or empty this Redis and restore again"
        ))
    }

    /// The error if no shard has a connection.
    pub(crate) fn away() -> Self {
        Self::Unavailable { step: "reach a shard", source: "no shard has a connection".into() }
    }

    /// Converts an error of Redis. `step` completes "failed to ...".
    pub(crate) fn redis(step: &'static str) -> impl Fn(redis::RedisError) -> Self {
        move |error| {
            crate::metrics::redis_failed(error.code());
            match error.code() {
                Some("OOM") => Self::Closed("Redis is out of memory".to_owned()),
                Some("MISCONF") => Self::Closed("Redis cannot write to its disk".to_owned()),
                Some("NOREPLICAS") => Self::Closed("Redis has too few replicas in sync".to_owned()),
                // A retry does not help.
                Some(WRONG_TYPE) => Self::Corrupt { key: format!("a key needed to {step}"), why: error.to_string() },
                _ => Self::Unavailable { step, source: Box::new(error) },
            }
        }
    }
}
