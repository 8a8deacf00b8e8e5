//! `stoke worker check`.

use anyhow::Result;
use clap::Args;
use stokehold_worker::RawConfig;
use stokehold_worker::machine::{self, Finding, Machine};

use crate::{Global, findings};

/// Say what this machine can do as a worker, and what it lacks
///
/// Looks at glibc, Python, uv, the runner's wheel, the sandbox, the cards with their driver, and the disk; fails where
/// something is not as whoever set the machine up wanted it. A worker says the same when it starts. Reads the variables
/// that `stoke worker` reads, and needs no join token.
#[derive(Args)]
pub(crate) struct CheckArgs {
    /// Ask this gateway too [default: STOKE_GATEWAY_URL, else none]
    #[arg(long, value_name = "URL")]
    gateway: Option<String>,
}

pub(super) async fn run(global: &Global, args: CheckArgs) -> Result<()> {
    let gateway = args.gateway.or_else(|| std::env::var("STOKE_GATEWAY_URL").ok());
    findings::tell(global, &look(gateway.as_deref()).await?)
}

/// Everything that there is to find.
pub(super) async fn look(gateway: Option<&str>) -> Result<Vec<Finding>> {
    let raw = RawConfig::from_env(|name| std::env::var(name).ok())?;
    let mut found = Machine::of(&raw)?.look().await;
    if let Some(url) = gateway {
        found.push(machine::gateway(url).await);
    }
    Ok(found)
}
