//! `stoke worker`.

mod check;
mod evict;
mod install;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use stokehold_exposition::Exposition;
use stokehold_worker::{Config, RawConfig, SECRETS};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::signals::StopSignals;
use crate::{Global, logging};

/// Join a gateway and run its jobs on this machine
///
/// Every setting can be given by an environment variable as well; the join token by a file or by STOKE_JOIN_TOKEN, never as an argument:
/// those are seen by every user of a machine.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    here: Here,
}

#[derive(Subcommand)]
enum Verb {
    Check(check::CheckArgs),
    Evict(evict::EvictArgs),
    Install(install::InstallArgs),
    Uninstall(install::UninstallArgs),
}

/// How to work here and now.
#[derive(Args)]
struct Here {
    /// Where the gateway answers [STOKE_GATEWAY_URL]
    #[arg(long, value_name = "URL")]
    gateway: Option<String>,
    /// A file that holds the join token [STOKE_JOIN_TOKEN_FILE, or the token itself: STOKE_JOIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    join_token_file: Option<PathBuf>,
    /// What to call this worker [STOKE_WORKER_NAME; default: the host's name]
    #[arg(long)]
    name: Option<String>,
    /// Jobs at once [STOKE_SLOTS; default: one per core, at least 2]
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Scratch space of running jobs [STOKE_DATA_DIR; default: .stoke/worker]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Stop, as on SIGTERM, when standard input ends: whoever holds its other end is gone
    #[arg(long)]
    exit_with_stdin: bool,
}

pub(crate) async fn run(global: &Global, args: WorkerArgs) -> Result<()> {
    match args.verb {
        None => work(args.here).await,
        Some(Verb::Check(args)) => check::run(global, args).await,
        Some(Verb::Evict(args)) => evict::run(global, args).await,
        Some(Verb::Install(args)) => install::run(global, args).await,
        Some(Verb::Uninstall(args)) => install::remove(args).await,
    }
}

async fn work(args: Here) -> Result<()> {
    logging::to_stderr();
    let mut raw = RawConfig::from_env(|name| std::env::var(name).ok())?;
    // From here on they are in memory alone, and nobody but root looks into that.
    if let Err(error) = stokehold_worker::conceal(&SECRETS) {
        tracing::warn!(%error, "this process' secrets cannot be hidden: who runs as the same user may read them in /proc");
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
        stokehold_exposition::install(&stokehold_worker::metrics::catalogues());
        tokio::spawn(stokehold_exposition::serve(listener, Exposition::default(), shutdown.clone()));
    }
    let working = stokehold_worker::run(config, shutdown.clone());
    tokio::pin!(working);
    tokio::select! {
        done = &mut working => return done,
        () = stop.recv() => shutdown.cancel(),
    }
    tracing::info!("draining: no new jobs, those under way may end; once more stops at once");
    tokio::select! {
        done = &mut working => done,
        () = stop.recv() => anyhow::bail!("stopped before the jobs under way had ended; they will be run again"),
    }
}

/// On a thread of its own, which nobody waits for: a read cannot be called off.
fn cancel_at_end_of_stdin(shutdown: CancellationToken) {
    std::thread::spawn(move || {
        // An error is an end as well.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        shutdown.cancel();
    });
}
