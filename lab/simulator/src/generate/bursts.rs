//! Steady work on a few endpoints, with occasional bursts of one of them that rise within minutes.

use rand::rngs::StdRng;
use rand_distr::{Distribution, Pareto};
use stokehold_planner::Name;
use stokehold_planner::simulate::trace::{Job, Priority};

use super::HOUR_S;
use super::draw::{Rates, lognormal, rounded, uniform};

const ENDPOINTS: usize = 12;
/// Every fourth endpoint is batch.
const BATCH_EVERY: usize = 4;
/// Load of all endpoints together without a burst.
const QUIET_GPUS: f64 = 1.5;
/// Mean time between two bursts.
const HOURS_BETWEEN_BURSTS: f64 = 3.0;
const BURST_S: (f64, f64) = (300.0, 1_200.0);
/// Minimum and maximum number of GPUs that a burst keeps busy. Without the maximum, one in six would exceed it.
const BURST_GPUS: (f64, f64) = (2.0, 6.0);
/// Time in which a burst rises to its full rate, seconds.
const RISE_S: f64 = 180.0;
const RISE_STEPS: f64 = 6.0;
const BURST_TAIL: f64 = 1.5;
const SERVICE_S: (f64, f64) = (3.0, 40.0);
const JOB_SIGMA: f64 = 0.5;
const VRAM_GB: (f64, f64) = (8.0, 24.0);

struct Endpoint {
    name: Name,
    vram_gb: f64,
    median_s: f64,
    priority: Priority,
}

pub(super) fn jobs(span_s: f64, rng: &mut StdRng) -> Vec<Job> {
    let endpoints: Vec<Endpoint> = (0..ENDPOINTS).map(|n| endpoint(n, rng)).collect();
    let mut jobs = Vec::new();
    for endpoint in &endpoints {
        endpoint.send(0.0, span_s, QUIET_GPUS / ENDPOINTS as f64, false, rng, &mut jobs);
    }
    let bursts = Rates::new(span_s, HOUR_S, |_| (HOURS_BETWEEN_BURSTS * HOUR_S).recip());
    for begin_s in bursts.arrivals(1.0, rng) {
        let (lo_s, hi_s) = BURST_S;
        let (least, most) = BURST_GPUS;
        let cards = Pareto::new(least, BURST_TAIL).map_or(least, |law| law.sample(rng)).min(most);
        let length_s = uniform(lo_s, hi_s, rng).min(span_s - begin_s);
        let of = uniform(0.0, ENDPOINTS as f64, rng) as usize;
        endpoints[of].send(begin_s, length_s, cards, true, rng, &mut jobs);
    }
    jobs
}

fn endpoint(n: usize, rng: &mut StdRng) -> Endpoint {
    let (lo_s, hi_s) = SERVICE_S;
    let (lo_gb, hi_gb) = VRAM_GB;
    Endpoint {
        name: format!("burst-{n:02}").into(),
        vram_gb: rounded(uniform(lo_gb, hi_gb, rng), 10.0),
        // Uniform on a logarithmic scale.
        median_s: uniform(lo_s.ln(), hi_s.ln(), rng).exp(),
        priority: if n % BATCH_EVERY == BATCH_EVERY - 1 { Priority::Batch } else { Priority::Interactive },
    }
}

impl Endpoint {
    /// Adds jobs that keep `cards` GPUs busy for `length_s`.
    fn send(&self, begin_s: f64, length_s: f64, cards: f64, is_burst: bool, rng: &mut StdRng, jobs: &mut Vec<Job>) {
        let mean_s = self.median_s * (JOB_SIGMA * JOB_SIGMA / 2.0).exp();
        // The windows divide the whole length, so that none extends beyond it.
        let windows = (length_s / RISE_S * RISE_STEPS).ceil().max(1.0);
        let rises = |at_s: f64| if is_burst { ((at_s + RISE_S / RISE_STEPS) / RISE_S).min(1.0) } else { 1.0 };
        let rates = Rates::new(length_s, length_s / windows, |at_s| rises(at_s) * cards / mean_s);
        for after_s in rates.arrivals(1.0, rng) {
            jobs.push(Job {
                arrival_s: begin_s + after_s,
                endpoint: self.name.clone(),
                service_s: lognormal(self.median_s, JOB_SIGMA, rng),
                vram_gb: self.vram_gb,
                priority: self.priority,
            });
        }
    }
}
