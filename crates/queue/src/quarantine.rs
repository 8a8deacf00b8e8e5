//! Jobs whose records cannot be read. A script that fails on such a job removes it from every set that would process it
//! again (lua/lib/quarantine.lua) and continues with the others. The job stays in the quarantine until an operator
//! readmits or ends it.

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::job::JobState;
use crate::keys::{self, Keys};
use crate::record;
use crate::scripts;

/// Maximum number of jobs that one [`Quarantine::list`] reads.
pub const LIST_MAX: usize = 1_000;

/// A job in the quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The job.
    pub id: JobId,
    /// Time of the quarantine, Unix milliseconds.
    pub since_ms: u64,
    /// Description of the unreadable part, or the error message; at most 300 bytes.
    pub why: String,
    /// The state before, if the record has it.
    pub state: Option<JobState>,
    /// The tenant, if the record has it.
    pub tenant: Option<String>,
    /// The endpoint, if the record has it.
    pub endpoint: Option<String>,
}

/// The outcome of [`Quarantine::readmit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readmitted {
    /// The job is in this state now.
    Ok(JobState),
    /// The record still cannot be read, for this reason. The job stays in the quarantine.
    Unreadable(String),
    /// The job is not in the quarantine.
    NotFound,
}

/// The outcome of [`Quarantine::discard`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discarded {
    /// The job has failed, and the jobs that wait for it are unblocked.
    Failed,
    /// The job is deleted, because its record did not allow it to fail or it had ended before.
    Deleted,
    /// The job is not in the quarantine.
    NotFound,
}

/// The quarantine of one shard. Clones share its connection.
#[derive(Clone)]
pub struct Quarantine {
    connection: Connection,
    keys: Keys,
    clock: Clock,
    retention_ms: u64,
}

impl Quarantine {
    pub(crate) fn new(connection: Connection, keys: Keys, clock: Clock, retention_ms: u64) -> Self {
        Self { connection, keys, clock, retention_ms }
    }

    /// The number of jobs in the quarantine.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn count(&self) -> Result<u64, Error> {
        let jobs = self.connection.redis().zcard(self.keys.quarantine()).await;
        jobs.map_err(Error::redis("count quarantined jobs"))
    }

    /// Number of failures of each part of a script that belongs to no single job, by its name.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn faults(&self) -> Result<BTreeMap<String, u64>, Error> {
        self.connection.redis().hgetall(self.keys.faults()).await.map_err(Error::redis("count script faults"))
    }

    /// The jobs that have been in the quarantine longest, at most `most` ([`LIST_MAX`]).
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn list(&self, most: usize) -> Result<Vec<Quarantined>, Error> {
        let (mut redis, step) = (self.connection.redis(), "list quarantined jobs");
        let last = most.min(LIST_MAX).cast_signed() - 1;
        let rows: Vec<(String, f64)> = match last {
            ..0 => Vec::new(),
            _ => redis.zrange_withscores(self.keys.quarantine(), 0, last).await.map_err(Error::redis(step))?,
        };
        // Only scripts write this key, and they write ids.
        let rows: Vec<(JobId, f64)> = rows.iter().filter_map(|(id, since)| Some((id.parse().ok()?, *since))).collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(self.keys.quarantine_why());
        for (id, _) in &rows {
            pipe.arg(id.to_string());
        }
        let (whys,): (Vec<Option<String>>,) = pipe.query_async(&mut redis).await.map_err(Error::redis(step))?;
        let mut jobs = Vec::with_capacity(rows.len());
        for ((id, since), why) in rows.into_iter().zip(whys) {
            // Each record is read separately, so that a key of another type fails only its own read.
            let [state, lane]: [Option<String>; 2] =
                redis.hmget(self.keys.job(id), &["quarantined", "lane"]).await.unwrap_or_default();
            let lane = lane.as_deref().and_then(keys::parse_lane);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "unix ms fits a double's 53 bits"
            )]
            let since_ms = since as u64;
            jobs.push(Quarantined {
                id,
                since_ms,
                why: why.unwrap_or_default(),
                state: state.as_deref().and_then(JobState::from_word),
                tenant: lane.map(|(.., tenant, _)| tenant.to_owned()),
                endpoint: lane.map(|(.., endpoint)| endpoint.to_owned()),
            });
        }
        Ok(jobs)
    }

    /// Quarantines a job whose record the caller cannot read: removes it from every set that would process it again.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; safe to retry.
    pub async fn put(&self, id: JobId, why: &str) -> Result<(), Error> {
        tracing::error!(job.id = %id, why, "a job's record cannot be read; moving the job to the quarantine");
        let Self { connection, keys, clock, .. } = self;
        scripts::Put { keys, clock, id: &id.to_string(), why }.run(connection).await
    }

    /// Readmits a job: it is requeued in its lane, even if it was running. The cause of the failure must be repaired,
    /// or must not have been in the record.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; safe to retry.
    pub async fn readmit(&self, id: JobId) -> Result<Readmitted, Error> {
        let Self { connection, keys, clock, retention_ms } = self;
        scripts::Readmit { keys, clock, retention_ms: *retention_ms, id }.run(connection).await
    }

    /// Ends a job as failed. If its record does not allow that, the record and all references to it are deleted.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; safe to retry.
    pub async fn discard(&self, id: JobId) -> Result<Discarded, Error> {
        let Self { connection, keys, clock, retention_ms } = self;
        let fields: Result<HashMap<String, String>, _> = connection.redis().hgetall(keys.job(id)).await;
        let delete = !record::is_readable_once_failed(id, fields.unwrap_or_default());
        scripts::Discard { keys, clock, retention_ms: *retention_ms, id, delete }.run(connection).await
    }
}
