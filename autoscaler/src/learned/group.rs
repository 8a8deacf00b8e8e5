//! What is learned of the endpoints that the same machines can run.

use super::Level;
use super::curve::Curve;
use super::means::{Mean, fade};
use crate::policy::Policy;
use crate::snapshot::Group;

/// Levels that are told apart.
const LEVELS: usize = 128;
/// Arrivals are remembered for so long, or for so many runs, whichever is longer.
const MEMORY_S: f64 = 1_200.0;
const MEMORY_RUNS: f64 = 4.0;
/// A mean over the last while.
const LOAD_S: f64 = 90.0;
const STEADY_S: f64 = 900.0;
/// Machines that a job which waits needs, at the least.
const WAITS: f64 = 0.5;
/// Quarters of an hour of a day.
const QUARTERS: usize = 96;
const QUARTER_S: f64 = 900.0;
/// Days that the table of a day rests on, at most.
const DAYS_MAX: f64 = 14.0;

/// What is remembered of a group.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    curve: Curve,
    /// Interactive jobs per second, over two lengths of time.
    jobs_per_s: (f64, f64),
    /// When an interactive job last came or waited, unix seconds.
    asked_s: f64,
    day: Vec<Mean>,
    /// The quarter that is being counted, since when, and its jobs.
    quarter: (usize, f64, f64),
}

/// What a look at its endpoints came to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    /// Interactive jobs that came.
    pub(super) came: f64,
    /// Of what came lately: jobs, their machine seconds, and seconds.
    pub(super) lately: (f64, f64, f64),
    /// Machine seconds of the interactive jobs that wait.
    pub(super) backlog_s: f64,
    /// Machines that deferrable work needs: see [`Group`].
    pub(super) deferred: f64,
    pub(super) urgent: f64,
    pub(super) waiting: (u64, u64),
    pub(super) running: u64,
    /// Seconds of machines that are ready, or about to be, until one that is rented now could help.
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

    /// Brings what is told of the group up to now.
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
        // Who may not be idle for long is not kept for what came long ago.
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
        // What of the backlog would be left when a machine that is rented now could begin.
        let load = self.jobs_per_s.0 * job_s;
        let left_s = (work.backlog_s + load * work.boot_s - work.could_s).max(0.0);
        group.interactive = curve;
        group.burst = if is_quiet { 0.0 } else { (load + left_s / policy.drain_s - curve).max(0.0) };
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
        // The first quarter that is looked at began before.
        if since_s > 0.0 {
            self.day[counted].note(jobs, 1.0, DAYS_MAX);
        }
        self.quarter = (quarter, now_s, came);
    }

    /// How much more often than on average jobs come in this quarter of an hour and the next; 1 until both have been
    /// seen.
    fn hour_factor(&self, now_s: f64) -> f64 {
        let here = quarter_of(now_s);
        let both = [&self.day[here], &self.day[(here + 1) % QUARTERS]];
        if !both.iter().all(|quarter| quarter.is_seen()) {
            return 1.0;
        }
        let seen: Vec<f64> = self.day.iter().filter(|quarter| quarter.is_seen()).map(Mean::get).collect();
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        // One job more than was seen keeps a quiet table from saying never.
        (both.iter().map(|quarter| quarter.get()).sum::<f64>() / 2.0 + 1.0) / (mean + 1.0)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a quarter of a day")]
fn quarter_of(now_s: f64) -> usize {
    (now_s.rem_euclid(86_400.0) / QUARTER_S) as usize % QUARTERS
}
