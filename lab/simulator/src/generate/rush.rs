//! An hour of chat with one model, from nothing to full load at once.

use rand::rngs::StdRng;
use stokehold_planner::Name;
use stokehold_planner::simulate::trace::{Job, Priority};

use super::draw::{Rates, is_one_of, lognormal, normal};

/// Arrival rate: 6.2 GPUs, at 4.6 s per job.
const JOBS_PER_S: f64 = 1.34;
/// Spread of the rate between minutes.
const MINUTE_SIGMA: f64 = 0.12;
/// Coefficient of variation of the time between arrivals. It is below that of a Poisson process, because each of many
/// users waits for an answer before the next request.
const CV: f64 = 0.55;
const VRAM_GB: f64 = 20.0;
/// Short answers, and long ones that are cut at a limit: the share of long ones, then durations in seconds.
const LONG_SHARE: f64 = 0.34;
const SHORT_MEDIAN_S: f64 = 2.2;
const SHORT_SIGMA: f64 = 0.4;
const LONG_MEAN_S: f64 = 8.9;
const LONG_DEVIATION_S: f64 = 1.0;
const LEAST_S: f64 = 0.3;

pub(super) fn jobs(span_s: f64, rng: &mut StdRng) -> Vec<Job> {
    let endpoint = Name::from("chat");
    let rates = Rates::new(span_s, 60.0, |_| JOBS_PER_S * lognormal(1.0, MINUTE_SIGMA, rng));
    let arrivals = rates.arrivals(CV, rng);
    let job = |arrival_s| Job {
        arrival_s,
        endpoint: endpoint.clone(),
        service_s: answer_s(rng),
        vram_gb: VRAM_GB,
        priority: Priority::Interactive,
    };
    arrivals.into_iter().map(job).collect()
}

fn answer_s(rng: &mut StdRng) -> f64 {
    let answer_s = if is_one_of(LONG_SHARE, rng) {
        normal(LONG_MEAN_S, LONG_DEVIATION_S, rng)
    } else {
        lognormal(SHORT_MEDIAN_S, SHORT_SIGMA, rng)
    };
    answer_s.max(LEAST_S)
}
