//! Statistics of a group of endpoints that the same machines can run.

use super::Level;
use super::curve::Curve;
use super::means::{Mean, fade};
use crate::policy::Policy;
use crate::snapshot::Group;

/// Maximum number of levels.
const LEVELS: usize = 128;
/// Time for which arrivals are remembered, seconds; longer if a number of runs takes longer.
const MEMORY_S: f64 = 1_200.0;
const MEMORY_RUNS: f64 = 4.0;
/// Time constant of the load, seconds.
const LOAD_S: f64 = 90.0;
const STEADY_S: f64 = 900.0;
/// Minimum fraction of a machine that a waiting job needs.
const WAITS: f64 = 0.5;
/// Number of quarters of an hour in a day.
const QUARTERS: usize = 96;
const QUARTER_S: f64 = 900.0;
/// Maximum number of days that the daily profile is based on.
const DAYS_MAX: f64 = 14.0;

/// Statistics of a group.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    curve: Curve,
    /// Interactive jobs per second, averaged over two time constants.
    jobs_per_s: (f64, f64),
    /// Time at which an interactive job last came or waited, unix seconds.
    asked_s: f64,
    day: Vec<Mean>,
    /// Current quarter of an hour: its index, its start and its jobs.
    quarter: (usize, f64, f64),
}

/// Summary of an observation for the group's endpoints.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    /// New interactive jobs.
    pub(super) came: f64,
    /// Number of recent jobs, their machine seconds and their seconds.
    pub(super) lately: (f64, f64, f64),
    /// Machine seconds of the waiting interactive jobs.
    pub(super) backlog_s: f64,
    /// Machines on which the waiting interactive jobs and those that run would all run at once.
    pub(super) spread: f64,
    /// Machines that deferrable work needs: see [`Group`].
    pub(super) deferred: f64,
    pub(super) urgent: f64,
    pub(super) waiting: (u64, u64),
    pub(super) running: u64,
    /// Machine seconds that ready and starting machines provide until a machine that is rented now could help.
    pub(super) could_s: f64,
    pub(super) boot_s: f64,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            curve: Curve::default(),
            jobs_per_s: (0.0, 0.0),
            asked_s: 0.0,
            day: vec![Mean::default(); QUARTERS],
            quarter: (0, 0.0, 0.0),
        }
    }

    /// Updates the statistics of the group.
    pub(super) fn note(
        &mut self,
        work: &Work,
        now_s: f64,
        since_s: f64,
        queueing_s: f64,
        policy: &Policy,
        group: &mut Group,
    ) {
        let (jobs, machine_s, alone_s) = work.lately;
        let (job_s, alone_s) = if jobs > 0.01 { (machine_s / jobs, alone_s / jobs) } else { (0.0, 0.0) };
        let share = if alone_s > 0.0 { job_s / alone_s } else { 1.0 };
        // If machines may not be idle for long, old arrivals do not count.
        let most_s = policy.max_idle_s.unwrap_or(f64::INFINITY);
        let (memory_s, load_s) = (MEMORY_S.min(most_s), LOAD_S.min(most_s));
        let load_s = load_s.max(MEMORY_RUNS * alone_s);
        self.curve.note(now_s, work.came, memory_s.max(MEMORY_RUNS * alone_s));
        self.jobs_per_s.0 = fade(self.jobs_per_s.0, since_s, load_s) + work.came / load_s;
        self.jobs_per_s.1 = fade(self.jobs_per_s.1, since_s, STEADY_S) + work.came / STEADY_S;
        self.note_day(now_s, work.came);
        group.hour_factor = self.hour_factor(now_s);

        let is_asked = work.came > 0.0 || work.waiting.0 > 0;
        if is_asked {
            self.asked_s = now_s;
        }
        let is_quiet = !is_asked && now_s - self.asked_s >= most_s;
        let mut curve = if is_quiet { 0.0 } else { self.curve.machines(now_s, alone_s, share, queueing_s) };
        if work.waiting.0 > 0 {
            curve = curve.max(WAITS);
        }
        // The backlog that would be left when a machine that is rented now could begin.
        let load = self.jobs_per_s.0 * job_s;
        let left_s = (work.backlog_s + load * work.boot_s - work.could_s).max(0.0);
        group.interactive = curve;
        // A backlog of long jobs needs no more machines than it and the jobs that come until then could use.
        let most = (work.spread + self.jobs_per_s.0 * work.boot_s * share).max(load);
        group.burst = if is_quiet { 0.0 } else { ((load + left_s / policy.drain_s).min(most) - curve).max(0.0) };
        group.steady = self.jobs_per_s.1 * job_s;
        group.jobs_per_s = self.jobs_per_s.0;
        (group.deferred, group.urgent) = (work.deferred, work.urgent);
        (group.waiting, group.running) = (work.waiting, work.running);
        if group.levels.is_empty() {
            group.levels = vec![Level::unused(now_s); LEVELS];
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of machines")]
        let used = (curve - policy.round_up_from).ceil().max(0.0) as usize;
        group.levels.iter_mut().take(used).for_each(|level| level.use_at(now_s));
    }

    fn note_day(&mut self, now_s: f64, came: f64) {
        let quarter = quarter_of(now_s);
        let (counted, since_s, jobs) = self.quarter;
        if quarter == counted && now_s - since_s < QUARTER_S {
            self.quarter.2 += came;
            return;
        }
        // The first observed quarter began before the observation.
        if since_s > 0.0 {
            self.day[counted].note(jobs, 1.0, DAYS_MAX);
        }
        self.quarter = (quarter, now_s, came);
    }

    /// Arrival rate in this and the next quarter of an hour relative to the average; 1 until both have been observed.
    fn hour_factor(&self, now_s: f64) -> f64 {
        let here = quarter_of(now_s);
        let both = [&self.day[here], &self.day[(here + 1) % QUARTERS]];
        if !both.iter().all(|quarter| quarter.is_seen()) {
            return 1.0;
        }
        let seen: Vec<f64> = self.day.iter().filter(|quarter| quarter.is_seen()).map(Mean::get).collect();
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        // One additional job keeps an empty quarter from predicting none at all.
        (both.iter().map(|quarter| quarter.get()).sum::<f64>() / 2.0 + 1.0) / (mean + 1.0)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a quarter of a day")]
fn quarter_of(now_s: f64) -> usize {
    (now_s.rem_euclid(86_400.0) / QUARTER_S) as usize % QUARTERS
}
