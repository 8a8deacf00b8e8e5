//! `stoke doctor`: what this machine has, what it lacks, and what to do about it.

mod plan;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::Cell;
use nvml_wrapper::Nvml;
use serde::Serialize;
use serde_json::{Value, json};
use stokehold_queue::{Durability, Error as QueueError, Fitness, RedisConfig, RedisQueue};
use stokehold_worker::environment::RunnerWheel;
use stokehold_worker::uv::ensure_uv;
use tokio::process::Command;

use crate::client::Client;
use crate::credentials::Credentials;
use crate::dev::provision;
use crate::dev::state::State;
use crate::{Global, output, paths};
use plan::{Load, Plan};

const LIMIT: Duration = Duration::from_secs(10);

/// A GPU framework's environment is about 5 GB.
const DISK_BYTES_MIN: u64 = 10 << 30;

/// Check this machine: the API, Redis, the object store, Python, uv, GPUs
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Check this Redis [default: that of `stoke dev`, if one runs]
    #[arg(long, value_name = "URL", env = "STOKE_REDIS_URL", hide_env_values = true)]
    redis: Option<String>,
    /// Check nothing, but say how much Redis a load takes: jobs_per_s=, payload_bytes= [result_bytes=1000 retention_s=86400 run_s=1
    /// backlog=0]
    #[arg(long, value_name = "NAME=NUMBER", num_args = 1.., conflicts_with = "redis")]
    plan: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

#[derive(Serialize)]
struct Check {
    what: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
}

impl Check {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Ok, found: found.into(), fix: None }
    }

    fn warn(what: &'static str, found: impl Into<String>, fix: &'static str) -> Self {
        Self { what, verdict: Verdict::Warn, found: found.into(), fix: Some(fix) }
    }

    fn fail(what: &'static str, found: impl Into<String>, fix: &'static str) -> Self {
        Self { what, verdict: Verdict::Fail, found: found.into(), fix: Some(fix) }
    }
}

pub(crate) async fn run(global: &Global, args: DoctorArgs) -> Result<()> {
    if !args.plan.is_empty() {
        return tell(global, &Plan::of(&Load::parse(&args.plan)?));
    }
    let mut checks = vec![python().await, uv().await, wheel(), redis_server().await, gpus(), disk()];
    checks.extend(api(global).await);
    checks.extend(redis(args.redis.as_deref()).await);
    if global.json {
        output::json(&json!({"checks": checks}))?;
    } else {
        let mut table = output::table(["", "check", "found"]);
        for check in &checks {
            let word = match check.verdict {
                Verdict::Ok => "ok",
                Verdict::Warn => "warn",
                Verdict::Fail => "fail",
            };
            let fix = check.fix.map_or(String::new(), |fix| format!("\n{fix}"));
            table.add_row([
                output::state_cell(word),
                Cell::new(check.what),
                Cell::new(format!("{}{fix}", check.found)),
            ]);
        }
        output::line(table.trim_fmt())?;
    }
    match checks.iter().filter(|check| check.verdict == Verdict::Fail).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {} checks failed", checks.len()),
    }
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

async fn python() -> Check {
    const FIX: &str = "Install Python 3.9 or newer, with the name python3 on PATH.";
    match ask("python3", &["-I", "-c", "import platform; print(platform.python_version())"]).await {
        Err(error) => Check::fail("Python", format!("{error:#}"), FIX),
        Ok(version) => {
            let minor = version.strip_prefix("3.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
            if minor.is_some_and(|minor| minor >= 9) {
                Check::ok("Python", version)
            } else {
                Check::fail("Python", version, FIX)
            }
        }
    }
}

async fn uv() -> Check {
    let found = async {
        let uv = ensure_uv(None, &paths::cache_dir()?).await?;
        let version = ask(&uv.path().to_string_lossy(), &["--version"]).await?;
        anyhow::Ok(format!("{version}, {}", uv.path().display()))
    };
    match found.await {
        Ok(found) => Check::ok("uv", found),
        Err(error) => {
            Check::fail("uv", format!("{error:#}"), "Install it with `pip install uv`, or set STOKE_UV to the binary.")
        }
    }
}

fn wheel() -> Check {
    const WHAT: &str = "runner wheel";
    match RunnerWheel::find(None) {
        RunnerWheel::File(path) if path.is_file() => Check::ok(WHAT, path.display().to_string()),
        RunnerWheel::File(path) => Check::fail(
            WHAT,
            format!("{} is not there", path.display()),
            "Set STOKE_RUNNER_WHEEL to a stokehold wheel.",
        ),
        RunnerWheel::Requirement(requirement) => {
            let found = format!("none beside this program: {requirement} will be asked of the package index");
            Check::warn(WHAT, found, "In a checkout, `make wheel` builds it; elsewhere set STOKE_RUNNER_WHEEL.")
        }
    }
}

async fn redis_server() -> Check {
    const WHAT: &str = "Redis to run";
    match provision::present().await {
        Ok(Some(found)) => Check::ok(WHAT, format!("{} {}", found.path.display(), found.version)),
        Ok(None) => Check::ok(WHAT, "none here; `stoke dev` gets one by itself"),
        Err(error) => Check::fail(WHAT, format!("{error:#}"), "Name another with STOKE_REDIS_SERVER, or unset it."),
    }
}

fn gpus() -> Check {
    const WHAT: &str = "GPUs";
    let found = || -> Result<Vec<String>> {
        let nvml = Nvml::init()?;
        let driver = nvml.sys_driver_version()?;
        let cards = (0..nvml.device_count()?).map(|index| {
            let card = nvml.device_by_index(index)?;
            Ok(format!("{} {} (driver {driver})", card.name()?, output::bytes(card.memory_info()?.total)))
        });
        cards.collect()
    };
    match found() {
        Ok(cards) if !cards.is_empty() => Check::ok(WHAT, cards.join("\n")),
        Ok(_) => Check::ok(WHAT, "none: this machine runs CPU endpoints"),
        Err(error) if Path::new("/dev/nvidiactl").exists() => Check::fail(
            WHAT,
            format!("there is a card, and NVML fails: {error}"),
            "Reinstall the NVIDIA driver; `nvidia-smi` must work.",
        ),
        Err(_) => Check::ok(WHAT, "none: this machine runs CPU endpoints"),
    }
}

fn disk() -> Check {
    const WHAT: &str = "disk";
    let found = || -> Result<(std::path::PathBuf, u64)> {
        let cache = paths::cache_dir()?;
        let there = cache.ancestors().find(|folder| folder.exists()).context("no such folder")?;
        let stat = nix::sys::statvfs::statvfs(there)?;
        #[expect(clippy::useless_conversion, reason = "the counters' type is the platform's")]
        Ok((cache, u64::from(stat.blocks_available()).saturating_mul(stat.fragment_size().into())))
    };
    match found() {
        Ok((cache, free)) => {
            let found = format!("{} free for environments in {}", output::bytes(free), cache.display());
            if free >= DISK_BYTES_MIN {
                Check::ok(WHAT, found)
            } else {
                Check::warn(WHAT, found, "A GPU environment takes 5 GB; STOKE_CACHE_DIR names another place for them.")
            }
        }
        Err(error) => Check::warn(WHAT, format!("{error:#}"), "Set STOKE_CACHE_DIR to a folder that can be written."),
    }
}

async fn api(global: &Global) -> Vec<Check> {
    let client = match Client::connect(global) {
        Ok(client) => client,
        Err(error) => return vec![Check::warn("API", format!("{error:#}"), "Nothing to check until there is one.")],
    };
    let open = |path: &str| client.http().get(format!("{}{path}", client.url())).timeout(LIMIT).send();
    let Ok(health) = open("/healthz").await else {
        let found = format!("nothing answers at {}", client.url());
        return vec![Check::warn("API", found, "Start it with `stoke dev`, or say where it is with --url.")];
    };
    let health: Value = health.json().await.unwrap_or_default();
    let (release, durability) = (output::cell(&health["release"]), output::cell(&health["durability"]));
    let mut checks = vec![if release == env!("CARGO_PKG_VERSION") {
        Check::ok("API", format!("{} of release {release}, durability {durability}", client.url()))
    } else {
        Check::warn(
            "API",
            format!("{} of release {release}", client.url()),
            "Use the `stoke` of the API's own release.",
        )
    }];
    checks.push(admission(&health));
    let ready: Value = match open("/readyz").await {
        Ok(answer) => answer.json().await.unwrap_or_default(),
        Err(_) => Value::Null,
    };
    for (what, member) in [("API to Redis", "redis"), ("API to S3", "s3")] {
        checks.push(if ready[member] == true {
            Check::ok(what, "answers")
        } else {
            Check::fail(what, "does not answer", "See the API's log lines.")
        });
    }
    checks.push(match client.get("/v1/endpoints").await {
        Ok(_) => Check::ok("token", "accepted"),
        Err(error) => Check::fail("token", error.to_string(), "`stoke token create` makes another."),
    });
    checks
}

/// Whether the API takes new work, and how much room is left.
fn admission(health: &Value) -> Check {
    const WHAT: &str = "new work";
    let (redis, number) = (&health["redis"], |value: &Value| value.as_u64().unwrap_or(0));
    let (used, max) = (number(&redis["memory_used_bytes"]), number(&redis["memory_max_bytes"]));
    let of = if max > 0 { format!(" of {}", output::bytes(max)) } else { String::new() };
    let room = format!(
        "Redis uses {}{of}, replicas in step {}, waited for {}",
        output::bytes(used),
        number(&redis["replicas"]),
        number(&health["replicas_to_wait"]),
    );
    if health["admission"]["open"] == true {
        Check::ok(WHAT, format!("taken; {room}"))
    } else {
        let why = output::cell(&health["admission"]["reason"]);
        Check::fail(WHAT, format!("not taken: {why}; {room}"), "docs/durability.md says what to do about each reason.")
    }
}

async fn redis(url: Option<&str>) -> Option<Check> {
    const WHAT: &str = "Redis settings";
    const FIX: &str = "The API refuses to start on it.";
    const STANDARD: &str = "The API starts on it with STOKE_DURABILITY=standard, and not without.";
    const NOTES: &str = "The API starts on it all the same.";
    let config = match url {
        Some(url) => RedisConfig { url: url.to_owned(), ..RedisConfig::default() },
        None => {
            let data = Credentials::load().ok()??.data?;
            let state = State::load(&data).ok()??;
            RedisConfig { url: state.redis_url, prefix: state.redis_prefix, ..RedisConfig::default() }
        }
    };
    match tokio::time::timeout(LIMIT, fitness(config)).await {
        Ok(Ok((fitness, None))) => {
            let notes = fitness.notes.iter().map(|note| format!("\n{note}"));
            let (class, replicas) = (fitness.durability.as_str(), fitness.replicas_to_wait);
            let found = format!("fit for {class}, replicas waited for: {replicas}{}", notes.collect::<String>());
            Some(if fitness.notes.is_empty() { Check::ok(WHAT, found) } else { Check::warn(WHAT, found, NOTES) })
        }
        Ok(Ok((_, Some(why)))) => Some(Check::warn(WHAT, format!("fit for standard only: {why}"), STANDARD)),
        // A `stoke dev` that was stopped is nothing to complain about.
        _ if url.is_none() => None,
        Ok(Err(error)) => Some(Check::fail(WHAT, error.to_string(), FIX)),
        Err(_) => Some(Check::fail(WHAT, "does not answer", FIX)),
    }
}

/// What a Redis can keep; with the reason why it is not `strict` when it is not.
async fn fitness(config: RedisConfig) -> Result<(Fitness, Option<String>), QueueError> {
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

async fn ask(program: &str, arguments: &[&str]) -> Result<String> {
    let asked = Command::new(program).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let answer = tokio::time::timeout(LIMIT, asked).await.with_context(|| format!("{program} does not answer"))?;
    let answer = answer.with_context(|| format!("{program} cannot be run"))?;
    if !answer.status.success() {
        bail!("{program} failed ({})", answer.status);
    }
    Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}
