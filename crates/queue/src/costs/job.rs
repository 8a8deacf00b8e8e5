//! The cost of one job: the cost of its attempts, and its share of overhead.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::Serialize;

use super::{Cost, Line, Who, day_of};
use crate::job::{Attempt, Job};

/// The cost of a job in micro-dollars, without its steps, which are jobs of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct JobCost {
    /// Cost of running, at the price of the instances.
    pub run: u64,
    /// Cost of loading the model.
    pub load: u64,
    /// Share of overhead: boot, idle, stopped, disk, traffic.
    pub overhead: u64,
    /// The sum of the above.
    pub total: u64,
    /// Whether a provider has not billed the final amount yet.
    pub is_estimate: bool,
}

impl AddAssign for JobCost {
    fn add_assign(&mut self, other: Self) {
        self.run += other.run;
        self.load += other.load;
        self.overhead += other.overhead;
        self.total += other.total;
        self.is_estimate |= other.is_estimate;
    }
}

/// Costs to spread over the jobs of an endpoint and a batch on one day.
#[derive(Debug, Clone, Copy, Default)]
struct Factor {
    cost: Cost,
    counted: (u64, u64),
    run_ms: u64,
    jobs: u64,
    is_estimate: bool,
}

/// Costs to spread over jobs, by day and by owner. Jobs of one endpoint that ended on the same day have the same
/// overhead per dollar of running, whichever instance they ran on.
#[derive(Debug, Clone, Default)]
pub struct Factors(BTreeMap<(u32, Who), Factor>);

impl Factors {
    /// Computes the factors from the cost lines of those days.
    #[must_use]
    pub fn new(lines: &[Line]) -> Self {
        let mut factors: BTreeMap<(u32, Who), Factor> = BTreeMap::new();
        for line in lines {
            let Some(who) = line.who.clone() else { continue };
            let factor = factors.entry((line.day, who)).or_default();
            factor.cost += line.cost;
            factor.counted = (factor.counted.0 + line.counted.0, factor.counted.1 + line.counted.1);
            factor.run_ms += line.run_ms;
            factor.jobs += line.jobs;
            factor.is_estimate |= line.is_estimate;
        }
        Self(factors)
    }

    /// The cost of a job's attempts that ended on this day, as currently known.
    #[must_use]
    pub fn on(&self, day: u32, job: &Job) -> JobCost {
        let mut all = JobCost::default();
        for attempt in &job.attempts {
            // Only attempts that reported their times are counted.
            let is_told = attempt.timing.occupied_ms() > 0 && attempt.ended_ms.map(day_of) == Some(day);
            if is_told {
                self.add(&mut all, job, attempt, day);
            }
        }
        all.total = all.run + all.load + all.overhead;
        all
    }

    fn add(&self, all: &mut JobCost, job: &Job, attempt: &Attempt, day: u32) {
        let timing = &attempt.timing;
        let (loading_ms, occupied_ms) = (timing.loading_ms(), timing.occupied_ms());
        let cost = attempt.cost_usd_micros.unwrap_or(0);
        let load = share(cost, loading_ms, occupied_ms).min(cost);
        all.run += cost - load;
        all.load += load;
        let batch = job.spec.batch.as_ref().map(|line| line.id.clone());
        let who = Who { tenant: job.spec.tenant.clone(), endpoint: job.spec.endpoint.clone(), batch };
        let Some(factor) = self.0.get(&(day, who)) else { return };
        let (run, load_all) = factor.counted;
        let beside = factor.cost.total().saturating_sub(run + load_all);
        all.overhead += match (run, factor.run_ms) {
            (0, 0) => share(beside, 1, factor.jobs),
            (0, run_ms) => share(beside, occupied_ms.saturating_sub(loading_ms), run_ms),
            (run, _) => share(beside, cost - load, run),
        };
        all.is_estimate |= factor.is_estimate;
    }
}

fn share(whole: u64, part: u64, of: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(part) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}
