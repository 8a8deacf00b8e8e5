//! The manifest of a backup. It can be read without the key, so that listing needs none, and is sealed by the key, so
//! that no part can be left out.

use serde::{Deserialize, Serialize};
use stokehold_queue::backup::{Census, Moment};

use crate::Error;
use crate::key::{BackupKey, BackupKeys};

/// The format that this release writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;

/// Maximum size of a manifest: 64 shards, and parts of 8 MiB of a Redis with terabytes.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// The manifest of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format.
    pub format: u32,
    /// The name of the backup.
    pub id: String,
    /// The release that created it.
    pub release: String,
    /// The start time, unix milliseconds.
    pub began_ms: u64,
    /// The time of completion, unix milliseconds.
    pub ended_ms: u64,
    /// The fingerprint of the key that sealed it.
    pub key: String,
    /// Number of shards.
    pub shards: u8,
    /// The time at which each root was copied.
    pub moments: Vec<Moment>,
    /// Counts of its content.
    pub census: Census,
    /// Its parts, in order.
    pub parts: Vec<Part>,
    /// Seal of all fields above, made with the key.
    #[serde(default)]
    seal: String,
}

/// An object of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its name in the backup's folder.
    pub name: String,
    /// Size of the stored object, bytes.
    pub size_bytes: u64,
    /// SHA-256 of the stored object, hexadecimal.
    pub sha256: String,
    /// Number of entries: keys, and parts of large ones.
    pub entries: u64,
}

/// The content of a new manifest.
pub(crate) struct Told {
    pub(crate) id: String,
    pub(crate) began_ms: u64,
    pub(crate) ended_ms: u64,
    pub(crate) shards: u8,
    pub(crate) moments: Vec<Moment>,
    pub(crate) census: Census,
    pub(crate) parts: Vec<Part>,
}

impl Manifest {
    pub(crate) fn sealed(told: Told, key: &BackupKey) -> Result<Self, Error> {
        let Told { id, began_ms, ended_ms, shards, moments, census, parts } = told;
        let mut manifest = Self {
            format: FORMAT,
            id,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            began_ms,
            ended_ms,
            key: key.fingerprint(),
            shards,
            moments,
            census,
            parts,
            seal: String::new(),
        };
        manifest.seal = hex::encode(key.seal(&manifest.bound()?, b"")?);
        Ok(manifest)
    }

    /// Parses a manifest of any origin.
    pub(crate) fn parse(object: &str, text: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
            release: String,
        }
        let damaged = |error: serde_json::Error| Error::Damaged { object: object.to_owned(), why: error.to_string() };
        let Head { format, release } = serde_json::from_slice(text).map_err(damaged)?;
        if format > FORMAT {
            return Err(Error::Newer { format, release, known: FORMAT });
        }
        serde_json::from_slice(text).map_err(damaged)
    }

    /// The key that sealed the parts, after checking that the manifest is what was written with it.
    pub(crate) fn verify(&self, keys: &BackupKeys) -> Result<BackupKey, Error> {
        let key = keys.of(&self.key)?;
        let bound = Self { seal: String::new(), ..self.clone() }.bound()?;
        let is_whole = hex::decode(&self.seal).is_ok_and(|seal| key.open(&bound, &seal).is_some());
        let why = "its seal does not match its content".to_owned();
        is_whole.then_some(key).ok_or_else(|| Error::Damaged { object: format!("the manifest of {}", self.id), why })
    }

    /// Whether every root was copied at a single moment.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.moments.iter().all(|moment| moment.is_exact)
    }

    /// The manifest as stored in S3.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.size_bytes).sum()
    }

    pub(crate) fn text(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self).map_err(|error| Error::Setting(error.to_string()))
    }

    fn bound(&self) -> Result<String, Error> {
        Ok(format!("stokehold backup manifest\n{}", self.text()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(keys: &BackupKeys) -> Manifest {
        let part = Part { name: "part-00001".into(), size_bytes: 9, sha256: "00".into(), entries: 1 };
        let told = Told {
            id: "20261123T050000Z-9f3c1d2e".into(),
            began_ms: 1,
            ended_ms: 2,
            shards: 1,
            moments: Vec::new(),
            census: Census::default(),
            parts: vec![part],
        };
        Manifest::sealed(told, &keys.current()).unwrap()
    }

    #[test]
    fn a_manifest_that_was_changed_is_not_believed() {
        let keys = BackupKeys::parse(&"11".repeat(32)).unwrap();
        let read = Manifest::parse("m", manifest(&keys).text().unwrap().as_bytes()).unwrap();
        assert!(read.verify(&keys).is_ok());
        let short = Manifest { parts: Vec::new(), ..read.clone() };
        assert!(matches!(short.verify(&keys), Err(Error::Damaged { .. })));
        let other = BackupKeys::parse(&"22".repeat(32)).unwrap();
        assert!(matches!(read.verify(&other), Err(Error::WrongKey { .. })));
    }

    #[test]
    fn a_later_format_is_refused_with_its_release() {
        let text = br#"{"format": 2, "release": "9.1.0", "what": "we do not know"}"#;
        let error = Manifest::parse("m", text).unwrap_err();
        assert!(error.to_string().contains("9.1.0"), "{error}");
    }
}
