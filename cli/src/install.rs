//! `stoke server`: a complete server on one machine, run by systemd.

mod answers;
mod apply;
mod files;
mod machine;
mod secrets;
mod uninstall;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::json;

use self::answers::{Answers, Tls};
use self::files::File;
use self::machine::Machine;
use crate::{Global, output, services};

use self::uninstall::UninstallArgs;

/// Install or remove a server on this machine
#[derive(Args)]
#[command(after_help = "Examples:
  sudo stoke server install --domain gpu.example.com
  sudo stoke server uninstall")]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Install(Box<InstallArgs>),
    Uninstall(UninstallArgs),
}

pub(crate) async fn run(global: &Global, args: ServerArgs) -> Result<()> {
    match args.verb {
        Verb::Install(args) => Box::pin(install(global, *args)).await,
        Verb::Uninstall(args) => uninstall::run(global, args).await,
    }
}

/// Install a server on this machine: Redis, object store, API, TLS proxy, monitoring
///
/// Installs missing packages (redis-server, caddy, prometheus) with apt-get; creates the user stokehold, secrets,
/// settings and hardened systemd services; starts them, runs `stoke doctor` and prints the next steps. Run it again
/// with other options to change them; options that are not given keep their last value, and secrets never change. To
/// use your own Redis or S3 server, set STOKE_REDIS_URL, or STOKE_S3_ENDPOINT_URL, STOKE_S3_BUCKET and their keys (with
/// sudo -E). Other settings of `stoke api` in the environment are saved too.
#[derive(Args)]
#[command(after_help = "Examples:
  sudo stoke server install --domain gpu.example.com --email ops@example.com
  sudo -E stoke server install --domain gpu.example.com --worker
  stoke server install --domain gpu.example.com --dry-run")]
struct InstallArgs {
    #[command(flatten)]
    options: answers::Options,
    /// Also run a worker on this machine
    #[arg(long, conflicts_with = "root")]
    worker: bool,
    /// `stoke` program that the services start [default: this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print all files (without secrets) and commands, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Write files below this folder, and install and start nothing (to build an image)
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
}

/// The steps of an installation.
struct Plan {
    /// Distribution packages to install.
    packages: Vec<&'static str>,
    /// Set when the user must be created.
    lacks_user: bool,
    files: Vec<File>,
    /// Paths of files to write: missing or different ones.
    changed: Vec<&'static str>,
    /// Units to enable and start.
    services: Vec<&'static str>,
    /// Enabled units to disable.
    idle: Vec<&'static str>,
}

async fn install(global: &Global, args: InstallArgs) -> Result<()> {
    let is_live = args.root == Path::new("/");
    let program = services::program(args.program.as_deref())?;
    if is_live && !args.dry_run {
        ensure!(
            nix::unistd::Uid::effective().is_root(),
            "installing services requires root: use sudo -E, or --dry-run to see the changes"
        );
        ensure!(
            services::has_systemd(),
            "systemd is not running: use --root FOLDER to only write the files, or deploy/compose.yaml for containers"
        );
        ensure!(
            !["/home", "/root", "/tmp", "/run/user"].iter().any(|hidden| program.starts_with(hidden)),
            "services cannot access {}: unpack the archive below /opt, or use another program with --program",
            program.display()
        );
    }
    let answers = Answers::of(&args.options, read(&args.root.join(answers::PATH))?.as_deref())?;
    let settings = read(&args.root.join(files::SETTINGS))?;
    let settings = secrets::settings(&answers, settings.as_deref(), |name| match std::env::var(name) {
        Err(_) if name == "STOKE_WORKER_DIST" => is_live.then(archives).flatten(),
        value => value.ok(),
    })?;
    let machine = Machine::here()?;
    let plan = Plan::of(&answers, &settings, &program, &machine, &args)?;
    if args.dry_run {
        return show(global, &plan, &args.root);
    }
    if !is_live {
        apply::write(&plan, &args.root)?;
        return tell(global, &args.root, &plan);
    }
    let installed = apply::Installed { answers: &answers, settings: &settings, program: &program };
    apply::run(&plan, &installed, args.worker).await?;
    if global.json {
        return output::json(&json!({"url": answers.url(), "services": plan.services, "written": plan.changed}));
    }
    next(&answers)
}

impl Plan {
    fn of(
        answers: &Answers,
        settings: &secrets::Settings,
        program: &Path,
        machine: &Machine,
        args: &InstallArgs,
    ) -> Result<Self> {
        let (root, is_live) = (args.root.as_path(), args.root == Path::new("/"));
        let services = files::services(answers, settings);
        let files = files::files(answers, settings, program, machine.redis_memory_bytes)?;
        let changed =
            files.iter().filter(|file| !apply::is_as_it_should_be(file, root)).map(|file| file.path).collect();
        let is_started = |unit: &str| {
            let wants = |target: &str| root.join("etc/systemd/system").join(target).join(unit).is_symlink();
            wants("multi-user.target.wants") || wants("timers.target.wants")
        };
        let idle = files::SERVICES.into_iter().filter(|unit| !services.contains(unit) && is_started(unit)).collect();
        let packages = if is_live { machine.missing(&services, args.worker) } else { Vec::new() };
        Ok(Self { packages, lacks_user: is_live && machine.lacks_user, files, changed, services, idle })
    }
}

/// The folder of worker archives that docs/how-to/deploy.md describes, if it exists.
fn archives() -> Option<String> {
    const FOLDER: &str = "/opt/stokehold/dist";
    Path::new(FOLDER).is_dir().then(|| FOLDER.to_owned())
}

/// Reads a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            bail!("reading {} requires root: use sudo", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn show(global: &Global, plan: &Plan, root: &Path) -> Result<()> {
    let (before, after) =
        if root == Path::new("/") { (apply::before(plan), apply::after(plan)) } else { Default::default() };
    let files = plan.files.iter().map(|file| (file, root.join(file.path), file.shown()));
    if global.json {
        let file = |(file, path, text): (&File, PathBuf, String)| json!({"path": path, "mode": format!("{:o}", file.mode), "text": text, "changes": plan.changed.contains(&file.path)});
        let files: Vec<_> = files.map(file).collect();
        return output::json(&json!({"before": before, "files": files, "after": after}));
    }
    let commands = |commands: Vec<Vec<&str>>| {
        commands.iter().try_for_each(|command| output::line(format_args!("$ {}", command.join(" "))))
    };
    commands(before)?;
    for (file, path, text) in files {
        let yours = if file.is_yours { ", only written if missing" } else { "" };
        let stays = if plan.changed.contains(&file.path) { "" } else { ", unchanged" };
        output::line(format_args!("# {} ({:o}{yours}{stays})\n{text}", path.display(), file.mode))?;
    }
    commands(after)
}

fn tell(global: &Global, root: &Path, plan: &Plan) -> Result<()> {
    if global.json {
        return output::json(&json!({"root": root, "services": plan.services, "written": plan.changed}));
    }
    plan.changed.iter().try_for_each(|path| output::line(root.join(path).display()))
}

fn next(answers: &Answers) -> Result<()> {
    let mut table = output::table(["Stokehold", env!("CARGO_PKG_VERSION")]);
    table.add_row(["API", &answers.url()]);
    table.add_row(["dashboard", &format!("{}/dashboard", answers.url())]);
    table.add_row(["secrets", &format!("/{} (keep a copy on another machine)", files::SETTINGS)]);
    if answers.tls == Tls::Internal {
        table.add_row(["authority", &format!("{} (clients and workers must trust it)", apply::TRUSTED)]);
    }
    table.add_row(["create a token", "sudo stoke-admin token create --name me"]);
    table.add_row(["add a worker", "sudo stoke-admin token create --kind join --name box-1"]);
    table.add_row(["check", "sudo stoke-admin doctor"]);
    output::line(table.trim_fmt())
}
