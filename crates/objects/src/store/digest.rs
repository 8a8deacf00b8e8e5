//! Digests of a body while it is received: always MD5 for the ETag, and the checksums that the client named, with their
//! expected values.

use std::fs::File;
use std::io::{Read, Seek};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

use super::failure::failed;

/// Checksums by S3's names, base64.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Checksums {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) crc32: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) crc32c: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) crc64nvme: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha1: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
}

/// The header or trailer for each checksum.
const HEADERS: [&str; 5] = [
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

impl Checksums {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The checksums in headers or trailers.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let [crc32, crc32c, crc64nvme, sha1, sha256] =
            HEADERS.map(|name| Some(headers.get(name)?.to_str().ok()?.to_owned()));
        Self { crc32, crc32c, crc64nvme, sha1, sha256 }
    }

    /// Whether every checksum that is in both has the same value.
    pub(super) fn agree_with(&self, other: &Self) -> bool {
        self.each().iter().zip(other.each()).all(|(ours, theirs)| ours.is_none() || theirs.is_none() || *ours == theirs)
    }

    fn each(&self) -> [&Option<String>; 5] {
        [&self.crc32, &self.crc32c, &self.crc64nvme, &self.sha1, &self.sha256]
    }
}

/// The expected digests of a body.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    pub(super) size_bytes: u64,
    /// Expected `Content-MD5`, base64.
    pub(super) md5: Option<String>,
    pub(super) checksums: Checksums,
}

impl Expected {
    /// Checks a complete body. Checksums in trailers count like those in headers.
    pub(super) fn check(&self, found: &Digests, trailers: &Checksums) -> S3Result<()> {
        if found.size_bytes != self.size_bytes {
            return Err(s3_error!(
                IncompleteBody,
                "the body has {} bytes, but {} were announced",
                found.size_bytes,
                self.size_bytes
            ));
        }
        if let Some(md5) = &self.md5 {
            let md5 = BASE64.decode(md5).ok().filter(|md5| md5.len() == 16);
            let md5 = md5.ok_or_else(|| s3_error!(InvalidDigest, "Content-MD5 is not the base64 of 16 bytes"))?;
            if md5 != found.md5 {
                return Err(s3_error!(BadDigest, "the body does not match its Content-MD5"));
            }
        }
        for announced in [&self.checksums, trailers] {
            for ((name, expected), found) in HEADERS.iter().zip(announced.each()).zip(found.checksums.each()) {
                if expected.is_some() && expected != found {
                    return Err(s3_error!(BadDigest, "the body does not match its {name}"));
                }
            }
        }
        Ok(())
    }
}

/// The digests of a body.
#[derive(Debug, Clone)]
pub(super) struct Digests {
    pub(super) size_bytes: u64,
    pub(super) md5: [u8; 16],
    pub(super) checksums: Checksums,
}

impl Digests {
    pub(super) fn etag(&self) -> String {
        hex::encode(self.md5)
    }
}

/// Computes digests over a body in pieces.
pub(super) struct Hasher {
    size_bytes: u64,
    md5: Md5,
    checksums: ChecksumHasher,
}

impl Hasher {
    /// Creates a hasher for the checksums that the request's headers contain or announce as trailers.
    pub(super) fn new(headers: &HeaderMap) -> Self {
        let given = |name: &str| {
            headers.contains_key(name)
                || headers.get_all("x-amz-trailer").iter().any(|promised| {
                    promised.to_str().is_ok_and(|text| text.split(',').any(|one| one.trim().eq_ignore_ascii_case(name)))
                })
        };
        let [crc32, crc32c, crc64nvme, sha1, sha256] = HEADERS.map(given);
        Self {
            size_bytes: 0,
            md5: Md5::new(),
            checksums: ChecksumHasher {
                crc32: crc32.then(Crc32::new),
                crc32c: crc32c.then(Crc32c::new),
                crc64nvme: crc64nvme.then(Crc64Nvme::new),
                sha1: sha1.then(Sha1::new),
                sha256: sha256.then(Sha256::new),
            },
        }
    }

    /// The MD5 of a file's current content, without checksums. Leaves the file positioned at its end.
    pub(super) fn of_file(mut file: &File) -> S3Result<Digests> {
        let read = failed("read a part");
        file.rewind().map_err(&read)?;
        let mut hasher = Self::new(&HeaderMap::new());
        let mut buffer = vec![0; 1024 * 1024];
        loop {
            match file.read(&mut buffer).map_err(&read)? {
                0 => return Ok(hasher.finish()),
                length => hasher.update(&buffer[..length]),
            }
        }
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        self.size_bytes += piece.len() as u64;
        self.md5.update(piece);
        self.checksums.update(piece);
    }

    pub(super) fn finish(self) -> Digests {
        let sums = self.checksums.finalize();
        Digests {
            size_bytes: self.size_bytes,
            md5: self.md5.finalize(),
            checksums: Checksums {
                crc32: sums.checksum_crc32,
                crc32c: sums.checksum_crc32c,
                crc64nvme: sums.checksum_crc64nvme,
                sha1: sums.checksum_sha1,
                sha256: sums.checksum_sha256,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use s3s::S3ErrorCode;

    use super::*;

    const HELLO_SHA256: &str = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";

    fn hello(headers: &HeaderMap) -> Digests {
        let mut hasher = Hasher::new(headers);
        hasher.update(b"hel");
        hasher.update(b"lo");
        hasher.finish()
    }

    #[test]
    fn checksums_are_computed_when_given_or_promised_and_only_then() {
        assert!(hello(&HeaderMap::new()).checksums.is_empty());
        let given = HeaderMap::from_iter([("x-amz-checksum-sha256".parse().unwrap(), "x".parse().unwrap())]);
        assert_eq!(hello(&given).checksums.sha256.as_deref(), Some(HELLO_SHA256));
        let promised =
            HeaderMap::from_iter([("x-amz-trailer".parse().unwrap(), "x-a, X-Amz-Checksum-SHA256".parse().unwrap())]);
        assert_eq!(hello(&promised).checksums.sha256.as_deref(), Some(HELLO_SHA256));
        assert_eq!(hello(&HeaderMap::new()).etag(), "5d41402abc4b2a76b9719d911017c592");
    }

    #[test]
    fn every_mismatch_has_its_code() {
        let headers = HeaderMap::from_iter([("x-amz-checksum-sha256".parse().unwrap(), HELLO_SHA256.parse().unwrap())]);
        let found = hello(&headers);
        let good = Expected { size_bytes: 5, md5: None, checksums: Checksums::from_headers(&headers) };
        let code =
            |expected: &Expected, trailers: &Checksums| expected.check(&found, trailers).map_err(|e| e.code().clone());
        assert_eq!(code(&good, &Checksums::default()), Ok(()));
        let short = Expected { size_bytes: 6, ..good.clone() };
        assert_eq!(code(&short, &Checksums::default()), Err(S3ErrorCode::IncompleteBody));
        let garbled = Expected { md5: Some("?".to_owned()), ..good.clone() };
        assert_eq!(code(&garbled, &Checksums::default()), Err(S3ErrorCode::InvalidDigest));
        let other = Expected { md5: Some(BASE64.encode([0; 16])), ..good.clone() };
        assert_eq!(code(&other, &Checksums::default()), Err(S3ErrorCode::BadDigest));
        let unannounced = Checksums { crc32: Some("AAAAAA==".to_owned()), ..Checksums::default() };
        assert_eq!(code(&good, &unannounced), Err(S3ErrorCode::BadDigest));
    }
}
