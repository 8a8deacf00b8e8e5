//! `stoke dev`: a complete stack on this machine.

mod children;
mod fake_vast;
mod lock;
pub(crate) mod provision;
pub(crate) mod redis_server;
pub(crate) mod secrets;
pub(crate) mod stack;
pub(crate) mod state;
mod workers;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::json;

use self::stack::{ChildLog, Stack, StackOptions};
use crate::credentials::Credentials;
use crate::signals::StopSignals;
use crate::{Global, dashboard, logging, output};

/// Run a complete stack on this machine: API, Redis, object store, worker
///
/// The stack is persistent: starting it again with the same data directory restores its jobs, results and tokens.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke dev
  stoke dev --workers 0..4 --listen 127.0.0.1:0
  stoke dev --fake-vast")]
pub(crate) struct DevArgs {
    /// Data directory for jobs, results and secrets
    #[arg(long, value_name = "FOLDER", default_value = ".stoke")]
    data: PathBuf,
    /// Address and port of the API; port 0 picks a free port and tries to keep it on the next start
    #[arg(long, value_name = "ADDRESS:PORT", env = "STOKE_LISTEN", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Use this Redis: redis://, rediss://, redis+unix://, redis+sentinel://host:port,.../service or
    /// redis+cluster://host:port,... [default: start one with its data in the data directory]
    #[arg(long, value_name = "URL", env = "STOKE_REDIS_URL", hide_env_values = true)]
    redis: Option<String>,
    /// Use this S3 server, configured by STOKE_S3_BUCKET, STOKE_S3_ACCESS_KEY_ID etc. [default: the built-in store]
    #[arg(long, value_name = "URL", env = "STOKE_S3_ENDPOINT_URL")]
    s3: Option<String>,
    /// When Redis writes accepted jobs to disk
    #[arg(long, value_enum, default_value_t = Durability::Strict)]
    durability: Durability,
    /// Accept a Redis (--redis) without persistence
    #[arg(long, env = "STOKE_EPHEMERAL")]
    ephemeral: bool,
    /// Number of workers, or a range such as 0..4 to scale with the load [default: 1; with --fake-vast: 0..4]
    #[arg(long, value_name = "N|LEAST..MOST")]
    workers: Option<WorkerRange>,
    /// Rent the workers from a simulated Vast.ai with this random seed. Offers, prices and bills are simulated, and the
    /// machines are child processes with simulated GPUs. Use it to try renting without an account
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    fake_vast: Option<u64>,
    /// Concurrent jobs per worker [STOKE_SLOTS; default: one per core, at least 2]
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Create this file with the API's address once the stack is ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

/// Minimum and maximum number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerRange {
    pub(crate) least: u32,
    pub(crate) most: u32,
}

/// Maximum number of workers on one machine.
const WORKERS_MAX: u32 = 64;

impl WorkerRange {
    pub(crate) const ONE: Self = Self { least: 1, most: 1 };
    const RENTED: Self = Self { least: 0, most: 4 };
}

impl FromStr for WorkerRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.parse().ok().filter(|number| *number <= WORKERS_MAX);
        match (number(least), number(most)) {
            (Some(least), Some(most)) if least <= most => Ok(Self { least, most }),
            _ => Err(format!("use a number up to {WORKERS_MAX}, or a range such as 0..4")),
        }
    }
}

impl fmt::Display for WorkerRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { least, most } if least == most => write!(f, "{least}"),
            Self { least, most } => write!(f, "{least}..{most}"),
        }
    }
}

/// When the stack's Redis writes to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// Before a job is acknowledged: a power failure loses nothing
    Strict,
    /// Within 2 seconds: faster, but a power failure can lose the last 2 seconds
    Standard,
}

/// Memory limit of a Redis on this machine: a quarter of its memory, bytes.
pub(crate) fn redis_memory_bytes() -> u64 {
    redis_server::memory()
}

pub(crate) async fn run(global: &Global, args: DevArgs) -> Result<()> {
    logging::to_stderr();
    let mut stop = StopSignals::new()?;
    let options = StackOptions {
        data: args.data,
        listen: args.listen,
        redis: args.redis,
        s3: args.s3,
        durability: args.durability,
        ephemeral: args.ephemeral,
        workers: args.workers.unwrap_or(if args.fake_vast.is_some() { WorkerRange::RENTED } else { WorkerRange::ONE }),
        fake_vast: args.fake_vast,
        slots: args.slots,
        child_log: ChildLog::Stderr,
    };
    let mut stack = tokio::select! {
        stack = Box::pin(Stack::start(options)) => stack?,
        // Dropping the future stops the started parts.
        () = stop.recv() => return Ok(()),
    };
    let credentials =
        Credentials { url: stack.url.clone(), token: stack.token.clone(), data: Some(stack.data.clone()) }
            .save(None)?;
    show(global, &stack, &credentials).await?;
    if let Some(path) = &args.ready_file {
        std::fs::write(path, &stack.url).with_context(|| format!("cannot write {}", path.display()))?;
    }
    output::line("ready")?;

    let ended = tokio::select! {
        broken = stack.supervise() => Err(broken),
        () = stop.recv() => Ok(()),
    };
    tracing::info!("stopping after running jobs finish; press Ctrl-C again to stop immediately");
    stack.stop(stop.recv()).await;
    ended
}

async fn show(global: &Global, stack: &Stack, credentials: &std::path::Path) -> Result<()> {
    let about = &stack.about;
    let link = stack.dashboard().await?;
    if global.json {
        return output::json(&json!({
            "url": stack.url,
            "dashboard": link,
            "data": stack.data,
            "credentials": credentials,
            "durability": about.durability,
            "redis": about.redis,
            "objects": about.objects,
            "workers": about.workers.least,
            "workers_max": about.workers.most,
            "fake_vast": about.fake_vast,
        }));
    }
    let mut table = output::table(["Stokehold", env!("CARGO_PKG_VERSION")]);
    table.add_row(["API", &stack.url]);
    table.add_row(["dashboard", link.as_deref().unwrap_or("not included in this build; `make dashboard` builds it")]);
    table.add_row(["token", &format!("in {}", credentials.display())]);
    table.add_row(["data", &stack.data.display().to_string()]);
    table.add_row(["durability", &about.durability]);
    table.add_row(["Redis", &about.redis]);
    table.add_row(["objects", &about.objects]);
    table.add_row(["workers", &about.workers.to_string()]);
    if let Some(url) = &about.fake_vast {
        table.add_row(["fake Vast.ai", &format!("{url}, API key {}", stokehold_fake_vast::KEY)]);
    }
    table.add_row(["next", "run `stoke deploy PATH` in another terminal"]);
    output::note(table.trim_fmt());
    if link.is_some() {
        output::note(output::dim(dashboard::about()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_a_number_or_a_range() {
        let parsed = |text: &str| text.parse::<WorkerRange>().ok().map(|range| (range.least, range.most));
        assert_eq!(
            [parsed("3"), parsed("0"), parsed("0..4"), parsed("2..2")],
            [(3, 3), (0, 0), (0, 4), (2, 2)].map(Some)
        );
        assert_eq!(["4..0", "..4", "1..65", "-1", "many", ""].map(parsed), [None; 6]);
        assert_eq!(WorkerRange { least: 0, most: 4 }.to_string(), "0..4");
    }
}
