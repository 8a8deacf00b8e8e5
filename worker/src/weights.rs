//! The weights of endpoints: downloaded by hash, verified, shared read-only by all runners of their owner, and deleted
//! when space is short. Owners share files that each of them could have downloaded itself ([`rights`]).
//!
//! A blob gets its final name only after its hash was verified, so a file with that name is complete. Interrupted
//! downloads are resumed, whether the network failed, the caller was cancelled or the process was killed. Several
//! processes may share the folder.

mod download;
mod error;
mod format;
mod partial;
mod progress;
mod ranges;
mod rights;
pub(crate) mod scan;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::download::{Downloads, LIMITS, Limits};
pub(crate) use self::error::Error;
use self::partial::Partial;
use self::progress::Meter;
pub(crate) use self::progress::{Progress, Size};
pub(crate) use self::rights::{Owner, Right};
use self::store::{BlobState, Store, VerifiedBlob};
use crate::environment;
use crate::environment::lock::{self, LockedFile};

/// Maximum number of files. A large model has a few dozen files, a repository with all variants a few hundred.
const FILES_MAX: usize = 1_000;

const PATH_BYTES_MAX: usize = 200;

/// Longest wait for another download of the same file: a terabyte at 25 MB/s.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(12 * 3600);

/// Longest wait until a changed file is no longer in use, while another process may be checking it.
const CHANGED_LIMIT: Duration = Duration::from_secs(30);

/// Longest wait for another process that evicts weights: deleting many large files takes seconds.
const ROOM_LIMIT: Duration = Duration::from_secs(5 * 60);

const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// One file of an endpoint's weights, as described by the gateway.
#[derive(Clone)]
pub(crate) struct WeightFile {
    /// Path that the handler opens, relative to the weights folder.
    pub(crate) path: String,
    /// The URL may be secret.
    pub(crate) url: String,
    pub(crate) sha256: String,
    pub(crate) size_bytes: u64,
    /// Headers for the URL's host only.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) owner: Owner,
    pub(crate) right: Right,
}

impl fmt::Debug for WeightFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, sha256, size_bytes, .. } = self;
        write!(f, "{path} ({size_bytes} bytes, {sha256})")
    }
}

/// Configuration of [`Weights`].
#[derive(Debug, Clone)]
pub(crate) struct WeightsConfig {
    /// Folder for weights and other caches.
    pub(crate) dir: PathBuf,
    /// Maximum size of all weights, including running downloads.
    pub(crate) cap_bytes: u64,
}

/// All weights of this machine. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Weights(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    downloads: Downloads,
}

/// The weights of one endpoint. They are not deleted while this value, or a clone of it, exists.
#[derive(Debug, Clone)]
pub(crate) struct WeightSet {
    /// Folder of links to the blobs, by file name.
    pub(crate) folder: PathBuf,
    /// The distinct targets of the links.
    pub(crate) blobs: Vec<PathBuf>,
    names: Vec<String>,
    _in_use: Arc<Vec<VerifiedBlob>>,
}

/// The state of a requested file.
enum Claim {
    Ready(VerifiedBlob),
    /// Missing, and locked exclusively by us for the download.
    Missing(Arc<LockedFile>),
}

impl Weights {
    /// Opens the folder and deletes abandoned downloads. Blocks on the disk.
    pub(crate) fn open(config: &WeightsConfig) -> Result<Self, Error> {
        Self::with_limits(config, LIMITS)
    }

    fn with_limits(config: &WeightsConfig, limits: Limits) -> Result<Self, Error> {
        let store = Arc::new(Store::open(&config.dir, config.cap_bytes)?);
        Ok(Self(Arc::new(Inner { store, downloads: Downloads::new(limits)? })))
    }

    /// Size of all weights, including running downloads. Blocks on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.store.bytes()
    }

    /// All files of one endpoint, downloaded and verified, in a folder of links. Dropping the future stops the
    /// downloads; another call resumes them.
    ///
    /// # Errors
    /// [`Error::Expired`] requires new URLs and another call. [`Error::Fetch`] may be transient. The others require a
    /// change by the user or operator.
    pub(crate) async fn get(
        &self,
        files: &[WeightFile],
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<WeightSet, Error> {
        let wanted = distinct(files)?;
        let inner = &*self.0;
        let total_bytes = wanted.iter().fold(0, |total: u64, file| total.saturating_add(file.size_bytes));
        let cap = inner.store.cap_bytes();
        if total_bytes > cap {
            return Err(Error::TooLarge { need: total_bytes, cap });
        }
        let waiting = || progress(Progress { done_bytes: 0, total_bytes, bytes_per_s: 0, waiting: true });
        let in_use = loop {
            let (mut in_use, mut missing) = (Vec::new(), Vec::new());
            for file in &wanted {
                match inner.claim(file, &waiting).await? {
                    Claim::Ready(ready) => in_use.push(ready),
                    Claim::Missing(lock) => missing.push((file.clone(), lock)),
                }
            }
            if missing.is_empty() {
                break in_use;
            }
            if let Some(fetched) = self.fetch(missing, total_bytes, progress).await? {
                in_use.extend(fetched);
                break in_use;
            }
        };
        let names = files.iter().map(|file| file.path.clone()).collect();
        let (store, files) = (Arc::clone(&inner.store), files.to_vec());
        let folder = spawn_blocking(move || store.link(&files)).await;
        let folder =
            folder.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Error::io("link weights"))?;
        let blobs = wanted.iter().map(|file| inner.store.blob(&file.name())).collect();
        Ok(WeightSet { folder, blobs, names, _in_use: Arc::new(in_use) })
    }

    /// Downloads files; `None` if one of them was evicted immediately. `total_bytes`: size of all files of the endpoint.
    async fn fetch(
        &self,
        missing: Vec<(WeightFile, Arc<LockedFile>)>,
        total_bytes: u64,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Option<Vec<VerifiedBlob>>, Error> {
        let missing_bytes: u64 = missing.iter().map(|(file, _)| file.size_bytes).sum();
        let partials = self.0.reserve(missing).await?;
        let mut meter = Meter::new(total_bytes);
        let mut report = || {
            let done_bytes: u64 = partials.iter().map(|(_, partial)| partial.done_bytes()).sum();
            progress(meter.sample(Instant::now(), total_bytes - missing_bytes + done_bytes));
        };
        // Polling many files is cheap; the number of concurrent ranges is limited, not that of files.
        let fetch = |(file, partial): (WeightFile, Arc<Partial>)| {
            let inner = Arc::clone(&self.0);
            async move { inner.fetch(&file, &partial).await }
        };
        let fetched = stream::iter(partials.clone()).map(fetch);
        let fetched = fetched.buffer_unordered(FILES_MAX).try_collect::<Vec<Option<VerifiedBlob>>>();
        tokio::pin!(fetched);
        let mut ticks = interval(PROGRESS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let fetched = loop {
            tokio::select! {
                fetched = &mut fetched => break fetched?,
                _ = ticks.tick() => report(),
            }
        };
        report();
        Ok(fetched.into_iter().collect())
    }
}

impl WeightSet {
    /// The names of the pickle files. Validates files with the extension `.safetensors`.
    ///
    /// # Errors
    /// [`Error::Safetensors`] if one of these is invalid.
    pub(crate) async fn pickles(&self) -> Result<Vec<String>, Error> {
        let this = self.clone();
        let pickles = spawn_blocking(move || {
            let mut pickles = Vec::new();
            for name in &this.names {
                let file = this.folder.join(name);
                if name.to_ascii_lowercase().ends_with(".safetensors") {
                    format::check_safetensors(&file).map_err(|why| Error::Safetensors { path: name.clone(), why })?;
                }
                if format::is_pickle(&file, name).map_err(Error::io(format!("read {name}")))? {
                    pickles.push(name.clone());
                }
            }
            Ok(pickles)
        });
        pickles.await.unwrap_or_else(|error| Err(Error::io("inspect weights")(std::io::Error::other(error))))
    }
}

impl Inner {
    /// Waits until the file is ready or must be downloaded by us. Callers claim files in the order of hashes, which
    /// prevents deadlocks.
    async fn claim(&self, file: &WeightFile, waiting: &(dyn Fn() + Send + Sync)) -> Result<Claim, Error> {
        let lock_file = self.store.lock_file(&file.name());
        let failed = |error| Error::io(format!("lock {}", lock_file.display()))(error);
        loop {
            let shared = match lock::try_shared(&lock_file).map_err(failed)? {
                Some(shared) => shared,
                None => {
                    waiting();
                    lock::shared(&lock_file, DOWNLOAD_LIMIT).await?
                }
            };
            let exclusive = match self.verified(file, Arc::new(shared)).await? {
                BlobState::Verified(blob) => return Ok(Claim::Ready(blob)),
                BlobState::Absent => lock::try_exclusive(&lock_file).map_err(failed)?,
                BlobState::Changed => match lock::exclusive(&lock_file, CHANGED_LIMIT).await {
                    Err(environment::Error::Locked { .. }) => return Err(Error::Changed { path: file.path.clone() }),
                    exclusive => Some(exclusive?),
                },
            };
            // Another process got the lock first.
            let Some(exclusive) = exclusive else { continue };
            let exclusive = Arc::new(exclusive);
            // It may have been downloaded between the two locks.
            let is_here = matches!(self.verified(file, Arc::clone(&exclusive)).await?, BlobState::Verified(_));
            if !is_here && !self.adopt(file, &exclusive).await? {
                return Ok(Claim::Missing(exclusive));
            }
        }
    }

    async fn verified(&self, file: &WeightFile, lock: Arc<LockedFile>) -> Result<BlobState, Error> {
        let (store, file) = (Arc::clone(&self.store), file.clone());
        let path = file.path.clone();
        let verified = spawn_blocking(move || store.verified(&file, &lock)).await;
        let verified = verified.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        verified.map_err(Error::io(format!("verify {path}")))
    }

    async fn adopt(&self, file: &WeightFile, lock: &Arc<LockedFile>) -> Result<bool, Error> {
        let (store, file, lock) = (Arc::clone(&self.store), file.clone(), Arc::clone(lock));
        let path = file.path.clone();
        let adopted = spawn_blocking(move || store.adopt(&file, &lock)).await;
        adopted.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Error::io(format!("share {path}")))
    }

    async fn reserve(
        &self,
        missing: Vec<(WeightFile, Arc<LockedFile>)>,
    ) -> Result<Vec<(WeightFile, Arc<Partial>)>, Error> {
        let room = lock::exclusive(&self.store.room_lock(), ROOM_LIMIT).await?;
        let store = Arc::clone(&self.store);
        let reserved = spawn_blocking(move || {
            let _room = room;
            let partials = store.reserve(&missing)?;
            Ok(missing.into_iter().map(|(file, _)| file).zip(partials).collect())
        });
        let reserved = reserved.await;
        reserved.unwrap_or_else(|error| Err(Error::io("reserve disk space for weights")(std::io::Error::other(error))))
    }

    /// Downloads, verifies and publishes one file; `None` if it was evicted immediately.
    async fn fetch(&self, file: &WeightFile, partial: &Arc<Partial>) -> Result<Option<VerifiedBlob>, Error> {
        self.downloads.fetch(file, partial).await?;
        let (store, partial, file) = (Arc::clone(&self.store), Arc::clone(partial), file.clone());
        let path = file.path.clone();
        let published = spawn_blocking(move || store.publish(&file, &partial)).await;
        published.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Error::write(&path))
    }
}

/// The files to download, each content once, in the order of hashes.
fn distinct(files: &[WeightFile]) -> Result<Vec<WeightFile>, Error> {
    let refuse = |why: String| Err(Error::List(why));
    if files.len() > FILES_MAX {
        return refuse(format!("{} files exceed the limit of {FILES_MAX}", files.len()));
    }
    let mut paths = BTreeSet::new();
    let mut wanted: BTreeMap<&str, &WeightFile> = BTreeMap::new();
    for file in files {
        let WeightFile { path, sha256, size_bytes, .. } = file;
        if !is_safe(path) {
            return refuse(format!("{:?} is not a valid path", path.chars().take(80).collect::<String>()));
        }
        if !is_sha256(sha256) {
            return refuse(format!("the hash of {path} is not a SHA-256 digest"));
        }
        if !paths.insert(Path::new(path)) {
            return refuse(format!("{path} is listed twice"));
        }
        let same = wanted.entry(sha256).or_insert(file);
        if same.size_bytes != *size_bytes {
            return refuse(format!("{path} and {} have the same hash and different sizes", same.path));
        }
    }
    for path in &paths {
        let above = path.ancestors().skip(1).find(|above| paths.contains(above));
        if let Some(above) = above {
            return refuse(format!("{} is both a file and a folder", above.display()));
        }
    }
    Ok(wanted.into_values().cloned().collect())
}

/// Whether the path stays below the folder that it is joined to and is in canonical form.
fn is_safe(path: &str) -> bool {
    let is_plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    let is_canonical = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    (1..=PATH_BYTES_MAX).contains(&path.len()) && is_plain && is_canonical && !path.chars().any(char::is_control)
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
#[path = "weights/tests.rs"]
mod tests;
