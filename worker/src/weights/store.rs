//! Where weights lie, who uses them, and which must go.
//!
//! ```text
//! weights/<sha256>               verified: it came here by one rename
//! weights/<sha256>.lock          shared by its users; exclusive while it is downloaded or removed; its mtime is the last use, its
//!                                text what the file looked like when it was verified
//! weights/.partial-<sha256>      being downloaded under the exclusive lock, or left to go on from
//! weights/.journal-<sha256>      which of its bytes are there
//! weights/.room.lock             held while room is made and taken
//! weights/sets/<hash>/<path>     a link to a blob, for each file of one endpoint
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::sys::statvfs::statvfs;
use sha2::{Digest, Sha256};

use super::error::{Error, at};
use super::partial::{Partial, Places};
use super::{WeightFile, is_sha256};
use crate::environment::lock;
use crate::transfer;

const PARTIAL: &str = ".partial-";
const JOURNAL: &str = ".journal-";
const LOCK: &str = ".lock";

/// Downloads that nobody has gone on with for this long are removed when a worker starts.
const PARTIAL_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A folder of links that is not finished by now was left by a process that died.
const SET_MAKING_MAX: Duration = Duration::from_secs(3600);

/// What downloads leave free on the disk, for jobs to go on.
const DISK_LEFT_MIN: u64 = 256 << 20;

/// The folder of all weights.
pub(super) struct Store {
    folder: PathBuf,
    cap_bytes: u64,
}

/// A verified blob. It is not removed while this is held.
#[derive(Debug)]
pub(super) struct Held(Arc<File>);

/// What a look at a blob shows.
pub(super) enum Verified {
    Yes(Held),
    /// It is not what was verified when it came.
    Changed,
    Absent,
}

impl Held {
    fn touch(&self) {
        // Only the order of eviction suffers if it fails.
        let _ = self.0.set_times(FileTimes::new().set_modified(SystemTime::now()));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.touch();
    }
}

/// What one hash takes.
#[derive(Default)]
struct Entry {
    bytes: u64,
    /// Of which a download has yet to write.
    unwritten: u64,
    used: Option<SystemTime>,
}

impl Store {
    /// Opens `<dir>/weights` and removes what no one will go on with. Blocks on the disk.
    pub(super) fn open(dir: &Path, cap_bytes: u64) -> Result<Self, Error> {
        let folder = std::path::absolute(dir).map_err(at("find", dir))?.join("weights");
        fs::create_dir_all(folder.join("sets")).map_err(at("create", &folder))?;
        let store = Self { folder, cap_bytes };
        store.sweep().map_err(at("tidy", &store.folder))?;
        Ok(store)
    }

    pub(super) fn cap_bytes(&self) -> u64 {
        self.cap_bytes
    }

    pub(super) fn room_lock(&self) -> PathBuf {
        self.folder.join(".room.lock")
    }

    pub(super) fn blob(&self, sha256: &str) -> PathBuf {
        self.folder.join(sha256)
    }

    pub(super) fn lock_file(&self, sha256: &str) -> PathBuf {
        self.folder.join(format!("{sha256}{LOCK}"))
    }

    fn places(&self, sha256: &str) -> Places {
        Places {
            blob: self.blob(sha256),
            lock: self.lock_file(sha256),
            partial: self.folder.join(format!("{PARTIAL}{sha256}")),
            journal: self.folder.join(format!("{JOURNAL}{sha256}")),
        }
    }

    /// The size of all of them, with what is being downloaded. Blocks on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.entries().unwrap_or_default().values().map(|entry| entry.bytes).sum()
    }

    /// The blob, if it is what was verified: one that looks otherwise than it did is hashed again. The lock is held, shared or
    /// not. Blocks on the disk.
    pub(super) fn verified(&self, file: &WeightFile, lock: &Arc<File>) -> io::Result<Verified> {
        let blob = self.blob(&file.sha256);
        let looks = match fs::metadata(&blob) {
            Ok(metadata) => looks(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Verified::Absent),
            Err(error) => return Err(error),
        };
        let mut noted = String::new();
        (&**lock).rewind()?;
        (&**lock).take(1024).read_to_string(&mut noted)?;
        if noted != looks {
            let (bytes, sha256) = transfer::measure(&mut File::open(&blob)?)?;
            if bytes != file.size_bytes || sha256 != file.sha256 {
                tracing::warn!(weights.sha256 = file.sha256, "weights were changed after they were verified");
                return Ok(Verified::Changed);
            }
            note(lock, &looks)?;
        }
        let held = Held(Arc::clone(lock));
        held.touch();
        Ok(Verified::Yes(held))
    }

    /// Takes room for downloads, and opens them: all or none. The exclusive lock of each is held, and that of the room. Blocks on
    /// the disk.
    pub(super) fn reserve(&self, wanted: &[(WeightFile, Arc<File>)]) -> Result<Vec<Arc<Partial>>, Error> {
        let mut need = 0;
        for (file, lock) in wanted {
            let places = self.places(&file.sha256);
            let partial = fs::metadata(&places.partial).ok().filter(|partial| partial.len() == file.size_bytes);
            if places.blob.exists() {
                // Not what was verified.
                fs::remove_file(&places.blob).map_err(at("remove", &places.blob))?;
            }
            need += if partial.is_some() { 0 } else { file.size_bytes };
            note(lock, "").map_err(at("write", &places.lock))?;
        }
        if let Err(error) = self.make_room(need) {
            for (places, _) in wanted.iter().map(|(file, lock)| (self.places(&file.sha256), lock)) {
                // Nothing is left for the lock to guard, and nothing would ever evict it.
                let _ = if places.partial.exists() { Ok(()) } else { places.remove() };
            }
            return Err(error);
        }
        let open = |(file, lock): &(WeightFile, Arc<File>)| {
            let partial = Partial::open(self.places(&file.sha256), file.size_bytes, Arc::clone(lock));
            partial.map(Arc::new).map_err(Error::write(&file.path))
        };
        wanted.iter().map(open).collect()
    }

    /// Removes what has been unused the longest until `need` more bytes fit. Removes nothing if they cannot.
    fn make_room(&self, need: u64) -> Result<(), Error> {
        let entries = self.entries().map_err(at("list", &self.folder))?;
        let mut total: u64 = entries.values().map(|entry| entry.bytes).sum();
        let unwritten: u64 = entries.values().map(|entry| entry.unwritten).sum();
        let mut free = free_bytes(&self.folder).map_err(at("ask for the room in", &self.folder))?;
        free = free.saturating_sub(unwritten + DISK_LEFT_MIN);

        let mut by_use: Vec<(String, Entry)> = entries.into_iter().collect();
        by_use.sort_by_key(|(_, entry)| entry.used);
        let mut leaving = Vec::new();
        for (sha256, entry) in by_use {
            if total + need <= self.cap_bytes && free >= need {
                break;
            }
            let lock_file = self.lock_file(&sha256);
            let Some(lock) = lock::try_exclusive(&lock_file).map_err(at("lock", &lock_file))? else { continue };
            total -= entry.bytes;
            free += entry.bytes;
            leaving.push((sha256, entry.bytes, lock));
        }
        if total + need > self.cap_bytes {
            return Err(Error::InUse { need, in_use: total, cap: self.cap_bytes });
        }
        if free < need {
            return Err(Error::Disk { need, free });
        }
        for (sha256, bytes, _lock) in &leaving {
            self.places(sha256).remove().map_err(at("remove", &self.blob(sha256)))?;
            tracing::info!(weights.sha256 = sha256, bytes, "weights evicted");
        }
        Ok(())
    }

    /// Makes a download the blob, its hash having been compared; `None` when another process has removed it since. Blocks on the
    /// disk.
    pub(super) fn publish(&self, file: &WeightFile, partial: &Arc<Partial>) -> io::Result<Option<Held>> {
        partial.publish()?;
        let lock = partial.lock();
        note(lock, &looks(&fs::metadata(self.blob(&file.sha256))?))?;
        // The kernel may let another in between the two locks.
        lock.lock_shared()?;
        let is_there = lock.metadata()?.nlink() > 0 && self.blob(&file.sha256).exists();
        Ok(is_there.then(|| Held(Arc::clone(lock))))
    }

    /// The folder of links for these files, whose blobs are held. Blocks on the disk.
    pub(super) fn link(&self, files: &[WeightFile]) -> io::Result<PathBuf> {
        let links: BTreeMap<&str, PathBuf> = files.iter().map(|file| (file.path.as_str(), target(file))).collect();
        let mut hash = Sha256::new();
        for (path, target) in &links {
            // No path can hold a zero byte.
            hash.update(format!("{path}\0{}\0", target.display()));
        }
        let sets = self.folder.join("sets");
        let set = sets.join(hex::encode(hash.finalize()));
        let is_whole =
            |set: &Path| links.iter().all(|(path, to)| fs::read_link(set.join(path)).is_ok_and(|is| is == *to));
        if is_whole(&set) {
            return Ok(set);
        }
        let making = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(&sets)?;
        fs::set_permissions(making.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        for (path, to) in &links {
            let link = making.path().join(path);
            link.parent().map_or(Ok(()), fs::create_dir_all)?;
            symlink(to, link)?;
        }
        if set.exists() {
            // Someone took a link away.
            fs::remove_dir_all(&set)?;
        }
        match fs::rename(making.path(), &set) {
            Ok(()) => drop(making.keep()),
            // Another was first.
            Err(_) if is_whole(&set) => {}
            Err(error) => return Err(error),
        }
        Ok(set)
    }

    fn sweep(&self) -> io::Result<()> {
        for (sha256, entry) in self.entries()? {
            let places = self.places(&sha256);
            let unused = entry.used.and_then(|used| used.elapsed().ok());
            let is_old = unused.is_some_and(|unused| unused > PARTIAL_KEPT) && !places.blob.exists();
            // Locked: it is being downloaded.
            if (is_old || entry.bytes == 0)
                && !places.blob.exists()
                && let Some(_lock) = lock::try_exclusive(&places.lock)?
            {
                tracing::info!(weights.sha256 = sha256, "removing a download that was given up");
                places.remove()?;
            }
        }
        for set in fs::read_dir(self.folder.join("sets"))?.flatten() {
            let is_stale = if set.file_name().to_string_lossy().starts_with(PARTIAL) {
                let age = set.metadata().and_then(|set| set.modified()).ok().and_then(|made| made.elapsed().ok());
                age.is_some_and(|age| age > SET_MAKING_MAX)
            } else {
                !leads_to_blobs(&set.path())
            };
            if is_stale {
                fs::remove_dir_all(set.path())?;
            }
        }
        Ok(())
    }

    /// What is there, by hash.
    fn entries(&self) -> io::Result<BTreeMap<String, Entry>> {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for item in fs::read_dir(&self.folder)?.flatten() {
            let (Ok(name), Ok(metadata)) = (item.file_name().into_string(), item.metadata()) else { continue };
            let bare = name.strip_suffix(LOCK).or_else(|| name.strip_prefix(JOURNAL)).unwrap_or(&name);
            let sha256 = name.strip_prefix(PARTIAL).unwrap_or(bare);
            if !is_sha256(sha256) || !metadata.is_file() {
                continue;
            }
            let entry = entries.entry(sha256.to_owned()).or_default();
            if name.ends_with(LOCK) {
                entry.used = metadata.modified().ok();
            } else if !name.starts_with(JOURNAL) {
                entry.bytes += metadata.len();
                entry.unwritten += metadata.len().saturating_sub(metadata.blocks() * 512);
            }
        }
        Ok(entries)
    }
}

/// How a file looks that nobody has changed: any change of its bytes or its rights changes the time.
fn looks(metadata: &fs::Metadata) -> String {
    format!("{} {}.{:09}", metadata.len(), metadata.ctime(), metadata.ctime_nsec())
}

/// Writes into a lock file, which also makes this its last use.
fn note(lock: &File, text: &str) -> io::Result<()> {
    let mut lock = lock;
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(text.as_bytes())?;
    lock.set_times(FileTimes::new().set_modified(SystemTime::now()))
}

/// From its link in a set to the blob.
fn target(file: &WeightFile) -> PathBuf {
    let up = Path::new(&file.path).components().count() + 1;
    std::iter::repeat_n("..", up).collect::<PathBuf>().join(&file.sha256)
}

/// Whether all links of a set do: those of one in use always do.
fn leads_to_blobs(set: &Path) -> bool {
    let mut folders = vec![set.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(items) = fs::read_dir(&folder) else { return false };
        for item in items.flatten() {
            match item.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(item.path()),
                Ok(_) if item.path().exists() => {}
                _ => return false,
            }
        }
    }
    true
}

#[expect(clippy::useless_conversion, reason = "the fields' types differ between systems")]
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let stat = statvfs(folder).map_err(io::Error::from)?;
    Ok(u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size())))
}
