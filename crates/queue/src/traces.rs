//! The traces to export: the ids of ended jobs, written by the script that ends them. An exporting replica claims some
//! of them for a limited time and removes those that were delivered. If it dies in between, the claim expires and
//! another replica takes them.

use redis::AsyncCommands;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::keys::Keys;
use crate::scripts::TRACE_CLAIM;

/// Maximum number of traces in one claim.
pub const CLAIM_MAX: usize = 100;

/// Maximum number of traces that wait on a shard: a minute of a busy queue. About 1 MB of Redis.
const WAITING_MAX: usize = 10_000;

/// Time for which scripts record ended jobs after the last claim: longer than a replica needs to restart.
const EXPORTED_MS: u64 = 60_000;

/// The result of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimedTraces {
    /// The jobs.
    pub jobs: Vec<JobId>,
    /// Traces that were dropped because too many wait.
    pub dropped: u64,
}

/// The traces of one shard. Clones share its connection.
#[derive(Clone)]
pub struct Traces {
    connection: Connection,
    keys: Keys,
    clock: Clock,
}

impl Traces {
    pub(crate) fn new(connection: Connection, keys: Keys, clock: Clock) -> Self {
        Self { connection, keys, clock }
    }

    /// Claims up to `most` due traces. Each becomes due again after `visibility_ms` unless it is deleted by then.
    /// Scripts record further traces as long as there are claims.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; claimed traces become due again when the claim expires.
    pub async fn claim(&self, most: usize, visibility_ms: u64) -> Result<ClaimedTraces, Error> {
        let mut call = TRACE_CLAIM.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(most.min(CLAIM_MAX)).arg(visibility_ms).arg(WAITING_MAX).arg(EXPORTED_MS);
        let reply: Vec<String> = self.connection.eval(&TRACE_CLAIM, &call).await?;
        let mut reply = reply.iter();
        let dropped = reply.next().and_then(|dropped| dropped.parse().ok()).unwrap_or_default();
        // Only scripts write this key, and they write ids.
        Ok(ClaimedTraces { jobs: reply.filter_map(|id| id.parse().ok()).collect(), dropped })
    }

    /// Makes traces due again at `at_ms`.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: traces that were not postponed become due again when their claim expires.
    pub async fn put_off(&self, jobs: &[JobId], at_ms: u64) -> Result<(), Error> {
        if jobs.is_empty() {
            return Ok(());
        }
        let mut call = redis::cmd("ZADD");
        call.arg(self.keys.traces()).arg("XX");
        for job in jobs {
            call.arg(at_ms).arg(job.to_string());
        }
        let put_off: Result<u32, _> = call.query_async(&mut self.connection.redis()).await;
        put_off.map(|_| ()).map_err(Error::redis("postpone traces"))
    }

    /// Removes traces from the list: they were delivered, or never will be.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; traces that are still listed become due again.
    pub async fn forget(&self, jobs: &[JobId]) -> Result<(), Error> {
        if jobs.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = jobs.iter().map(JobId::to_string).collect();
        let forgotten: Result<u32, _> = self.connection.redis().zrem(self.keys.traces(), ids).await;
        forgotten.map(|_| ()).map_err(Error::redis("forget traces"))
    }
}
