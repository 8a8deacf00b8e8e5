//! Gate D: the pure core under a seeded scheduler with faults. `SEEDS=10000` raises the number of seeds, `SEED=7` runs
//! one of them. A failing seed is reduced to the shortest failing run and printed with its trace.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod bugs;
mod client;
mod faults;
mod network;
mod settler;
mod verbs;
mod witness;
mod worker;
mod world;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use stokehold_queue::{Clock, ManualClock};
use stokehold_queue_model::MemoryQueue;

use bugs::{Bug, Buggy};
use faults::Fault;
use witness::Broken;
use world::{LEASE_MS, Plan, Report, START_MS, World};

/// Jobs per seed.
const JOBS: usize = 60;

/// Seeds of `make test`; `make sim` runs more.
const SEEDS: u64 = 100;

/// Lines of a failing run's trace that are printed.
const STORY_LINES: usize = 60;

type Told = (Result<Report, Broken>, Vec<(u64, String)>);

fn sound(plan: &Plan, traced: bool) -> Told {
    let clock = ManualClock::new(START_MS);
    let queue = MemoryQueue::seeded(Clock::Manual(clock.clone()), LEASE_MS, plan.seed);
    World::new(plan, queue, clock, traced).run()
}

fn buggy(plan: &Plan, bug: Bug) -> Told {
    let clock = ManualClock::new(START_MS);
    let inner = MemoryQueue::seeded(Clock::Manual(clock.clone()), LEASE_MS, plan.seed);
    let queue = Buggy { inner, bug, clock: clock.clone(), last: Mutex::default(), calls: Mutex::default() };
    World::new(plan, queue, clock, false).run()
}

fn plan(seed: u64) -> Plan {
    Plan { seed, jobs: JOBS, without: Vec::new() }
}

/// The same failure with fewer jobs and fewer kinds of faults, as long as the same invariant is violated.
fn shortest(mut plan: Plan, invariant: &str) -> Plan {
    let fails = |plan: &Plan| sound(plan, false).0.is_err_and(|broken| broken.invariant == invariant);
    for fault in Fault::ALL {
        let mut fewer = plan.clone();
        fewer.without.push(fault);
        if fails(&fewer) {
            plan = fewer;
        }
    }
    while plan.jobs > 3 {
        let fewer = Plan { jobs: plan.jobs / 2, ..plan.clone() };
        if !fails(&fewer) {
            break;
        }
        plan = fewer;
    }
    plan
}

fn story(plan: &Plan) -> String {
    let (verdict, trace) = sound(plan, true);
    let Err(broken) = verdict else { return "it does not fail again, which it should".into() };
    let mut text = format!("{} is broken: {:?} {}\n", broken.invariant, broken.job, broken.what);
    let name = broken.job.map(|id| id.to_string()).unwrap_or_default();
    let lines: Vec<_> = trace
        .iter()
        .filter(|(_, line)| line.contains(&name) || line.starts_with("!!") || line.contains("killed"))
        .collect();
    for (at_ms, line) in &lines[lines.len().saturating_sub(STORY_LINES)..] {
        let _ = writeln!(text, "{:>9.3} s  {line}", *at_ms as f64 / 1_000.0);
    }
    text
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn every_seed_keeps_the_promises() {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(SEEDS),
    };
    let (started, next) = (Instant::now(), AtomicU64::new(seeds.start));
    let (total, failed) = (Mutex::new((0, Report::default())), Mutex::new(None));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match sound(&plan(seed), false).0 {
                        Ok(report) => {
                            let mut total = total.lock().unwrap();
                            total.0 += 1;
                            add(&mut total.1, report);
                        }
                        Err(broken) => *failed.lock().unwrap() = Some((seed, broken.invariant)),
                    }
                }
            });
        }
    });
    if let Some((seed, invariant)) = failed.into_inner().unwrap() {
        let shortest = shortest(plan(seed), invariant);
        panic!("seed {seed}, again with: make sim SEED={seed}\nshortest: {shortest:?}\n{}", story(&shortest));
    }
    let (seeds, total) = total.into_inner().unwrap();
    println!("{}", summary(seeds, &total, started.elapsed().as_secs_f64()));
    // A run without faults would show nothing.
    if seeds >= SEEDS {
        assert!(total.reaped > 0 && total.stale > 0);
        let landed: Vec<_> = total.landed.keys().copied().collect();
        assert_eq!(landed, Fault::ALL, "every kind of fault has landed");
    }
}

fn add(total: &mut Report, one: Report) {
    total.jobs += one.jobs;
    total.events += one.events;
    total.verbs += one.verbs;
    total.reaped += one.reaped;
    total.stale += one.stale;
    total.virtual_ms += one.virtual_ms;
    for (end, jobs) in one.ends {
        *total.ends.entry(end).or_default() += jobs;
    }
    for (fault, times) in one.landed {
        *total.landed.entry(fault).or_default() += times;
    }
}

fn summary(seeds: u64, total: &Report, took_s: f64) -> String {
    let faults: u64 = total.landed.values().sum();
    let ends: Vec<_> = total.ends.iter().map(|(end, jobs)| format!("{jobs} {end}")).collect();
    let mut text = format!(
        "{seeds} seeds, all promises kept, in {took_s:.1} s ({:.0} seeds/s)\n  {} jobs: {}\n  {} verbs, {} events, {:.0} h of \
         virtual time\n  {} leases reaped, {} reports refused for an old fence\n  {faults} faults:\n",
        seeds as f64 / took_s,
        total.jobs,
        ends.join(", "),
        total.verbs,
        total.events,
        total.virtual_ms as f64 / 3_600_000.0,
        total.reaped,
        total.stale,
    );
    for (fault, times) in &total.landed {
        let _ = writeln!(text, "    {:<16}{times:>10}", fault.name());
    }
    text
}

#[test]
fn a_seed_says_the_same_each_time() {
    for seed in [1, 2, 3] {
        let [first, second] = [sound(&plan(seed), true).1, sound(&plan(seed), true).1];
        assert!(!first.is_empty() && first == second, "seed {seed}");
    }
}

/// Number of seeds that suffices to find any of these bugs.
const SEEDS_PER_BUG: u64 = 60;

#[test]
fn every_planted_bug_is_caught() {
    let mut caught = BTreeMap::new();
    for bug in Bug::ALL {
        let found = (0..SEEDS_PER_BUG).find_map(|seed| buggy(&plan(seed), bug).0.err().map(|broken| (seed, broken)));
        let (seed, broken) = found.unwrap_or_else(|| panic!("{bug:?} is caught by none of {SEEDS_PER_BUG} seeds"));
        caught.insert(format!("{bug:?}"), format!("seed {seed}: {} {}", broken.invariant, broken.what));
    }
    for (bug, how) in caught {
        println!("{bug:<18}{how}");
    }
}
