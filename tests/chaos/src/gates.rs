//! Gates B and E: many runs, one after the other, and their results.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::checker::Measures;
use crate::plan::{Faults, IN_TIME_ANYWHERE, IN_TIME_QUIET, Plan, gate_b, mutant_faults};
use crate::{report, run};

/// Minimum throughput under faults, relative to the same load without faults.
const KEPT_MIN: f64 = 0.7;

/// Maximum time beyond a lease until a dead worker's jobs are ready again (P6), at the 99th percentile.
const RECLAIM_MS: u64 = 5_000;

/// Jobs in the run that looks for one mutant.
const MUTANT_JOBS: u64 = 2_500;
const MUTANT_SECONDS: u64 = 30;

/// Timeout of a run with a mutant, which may break the system so that the run does not end by itself.
const MUTANT_LIMIT: Duration = Duration::from_secs(300);

/// Planted bugs of `stokehold-queue`'s feature `mutants`.
pub const MUTANTS: [&str; 17] = [
    "late-result-shown",
    "ack-before-commit",
    "count-outside-script",
    "hook-before-commit",
    "reaper-without-grace",
    "key-not-stored",
    "cancel-does-not-fence",
    "attempt-not-counted",
    "lease-left-behind",
    "requeued-twice",
    "submit-before-script",
    "hook-forgotten-at-claim",
    "budget-not-spent",
    "failures-not-counted",
    "priority-upside-down",
    "cancel-by-anybody",
    "duty-not-restarted",
];

/// Gate B: seeds from `from` on, each beside the same load without faults.
///
/// # Errors
/// If an invariant is broken or not exercised, or the throughput is too low, after all seeds have run.
#[expect(clippy::print_stdout, reason = "the report is what this program is for")]
pub async fn nightly(seeds: u64, from: Option<u64>, jobs: u64, seconds: u64) -> Result<()> {
    let from = from.unwrap_or_else(|| rand::random::<u32>().into());
    let (mut failed, mut faults, mut all) = (Vec::new(), BTreeMap::new(), Vec::new());
    for seed in from..from + seeds {
        let (duration, in_time_percent) = (Duration::from_secs(seconds), IN_TIME_QUIET);
        let clean =
            Plan { seed, jobs, duration, faults: Faults::new(), in_time_percent, is_paced: false, before: None };
        let without = run::in_dir(&clean, None).await?;
        let broken = Plan { faults: gate_b(), ..clean };
        let with = run::in_dir(&broken, None).await?;
        print!("{}", report::text(&with, Some(without.measures.jobs_per_s)));
        if let Some(dir) = &with.kept {
            println!("kept in {}", dir.display());
        }
        let kept = with.measures.jobs_per_s / without.measures.jobs_per_s;
        let in_time = with.measures.reclaim_p99_ms.is_some_and(|ms| ms <= run::LEASE_MS + RECLAIM_MS);
        if !with.holds() || !without.holds() || !with.unexercised().is_empty() || kept < KEPT_MIN || !in_time {
            failed.push(format!(
                "seed {seed}: {:?} broken, {:?} not exercised, {:?} broken without faults, {kept:.2} kept, reclaim {:?} ms",
                with.broken(),
                with.unexercised(),
                without.broken(),
                with.measures.reclaim_p99_ms
            ));
        }
        for (fault, landed) in &with.measures.faults {
            *faults.entry(fault.clone()).or_insert(0) += landed;
        }
        all.push((with.measures, kept));
        println!();
    }
    print!("{}", totals(&all, &faults));
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn totals(all: &[(Measures, f64)], faults: &BTreeMap<String, u64>) -> String {
    let sum = |of: fn(&Measures) -> u64| all.iter().map(|(measures, _)| of(measures)).sum::<u64>();
    let landed: Vec<String> = faults.iter().map(|(fault, landed)| format!("{fault} {landed}")).collect();
    let least = all.iter().map(|(_, kept)| *kept).fold(f64::INFINITY, f64::min);
    format!(
        "{} seeds: {} jobs, {} faults, {} lost; at least {:.0} % of the throughput kept\n{}\n",
        all.len(),
        sum(|measures| measures.jobs),
        faults.values().sum::<u64>(),
        sum(|measures| measures.lost),
        100.0 * least,
        landed.join(", ")
    )
}

/// Gate E: each bug in a separate run and process, selected by an environment variable.
///
/// # Errors
/// If a bug is not caught.
#[expect(clippy::print_stdout, reason = "the report is what this program is for")]
pub async fn mutants(names: &[String], seed: u64) -> Result<()> {
    let chosen: Vec<&str> =
        MUTANTS.into_iter().filter(|name| names.is_empty() || names.iter().any(|wanted| wanted == name)).collect();
    ensure!(!chosen.is_empty(), "there are no such mutants; there are {}", MUTANTS.join(", "));
    println!("{:26} caught by", "mutant");
    let mut escaped = Vec::new();
    for name in &chosen {
        match mutant(name, seed).await {
            Ok(caught) if !caught.is_empty() => println!("{name:26} {caught}"),
            missed => {
                escaped.push(*name);
                println!("{name:26} {}", missed.map_or_else(|why| format!("{why:#}"), |_| "nothing".to_owned()));
            }
        }
    }
    println!("{} of {} caught", chosen.len() - escaped.len(), chosen.len());
    ensure!(escaped.is_empty(), "not caught: {}", escaped.join(", "));
    Ok(())
}

/// The plan of the runs that look for mutants. Without a mutant every invariant must hold.
#[must_use]
pub fn mutant_plan(seed: u64) -> Plan {
    Plan {
        seed,
        jobs: MUTANT_JOBS,
        duration: Duration::from_secs(MUTANT_SECONDS),
        faults: mutant_faults(),
        in_time_percent: IN_TIME_ANYWHERE,
        is_paced: false,
        before: None,
    }
}

/// The broken invariants; empty if there are none.
async fn mutant(name: &str, seed: u64) -> Result<String> {
    let dir = tempfile::Builder::new().prefix("chaos-mutant-").tempdir()?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["run", "--faults", "mutants", "--json", "--jobs", &MUTANT_JOBS.to_string()])
        .args(["--seconds", &MUTANT_SECONDS.to_string(), "--seed", &seed.to_string(), "--dir"])
        .arg(dir.path())
        .env("STOKE_MUTANT", name)
        .env("RUST_BACKTRACE", "0")
        .kill_on_drop(true);
    let done = tokio::time::timeout(MUTANT_LIMIT, command.output()).await;
    let done = done.with_context(|| format!("the run with {name} does not end"))??;
    let told: Value = serde_json::from_slice(&done.stdout)
        .with_context(|| format!("no run with {name}: {}", String::from_utf8_lossy(&done.stderr)))?;
    let verdicts = told["verdicts"].as_array().context("no verdicts")?;
    // A void run has caught nothing, and response times depend on the machine.
    let counts = |verdict: &&Value| verdict["outcome"] == "broken" && verdict["id"] != "I23" && verdict["id"] != "I21";
    let broken = verdicts.iter().filter(counts);
    Ok(broken.filter_map(|verdict| verdict["id"].as_str()).collect::<Vec<_>>().join(", "))
}
