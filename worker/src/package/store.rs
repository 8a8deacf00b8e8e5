//! Storage of packages, their use, and their eviction.
//!
//! ```text
//! packages/<name>/                 complete package; created and removed by one rename. Name: its SHA-256 and tenant
//! packages/<name>.lock             locked by its users (shared) or its creator or remover (exclusive); mtime: last
//!                                  use; content: its size on disk
//! packages/.partial-<name>-<nonce> being created or removed under the exclusive lock; a leftover if that process died
//! packages/.room.lock              held while evicting and publishing packages
//! ```

use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::Error;
use crate::environment::lock::{self, LockedFile};

/// Packages unused for this long are deleted when a worker starts. Much longer than a runner stays loaded without a
/// job.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The same for packages of older releases without lock files, and for their incomplete packages.
const UNLOCKED_KEPT: Duration = Duration::from_secs(24 * 3600);

const PARTIAL: &str = ".partial-";
const LOCK: &str = ".lock";

const SHA256_DIGITS: usize = 64;

/// Hex digits of a tenant's hash: 128 bits are unique.
const TENANT_DIGITS: usize = 32;

/// The name of a tenant's package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name(String);

impl Name {
    /// `None` if `sha256` is not a SHA-256 digest.
    pub(super) fn new(tenant: &str, sha256: &str) -> Option<Self> {
        Self::parse(&format!("{sha256}-{}", &hex::encode(Sha256::digest(tenant))[..TENANT_DIGITS]))
    }

    fn parse(text: &str) -> Option<Self> {
        let (sha256, tenant) = text.split_once('-')?;
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_name =
            sha256.len() == SHA256_DIGITS && tenant.len() == TENANT_DIGITS && is_hex(sha256) && is_hex(tenant);
        is_name.then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn tenant(&self) -> &str {
        &self.0[SHA256_DIGITS..]
    }
}

/// The shared lock of a package in use.
#[derive(Debug)]
pub(super) struct InUse(LockedFile);

impl InUse {
    fn touch(&self) {
        // A failure affects only the order of eviction.
        let _ = self.0.set_times(FileTimes::new().set_modified(SystemTime::now()));
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.touch();
    }
}

/// A package that is being created. Deleted on drop together with its lock file, unless published.
pub(super) struct Making {
    name: Name,
    scratch: TempDir,
    place: PathBuf,
    lock_file: PathBuf,
    exclusive: Arc<LockedFile>,
}

impl Making {
    /// Path for the download.
    pub(super) fn archive(&self) -> PathBuf {
        self.scratch.path().join("package.tar.gz")
    }

    /// Folder for the unpacked content.
    pub(super) fn content(&self) -> PathBuf {
        self.scratch.path().join("content")
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // The lock file protects nothing any more, and no eviction would remove it.
        if !self.place.exists() {
            let _ = fs::remove_file(&self.lock_file);
        }
    }
}

/// A stored package.
struct Package {
    name: Name,
    used: SystemTime,
    bytes: u64,
}

/// The folder of all packages.
pub(super) struct Store {
    folder: PathBuf,
    cap_bytes: u64,
}

impl Store {
    /// Opens `<dir>/packages`, and deletes packages that are long unused, incomplete or exceed the limit. Blocks on the
    /// disk.
    pub(super) fn open(dir: &Path, cap_bytes: u64) -> Result<Self, Error> {
        let folder = std::path::absolute(dir)?.join("packages");
        fs::create_dir_all(&folder)?;
        let store = Self { folder, cap_bytes };
        store.sweep()?;
        // The limit may be lower than before; packages in use are evicted later.
        match store.make_room(0, None) {
            Ok(()) | Err(Error::InUse { .. }) => Ok(store),
            Err(error) => Err(error),
        }
    }

    pub(super) fn place(&self, name: &Name) -> PathBuf {
        self.folder.join(name.as_str())
    }

    pub(super) fn lock_file(&self, name: &Name) -> PathBuf {
        self.folder.join(format!("{}{LOCK}", name.as_str()))
    }

    pub(super) fn room_lock(&self) -> PathBuf {
        self.folder.join(".room.lock")
    }

    /// Marks the package as in use by its shared lock, if it exists.
    pub(super) fn in_use(&self, name: &Name, shared: LockedFile) -> Option<InUse> {
        self.place(name).is_dir().then(|| {
            let in_use = InUse(shared);
            in_use.touch();
            in_use
        })
    }

    /// A folder to create a package in.
    pub(super) fn make(&self, name: &Name, exclusive: Arc<LockedFile>) -> io::Result<Making> {
        let (place, lock_file) = (self.place(name), self.lock_file(name));
        let scratch = tempfile::Builder::new().prefix(&format!("{PARTIAL}{}-", name.as_str())).tempdir_in(&self.folder);
        Ok(Making { name: name.clone(), scratch: scratch?, place, lock_file, exclusive })
    }

    /// Evicts others for a package and publishes it atomically. The room lock is held. Blocks on the disk.
    pub(super) fn publish(&self, making: Making, bytes: u64) -> Result<(), Error> {
        self.make_room(bytes, Some(making.name.tenant()))?;
        let mut lock: &File = &making.exclusive;
        lock.set_len(0)?;
        lock.rewind()?;
        lock.write_all(bytes.to_string().as_bytes())?;
        // After a power failure, no package may exist under its name with missing files or without its size.
        #[cfg(target_os = "linux")]
        nix::unistd::syncfs(File::open(making.content())?).map_err(io::Error::from)?;
        fs::rename(making.content(), &making.place)?;
        Ok(File::open(&self.folder)?.sync_all()?)
    }

    /// Deletes packages, least recently used first, until `need` more bytes fit: first those of the tenant until it is
    /// within its share, then any. Deletes nothing if the bytes cannot fit. Blocks on the disk.
    fn make_room(&self, need: u64, tenant: Option<&str>) -> Result<(), Error> {
        let mut packages = self.packages()?;
        packages.sort_by_key(|package| package.used);
        let is_own = |package: &Package| tenant == Some(package.name.tenant());
        let sum = |own: bool| {
            packages.iter().filter(|package| !own || is_own(package)).map(|package| package.bytes).sum::<u64>()
        };
        let (mut total, mut own, share) = (sum(false), sum(true), self.cap_bytes / 2);
        let mut leaving = Vec::new();
        for of_tenant in [true, false] {
            for package in packages.iter().filter(|package| !of_tenant || is_own(package)) {
                let fits = if of_tenant { own + need <= share } else { total + need <= self.cap_bytes };
                let is_leaving =
                    leaving.iter().any(|(leaving, _): &(&Package, LockedFile)| leaving.name == package.name);
                if fits || is_leaving {
                    continue;
                }
                let Some(lock) = lock::try_exclusive(&self.lock_file(&package.name))? else { continue };
                total -= package.bytes;
                own -= if is_own(package) { package.bytes } else { 0 };
                leaving.push((package, lock));
            }
        }
        if tenant.is_some() && own + need > share {
            return Err(Error::InUse { need, in_use: own, cap: share, whose: "the packages of one tenant" });
        }
        if total + need > self.cap_bytes {
            return Err(Error::InUse { need, in_use: total, cap: self.cap_bytes, whose: "all packages" });
        }
        for (package, _lock) in leaving {
            self.discard(&package.name)?;
            tracing::info!(package.name = package.name.as_str(), bytes = package.bytes, "package evicted");
        }
        Ok(())
    }

    /// Deletes a package and its lock file; the exclusive lock is held. Renames it first, so that it is never visible
    /// half-deleted.
    fn discard(&self, name: &Name) -> io::Result<()> {
        let away = tempfile::Builder::new().prefix(&format!("{PARTIAL}{}-", name.as_str())).tempdir_in(&self.folder)?;
        match fs::rename(self.place(name), away.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::remove_file(self.lock_file(name))?;
        away.close()
    }

    fn packages(&self) -> io::Result<Vec<Package>> {
        let names = fs::read_dir(&self.folder)?.flatten().filter_map(|item| Name::parse(item.file_name().to_str()?));
        let packages = names.map(|name| {
            let lock = File::open(self.lock_file(&name)).ok();
            let used = lock.as_ref().and_then(|lock| lock.metadata().ok()?.modified().ok());
            let mut text = String::new();
            let _ = lock.map(|lock| lock.take(64).read_to_string(&mut text));
            Package { name, used: used.unwrap_or(SystemTime::UNIX_EPOCH), bytes: text.trim().parse().unwrap_or(0) }
        });
        Ok(packages.collect())
    }

    fn sweep(&self) -> io::Result<()> {
        for item in fs::read_dir(&self.folder)?.flatten() {
            if let Err(error) = self.sweep_one(&item) {
                tracing::warn!(%error, path = %item.path().display(), "cannot remove an unused package");
            }
        }
        Ok(())
    }

    fn sweep_one(&self, item: &fs::DirEntry) -> io::Result<()> {
        let called = item.file_name().to_string_lossy().into_owned();
        let partial = called.strip_prefix(PARTIAL);
        let bare = partial.and_then(|rest| rest.rsplit_once('-').map(|(name, _)| name)).unwrap_or(&called);
        let Some(name) = Name::parse(bare.strip_suffix(LOCK).unwrap_or(bare)) else {
            let is_old = item.path().is_dir() && is_unused(&item.path(), UNLOCKED_KEPT);
            return if is_old { fs::remove_dir_all(item.path()) } else { Ok(()) };
        };
        let (place, lock_file) = (self.place(&name), self.lock_file(&name));
        if partial.is_none() && place.exists() && !is_unused(&lock_file, KEPT) {
            return Ok(());
        }
        // If the lock is taken, the package is in use or being created.
        let Some(_lock) = lock::try_exclusive(&lock_file)? else { return Ok(()) };
        if partial.is_some() {
            fs::remove_dir_all(item.path())?;
        }
        if place.exists() && !is_unused(&lock_file, KEPT) { Ok(()) } else { self.discard(&name) }
    }
}

/// Whether the last use is longer ago than `kept`.
fn is_unused(path: &Path, kept: Duration) -> bool {
    let used = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    used.and_then(|used| used.elapsed().ok()).is_some_and(|unused| unused > kept)
}
