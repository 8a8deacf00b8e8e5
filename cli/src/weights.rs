//! Weights of endpoints: sources, and pinned files with hashes in `weights.lock`, which workers verify.

mod hub;
mod lock;
mod web;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;

use self::lock::Lock;
use crate::client::{Client, query};
use crate::package::{Overrides, Package, WeightSource};
use crate::upload::{self, Place};
use crate::{Global, output};

/// Extensions of files that are or may be pickles.
const PICKLES: [&str; 7] = [".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"];

/// Maximum number of files of one endpoint.
const FILES_MAX: usize = 1_000;

/// Pin the weights of an endpoint
#[derive(Args)]
pub(crate) struct WeightsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Lock(LockArgs),
}

/// Write weights.lock: the exact files with their hashes
///
/// `stoke deploy` does the same for weights that are not pinned yet.
#[derive(Args)]
struct LockArgs {
    /// Folder of the endpoint
    path: String,
    /// Resolve all weights again, including pinned ones
    #[arg(long)]
    update: bool,
}

/// A pinned file, in the format of the deploy request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Pinned {
    pub(crate) path: String,
    pub(crate) source: String,
    /// Download URL; `None` for a local file.
    pub(crate) url: Option<String>,
    pub(crate) sha256: String,
    pub(crate) size_bytes: u64,
    /// Path of a local file.
    #[serde(skip)]
    pub(crate) file: Option<PathBuf>,
}

/// Kind of source, by URL scheme.
#[derive(Debug, PartialEq, Eq)]
enum Scheme<'a> {
    File(&'a str),
    Web,
    Bucket,
    Hub(&'a str),
}

fn scheme(source: &str) -> Result<Scheme<'_>> {
    Ok(match source.split_once(':') {
        Some(("file", path)) => Scheme::File(path.trim_start_matches("//")),
        Some(("https" | "http", _)) => Scheme::Web,
        Some(("s3", _)) => Scheme::Bucket,
        Some(("hf", rest)) => Scheme::Hub(rest.trim_start_matches("//")),
        _ => bail!("weights: {source:?} has no known scheme; use hf://, https://, s3:// or file:"),
    })
}

pub(crate) async fn run(global: &Global, args: WeightsArgs) -> Result<()> {
    let Verb::Lock(LockArgs { path, update }) = args.verb;
    let package = Package::open(&path, &Overrides::default())?;
    ensure!(!package.weights.is_empty(), "{path} has no weights; declare them with [[weights]] in its stoke.toml");
    if update {
        Lock::forget(&package.folder())?;
    }
    let pinned = pin(&package, || Client::connect(global)).await?;
    if global.json {
        return output::json(&json!({"weights": pinned}));
    }
    let mut table = output::table(["file", "size", "sha256", "from"]);
    for one in &pinned {
        table.add_row([&one.path, &output::bytes(one.size_bytes), &one.sha256[..12], &one.source]);
    }
    output::print_table(&table, "no weights")
}

/// Returns all files of an endpoint's weights. Files that are not in the lock are resolved now and added to it.
pub(crate) async fn pin(package: &Package, client: impl Fn() -> Result<Client>) -> Result<Vec<Pinned>> {
    let folder = package.folder();
    let mut lock = Lock::read(&folder)?;
    let mut pinned = Vec::new();
    for declared in &package.weights {
        let found = match scheme(&declared.source)? {
            Scheme::File(path) => local(&folder, path, declared).await?,
            scheme => match lock.of(declared) {
                Some(known) => known,
                None => {
                    let found = match scheme {
                        Scheme::Hub(rest) => hub::look(rest, declared).await?,
                        Scheme::Bucket => {
                            let url = signed(&client()?, &declared.source).await?;
                            vec![web::look(declared, &url, &[]).await?]
                        }
                        Scheme::Web | Scheme::File(_) => vec![web::look(declared, &declared.source, &[]).await?],
                    };
                    lock.set(declared, &found);
                    lock.write(&folder)?;
                    found
                }
            },
        };
        pinned.extend(found);
    }
    ensure!(pinned.len() <= FILES_MAX, "too many weight files: {} (maximum {FILES_MAX})", pinned.len());
    Ok(pinned)
}

/// Gets a presigned URL for a file in a bucket that the API can read.
pub(crate) async fn signed(client: &Client, source: &str) -> Result<String> {
    let signed = client.get(&query("/v1/weights/url", &[("source", Some(source))])).await?;
    Ok(signed["url"].as_str().context("the API's response has no URL for the weights")?.to_owned())
}

/// Resolves local files. They are hashed every time, because they can change.
async fn local(folder: &Path, path: &str, declared: &WeightSource) -> Result<Vec<Pinned>> {
    let root = folder.join(path);
    // Canonical, like the folder's path, so that packing can exclude these files.
    let root = std::fs::canonicalize(&root).with_context(|| format!("weights: {} does not exist", root.display()))?;
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
        let bar = crate::progress::spinner(format!("hashing {path}"));
        let measured = upload::measure(&file).await?;
        bar.finish_and_clear();
        check(declared, &path, &measured.sha256)?;
        pinned.push(Pinned {
            path,
            source: declared.source.clone(),
            url: None,
            sha256: measured.sha256,
            size_bytes: measured.size_bytes,
            file: Some(file),
        });
    }
    Ok(pinned)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let listed = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut entries: Vec<PathBuf> = listed.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for entry in entries {
        ensure!(files.len() < FILES_MAX, "{} contains more than {FILES_MAX} files", folder.display());
        if entry.is_dir() {
            collect(&entry, files)?;
        } else {
            files.push(entry);
        }
    }
    Ok(())
}

/// Checks a file against its declared hash, if any.
fn check(declared: &WeightSource, path: &str, sha256: &str) -> Result<()> {
    match &declared.sha256 {
        Some(expected) if expected != sha256 => {
            bail!("weights: {path} does not match its sha256 in stoke.toml: expected {expected}, got {sha256}")
        }
        _ => Ok(()),
    }
}

/// Uploads local files for workers to download.
pub(crate) async fn upload(client: &Client, pinned: &[Pinned]) -> Result<()> {
    for one in pinned {
        let Some(file) = &one.file else { continue };
        let wanted = json!({"sha256": one.sha256, "size_bytes": one.size_bytes});
        let (_, place) = client.post("/v1/weights", Some(&wanted)).await?;
        if place["exists"] != true {
            let place: Place =
                serde_json::from_value(place).context("the API's response has no upload URL for the weights")?;
            upload::put(client, &one.path, file, one.size_bytes, &place).await?;
        }
    }
    Ok(())
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

    #[tokio::test]
    async fn a_folder_of_this_machine_is_all_its_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("m/deep")).unwrap();
        std::fs::write(dir.path().join("m/a.safetensors"), "a").unwrap();
        std::fs::write(dir.path().join("m/deep/b.bin"), "b").unwrap();
        let declared = |path: Option<&str>| WeightSource {
            source: "file:m".to_owned(),
            path: path.map(str::to_owned),
            sha256: None,
        };
        let found = local(dir.path(), "m", &declared(None)).await.unwrap();
        assert_eq!(found.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["a.safetensors", "deep/b.bin"]);
        assert!(pickles_among(&found).unwrap().contains("deep/b.bin"));
        let found = local(dir.path(), "m/a.safetensors", &declared(Some("x/y"))).await.unwrap();
        assert_eq!(found[0].path, "x/y");
        let other = WeightSource { sha256: Some("0".repeat(64)), ..declared(None) };
        let error = local(dir.path(), "m", &other).await.unwrap_err().to_string();
        assert!(error.contains(&"0".repeat(64)) && error.contains(&found[0].sha256), "{error}");
    }
}
