//! `stoke gate`: tests a version of an endpoint with a file of lines.

mod check;
mod junit;
mod traffic;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use stokehold_client::models::{Batch, BatchRequest, BatchState, Priority};

use crate::batch::lines::{Kind, save};
use crate::batch::model;
use crate::batch::submit::path_of;
use crate::batch::watch;
use crate::client::{Client, decode, segment};
use crate::signals::StopSignals;
use crate::submit::options::words;
use crate::upload::lines::{Lines, send};
use crate::{Global, endpoints, money, output};
use verdict::{Limits, Measured, Verdict};

/// Test one version of an endpoint with a file of lines, and fail if it misses a limit
///
/// A line passes if its job succeeds and, with --check, the check accepts the result. The command exits with status 1
/// if a limit is missed, which stops a CI pipeline.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke deploy greet --traffic 0
  stoke gate --endpoint greet --version 8 --batch cases.jsonl --min-success 0.98 --max-p95-ms 900 --promote
  stoke gate --endpoint greet --version 8 --batch cases.jsonl --check 'python3 judge.py' --junit gate.xml --roll-back")]
pub(crate) struct GateArgs {
    /// Endpoint name
    #[arg(long, value_name = "NAME")]
    endpoint: String,
    /// Version to test; it needs no traffic
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    version: u32,
    /// File of lines in the format of `stoke batch submit`
    #[arg(long, value_name = "FILE")]
    batch: PathBuf,
    /// Minimum fraction of lines that pass, 0 to 1
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = verdict::part)]
    min_success: f64,
    /// Maximum 95th percentile of the run time of passed lines in milliseconds, without waiting and loading [default:
    /// no limit]
    #[arg(long, value_name = "MS")]
    max_p95_ms: Option<u64>,
    /// Maximum cost of 1,000 lines in US dollars [default: no limit]
    #[arg(long, value_name = "USD", value_parser = money::micros)]
    max_usd_per_1000: Option<u64>,
    /// Shell command that rates results: it reads lines of {"line", "custom_id", "job_id", "case", "result"} and writes
    /// lines of {"line", "accepted", "score"?, "comment"?}, which are stored as feedback on the jobs
    #[arg(long, value_name = "COMMAND")]
    check: Option<String>,
    /// Send all new jobs to the version if it passes
    #[arg(long)]
    promote: bool,
    /// Send no new jobs to the version if it fails
    #[arg(long)]
    roll_back: bool,
    /// Time limit of the batch and of the check, e.g. 30m; open lines then count as not passed
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Priority of the jobs [default: batch]
    #[arg(long, value_parser = words::<Priority>())]
    priority: Option<Priority>,
    /// Also write the result to this file in JUnit XML format
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

pub(crate) async fn run(global: &Global, args: GateArgs) -> Result<()> {
    let client = Client::connect(global)?;
    if args.check.is_some() && args.batch.as_os_str() == "-" {
        bail!("--check needs a file, not -, because it reads the lines again");
    }
    let batch = submit(&client, &args).await?;
    let ended = watched(&client, &batch).await?;
    if ended.state == BatchState::Failed {
        // The lines are invalid, which does not concern the version.
        return Err(model::succeeded(&ended).err().unwrap_or_else(|| anyhow::anyhow!("batch {batch} failed")));
    }
    let files = tempfile::tempdir().context("cannot create a temporary folder for the results")?;
    let (results, errors) = (files.path().join("results.jsonl"), files.path().join("errors.jsonl"));
    save(&client, Kind::Results, &batch, &results).await?;
    save(&client, Kind::Errors, &batch, &errors).await?;
    let mut measured = Measured::read(&results, &errors).await?;
    measured.spent_usd_micros = ended.spent_usd_micros;
    if let Some(command) = &args.check {
        check::judge(&client, command, &args.batch, &results, args.timeout, &mut measured).await?;
    }
    let limits = Limits {
        min_success: args.min_success,
        max_p95_ms: args.max_p95_ms,
        max_usd_micros_per_1000: args.max_usd_per_1000,
    };
    let verdict = verdict::judge(&measured, &limits);
    if let Some(path) = &args.junit {
        let text = junit::report(&args.endpoint, args.version, &verdict);
        tokio::fs::write(path, text).await.with_context(|| format!("cannot write {}", path.display()))?;
    }
    let moved = match (verdict.passed(), args.promote, args.roll_back) {
        (true, true, _) => Some(traffic::promote(&client, &args.endpoint, args.version).await?),
        (false, _, true) => traffic::roll_back(&client, &args.endpoint, args.version).await?,
        _ => None,
    };
    tell(global, &args, &batch, &verdict, moved.as_ref())?;
    match verdict.passed() {
        true => Ok(()),
        false => bail!("{}@{} failed the gate: {}", args.endpoint, args.version, verdict.failed()),
    }
}

/// Submits the lines on the version. They expire at the gate's timeout, in case the command is interrupted.
async fn submit(client: &Client, args: &GateArgs) -> Result<String> {
    let lines = Lines::open(&args.batch).await?;
    let target = format!("{}@{}", args.endpoint, args.version);
    let path = path_of(&BatchRequest {
        endpoint: Some(args.endpoint.clone()),
        version: Some(args.version),
        deadline_s: Some(args.timeout.as_secs().max(1)),
        priority: args.priority.clone(),
        metadata: Some([("gate".to_owned(), target.clone())].into()),
        ..BatchRequest::default()
    })?;
    let key = format!("stoke-gate-{:032x}", rand::random::<u128>());
    let batch: Batch = decode(&send(client, &path, &key, &lines).await?)?;
    output::note(output::dim(format_args!("batch {} runs on {target}", batch.id)));
    Ok(batch.id)
}

/// Waits for the end of the batch. An interrupt cancels the batch.
async fn watched(client: &Client, id: &str) -> Result<Batch> {
    let mut stop = StopSignals::new()?;
    tokio::select! {
        ended = watch::until_ended(client, id) => decode(&ended?),
        () = stop.recv() => {
            client.post(&format!("/v1/batches/{}/cancel", segment(id)), None).await?;
            bail!("interrupted; batch {id} was cancelled");
        }
    }
}

fn tell(global: &Global, args: &GateArgs, batch: &str, verdict: &Verdict, moved: Option<&Value>) -> Result<()> {
    if global.json {
        return output::json(&json!({
            "endpoint": args.endpoint, "version": args.version, "batch_id": batch, "passed": verdict.passed(),
            "lines": verdict.lines, "checks": verdict.checks, "not_passed": verdict.not_passed, "traffic": moved,
        }));
    }
    output::line(verdict.table().trim_fmt())?;
    for line in &verdict.not_passed {
        output::line(format_args!("line {}: {}", line.line, line.why))?;
    }
    let left = verdict.left();
    if left > 0 {
        output::line(format_args!("and {} more: `stoke batch errors {batch}`", output::count(left)))?;
    }
    match moved {
        Some(moved) => endpoints::traffic::lines(&args.endpoint, &decode(moved)?),
        None => Ok(()),
    }
}
