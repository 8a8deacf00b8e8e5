//! `stoke autoscaler bootstrap`: what a rented machine is started with.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use stokehold_api::config::worker_dist;
use stokehold_api::{WorkerArchive, worker_archives};
use stokehold_autoscaler::providers::bootstrap;

use super::From;
use crate::output;

/// Print the script that makes a worker of a rented machine
///
/// It fetches the worker from the gateway and runs nothing that has another checksum than those written in it. Its environment says what to join:
/// STOKE_GATEWAY_URL, STOKE_JOIN_TOKEN.
#[derive(Args)]
pub(super) struct BootstrapArgs {
    #[command(flatten)]
    from: From,
}

pub(super) async fn run(args: BootstrapArgs) -> Result<()> {
    let dist = args.from.load()?.worker_dist;
    let script = script(dist).await?;
    ensure!(
        script.contains("archive="),
        "there is no archive of the worker of this release: `make worker-dist` builds it, and STOKE_WORKER_DIST names its folder"
    );
    output::line(script.trim_end())
}

/// The script for what lies in this folder, as the API finds it. Without any archive it runs only where the machine's environment names a
/// program.
pub(crate) async fn script(dist: PathBuf) -> Result<String> {
    let found = match worker_dist(dist) {
        Some(folder) => worker_archives(&folder).await.with_context(|| format!("cannot read {}", folder.display()))?,
        None => Vec::new(),
    };
    let known = |WorkerArchive { arch, name, sha256 }| bootstrap::WorkerArchive { arch, name, sha256 };
    let archives: Vec<_> = found.into_iter().map(known).collect();
    Ok(bootstrap::script(&archives)?)
}
