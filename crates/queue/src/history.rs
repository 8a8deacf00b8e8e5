//! Moves ended jobs out of Redis: finds those that are due, and deletes those that the caller has archived.

use std::collections::HashMap;

use redis::AsyncCommands;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::job::Job;
use crate::keys::Keys;
use crate::queue::BATCH_MAX;
use crate::record;
use crate::scripts;

/// Maximum number of jobs that one [`History::due`] reads.
pub const DUE_MAX: usize = 1_000;

/// Size of the records after which one `due` stops, bytes. A record has at most a few MiB.
pub const DUE_BYTES: usize = 8 << 20;

/// Number of records per round trip.
const STEP: usize = 20;

/// The ended jobs of a queue. Clones share its connection.
#[derive(Clone)]
pub struct History {
    connection: Connection,
    keys: Keys,
    clock: Clock,
}

/// Jobs that are due for archiving.
#[derive(Debug, Default)]
pub struct Due {
    /// The records, in the order in which they became due.
    pub jobs: Vec<Job>,
    /// Ids without a record: delete them, there is nothing to archive.
    pub gone: Vec<JobId>,
    /// Ids whose record cannot be read, and the error. They stay until an operator handles them. [`History::defer`]
    /// postpones them, so that later ones are read.
    pub corrupt: Vec<(JobId, Error)>,
    /// Whether more jobs are due.
    pub more: bool,
}

impl History {
    pub(crate) fn new(connection: Connection, keys: Keys, clock: Clock) -> Self {
        Self { connection, keys, clock }
    }

    /// Ended jobs whose retention is over, at most `most` ([`DUE_MAX`], and about [`DUE_BYTES`]). They stay until they
    /// are deleted with [`Self::forget`].
    ///
    /// # Errors
    /// [`Error::Unavailable`]: retry.
    pub async fn due(&self, most: usize) -> Result<Due, Error> {
        let most = most.min(DUE_MAX);
        let now = self.now_ms().await?;
        let ids: Vec<String> = redis::cmd("ZRANGEBYSCORE")
            .arg(self.keys.ended())
            .arg("-inf")
            .arg(now)
            .arg("LIMIT")
            .arg(0)
            .arg(most)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("find ended jobs"))?;
        // Only scripts write this key, and they write ids.
        let ids: Vec<JobId> = ids.iter().filter_map(|id| id.parse().ok()).collect();
        let (mut due, mut bytes, mut read) = (Due::default(), 0, 0);
        for step in ids.chunks(STEP) {
            if bytes >= DUE_BYTES {
                break;
            }
            let mut pipe = redis::pipe();
            for id in step {
                pipe.hgetall(self.keys.job(*id));
            }
            let records: Vec<Option<HashMap<String, String>>> =
                self.connection.read_each(&mut pipe).await.map_err(Error::redis("read ended jobs"))?;
            for (id, fields) in step.iter().zip(records) {
                let Some(fields) = fields else {
                    let why = "it is not a record".to_owned();
                    due.corrupt.push((*id, Error::Corrupt { key: format!("job {id}"), why }));
                    continue;
                };
                bytes += fields.values().map(String::len).sum::<usize>();
                match record::decode(*id, &fields) {
                    Ok(Some(job)) => due.jobs.push(job),
                    Ok(None) => due.gone.push(*id),
                    Err(error) => due.corrupt.push((*id, error)),
                }
            }
            read += step.len();
        }
        due.more = read < ids.len() || ids.len() == most;
        Ok(due)
    }

    /// The number of ended jobs that are due.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: retry.
    pub async fn count_due(&self) -> Result<u64, Error> {
        let now = self.now_ms().await?;
        let ended = self.keys.ended();
        self.connection.redis().zcount(ended, "-inf", now).await.map_err(Error::redis("count due jobs"))
    }

    /// Deletes ended jobs with all their data, and returns their number. A job that has not ended is left alone.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: some may be deleted; safe to retry.
    pub async fn forget(&self, ids: &[JobId]) -> Result<u32, Error> {
        let mut forgotten = 0;
        for ids in ids.chunks(BATCH_MAX) {
            forgotten += scripts::Forget { keys: &self.keys, ids }.run(&self.connection).await?;
        }
        Ok(forgotten)
    }

    /// Makes ended jobs due again `by_ms` from now.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry.
    pub async fn defer(&self, ids: &[JobId], by_ms: u64) -> Result<(), Error> {
        let due = self.now_ms().await?.saturating_add(by_ms);
        for ids in ids.chunks(BATCH_MAX) {
            let mut call = redis::cmd("ZADD");
            call.arg(self.keys.ended()).arg("XX");
            for id in ids {
                call.arg(due).arg(id.to_string());
            }
            let _: u32 =
                call.query_async(&mut self.connection.redis()).await.map_err(Error::redis("defer ended jobs"))?;
        }
        Ok(())
    }

    /// Whether the queue still has each of these jobs, in order.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: retry.
    pub async fn present(&self, ids: &[JobId]) -> Result<Vec<bool>, Error> {
        let mut present = Vec::with_capacity(ids.len());
        for ids in ids.chunks(DUE_MAX) {
            let mut pipe = redis::pipe();
            for id in ids {
                pipe.exists(self.keys.job(*id));
            }
            let found: Vec<bool> =
                pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("search the jobs"))?;
            present.extend(found);
        }
        Ok(present)
    }

    /// The number of ended jobs in the queue, due or not.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: retry.
    pub async fn waiting(&self) -> Result<u64, Error> {
        self.connection.redis().zcard(self.keys.ended()).await.map_err(Error::redis("count ended jobs"))
    }

    /// The current time by the clock that the scripts read.
    async fn now_ms(&self) -> Result<u64, Error> {
        self.connection.now_ms(&self.clock).await
    }
}
