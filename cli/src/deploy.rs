//! `stoke deploy`: creates a version of an endpoint from a folder.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use indicatif::ProgressBar;
use reqwest::StatusCode;
use serde_json::{Value, json};
use stokehold_client::models::{EndpointVersion, PackageReply};
use stokehold_package::{Kind, Overlay, Package, Requirements, Unlocked};
use stokehold_worker::environment::{
    Builds, CAP_BYTES_DEFAULT, Environment, EnvironmentSpec, Environments, EnvironmentsConfig, RunnerWheel,
};
use stokehold_worker::uv::{Uv, ensure_uv};

use crate::client::{Client, decode};
use crate::describe::describe;
use crate::upload::{self, UploadUrl};
use crate::{Global, kind, output, paths, progress, schema, weights};

/// Deploy a folder or a .py file as the next version of its endpoint
#[derive(Args)]
#[command(after_help = "Examples:
  stoke deploy greet
  stoke deploy greet --traffic 10
  stoke deploy main.py:Greet --name greet --vram-gib 24")]
pub(crate) struct DeployArgs {
    /// Folder, .py file, or FILE.py:OBJECT
    path: String,
    /// Kind of endpoint [default: from stoke.toml, else cog if there is a cog.yaml, else python]
    #[arg(long, value_name = "KIND", value_parser = kind::parser())]
    kind: Option<Kind>,
    /// Percentage of new jobs for this version; the current version keeps the rest
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=100))]
    traffic: u32,
    /// Give the handler network access [default: from stoke.toml or the handler]
    #[arg(long)]
    network: bool,
    /// Handler in the folder, e.g. main.py:Greet, or handler.py for a RunPod script [default: from stoke.toml]
    #[arg(long, value_name = "FILE[:OBJECT]")]
    handler: Option<String>,
    /// Endpoint name [default: from stoke.toml or the handler, else the name of the folder or file]
    #[arg(long)]
    name: Option<String>,
    /// Python version, e.g. 3.11 [default: from stoke.toml, else the python3 on PATH]
    #[arg(long, value_name = "VERSION")]
    python: Option<String>,
    /// GPU memory in GiB; 0 runs on the CPU [default: from stoke.toml or the handler]
    #[arg(long, value_name = "GIB")]
    vram_gib: Option<f64>,
}

/// The result of a deploy.
pub(crate) struct Deployed {
    /// The version as API JSON.
    pub(crate) version: Value,
    /// Set when the version is new. Otherwise it is identical to the current one.
    pub(crate) is_new: bool,
}

impl Deployed {
    /// Name and version, e.g. `echo@1`.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", output::cell(&self.version["name"]), output::cell(&self.version["version"]))
    }
}

/// An environment that is installed on this machine.
pub(crate) struct Prepared {
    pub(crate) environment: Environment,
    /// The exact requirements.
    pub(crate) lock: String,
}

/// Locks requirements, builds environments and deploys packages on this machine.
pub(crate) struct Builder {
    uv: Uv,
    environments: Environments,
}

pub(crate) async fn run(global: &Global, args: DeployArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let overlay = Overlay::parse(json!({
        "name": args.name,
        "kind": args.kind,
        "handler": args.handler,
        "python": args.python,
        "vram_gib": args.vram_gib,
        "network": args.network.then_some(true),
    }))?;
    let deployed = Builder::open().await?.deploy(&client, &args.path, overlay, args.traffic).await?;
    if global.json {
        return output::json(&deployed.version);
    }
    let (version, name) = (decode::<EndpointVersion>(&deployed.version)?, deployed.name());
    let news = if deployed.is_new { "" } else { " (unchanged)" };
    output::line(format_args!("{}{news}", output::bold(format_args!("deployed {name}"))))?;
    output::line(format_args!("  input   {}", schema::summary(&version.input_schema)))?;
    output::line(format_args!("  result  {}", schema::result(&version.output_schema)))?;
    let example = schema::example(&version.input_schema);
    output::line(format_args!("  try it  stoke submit {} {example} --wait", output::text(version.name.as_str())))
}

impl Builder {
    pub(crate) async fn open() -> Result<Self> {
        let dir = paths::cache_dir()?;
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}; set STOKE_CACHE_DIR to use another folder", dir.display()))?;
        let uv = ensure_uv(None, &dir).await?;
        let environments = Environments::open(EnvironmentsConfig {
            dir,
            uv: uv.clone(),
            runner_wheel: RunnerWheel::find(None),
            builds: Builds::own(),
            cap_bytes: CAP_BYTES_DEFAULT,
        })?;
        Ok(Self { uv, environments })
    }

    /// Returns an environment with these requirements, building it if needed. A spinner shows `what` it is for.
    pub(crate) async fn environment(&self, what: &str, lock: &str, python: &str) -> Result<Environment> {
        let bar = progress::spinner(what.to_owned());
        let (told, prefix) = (bar.clone(), what.to_owned());
        let spec =
            EnvironmentSpec { tenant: String::new(), requirements_lock: lock.to_owned(), python: python.to_owned() };
        let told = move |phase| told.set_message(format!("{prefix}: {phase}"));
        let environment = self.environments.get(&spec, &told).await;
        bar.finish_and_clear();
        Ok(environment?)
    }

    /// Returns a package's environment and the lock that it was built from.
    pub(crate) async fn prepare(&self, package: &Package) -> Result<Prepared> {
        self.prepare_for(package, true).await
    }

    /// Like [`Builder::prepare`], with an environment that has the requirements only if `installs` is set.
    async fn prepare_for(&self, package: &Package, installs: bool) -> Result<Prepared> {
        let what = format!("environment of {}", package.shown());
        let wanted = package.python.as_deref().unwrap_or_default();
        match self.prepare_with(package, &what, wanted, installs).await {
            Err(error) if package.is_python_optional && is_python_missing(&error) => {
                let prepared = self.prepare_with(package, &what, "", installs).await?;
                output::note(format_args!("{error:#}; using the installed Python instead"));
                Ok(prepared)
            }
            prepared => prepared,
        }
    }

    async fn prepare_with(&self, package: &Package, what: &str, python: &str, installs: bool) -> Result<Prepared> {
        let lock = match package.requirements()? {
            Requirements::Locked(text) => text,
            Requirements::Unlocked(unlocked) => {
                let resolving = format!("resolving the requirements of {}", package.shown());
                with_spinner(resolving, self.lock(&unlocked, package, python)).await?
            }
        };
        let installed = if installs { lock.as_str() } else { "" };
        let environment = self.environment(what, installed, python).await?;
        Ok(Prepared { environment, lock })
    }

    async fn lock(&self, unlocked: &Unlocked, package: &Package, python: &str) -> Result<String> {
        let lines = match unlocked.lines_file() {
            Some(text) => Some(lines_file(&text).context("cannot write the requirements to a temporary file")?),
            None => None,
        };
        let arguments = unlocked.uv_arguments(python, lines.as_ref().map(|file| file.path()));
        Ok(self.uv.lock(&arguments, &package.folder(), python).await?)
    }

    /// Describes, locks and packs a package on this machine, then uploads what the API does not have. The version gets
    /// `traffic_percent` of new jobs.
    pub(crate) async fn deploy(
        &self,
        client: &Client,
        target: &str,
        overlay: Overlay,
        traffic_percent: u32,
    ) -> Result<Deployed> {
        let package = Arc::new(Package::open(target, overlay)?);
        for note in &package.notes {
            output::note(note);
        }
        let shown = package.shown();
        // A program has no handler to import. Its packages, which can be gigabytes, are installed by workers only.
        let is_imported = package.describe_arguments().is_some();
        let Prepared { environment, lock } = self.prepare_for(&package, is_imported).await?;
        let described = with_spinner(format!("importing {shown}"), describe(&package, &environment.python)).await?;

        let pinned = weights::pin(&package, || Ok(client.clone())).await?;
        if let Some(note) = package.pickle_note(&pinned) {
            output::note(note);
        }
        weights::upload(client, &pinned).await?;

        let file = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
        let path = file.path().to_owned();
        let packing = (Arc::clone(&package), pinned.clone());
        let packed = tokio::task::spawn_blocking(move || {
            let (package, pinned) = packing;
            anyhow::Ok((package.pack(&pinned, file.as_file())?, file))
        });
        let (archive, file) = with_spinner(format!("packing {shown}"), async { packed.await? }).await?;
        let wanted = json!({"sha256": archive.sha256, "size_bytes": archive.size_bytes});
        let (_, place) = client.post("/v1/packages", Some(&wanted)).await?;
        let PackageReply { exists, upload_url, headers } = decode(&place)?;
        if !exists {
            let upload_url = upload_url.context("the API's response has no upload URL for the package")?;
            let place = UploadUrl { upload_url, headers };
            upload::put(client, &shown, &path, archive.size_bytes, &place).await?;
        }
        drop(file);

        let body = package.request(&described, &lock, &pinned, &archive, traffic_percent)?;
        let (status, version) = client.post("/v1/endpoints", Some(&Value::Object(body))).await?;
        Ok(Deployed { version, is_new: status == StatusCode::CREATED })
    }
}

/// Writes requirements into a file for uv, which is deleted on drop.
fn lines_file(text: &str) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("requirements-").suffix(".txt").tempfile()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// Returns whether the error is a missing Python that could not be installed.
fn is_python_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(stokehold_worker::environment::Error::PythonMissing { .. }))
}

async fn with_spinner<T>(what: String, work: impl Future<Output = Result<T>>) -> Result<T> {
    let bar: ProgressBar = progress::spinner(what);
    let done = work.await;
    bar.finish_and_clear();
    done
}
