//! Input of the bound: work and prices of a trace and of the offers.

use stokehold_planner::simulate::offers::Kind;
use stokehold_planner::simulate::trace::Job;

use super::packing;
use super::work::{Machine, Work};

/// Maximum of times and prices. Larger values are rejected; sums of smaller ones are exact to the millisecond.
const LARGEST: f64 = 1e10;

/// Relative margin above rounding errors.
pub(super) const ROUNDING: f64 = 1e-7;

/// Minimum speed. Slower machines count as this fast, which can only lower the bound.
const SLOWEST: f64 = 1e-3;

/// Jobs by arrival, and the machines that hold them.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand {
    pub(super) works: Vec<Work>,
    pub(super) machines: Vec<Machine>,
    pub(super) classes: usize,
}

impl Demand {
    /// Builds the demand. Leaves out invalid values and jobs that no kind holds, because a bound holds without them.
    pub(super) fn new(jobs: &[Job], kinds: &[Kind], share_gb: Option<f64>, boot_is_billed: bool) -> Self {
        let share_gb = share_gb.filter(|gb| gb.is_finite() && *gb > 0.0);
        let kinds: Vec<&Kind> = kinds.iter().filter(|kind| makes_sense(kind)).collect();
        let mut jobs: Vec<&Job> = jobs.iter().filter(|job| can_be_asked(job, &kinds)).collect();
        jobs.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s));
        let largest_gb = |job: &&Job| largest_too_small_gb(job.vram_gb, &kinds);
        let mut floors: Vec<f64> = jobs.iter().map(largest_gb).collect();
        floors.sort_by(f64::total_cmp);
        floors.dedup();
        let class = |job: &&Job| floors.partition_point(|floor| *floor < largest_too_small_gb(job.vram_gb, &kinds));
        let work = |job: &&Job| Work {
            arrival_s: job.arrival_s,
            target_s: job.priority.target_s(),
            service_s: job.service_s,
            share: share_gb.map_or(1.0, |gb| (job.vram_gb / gb).clamp(0.0, 1.0)),
            class: class(job),
        };
        let machine = |kind: &&Kind| {
            let held = floors.partition_point(|floor| *floor < kind.vram_gb);
            let boot_s = if boot_is_billed { (kind.boot_lo_s + kind.boot_hi_s) / 2.0 } else { 0.0 };
            Some(Machine {
                speed: kind.speed.max(SLOWEST),
                usd_per_s: kind.od_usd_h / 3_600.0,
                boot_s,
                level: held.checked_sub(1)?,
            })
        };
        let mut works: Vec<Work> = jobs.iter().map(work).collect();
        if share_gb.is_some() {
            packing::weigh(&mut works);
        }
        Self { works, machines: kinds.iter().filter_map(machine).collect(), classes: floors.len() }
    }

    /// The machines that hold jobs of this class.
    pub(super) fn holding(&self, class: usize) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(move |machine| machine.level >= class)
    }

    /// The cost of the work if machines were billed by the second, without boots, dollars. It is the bound if
    /// everything else fails.
    pub(super) fn least_usd(&self) -> f64 {
        let price = |class| {
            let each = self.holding(class).map(|machine| machine.usd_per_s / machine.speed);
            each.fold(f64::INFINITY, f64::min)
        };
        let prices: Vec<f64> = (0..self.classes).map(price).collect();
        let usd: f64 = self.works.iter().map(|work| work.share * work.service_s * prices[work.class]).sum();
        if usd.is_finite() { usd * (1.0 - ROUNDING) } else { 0.0 }
    }

    /// The lowest and the highest speed at which jobs of this class may run.
    pub(super) fn speeds(&self, class: usize) -> (f64, f64) {
        self.holding(class)
            .fold((f64::INFINITY, 0.0), |(low, high), machine| (machine.speed.min(low), machine.speed.max(high)))
    }
}

fn makes_sense(kind: &Kind) -> bool {
    let numbers = [kind.vram_gb, kind.speed, kind.od_usd_h, kind.boot_lo_s, kind.boot_hi_s];
    let is_sane = numbers.iter().all(|number| (0.0..=LARGEST).contains(number));
    is_sane && kind.speed > 0.0 && kind.max_count > 0
}

fn can_be_asked(job: &Job, kinds: &[&Kind]) -> bool {
    let numbers = [job.arrival_s, job.service_s, job.vram_gb];
    let is_sane = numbers.iter().all(|number| (0.0..=LARGEST).contains(number));
    is_sane && job.service_s > 0.0 && kinds.iter().any(|kind| kind.vram_gb >= job.vram_gb)
}

/// The largest memory of a kind that is too small for the job, GB; -1 if every kind is large enough. Jobs with the same
/// value can use the same kinds.
fn largest_too_small_gb(vram_gb: f64, kinds: &[&Kind]) -> f64 {
    kinds.iter().map(|kind| kind.vram_gb).filter(|gb| *gb < vram_gb).fold(-1.0, f64::max)
}
