//! `stoke find-redis`: the server that `stoke dev` would run, for tests that start their own.

use anyhow::Result;
use clap::Args;

use crate::dev::provision;
use crate::output;

/// Print the path of the Redis that `stoke dev` would run
#[derive(Args)]
pub(crate) struct FindRedisArgs {}

pub(crate) async fn run(_args: FindRedisArgs) -> Result<()> {
    output::line(provision::redis_binary().await?.path.display())
}
