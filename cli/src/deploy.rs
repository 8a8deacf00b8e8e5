//! `stoke deploy`: from a folder to a version of an endpoint.

mod describe;
mod pack;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indicatif::ProgressBar;
use reqwest::StatusCode;
use serde_json::{Value, json};
use stokehold_worker::environment::{
    CAP_BYTES_DEFAULT, Environment, EnvironmentSpec, Environments, EnvironmentsConfig, RunnerWheel,
};
use stokehold_worker::uv::{Uv, ensure_uv};

use crate::client::Client;
use crate::upload::{self, Place};
use crate::{Global, output, paths, progress, schema};

/// Deploy a folder or a .py file as the next version of its endpoint
#[derive(Args)]
pub(crate) struct DeployArgs {
    /// A folder, a .py file, or FILE.py:OBJECT
    path: String,
    /// The endpoint's name [default: what the handler says]
    #[arg(long)]
    name: Option<String>,
    /// Python to run it with, as 3.11 [default: the python3 on PATH]
    #[arg(long, value_name = "VERSION")]
    python: Option<String>,
    /// GPU memory that it needs, GiB; 0 runs on the CPU [default: what the handler says]
    #[arg(long, value_name = "GIB")]
    vram_gib: Option<f64>,
}

/// What to deploy.
pub(crate) struct Target<'a> {
    /// A folder, a `.py` file, or `file.py:object`.
    pub(crate) path: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) python: Option<&'a str>,
    pub(crate) vram_gib: Option<f64>,
}

/// What was deployed.
pub(crate) struct Deployed {
    /// The version, as the API shows it.
    pub(crate) version: Value,
    /// Whether it is a new one; else the current one is the same.
    pub(crate) is_new: bool,
}

impl Deployed {
    /// `echo@1`.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", output::cell(&self.version["name"]), output::cell(&self.version["version"]))
    }
}

/// Locks, builds and checks handlers on this machine.
pub(crate) struct Builder {
    uv: Uv,
    environments: Environments,
}

pub(crate) async fn run(global: &Global, args: DeployArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let target = Target {
        path: &args.path,
        name: args.name.as_deref(),
        python: args.python.as_deref(),
        vram_gib: args.vram_gib,
    };
    let deployed = Builder::open().await?.deploy(&client, &target).await?;
    if global.json {
        return output::json(&deployed.version);
    }
    let (version, name) = (&deployed.version, deployed.name());
    let news = if deployed.is_new { "" } else { " (nothing has changed)" };
    output::line(format_args!("{}{news}", output::bold(format_args!("deployed {name}"))))?;
    output::line(format_args!("  input   {}", schema::summary(&version["input_schema"])))?;
    output::line(format_args!("  result  {}", schema::type_of(&version["output_schema"])))?;
    let example = schema::example(&version["input_schema"]);
    output::line(format_args!("  try it  stoke submit {} {example} --wait", output::cell(&version["name"])))
}

impl Builder {
    pub(crate) async fn open() -> Result<Self> {
        let dir = paths::cache_dir()?;
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}; STOKE_CACHE_DIR names another", dir.display()))?;
        let uv = ensure_uv(None, &dir).await?;
        let environments = Environments::open(EnvironmentsConfig {
            dir,
            uv: uv.clone(),
            runner_wheel: RunnerWheel::find(None),
            cap_bytes: CAP_BYTES_DEFAULT,
        })?;
        Ok(Self { uv, environments })
    }

    /// An environment with these requirements, built if there is none. A bar tells `what` it is for.
    pub(crate) async fn environment(&self, what: &str, lock: &str, python: &str) -> Result<Environment> {
        let bar = progress::spinner(what.to_owned());
        let (told, prefix) = (bar.clone(), what.to_owned());
        let spec = EnvironmentSpec { requirements_lock: lock.to_owned(), python: python.to_owned() };
        let told = move |phase| told.set_message(format!("{prefix}: {phase}"));
        let environment = self.environments.get(&spec, &told).await;
        bar.finish_and_clear();
        Ok(environment?)
    }

    /// Describes, locks and packs on this machine, then sends what the API does not have yet.
    pub(crate) async fn deploy(&self, client: &Client, target: &Target<'_>) -> Result<Deployed> {
        let source = source(target.path)?;
        let shown = source.file_name().unwrap_or(source.as_os_str()).to_string_lossy().into_owned();
        let (lock, must_pin) = self.lock(&source, target.python.unwrap_or_default()).await?;
        let what = format!("environment of {shown}");
        let environment = self.environment(&what, &lock, target.python.unwrap_or_default()).await?;
        let describing = describe::describe(&environment.python, target.path);
        let described = with_spinner(format!("importing {shown}"), describing).await?;
        // Without requirements any Python will do, unless one was asked for.
        let python = if must_pin || target.python.is_some() { described.python.as_str() } else { "" };

        let archive = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        let path = archive.path().to_owned();
        let packed = tokio::task::spawn_blocking(move || pack::pack(&source, archive.as_file()).map(|()| archive));
        let archive = with_spinner(format!("packing {shown}"), async { packed.await? }).await?;
        let package = upload::measure(&path).await?;
        let body = json!({"sha256": package.sha256, "size_bytes": package.size_bytes});
        let (_, place) = client.post("/v1/packages", Some(&body)).await?;
        if place["exists"] != true {
            let place: Place = serde_json::from_value(place).context("the API gave the package no place")?;
            upload::put(client, &shown, &path, package.size_bytes, &place).await?;
        }
        drop(archive);

        let mut version = described.version;
        let name = target.name.map_or(version["name"].take(), Value::from);
        let vram_gib = target.vram_gib.map_or(version["options"]["vram_gib"].take(), Value::from);
        let mut body = json!({
            "name": name,
            "package_sha256": package.sha256,
            "package_size_bytes": package.size_bytes,
            "entry": version["entry"],
            "requirements_lock": lock,
            "python": python,
            "input_schema": version["input_schema"],
            "output_schema": version["output_schema"],
            "vram_gib": vram_gib,
            "max_concurrency": version["options"]["max_concurrency"],
            "timeout_s": version["options"]["timeout_s"],
            "max_attempts": version["options"]["max_attempts"],
        });
        for given in [
            "before",
            "after",
            "retry",
            "warmup",
            "max_batch_size",
            "max_wait_ms",
            "keep_warm_s",
            "min_warm",
            "demands",
        ] {
            if let Some(value) = version["options"].get_mut(given) {
                body[given] = value.take();
            }
        }
        let (status, version) = client.post("/v1/endpoints", Some(&body)).await?;
        Ok(Deployed { version, is_new: status == StatusCode::CREATED })
    }

    /// The exact requirements, and whether they hold for one Python only: `requirements.lock` as it is, or `requirements.txt`
    /// resolved by uv.
    async fn lock(&self, source: &Path, python: &str) -> Result<(String, bool)> {
        let folder = if source.is_dir() { source } else { source.parent().unwrap_or(Path::new("")) };
        let (lock, loose) = (folder.join("requirements.lock"), folder.join("requirements.txt"));
        if lock.is_file() {
            let text = std::fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
            return Ok((text, false));
        }
        if !loose.is_file() {
            return Ok((String::new(), false));
        }
        let resolving = format!("resolving {}", loose.display());
        let text = with_spinner(resolving, async { Ok(self.uv.lock(&loose, python).await?) }).await?;
        Ok((text, true))
    }
}

fn source(target: &str) -> Result<PathBuf> {
    // A path may hold a colon itself; then it is there as it stands.
    let path =
        if Path::new(target).exists() { target } else { target.split_once(':').map_or(target, |(path, _)| path) };
    ensure!(Path::new(path).exists(), "there is no {path}; name a folder or a .py file");
    std::fs::canonicalize(path).with_context(|| format!("cannot find {path}"))
}

async fn with_spinner<T>(what: String, work: impl Future<Output = Result<T>>) -> Result<T> {
    let bar: ProgressBar = progress::spinner(what);
    let done = work.await;
    bar.finish_and_clear();
    done
}
