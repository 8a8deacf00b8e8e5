//! Storage of weights, their use, and their eviction.
//!
//! ```text
//! weights/<name>                 verified blob, created by one rename. Name: its SHA-256 and, unless it belongs to the
//!                                machine, its owner; equal blobs of several owners are hard links to one file
//! weights/<name>.lock            locked by its users (shared) or its downloader or remover (exclusive); mtime: last
//!                                use; content: a note with the verified metadata and the sources
//! weights/.partial-<name>        being downloaded under the exclusive lock, or kept to be resumed
//! weights/.journal-<name>        the ranges that are downloaded
//! weights/.link-<name>           link that is about to replace the blob by another owner's
//! weights/.room.lock             held while evicting and reserving space
//! weights/.link.lock             held while adding a link to a blob
//! weights/sets/<hash>/<path>     link to a blob, for each file of one endpoint
//! ```

mod entries;
mod notes;
mod room;
mod sets;
mod share;
mod sweep;

use std::fs::{self, FileTimes};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use self::entries::groups;
use self::notes::{fingerprint, note};
use super::WeightFile;
use super::error::{Error, at};
use super::partial::{Partial, Paths};
use super::rights::Note;
use crate::environment::lock::LockedFile;

const PARTIAL: &str = ".partial-";
const JOURNAL: &str = ".journal-";
const LINK: &str = ".link-";
const LOCK: &str = ".lock";

/// The folder of all weights.
pub(super) struct Store {
    folder: PathBuf,
    cap_bytes: u64,
}

/// A verified blob. It is not deleted while this value exists.
#[derive(Debug)]
pub(super) struct VerifiedBlob(Arc<LockedFile>);

/// The state of a blob.
pub(super) enum BlobState {
    Verified(VerifiedBlob),
    /// It was changed after it was verified.
    Changed,
    Absent,
}

impl VerifiedBlob {
    fn touch(&self) {
        // A failure affects only the order of eviction.
        let _ = self.0.set_times(FileTimes::new().set_modified(SystemTime::now()));
    }
}

impl Drop for VerifiedBlob {
    fn drop(&mut self) {
        self.touch();
    }
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

    fn paths(&self, name: &str) -> Paths {
        Paths {
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

    /// Publishes a verified download; `None` if another process has deleted it since. Blocks on the disk.
    pub(super) fn publish(&self, file: &WeightFile, partial: &Arc<Partial>) -> io::Result<Option<VerifiedBlob>> {
        partial.publish()?;
        let (lock, blob) = (partial.lock(), self.blob(&file.name()));
        let mut known = Note { fingerprint: fingerprint(&fs::metadata(&blob)?), sources: Vec::new() };
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
        Ok(is_there.then(|| VerifiedBlob(Arc::clone(lock))))
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
