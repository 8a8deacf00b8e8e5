//! `stoke endpoint gate`: tests a version of an endpoint with a file of lines.

mod check;
mod junit;
mod traffic;
mod verdict;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use stokehold_client::models::{Batch, BatchRequest, BatchState, Priority};

use super::traffic::lines;
use crate::batch::lines::{Kind, save};
use crate::batch::model;
use crate::batch::submit::path_of;
use crate::batch::watch;
use crate::client::{Client, decode, segment};
use crate::exit::Report;
use crate::failure::{Failure, usage};
use crate::signals::StopSignals;
use crate::submit::options::{self, words};
use crate::upload::lines::{Lines, send};
use crate::{Global, completions, duration, money, output};
use verdict::{Limits, Measured, Verdict};

/// Largest `--max-p95`, milliseconds: the longest that one attempt may run.
const P95_MS_MAX: u64 = 604_800_000;

/// The version that a gate tests.
#[derive(Clone, Debug)]
struct Tested {
    endpoint: String,
    version: u32,
}

impl fmt::Display for Tested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.endpoint, self.version)
    }
}

/// Parses NAME@VERSION.
fn version(text: &str) -> Result<Tested, String> {
    match options::endpoint(text) {
        Ok((endpoint, Some(version))) if !endpoint.is_empty() && version > 0 => Ok(Tested { endpoint, version }),
        _ => Err("a gate tests one version, e.g. greet@8".to_owned()),
    }
}

/// Test one version of an endpoint with a file of lines, and fail if it misses a limit
///
/// A line passes if its job succeeds and, with --check, the check accepts the result. The command exits with status 1
/// if a limit is missed, which stops a CI pipeline; with other statuses, there is no verdict.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke deploy greet --traffic 0
  stoke endpoint gate greet@8 --batch cases.jsonl --min-success 0.98 --max-p95 900ms --promote
  stoke endpoint gate greet@8 --batch cases.jsonl --check ./judge.py --junit gate.xml --roll-back")]
pub(super) struct GateArgs {
    /// Version to test; it needs no traffic
    #[arg(value_name = "NAME@VERSION", value_parser = version, add = completions::endpoints())]
    tested: Tested,
    /// File of lines in the format of `stoke batch submit`
    #[arg(long, value_name = "FILE")]
    batch: PathBuf,
    /// Minimum fraction of lines that pass, 0 to 1
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = verdict::part)]
    min_success: f64,
    /// Maximum 95th percentile of the run time of passed lines, without waiting and loading, e.g. 900ms [default: no
    /// limit]
    #[arg(long, value_name = "DURATION", value_parser = duration::millis(P95_MS_MAX))]
    max_p95: Option<u64>,
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
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    timeout: Duration,
    /// Priority of the jobs [default: batch]
    #[arg(long, value_parser = words::<Priority>())]
    priority: Option<Priority>,
    /// Also write the result to this file in JUnit XML format
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

pub(super) async fn run(global: &Global, client: &Client, args: GateArgs) -> Result<()> {
    if args.check.is_some() && args.batch.as_os_str() == "-" {
        usage!("--check needs a file, not -, because it reads the lines again");
    }
    let batch = submit(client, &args).await?;
    let ended = watched(client, &batch).await?;
    if ended.state == BatchState::Failed {
        // The lines are invalid, which does not concern the version.
        let (text, hint) = match model::succeeded(&ended).map_err(|error| Report::of(&error)) {
            Err(report) => (report.message, report.hint),
            Ok(()) => (format!("batch {batch} failed"), None),
        };
        return Err(hint.into_iter().fold(Failure::usage(text), Failure::hint).into());
    }
    let files = tempfile::tempdir().context("cannot create a temporary folder for the results")?;
    let (results, errors) = (files.path().join("results.jsonl"), files.path().join("errors.jsonl"));
    save(client, Kind::Results, &batch, &results).await?;
    save(client, Kind::Errors, &batch, &errors).await?;
    let mut measured = Measured::read(&results, &errors).await?;
    measured.spent_usd_micros = ended.spent_usd_micros;
    if let Some(command) = &args.check {
        check::judge(client, command, &args.batch, &results, args.timeout, &mut measured).await?;
    }
    let limits = Limits {
        min_success: args.min_success,
        max_p95_ms: args.max_p95,
        max_usd_micros_per_1000: args.max_usd_per_1000,
    };
    let verdict = verdict::judge(&measured, &limits);
    if let Some(path) = &args.junit {
        let text = junit::report(&args.tested.endpoint, args.tested.version, &verdict);
        tokio::fs::write(path, text).await.with_context(|| format!("cannot write {}", path.display()))?;
    }
    let moved = match (verdict.passed(), args.promote, args.roll_back) {
        (true, true, _) => Some(traffic::promote(client, &args.tested.endpoint, args.tested.version).await?),
        (false, _, true) => traffic::roll_back(client, &args.tested.endpoint, args.tested.version).await?,
        _ => None,
    };
    tell(global, &args, &batch, &verdict, moved.as_ref())?;
    match verdict.passed() {
        true => Ok(()),
        false => Err(Failure::gate(format!("{} failed the gate: {}", args.tested, verdict.failed())).into()),
    }
}

/// Submits the lines on the version. They expire at the gate's timeout, in case the command is interrupted.
async fn submit(client: &Client, args: &GateArgs) -> Result<String> {
    let lines = Lines::open(&args.batch).await?;
    let target = args.tested.to_string();
    let path = path_of(&BatchRequest {
        endpoint: Some(args.tested.endpoint.clone()),
        version: Some(args.tested.version),
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
            "endpoint": args.tested.endpoint, "version": args.tested.version, "batch_id": batch, "passed": verdict.passed(),
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
        Some(moved) => lines(&args.tested.endpoint, &decode(moved)?),
        None => Ok(()),
    }
}
