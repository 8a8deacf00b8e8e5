//! Storage of weights, their use, and their eviction.
//!
//! ```text
//! weights/<name>                 verified blob, created by one rename. Name: its SHA-256 and, unless it is the machine's,
//!                                its owner; equal blobs of several owners are hard links to one file
//! weights/<name>.lock            locked by its users (shared) or its downloader or remover (exclusive); mtime: last
//!                                use; content: a note with the verified metadata and the sources
//! weights/.partial-<name>        being downloaded under the exclusive lock, or kept to be resumed
//! weights/.journal-<name>        the ranges that are downloaded
//! weights/.link-<name>           link that is about to replace the blob by another owner's
//! weights/.room.lock             held while evicting and reserving space
//! weights/.link.lock             held while adding a link to a blob
//! weights/sets/<hash>/<path>     link to a blob, for each file of one endpoint
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

use super::WeightFile;
use super::error::{Error, at};
use super::partial::{Partial, Places};
use super::rights::{Note, is_name};
use crate::environment::lock;
use crate::transfer;

const PARTIAL: &str = ".partial-";
const JOURNAL: &str = ".journal-";
const LINK: &str = ".link-";
const LOCK: &str = ".lock";

/// Downloads that were not resumed for this long are deleted when a worker starts.
const PARTIAL_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A folder of links that is still incomplete after this time was left by a dead process.
const SET_MAKING_MAX: Duration = Duration::from_secs(3600);

/// Disk space that downloads leave free for jobs.
const DISK_LEFT_MIN: u64 = 256 << 20;

/// The folder of all weights.
pub(super) struct Store {
    folder: PathBuf,
    cap_bytes: u64,
}

/// A verified blob. It is not deleted while this value exists.
#[derive(Debug)]
pub(super) struct Held(Arc<File>);

/// The state of a blob.
pub(super) enum Verified {
    Yes(Held),
    /// It was changed after it was verified.
    Changed,
    Absent,
}

impl Held {
    fn touch(&self) {
        // A failure affects only the order of eviction.
        let _ = self.0.set_times(FileTimes::new().set_modified(SystemTime::now()));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.touch();
    }
}

/// The files of one name.
#[derive(Default)]
struct Entry {
    blob: Option<Blob>,
    /// Size of its download.
    bytes: u64,
    /// The part of the download that is not written yet.
    unwritten: u64,
    used: Option<SystemTime>,
}

/// A file, regardless of its names.
#[derive(Clone, Copy)]
struct Blob {
    id: (u64, u64),
    bytes: u64,
}

impl Blob {
    fn of(metadata: &fs::Metadata) -> Self {
        Self { id: (metadata.dev(), metadata.ino()), bytes: metadata.len() }
    }
}

/// Names that must be deleted together to free their space.
#[derive(Default)]
struct Group {
    names: Vec<String>,
    bytes: u64,
    unwritten: u64,
    /// Last use of any of the names.
    used: Option<SystemTime>,
}

impl Store {
    /// Opens `<dir>/weights` and deletes abandoned files. Blocks on the disk.
    pub(super) fn open(dir: &Path, cap_bytes: u64) -> Result<Self, Error> {
        let folder = std::path::absolute(dir).map_err(at("find", dir))?.join("weights");
        fs::create_dir_all(folder.join("sets")).map_err(at("create", &folder))?;
        let store = Self { folder, cap_bytes };
        store.sweep().map_err(at("clean up", &store.folder))?;
        Ok(store)
    }

    pub(super) fn cap_bytes(&self) -> u64 {
        self.cap_bytes
    }

    pub(super) fn room_lock(&self) -> PathBuf {
        self.folder.join(".room.lock")
    }

    pub(super) fn blob(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn lock_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}{LOCK}"))
    }

    fn places(&self, name: &str) -> Places {
        Places {
            blob: self.blob(name),
            lock: self.lock_file(name),
            partial: self.folder.join(format!("{PARTIAL}{name}")),
            journal: self.folder.join(format!("{JOURNAL}{name}")),
            link: self.folder.join(format!("{LINK}{name}")),
        }
    }

    /// Size of all weights, including running downloads. Blocks on the disk.
    pub(super) fn bytes(&self) -> u64 {
        groups(self.entries().unwrap_or_default()).iter().map(|group| group.bytes).sum()
    }

    /// The blob, if unchanged since its verification: one with changed metadata is hashed again. The lock is held,
    /// shared or exclusively. Blocks on the disk.
    pub(super) fn verified(&self, file: &WeightFile, lock: &Arc<File>) -> io::Result<Verified> {
        self.verified_as(&file.name(), file, lock)
    }

    fn verified_as(&self, name: &str, file: &WeightFile, lock: &Arc<File>) -> io::Result<Verified> {
        let blob = self.blob(name);
        let looks = match fs::metadata(&blob) {
            Ok(metadata) => looks(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Verified::Absent),
            Err(error) => return Err(error),
        };
        let noted = noted(lock)?;
        if noted.looks != looks {
            let (bytes, sha256) = transfer::measure(&mut File::open(&blob)?)?;
            if bytes != file.size_bytes || sha256 != file.sha256 {
                tracing::warn!(weights.sha256 = file.sha256, "weights were changed after they were verified");
                return Ok(Verified::Changed);
            }
            note(lock, &Note { looks, ..noted })?;
        }
        let held = Held(Arc::clone(lock));
        held.touch();
        Ok(Verified::Yes(held))
    }

    /// Links another owner's blob to this file, if its owner may access it. The exclusive lock of the file is held.
    /// Blocks on the disk.
    pub(super) fn adopt(&self, file: &WeightFile, lock: &Arc<File>) -> io::Result<bool> {
        self.share(file, lock, |note| file.may_share(&note.sources))
    }

    /// Links this file to another owner's blob of the same hash, if `may_have` allows it.
    fn share(&self, file: &WeightFile, lock: &File, may_have: impl Fn(&Note) -> bool) -> io::Result<bool> {
        let name = file.name();
        for other in self.same_bytes(file)?.into_iter().filter(|other| *other != name) {
            let Some(shared) = lock::try_shared(&self.lock_file(&other))?.map(Arc::new) else { continue };
            if may_have(&noted(&shared)?)
                && matches!(self.verified_as(&other, file, &shared)?, Verified::Yes(_))
                && self.link_blob(&other, file, &shared, lock)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Links the blob `other` to this file. A new link changes the blob's metadata, so the notes of all its names are
    /// updated.
    fn link_blob(&self, other: &str, file: &WeightFile, shared: &File, lock: &File) -> io::Result<bool> {
        let linking = File::create(self.folder.join(".link.lock"))?;
        linking.lock()?;
        let (name, blob) = (file.name(), self.blob(other));
        let before = fs::metadata(&blob)?;
        let known = noted(shared)?;
        if known.looks != looks(&before) || before.len() != file.size_bytes {
            return Ok(false);
        }
        let places = self.places(&name);
        remove(&places.link)?;
        fs::hard_link(&blob, &places.link)?;
        fs::rename(&places.link, &places.blob)?;
        // It remains if both names already refer to the same file.
        remove(&places.link)?;
        let after = looks(&fs::metadata(&places.blob)?);
        for also in self.same_bytes(file)?.into_iter().filter(|also| *also != name) {
            let is_same = fs::metadata(self.blob(&also)).is_ok_and(|also| Blob::of(&also).id == Blob::of(&before).id);
            // A name that is being deleted needs no note, and one without a note is hashed again.
            if is_same && let Some(lock) = lock::try_shared(&self.lock_file(&also))? {
                let used = lock.metadata()?.modified()?;
                let noted = noted(&lock)?;
                if noted.looks == known.looks {
                    note(&lock, &Note { looks: after.clone(), ..noted })?;
                    lock.set_times(FileTimes::new().set_modified(used))?;
                }
            }
        }
        let mut own = noted(lock)?;
        own.looks = after;
        own.learn(known.sources);
        note(lock, &own)?;
        Ok(true)
    }

    /// The names of blobs of the same hash.
    fn same_bytes(&self, file: &WeightFile) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.folder)?.flatten().filter_map(|item| item.file_name().into_string().ok());
        Ok(names.filter(|name| name.starts_with(&file.sha256) && is_name(name)).collect())
    }

    /// Reserves space for downloads, and opens them: all or none. The exclusive locks of the files and of the room are
    /// held. Blocks on the disk.
    pub(super) fn reserve(&self, wanted: &[(WeightFile, Arc<File>)]) -> Result<Vec<Arc<Partial>>, Error> {
        let mut need = 0;
        for (file, lock) in wanted {
            let places = self.places(&file.name());
            let partial = fs::metadata(&places.partial).ok().filter(|partial| partial.len() == file.size_bytes);
            if places.blob.exists() {
                // The blob was changed.
                fs::remove_file(&places.blob).map_err(at("remove", &places.blob))?;
            }
            need += if partial.is_some() { 0 } else { file.size_bytes };
            note(lock, &Note::default()).map_err(at("write", &places.lock))?;
        }
        if let Err(error) = self.make_room(need) {
            for (places, _) in wanted.iter().map(|(file, lock)| (self.places(&file.name()), lock)) {
                // The lock file guards nothing any more, and no eviction would remove it.
                let _ = if places.partial.exists() { Ok(()) } else { places.remove() };
            }
            return Err(error);
        }
        let open = |(file, lock): &(WeightFile, Arc<File>)| {
            let partial = Partial::open(self.places(&file.name()), file.size_bytes, Arc::clone(lock));
            partial.map(Arc::new).map_err(Error::write(&file.path))
        };
        wanted.iter().map(open).collect()
    }

    /// Deletes weights, least recently used first, until `need` more bytes fit. Deletes nothing if they cannot fit.
    fn make_room(&self, need: u64) -> Result<(), Error> {
        let mut by_use = groups(self.entries().map_err(at("list", &self.folder))?);
        let mut total: u64 = by_use.iter().map(|group| group.bytes).sum();
        let unwritten: u64 = by_use.iter().map(|group| group.unwritten).sum();
        let mut free = free_bytes(&self.folder).map_err(at("read the free space of", &self.folder))?;
        free = free.saturating_sub(unwritten + DISK_LEFT_MIN);

        by_use.sort_by_key(|group| group.used);
        let mut leaving = Vec::new();
        for group in by_use {
            if total + need <= self.cap_bytes && free >= need {
                break;
            }
            let Some(locks) = self.lock_all(&group.names)? else { continue };
            total -= group.bytes;
            free += group.bytes;
            leaving.push((group, locks));
        }
        if total + need > self.cap_bytes {
            return Err(Error::InUse { need, in_use: total, cap: self.cap_bytes });
        }
        if free < need {
            return Err(Error::Disk { need, free });
        }
        for (Group { names, bytes, .. }, _locks) in &leaving {
            for name in names {
                self.places(name).remove().map_err(at("remove", &self.blob(name)))?;
            }
            tracing::info!(weights.names = ?names, bytes, "weights evicted");
        }
        Ok(())
    }

    /// The exclusive locks of these names; `None` if one is in use.
    fn lock_all(&self, names: &[String]) -> Result<Option<Vec<File>>, Error> {
        let lock = |name: &String| {
            let lock_file = self.lock_file(name);
            lock::try_exclusive(&lock_file).map_err(at("lock", &lock_file))
        };
        names.iter().map(lock).collect()
    }

    /// Publishes a verified download; `None` if another process has deleted it since. Blocks on the disk.
    pub(super) fn publish(&self, file: &WeightFile, partial: &Arc<Partial>) -> io::Result<Option<Held>> {
        partial.publish()?;
        let (lock, blob) = (partial.lock(), self.blob(&file.name()));
        let mut known = Note { looks: looks(&fs::metadata(&blob)?), sources: Vec::new() };
        // The source of a resumed download is not fully known.
        known.learn(file.open_source().filter(|_| !partial.is_resumed()));
        note(lock, &known)?;
        // The owner has proved that it can download these bytes, so one copy on disk is enough.
        if let Err(error) = self.share(file, lock, |_| true) {
            tracing::debug!(%error, weights.sha256 = file.sha256, "cannot share weights between owners; they are stored twice");
        }
        // Another process may get the lock in between.
        lock.lock_shared()?;
        let is_there = lock.metadata()?.nlink() > 0 && blob.exists();
        Ok(is_there.then(|| Held(Arc::clone(lock))))
    }

    /// The folder of links for these files, whose blobs are in use. Blocks on the disk.
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
            // A link is missing.
            fs::remove_dir_all(&set)?;
        }
        match fs::rename(making.path(), &set) {
            Ok(()) => drop(making.keep()),
            // Another process created it first.
            Err(_) if is_whole(&set) => {}
            Err(error) => return Err(error),
        }
        Ok(set)
    }

    fn sweep(&self) -> io::Result<()> {
        for (name, entry) in self.entries()? {
            let places = self.places(&name);
            let unused = entry.used.and_then(|used| used.elapsed().ok());
            let is_old = unused.is_some_and(|unused| unused > PARTIAL_KEPT) || entry.bytes == 0;
            // If the lock is taken, the download is running.
            if (places.link.exists() || (is_old && !places.blob.exists()))
                && let Some(_lock) = lock::try_exclusive(&places.lock)?
            {
                remove(&places.link)?;
                if is_old && !places.blob.exists() {
                    tracing::info!(weights.name = name, "removing an abandoned download");
                    places.remove()?;
                }
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

    /// The existing files, by name.
    fn entries(&self) -> io::Result<BTreeMap<String, Entry>> {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for item in fs::read_dir(&self.folder)?.flatten() {
            let (Ok(called), Ok(metadata)) = (item.file_name().into_string(), item.metadata()) else { continue };
            let bare = called.strip_suffix(LOCK).unwrap_or(&called);
            let prefix = [PARTIAL, JOURNAL, LINK].into_iter().find(|prefix| bare.starts_with(prefix));
            let name = &bare[prefix.map_or(0, str::len)..];
            if !is_name(name) || !metadata.is_file() {
                continue;
            }
            let entry = entries.entry(name.to_owned()).or_default();
            match prefix {
                _ if called.ends_with(LOCK) => entry.used = metadata.modified().ok(),
                Some(PARTIAL) => {
                    entry.bytes = metadata.len();
                    entry.unwritten = metadata.len().saturating_sub(metadata.blocks() * 512);
                }
                Some(_) => {}
                None => entry.blob = Some(Blob::of(&metadata)),
            }
        }
        Ok(entries)
    }
}

/// Groups entries by the file that they refer to.
fn groups(entries: BTreeMap<String, Entry>) -> Vec<Group> {
    let (mut shared, mut groups): (BTreeMap<(u64, u64), Group>, Vec<Group>) = Default::default();
    for (name, entry) in entries {
        let mut alone = Group::default();
        let group = match entry.blob {
            Some(blob) => {
                let group = shared.entry(blob.id).or_default();
                group.bytes = group.bytes.max(blob.bytes);
                group
            }
            None => &mut alone,
        };
        group.names.push(name);
        group.bytes += entry.bytes;
        group.unwritten += entry.unwritten;
        group.used = group.used.max(entry.used);
        if !alone.names.is_empty() {
            groups.push(alone);
        }
    }
    groups.extend(shared.into_values());
    groups
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The metadata that identifies an unchanged file: any change of its bytes or permissions changes the time.
fn looks(metadata: &fs::Metadata) -> String {
    format!("{} {}.{:09}", metadata.len(), metadata.ctime(), metadata.ctime_nsec())
}

fn noted(lock: &File) -> io::Result<Note> {
    let (mut lock, mut text) = (lock, Vec::new());
    lock.rewind()?;
    lock.take(Note::BYTES_MAX).read_to_end(&mut text)?;
    Ok(Note::parse(&String::from_utf8_lossy(&text)))
}

/// Writes a note into a lock file, which also updates its last use.
fn note(lock: &File, note: &Note) -> io::Result<()> {
    let mut lock = lock;
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(note.text().as_bytes())?;
    lock.set_times(FileTimes::new().set_modified(SystemTime::now()))
}

/// Relative path from the link in a set to the blob.
fn target(file: &WeightFile) -> PathBuf {
    let up = Path::new(&file.path).components().count() + 1;
    std::iter::repeat_n("..", up).collect::<PathBuf>().join(file.name())
}

/// Whether all links of a set refer to existing blobs; those of a set in use always do.
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
