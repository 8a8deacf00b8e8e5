//! Notes in lock files: the metadata of verified blobs, and their sources.

use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use crate::weights::rights::Note;

/// The metadata that identifies an unchanged file: any change of its bytes or permissions changes the time.
pub(super) fn fingerprint(metadata: &fs::Metadata) -> String {
    format!("{} {}.{:09}", metadata.len(), metadata.ctime(), metadata.ctime_nsec())
}

pub(super) fn noted(lock: &File) -> io::Result<Note> {
    let (mut lock, mut text) = (lock, Vec::new());
    lock.rewind()?;
    lock.take(Note::BYTES_MAX).read_to_end(&mut text)?;
    Ok(Note::parse(&String::from_utf8_lossy(&text)))
}

/// Writes a note into a lock file, which also updates its last use.
pub(super) fn note(lock: &File, note: &Note) -> io::Result<()> {
    let mut lock = lock;
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(note.text().as_bytes())?;
    lock.set_times(FileTimes::new().set_modified(SystemTime::now()))
}
