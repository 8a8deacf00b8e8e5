//! `stoke worker`.

mod check;
mod evict;
mod install;
pub(crate) mod list;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use stokehold_metrics::Metrics;
use stokehold_worker::{Config, RawConfig, SECRETS};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::signals::StopSignals;
use crate::{Global, logging};

/// List and evict workers, and run or install one on this machine
///
/// A worker is one process that runs jobs. `stoke fleet` shows the machines below them with their prices, and `stoke
/// top` the GPUs and queues of this moment.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke worker list
  stoke worker check --gateway https://gpu.example.com
  stoke worker run --gateway https://gpu.example.com --join-token-file join.token")]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    List(list::ListArgs),
    Run(RunArgs),
    Check(check::CheckArgs),
    Evict(evict::EvictArgs),
    Install(install::InstallArgs),
    Uninstall(install::UninstallArgs),
}

/// Run a worker on this machine, in the foreground
///
/// Joins the gateway and runs its jobs. Every setting can also be set by an environment variable. The join token is
/// read from a file or from STOKE_JOIN_TOKEN, never from an argument, because every user of a machine can see
/// arguments.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke worker run --gateway https://gpu.example.com --join-token-file join.token
  STOKE_SANDBOX=L2 stoke worker run --slots 4")]
struct RunArgs {
    /// URL of the gateway [STOKE_GATEWAY_URL]
    #[arg(long, value_name = "URL")]
    gateway: Option<String>,
    /// File with the join token [STOKE_JOIN_TOKEN_FILE; the token itself can be in STOKE_JOIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    join_token_file: Option<PathBuf>,
    /// Name of this worker [STOKE_WORKER_NAME; default: the host name]
    #[arg(long)]
    name: Option<String>,
    /// Concurrent jobs [STOKE_SLOTS; default: one per core, at least 2]
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Folder for scratch files of running jobs [STOKE_DATA_DIR; default: .stoke/worker]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Stop, as on SIGTERM, when standard input closes
    #[arg(long)]
    exit_with_stdin: bool,
}

pub(crate) async fn run(global: &Global, args: WorkerArgs) -> Result<()> {
    match args.verb {
        Verb::List(args) => list::run(global, args).await,
        Verb::Run(args) => work(args).await,
        Verb::Check(args) => check::run(global, args).await,
        Verb::Evict(args) => evict::run(global, args).await,
        Verb::Install(args) => install::run(global, args).await,
        Verb::Uninstall(args) => install::remove(args).await,
    }
}

async fn work(args: RunArgs) -> Result<()> {
    logging::to_stderr();
    let mut raw = RawConfig::from_env(|name| std::env::var(name).ok())?;
    // From here on, secrets are only in memory, which only root can read.
    if let Err(error) = stokehold_worker::conceal(&SECRETS) {
        tracing::warn!(%error, "cannot hide the secrets of this process: processes of the same user can read them in /proc");
    }
    args.gateway.into_iter().for_each(|url| raw.gateway_url = url);
    args.name.into_iter().for_each(|name| raw.name = name);
    args.slots.into_iter().for_each(|slots| raw.slots = slots);
    args.data.into_iter().for_each(|data| raw.data_dir = data);
    if let Some(path) = args.join_token_file {
        (raw.join_token, raw.join_token_file) = (String::new(), path);
    }
    let config = Config::try_from(raw)?;
    let (mut stop, shutdown) = (StopSignals::new()?, CancellationToken::new());
    if args.exit_with_stdin {
        cancel_at_end_of_stdin(shutdown.clone());
    }
    if let Some(listen) = config.metrics_listen {
        let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        stokehold_metrics::install(&stokehold_worker::metrics::catalogues());
        tokio::spawn(stokehold_metrics::serve(listener, Metrics::default(), shutdown.clone()));
    }
    let working = stokehold_worker::run(config, shutdown.clone());
    tokio::pin!(working);
    tokio::select! {
        done = &mut working => return done,
        () = stop.recv() => shutdown.cancel(),
    }
    tracing::info!("draining: taking no new jobs and finishing running ones; a second signal stops immediately");
    tokio::select! {
        done = &mut working => done,
        () = stop.recv() => anyhow::bail!("stopped before the running jobs finished; they will run again"),
    }
}

/// Cancels `shutdown` when standard input closes. Uses a detached thread, because the read cannot be cancelled.
fn cancel_at_end_of_stdin(shutdown: CancellationToken) {
    std::thread::spawn(move || {
        // An error also means that standard input is closed.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        shutdown.cancel();
    });
}
