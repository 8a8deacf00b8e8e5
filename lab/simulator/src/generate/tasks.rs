//! Long batch jobs that request a part of a GPU.

use rand::rngs::StdRng;
use stokehold_planner::Name;
use stokehold_planner::simulate::trace::{Job, Priority};

use super::HOUR_S;
use super::draw::{Rates, is_one_of, lognormal, rounded, which};

/// Memory of a whole GPU, GB.
pub(super) const GPU_GB: f64 = 24.0;
/// Arrival rate: three jobs at once, at half an hour each.
const JOBS_PER_S: f64 = 3.0 / 1_800.0;
/// Spread of the rate between hours. The mean of that distribution is above its median, and is divided out.
const HOUR_SIGMA: f64 = 0.5;
/// Coefficient of variation of the time between arrivals: jobs come in groups.
const CV: f64 = 1.4;
/// Median duration. Half of the jobs take less than a quarter of an hour, one in eleven is cut at two hours, and the
/// mean is half an hour.
const SERVICE_MEDIAN_S: f64 = 800.0;
const SERVICE_SIGMA: f64 = 1.65;
const SERVICE_S: (f64, f64) = (4.0, 7_200.0);
/// Parts of a GPU, and the share of jobs that request each.
const PARTS: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
const PART_SHARES: [f64; 10] = [0.06, 0.08, 0.05, 0.07, 0.17, 0.03, 0.03, 0.05, 0.02, 0.44];
/// Share of the first of the two teams that request each part.
const FIRST_TEAM: f64 = 0.7;

pub(super) fn jobs(span_s: f64, rng: &mut StdRng) -> Vec<Job> {
    let mean_of_hour = (HOUR_SIGMA * HOUR_SIGMA / 2.0).exp();
    let rates = Rates::new(span_s, HOUR_S, |_| JOBS_PER_S * lognormal(1.0, HOUR_SIGMA, rng) / mean_of_hour);
    let arrivals = rates.arrivals(CV, rng);
    arrivals.into_iter().map(|arrival_s| job(arrival_s, rng)).collect()
}

fn job(arrival_s: f64, rng: &mut StdRng) -> Job {
    let part = PARTS[which(&PART_SHARES, rng)];
    let team = if is_one_of(FIRST_TEAM, rng) { "a" } else { "b" };
    let (lo, hi) = SERVICE_S;
    Job {
        arrival_s,
        endpoint: Name::from(format!("task-{:03.0}-{team}", part * 100.0)),
        service_s: lognormal(SERVICE_MEDIAN_S, SERVICE_SIGMA, rng).clamp(lo, hi),
        vram_gb: rounded(GPU_GB * part, 10.0),
        priority: Priority::Batch,
    }
}
