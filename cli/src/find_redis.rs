//! `stoke find-redis`: prints the Redis server that `stoke dev` would run. Used by tests.

use anyhow::Result;
use clap::Args;

use crate::dev::provision;
use crate::output;

/// Print the path of the Redis that `stoke dev` would run
#[derive(Args)]
pub(crate) struct FindRedisArgs {
    /// Ignore servers on PATH and print the pinned Valkey, installing it if needed
    #[arg(long)]
    pinned: bool,
}

pub(crate) async fn run(args: FindRedisArgs) -> Result<()> {
    let binary = if args.pinned { provision::pinned().await? } else { provision::redis_binary().await? };
    output::line(binary.path.display())
}
