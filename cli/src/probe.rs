//! `stoke probe`: whether a server answers, for the health checks of containers, whose images have no curl.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

/// Less than any health check allows.
const LIMIT: Duration = Duration::from_secs(3);

/// Ask a URL once; succeed when it answers as one that works
#[derive(Args)]
pub(crate) struct ProbeArgs {
    /// What to ask, as http://127.0.0.1:7070/readyz
    url: String,
    /// Be content with a refusal (401, 403, 404): somebody is there
    #[arg(long)]
    any: bool,
}

pub(crate) async fn run(args: ProbeArgs) -> Result<()> {
    let answer = reqwest::Client::new().get(&args.url).timeout(LIMIT).send().await;
    let status = answer.with_context(|| format!("{} does not answer", args.url))?.status();
    ensure!(status.is_success() || (args.any && !status.is_server_error()), "{} answers {status}", args.url);
    Ok(())
}
