//! `stoke probe`: health check of a URL, for container images without curl.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

/// Timeout; shorter than the timeout of any health check.
const LIMIT: Duration = Duration::from_secs(3);

/// Send a GET request to a URL; succeed if the response status is 2xx
#[derive(Args)]
pub(crate) struct ProbeArgs {
    /// URL, e.g. http://127.0.0.1:7070/readyz
    url: String,
    /// Accept any status below 500, e.g. 401, 403 or 404
    #[arg(long)]
    any: bool,
}

pub(crate) async fn run(args: ProbeArgs) -> Result<()> {
    let answer = reqwest::Client::new().get(&args.url).timeout(LIMIT).send().await;
    let status = answer.with_context(|| format!("no response from {}", args.url))?.status();
    ensure!(status.is_success() || (args.any && !status.is_server_error()), "{} returned status {status}", args.url);
    Ok(())
}
