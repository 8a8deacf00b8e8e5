//! Batches: many jobs from one call. A batch is a hash that counts its lines, and a list of ended jobs. The lines and
//! their results are in S3.
//!
//! Every transition is a script that checks the state before it acts, so any number of replicas can work on a batch at
//! once. Lines are fed once ([`crate::RedisQueue::feed`]). Ends are counted in the commit that ends the job, and
//! collected once.

mod calls;
mod model;
mod record;

use std::collections::HashMap;

use redis::AsyncCommands;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::costs::Forecast;
use crate::error::Error;
use crate::id::JobId;
use crate::job::JobState;
use crate::keys::Keys;

pub use calls::{Created, Stopped, Verdict};
pub use model::{
    Batch, BatchBudget, BatchPage, BatchSpec, BatchState, EndedLine, FeedPosition, LineError, LineFormat, NewBatch,
    OnInvalid, OpenAiBatch, Source, StopReason,
};

/// Number of invalid lines that a batch lists; its file of errors has all of them.
pub const ERRORS_SHOWN: usize = 20;

/// Maximum number of batches that have not ended, of all tenants together.
const OPEN_MAX: u32 = 10_000;

/// Maximum number of open batches of one tenant.
const OPEN_OF_TENANT_MAX: u32 = 1_000;

/// Number of batches that a tenant can open although there are [`OPEN_MAX`] already.
const OPEN_RESERVED: u32 = 10;

/// Number of batches that a tenant's list keeps.
const LISTED_MAX: u32 = 10_000;

/// Number of records per round trip. With results of 16 KiB and tracebacks, a reply has a few MB.
const RECORDS_AT_ONCE: usize = 100;

/// Maximum number of batches that one list call reads, however few match.
const LIST_SCAN_MAX: usize = 1_000;
const LIST_STEP: usize = 100;

/// The batches of one queue. Clones share its connection.
#[derive(Clone)]
pub struct Batches {
    connection: Connection,
    keys: Keys,
    clock: Clock,
}

impl Batches {
    pub(crate) fn new(connection: Connection, keys: Keys, clock: Clock) -> Self {
        Self { connection, keys, clock }
    }

    /// The current state of a batch.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Corrupt`].
    pub async fn get(&self, id: &str) -> Result<Option<Batch>, Error> {
        let fields: HashMap<String, String> =
            self.connection.redis().hgetall(self.keys.batch(id)).await.map_err(Error::redis("read a batch"))?;
        record::decode(id, &fields)
    }

    /// A tenant's batches, newest first; `cursor` is the last id of the page before.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Corrupt`].
    pub async fn list(
        &self,
        tenant: &str,
        state: Option<BatchState>,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<BatchPage, Error> {
        let (limit, mut redis) = (limit as usize, self.connection.long());
        let mut before = cursor.map_or_else(|| "+".to_owned(), |id| format!("({id}"));
        let (mut batches, mut scanned) = (Vec::new(), 0);
        loop {
            let ids: Vec<String> = redis
                .zrevrangebylex_limit(self.keys.batches_of(tenant), &before, "-", 0, LIST_STEP.cast_signed())
                .await
                .map_err(Error::redis("list batches"))?;
            let mut pipe = redis::pipe();
            for id in &ids {
                pipe.hgetall(self.keys.batch(id));
            }
            let rows: Vec<Option<HashMap<String, String>>> =
                redis.read_each(&mut pipe).await.map_err(Error::redis("list batches"))?;
            for (id, row) in ids.iter().zip(&rows) {
                let Some(batch) = row.as_ref().and_then(|row| readable(id, row)) else { continue };
                if state.is_none_or(|wanted| wanted == batch.state) {
                    batches.push(batch);
                }
                if batches.len() == limit {
                    return Ok(BatchPage { batches, next_cursor: Some(id.clone()) });
                }
            }
            scanned += ids.len();
            let last = ids.last().filter(|_| ids.len() == LIST_STEP).cloned();
            match last {
                Some(last) if scanned < LIST_SCAN_MAX => before = format!("({last}"),
                next_cursor => return Ok(BatchPage { batches, next_cursor }),
            }
        }
    }

    /// The batches that have not ended, oldest first.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn open(&self) -> Result<Vec<String>, Error> {
        let last = isize::try_from(OPEN_MAX).unwrap_or(isize::MAX);
        self.connection.redis().zrange(self.keys.batches(), 0, last).await.map_err(Error::redis("list open batches"))
    }

    /// The number of collected jobs, and the next ended jobs that are not collected, at most `count`.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn uncollected(&self, id: &str, count: usize) -> Result<(u64, Vec<JobId>), Error> {
        let (key, last) = (self.keys.batch(id), count.cast_signed() - 1);
        let (collected, ids): (Option<u64>, Vec<String>) = redis::pipe()
            .atomic()
            .hget(&key, "collected")
            .lrange(self.keys.batch_ended(id), 0, last)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read the ended lines of a batch"))?;
        Ok((collected.unwrap_or(0), job_ids(&ids)?))
    }

    /// Names of parts from number `from` on, and the ended jobs that are in none of them. They come from one read, so
    /// that every ended job is in exactly one of the two.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn parts(&self, id: &str, from: usize) -> Result<(Vec<String>, Vec<JobId>), Error> {
        let (parts, ids): (Vec<String>, Vec<String>) = redis::pipe()
            .atomic()
            .lrange(self.keys.batch_parts(id), from.cast_signed(), -1)
            .lrange(self.keys.batch_ended(id), 0, -1)
            .query_async(&mut self.connection.long())
            .await
            .map_err(Error::redis("read the parts of a batch"))?;
        Ok((parts, job_ids(&ids)?))
    }

    /// The results of these jobs, if their records still exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Corrupt`].
    pub async fn ended_lines(&self, ids: &[JobId]) -> Result<Vec<EndedLine>, Error> {
        let mut lines = Vec::with_capacity(ids.len());
        for ids in ids.chunks(RECORDS_AT_ONCE) {
            let mut pipe = redis::pipe();
            for id in ids {
                pipe.hmget(self.keys.job(*id), &record::LINE_FIELDS);
            }
            let rows: Vec<Option<Vec<Option<String>>>> =
                self.connection.long().read_each(&mut pipe).await.map_err(Error::redis("read ended jobs"))?;
            let rows: Vec<Vec<Option<String>>> = rows.into_iter().map(Option::unwrap_or_default).collect();
            let later = self.later_attempts(ids, &rows).await?;
            for ((id, row), later) in ids.iter().zip(rows).zip(later) {
                match record::ended_line(*id, row, later) {
                    Ok(line) => lines.extend(line),
                    // The other lines are intact. Waiting for this one would withhold them forever.
                    Err(error) => {
                        tracing::error!(job.id = %id, error = &error as &dyn std::error::Error, "a line of a batch cannot be read; leaving it out of the results");
                    }
                }
            }
        }
        Ok(lines)
    }

    /// Reads the last attempts of the jobs that had several.
    async fn later_attempts(&self, ids: &[JobId], rows: &[Vec<Option<String>>]) -> Result<Vec<Option<String>>, Error> {
        let (mut pipe, mut found) = (redis::pipe(), vec![None; ids.len()]);
        let mut places = Vec::new();
        for (place, (id, row)) in ids.iter().zip(rows).enumerate() {
            if let Some(field) = record::later_attempt(row) {
                pipe.hget(self.keys.job(*id), field);
                places.push(place);
            }
        }
        if !places.is_empty() {
            let attempts: Vec<Option<String>> = pipe
                .query_async(&mut self.connection.long())
                .await
                .map_err(Error::redis("read the last attempts of jobs"))?;
            for (place, attempt) in places.into_iter().zip(attempts) {
                found[place] = attempt;
            }
        }
        Ok(found)
    }

    /// The states of these jobs; `None` for those not in the queue.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn states(&self, ids: &[JobId]) -> Result<Vec<Option<JobState>>, Error> {
        let mut pipe = redis::pipe();
        for id in ids {
            pipe.hget(self.keys.job(*id), "state");
        }
        let words: Vec<Option<String>> =
            pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("check jobs"))?;
        Ok(words.iter().map(|word| word.as_deref().and_then(JobState::from_word)).collect())
    }

    /// Stores the position at which the feeder continues.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn note_place(&self, id: &str, place: FeedPosition) -> Result<(), Error> {
        self.note(id, "place", format!("{} {} {}", place.jobs, place.lines, place.bytes)).await
    }

    /// Stores the samples for the rate of the batch.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn note_samples(&self, id: &str, samples: &[(u64, u64)]) -> Result<(), Error> {
        let samples: Vec<String> = samples.iter().map(|(ms, ended)| format!("{ms}:{ended}")).collect();
        self.note(id, "samples", samples.join(" ")).await
    }

    /// Stores the cost forecast of the batch.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn note_forecast(&self, id: &str, forecast: &Forecast) -> Result<(), Error> {
        self.note(id, "forecast", calls::json(forecast)?).await
    }

    /// Ended batches whose cleanup is due by `now_ms`, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn untidy(&self, now_ms: u64, limit: isize) -> Result<Vec<String>, Error> {
        let mut redis = self.connection.redis();
        let due = redis.zrangebyscore_limit(self.keys.batches_tidy(), "-inf", now_ms, 0, limit);
        due.await.map_err(Error::redis("list ended batches"))
    }

    /// Records that the parts of a batch are deleted, and schedules the deletion of its record for `forget_ms`.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn tidied(&self, id: &str, forget_ms: u64) -> Result<(), Error> {
        redis::pipe()
            .atomic()
            .hset(self.keys.batch(id), "tidied", 1)
            .del(self.keys.batch_parts(id))
            .zadd(self.keys.batches_tidy(), id, forget_ms)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("clean up a batch"))
    }

    /// Postpones the cleanup of an ended batch to `at_ms`, so that others have their turn.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn tidy_later(&self, id: &str, at_ms: u64) -> Result<(), Error> {
        let mut call = redis::cmd("ZADD");
        call.arg(self.keys.batches_tidy()).arg("XX").arg(at_ms).arg(id);
        let later: Result<u32, _> = call.query_async(&mut self.connection.redis()).await;
        later.map(drop).map_err(Error::redis("clean up a batch"))
    }

    /// Deletes the record of an ended batch. Its objects in S3 must be deleted already.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn forget(&self, tenant: &str, id: &str) -> Result<(), Error> {
        redis::pipe()
            .atomic()
            .del(vec![self.keys.batch(id), self.keys.batch_parts(id), self.keys.batch_ended(id)])
            .zrem(self.keys.batches_of(tenant), id)
            .zrem(self.keys.batches_tidy(), id)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("delete a batch"))
    }
}

/// A batch of a list. A corrupt record is left out, so that it does not hide the others.
fn readable(id: &str, fields: &HashMap<String, String>) -> Option<Batch> {
    record::decode(id, fields).unwrap_or_else(|error| {
        tracing::error!(
            batch.id = id,
            error = &error as &dyn std::error::Error,
            "a batch cannot be read; leaving it out of a list"
        );
        None
    })
}

fn job_ids(texts: &[String]) -> Result<Vec<JobId>, Error> {
    let id = |text: &String| {
        text.parse().map_err(|_| Error::Corrupt { key: "a batch's ended jobs".to_owned(), why: format!("{text:?}") })
    };
    texts.iter().map(id).collect()
}
