//! Writes a backup into an empty queue and makes its jobs continue.
//!
//! The copy is faithful, leases included. Then every lease is released with the verb that workers use, at the time of
//! the copy: the job is requeued under another fence, the attempt is closed, and its slots are free. A lease from
//! before, or from a time after the backup, can end nothing, because the random part of its fence is unique. From the
//! first key to the last, a mark keeps the API from starting on a half-restored queue.

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;

use super::census::{Census, job_of};
use super::entry::{Content, Entry, Root};
use super::read::{Moment, Source, scan};
use super::write;
use crate::clock::{Clock, ManualClock, now_ms};
use crate::connection::{Connection, Location};
use crate::error::Error;
use crate::gateway::LeaseRef;
use crate::id::{Fence, JobId};
use crate::job::Job;
use crate::keys::{Keys, RegistryKeys};
use crate::queue::{BATCH_MAX, Queue};
use crate::record;
use crate::redis_queue::{RedisConfig, RedisQueue};

/// Maximum number of keys that an error names if the queue is not empty.
const NAMED_MAX: usize = 3;

/// Number of terms that are skipped, so that no previous autoscaler holds the next term.
const TERMS_AHEAD: u64 = 1_000;

/// Maximum number of corrupt records that are listed.
const CORRUPT_NAMED_MAX: usize = 10;

/// The queue to write a backup into.
pub struct Target {
    config: RedisConfig,
    place: Location,
    registry: Connection,
    shards: Vec<RedisQueue>,
}

/// The state of a queue after a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// Counts of the restored records.
    pub census: Census,
    /// Repairs made by the API's sweep; empty after an exact copy.
    pub repaired: BTreeMap<String, u64>,
    /// Jobs whose records this release cannot read, at most ten.
    pub unreadable: Vec<String>,
}

impl Target {
    /// Connects to every root.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the URL is invalid, [`Error::Unavailable`] if no server answers.
    pub async fn connect(config: RedisConfig) -> Result<Self, Error> {
        let place = Location::parse(&config.url)?;
        let registry = Connection::open(&place, RegistryKeys::new(&config.prefix).root(), config.long_calls).await?;
        let mut shards = Vec::new();
        for number in 0..config.shards {
            shards.push(RedisQueue::shard(&place, &registry, config.clone(), number).await?);
        }
        Ok(Self { config, place, registry, shards })
    }

    /// Returns some of the existing keys, at most three. If there are any, nothing may be written.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn occupied_by(&self) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        let shards = (0..self.config.shards).map(Root::Shard);
        for root in shards.chain([Root::Registry]) {
            let (mut redis, name, mut cursor) = (self.connection(root)?.redis(), self.root(root), 0);
            while found.len() < NAMED_MAX {
                let (next, keys) = scan(&mut redis, &name, cursor, 1_000).await?;
                found.extend(keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        found.truncate(NAMED_MAX);
        Ok(found)
    }

    /// Marks the queue as being restored from `backup`, which keeps the API from starting on it.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn begin(&self, backup: &str) -> Result<(), Error> {
        let key = RegistryKeys::new(&self.config.prefix).restoring();
        self.registry.redis().set(key, backup).await.map_err(Error::redis("mark the queue as being restored"))
    }

    /// Writes the entries that have not expired and returns the number of keys written. Writing an entry again has no
    /// effect.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Unfit`] for a shard that does not exist.
    pub async fn write(&self, entries: &[Entry]) -> Result<u64, Error> {
        let (now_ms, mut pipes, mut over) = (now_ms(), BTreeMap::new(), 0);
        for entry in entries {
            if entry.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms) {
                over += u64::from(!entry.is_more);
                continue;
            }
            let key = [self.root(entry.root).as_bytes(), b":", &entry.name.0].concat();
            write::write(pipes.entry(entry.root).or_insert_with(redis::pipe), &key, entry);
        }
        for (root, pipe) in pipes {
            let mut redis = self.connection(root)?.redis();
            pipe.query_async::<()>(&mut redis).await.map_err(Error::redis("write keys"))?;
        }
        Ok(over)
    }

    /// Ends the restore: releases every lease at the time of the copy, ends the term of the previous autoscaler, runs
    /// the API's sweep over every record, counts the records, and removes the mark.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Corrupt`].
    pub async fn end(&self, moments: &[Moment]) -> Result<Restored, Error> {
        for shard in &self.shards {
            let at_ms = moments.iter().find(|moment| moment.root == Root::Shard(shard.number()));
            // A shard that the backup did not have holds no leases.
            if let Some(moment) = at_ms {
                self.release(shard.number(), moment.at_ms).await?;
            }
        }
        self.depose().await?;
        let mut restored = Restored { repaired: self.sweep().await?, ..Restored::default() };
        let Restored { census, unreadable, .. } = &mut restored;
        let count = |entry: Entry| {
            census.note(&entry);
            if let Err(error) = job(&entry)
                && unreadable.len() < CORRUPT_NAMED_MAX
            {
                unreadable.push(error.to_string());
            }
            Ok::<(), Error>(())
        };
        Source::connect(&self.config).await?.read(None, count).await?;
        let mark = RegistryKeys::new(&self.config.prefix).restoring();
        let _: () = self.registry.redis().del(mark).await.map_err(Error::redis("remove the mark of the restore"))?;
        Ok(restored)
    }

    async fn release(&self, number: u8, at_ms: u64) -> Result<(), Error> {
        let keys = Keys::new(&self.config.prefix, number);
        let config = RedisConfig { clock: Clock::Manual(ManualClock::new(at_ms)), ..self.config.clone() };
        let shard = RedisQueue::shard(&self.place, &self.registry, config, number).await?;
        let (mut redis, step) = (self.connection(Root::Shard(number))?.redis(), "release the restored leases");
        loop {
            let held: Vec<String> =
                redis.zrange(keys.leases(), 0, BATCH_MAX as isize - 1).await.map_err(Error::redis(step))?;
            if held.is_empty() {
                return Ok(());
            }
            let ids: Vec<JobId> = held.iter().filter_map(|id| id.parse().ok()).collect();
            let mut fences = redis::pipe();
            for id in &ids {
                fences.hget(keys.job(*id), "fence");
            }
            let fences: Vec<Option<String>> = fences.query_async(&mut redis).await.map_err(Error::redis(step))?;
            let leases = ids.into_iter().zip(fences);
            let leases: Vec<LeaseRef> =
                leases.filter_map(|(job_id, fence)| Some(LeaseRef { job_id, fence: Fence(fence?) })).collect();
            shard.release(&leases).await?;
            // Leases of jobs that do not run, which an inexact copy can contain.
            let _: () = redis.zrem(keys.leases(), held).await.map_err(Error::redis(step))?;
        }
    }

    /// Advances the term, so that no previous autoscaler can hold the next one.
    async fn depose(&self) -> Result<(), Error> {
        let (lead, step) = (RegistryKeys::new(&self.config.prefix).lead(), "release the autoscaler's leadership");
        let mut redis = self.registry.redis();
        let has_led: bool = redis.exists(&lead).await.map_err(Error::redis(step))?;
        if has_led {
            let mut pipe = redis::pipe();
            pipe.hincr(&lead, "term", TERMS_AHEAD).ignore().hdel(&lead, &["holder", "until_ms"]).ignore();
            pipe.query_async::<()>(&mut redis).await.map_err(Error::redis(step))?;
        }
        Ok(())
    }

    async fn sweep(&self) -> Result<BTreeMap<String, u64>, Error> {
        let mut repaired = BTreeMap::new();
        for shard in &self.shards {
            let mut cursor = None;
            loop {
                let step = shard.recover(cursor.as_ref()).await?;
                for (kind, records) in step.repairs {
                    *repaired.entry(kind).or_default() += u64::from(records);
                }
                cursor = step.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(repaired)
    }

    fn root(&self, root: Root) -> String {
        match root {
            Root::Shard(number) => Keys::new(&self.config.prefix, number).root().to_owned(),
            Root::Registry => RegistryKeys::new(&self.config.prefix).root().to_owned(),
        }
    }

    fn connection(&self, root: Root) -> Result<&Connection, Error> {
        match root {
            Root::Registry => Ok(&self.registry),
            Root::Shard(number) => {
                let shard = self.shards.get(usize::from(number)).ok_or_else(|| Error::no_shard(number))?;
                Ok(shard.connection())
            }
        }
    }
}

/// The job, if this entry is the record of one.
///
/// # Errors
/// [`Error::Corrupt`] for a record that this release cannot read.
pub fn job(entry: &Entry) -> Result<Option<Job>, Error> {
    let (Some(id), Content::Hash(fields)) = (job_of(entry), &entry.content) else { return Ok(None) };
    let corrupt =
        |why: &str| Error::Corrupt { key: format!("job {}", String::from_utf8_lossy(id)), why: why.to_owned() };
    let id: JobId =
        std::str::from_utf8(id).ok().and_then(|id| id.parse().ok()).ok_or_else(|| corrupt("its id is not valid"))?;
    let text =
        |(field, value): &(super::Bytes, super::Bytes)| Some((field.text()?.to_owned(), value.text()?.to_owned()));
    let fields = fields.iter().map(text).collect::<Option<HashMap<String, String>>>();
    record::decode(id, &fields.ok_or_else(|| corrupt("a field is not text"))?)
}
