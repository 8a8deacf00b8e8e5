//! An image service: users come by day, choose a model, and generate a few images.

use rand::rngs::StdRng;
use stokehold_planner::Name;
use stokehold_planner::simulate::trace::{Job, Priority};

use super::HOUR_S;
use super::draw::{Rates, is_one_of, lognormal, rounded, shares, uniform, which};

/// Jobs of a small service: 0.35 GPUs on average.
pub(super) const QUIET_JOBS_PER_DAY: f64 = 1_180.0;
/// Jobs of a large service: 4 GPUs on average.
pub(super) const BUSY_JOBS_PER_DAY: f64 = 13_000.0;

const MODELS: usize = 60;
/// Exponent of popularity: the first model has a quarter of all visits, the tenth a fiftieth.
const POPULARITY_FALL: f64 = 1.1;
/// Median, minimum and maximum memory of models.
const VRAM_GB: (f64, f64, f64) = (15.3, 13.0, 22.0);
const VRAM_SIGMA: f64 = 0.1;
/// Median duration. One job in 20 takes 60 s or more, and the mean is 27 s.
const SERVICE_MEDIAN_S: f64 = 22.0;
/// Spread between models, and between jobs of one model: 0.62 together.
const MODEL_SIGMA: f64 = 0.25;
const JOB_SIGMA: f64 = 0.57;
const SERVICE_MAX_S: f64 = 600.0;
/// Number of jobs of a visit: median, spread and maximum. The mean follows from them.
const VISIT_MEDIAN: f64 = 4.0;
const VISIT_SIGMA: f64 = 1.1;
const VISIT_MAX: f64 = 80.0;
const VISIT_MEAN: f64 = 7.2;
/// Median time between the jobs of a visit, in which the user looks at the image and edits the prompt, seconds.
const THINK_MEDIAN_S: f64 = 35.0;
const THINK_SIGMA: f64 = 1.0;
/// Share of visits that request many images at once.
const BATCH_SHARE: f64 = 0.33;
/// Work in each hour of the day, relative to the mean hour.
const HOURS: [f64; 24] = [
    0.25, 0.08, 0.03, 0.02, 0.02, 0.03, 0.08, 0.3, 0.9, 1.6, 1.9, 1.7, 0.9, 1.3, 1.9, 2.2, 2.1, 1.8, 1.1, 1.0, 1.3,
    1.5, 1.2, 0.8,
];
/// Work on each day, relative to the mean day: a Friday, a weekend, and a Monday with more work.
const DAYS: [f64; 4] = [1.1, 0.45, 0.4, 2.05];

struct Model {
    name: Name,
    vram_gb: f64,
    service_s: f64,
}

pub(super) fn jobs(span_s: f64, jobs_per_day: f64, rng: &mut StdRng) -> Vec<Job> {
    let models: Vec<Model> = (0..MODELS).map(|rank| model(rank, rng)).collect();
    let shares = shares(MODELS, POPULARITY_FALL, 0.0);
    let hours: f64 = HOURS.iter().sum();
    let day_long = span_s <= 24.0 * HOUR_S;
    let visits_per_s = jobs_per_day / VISIT_MEAN / (hours * HOUR_S);
    let visits = Rates::new(span_s, HOUR_S, |at_s| {
        let hour = (at_s / HOUR_S) as usize;
        // A trace of one day has an average day.
        let day = if day_long { 1.0 } else { DAYS[hour / 24 % DAYS.len()] };
        visits_per_s * HOURS[hour % 24] * day
    });
    let mut jobs = Vec::new();
    for begin_s in visits.arrivals(1.0, rng) {
        visit(&models[which(&shares, rng)], begin_s, rng, &mut jobs);
    }
    jobs.retain(|job| job.arrival_s < span_s);
    jobs
}

fn model(rank: usize, rng: &mut StdRng) -> Model {
    let (median, lo, hi) = VRAM_GB;
    let vram_gb = rounded(lognormal(median, VRAM_SIGMA, rng).clamp(lo, hi), 10.0);
    // Unpopular models may be much slower. If one of the first models were, the whole trace would be slow.
    let sigma = if rank < 5 { MODEL_SIGMA / 3.0 } else { MODEL_SIGMA };
    let name = format!("image-{rank:02}").into();
    Model { name, vram_gb, service_s: lognormal(SERVICE_MEDIAN_S, sigma, rng) }
}

fn visit(model: &Model, begin_s: f64, rng: &mut StdRng, jobs: &mut Vec<Job>) {
    let length = lognormal(VISIT_MEDIAN, VISIT_SIGMA, rng).clamp(1.0, VISIT_MAX).round() as usize;
    let priority = if is_one_of(BATCH_SHARE, rng) { Priority::Batch } else { Priority::Interactive };
    let mut arrival_s = begin_s + uniform(0.0, 1.0, rng);
    for _ in 0..length {
        let service_s = lognormal(model.service_s, JOB_SIGMA, rng).clamp(1.0, SERVICE_MAX_S);
        jobs.push(Job { arrival_s, endpoint: model.name.clone(), service_s, vram_gb: model.vram_gb, priority });
        arrival_s += lognormal(THINK_MEDIAN_S, THINK_SIGMA, rng);
    }
}
