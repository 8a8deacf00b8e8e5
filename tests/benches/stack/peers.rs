//! The systems to measure: Stokehold through three clients, the raw loop, and a folder per peer under `lab/peers`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use crate::program::Program;

/// How to run and read one system.
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) client: Program,
    /// Commands whose numeric replies add up to the number of jobs that have not ended.
    pub(crate) open: Vec<Vec<String>>,
    /// Number of jobs of a drain: some seconds of work.
    pub(crate) drain_jobs: usize,
    /// Description beside its name.
    pub(crate) about: String,
    /// Whether it guarantees to run every job: the raw loop does not.
    pub(crate) recovers: bool,
    /// Whether it is another system with a different client, of which only the submits and round trips are measured.
    pub(crate) client_only: bool,
}

pub(crate) enum Kind {
    Stokehold,
    /// A system whose workers are programs.
    Peer {
        worker: Program,
        ready: String,
        concurrency: usize,
    },
}

/// `peer.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    language: String,
    package: String,
    client: Vec<String>,
    worker: Vec<String>,
    ready: String,
    concurrency: usize,
    open: Vec<Vec<String>>,
    drain_jobs: usize,
}

/// Stokehold, through HTTP alone and through its SDKs, the floor, then the peers by name.
pub(crate) fn all() -> anyhow::Result<Vec<Spec>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/peers");
    let python = std::env::var("STOKE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut specs = vec![
        stokehold("stokehold", "over HTTP, Python handlers", own("stokehold-client")?),
        stokehold("stokehold-python", "the Python SDK", sdk(&root, [&python, "client.py"])),
        stokehold("stokehold-js", "the JavaScript SDK", sdk(&root, ["node", "client.mjs"])),
        raw()?,
    ];
    let mut folders: Vec<PathBuf> =
        fs::read_dir(&root)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    folders.retain(|folder| folder.join("peer.toml").exists());
    folders.sort();
    for folder in folders {
        specs.push(peer(&root, &folder).with_context(|| format!("{}", folder.display()))?);
    }
    Ok(specs)
}

fn peer(root: &Path, folder: &Path) -> anyhow::Result<Spec> {
    let manifest: Manifest = toml::from_str(&fs::read_to_string(folder.join("peer.toml"))?)?;
    let name = folder.file_name().context("a folder has a name")?.to_string_lossy().into_owned();
    // The folder of the peers' Python packages that `make` has installed; Node finds its own beside the program.
    let bin = std::env::var("STOKE_BENCH_PEERS_BIN").unwrap_or_default();
    let version = version(&bin, folder, &manifest);
    let env = vec![("PYTHONPATH".to_owned(), format!("{}:{}", root.join("lib").display(), folder.display()))];
    let program = |words: &[String]| {
        let mut words = words.to_vec();
        if manifest.language == "Python"
            && let Some(first) = words.first_mut()
        {
            *first = Path::new(&bin).join(&*first).to_string_lossy().into_owned();
        }
        Program { words, dir: folder.to_owned(), env: env.clone() }
    };
    Ok(Spec {
        about: format!("{}, {} {version}, {} jobs at once", manifest.language, manifest.package, manifest.concurrency),
        client: program(&manifest.client),
        kind: Kind::Peer {
            worker: program(&manifest.worker),
            ready: manifest.ready.clone(),
            concurrency: manifest.concurrency,
        },
        open: manifest.open.clone(),
        drain_jobs: manifest.drain_jobs,
        recovers: true,
        client_only: false,
        name,
    })
}

/// The installed version according to its packages.
fn version(bin: &str, folder: &Path, manifest: &Manifest) -> String {
    let read = || -> anyhow::Result<String> {
        if manifest.language == "Python" {
            let script = format!("import importlib.metadata as m; print(m.version({:?}))", manifest.package);
            let output = std::process::Command::new(Path::new(bin).join("python")).args(["-c", &script]).output()?;
            return Ok(String::from_utf8(output.stdout)?.trim().to_owned());
        }
        let text = fs::read_to_string(folder.join("node_modules").join(&manifest.package).join("package.json"))?;
        let package: serde_json::Value = serde_json::from_str(&text)?;
        Ok(package["version"].as_str().unwrap_or_default().to_owned())
    };
    read().ok().filter(|version| !version.is_empty()).unwrap_or_else(|| "not installed".to_owned())
}

/// This program itself in another role.
fn own(role: &str) -> anyhow::Result<Program> {
    let words = vec![std::env::current_exe()?.to_string_lossy().into_owned(), role.to_owned()];
    Ok(Program { words, dir: std::env::current_dir()?, env: vec![] })
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A program of an SDK.
fn sdk(root: &Path, words: [&str; 2]) -> Program {
    let env = vec![("PYTHONPATH".to_owned(), root.join("lib").display().to_string())];
    Program { words: command(&words), dir: root.join("stokehold"), env }
}

fn stokehold(name: &str, about: &str, client: Program) -> Spec {
    Spec {
        name: name.to_owned(),
        kind: Kind::Stokehold,
        client,
        open: vec![command(&["HGET", "{stoke:0}:open", "t:default"])],
        drain_jobs: 20_000,
        about: about.to_owned(),
        recovers: true,
        client_only: name != "stokehold",
    }
}

fn raw() -> anyhow::Result<Spec> {
    Ok(Spec {
        name: "raw".to_owned(),
        kind: Kind::Peer { worker: own("raw-worker")?, ready: "ready".to_owned(), concurrency: 100 },
        client: own("raw-client")?,
        open: vec![command(&["XLEN", "raw:q"])],
        drain_jobs: 100_000,
        about: "a Rust loop over a Redis stream: no promises, no handler".to_owned(),
        recovers: false,
        client_only: false,
    })
}
