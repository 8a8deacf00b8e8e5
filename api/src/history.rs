//! Ended jobs after their time in Redis: they are archived in the object store and found there by name alone.
//!
//! [`Sweeper`] moves them there, [`History`] finds them. A job is archived before it is deleted from Redis, so at every
//! moment it is in one of the two or in both; readers query Redis first.

mod compact;
mod find;
mod segment;
mod shelf;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_objects::{Error as ObjectsError, Objects};
use stokehold_queue::job::Job;
use stokehold_queue::queue::ListFilter;
use stokehold_queue::{Error as QueueError, JobId, Queue};
use time::Date;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

use crate::database;
use crate::database::Database;
use segment::Segment;
use shelf::Listing;

pub(crate) use sweep::Sweeper;

/// Unpacked segments kept in memory, bytes.
const CACHE_BYTES: u64 = 64 << 20;

/// Names of segments kept in memory; a name takes about 100 bytes.
const CACHED_NAMES: u64 = 100_000;

/// Cache time of a day's names; not used to conclude that a job does not exist.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// Segments that one replica reads concurrently; each takes up to [`segment::READ_MAX`] while it is unpacked.
const LOADS_AT_ONCE: usize = 8;

/// Timeout of a client's request to the archive.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Reasons for which the archive could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The object store failed. No data was lost; a retry may succeed.
    #[error("the archive's object store failed")]
    Objects(#[from] ObjectsError),
    /// The queue failed. No data was lost; a retry may succeed.
    #[error("the queue failed")]
    Queue(#[from] QueueError),
    /// The archive contains invalid data. An operator has to examine it.
    #[error("{key} cannot be read: {why}")]
    Corrupt {
        /// Key of the object.
        key: String,
        /// Reason.
        why: String,
    },
    /// A call of the queue did not answer in time, or failed. No data was lost; a retry may succeed.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// The archive did not answer in time; a retry may succeed.
    #[error("failed to {step}: the archive did not answer in time")]
    Timeout {
        /// The step that failed.
        step: &'static str,
    },
    /// Segments were replaced again and again while they were read; a retry may succeed.
    #[error("the archive of {0} changes faster than it can be read")]
    Restless(String),
}

/// The archive of all tenants. Its state is only a cache, which other replicas do not need.
pub(crate) struct History {
    objects: Objects,
    listings: Cache<(String, Date), Arc<Listing>>,
    /// Locks by the hash of tenant and day. A request holds one while it lists a day, so that concurrent requests for
    /// the same day cause one listing.
    turns: [Mutex<()>; 16],
    segments: Cache<String, Arc<Segment>>,
    loads: Semaphore,
}

impl History {
    pub(crate) fn new(objects: Objects) -> Self {
        let weigh = |_: &String, segment: &Arc<Segment>| segment.weight();
        let count =
            |_: &(String, Date), listing: &Arc<Listing>| u32::try_from(listing.names.len() + 1).unwrap_or(u32::MAX);
        Self {
            objects,
            listings: Cache::builder().weigher(count).max_capacity(CACHED_NAMES).time_to_live(CACHE_TTL).build(),
            turns: std::array::from_fn(|_| Mutex::new(())),
            segments: Cache::builder().weigher(weigh).max_capacity(CACHE_BYTES).build(),
            loads: Semaphore::new(LOADS_AT_ONCE),
        }
    }
}

/// Position in the archive at which a list continues: before this job, or at the newest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor(pub(crate) Option<JobId>);

impl Cursor {
    /// Parses `h:` and an ID.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("h:")? {
            "" => Some(Self(None)),
            id => id.parse().ok().map(|id| Self(Some(id))),
        }
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("h:")?;
        self.0.map_or(Ok(()), |id| write!(f, "{id}"))
    }
}

/// The jobs of all tenants, in the queue or in the archive.
pub(crate) struct Jobs {
    db: Arc<Database>,
    history: Arc<History>,
}

impl Jobs {
    pub(crate) fn new(db: Arc<Database>, history: Arc<History>) -> Self {
        Self { db, history }
    }

    /// A tenant's job, in the queue or in the archive.
    pub(crate) async fn find(&self, tenant: &str, id: JobId) -> Result<Option<Job>, Error> {
        if let Some(job) = self.db.ask("read a job", self.db.queue.get(id)).await? {
            return Ok(Some(job).filter(|job| job.spec.tenant == tenant));
        }
        // Boxed: every route that reads a job would include its size, and few requests get here.
        self.ask_archive("find a job", Box::pin(self.history.get(tenant, id))).await
    }

    /// One page of a tenant's archived jobs, newest first. Omits those that are still in the queue, where readers of a
    /// whole list have already seen them.
    pub(crate) async fn archived(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<(Vec<Job>, Option<Cursor>), Error> {
        let (mut jobs, next) =
            self.ask_archive("list jobs", Box::pin(self.history.list(tenant, filter, cursor, limit))).await?;
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        if !ids.is_empty() {
            let mut present =
                self.db.ask("search the jobs", self.db.home(tenant).await?.history().present(&ids)).await?.into_iter();
            jobs.retain(|_| !present.next().unwrap_or(false));
        }
        Ok((jobs, next))
    }

    /// Queries the archive, for at most as long as a client should wait for it.
    async fn ask_archive<T>(
        &self,
        step: &'static str,
        question: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match timeout(TIMEOUT, question).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Timeout { step }),
        }
    }
}
