//! The credentials file: the URL of an API and a token per profile. `stoke dev` and `stoke login` write it; the CLI and
//! the SDKs read it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::paths;

/// The profile of commands that name none. It is at the top of the file, where older releases and SDKs look for it.
pub(crate) const DEFAULT: &str = "default";

/// One profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// URL of the API.
    pub(crate) url: String,
    /// Token for that URL.
    pub(crate) token: String,
    /// The data directory of the `stoke dev` that wrote this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<PathBuf>,
}

/// The contents of the credentials file.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct File {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<PathBuf>,
    /// The other profiles, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    profiles: BTreeMap<String, Credentials>,
}

impl Credentials {
    /// Loads a profile: the named one, which must exist, else the default one, if any.
    pub(crate) fn load(profile: Option<&str>) -> Result<Option<Self>> {
        let path = paths::credentials()?;
        let file: File = read_json(&path)?.unwrap_or_default();
        match (profile.unwrap_or(DEFAULT), profile) {
            (DEFAULT, _) => Ok(file.top()),
            (name, _) => match file.profiles.get(name) {
                Some(found) => Ok(Some(found.clone())),
                None => {
                    let text = format!("{} has no profile {name:?}", path.display());
                    let hint = format!(
                        "List them with `stoke login list`, or create it with `stoke login --profile {name} --url URL`."
                    );
                    Err(Failure::usage(text).hint(hint).into())
                }
            },
        }
    }

    /// Every profile with its name, the default one first.
    pub(crate) fn all() -> Result<Vec<(String, Self)>> {
        let file: File = read_json(&paths::credentials()?)?.unwrap_or_default();
        let default = file.top().map(|found| (DEFAULT.to_owned(), found));
        Ok(default.into_iter().chain(file.profiles).collect())
    }

    /// Saves a profile, readable by this user only. Other profiles stay. Returns the path of the file.
    pub(crate) fn save(self, profile: Option<&str>) -> Result<PathBuf> {
        let path = paths::credentials()?;
        let mut file: File = read_json(&path)?.unwrap_or_default();
        file.set(profile.unwrap_or(DEFAULT), Some(self));
        write_secret_json(&path, &file)?;
        Ok(path)
    }

    /// Removes a profile. Returns whether there was one.
    pub(crate) fn remove(profile: Option<&str>) -> Result<bool> {
        let path = paths::credentials()?;
        let mut file: File = read_json(&path)?.unwrap_or_default();
        let was_there = file.set(profile.unwrap_or(DEFAULT), None);
        if was_there {
            write_secret_json(&path, &file)?;
        }
        Ok(was_there)
    }
}

impl File {
    fn top(&self) -> Option<Credentials> {
        let (url, token) = (self.url.clone()?, self.token.clone()?);
        Some(Credentials { url, token, data: self.data.clone() })
    }

    /// Sets or removes a profile. Returns whether there was one.
    fn set(&mut self, profile: &str, credentials: Option<Credentials>) -> bool {
        if profile != DEFAULT {
            return match credentials {
                Some(credentials) => self.profiles.insert(profile.to_owned(), credentials).is_some(),
                None => self.profiles.remove(profile).is_some(),
            };
        }
        let was_there = self.top().is_some();
        let (url, token, data) = match credentials {
            Some(Credentials { url, token, data }) => (Some(url), Some(token), data),
            None => (None, None, None),
        };
        (self.url, self.token, self.data) = (url, token, data);
        was_there
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

    fn credentials(url: &str) -> Credentials {
        Credentials { url: url.to_owned(), token: "sk_x".to_owned(), data: None }
    }

    #[test]
    fn a_secret_file_is_for_its_owner_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("credentials.json");
        assert!(read_json::<File>(&path).unwrap().is_none());
        let mut written = File::default();
        written.set(DEFAULT, Some(credentials("http://localhost:1")));
        write_secret_json(&path, &written).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read_json::<File>(&path).unwrap().unwrap(), written);
        fs::write(&path, "no json").unwrap();
        assert!(read_json::<File>(&path).is_err());
    }

    #[test]
    fn files_of_older_releases_are_the_default_profile() {
        let old = r#"{"url": "http://a", "token": "sk_x", "data": "/srv/.stoke"}"#;
        let mut file: File = serde_json::from_str(old).unwrap();
        let default = Credentials { data: Some("/srv/.stoke".into()), ..credentials("http://a") };
        assert_eq!(file.top(), Some(default));
        assert!(!file.set("prod", Some(credentials("https://b"))));
        let new = serde_json::to_value(&file).unwrap();
        // Older releases read these members, and ignore the others.
        assert_eq!(
            (&new["url"], &new["token"], &new["data"]),
            (&"http://a".into(), &"sk_x".into(), &"/srv/.stoke".into())
        );
        assert_eq!(new["profiles"]["prod"]["url"], "https://b");
        assert!(file.set("prod", None) && !file.set("prod", None));
        assert!(file.set(DEFAULT, None));
        assert_eq!(file, File::default());
    }
}
