//! Access rights to blobs on this machine. A hash proves nothing: hashes of gated and private models are public or in
//! lock files. Therefore, each owner has its own blobs, and gets a blob of another owner only if it could have
//! downloaded the same bytes.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{WeightFile, is_sha256};

/// Hex digits of a tenant's hash in file names: 128 bits are unique.
const SUFFIX_DIGITS: usize = 32;

/// Maximum number of recorded sources of one blob.
const SOURCES_MAX: usize = 8;

/// The owner of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The user of `stoke` on this machine.
    Machine,
    /// A tenant, by its name.
    Tenant(String),
}

/// The reason for which an owner may access a file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Right {
    /// The owner uploaded these bytes: the API accepted them only with this hash.
    Uploaded,
    /// The owner names a URL, as deployed, before the gateway signs it. It shares blobs that others downloaded from
    /// there without credentials.
    Address(String),
}

impl fmt::Debug for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A URL may contain a secret.
        f.write_str(match self {
            Self::Uploaded => "Uploaded",
            Self::Address(_) => "Address",
        })
    }
}

impl WeightFile {
    /// The name of the blob and its related files.
    pub(super) fn name(&self) -> String {
        match &self.owner {
            Owner::Machine => self.sha256.clone(),
            Owner::Tenant(tenant) => {
                format!("{}-{}", self.sha256, &hex::encode(Sha256::digest(tenant))[..SUFFIX_DIGITS])
            }
        }
    }

    /// The digest of a source from which anyone can download the same bytes, if this file is downloaded without
    /// credentials.
    pub(super) fn open_source(&self) -> Option<String> {
        let Right::Address(address) = &self.right else { return None };
        self.headers.is_empty().then(|| digest(address))
    }

    /// Whether its owner may access a blob of this hash that others downloaded from `sources`.
    pub(super) fn may_share(&self, sources: &[String]) -> bool {
        match &self.right {
            Right::Uploaded => true,
            Right::Address(address) => sources.contains(&digest(address)),
        }
    }
}

fn digest(address: &str) -> String {
    hex::encode(Sha256::digest(address))
}

/// Whether this is a possible result of [`WeightFile::name`].
pub(super) fn is_name(name: &str) -> bool {
    match name.split_once('-') {
        None => is_sha256(name),
        Some((sha256, suffix)) => {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            is_sha256(sha256) && suffix.len() == SUFFIX_DIGITS && suffix.bytes().all(is_digit)
        }
    }
}

/// The note in a lock file about its blob: one line with its metadata when it was verified, and one for each source
/// that provided it without credentials.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) fingerprint: String,
    pub(super) sources: Vec<String>,
}

impl Note {
    /// Longer than any note.
    pub(super) const BYTES_MAX: u64 = 2_048;

    pub(super) fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let fingerprint = lines.next().unwrap_or_default().to_owned();
        Self { fingerprint, sources: lines.filter(|line| is_sha256(line)).map(str::to_owned).collect() }
    }

    pub(super) fn text(&self) -> String {
        let sources = self.sources.iter().flat_map(|source| ["\n", source]);
        std::iter::once(self.fingerprint.as_str()).chain(sources).collect()
    }

    /// Adds sources of the same bytes.
    pub(super) fn learn(&mut self, sources: impl IntoIterator<Item = String>) {
        for source in sources {
            if !self.sources.contains(&source) && self.sources.len() < SOURCES_MAX {
                self.sources.push(source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_as_the_release_before_wrote_it() {
        let mut note = Note { fingerprint: "7 8.9".to_owned(), sources: Vec::new() };
        assert_eq!((note.text().as_str(), Note::parse("7 8.9")), ("7 8.9", note.clone()));
        note.learn((0..20).map(|number| digest(&number.to_string())));
        assert_eq!((note.sources.len(), Note::parse(&note.text())), (SOURCES_MAX, note.clone()));
        assert!(note.text().len() as u64 <= Note::BYTES_MAX);
    }

    #[test]
    fn names_are_hashes_with_or_without_an_owner() {
        let (sha256, suffix) = ("a".repeat(64), "0".repeat(SUFFIX_DIGITS));
        assert!(is_name(&sha256) && is_name(&format!("{sha256}-{suffix}")));
        for other in [format!("{sha256}-"), format!("{sha256}-{suffix}0"), format!("{sha256}-../x"), suffix] {
            assert!(!is_name(&other), "{other}");
        }
    }
}
