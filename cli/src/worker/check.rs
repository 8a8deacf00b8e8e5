//! `stoke worker check`.

use anyhow::Result;
use clap::Args;
use stokehold_worker::RawConfig;
use stokehold_worker::machine::{self, Finding, Machine};

use crate::{Global, findings};

/// Check this machine's capabilities as a worker
///
/// Checks glibc, Python, uv, the runner's wheel, the sandbox, GPUs with their driver, and the disk. Fails if the
/// machine does not meet the configured settings. A worker logs the same checks when it starts. Reads the environment
/// variables of `stoke worker run`; needs no join token.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke worker check
  stoke worker check --gateway https://gpu.example.com")]
pub(crate) struct CheckArgs {
    /// Also check this gateway [default: STOKE_GATEWAY_URL, else none]
    #[arg(long, value_name = "URL")]
    gateway: Option<String>,
}

pub(super) async fn run(global: &Global, args: CheckArgs) -> Result<()> {
    let gateway = args.gateway.or_else(|| std::env::var("STOKE_GATEWAY_URL").ok());
    findings::tell(global, &look(gateway.as_deref()).await?)
}

/// Runs all checks.
pub(super) async fn look(gateway: Option<&str>) -> Result<Vec<Finding>> {
    let raw = RawConfig::from_env(|name| std::env::var(name).ok())?;
    let mut found = Machine::of(&raw)?.check().await;
    if let Some(url) = gateway {
        found.push(machine::gateway(url).await);
    }
    Ok(found)
}
