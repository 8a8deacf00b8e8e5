//! Figures of a simulation: waits, loads and costs.

use super::machine::{Load, Machine};
use super::outcome::{ByPriority, Outcome, Quantiles, Sample};
use super::rules::Rules;
use super::trace::{Job, Priority};
use crate::observation::Phase;

#[derive(Default)]
pub(super) struct Tally {
    pub(super) boots: u64,
    pub(super) resumes: u64,
    pub(super) losses: u64,
    cold_loads: u64,
    disk_loads: u64,
    spent_usd: f64,
    billed_s: f64,
    useful_s: f64,
    /// The wait of each job's last start, by job.
    last_wait_s: Vec<f64>,
    interactive: Vec<f64>,
    batch: Vec<f64>,
    /// Figures since the last sample.
    bucket: Bucket,
}

#[derive(Default)]
struct Bucket {
    since_s: f64,
    work_s: f64,
    wait_interactive_s: f64,
    wait_batch_s: f64,
}

const HOUR_S: f64 = 3_600.0;

impl Tally {
    pub(super) fn arrived(&mut self, job: &Job, rules: &Rules) {
        self.bucket.work_s += job.service_s * rules.share(job.vram_gb);
    }

    pub(super) fn started(&mut self, job: usize, wait_s: f64, load: Load) {
        match load {
            Load::Resident => {}
            Load::FromDisk => self.disk_loads += 1,
            Load::Cold => self.cold_loads += 1,
        }
        if self.last_wait_s.len() <= job {
            self.last_wait_s.resize(job + 1, 0.0);
        }
        self.last_wait_s[job] = wait_s;
    }

    /// Counts a job that has ended. If it was started several times, the last start counts, because the others failed.
    pub(super) fn ended(&mut self, number: usize, job: &Job, useful_s: f64, rules: &Rules) {
        self.useful_s += useful_s;
        let wait_s = self.last_wait_s[number];
        let worst_s = match job.priority {
            Priority::Interactive => &mut self.bucket.wait_interactive_s,
            Priority::Batch => &mut self.bucket.wait_batch_s,
        };
        *worst_s = worst_s.max(wait_s);
        if job.arrival_s >= rules.skip_s {
            match job.priority {
                Priority::Interactive => self.interactive.push(wait_s),
                Priority::Batch => self.batch.push(wait_s),
            }
        }
    }

    /// Counts a job that was never served and has waited for `wait_s`.
    pub(super) fn never_started(&mut self, job: &Job, wait_s: f64, rules: &Rules) {
        if job.arrival_s >= rules.skip_s {
            match job.priority {
                Priority::Interactive => self.interactive.push(wait_s.max(job.priority.target_s() + 1.0)),
                Priority::Batch => self.batch.push(wait_s.max(job.priority.target_s() + 1.0)),
            }
        }
    }

    /// Charges a machine's cost since it was last charged. Must be called before its phase changes.
    pub(super) fn bill(&mut self, machine: &mut Machine, now_ms: u64, rules: &Rules) {
        let hours = (now_ms - machine.billed_ms) as f64 / 1_000.0 / HOUR_S;
        machine.billed_ms = now_ms;
        let usd_per_hour = match machine.phase {
            Phase::Ready | Phase::Draining => machine.usd_per_hour,
            Phase::Resuming if machine.is_taken => rules.stopped_usd_per_hour,
            Phase::Booting | Phase::Resuming if rules.boot_is_billed => machine.usd_per_hour,
            Phase::Booting => 0.0,
            Phase::Resuming | Phase::Stopped | Phase::Lost => rules.stopped_usd_per_hour,
        };
        self.spent_usd += hours * usd_per_hour;
        if usd_per_hour == machine.usd_per_hour {
            self.billed_s += hours * HOUR_S;
        }
    }

    pub(super) fn sample(&mut self, stood: Sample) -> Sample {
        let bucket = std::mem::take(&mut self.bucket);
        self.bucket.since_s = stood.at_s;
        let demand_cards = bucket.work_s / (stood.at_s - bucket.since_s).max(1.0);
        let (wait_interactive_s, wait_batch_s) = (bucket.wait_interactive_s, bucket.wait_batch_s);
        Sample { demand_cards, wait_interactive_s, wait_batch_s, spent_usd: self.spent_usd, ..stood }
    }

    pub(super) fn outcome(mut self, policy: &str, jobs: usize, rules: &Rules, bound_usd: Option<f64>) -> Outcome {
        let share_in_time = |waits_s: &[f64], target_s: f64| {
            let in_time = waits_s.iter().filter(|wait_s| **wait_s <= target_s).count();
            if waits_s.is_empty() { 1.0 } else { in_time as f64 / waits_s.len() as f64 }
        };
        let attainment = ByPriority {
            interactive: share_in_time(&self.interactive, Priority::Interactive.target_s()),
            batch: share_in_time(&self.batch, Priority::Batch.target_s()),
        };
        Outcome {
            policy: policy.to_owned(),
            seed: rules.seed,
            jobs: jobs as u64,
            cost_usd: self.spent_usd,
            bound_usd,
            ratio: bound_usd.map(|bound_usd| self.spent_usd / bound_usd),
            attainment,
            wait_s: ByPriority { interactive: quantiles(&mut self.interactive), batch: quantiles(&mut self.batch) },
            utilisation: if self.billed_s > 0.0 { self.useful_s / self.billed_s } else { 0.0 },
            boots: self.boots,
            cold_loads: self.cold_loads,
            disk_loads: self.disk_loads,
            resumes: self.resumes,
            losses: self.losses,
        }
    }
}

fn quantiles(waits_s: &mut [f64]) -> Quantiles {
    waits_s.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let rank = (waits_s.len() * percent).div_ceil(100);
        waits_s.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    Quantiles { p50: at(50), p95: at(95), p99: at(99) }
}
