//! Storage of built environments, their use, and their eviction.
//!
//! ```text
//! envs/<hash>/                 complete environment; created and removed by one rename
//! envs/<hash>/.stokehold-bytes its size
//! envs/<hash>.lock             locked by its users (shared) or its builder or remover (exclusive); mtime: last use
//! envs/.partial-<hash>-<nonce> being built or removed under the exclusive lock; a leftover if that process died
//! ```
//!
//! Environments of tenants are built in `builds/`, in a folder of the same name.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Error, lock};

const BYTES_FILE: &str = ".stokehold-bytes";
const PARTIAL: &str = ".partial-";

/// The folder of all environments.
pub(super) struct Store {
    folder: PathBuf,
    /// Folder of the rooms in which tenants' environments are built.
    builds: PathBuf,
}

/// An environment that is being built, with the other files of its build. Deleted on drop.
#[derive(Debug)]
pub(super) struct Partial(tempfile::TempDir);

impl Partial {
    /// The folder of the build.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The environment's folder.
    pub(super) fn environment(&self) -> PathBuf {
        self.path().join("environment")
    }

    /// HOME and TMPDIR of the build.
    pub(super) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// Path of a list for a program to read.
    pub(super) fn list(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// The size of a folder.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) all: u64,
    /// The part in files that have no other hard link.
    pub(super) sole: u64,
}

impl Store {
    /// Opens the store and removes incomplete environments of processes that died.
    pub(super) fn open(folder: PathBuf, builds: PathBuf) -> Result<Self, Error> {
        for folder in [&folder, &builds] {
            fs::create_dir_all(folder).map_err(Error::io(format!("create {}", folder.display())))?;
        }
        let store = Self { folder, builds };
        store.sweep_all().map_err(Error::io(format!("clean up {}", store.folder.display())))?;
        Ok(store)
    }

    pub(super) fn environment(&self, hash: &str) -> PathBuf {
        self.folder.join(hash)
    }

    pub(super) fn lock_file(&self, hash: &str) -> PathBuf {
        self.folder.join(format!("{hash}.lock"))
    }

    /// Whether the environment is complete and its Python still exists, since an environment only refers to it.
    pub(super) fn is_usable(&self, hash: &str) -> bool {
        self.environment(hash).join("bin").join("python").exists()
    }

    /// The rooms that environments of tenants are built in.
    pub(super) fn builds(&self) -> &Path {
        &self.builds
    }

    /// A new folder for a build, in a room if given. Deleted on drop, unless published.
    pub(super) fn partial(&self, hash: &str, room: Option<&Path>) -> Result<Partial, Error> {
        let folder = room.unwrap_or(&self.folder);
        let partial = tempfile::Builder::new().prefix(&format!("{PARTIAL}{hash}-")).tempdir_in(folder);
        let partial = Partial(partial.map_err(Error::io(format!("create a folder in {}", folder.display())))?);
        fs::create_dir(partial.environment()).map_err(Error::io("create the environment's folder"))?;
        Ok(partial)
    }

    /// Publishes a built environment. The caller holds the exclusive lock. Blocks on the disk.
    pub(super) fn publish(&self, partial: &Partial, hash: &str) -> io::Result<()> {
        let built = partial.environment();
        // Runners of other users must be able to read it.
        fs::set_permissions(&built, fs::Permissions::from_mode(0o755))?;
        let bytes = protect(&built)?;
        fs::write(built.join(BYTES_FILE), bytes.all.to_string())?;
        flush(&built)?;
        // An existing environment is unusable because its Python is gone.
        self.discard(hash)?;
        fs::rename(&built, self.environment(hash))?;
        File::open(&self.folder)?.sync_all()
    }

    /// The size of all of them. Blocks on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.hashes().unwrap_or_default().iter().map(|hash| self.bytes_of(hash)).sum()
    }

    fn bytes_of(&self, hash: &str) -> u64 {
        let text = fs::read_to_string(self.environment(hash).join(BYTES_FILE)).ok();
        text.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    }

    /// Deletes environments, least recently used first, until at most `cap_bytes` are left. Those in use stay. Returns
    /// the number of deleted environments. Blocks on the disk.
    pub(super) fn evict(&self, cap_bytes: u64) -> io::Result<usize> {
        let mut environments = Vec::new();
        for hash in self.hashes()? {
            let bytes = self.bytes_of(&hash);
            let used = fs::metadata(self.lock_file(&hash)).and_then(|lock| lock.modified());
            environments.push((used.unwrap_or(SystemTime::UNIX_EPOCH), hash, bytes));
        }
        environments.sort();
        let mut total: u64 = environments.iter().map(|(_, _, bytes)| bytes).sum();
        let mut evicted = 0;
        for (_, hash, bytes) in environments {
            if total <= cap_bytes {
                break;
            }
            let lock_file = self.lock_file(&hash);
            let Some(_lock) = lock::try_exclusive(&lock_file)? else { continue };
            self.discard(&hash)?;
            fs::remove_file(&lock_file)?;
            tracing::info!(environment.hash = hash, bytes, "environment evicted");
            total -= bytes;
            evicted += 1;
        }
        Ok(evicted)
    }

    /// Deletes an environment if it exists. Its lock is held. Renames it first, so that it is never visible
    /// half-deleted.
    fn discard(&self, hash: &str) -> io::Result<()> {
        let away = tempfile::Builder::new().prefix(&format!("{PARTIAL}{hash}-")).tempdir_in(&self.folder)?;
        match fs::rename(self.environment(hash), away.path()) {
            Ok(()) => away.close(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn sweep_all(&self) -> io::Result<()> {
        self.sweep(&self.folder)?;
        for room in fs::read_dir(&self.builds)?.flatten().filter(|room| room.path().is_dir()) {
            self.sweep(&room.path())?;
        }
        Ok(())
    }

    fn sweep(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)?.flatten() {
            let name = entry.file_name();
            let hash =
                name.to_str().and_then(|name| name.strip_prefix(PARTIAL)).and_then(|name| name.split('-').next());
            let Some(hash) = hash else { continue };
            // If the lock is taken, the build is still running.
            if let Some(_lock) = lock::try_exclusive(&self.lock_file(hash))? {
                tracing::info!(environment.hash = hash, "removing an incomplete environment");
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn hashes(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.folder)?.flatten().filter(|entry| entry.path().is_dir());
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter(|name| !name.starts_with('.')).collect())
    }
}

/// Makes every file readable by all and writable by none, so that a runner cannot change, through a hard link, files
/// that it shares with other environments and uv's cache. Folders stay writable so that they can be deleted. Best
/// effort: root is not restricted.
fn protect(folder: &Path) -> io::Result<Bytes> {
    walk(folder, &mut |path, metadata| {
        let runs = if metadata.mode() & 0o111 == 0 { 0 } else { 0o111 };
        let mode = 0o444 | runs;
        if metadata.mode() & 0o7777 != mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    })
}

/// Writes a file for a program that runs as another user.
pub(super) async fn write_list(path: &Path, text: &str) -> io::Result<()> {
    tokio::fs::write(path, text).await?;
    tokio::fs::set_permissions(path, fs::Permissions::from_mode(0o644)).await
}

/// Measures a folder.
pub(super) fn measure(folder: &Path) -> io::Result<Bytes> {
    walk(folder, &mut |_, _| Ok(()))
}

/// Visits every regular file below `folder`; links are not followed. Returns their size.
pub(super) fn walk(folder: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>) -> io::Result<Bytes> {
    let (mut bytes, mut folders) = (Bytes::default(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let metadata = entry.metadata()?;
                visit(&entry.path(), &metadata)?;
                bytes.all += metadata.len();
                bytes.sole += if metadata.nlink() == 1 { metadata.len() } else { 0 };
            }
        }
    }
    Ok(bytes)
}

/// Flushes the environment to disk, so that a published environment is complete after a power failure.
fn flush(folder: &Path) -> io::Result<()> {
    let folder = File::open(folder)?;
    // One call instead of one per file; most data was already written back during the download.
    #[cfg(target_os = "linux")]
    nix::unistd::syncfs(&folder)?;
    folder.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// An environment of `bytes` bytes, last used `used_s` seconds after the epoch.
    fn seed(store: &Store, hash: &str, bytes: usize, used_s: u64) {
        let partial = store.partial(hash, None).unwrap();
        fs::create_dir(partial.environment().join("bin")).unwrap();
        fs::write(partial.environment().join("bin").join("python"), vec![0; bytes]).unwrap();
        let lock = lock::try_exclusive(&store.lock_file(hash)).unwrap().unwrap();
        store.publish(&partial, hash).unwrap();
        lock.set_modified(UNIX_EPOCH + Duration::from_secs(used_s)).unwrap();
    }

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("envs"), folder.path().join("builds")).unwrap();
        (folder, store)
    }

    fn left(store: &Store) -> Vec<String> {
        let mut hashes = store.hashes().unwrap();
        hashes.sort();
        hashes
    }

    #[test]
    fn the_longest_unused_go_first() {
        let (_folder, store) = store();
        for (hash, used_s) in [("a", 30), ("b", 10), ("c", 20)] {
            seed(&store, hash, 100, used_s);
        }
        assert_eq!(store.evict(300).unwrap(), 0);
        assert_eq!(store.evict(250).unwrap(), 1);
        assert_eq!(left(&store), ["a", "c"]);
        assert!(!store.lock_file("b").exists());
    }

    #[test]
    fn one_in_use_stays() {
        let (_folder, store) = store();
        seed(&store, "old", 100, 1);
        seed(&store, "new", 100, 2);
        let in_use = lock::try_shared(&store.lock_file("old")).unwrap().unwrap();
        assert_eq!(store.evict(0).unwrap(), 1);
        assert_eq!(left(&store), ["old"]);
        drop(in_use);
        assert_eq!(store.evict(0).unwrap(), 1);
        assert!(left(&store).is_empty());
    }

    #[test]
    fn what_a_dead_builder_left_is_swept_and_a_live_one_is_not() {
        let (_folder, store) = store();
        let room = store.builds().join("shared-0");
        fs::create_dir(&room).unwrap();
        let (dead, live) = (store.partial("dead", None).unwrap(), store.partial("live", None).unwrap());
        let in_room = store.partial("dead", Some(&room)).unwrap();
        fs::write(dead.path().join("half"), "x").unwrap();
        let _building = lock::try_exclusive(&store.lock_file("live")).unwrap().unwrap();
        let again = Store::open(store.folder.clone(), store.builds.clone()).unwrap();
        assert!(!dead.path().exists() && !in_room.path().exists());
        assert!(live.path().exists());
        assert!(left(&again).is_empty());
    }

    #[test]
    fn published_files_cannot_be_written() {
        let (_folder, store) = store();
        seed(&store, "a", 7, 1);
        let file = store.environment("a").join("bin").join("python");
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o222, 0);
        assert_eq!(measure(&store.environment("a")).unwrap(), Bytes { all: 8, sole: 8 });
    }
}
