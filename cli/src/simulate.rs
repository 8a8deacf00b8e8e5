//! `stoke simulate`: simulates the autoscaler on a trace of jobs in virtual time.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use stokehold_planner::simulate::offers::{self, Kind};
use stokehold_planner::simulate::{
    Case, Outcome, Reported, Rules, Sample, Scaler, Settings, plot, run as simulate, table,
};
use stokehold_planner::{Planner, Policy, Step};

use crate::failure::{Failure, usage};
use crate::submit::options;
use crate::{Global, duration, output};

/// Simulate the autoscaler on a trace of jobs: cost and waiting times
///
/// Uses the production code for scaling decisions, queueing and packing of models onto GPUs. Machines, load times and
/// run times are simulated. The simulator under lab/ also compares policies and makes synthetic traces.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke simulate --trace day.csv --plot day.svg
  stoke simulate --trace week.csv --fold 24h --skip 1h --set late_share=0.05
  stoke simulate --trace prompts.csv --max-concurrency 64 --steps")]
pub(crate) struct SimulateArgs {
    /// Trace of jobs: a CSV file, optionally gzipped, with the columns arrival_s,endpoint,service_s,vram_gb,priority
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Offers: a CSV file with name,vram_gb,speed,od_usd_h,spot_usd_h,spot_preempt_per_h,boot_lo_s,boot_hi_s,max_count
    /// [default: six GPU models at prices of 2026]
    #[arg(long, value_name = "FILE")]
    offers: Option<PathBuf>,
    /// Change a setting of the policy, e.g. late_share=0.05; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Random seed of boot times, resumes and losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Overlay periods of this length, e.g. 24h
    #[arg(long, value_name = "DURATION", value_parser = duration::fraction_seconds)]
    fold: Option<f64>,
    /// Exclude jobs of this first part from the waiting times, e.g. 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::fraction_seconds)]
    skip: Option<f64>,
    /// Run jobs concurrently on a GPU while their models need at most this many GB [default: one at a
    /// time]
    #[arg(long, value_name = "GB")]
    share_gb: Option<f64>,
    /// Number of jobs that each loaded model runs at once, as an endpoint's max_concurrency [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_concurrency: Option<u32>,
    /// Also offer interruptible machines, at this fraction of the price and with this many losses per hour, e.g.
    /// 0.7,0.3
    #[arg(long, value_name = "PRICE,LOSSES")]
    interruptible: Option<String>,
    /// Do not charge for boot time
    #[arg(long)]
    free_boots: bool,
    /// Write a plot of demand, machines, waiting times and spend
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print every step of every plan with its reason on standard error
    #[arg(long)]
    steps: bool,
}

pub(crate) fn run(global: &Global, args: &SimulateArgs) -> Result<()> {
    let kinds = match &args.offers {
        Some(path) => offers::read(path)?,
        None => offers::default(),
    };
    let policy = policy(args)?;
    let rules = rules(args)?;
    let case = case(args)?;
    check(&case, &kinds)?;
    let mut scaler = scaler(policy, args.steps);
    let (outcome, samples) = simulate(&case.jobs, &kinds, &case.rules(&rules), scaler.as_mut(), None);
    if let Some(path) = &args.plot {
        draw(path, &case, &outcome, &samples)?;
    }
    if global.json {
        return output::json(&outcome);
    }
    let mut text = String::new();
    table::figures(&mut text, &[(case.name, outcome)]);
    output::line(text.trim_end())
}

fn policy(args: &SimulateArgs) -> Result<Policy> {
    let mut policy = Policy { may_bid: args.interruptible.is_some(), ..Policy::default() };
    for setting in &args.set {
        let (key, value) = options::pair_of(setting).context("--set")?;
        policy = policy.with(key.trim(), value.trim())?;
    }
    Ok(policy)
}

fn rules(args: &SimulateArgs) -> Result<Rules> {
    let interruptible = args.interruptible.as_deref().map(|text| {
        let numbers = Rules::parse_interruptible(text);
        numbers.with_context(|| Failure::usage(format!("--interruptible {text:?} is not two numbers such as 0.7,0.3")))
    });
    let interruptible = interruptible.transpose()?;
    let has_interruptible = interruptible.is_some();
    let boot_is_billed = !args.free_boots;
    Ok(Rules { seed: args.seed, boot_is_billed, has_interruptible, interruptible, ..Rules::default() })
}

fn case(args: &SimulateArgs) -> Result<Case> {
    for (name, value) in [("--fold", args.fold), ("--share-gb", args.share_gb)] {
        if value.is_some_and(|value| !(value.is_finite() && value > 0.0)) {
            usage!("{name} must be a number above 0");
        }
    }
    if args.skip.is_some_and(|skip_s| !(skip_s.is_finite() && skip_s >= 0.0)) {
        usage!("--skip must be a number of seconds, 0 or more");
    }
    let settings = Settings {
        fold_s: args.fold,
        skip_s: args.skip.unwrap_or(0.0),
        share_gb: args.share_gb,
        max_concurrency: args.max_concurrency,
    };
    Ok(Case::read(&args.trace, settings)?)
}

fn check(case: &Case, kinds: &[Kind]) -> Result<()> {
    if let Some((endpoint, vram_gb)) = case.too_large(kinds) {
        usage!("{}: {endpoint} needs {vram_gb} GB, but no offered GPU has that much memory", case.name);
    }
    Ok(())
}

fn draw(path: &std::path::Path, case: &Case, outcome: &Outcome, samples: &[Sample]) -> Result<()> {
    let title = format!("{} on {}", outcome.policy, case.name);
    std::fs::write(path, plot::svg(&title, outcome, samples))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The policy, which prints its steps on standard error if asked.
fn scaler(policy: Policy, prints: bool) -> Box<dyn Scaler> {
    let planner = Box::new(Planner::new(policy));
    let report = |at_s: f64, step: &Step| output::note(format_args!("{at_s:>9.0} s  {}: {}", step.action, step.reason));
    if prints { Box::new(Reported::new(planner, report)) } else { planner }
}
