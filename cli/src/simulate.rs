//! `stoke simulate`: simulates the autoscaler on a trace of jobs in virtual time.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use stokehold_autoscaler::simulate::cases::Case;
use stokehold_autoscaler::simulate::generate::{Settings, Shape};
use stokehold_autoscaler::simulate::offers::{self, Kind};
use stokehold_autoscaler::simulate::{self, Outcome, Rules, Sample, Scaler, compare, plot, table, trace};
use stokehold_autoscaler::{Observation, Plan, Policy};

use crate::{Global, output};

/// Simulate the autoscaler on a trace of jobs: cost and waiting times
///
/// Uses the production code for scaling decisions, queueing and packing of models onto GPUs. Machines, load times and
/// run times are simulated. Without --trace, a synthetic trace is used: see --shape.
#[derive(Args)]
pub(crate) struct SimulateArgs {
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
    #[arg(long, value_name = "NAME", default_value = compare::OWN)]
    policy: String,
    /// Change a setting of the stokehold policy, e.g. late_share=0.05; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Random seed of boot times, resumes, losses and the synthetic trace
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Overlay periods of this length in seconds [default: from the shape, else none]
    #[arg(long, value_name = "SECONDS")]
    fold: Option<f64>,
    /// Exclude jobs of the first seconds from the waiting times [default: from the shape, else 0]
    #[arg(long, value_name = "SECONDS")]
    skip: Option<f64>,
    /// Run jobs concurrently on a GPU while their models need at most this many GB [default: from the shape, else one
    /// at a time]
    #[arg(long, value_name = "GB")]
    share_gb: Option<f64>,
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
    /// Compare all policies on the traces of a folder or on all shapes, and print a table
    #[arg(long)]
    compare: bool,
    /// Folder of traces for --compare [default: all shapes]
    #[arg(long, value_name = "FOLDER", requires = "compare")]
    traces: Option<PathBuf>,
    /// Only write the synthetic trace to this file
    #[arg(long, value_name = "FILE.csv.gz", conflicts_with_all = ["trace", "compare"])]
    write_trace: Option<PathBuf>,
}

#[derive(Serialize)]
struct Compared<'a> {
    trace: &'a str,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

pub(crate) fn run(global: &Global, args: &SimulateArgs) -> Result<()> {
    let kinds = match &args.offers {
        Some(path) => offers::read(path)?,
        None => offers::default(),
    };
    let policy = policy(args)?;
    let rules = rules(args)?;
    if args.compare {
        return compare_all(global, args, &kinds, &rules, &policy);
    }
    let case = case(args)?;
    if let Some(path) = &args.write_trace {
        trace::write(path, &case.jobs)?;
        output::note(format_args!("wrote {} jobs to {}", case.jobs.len(), path.display()));
        return Ok(());
    }
    check(&case, &kinds)?;
    let Some(scaler) = compare::named(&args.policy, &policy) else {
        bail!("unknown policy {:?}; valid: {}, static-N", args.policy, compare::policies().join(", "));
    };
    let mut scaler = Told { scaler, tells: args.steps, start_s: None };
    let rules = case.rules(&rules);
    let bound_usd = simulate::bound::lower_bound_usd(&case.jobs, &kinds, rules.share_gb, rules.boot_is_billed);
    let (outcome, samples) = simulate::run(&case.jobs, &kinds, &rules, &mut scaler, bound_usd);
    if let Some(path) = &args.plot {
        draw(path, &case, &outcome, &samples)?;
    }
    if global.json {
        output::json(&outcome)
    } else {
        output::line(table::markdown(&[(outcome.policy.clone(), vec![(case.name, outcome)])]))
    }
}

fn policy(args: &SimulateArgs) -> Result<Policy> {
    if !args.set.is_empty() && args.policy != compare::OWN && !args.compare {
        bail!("--set is only for the policy {}; {} has no settings", compare::OWN, args.policy);
    }
    let mut policy = Policy { may_bid: args.interruptible.is_some(), ..Policy::default() };
    for setting in &args.set {
        let (key, value) = setting.split_once('=').with_context(|| format!("--set {setting:?} is not KEY=VALUE"))?;
        policy = policy.with(key.trim(), value.trim())?;
    }
    Ok(policy)
}

fn rules(args: &SimulateArgs) -> Result<Rules> {
    let interruptible = args.interruptible.as_deref().map(|text| {
        let parts = || {
            let (price, losses) = text.split_once(',')?;
            let (price, losses): (f64, f64) = (price.trim().parse().ok()?, losses.trim().parse().ok()?);
            (price > 0.0 && price.is_finite() && losses >= 0.0 && losses.is_finite()).then_some((price, losses))
        };
        parts().with_context(|| format!("--interruptible {text:?} is not two numbers such as 0.7,0.3"))
    });
    let interruptible = interruptible.transpose()?;
    let has_interruptible = interruptible.is_some();
    let boot_is_billed = !args.free_boots;
    Ok(Rules { seed: args.seed, boot_is_billed, has_interruptible, interruptible, ..Rules::default() })
}

fn case(args: &SimulateArgs) -> Result<Case> {
    for (name, value) in [("--fold", args.fold), ("--share-gb", args.share_gb)] {
        if value.is_some_and(|value| !(value.is_finite() && value > 0.0)) {
            bail!("{name} must be a number above 0");
        }
    }
    if args.skip.is_some_and(|skip_s| !(skip_s.is_finite() && skip_s >= 0.0)) {
        bail!("--skip must be a number of seconds, 0 or more");
    }
    let given = |settings: Settings| Settings {
        fold_s: args.fold.or(settings.fold_s),
        skip_s: args.skip.unwrap_or(settings.skip_s),
        share_gb: args.share_gb.or(settings.share_gb),
    };
    if let Some(path) = &args.trace {
        return Ok(Case::read(path, given(Settings::default()))?);
    }
    let Some(shape) = Shape::named(&args.shape) else {
        let shapes: Vec<String> =
            Shape::ALL.iter().map(|shape| format!("{} ({})", shape.name(), shape.about())).collect();
        bail!("unknown shape {:?}; valid: {}", args.shape, shapes.join("; "));
    };
    let settings = given(shape.settings());
    let jobs = shape.jobs(args.seed);
    let jobs = settings.fold_s.map_or_else(|| jobs.clone(), |period_s| trace::fold(jobs.clone(), period_s));
    Ok(Case { name: shape.name().to_owned(), jobs, settings })
}

fn check(case: &Case, kinds: &[Kind]) -> Result<()> {
    if let Some((endpoint, vram_gb)) = case.too_large(kinds) {
        bail!("{}: {endpoint} needs {vram_gb} GB, but no offered GPU has that much memory", case.name);
    }
    Ok(())
}

fn draw(path: &std::path::Path, case: &Case, outcome: &Outcome, samples: &[Sample]) -> Result<()> {
    let title = format!("{} on {}", outcome.policy, case.name);
    std::fs::write(path, plot::svg(&title, outcome, samples))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn compare_all(global: &Global, args: &SimulateArgs, kinds: &[Kind], rules: &Rules, policy: &Policy) -> Result<()> {
    let cases = match &args.traces {
        None => Case::made_up(args.seed),
        Some(folder) => {
            let (cases, errors) =
                Case::of_folder(folder).with_context(|| format!("cannot read {}", folder.display()))?;
            errors.iter().for_each(|error| output::note(format_args!("skipped: {error}")));
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
    if global.json {
        let all: Vec<Compared<'_>> =
            rows.iter().flat_map(|(_, row)| row).map(|(trace, outcome)| Compared { trace, outcome }).collect();
        return output::json(&all);
    }
    output::line(table::markdown(&rows))
}

/// A policy that can print its steps.
struct Told {
    scaler: Box<dyn Scaler>,
    tells: bool,
    start_s: Option<f64>,
}

impl Scaler for Told {
    fn name(&self) -> &str {
        self.scaler.name()
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        let plan = self.scaler.plan(seen);
        let start_s = *self.start_s.get_or_insert(seen.at_s);
        if self.tells {
            plan.steps.iter().for_each(|step| {
                output::note(format_args!("{:>9.0} s  {}: {}", seen.at_s - start_s, step.action, step.reason));
            });
        }
        plan
    }
}
