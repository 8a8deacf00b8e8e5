//! A file during its download: its bytes, a journal of the written ranges, and the hash of its beginning.
//!
//! The journal consists of lines of text: `size <bytes>`, `etag <hex>`, and `<start> <end>` for each written range. An
//! incomplete last line is ignored. After a power failure, the journal may be ahead of the file: then the hash differs
//! and the download restarts.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use super::ranges::Ranges;
use crate::environment::lock::LockedFile;

const HASH_BYTES: usize = 1 << 20;

/// The paths of one blob's files.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    pub(super) blob: PathBuf,
    pub(super) lock: PathBuf,
    pub(super) partial: PathBuf,
    pub(super) journal: PathBuf,
    pub(super) link: PathBuf,
}

impl Paths {
    /// Deletes all files. The exclusive lock is held.
    pub(super) fn remove(&self) -> io::Result<()> {
        // The journal before the data that it describes, the lock last.
        for path in [&self.journal, &self.partial, &self.link, &self.blob, &self.lock] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A download that may be interrupted at any point. Writers hold it, and with it the exclusive lock, so that a writer
/// whose caller was cancelled cannot conflict with the next one.
pub(super) struct Partial {
    paths: Paths,
    size_bytes: u64,
    file: File,
    /// Bytes that an earlier process or call downloaded.
    resumed_bytes: u64,
    done_bytes: AtomicU64,
    /// Number of restarts: bytes that were requested before the last one are not written.
    generation: AtomicU64,
    /// The server's ETag of this version.
    etag: Mutex<Option<String>>,
    written: Mutex<Written>,
    hashed: Mutex<Hashed>,
    is_hashing: AtomicBool,
    is_published: AtomicBool,
    // Must be dropped last.
    lock: Arc<LockedFile>,
}

struct Written {
    ranges: Ranges,
    journal: File,
}

/// The hash of the first bytes, read back from the file during the download.
struct Hashed {
    generation: u64,
    hash: Sha256,
    bytes: u64,
}

impl Hashed {
    fn new(generation: u64) -> Self {
        Self { generation, hash: Sha256::new(), bytes: 0 }
    }
}

/// The content of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
struct Journal {
    etag: Option<String>,
    ranges: Ranges,
}

impl Journal {
    /// Parses a journal; one for another size is ignored.
    fn parse(text: &str, size_bytes: u64) -> Self {
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.split_once(' '));
        let mut journal = Self::default();
        if lines.next() != Some(("size", &size_bytes.to_string())) {
            return journal;
        }
        for (key, value) in lines {
            if key == "etag" {
                journal.etag = hex::decode(value).ok().and_then(|etag| String::from_utf8(etag).ok());
            } else if let (Ok(start), Ok(end)) = (key.parse(), value.parse())
                && end <= size_bytes
            {
                journal.ranges.insert(start..end);
            }
        }
        journal
    }

    fn text(&self, size_bytes: u64) -> String {
        let etag = self.etag.iter().map(|etag| etag_line(etag));
        let ranges = self.ranges.iter().map(|range| range_line(&range));
        std::iter::once(format!("size {size_bytes}\n")).chain(etag).chain(ranges).collect()
    }
}

fn etag_line(etag: &str) -> String {
    format!("etag {}\n", hex::encode(etag))
}

fn range_line(range: &Range<u64>) -> String {
    format!("{} {}\n", range.start, range.end)
}

/// Runs blocking disk operations.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

impl Partial {
    /// Opens or creates a download. The file gets its full size immediately to reserve the space. Blocks on the disk.
    pub(super) fn open(paths: Paths, size_bytes: u64, lock: Arc<LockedFile>) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&paths.partial)?;
        let known = match fs::read_to_string(&paths.journal) {
            Ok(text) if file.metadata()?.len() == size_bytes => Journal::parse(&text, size_bytes),
            Ok(_) => Journal::default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Journal::default(),
            Err(error) => return Err(error),
        };
        // Rewrite the journal without an incomplete line, which the next line would continue.
        let mut journal = File::create(&paths.journal)?;
        journal.write_all(known.text(size_bytes).as_bytes())?;
        file.set_len(size_bytes)?;
        let done_bytes = known.ranges.bytes();
        Ok(Self {
            paths,
            size_bytes,
            file,
            resumed_bytes: done_bytes,
            done_bytes: AtomicU64::new(done_bytes),
            generation: AtomicU64::new(0),
            etag: Mutex::new(known.etag),
            written: Mutex::new(Written { ranges: known.ranges, journal }),
            hashed: Mutex::new(Hashed::new(0)),
            is_hashing: AtomicBool::new(false),
            is_published: AtomicBool::new(false),
            lock,
        })
    }

    pub(super) fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// Whether an earlier process or call downloaded a part of it.
    pub(super) fn is_resumed(&self) -> bool {
        self.resumed_bytes > 0
    }

    /// Whether bytes have arrived since it was opened.
    pub(super) fn has_grown(&self) -> bool {
        self.done_bytes() > self.resumed_bytes
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn etag(&self) -> Option<String> {
        self.etag.lock().clone()
    }

    /// Records the server's ETag.
    pub(super) async fn set_etag(self: &Arc<Self>, etag: String) -> io::Result<()> {
        let this = Arc::clone(self);
        blocking(move || {
            let mut written = this.written.lock();
            let mut known = this.etag.lock();
            if known.is_none() {
                written.journal.write_all(etag_line(&etag).as_bytes())?;
                *known = Some(etag);
            }
            Ok(())
        })
        .await
    }

    /// The missing ranges, in order.
    pub(super) async fn gaps(self: &Arc<Self>, piece_bytes: u64) -> io::Result<Vec<Range<u64>>> {
        let this = Arc::clone(self);
        blocking(move || Ok(this.written.lock().ranges.gaps(this.size_bytes, piece_bytes))).await
    }

    /// Writes bytes that were requested in this generation, and returns the empty buffer.
    pub(super) async fn write(self: &Arc<Self>, generation: u64, at: u64, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let this = Arc::clone(self);
        let buffer = blocking(move || {
            // One writer at a time: copying into the page cache is faster than any network, and no write can follow a
            // restart.
            let mut written = this.written.lock();
            if this.generation() == generation {
                let range = at..at + bytes.len() as u64;
                this.file.write_all_at(&bytes, at)?;
                written.journal.write_all(range_line(&range).as_bytes())?;
                written.ranges.insert(range);
                this.done_bytes.store(written.ranges.bytes(), Ordering::Relaxed);
            }
            bytes.clear();
            Ok(bytes)
        });
        let buffer = buffer.await?;
        if !self.is_hashing.swap(true, Ordering::AcqRel) {
            let this = Arc::clone(self);
            // Not awaited, so that the download does not wait. Errors are detected when the rest is hashed.
            drop(spawn_blocking(move || {
                drop(this.catch_up(true));
                this.is_hashing.store(false, Ordering::Release);
            }));
        }
        Ok(buffer)
    }

    /// Hashes the contiguous beginning of the file. Ends early after a restart or, if `ends_alone`, when no other owner
    /// is left.
    fn catch_up(self: &Arc<Self>, ends_alone: bool) -> io::Result<MutexGuard<'_, Hashed>> {
        let mut hashed = self.hashed.lock();
        let mut buffer = vec![0; HASH_BYTES];
        loop {
            let frontier = self.written.lock().ranges.frontier();
            let count = frontier.saturating_sub(hashed.bytes).min(buffer.len() as u64);
            let is_over = hashed.generation != self.generation() || (ends_alone && Arc::strong_count(self) == 1);
            if count == 0 || is_over {
                return Ok(hashed);
            }
            // At most the size of the buffer.
            let piece = &mut buffer[..count as usize];
            self.file.read_exact_at(piece, hashed.bytes)?;
            hashed.hash.update(piece);
            hashed.bytes += count;
        }
    }

    /// The SHA-256 of the complete file, in hex.
    pub(super) async fn sha256(self: &Arc<Self>) -> io::Result<String> {
        let this = Arc::clone(self);
        blocking(move || {
            let hashed = this.catch_up(false)?;
            if hashed.bytes < this.size_bytes {
                return Err(io::Error::other("the download is incomplete"));
            }
            Ok(hex::encode(hashed.hash.clone().finalize()))
        })
        .await
    }

    /// Discards all downloaded data.
    pub(super) async fn restart(self: &Arc<Self>) -> io::Result<()> {
        let this = Arc::clone(self);
        blocking(move || {
            // First, so that hashing stops.
            let generation = this.generation.fetch_add(1, Ordering::AcqRel) + 1;
            *this.hashed.lock() = Hashed::new(generation);
            let mut written = this.written.lock();
            written.journal = File::create(&this.paths.journal)?;
            written.journal.write_all(Journal::default().text(this.size_bytes).as_bytes())?;
            written.ranges = Ranges::default();
            *this.etag.lock() = None;
            this.done_bytes.store(0, Ordering::Relaxed);
            Ok(())
        })
        .await
    }

    /// Publishes the blob after its hash was verified. Blocks on the disk.
    pub(super) fn publish(&self) -> io::Result<()> {
        self.file.set_permissions(fs::Permissions::from_mode(0o444))?;
        self.file.sync_all()?;
        fs::rename(&self.paths.partial, &self.paths.blob)?;
        self.is_published.store(true, Ordering::Release);
        fs::remove_file(&self.paths.journal)?;
        // Flush the folder, or the name could be lost.
        self.paths.blob.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    pub(super) fn lock(&self) -> &Arc<LockedFile> {
        &self.lock
    }
}

impl Drop for Partial {
    /// Deletes a download without any data, to free its space.
    fn drop(&mut self) {
        if !*self.is_published.get_mut()
            && *self.done_bytes.get_mut() == 0
            && let Err(error) = self.paths.remove()
        {
            tracing::debug!(%error, "cannot remove an empty download");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]
    use super::*;

    fn paths(folder: &std::path::Path) -> Paths {
        let place = |name: &str| folder.join(name);
        let (blob, lock, partial) = (place("blob"), place("lock"), place("partial"));
        Paths { blob, lock, partial, journal: place("journal"), link: place("link") }
    }

    fn open(folder: &std::path::Path, size_bytes: u64) -> Arc<Partial> {
        let paths = paths(folder);
        let lock = Arc::new(crate::environment::lock::try_shared(&paths.lock).unwrap().unwrap());
        Arc::new(Partial::open(paths, size_bytes, lock).unwrap())
    }

    #[test]
    fn a_line_that_was_cut_off_is_not_believed() {
        let ranges = |text: &str| Journal::parse(text, 100).ranges.iter().collect::<Vec<_>>();
        assert_eq!(ranges("size 100\n0 10\n20 30\n"), [0..10, 20..30]);
        assert_eq!(ranges("size 100\n0 10\n20 3"), [0..10]);
        assert_eq!(ranges("size 10"), []);
        assert_eq!(ranges("size 99\n0 10\n"), [], "another file");
        assert_eq!(ranges("size 100\n90 110\nx y\n7 3\n"), []);
    }

    #[tokio::test]
    async fn what_was_written_is_there_when_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let partial = open(folder.path(), 10);
        partial.set_etag("\"a b\n\"".to_owned()).await.unwrap();
        partial.write(0, 6, b"ghij".to_vec()).await.unwrap();
        partial.write(0, 0, b"ab".to_vec()).await.unwrap();
        drop(partial);
        let again = open(folder.path(), 10);
        assert!(again.is_resumed());
        assert_eq!((again.done_bytes(), again.etag().as_deref()), (6, Some("\"a b\n\"")));
        assert_eq!(again.gaps(3).await.unwrap(), [2..5, 5..6]);
        again.write(0, 2, b"cdef".to_vec()).await.unwrap();
        assert_eq!(again.sha256().await.unwrap(), hex::encode(Sha256::digest(b"abcdefghij")));
    }

    #[tokio::test]
    async fn what_was_asked_for_before_a_new_beginning_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let partial = open(folder.path(), 4);
        partial.write(0, 0, b"old".to_vec()).await.unwrap();
        partial.restart().await.unwrap();
        partial.write(0, 3, b"x".to_vec()).await.unwrap();
        assert_eq!((partial.done_bytes(), partial.gaps(9).await.unwrap()), (0, vec![0..4]));
        partial.write(1, 0, b"newe".to_vec()).await.unwrap();
        assert_eq!(partial.sha256().await.unwrap(), hex::encode(Sha256::digest(b"newe")));
    }

    #[test]
    fn an_empty_one_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), 4));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
