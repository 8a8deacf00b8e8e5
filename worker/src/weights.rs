//! The weights of endpoints: fetched by their hash, verified, shared read-only by all runners of their owner, and removed when room is
//! short. Owners share what each of them could have fetched itself ([`rights`]).
//!
//! A blob gets its final name only after its hash was compared, so whatever has that name is whole. Downloads go on where they were
//! cut off, be it by the network, a cancelled caller or a killed process. Other processes may share the folder.

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
use std::fs::File;
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
use self::store::{Held, Store, Verified};
use crate::environment::{self, lock};

/// A large model in its original form is a few dozen files, a repository with all its variants a few hundred.
const FILES_MAX: usize = 1_000;

const PATH_BYTES_MAX: usize = 200;

/// Longest wait for another download of the same file: a terabyte on a line of 25 MB/s.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(12 * 3600);

/// Longest wait for a file that was changed to be out of use: no more than another look at it takes.
const CHANGED_LIMIT: Duration = Duration::from_secs(30);

/// Longest wait for another process that makes room: removing many large files takes seconds.
const ROOM_LIMIT: Duration = Duration::from_secs(5 * 60);

const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// One file of an endpoint's weights, as the gateway tells it.
#[derive(Clone)]
pub(crate) struct WeightFile {
    /// What the handler opens, relative to the folder of its weights.
    pub(crate) path: String,
    /// May be a secret.
    pub(crate) url: String,
    pub(crate) sha256: String,
    pub(crate) size_bytes: u64,
    /// For the URL's own host only.
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

/// What [`Weights`] works with.
#[derive(Debug, Clone)]
pub(crate) struct WeightsConfig {
    /// Weights live in a folder of it.
    pub(crate) dir: PathBuf,
    /// All weights together, with those being downloaded, are never larger.
    pub(crate) cap_bytes: u64,
}

/// All weights of this machine. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Weights(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    downloads: Downloads,
}

/// The weights of one endpoint. None of them is removed while this, or a clone of it, is held.
#[derive(Debug, Clone)]
pub(crate) struct WeightSet {
    /// Links to the blobs, by the files' names.
    pub(crate) folder: PathBuf,
    /// What the links lead to, each once.
    pub(crate) blobs: Vec<PathBuf>,
    names: Vec<String>,
    _held: Arc<Vec<Held>>,
}

/// Whose turn it is with a file.
enum Claim {
    Ready(Held),
    /// Ours to fetch: the lock is exclusive.
    Missing(Arc<File>),
}

impl Weights {
    /// Opens the folder, removing downloads that were given up. Blocks on the disk.
    pub(crate) fn open(config: &WeightsConfig) -> Result<Self, Error> {
        Self::with_limits(config, LIMITS)
    }

    fn with_limits(config: &WeightsConfig, limits: Limits) -> Result<Self, Error> {
        let store = Arc::new(Store::open(&config.dir, config.cap_bytes)?);
        Ok(Self(Arc::new(Inner { store, downloads: Downloads::new(limits)? })))
    }

    /// The size of all of them, with those being downloaded. Blocks on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.store.bytes()
    }

    /// All files of one endpoint, fetched and verified, in a folder of links. Dropping the future stops the downloads, and another
    /// call goes on with them.
    ///
    /// # Errors
    /// [`Error::Expired`] asks for new URLs and another call. [`Error::Fetch`] may pass. The others name what a person must change.
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
        let held = 'again: loop {
            let (mut held, mut missing) = (Vec::new(), Vec::new());
            for file in &wanted {
                match inner.claim(file, &waiting).await? {
                    Claim::Ready(ready) => held.push(ready),
                    Claim::Missing(lock) => missing.push((file.clone(), lock)),
                }
            }
            let missing_bytes: u64 = missing.iter().map(|(file, _)| file.size_bytes).sum();
            if missing.is_empty() {
                break held;
            }
            let partials = inner.reserve(missing).await?;
            let mut meter = Meter::new(total_bytes);
            let mut look = || {
                let done_bytes: u64 = partials.iter().map(|(_, partial)| partial.done_bytes()).sum();
                progress(meter.look(Instant::now(), total_bytes - missing_bytes + done_bytes));
            };
            // Polling many costs little: ranges, not files, are what is bounded.
            let fetch = |(file, partial): (WeightFile, Arc<Partial>)| {
                let inner = Arc::clone(&self.0);
                async move { inner.fetch(&file, &partial).await }
            };
            let fetched = stream::iter(partials.clone()).map(fetch);
            let fetched = fetched.buffer_unordered(FILES_MAX).try_collect::<Vec<Option<Held>>>();
            tokio::pin!(fetched);
            let mut ticks = interval(PROGRESS_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let fetched = loop {
                tokio::select! {
                    fetched = &mut fetched => break fetched?,
                    _ = ticks.tick() => look(),
                }
            };
            look();
            for fetched in fetched {
                match fetched {
                    Some(fetched) => held.push(fetched),
                    None => continue 'again,
                }
            }
            break held;
        };
        let names = files.iter().map(|file| file.path.clone()).collect();
        let (store, files) = (Arc::clone(&inner.store), files.to_vec());
        let folder = spawn_blocking(move || store.link(&files)).await;
        let folder =
            folder.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Error::io("link weights"))?;
        let blobs = wanted.iter().map(|file| inner.store.blob(&file.name())).collect();
        Ok(WeightSet { folder, blobs, names, _held: Arc::new(held) })
    }
}

impl WeightSet {
    /// The names of those that are pickles; what is called safetensors is looked into.
    ///
    /// # Errors
    /// [`Error::Safetensors`] when one of them is something else.
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
    /// Waits until the file is ready or ours to fetch. Callers ask in the order of hashes, so that none waits for one that waits for
    /// it.
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
                Verified::Yes(held) => return Ok(Claim::Ready(held)),
                Verified::Absent => lock::try_exclusive(&lock_file).map_err(failed)?,
                Verified::Changed => match lock::exclusive(&lock_file, CHANGED_LIMIT).await {
                    Err(environment::Error::Locked { .. }) => return Err(Error::Changed { path: file.path.clone() }),
                    exclusive => Some(exclusive?),
                },
            };
            // Another was faster. It has the lock soon, or has it already.
            let Some(exclusive) = exclusive else { continue };
            let exclusive = Arc::new(exclusive);
            // It may have been fetched between the two locks.
            let is_here = matches!(self.verified(file, Arc::clone(&exclusive)).await?, Verified::Yes(_));
            if !is_here && !self.adopt(file, &exclusive).await? {
                return Ok(Claim::Missing(exclusive));
            }
        }
    }

    async fn verified(&self, file: &WeightFile, lock: Arc<File>) -> Result<Verified, Error> {
        let (store, file) = (Arc::clone(&self.store), file.clone());
        let path = file.path.clone();
        let verified = spawn_blocking(move || store.verified(&file, &lock)).await;
        let verified = verified.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        verified.map_err(Error::io(format!("verify {path}")))
    }

    async fn adopt(&self, file: &WeightFile, lock: &Arc<File>) -> Result<bool, Error> {
        let (store, file, lock) = (Arc::clone(&self.store), file.clone(), Arc::clone(lock));
        let path = file.path.clone();
        let adopted = spawn_blocking(move || store.adopt(&file, &lock)).await;
        adopted.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Error::io(format!("share {path}")))
    }

    async fn reserve(&self, missing: Vec<(WeightFile, Arc<File>)>) -> Result<Vec<(WeightFile, Arc<Partial>)>, Error> {
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

    /// Fetches, verifies and publishes one file; `None` when it was removed at once.
    async fn fetch(&self, file: &WeightFile, partial: &Arc<Partial>) -> Result<Option<Held>, Error> {
        self.downloads.fetch(file, partial).await?;
        let (store, partial, file) = (Arc::clone(&self.store), Arc::clone(partial), file.clone());
        let path = file.path.clone();
        let published = spawn_blocking(move || store.publish(&file, &partial)).await;
        published.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Error::write(&path))
    }
}

/// The files to fetch, each content once, in the order of hashes.
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

/// Stays below the folder it is joined to, and is written in one way only.
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
