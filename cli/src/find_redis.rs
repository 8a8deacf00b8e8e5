//! `stoke find-redis`: the server that `stoke dev` would run, for tests that start their own.

use anyhow::Result;
use clap::Args;

use crate::dev::provision;
use crate::output;

/// Print the path of the Redis that `stoke dev` would run
#[derive(Args)]
pub(crate) struct FindRedisArgs {
    /// Pass over what is on PATH: the pinned Valkey, installed if need be
    #[arg(long)]
    pinned: bool,
}

pub(crate) async fn run(args: FindRedisArgs) -> Result<()> {
    let binary = if args.pinned { provision::pinned().await? } else { provision::redis_binary().await? };
    output::line(binary.path.display())
}
