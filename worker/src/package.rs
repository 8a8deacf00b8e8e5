//! Endpoint packages: the author's folder, downloaded once by its hash and unpacked for runners.
//!
//! Tenants do not share packages, even identical ones. The size of each package, of all packages of one tenant, and of
//! all packages is limited; the least recently used are deleted to make room.

mod store;
mod unpack;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use reqwest::StatusCode;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use self::store::{InUse, Name, Store};
use self::unpack::{Limits, unpack};
use crate::backoff::{Backoff, Policy};
use crate::environment::lock::{self, LockedFile};
use crate::environment::{self, KeyedMutex};
use crate::weights::Size;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const FETCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Longest wait for another process that downloads the same package.
const LOCK_LIMIT: Duration = Duration::from_secs(TRIES as u64 * FETCH_TIMEOUT.as_secs() + 5 * 60);

/// Longest wait for another process that evicts packages.
const ROOM_LIMIT: Duration = Duration::from_secs(5 * 60);

const TRIES: u32 = 3;
const RETRY: Policy = Policy { min: Duration::from_millis(200), max: Duration::from_secs(1), jitter: 0.5..1.0 };

/// Maximum number of files and folders of one package, which contains code and small assets, not weights.
const ENTRIES_MAX: usize = 100_000;

/// Maximum number of packages that are unpacked concurrently: an incomplete package does not count towards the limits.
const UNPACKED_AT_ONCE: usize = 2;

/// Maximum number of remembered invalid packages; beyond it, all are forgotten.
const BAD_KNOWN: usize = 1_000;

/// Why a package is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0:?} is not a SHA-256 digest")]
    Name(String),
    #[error("cannot fetch the package: {0}")]
    Fetch(String),
    #[error("the object store rejected the request for the package: {0}")]
    Refused(StatusCode),
    #[error("the package differs from the deployed one: expected {expected}, got {got}; deploy it again")]
    Differs { expected: String, got: String },
    #[error("cannot unpack the package: {0}; deploy it again")]
    Unpack(String),
    #[error(
        "the unpacked package is larger than this worker's limit of {cap}: remove weights and data from it and deploy again, or ask the \
         operator to raise STOKE_PACKAGE_BYTES",
        cap = Size(*cap)
    )]
    TooLarge { cap: u64 },
    #[error(
        "the package has more than {0} files and folders: remove those that the handler does not read and deploy it again"
    )]
    TooMany(usize),
    /// Unpacking it has failed before.
    #[error("{0}")]
    Bad(String),
    #[error(
        "the package needs {need}, but {in_use} of the {cap} for {whose} on this worker are in use; raise STOKE_PACKAGES_BYTES",
        need = Size(*need),
        in_use = Size(*in_use),
        cap = Size(*cap)
    )]
    InUse { need: u64, in_use: u64, cap: u64, whose: &'static str },
    #[error(transparent)]
    Lock(#[from] environment::Error),
    #[error("cannot store the package on this worker")]
    Io(#[from] io::Error),
}

impl Error {
    /// Whether the deployed package itself is invalid and would fail on every worker.
    pub(crate) fn is_the_deployers(&self) -> bool {
        matches!(self, Self::Differs { .. }) || self.is_of_the_bytes()
    }

    /// Whether the same bytes would fail again.
    fn is_of_the_bytes(&self) -> bool {
        matches!(self, Self::Unpack(_) | Self::TooLarge { .. } | Self::TooMany(_) | Self::Bad(_))
    }

    /// Whether the error is transient.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Fetch(_))
    }
}

/// Configuration of [`Packages`].
#[derive(Debug, Clone)]
pub(crate) struct PackagesConfig {
    /// Folder for packages and other caches.
    pub(crate) dir: PathBuf,
    /// Maximum size of one unpacked package.
    pub(crate) package_bytes: u64,
    /// Maximum size of all packages. The packages of one tenant may use at most half of it.
    pub(crate) cap_bytes: u64,
}

/// The packages of this machine.
pub(crate) struct Packages {
    store: Arc<Store>,
    limits: Limits,
    http: reqwest::Client,
    fetching: KeyedMutex,
    unpacking: Semaphore,
    /// Errors of invalid packages.
    bad: Mutex<HashMap<Name, String>>,
}

/// An unpacked package. It is not deleted while this value, or a clone of it, exists.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) folder: PathBuf,
    _in_use: Arc<InUse>,
}

impl Packages {
    /// Opens `<dir>/packages`, and deletes packages that are long unused or exceed the limit. Blocks on the disk.
    pub(crate) fn open(config: &PackagesConfig) -> Result<Self, Error> {
        let store = Arc::new(Store::open(&config.dir, config.cap_bytes)?);
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(IDLE_TIMEOUT);
        let http = http.timeout(FETCH_TIMEOUT).build().map_err(|error| Error::Fetch(error.to_string()))?;
        Ok(Self {
            store,
            limits: Limits { entries: ENTRIES_MAX, bytes: config.package_bytes },
            http,
            fetching: KeyedMutex::default(),
            unpacking: Semaphore::new(UNPACKED_AT_ONCE),
            bad: Mutex::default(),
        })
    }

    /// The tenant's unpacked package, downloaded from `url` if necessary.
    pub(crate) async fn get(&self, tenant: &str, sha256: &str, size_bytes: u64, url: &str) -> Result<Package, Error> {
        let name = Name::new(tenant, sha256).ok_or_else(|| Error::Name(sha256.chars().take(80).collect()))?;
        let _guard = self.fetching.lock(name.as_str(), || ()).await;
        if let Some(why) = self.bad.lock().get(&name) {
            return Err(Error::Bad(why.clone()));
        }
        let lock_file = self.store.lock_file(&name);
        loop {
            if let Some(in_use) = self.store.in_use(&name, lock::shared(&lock_file, LOCK_LIMIT).await?) {
                return Ok(Package { folder: self.store.place(&name), _in_use: Arc::new(in_use) });
            }
            let is_here = || self.store.place(&name).is_dir();
            let Some(exclusive) = lock::to_make(&lock_file, LOCK_LIMIT, is_here).await? else { continue };
            // The lock is held until the work on disk is done, even if the caller is cancelled.
            if let Err(error) = self.make(&name, sha256, size_bytes, url, Arc::new(exclusive)).await {
                if error.is_of_the_bytes() {
                    let mut bad = self.bad.lock();
                    if bad.len() >= BAD_KNOWN {
                        bad.clear();
                    }
                    bad.insert(name, error.to_string());
                }
                return Err(error);
            }
            // If another process deletes it between the two locks, it is downloaded again.
        }
    }

    /// Downloads and publishes a package; leaves nothing behind on failure.
    async fn make(
        &self,
        name: &Name,
        sha256: &str,
        size_bytes: u64,
        url: &str,
        exclusive: Arc<LockedFile>,
    ) -> Result<(), Error> {
        let making = self.store.make(name, exclusive)?;
        self.fetch(sha256, size_bytes, url, &making.archive()).await?;
        let permit = self.unpacking.acquire().await.map_err(|error| Error::Io(io::Error::other(error)))?;
        let limits = self.limits;
        let unpacked = spawn_blocking(move || {
            let bytes = unpack(File::open(making.archive())?, &making.content(), &limits)?;
            Ok((making, bytes))
        });
        let (making, bytes) = unpacked.await.unwrap_or_else(|error| Err(Error::Io(io::Error::other(error))))?;
        let room = lock::exclusive(&self.store.room_lock(), ROOM_LIMIT).await?;
        drop(permit);
        let store = Arc::clone(&self.store);
        let published = spawn_blocking(move || {
            let _room = room;
            store.publish(making, bytes)
        });
        published.await.unwrap_or_else(|error| Err(Error::Io(io::Error::other(error))))
    }

    async fn fetch(&self, sha256: &str, size_bytes: u64, url: &str, into: &Path) -> Result<(), Error> {
        let mut backoff = Backoff::new(&RETRY);
        for left in (0..TRIES).rev() {
            match self.fetch_once(sha256, size_bytes, url, into).await {
                Err(error) if left > 0 && error.is_passing() => {
                    tracing::debug!(%error, package.sha256 = sha256, "cannot fetch a package; retrying");
                    backoff.pause().await;
                }
                outcome => return outcome,
            }
        }
        Ok(())
    }

    async fn fetch_once(&self, sha256: &str, size_bytes: u64, url: &str, into: &Path) -> Result<(), Error> {
        // Presigned URLs are secret.
        let passing = |error: reqwest::Error| Error::Fetch(chain(&error.without_url()));
        let answer = self.http.get(url).send().await.map_err(passing)?;
        let status = answer.status();
        if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT && status != StatusCode::TOO_MANY_REQUESTS
        {
            return Err(Error::Refused(status));
        }
        if !status.is_success() {
            return Err(Error::Fetch(format!("the object store responded with {status}")));
        }
        let differs = |got: String, expected: String| Err(Error::Differs { expected, got });
        let (mut file, mut hash, mut got_bytes) = (tokio::fs::File::create(into).await?, Sha256::new(), 0);
        let mut body = answer.bytes_stream();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(passing)?;
            got_bytes += piece.len() as u64;
            if got_bytes > size_bytes {
                return differs("more".to_owned(), format!("{size_bytes} bytes"));
            }
            hash.update(&piece);
            file.write_all(&piece).await?;
        }
        file.flush().await?;
        if got_bytes < size_bytes {
            return differs(format!("{got_bytes}"), format!("{size_bytes} bytes"));
        }
        let got = hex::encode(hash.finalize());
        if got == sha256 { Ok(()) } else { differs(got, sha256.to_owned()) }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
#[path = "package/tests.rs"]
mod tests;
