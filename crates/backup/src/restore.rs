//! Restoring a backup and checking that it is complete.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use stokehold_objects::Objects;
use stokehold_queue::RedisConfig;
use stokehold_queue::backup::{Census, Entry, Restored, Target, job};
use stokehold_queue::job::JobResult;

use crate::key::BackupKey;
use crate::manifest::Manifest;
use crate::{BackupId, BackupKeys, Error, Store, part};

/// Number of parts fetched ahead of the one that is being written.
const PARTS_AHEAD: usize = 2;

/// Keys written in one round trip, and approximately the bytes.
const ENTRIES_AT_ONCE: usize = 500;
const BYTES_AT_ONCE: u64 = 4 << 20;

/// Results that are checked concurrently.
const RESULTS_AT_ONCE: usize = 16;

/// Missing results that are listed by name.
const NAMED_MAX: usize = 10;

/// Source and destination of a restore.
pub struct Restoration<'a> {
    /// The queue, which must be empty.
    pub redis: RedisConfig,
    /// The store of backups.
    pub store: &'a Store,
    /// The keys that sealed them.
    pub keys: &'a BackupKeys,
    /// The backup; `None` = the newest complete one.
    pub id: Option<&'a BackupId>,
    /// The bucket of results, to check that each result exists.
    pub results: Option<&'a Objects>,
    /// Called with the number of keys read so far and their total number.
    pub progress: &'a (dyn Fn(u64, u64) + Send + Sync),
}

/// The outcome of a restore.
#[derive(Debug, serde::Serialize)]
pub struct Outcome {
    /// The backup.
    #[serde(skip)]
    pub manifest: Manifest,
    /// Counts of the restored queue.
    pub restored: Restored,
    /// Expired keys, which were not restored: idempotency keys, deliveries, figures.
    pub expired: u64,
    /// Differences from the backup; empty if the restore is correct.
    pub differences: Vec<String>,
    /// Number of results checked in S3.
    pub results: u64,
    /// Number of missing results.
    pub missing_results: u64,
    /// The keys of some missing results.
    pub missing: Vec<String>,
}

impl Outcome {
    /// Whether everything was restored and every record can be read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.differences.is_empty() && self.restored.unreadable.is_empty() && self.missing_results == 0
    }
}

/// Restores a backup into an empty queue.
///
/// # Errors
/// [`Error::Occupied`], [`Error::FewerShards`], [`Error::WrongKey`], [`Error::NotFound`], [`Error::Newer`]: nothing was
/// written. [`Error::Damaged`], [`Error::Objects`], [`Error::Queue`]: the queue may be partly restored. It is marked as
/// incomplete, and no API starts on it.
pub async fn restore(restoration: Restoration<'_>) -> Result<Outcome, Error> {
    let Restoration { redis, store, keys, id, results, progress } = restoration;
    let manifest = store.find(id).await?;
    let key = manifest.verify(keys)?;
    if manifest.shards > redis.shards {
        return Err(Error::FewerShards { wanted: manifest.shards, here: redis.shards });
    }
    let target = Target::connect(redis).await?;
    let found = target.occupied_by().await?;
    if !found.is_empty() {
        return Err(Error::Occupied(found));
    }
    target.begin(&manifest.id).await?;
    let mut pouring =
        Pouring { store, target: &target, results, read: Census::default(), expired: 0, looked: Found::default() };
    pouring.pour(&manifest, &key, progress).await?;
    let Pouring { expired, looked, .. } = pouring;
    let restored = target.end(&manifest.moments).await?;
    let differences = manifest.census.differences(&restored.census);
    let Found { results, missing_results, missing } = looked;
    Ok(Outcome { manifest, restored, expired, differences, results, missing_results, missing })
}

/// A restore in progress.
struct Pouring<'a> {
    store: &'a Store,
    target: &'a Target,
    results: Option<&'a Objects>,
    read: Census,
    expired: u64,
    looked: Found,
}

impl Pouring<'_> {
    /// Writes all parts in order, and fetches the next ones meanwhile.
    async fn pour(
        &mut self,
        manifest: &Manifest,
        key: &BackupKey,
        progress: &(dyn Fn(u64, u64) + Send + Sync),
    ) -> Result<(), Error> {
        let fetch = |part| self.store.fetch(&manifest.id, part);
        let mut fetched = stream::iter(manifest.parts.iter().map(fetch)).buffered(PARTS_AHEAD);
        for part in &manifest.parts {
            let Some(sealed) = fetched.try_next().await? else { break };
            let mut reader = part::read(&manifest.id, part, &sealed, key)?;
            drop(sealed);
            loop {
                let entries = reader.some(ENTRIES_AT_ONCE, BYTES_AT_ONCE)?;
                if entries.is_empty() {
                    break;
                }
                entries.iter().for_each(|entry| self.read.note(entry));
                self.expired += self.target.write(&entries).await?;
                if let Some(objects) = self.results {
                    self.looked.look(objects, &entries).await?;
                }
                progress(self.read.keys, manifest.census.keys);
            }
        }
        let (read, told) = (&self.read, &manifest.census);
        if read.keys != told.keys || read.ended_digest != told.ended_digest {
            let why = format!("it has {} keys, but its manifest states {}", read.keys, told.keys);
            return Err(Error::Damaged { object: manifest.id.clone(), why });
        }
        Ok(())
    }
}

/// Results that were checked.
#[derive(Default)]
struct Found {
    results: u64,
    missing_results: u64,
    missing: Vec<String>,
}

impl Found {
    async fn look(&mut self, objects: &Objects, entries: &[Entry]) -> Result<(), Error> {
        // The final count reports records that cannot be read.
        let keys = entries.iter().filter_map(|entry| match job(entry).ok()??.result? {
            JobResult::Object { key, .. } => Some(key),
            JobResult::Inline(_) => None,
        });
        let look = |key: String| async move {
            let found = objects.head(&key).await?;
            Ok::<_, Error>((key, found.is_some()))
        };
        let looked = stream::iter(keys.map(look)).buffer_unordered(RESULTS_AT_ONCE);
        for (key, is_there) in looked.try_collect::<Vec<_>>().await? {
            self.results += 1;
            if !is_there {
                self.missing_results += 1;
                if self.missing.len() < NAMED_MAX {
                    self.missing.push(key);
                }
            }
        }
        Ok(())
    }
}
