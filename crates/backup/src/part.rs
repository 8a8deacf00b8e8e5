//! Parts: lines of JSON, one per entry, compressed and then sealed. A part is built in memory and stays sealed in a
//! scratch folder until it is uploaded, so that Redis never waits for S3.

use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use stokehold_queue::backup::Entry;
use zstd::stream::write::Encoder;

use crate::Error;
use crate::key::{BackupKey, SEAL_BYTES};
use crate::manifest::Part;

/// A part is closed once it contains this many bytes before compression.
const PART_BYTES: u64 = 8 << 20;

/// The largest entry: a thousand members of the largest values, in hexadecimal. A part is closed after such an entry.
const ENTRY_BYTES_MAX: u64 = 512 << 20;

/// Maximum size of a part in S3.
pub(crate) const SEALED_BYTES_MAX: u64 = PART_BYTES + ENTRY_BYTES_MAX + SEAL_BYTES as u64;

/// A fast level, because Redis may be waiting.
const LEVEL: i32 = 1;

/// Writes entries into sealed parts in a folder.
pub(crate) struct PartWriter<'a> {
    backup: &'a str,
    key: &'a BackupKey,
    folder: &'a Path,
    open: Option<Encoder<'static, Vec<u8>>>,
    /// Bytes of the open part before compression.
    bytes: u64,
    entries: u64,
    parts: Vec<Part>,
}

impl<'a> PartWriter<'a> {
    pub(crate) fn new(backup: &'a str, key: &'a BackupKey, folder: &'a Path) -> Self {
        Self { backup, key, folder, open: None, bytes: 0, entries: 0, parts: Vec::new() }
    }

    pub(crate) fn push(&mut self, entry: &Entry) -> Result<(), Error> {
        let scratch = |source| Error::Scratch { step: "make", source };
        let mut line = serde_json::to_vec(entry).map_err(|error| scratch(error.into()))?;
        line.push(b'\n');
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Encoder::new(Vec::new(), LEVEL).map_err(scratch)?),
        };
        open.write_all(&line).map_err(scratch)?;
        self.bytes += line.len() as u64;
        self.entries += 1;
        if self.bytes >= PART_BYTES { self.close() } else { Ok(()) }
    }

    /// Closes the last part and returns all of them.
    pub(crate) fn end(mut self) -> Result<Vec<Part>, Error> {
        self.close()?;
        Ok(self.parts)
    }

    fn close(&mut self) -> Result<(), Error> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let scratch = |source| Error::Scratch { step: "write", source };
        let name = format!("part-{:05}", self.parts.len() + 1);
        let sealed = self.key.seal(&bound(self.backup, &name), &open.finish().map_err(scratch)?)?;
        fs::write(path(self.folder, &name), &sealed).map_err(scratch)?;
        let (size_bytes, sha256) = (sealed.len() as u64, hex::encode(Sha256::digest(&sealed)));
        self.parts.push(Part { name, size_bytes, sha256, entries: self.entries });
        (self.bytes, self.entries) = (0, 0);
        Ok(())
    }
}

/// The path of a part in the scratch folder.
pub(crate) fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(name)
}

/// The identity that a part is sealed with, so that it is valid neither as another part nor in another backup.
fn bound(backup: &str, name: &str) -> String {
    format!("stokehold backup part\n{backup}\n{name}")
}

/// Checks and opens a part from S3. The reader returns its entries.
pub(crate) fn read(backup: &str, part: &Part, sealed: &[u8], key: &BackupKey) -> Result<Reader, Error> {
    let damaged = |why: &str| Error::Damaged { object: format!("{} of {backup}", part.name), why: why.to_owned() };
    if hex::encode(Sha256::digest(sealed)) != part.sha256 {
        return Err(damaged("its SHA-256 differs from the manifest"));
    }
    let packed = key.open(&bound(backup, &part.name), sealed).ok_or_else(|| damaged("its seal does not match"))?;
    let lines = zstd::stream::read::Decoder::new(std::io::Cursor::new(packed));
    let lines = lines.map_err(|error| damaged(&error.to_string()))?;
    Ok(Reader {
        lines: std::io::BufReader::new(lines),
        object: format!("{} of {backup}", part.name),
        left: part.entries,
    })
}

/// The entries of a part.
pub(crate) struct Reader {
    lines: std::io::BufReader<zstd::stream::read::Decoder<'static, std::io::BufReader<std::io::Cursor<Vec<u8>>>>>,
    object: String,
    left: u64,
}

impl Reader {
    fn damaged(&self, why: impl ToString) -> Error {
        Error::Damaged { object: self.object.clone(), why: why.to_string() }
    }

    /// The next entries, at most this many and about this many bytes; none at the end.
    pub(crate) fn some(&mut self, most: usize, most_bytes: u64) -> Result<Vec<Entry>, Error> {
        let (mut entries, mut bytes, mut line) = (Vec::new(), 0, Vec::new());
        while entries.len() < most && bytes < most_bytes {
            line.clear();
            let read = (&mut self.lines).take(ENTRY_BYTES_MAX).read_until(b'\n', &mut line);
            match read.map_err(|error| self.damaged(error))? {
                0 if self.left == 0 => break,
                0 => return Err(self.damaged(format!("{} entries are missing", self.left))),
                length => bytes += length as u64,
            }
            entries.push(serde_json::from_slice(&line).map_err(|error| self.damaged(error))?);
            self.left =
                self.left.checked_sub(1).ok_or_else(|| self.damaged("it has more entries than the manifest states"))?;
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use stokehold_queue::backup::{Content, Root};

    use super::*;
    use crate::BackupKeys;

    fn entry(n: u32, bytes: usize) -> Entry {
        let name = format!("j:{n}");
        let content = Content::String("x".repeat(bytes).as_str().into());
        Entry { root: Root::Shard(0), name: name.as_str().into(), expires_ms: None, is_more: false, content }
    }

    #[test]
    fn entries_come_back_from_parts_of_a_bounded_size() {
        let (dir, key) = (tempfile::tempdir().unwrap(), BackupKeys::parse(&"11".repeat(32)).unwrap().current());
        let entries: Vec<Entry> = (0..9).map(|n| entry(n, 3 << 20)).collect();
        let mut writer = PartWriter::new("b", &key, dir.path());
        entries.iter().for_each(|entry| writer.push(entry).unwrap());
        let parts = writer.end().unwrap();
        assert_eq!(parts.iter().map(|part| part.entries).collect::<Vec<_>>(), [3, 3, 3]);
        let mut read = Vec::new();
        for part in &parts {
            let sealed = fs::read(path(dir.path(), &part.name)).unwrap();
            let mut reader = super::read("b", part, &sealed, &key).unwrap();
            while let more = reader.some(2, u64::MAX).unwrap()
                && !more.is_empty()
            {
                read.extend(more);
            }
        }
        assert_eq!(read, entries);
    }

    #[test]
    fn a_part_that_was_changed_or_belongs_elsewhere_is_named() {
        let (dir, key) = (tempfile::tempdir().unwrap(), BackupKeys::parse(&"11".repeat(32)).unwrap().current());
        let mut writer = PartWriter::new("b", &key, dir.path());
        writer.push(&entry(1, 10)).unwrap();
        let part = writer.end().unwrap().remove(0);
        let mut sealed = fs::read(path(dir.path(), &part.name)).unwrap();
        let said = |error: Result<Reader, Error>| error.map(drop).unwrap_err().to_string();
        assert!(said(super::read("another", &part, &sealed, &key)).contains("seal"));
        sealed[30] ^= 1;
        let error = said(super::read("b", &part, &sealed, &key));
        assert!(error.contains("part-00001 of b") && error.contains("SHA-256"), "{error}");
    }
}
