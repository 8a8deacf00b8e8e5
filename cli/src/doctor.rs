//! `stoke doctor`: checks this machine and the services that it uses.

mod api;
mod network;
mod plan;
mod store;

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use stokehold_queue::{Durability, Error as QueueError, RedisChecks, RedisConfig, RedisQueue};
use stokehold_worker::RawConfig;
use stokehold_worker::machine::{Finding, Machine};

use crate::credentials::Credentials;
use crate::dev::provision;
use crate::dev::state::State;
use crate::{Global, findings, output};
use plan::{Load, Plan};

const LIMIT: Duration = Duration::from_secs(10);

/// Check this machine and its services: API, token, clock, Redis, S3, Python, uv, GPUs
///
/// With the API's settings in the environment (STOKE_REDIS_URL, STOKE_S3_...), it also checks the API's rights in Redis
/// and S3.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke doctor
  stoke doctor --webhook https://example.com/hook
  stoke doctor --plan jobs_per_s=50 payload_bytes=2000")]
pub(crate) struct DoctorArgs {
    /// Redis to check [default: the Redis of a running `stoke dev`]
    #[arg(long, value_name = "URL", env = "STOKE_REDIS_URL", hide_env_values = true)]
    redis: Option<String>,
    /// Check that webhooks may be sent to this URL and that it responds
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Only estimate the Redis resources of a load: jobs_per_s= and payload_bytes= are required; defaults are
    /// result_bytes=1000 retention_s=86400 run_s=1 backlog=0
    #[arg(long, value_name = "NAME=NUMBER", num_args = 1..)]
    plan: Vec<String>,
}

pub(crate) async fn run(global: &Global, args: DoctorArgs) -> Result<()> {
    if !args.plan.is_empty() {
        return tell(global, &Plan::of(&Load::parse(&args.plan)?));
    }
    let mut checks = Machine::of(&RawConfig::from_env(|name| std::env::var(name).ok())?)?.check().await;
    checks.push(redis_server().await);
    checks.extend(api::checks(global).await);
    checks.extend(redis(args.redis.as_deref()).await);
    checks.extend(store::checks().await);
    if let Some(url) = &args.webhook {
        checks.push(network::webhook(url).await);
    }
    findings::tell(global, &checks)
}

fn tell(global: &Global, plan: &Plan) -> Result<()> {
    if global.json {
        return output::json(plan);
    }
    let mut table = output::table(["for this load", ""]);
    for (what, figure) in plan.rows() {
        table.add_row([what, &figure]);
    }
    output::line(table.trim_fmt())?;
    plan.advice().map_or(Ok(()), output::line)
}

async fn redis_server() -> Finding {
    const WHAT: &str = "Redis to run";
    match provision::present().await {
        Ok(Some(found)) => Finding::ok(WHAT, format!("{} {}", found.path.display(), found.version)),
        Ok(None) => Finding::ok(WHAT, "not installed; `stoke dev` downloads one"),
        Err(error) => {
            Finding::fail(WHAT, format!("{error:#}"), "Set STOKE_REDIS_SERVER to another program, or unset it.")
        }
    }
}

async fn redis(url: Option<&str>) -> Option<Finding> {
    const WHAT: &str = "Redis settings";
    const FIX: &str = "The API does not start with this Redis.";
    const STANDARD: &str = "The API starts with this Redis only with STOKE_DURABILITY=standard.";
    const NOTES: &str = "The API starts with this Redis anyway.";
    let config = match url {
        Some(url) => RedisConfig { url: url.to_owned(), ..RedisConfig::default() },
        None => {
            let data = Credentials::load(None).ok()??.data?;
            let state = State::load(&data).ok()??;
            RedisConfig { url: state.redis_url, prefix: state.redis_prefix, ..RedisConfig::default() }
        }
    };
    match tokio::time::timeout(LIMIT, fitness(config)).await {
        Ok(Ok((fitness, None))) => {
            let notes = fitness.notes.iter().map(|note| format!("\n{note}"));
            let (class, replicas) = (fitness.durability.as_str(), fitness.replicas_to_wait);
            let found = format!("meets durability {class}, waits for {replicas} replicas{}", notes.collect::<String>());
            Some(if fitness.notes.is_empty() { Finding::ok(WHAT, found) } else { Finding::warn(WHAT, found, NOTES) })
        }
        Ok(Ok((_, Some(why)))) => Some(Finding::warn(WHAT, format!("meets durability standard only: {why}"), STANDARD)),
        // A stopped `stoke dev` is not a problem.
        _ if url.is_none() => None,
        Ok(Err(error)) => Some(Finding::fail(WHAT, error.to_string(), FIX)),
        Err(_) => Some(Finding::fail(WHAT, "no response", FIX)),
    }
}

/// Returns the durability that a Redis can provide and, if that is not `strict`, the reason.
async fn fitness(config: RedisConfig) -> Result<(RedisChecks, Option<String>), QueueError> {
    let check = async |durability| {
        let queue = RedisQueue::connect(RedisConfig { durability, ..config.clone() }).await?;
        queue.check_fitness(false).await
    };
    match check(Durability::Strict).await {
        Ok(fitness) => Ok((fitness, None)),
        Err(QueueError::Unfit(why)) => Ok((check(Durability::Standard).await?, Some(why))),
        Err(error) => Err(error),
    }
}
