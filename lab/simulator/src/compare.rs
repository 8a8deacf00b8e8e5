//! Comparison of policies on the same traces.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use stokehold_planner::simulate::offers::Kind;
use stokehold_planner::simulate::{Case, OWN, Outcome, Rules, Scaler, run};
use stokehold_planner::{Planner, Policy};

use crate::baselines::{self, Fleet};
use crate::bound;
use crate::table::Row;

/// Name of the policy with the smallest constant number of machines that meets the targets.
const STATIC: &str = "static";

/// Maximum number of machines that is tried for a constant fleet.
const STATIC_MAX: usize = 64;

/// Minimum shares of interactive jobs and of batch jobs that started in time, for costs to be comparable.
const LEAST: (f64, f64) = (0.95, 0.99);

/// Names of all policies: the product's and the baselines.
#[must_use]
pub fn policies() -> Vec<&'static str> {
    let others = baselines::NAMES.into_iter().map(|name| if name == "static-N" { STATIC } else { name });
    std::iter::once(OWN).chain(others).collect()
}

/// The policy of this name; the settings are for the product's.
#[must_use]
pub fn named(name: &str, policy: &Policy) -> Option<Box<dyn Scaler>> {
    if name == OWN { Some(Box::new(Planner::new(policy.clone()))) } else { baselines::named(name, Fleet::cheapest()) }
}

/// Simulates each of these policies on each of these traces, on as many threads as the machine has. Passes each outcome
/// to `report` when it is known.
pub fn compare(
    names: &[&str],
    cases: &[Case],
    kinds: &[Kind],
    rules: &Rules,
    policy: &Policy,
    report: impl Fn(&str, &Outcome) + Sync,
) -> Vec<Row> {
    let bounds = in_parallel(cases.len(), |place| {
        let case = &cases[place];
        bound::lower_bound_usd(&case.jobs, kinds, case.settings.share_gb, rules.boot_is_billed)
    });
    let outcomes = in_parallel(names.len() * cases.len(), |place| {
        let (name, case) = (names[place / cases.len()], &cases[place % cases.len()]);
        let outcome = outcome(name, case, kinds, &case.rules(rules), policy, bounds[place % cases.len()]);
        if let Some(outcome) = &outcome {
            report(&case.name, outcome);
        }
        outcome
    });
    let mut outcomes = outcomes.into_iter();
    let row = |name: &&str| {
        let of = outcomes.by_ref().take(cases.len());
        let of = cases.iter().zip(of).filter_map(|(case, outcome)| Some((case.name.clone(), outcome?)));
        ((*name).to_owned(), of.collect())
    };
    names.iter().map(row).collect()
}

fn outcome(name: &str, case: &Case, kinds: &[Kind], rules: &Rules, policy: &Policy, bound_usd: f64) -> Option<Outcome> {
    if name == STATIC {
        return Some(least_static(case, kinds, rules, bound_usd));
    }
    let mut scaler = named(name, policy)?;
    Some(run(&case.jobs, kinds, rules, scaler.as_mut(), Some(bound_usd)).0)
}

/// Finds by bisection the smallest number of machines that meets the targets. Returns the outcome of the maximum number
/// if none does.
fn least_static(case: &Case, kinds: &[Kind], rules: &Rules, bound_usd: f64) -> Outcome {
    let of = |machines: usize| {
        let mut scaler = baselines::Static::new(machines, Fleet::cheapest());
        run(&case.jobs, kinds, rules, &mut scaler, Some(bound_usd)).0
    };
    let meets = |it: &Outcome| it.attainment.interactive >= LEAST.0 && it.attainment.batch >= LEAST.1;
    let mut high = 1;
    let mut best = of(high);
    while !meets(&best) && high < STATIC_MAX {
        high = (high * 2).min(STATIC_MAX);
        best = of(high);
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low.midpoint(high);
        let outcome = of(middle);
        if meets(&outcome) {
            (high, best) = (middle, outcome);
        } else {
            low = middle;
        }
    }
    best
}

/// Runs `work` for each number below `count` in parallel. The results are in order.
fn in_parallel<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(count.max(1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= count {
                        return;
                    }
                    let it = work(place);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((place, it));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, it)| it).collect()
}
