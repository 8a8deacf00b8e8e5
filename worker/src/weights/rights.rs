//! Who may have a blob that is on this machine. A hash proves nothing: the hashes of gated and private models are public, or stand in lock
//! files. So each owner has blobs of its own, and gets one that another owner fetched only where it could have fetched the same bytes.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{WeightFile, is_sha256};

/// Hex digits of a tenant's hash in file names: no two tenants share 128 bits.
const SUFFIX_DIGITS: usize = 32;

/// Addresses that are noted for one blob.
const SOURCES_MAX: usize = 8;

/// For whom a blob is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Whoever runs `stoke` on this machine.
    Machine,
    /// A tenant, by its name.
    Tenant(String),
}

/// Why an owner may have a file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Right {
    /// It uploaded these very bytes: the API took them only with this hash.
    Uploaded,
    /// It names an address, as deployed: before the gateway signs it. Whoever else had the bytes from there without credentials shares them.
    Address(String),
}

impl fmt::Debug for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address may hold a secret.
        f.write_str(match self {
            Self::Uploaded => "Uploaded",
            Self::Address(_) => "Address",
        })
    }
}

impl WeightFile {
    /// What the blob and the files beside it are called.
    pub(super) fn name(&self) -> String {
        match &self.owner {
            Owner::Machine => self.sha256.clone(),
            Owner::Tenant(tenant) => {
                format!("{}-{}", self.sha256, &hex::encode(Sha256::digest(tenant))[..SUFFIX_DIGITS])
            }
        }
    }

    /// Where anyone could fetch the same bytes, if this file is fetched without credentials.
    pub(super) fn open_source(&self) -> Option<String> {
        let Right::Address(address) = &self.right else { return None };
        self.headers.is_empty().then(|| digest(address))
    }

    /// Whether its owner may have a blob of this hash that others had from `sources`.
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

/// Whether a file may be called so by [`WeightFile::name`].
pub(super) fn is_name(name: &str) -> bool {
    match name.split_once('-') {
        None => is_sha256(name),
        Some((sha256, suffix)) => {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            is_sha256(sha256) && suffix.len() == SUFFIX_DIGITS && suffix.bytes().all(is_digit)
        }
    }
}

/// What a lock file says of its blob: a line for how it looked when it was verified, and one for each address that gave it to someone who
/// showed no credentials.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) looks: String,
    pub(super) sources: Vec<String>,
}

impl Note {
    /// Longer than any that is written.
    pub(super) const BYTES_MAX: u64 = 2_048;

    pub(super) fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let looks = lines.next().unwrap_or_default().to_owned();
        Self { looks, sources: lines.filter(|line| is_sha256(line)).map(str::to_owned).collect() }
    }

    pub(super) fn text(&self) -> String {
        let sources = self.sources.iter().flat_map(|source| ["\n", source]);
        std::iter::once(self.looks.as_str()).chain(sources).collect()
    }

    /// Adds what another note knows of the same bytes.
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
        let mut note = Note { looks: "7 8.9".to_owned(), sources: Vec::new() };
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
