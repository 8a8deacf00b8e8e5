//! The credentials file: the URL of the API and a token. `stoke dev` writes it; the CLI and the SDKs read it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::paths;

/// The contents of the credentials file.
#[derive(Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// URL of the API.
    pub(crate) url: String,
    /// Token for that URL.
    pub(crate) token: String,
    /// The data directory of the `stoke dev` that wrote this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<PathBuf>,
}

impl Credentials {
    /// Loads the saved credentials, if any.
    pub(crate) fn load() -> Result<Option<Self>> {
        read_json(&paths::credentials()?)
    }

    /// Saves the credentials, readable by this user only. Returns the path.
    pub(crate) fn save(&self) -> Result<PathBuf> {
        let path = paths::credentials()?;
        write_secret_json(&path, self)?;
        Ok(path)
    }
}

/// Reads a JSON file; `None` if it does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let value = serde_json::from_slice(&text);
    value.map(Some).with_context(|| format!("cannot parse {}; fix or delete it", path.display()))
}

/// Writes a file that only this user can read, atomically and durably.
pub(crate) fn write_secret_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        // Created with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, value)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        fs::File::open(folder)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_secret_file_is_for_its_owner_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("credentials.json");
        assert!(read_json::<Credentials>(&path).unwrap().is_none());
        let written = Credentials { url: "http://localhost:1".to_owned(), token: "sk_x".to_owned(), data: None };
        write_secret_json(&path, &written).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read_json::<Credentials>(&path).unwrap().unwrap().token, "sk_x");
        fs::write(&path, "no json").unwrap();
        assert!(read_json::<Credentials>(&path).is_err());
    }
}
