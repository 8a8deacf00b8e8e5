//! `stoke worker`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use stokehold_worker::{Config, RawConfig};
use tokio_util::sync::CancellationToken;

use crate::logging;
use crate::signals::StopSignals;

/// Join a gateway and run its jobs on this machine
///
/// Every setting can be given by an environment variable as well; the join token by STOKE_JOIN_TOKEN alone, since arguments are
/// seen by every user of a machine.
#[derive(Args)]
pub(crate) struct WorkerArgs {
    /// Where the gateway answers [STOKE_GATEWAY_URL]
    #[arg(long, value_name = "URL")]
    gateway: Option<String>,
    /// What to call this worker [STOKE_WORKER_NAME; default: the host's name]
    #[arg(long)]
    name: Option<String>,
    /// Jobs at once [STOKE_SLOTS; default: one per core, at least 2]
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Scratch space of running jobs [STOKE_DATA_DIR; default: .stoke/worker]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

pub(crate) async fn run(args: WorkerArgs) -> Result<()> {
    logging::to_stderr();
    let mut raw = RawConfig::from_env(|name| std::env::var(name).ok())?;
    args.gateway.into_iter().for_each(|url| raw.gateway_url = url);
    args.name.into_iter().for_each(|name| raw.name = name);
    args.slots.into_iter().for_each(|slots| raw.slots = slots);
    args.data.into_iter().for_each(|data| raw.data_dir = data);
    let config = Config::try_from(raw)?;
    let (mut stop, shutdown) = (StopSignals::new()?, CancellationToken::new());
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
