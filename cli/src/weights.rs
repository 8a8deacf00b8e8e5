//! Weights: where an endpoint has them from, pinned to what they are. What is fetched is in `weights.lock`, for workers
//! to compare.

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

/// Endings of files that are, or may be, pickles.
const PICKLES: [&str; 7] = [".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"];

/// Files of one folder, at most.
const FILES_MAX: usize = 1_000;

/// Pin the weights that an endpoint names, and see what is pinned
#[derive(Args)]
pub(crate) struct WeightsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Lock(LockArgs),
}

/// Write weights.lock: the exact files, with their hashes
///
/// `stoke deploy` does so too, for what is not pinned yet.
#[derive(Args)]
struct LockArgs {
    /// The endpoint's folder
    path: String,
    /// Look at everything anew, also what is pinned
    #[arg(long)]
    update: bool,
}

/// One file, pinned: as a deploy names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Pinned {
    pub(crate) path: String,
    pub(crate) source: String,
    /// `None` where it is a file of this machine.
    pub(crate) url: Option<String>,
    pub(crate) sha256: String,
    pub(crate) size_bytes: u64,
    /// The file of this machine.
    #[serde(skip)]
    pub(crate) file: Option<PathBuf>,
}

/// Where a file is fetched from, as it is declared.
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
        _ => bail!("weights: {source:?} has no scheme that is known; use hf://, https://, s3:// or file:"),
    })
}

pub(crate) async fn run(global: &Global, args: WeightsArgs) -> Result<()> {
    let Verb::Lock(LockArgs { path, update }) = args.verb;
    let package = Package::open(&path, &Overrides::default())?;
    ensure!(!package.weights.is_empty(), "{path} names no weights; write [[weights]] into its stoke.toml");
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
    output::print_table(&table, "there are no weights")
}

/// All files of an endpoint's weights: those in its lock as they stand there, others looked at now and written there.
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
    ensure!(pinned.len() <= FILES_MAX, "{} files of weights are more than {FILES_MAX}", pinned.len());
    Ok(pinned)
}

/// Where to read a file in a bucket that the API may read.
pub(crate) async fn signed(client: &Client, source: &str) -> Result<String> {
    let signed = client.get(&query("/v1/weights/url", &[("source", Some(source))])).await?;
    Ok(signed["url"].as_str().context("the API gave no URL for the weights")?.to_owned())
}

/// Files of this machine, hashed each time: they change without a word.
async fn local(folder: &Path, path: &str, declared: &WeightSource) -> Result<Vec<Pinned>> {
    let root = folder.join(path);
    // As the folder's own path is: what lies in it is known by that when it is packed.
    let root = std::fs::canonicalize(&root).with_context(|| format!("weights: there is no {}", root.display()))?;
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
        ensure!(files.len() < FILES_MAX, "{} holds more than {FILES_MAX} files", folder.display());
        if entry.is_dir() {
            collect(&entry, files)?;
        } else {
            files.push(entry);
        }
    }
    Ok(())
}

/// That a file is what its author says it is, if they say.
fn check(declared: &WeightSource, path: &str, sha256: &str) -> Result<()> {
    match &declared.sha256 {
        Some(expected) if expected != sha256 => {
            bail!("weights: {path} is not what stoke.toml says: expected {expected}, got {sha256}")
        }
        _ => Ok(()),
    }
}

/// Puts those of this machine where workers find them.
pub(crate) async fn upload(client: &Client, pinned: &[Pinned]) -> Result<()> {
    for one in pinned {
        let Some(file) = &one.file else { continue };
        let wanted = json!({"sha256": one.sha256, "size_bytes": one.size_bytes});
        let (_, place) = client.post("/v1/weights", Some(&wanted)).await?;
        if place["exists"] != true {
            let place: Place = serde_json::from_value(place).context("the API gave the weights no place")?;
            upload::put(client, &one.path, file, one.size_bytes, &place).await?;
        }
    }
    Ok(())
}

/// What a worker would refuse, said before the deploy rather than after it.
pub(crate) fn pickles_among(pinned: &[Pinned]) -> Option<String> {
    let first = pinned.iter().find(|one| is_pickle(&one.path))?;
    Some(format!(
        "{} looks like a pickle, which runs what it says when it is read: workers refuse those without allow_pickle = true; safetensors do not",
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
