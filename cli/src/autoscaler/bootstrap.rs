//! `stoke autoscaler bootstrap`: the start script of rented instances.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use stokehold_api::config::worker_dist;
use stokehold_api::{WorkerArchive, worker_archives};
use stokehold_autoscaler::providers::bootstrap;

use super::From;
use crate::output;

/// Print the start script of rented machines
///
/// The script downloads the worker from the gateway and runs it only if its checksum is one of those in the script. It
/// reads STOKE_GATEWAY_URL and STOKE_JOIN_TOKEN from its environment.
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke autoscaler bootstrap > onstart.sh")]
pub(super) struct BootstrapArgs {
    #[command(flatten)]
    from: From,
}

pub(super) async fn run(args: BootstrapArgs) -> Result<()> {
    let dist = args.from.load()?.worker_dist;
    let script = script(dist).await?;
    ensure!(
        script.contains("archive="),
        "no worker archive of this release found; build one with `make worker-dist` and set STOKE_WORKER_DIST to its folder"
    );
    output::line(script.trim_end())
}

/// Builds the script for the archives in this folder, which the API looks up the same way. Without an archive, the
/// script works only where the instance's environment names a program.
pub(crate) async fn script(dist: PathBuf) -> Result<String> {
    let found = match worker_dist(dist) {
        Some(folder) => worker_archives(&folder).await.with_context(|| format!("cannot read {}", folder.display()))?,
        None => Vec::new(),
    };
    let known = |WorkerArchive { arch, name, sha256 }| bootstrap::WorkerArchive { arch, name, sha256 };
    let archives: Vec<_> = found.into_iter().map(known).collect();
    Ok(bootstrap::script(&archives)?)
}
