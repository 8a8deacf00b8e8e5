//! Batches: one call, many jobs. A batch is a hash that counts its lines, and a list of those that have ended; what its lines are
//! and what became of them lies in S3.
//!
//! Every move is a script that looks before it acts, so that any number of replicas may work on a batch at once: lines are fed
//! once ([`crate::RedisQueue::feed`]), ends are counted where they happen, and written down once.

mod calls;
mod record;

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::error::Error;
use crate::id::JobId;
use crate::job::{BatchLine, Hook, Idempotency, JobError, JobResult, JobState, Priority};
use crate::keys::Keys;
use crate::scripts::Connection;

pub use calls::{Created, Stopped, Verdict};

/// A batch names at most this many wrong lines; the rest is in its errors.
pub const ERRORS_SHOWN: usize = 20;

/// Batches that have not ended, of all tenants together.
const OPEN_MAX: u32 = 10_000;

/// Batches that a tenant's list goes back.
const LISTED_MAX: u32 = 10_000;

/// Records asked for in one round trip: results of 16 KiB and tracebacks, so a few MB.
const RECORDS_AT_ONCE: usize = 100;

/// A list looks at this many batches a call, however few match.
const LIST_SCAN_MAX: usize = 1_000;
const LIST_STEP: usize = 100;

/// What a batch's owner fixed once and for all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BatchSpec {
    /// Whose it is.
    pub tenant: String,
    /// What its lines run on, unless they say otherwise.
    pub endpoint: String,
    /// When it was made, unix milliseconds: part of its jobs' ids.
    pub created_ms: u64,
    /// How urgent its jobs are.
    pub priority: Priority,
    /// What wrong lines mean for it.
    pub on_invalid: OnInvalid,
    /// How its lines are written.
    pub format: LineFormat,
    /// Where its lines come from.
    pub source: Source,
    /// The owner's own labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Longest one attempt may run, seconds; the endpoint's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Attempts of a line; the endpoint's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// It must have ended by then, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The batch whose failed lines these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
    /// Whom to tell of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
}

/// What wrong lines mean for their batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalid {
    /// None of it runs.
    #[default]
    Fail,
    /// The others run.
    Skip,
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineFormat {
    /// As each line shows.
    #[default]
    Auto,
    /// `{"custom_id", "input", "endpoint", "metadata"}`.
    Stokehold,
    /// `{"custom_id", "method", "url", "body"}`.
    Openai,
}

/// Where the lines of a batch come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// They lie where the batch's `input` says.
    Uploaded,
    /// An object in S3, still to be copied.
    Object {
        /// Its key.
        key: String,
    },
    /// The lines of another batch that failed or expired.
    Retry {
        /// That batch.
        batch: String,
    },
}

/// Where a batch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// Its lines are looked at; none runs yet.
    Validating,
    /// Its lines run.
    Running,
    /// All have ended; results and errors are put together.
    Finalizing,
    /// Every line has ended by itself.
    Completed,
    /// Its input was refused.
    Failed,
    /// Ended by its owner.
    Cancelled,
    /// Ended by its deadline.
    Expired,
}

impl BatchState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Validating,
        Self::Running,
        Self::Finalizing,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
    ];

    /// The word for it, in Redis and JSON alike.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Running => "running",
            Self::Finalizing => "finalizing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// The state a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether nothing moves it again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Validating | Self::Running | Self::Finalizing => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Expired => true,
        }
    }
}

/// Why lines that were not fed never will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Their owner said so.
    Cancelled,
    /// The deadline has passed.
    Expired,
}

impl Stop {
    /// What the lines are from then on.
    #[must_use]
    pub fn state(self) -> JobState {
        match self {
            Self::Cancelled => JobState::Cancelled,
            Self::Expired => JobState::Expired,
        }
    }
}

/// A wrong line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineError {
    /// From 1.
    pub line: u64,
    /// What is wrong with it.
    pub message: String,
}

/// A place in the input: where the feeder goes on. Behind the truth after a crash, never ahead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Jobs fed before it.
    pub jobs: u64,
    /// Lines before it.
    pub lines: u64,
    /// Bytes before it.
    pub bytes: u64,
}

/// A batch as it stands: one look, so that its counts add up.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `batch_<32 hex>`.
    pub id: String,
    /// The fixed part.
    pub spec: BatchSpec,
    /// Where it stands.
    pub state: BatchState,
    /// Lines seen so far.
    pub total: u64,
    /// Wrong ones among them.
    pub invalid: u64,
    /// Good lines that became jobs, or were called off.
    pub fed: u64,
    /// Good lines that became jobs, once the others were called off.
    pub handed: Option<u64>,
    /// Ended jobs that are written down.
    pub collected: u64,
    /// When that last happened, unix milliseconds.
    pub collected_ms: Option<u64>,
    /// Lines that ended so.
    pub succeeded: u64,
    /// Lines that ended so.
    pub failed: u64,
    /// Lines that ended so.
    pub cancelled: u64,
    /// Lines that ended so.
    pub expired: u64,
    /// Jobs that run at this moment.
    pub running: u64,
    /// Why it stops, once it does.
    pub stop: Option<Stop>,
    /// S3 key of its lines.
    pub input: Option<String>,
    /// S3 key of the bitmap of wrong lines.
    pub skip: Option<String>,
    /// The endpoint versions that its lines were held against.
    pub versions: BTreeMap<String, u32>,
    /// The first wrong lines.
    pub errors: Vec<LineError>,
    /// When its first line could run, unix milliseconds.
    pub started_ms: Option<u64>,
    /// When it ended, unix milliseconds.
    pub ended_ms: Option<u64>,
    /// Where the feeder goes on.
    pub place: Place,
    /// `(unix ms, lines ended)`, oldest first: what its pace is told by.
    pub samples: Vec<(u64, u64)>,
    /// Whether its parts were deleted.
    pub tidied: bool,
}

impl Batch {
    /// Good lines.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.total.saturating_sub(self.invalid)
    }

    /// Good lines that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled + self.expired
    }

    /// Good lines that have not.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.accepted().saturating_sub(self.ended())
    }

    /// The prefix in S3 of all that is its own.
    #[must_use]
    pub fn prefix(&self) -> String {
        Self::prefix_of(&self.spec.tenant, &self.id)
    }

    /// As [`Batch::prefix`], before there is one.
    #[must_use]
    pub fn prefix_of(tenant: &str, id: &str) -> String {
        format!("batches/{tenant}/{id}/")
    }
}

/// A batch as it is handed in.
#[derive(Debug, Clone)]
pub struct NewBatch {
    /// Its id; the caller makes it, so that an unknown outcome can be asked after.
    pub id: String,
    /// The fixed part.
    pub spec: BatchSpec,
    /// S3 key of its lines, when they are there already.
    pub input: Option<String>,
    /// A second create with this key in 24 hours gives the first one's batch.
    pub idempotency: Option<Idempotency>,
}

/// An ended job of a batch: what its line's result or error is made of.
#[derive(Debug, Clone)]
pub struct EndedLine {
    /// The job.
    pub id: JobId,
    /// How it ended.
    pub state: JobState,
    /// Which line it was.
    pub line: BatchLine,
    /// What it gave.
    pub result: Option<JobResult>,
    /// Why it failed.
    pub error: Option<JobError>,
}

/// One page of a list, newest first.
#[derive(Debug, Clone)]
pub struct BatchPage {
    /// The batches.
    pub batches: Vec<Batch>,
    /// Where the next page starts; `None` at the end. A page may be short, even empty, and still have a next one.
    pub next_cursor: Option<String>,
}

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

    /// A batch as it stands.
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
        let (limit, mut redis) = (limit as usize, self.connection.redis());
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
            let rows: Vec<HashMap<String, String>> = if ids.is_empty() {
                Vec::new()
            } else {
                pipe.query_async(&mut redis).await.map_err(Error::redis("list batches"))?
            };
            for (id, row) in ids.iter().zip(&rows) {
                let Some(batch) = record::decode(id, row)? else { continue };
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

    /// How many ended jobs are written down, and the next that are not, at most `count`.
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
            .map_err(Error::redis("read what has ended of a batch"))?;
        Ok((collected.unwrap_or(0), job_ids(&ids)?))
    }

    /// Names of parts from the number `from` on, and the ended jobs that are in none of them: one look, so that nothing is in both
    /// or in neither.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn parts(&self, id: &str, from: usize) -> Result<(Vec<String>, Vec<JobId>), Error> {
        let (parts, ids): (Vec<String>, Vec<String>) = redis::pipe()
            .atomic()
            .lrange(self.keys.batch_parts(id), from.cast_signed(), -1)
            .lrange(self.keys.batch_ended(id), 0, -1)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read the parts of a batch"))?;
        Ok((parts, job_ids(&ids)?))
    }

    /// What became of these jobs, as far as their records are still here.
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
            let rows: Vec<Vec<Option<String>>> =
                pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("read ended jobs"))?;
            for (id, row) in ids.iter().zip(rows) {
                lines.extend(record::ended_line(*id, row)?);
            }
        }
        Ok(lines)
    }

    /// Where these jobs stand; `None` for those that are not here.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn states(&self, ids: &[JobId]) -> Result<Vec<Option<JobState>>, Error> {
        let mut pipe = redis::pipe();
        for id in ids {
            pipe.hget(self.keys.job(*id), "state");
        }
        let words: Vec<Option<String>> =
            pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("look at jobs"))?;
        Ok(words.iter().map(|word| word.as_deref().and_then(JobState::from_word)).collect())
    }

    /// Remembers where the feeder goes on.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn note_place(&self, id: &str, place: Place) -> Result<(), Error> {
        self.note(id, "place", format!("{} {} {}", place.jobs, place.lines, place.bytes)).await
    }

    /// Remembers the batch's pace.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn note_samples(&self, id: &str, samples: &[(u64, u64)]) -> Result<(), Error> {
        let samples: Vec<String> = samples.iter().map(|(ms, ended)| format!("{ms}:{ended}")).collect();
        self.note(id, "samples", samples.join(" ")).await
    }

    async fn note(&self, id: &str, field: &str, value: String) -> Result<(), Error> {
        self.connection
            .redis()
            .hset(self.keys.batch(id), field, value)
            .await
            .map_err(Error::redis("note a batch's course"))
    }

    /// Ended batches with something to tidy away by `now_ms`, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn untidy(&self, now_ms: u64, limit: isize) -> Result<Vec<String>, Error> {
        let mut redis = self.connection.redis();
        let due = redis.zrangebyscore_limit(self.keys.batches_tidy(), "-inf", now_ms, 0, limit);
        due.await.map_err(Error::redis("list ended batches"))
    }

    /// Its parts are gone; the rest goes at `forget_ms`.
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
            .map_err(Error::redis("tidy a batch"))
    }

    /// Forgets an ended batch. What it has in S3 must be gone.
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
            .map_err(Error::redis("forget a batch"))
    }
}

fn job_ids(texts: &[String]) -> Result<Vec<JobId>, Error> {
    let id = |text: &String| {
        text.parse().map_err(|_| Error::Corrupt { key: "a batch's ended jobs".to_owned(), why: format!("{text:?}") })
    };
    texts.iter().map(id).collect()
}
