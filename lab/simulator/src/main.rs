//! `stokehold-simulator`: `stoke simulate` with synthetic traces, other policies and a lower bound of the cost.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use stokehold_planner::simulate::offers::{self, Kind};
use stokehold_planner::simulate::{Case, OWN, Outcome, Reported, Rules, Scaler, Settings, plot, run, trace};
use stokehold_planner::{Policy, Step};
use stokehold_simulator::generate::Shape;
use stokehold_simulator::{bound, cases, compare, table};

/// Simulate scaling policies on a trace of jobs: cost, cost over its lower bound, and waiting times
///
/// Uses the production code for scaling decisions, queueing and packing of models onto GPUs. Machines, load times and
/// run times are simulated. Without --trace, a synthetic trace is used: see --shape.
#[derive(Parser)]
#[command(name = "stokehold-simulator", version)]
struct Args {
    /// Trace of jobs: a CSV file, optionally gzipped, with the columns arrival_s,endpoint,service_s,vram_gb,priority
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shape", "compare"])]
    trace: Option<PathBuf>,
    /// Synthetic trace: day, busy-day, rush, many-small, tasks or bursts
    #[arg(long, value_name = "NAME", default_value = "day")]
    shape: String,
    /// Offers: a CSV file with name,vram_gb,speed,od_usd_h,spot_usd_h,spot_preempt_per_h,boot_lo_s,boot_hi_s,max_count
    /// [default: six GPU models at prices of 2026]
    #[arg(long, value_name = "FILE")]
    offers: Option<PathBuf>,
    /// Scaling policy: stokehold, step, keda, kpa, queue-delay, load-target (the last four also as keda-tuned etc.), or
    /// static-N
    #[arg(long, value_name = "NAME", default_value = OWN)]
    policy: String,
    /// Change a setting of the stokehold policy, e.g. late_share=0.05; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Random seed of boot times, resumes, losses and the synthetic trace
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Overlay periods of this length in seconds [default: from the shape, else none]
    #[arg(long, value_name = "SECONDS", value_parser = above_zero)]
    fold: Option<f64>,
    /// Exclude jobs of the first seconds from the waiting times [default: from the shape, else 0]
    #[arg(long, value_name = "SECONDS", value_parser = not_negative)]
    skip: Option<f64>,
    /// Run jobs concurrently on a GPU while their models need at most this many GB [default: from the shape, else one
    /// at a time]
    #[arg(long, value_name = "GB", value_parser = above_zero)]
    share_gb: Option<f64>,
    /// Also offer interruptible machines, at this fraction of the price and with this many losses per hour, e.g.
    /// 0.7,0.3
    #[arg(long, value_name = "PRICE,LOSSES", value_parser = interruptible)]
    interruptible: Option<(f64, f64)>,
    /// Do not charge for boot time
    #[arg(long)]
    free_boots: bool,
    /// Write a plot of demand, machines, waiting times and spend
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print every step of every plan with its reason on standard error
    #[arg(long)]
    steps: bool,
    /// Compare all policies on the traces of a folder or on all shapes, and print a table
    #[arg(long)]
    compare: bool,
    /// Folder of traces for --compare [default: all shapes]
    #[arg(long, value_name = "FOLDER", requires = "compare")]
    traces: Option<PathBuf>,
    /// Only write the synthetic trace to this file
    #[arg(long, value_name = "FILE.csv.gz", conflicts_with_all = ["trace", "compare"])]
    write_trace: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Compared<'a> {
    trace: &'a str,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "must be a number of seconds, 0 or more".to_owned())
}

fn interruptible(text: &str) -> Result<(f64, f64), String> {
    Rules::parse_interruptible(text).ok_or_else(|| "must be two numbers such as 0.7,0.3".to_owned())
}

fn main() -> Result<()> {
    let args = Args::parse();
    let kinds = match &args.offers {
        Some(path) => offers::read(path)?,
        None => offers::default(),
    };
    let policy = policy(&args)?;
    let rules = Rules {
        seed: args.seed,
        boot_is_billed: !args.free_boots,
        has_interruptible: args.interruptible.is_some(),
        interruptible: args.interruptible,
        ..Rules::default()
    };
    if args.compare {
        return compare_all(&args, &kinds, &rules, &policy);
    }
    let case = case(&args)?;
    if let Some(path) = &args.write_trace {
        trace::write(path, &case.jobs)?;
        note(&format!("wrote {} jobs to {}", case.jobs.len(), path.display()));
        return Ok(());
    }
    check(&case, &kinds)?;
    let Some(scaler) = compare::named(&args.policy, &policy) else {
        bail!("unknown policy {:?}; valid: {}, static-N", args.policy, compare::policies().join(", "));
    };
    let mut scaler = reported(scaler, args.steps);
    let rules = case.rules(&rules);
    let bound_usd = bound::lower_bound_usd(&case.jobs, &kinds, rules.share_gb, rules.boot_is_billed);
    let (outcome, samples) = run(&case.jobs, &kinds, &rules, scaler.as_mut(), Some(bound_usd));
    if let Some(path) = &args.plot {
        let title = format!("{} on {}", outcome.policy, case.name);
        write_file(path, &plot::svg(&title, &outcome, &samples))?;
    }
    if args.json {
        json(&outcome)
    } else {
        print(&table::markdown(&[(outcome.policy.clone(), vec![(case.name, outcome)])]))
    }
}

fn policy(args: &Args) -> Result<Policy> {
    if !args.set.is_empty() && args.policy != OWN && !args.compare {
        bail!("--set is only for the policy {OWN}; {} has no settings", args.policy);
    }
    let mut policy = Policy { may_bid: args.interruptible.is_some(), ..Policy::default() };
    for setting in &args.set {
        let (key, value) = setting.split_once('=').with_context(|| format!("--set {setting:?} is not KEY=VALUE"))?;
        policy = policy.with(key.trim(), value.trim())?;
    }
    Ok(policy)
}

fn case(args: &Args) -> Result<Case> {
    let given = |settings: Settings| Settings {
        fold_s: args.fold.or(settings.fold_s),
        skip_s: args.skip.unwrap_or(settings.skip_s),
        share_gb: args.share_gb.or(settings.share_gb),
        ..settings
    };
    if let Some(path) = &args.trace {
        return Ok(Case::read(path, given(Settings::default()))?);
    }
    let Some(shape) = Shape::named(&args.shape) else {
        let shapes: Vec<String> =
            Shape::ALL.iter().map(|shape| format!("{} ({})", shape.name(), shape.about())).collect();
        bail!("unknown shape {:?}; valid: {}", args.shape, shapes.join("; "));
    };
    Ok(Case::new(shape.name().to_owned(), shape.jobs(args.seed), given(shape.settings())))
}

fn check(case: &Case, kinds: &[Kind]) -> Result<()> {
    if let Some((endpoint, vram_gb)) = case.too_large(kinds) {
        bail!("{}: {endpoint} needs {vram_gb} GB, but no offered GPU has that much memory", case.name);
    }
    Ok(())
}

fn compare_all(args: &Args, kinds: &[Kind], rules: &Rules, policy: &Policy) -> Result<()> {
    let cases = match &args.traces {
        None => cases::synthetic(args.seed),
        Some(folder) => {
            let (cases, errors) =
                cases::of_folder(folder).with_context(|| format!("cannot read {}", folder.display()))?;
            errors.iter().for_each(|error| note(&format!("skipped: {error}")));
            if cases.is_empty() {
                bail!("{} has no traces (*.csv.gz or *.csv)", folder.display());
            }
            cases
        }
    };
    cases.iter().try_for_each(|case| check(case, kinds))?;
    let names = compare::policies();
    let bar = ProgressBar::new((names.len() * cases.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or(ProgressStyle::default_bar()));
    let rows = compare::compare(&names, &cases, kinds, rules, policy, |trace, outcome| {
        bar.set_message(format!("{} on {trace}", outcome.policy));
        bar.inc(1);
    });
    bar.finish_and_clear();
    if args.json {
        let all: Vec<Compared<'_>> =
            rows.iter().flat_map(|(_, row)| row).map(|(trace, outcome)| Compared { trace, outcome }).collect();
        return json(&all);
    }
    print(&table::markdown(&rows))
}

/// The policy, which prints its steps on standard error if asked.
fn reported(scaler: Box<dyn Scaler>, prints: bool) -> Box<dyn Scaler> {
    let report = |at_s: f64, step: &Step| note(&format!("{at_s:>9.0} s  {}: {}", step.action, step.reason));
    if prints { Box::new(Reported::new(scaler, report)) } else { scaler }
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn json(value: &impl Serialize) -> Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        // The reader closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

/// Prints a note on standard error. There is nowhere to report that standard error is closed.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
