//! The file format of an object: its body, then its metadata, then a trailer with the length of the metadata.
//!
//! ```text
//! body        size_bytes bytes, exactly as uploaded
//! meta        JSON, `Meta`
//! trailer     16 bytes:  length of meta, u32 little-endian
//!                        CRC-32 of meta, big-endian
//!                        the 8 bytes "STOKEOB1"
//! ```
//!
//! The metadata (length, ETag, checksums) is known only once the body has been received, so it comes last, and one
//! rename commits body and metadata together: there is no sidecar file to lose. A file that is cut anywhere has no
//! trailer, or one whose lengths do not add up to the length of the file, and is not an object. The body is not hashed
//! again when it is read; a client that wants to verify it requests the stored checksum.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use s3s::crypto::{Checksum, Crc32};
use s3s::dto::Timestamp;
use serde::{Deserialize, Serialize};

use super::digest::Checksums;

const MAGIC: [u8; 8] = *b"STOKEOB1";

const TRAILER_BYTES: u64 = 16;

/// Maximum length of the metadata: the HTTP server limits headers, a key has at most 1 KiB, and user metadata 2 KiB.
const META_BYTES_MAX: u32 = 1024 * 1024;

/// The metadata of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) key: String,
    pub(super) size_bytes: u64,
    /// Hex MD5 of the body; for a multipart upload, the MD5 of its parts' digests, and the number of parts.
    pub(super) etag: String,
    pub(super) modified_ms: u64,
    #[serde(flatten)]
    pub(super) headers: Headers,
    #[serde(default, skip_serializing_if = "Checksums::is_empty")]
    pub(super) checksums: Checksums,
}

/// The uploader's headers, returned with the object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Headers {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_disposition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<Timestamp>,
    /// The `x-amz-meta-*` headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) metadata: BTreeMap<String, String>,
}

impl Meta {
    pub(super) fn modified(&self) -> Timestamp {
        timestamp(self.modified_ms)
    }
}

/// An object's entry in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) size_bytes: u64,
    pub(super) etag: String,
    pub(super) modified_ms: u64,
}

impl From<&Meta> for Entry {
    fn from(meta: &Meta) -> Self {
        Self { size_bytes: meta.size_bytes, etag: meta.etag.clone(), modified_ms: meta.modified_ms }
    }
}

/// Completes a file whose body has been written.
pub(super) fn seal(file: &mut File, meta: &Meta) -> io::Result<()> {
    let mut tail = serde_json::to_vec(meta)?;
    let length = u32::try_from(tail.len()).ok().filter(|length| *length <= META_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("the object's metadata is too long"))?;
    let checksum = Crc32::checksum(&tail);
    tail.extend(length.to_le_bytes());
    tail.extend(checksum);
    tail.extend(MAGIC);
    file.write_all(&tail)
}

/// Reads the metadata of an object and leaves the file positioned at the start of the body.
///
/// # Errors
/// `InvalidData` if the file is not a complete object.
pub(super) fn open(file: &mut File) -> io::Result<Meta> {
    let corrupt = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    let file_bytes = file.metadata()?.len();
    let trailer_at = file_bytes.checked_sub(TRAILER_BYTES).ok_or_else(|| corrupt("shorter than a trailer"))?;
    let (mut length, mut checksum, mut magic) = ([0; 4], [0; 4], [0; 8]);
    file.seek(SeekFrom::Start(trailer_at))?;
    file.read_exact(&mut length)?;
    file.read_exact(&mut checksum)?;
    file.read_exact(&mut magic)?;
    let length = u32::from_le_bytes(length);
    if magic != MAGIC || length > META_BYTES_MAX {
        return Err(corrupt("no trailer"));
    }
    let meta_at = trailer_at.checked_sub(u64::from(length)).ok_or_else(|| corrupt("shorter than its metadata"))?;
    let mut meta = vec![0; length as usize];
    file.seek(SeekFrom::Start(meta_at))?;
    file.read_exact(&mut meta)?;
    if Crc32::checksum(&meta) != checksum {
        return Err(corrupt("metadata fails its checksum"));
    }
    let meta: Meta = serde_json::from_slice(&meta)?;
    if meta.size_bytes != meta_at {
        return Err(corrupt("the body's length differs from the recorded one"));
    }
    file.rewind()?;
    Ok(meta)
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from(UNIX_EPOCH + Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(body: &[u8]) -> (File, Meta) {
        let meta = Meta {
            key: "results/ä/b".to_owned(),
            size_bytes: body.len() as u64,
            etag: "0123".to_owned(),
            modified_ms: 1_700_000_000_123,
            headers: Headers {
                content_type: Some("image/png".to_owned()),
                metadata: BTreeMap::from([("job".to_owned(), "j1".to_owned())]),
                ..Headers::default()
            },
            checksums: Checksums::default(),
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(body).unwrap();
        seal(&mut file, &meta).unwrap();
        (file, meta)
    }

    #[test]
    fn what_is_sealed_is_what_is_opened_and_the_body_comes_first() {
        for body in [&b""[..], b"hello", &[7; 100_000]] {
            let (mut file, meta) = sealed(body);
            assert_eq!(open(&mut file).unwrap(), meta);
            let mut read = vec![0; body.len()];
            file.read_exact(&mut read).unwrap();
            assert_eq!(read, body);
        }
    }

    #[test]
    fn a_file_cut_anywhere_or_grown_is_no_object() {
        let (file, _) = sealed(b"hello");
        let whole = file.metadata().unwrap().len();
        for length in (0..whole).rev().chain([whole + 1]) {
            let (mut file, _) = sealed(b"hello");
            file.set_len(length).unwrap();
            assert_eq!(open(&mut file).unwrap_err().kind(), io::ErrorKind::InvalidData, "{length} of {whole} bytes");
        }
    }

    #[test]
    fn a_flipped_bit_of_metadata_is_noticed() {
        let (mut file, _) = sealed(b"hello");
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        for at in 5..bytes.len() {
            let mut broken = tempfile::tempfile().unwrap();
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            broken.write_all(&flipped).unwrap();
            assert!(open(&mut broken).is_err(), "byte {at}");
        }
    }
}
