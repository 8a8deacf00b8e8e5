//! Weights of endpoints: sources, and pinned files with hashes in `weights.lock`, which workers verify.

mod host;
mod hub;
mod lock;
mod model;
mod web;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use self::host::{Host, Method, Request, Response};
use self::lock::Lock;
pub use self::model::{HubFile, HubModel};
use crate::error::{Error, Step, invalid, require};
use crate::manifest::WeightSource;

/// Extensions of files that are or may be pickles.
const PICKLES: [&str; 7] = [".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"];

/// Maximum number of files of one endpoint.
const FILES_MAX: usize = 1_000;

/// A pinned file, in the format of the deploy request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pinned {
    /// Path in the weights folder.
    pub path: String,
    /// The source, at an exact version.
    pub source: String,
    /// Download URL; `None` for a local file.
    pub url: Option<String>,
    /// SHA-256 in lower-case hex.
    pub sha256: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Path of a local file.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// Kind of source, by URL scheme.
#[derive(Debug, PartialEq, Eq)]
enum Scheme<'a> {
    File(&'a str),
    Web,
    Bucket,
    Hub(&'a str),
}

fn scheme(source: &str) -> Result<Scheme<'_>, Error> {
    Ok(match source.split_once(':') {
        Some(("file", path)) => Scheme::File(path.trim_start_matches("//")),
        Some(("https" | "http", _)) => Scheme::Web,
        Some(("s3", _)) => Scheme::Bucket,
        Some(("hf", rest)) => Scheme::Hub(rest.trim_start_matches("//")),
        _ => invalid!("weights: {source:?} has no known scheme; use hf://, https://, s3:// or file:"),
    })
}

/// The sources in buckets that are not pinned yet.
pub(crate) fn sources_to_sign<'a>(declared: &'a [WeightSource], folder: &Path) -> Result<Vec<&'a str>, Error> {
    let lock = Lock::read(folder)?;
    let mut sources = Vec::new();
    for one in declared {
        if scheme(&one.source)? == Scheme::Bucket && lock.of(one).is_none() {
            sources.push(one.source.as_str());
        }
    }
    Ok(sources)
}

/// Returns all files of these weights. Files that are not in `weights.lock` are resolved now and added to it.
pub(crate) fn pin(
    declared: &[WeightSource],
    folder: &Path,
    host: &dyn Host,
    signed: &BTreeMap<String, String>,
) -> Result<Vec<Pinned>, Error> {
    let mut lock = Lock::read(folder)?;
    let mut pinned = Vec::new();
    for one in declared {
        let found = match scheme(&one.source)? {
            Scheme::File(path) => local(host, folder, path, one)?,
            scheme => match lock.of(one) {
                Some(known) => known,
                None => {
                    let found = resolve(host, scheme, one, signed)?;
                    lock.set(one, &found);
                    lock.write(folder)?;
                    found
                }
            },
        };
        pinned.extend(found);
    }
    require!(pinned.len() <= FILES_MAX, "too many weight files: {} (maximum {FILES_MAX})", pinned.len());
    Ok(pinned)
}

/// Removes `weights.lock`, so that all weights are resolved again.
///
/// # Errors
/// If the file cannot be removed.
pub fn forget_pins(folder: &Path) -> Result<(), Error> {
    Lock::forget(folder)
}

fn resolve(
    host: &dyn Host,
    scheme: Scheme<'_>,
    declared: &WeightSource,
    signed: &BTreeMap<String, String>,
) -> Result<Vec<Pinned>, Error> {
    let url = match scheme {
        Scheme::Hub(rest) => return hub::look(host, rest, declared),
        Scheme::Bucket => match signed.get(&declared.source) {
            Some(url) => url,
            None => invalid!("weights: there is no signed URL for {}", declared.source),
        },
        Scheme::Web | Scheme::File(_) => &declared.source,
    };
    Ok(vec![web::look(host, declared, url)?])
}

/// Resolves local files. They are hashed every time, because they can change.
fn local(host: &dyn Host, folder: &Path, path: &str, declared: &WeightSource) -> Result<Vec<Pinned>, Error> {
    let root = folder.join(path);
    // Canonical, like the folder's path, so that packing can exclude these files.
    let root = std::fs::canonicalize(&root).step(|| format!("weights: {} does not exist", root.display()))?;
    let mut files = Vec::new();
    if root.is_dir() {
        collect(&root, &mut files)?;
    } else {
        files.push(root.clone());
    }
    let mut pinned = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().into_owned();
        let path = match (&declared.path, inside.as_str()) {
            (Some(path), "") => path.clone(),
            (Some(path), inside) => format!("{}/{inside}", path.trim_end_matches('/')),
            (None, "") => last_part(path).to_owned(),
            (None, inside) => inside.to_owned(),
        };
        let (sha256, size_bytes) = web::measure_file(host, &path, &file)?;
        check(declared, &path, &sha256)?;
        pinned.push(Pinned { path, source: declared.source.clone(), url: None, sha256, size_bytes, file: Some(file) });
    }
    Ok(pinned)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let listed = std::fs::read_dir(folder).reading(folder)?;
    let entries: std::io::Result<Vec<PathBuf>> = listed.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut entries = entries.reading(folder)?;
    entries.sort();
    for entry in entries {
        require!(files.len() < FILES_MAX, "{} contains more than {FILES_MAX} files", folder.display());
        if entry.is_dir() {
            collect(&entry, files)?;
        } else {
            files.push(entry);
        }
    }
    Ok(())
}

/// Checks a file against its declared hash, if any.
fn check(declared: &WeightSource, path: &str, sha256: &str) -> Result<(), Error> {
    match &declared.sha256 {
        Some(expected) if expected != sha256 => {
            invalid!("weights: {path} does not match its sha256 in stoke.toml: expected {expected}, got {sha256}")
        }
        _ => Ok(()),
    }
}

/// A warning if there are pickles, which workers would refuse.
pub(crate) fn pickles_among(pinned: &[Pinned]) -> Option<String> {
    let first = pinned.iter().find(|one| is_pickle(&one.path))?;
    Some(format!(
        "{} looks like a pickle, which can run arbitrary code when it is loaded: workers refuse pickles unless allow_pickle = true; use safetensors instead",
        first.path
    ))
}

fn is_pickle(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    PICKLES.iter().any(|ending| path.ends_with(ending))
}

fn last_part(path: &str) -> &str {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    path.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or("weights")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::host::NoHost;
    use super::*;

    #[test]
    fn a_source_has_a_scheme() {
        assert_eq!(scheme("file:models/a.bin").unwrap(), Scheme::File("models/a.bin"));
        assert_eq!(scheme("file:///models/a.bin").unwrap(), Scheme::File("/models/a.bin"));
        assert_eq!(scheme("hf://org/model@main").unwrap(), Scheme::Hub("org/model@main"));
        assert_eq!((scheme("https://a/b").unwrap(), scheme("s3://a/b").unwrap()), (Scheme::Web, Scheme::Bucket));
        assert!(scheme("org/model").unwrap_err().to_string().contains("use hf://"));
    }

    #[test]
    fn a_file_is_called_as_it_is_there() {
        assert_eq!(last_part("https://a/b/model.safetensors?sig=1/2"), "model.safetensors");
        assert_eq!(last_part("https://a/"), "weights");
    }

    #[test]
    fn a_folder_of_this_machine_is_all_its_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("m/deep")).unwrap();
        std::fs::write(dir.path().join("m/a.safetensors"), "a").unwrap();
        std::fs::write(dir.path().join("m/deep/b.bin"), "b").unwrap();
        let declared = |path: Option<&str>| WeightSource {
            source: "file:m".to_owned(),
            path: path.map(str::to_owned),
            sha256: None,
        };
        let found = local(&NoHost, dir.path(), "m", &declared(None)).unwrap();
        assert_eq!(found.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["a.safetensors", "deep/b.bin"]);
        assert!(pickles_among(&found).unwrap().contains("deep/b.bin"));
        let found = local(&NoHost, dir.path(), "m/a.safetensors", &declared(Some("x/y"))).unwrap();
        assert_eq!(found[0].path, "x/y");
        let other = WeightSource { sha256: Some("0".repeat(64)), ..declared(None) };
        let error = local(&NoHost, dir.path(), "m", &other).unwrap_err().to_string();
        assert!(error.contains(&"0".repeat(64)) && error.contains(&found[0].sha256), "{error}");
    }
}
