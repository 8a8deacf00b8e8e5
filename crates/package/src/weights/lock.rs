//! `weights.lock`: the pinned files of each declared source.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Pinned;
use crate::error::{Error, Step};
use crate::manifest::WeightSource;

const FILE: &str = "weights.lock";

const HEAD: &str =
    "# The exact weights of stoke.toml, written by `stoke deploy` and `stoke weights lock`. Keep it with the code.\n\n";

/// The contents of `weights.lock`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lock {
    #[serde(default)]
    weights: Vec<Entry>,
}

/// The files of one declared source.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    files: Vec<File>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    path: String,
    source: String,
    url: String,
    sha256: String,
    size_bytes: u64,
}

impl Lock {
    pub(super) fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text)
                .step(|| format!("cannot parse {}; recreate it with `stoke weights lock --update`", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).reading(&path),
        }
    }

    pub(super) fn forget(folder: &Path) -> Result<(), Error> {
        let path = folder.join(FILE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).step(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// The pinned files of a source, unless its declared hash has changed.
    pub(super) fn of(&self, declared: &WeightSource) -> Option<Vec<Pinned>> {
        let entry = self.weights.iter().find(|entry| entry.is(declared))?;
        let agrees = |file: &File| declared.sha256.as_ref().is_none_or(|sha256| *sha256 == file.sha256);
        entry.files.iter().all(agrees).then(|| entry.files.iter().map(File::pinned).collect())
    }

    pub(super) fn set(&mut self, declared: &WeightSource, found: &[Pinned]) {
        self.weights.retain(|entry| !entry.is(declared));
        let files = found.iter().map(File::of).collect();
        self.weights.push(Entry { source: declared.source.clone(), path: declared.path.clone(), files });
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(FILE);
        let text = toml::to_string_pretty(self).step(|| format!("cannot write {}", path.display()))?;
        std::fs::write(&path, format!("{HEAD}{text}")).step(|| format!("cannot write {}", path.display()))
    }
}

impl Entry {
    fn is(&self, declared: &WeightSource) -> bool {
        self.source == declared.source && self.path == declared.path
    }
}

impl File {
    fn of(one: &Pinned) -> Self {
        Self {
            path: one.path.clone(),
            source: one.source.clone(),
            url: one.url.clone().unwrap_or_default(),
            sha256: one.sha256.clone(),
            size_bytes: one.size_bytes,
        }
    }

    fn pinned(&self) -> Pinned {
        Pinned {
            path: self.path.clone(),
            source: self.source.clone(),
            url: Some(self.url.clone()),
            sha256: self.sha256.clone(),
            size_bytes: self.size_bytes,
            file: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn declared(sha256: Option<String>) -> WeightSource {
        WeightSource { source: "https://a/b.safetensors".to_owned(), path: None, sha256 }
    }

    #[test]
    fn what_is_pinned_stays_until_its_author_says_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let mut lock = Lock::read(dir.path()).unwrap();
        assert!(lock.of(&declared(None)).is_none());
        let pinned = Pinned {
            path: "b.safetensors".to_owned(),
            source: "https://a/b.safetensors".to_owned(),
            url: Some("https://a/b.safetensors".to_owned()),
            sha256: "1".repeat(64),
            size_bytes: 7,
            file: None,
        };
        lock.set(&declared(None), std::slice::from_ref(&pinned));
        lock.write(dir.path()).unwrap();
        let again = Lock::read(dir.path()).unwrap();
        assert_eq!(again.of(&declared(None)).unwrap(), [pinned]);
        assert!(again.of(&declared(Some("1".repeat(64)))).is_some());
        assert!(again.of(&declared(Some("2".repeat(64)))).is_none());
        Lock::forget(dir.path()).unwrap();
        assert!(Lock::read(dir.path()).unwrap().weights.is_empty());
    }
}
