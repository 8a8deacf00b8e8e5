//! Many customers with a small model each, in bursts whose rates change every ten minutes.

use std::f64::consts::TAU;

use rand::rngs::StdRng;
use stokehold_planner::simulate::trace::{Job, Priority};

use super::HOUR_S;
use super::draw::{Rates, lognormal, rounded, shares, uniform, which};

const ENDPOINTS: usize = 35;
/// Exponent and flatness of popularity. The first few endpoints have about a tenth of the jobs each; the last have a
/// few jobs an hour.
const POPULARITY: (f64, f64) = (2.0, 6.0);
/// Arrival rate: 1.8 GPUs, at 2.7 s per job.
const JOBS_PER_S: f64 = 0.66;
const WINDOW_S: f64 = 600.0;
/// Spread between the windows of an endpoint. The mean of that distribution is above its median, and is divided out.
const WINDOW_SIGMA: f64 = 0.6;
/// Relative rise of the rate at the peak of the day, and the hour of the peak.
const SWING: f64 = 0.3;
const PEAK_HOUR: f64 = 15.0;
/// Range of the coefficient of variation of gaps: for people, and below for bulk senders. Every third endpoint is a
/// bulk sender, with batch jobs.
const CV: (f64, f64) = (0.8, 1.8);
const BULK_CV: (f64, f64) = (2.0, 4.0);
const BULK_EVERY: usize = 3;
const SERVICE_MEDIAN_S: f64 = 2.0;
/// Spread between endpoints, and between jobs of one endpoint.
const ENDPOINT_SIGMA: f64 = 0.2;
const JOB_SIGMA: f64 = 0.75;
const SERVICE_S: (f64, f64) = (0.3, 30.0);
/// Memory of models, GB, and below the share of models with each: most take a whole GPU.
const VRAM_GB: [f64; 5] = [4.0, 7.7, 11.3, 19.4, 24.0];
const VRAM_SHARES: [f64; 5] = [0.07, 0.07, 0.12, 0.24, 0.5];

pub(super) fn jobs(span_s: f64, rng: &mut StdRng) -> Vec<Job> {
    let (fall, flat) = POPULARITY;
    let shares = shares(ENDPOINTS, fall, flat);
    shares.iter().enumerate().flat_map(|(rank, share)| endpoint(rank, JOBS_PER_S * share, span_s, rng)).collect()
}

fn endpoint(rank: usize, mean_per_s: f64, span_s: f64, rng: &mut StdRng) -> Vec<Job> {
    let name = stokehold_planner::Name::from(format!("small-{rank:02}"));
    let vram_gb = VRAM_GB[which(&VRAM_SHARES, rng)];
    let median_s = lognormal(SERVICE_MEDIAN_S, ENDPOINT_SIGMA, rng);
    let is_bulk = rank % BULK_EVERY == BULK_EVERY - 1;
    let (lo, hi) = if is_bulk { BULK_CV } else { CV };
    let cv = uniform(lo, hi, rng);
    let priority = if is_bulk { Priority::Batch } else { Priority::Interactive };
    let mean_of_window = (WINDOW_SIGMA * WINDOW_SIGMA / 2.0).exp();
    let rates = Rates::new(span_s, WINDOW_S, |at_s| {
        let day = SWING.mul_add((TAU * (at_s / HOUR_S - PEAK_HOUR) / 24.0).cos(), 1.0);
        mean_per_s * day * lognormal(1.0, WINDOW_SIGMA, rng) / mean_of_window
    });
    let arrivals = rates.arrivals(cv, rng);
    let job = |arrival_s| {
        let (lo, hi) = SERVICE_S;
        let service_s = rounded(lognormal(median_s, JOB_SIGMA, rng).clamp(lo, hi), 1_000.0);
        Job { arrival_s, endpoint: name.clone(), service_s, vram_gb, priority }
    };
    arrivals.into_iter().map(job).collect()
}
