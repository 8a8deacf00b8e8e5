//! What can be learned from one observation after the other.

use std::collections::{BTreeMap, VecDeque};

use crate::name::Name;
use crate::observation::{Endpoint, Observation, Phase};
use crate::policy::Policy;

/// Length of a gap, by powers of two from this on, seconds.
const GAP_MIN_S: f64 = 4.0;
/// Up to about four days.
const GAPS: usize = 17;
/// Levels that are told apart.
const LEVELS: usize = 256;

/// A level: so many machines at once. How long it goes unused is what decides how long a machine is kept for it.
#[derive(Debug, Clone)]
pub struct Level {
    pub used_s: f64,
    pub gaps: [f64; GAPS],
}

impl Level {
    fn new(now_s: f64) -> Self {
        Self { used_s: now_s, gaps: [0.12; GAPS] }
    }

    fn edge_s(bin: usize) -> f64 {
        GAP_MIN_S * f64::from(1_u32 << bin)
    }

    fn use_at(&mut self, now_s: f64) {
        let gap_s = now_s - self.used_s;
        if gap_s >= GAP_MIN_S {
            let bin = ((gap_s / GAP_MIN_S).log2().floor() as usize).min(GAPS - 1);
            self.gaps.iter_mut().for_each(|count| *count *= 0.985);
            self.gaps[bin] += 1.0;
        }
        self.used_s = now_s;
    }

    /// The most that waiting on can gain: `value` when the gap ends in time, `rate` per second of waiting.
    pub fn gain(&self, now_s: f64, value: f64, rate: f64) -> f64 {
        let age_s = (now_s - self.used_s).max(0.0);
        let mut left = 0.0;
        let mut parts = [(0.0, 0.0); GAPS];
        for bin in 0..GAPS {
            let (lo, hi) = (Self::edge_s(bin), Self::edge_s(bin + 1));
            let lo = if bin == 0 { 0.0 } else { lo };
            if hi <= age_s {
                continue;
            }
            // Within a bin gaps are taken to be even in the logarithm of their length.
            let share = if lo >= age_s { 1.0 } else { (hi.ln() - age_s.max(1.0).ln()) / (hi.ln() - lo.max(1.0).ln()) };
            let weight = self.gaps[bin] * share.clamp(0.0, 1.0);
            let mid = lo.max(age_s).max(1.0);
            parts[bin] = (weight, (mid * hi).sqrt() - age_s);
            left += weight;
        }
        if left <= 0.0 {
            return -1.0;
        }
        let (mut best, mut ended, mut waited): (f64, f64, f64) = (f64::NEG_INFINITY, 0.0, 0.0);
        for bin in 0..GAPS {
            let (weight, mid_s) = parts[bin];
            if weight == 0.0 {
                continue;
            }
            ended += weight;
            waited += weight * mid_s;
            let until_s = Self::edge_s(bin + 1) - age_s;
            let cost = rate * (waited + (left - ended) * until_s) / left;
            best = best.max(value * ended / left - cost);
        }
        best
    }
}

#[derive(Debug, Clone, Default)]
struct Memory {
    name: Name,
    arrived: [u64; 3],
    ended: u64,
    run_s: f64,
    service_s: f64,
    weight: f64,
    /// Batch jobs: when, and how many had come by then.
    came: VecDeque<(f64, u64)>,
}

/// Endpoints that the same machines can hold.
#[derive(Debug, Clone)]
pub struct Group {
    pub vram_gb: f64,
    pub members: Vec<usize>,
    /// Time, and seconds of interactive work that ever came.
    curve: VecDeque<(f64, f64)>,
    came: f64,
    came_jobs: f64,
    pub levels: Vec<Level>,
    /// Machines that interactive work needs now.
    pub demand: f64,
    /// Interactive work per second, on average lately.
    pub load: f64,
    pub load_slow: f64,
    /// Mean service of an interactive job.
    pub service_s: f64,
    /// Mean service of a job at speed 1.
    pub job_s: f64,
    /// Waiting interactive work.
    pub backlog: f64,
    pub waiting: u64,
    /// Batch: time, jobs and work that ever came.
    batch: VecDeque<(f64, u64, f64)>,
    /// Batch: machines that what waits needs, so that it starts in time.
    pub batch_demand: f64,
    pub batch_waiting: u64,
    pub urgent: f64,
    pub batch_work: f64,
    pub running: u64,
}

/// What has been learned.
#[derive(Debug, Clone, Default)]
pub struct Learned {
    pub groups: Vec<Group>,
    pub late_usd: f64,
    /// Seconds of loading per run, on average.
    pub load_s: f64,
    pub speeds: BTreeMap<Name, f64>,
    pub late: f64,
    pub batch_pressure: f64,
    pub started: f64,
}

pub struct Observer {
    policy: Policy,
    memories: Vec<Memory>,
    pub learned: Learned,
    at_s: f64,
    late: u64,
    started: u64,
    load_total: f64,
    all_started: u64,
    batch_late: u64,
    batch_started: u64,
}

fn decay(dt_s: f64, tau_s: f64) -> f64 {
    (-dt_s / tau_s).exp()
}

impl Observer {
    pub fn new(policy: &Policy) -> Self {
        let learned = Learned { late_usd: policy.late_usd, ..Learned::default() };
        Self {
            policy: policy.clone(),
            memories: Vec::new(),
            learned,
            at_s: 0.0,
            late: 0,
            started: 0,
            load_total: 0.0,
            all_started: 0,
            batch_late: 0,
            batch_started: 0,
        }
    }

    fn speed(&self, kind: &Name) -> f64 {
        self.learned.speeds.get(kind).copied().unwrap_or(1.0)
    }

    fn share(seen: &Observation, endpoint: &Endpoint) -> f64 {
        let of = |slots: u32, vram_gb: f64| {
            if slots == 0 { (endpoint.vram_gb / vram_gb).min(1.0) } else { 1.0 / f64::from(slots) }
        };
        seen.machines
            .first()
            .map(|machine| of(machine.slots, machine.vram_gb))
            .or_else(|| seen.offers.first().map(|offer| of(offer.slots, offer.vram_gb)))
            .unwrap_or(1.0)
    }

    pub fn note(&mut self, seen: &Observation) {
        let now_s = seen.at_s;
        let dt_s = if self.at_s > 0.0 { (now_s - self.at_s).max(0.0) } else { 0.0 };
        self.at_s = now_s;
        for offer in &seen.offers {
            if !self.learned.speeds.contains_key(&offer.kind) {
                self.learned.speeds.insert(offer.kind.clone(), offer.speed);
            }
        }
        if self.memories.len() != seen.endpoints.len() {
            let old: BTreeMap<Name, Memory> =
                self.memories.drain(..).map(|memory| (memory.name.clone(), memory)).collect();
            self.memories = seen
                .endpoints
                .iter()
                .map(|endpoint| {
                    old.get(&endpoint.name).cloned().unwrap_or(Memory {
                        name: endpoint.name.clone(),
                        service_s: 10.0,
                        ..Memory::default()
                    })
                })
                .collect();
        }
        if self.learned.groups.is_empty() {
            self.learned.groups.push(Group {
                vram_gb: 0.0,
                members: Vec::new(),
                curve: VecDeque::new(),
                came: 0.0,
                came_jobs: 0.0,
                levels: (0..LEVELS).map(|_| Level::new(now_s)).collect(),
                demand: 0.0,
                load: 0.0,
                load_slow: 0.0,
                service_s: 10.0,
                job_s: 10.0,
                backlog: 0.0,
                waiting: 0,
                batch: VecDeque::new(),
                batch_demand: 0.0,
                batch_waiting: 0,
                urgent: 0.0,
                batch_work: 0.0,
                running: 0,
            });
        }
        // Service times.
        let (mut late, mut started, mut all_started, mut load_total) = (0, 0, 0, 0.0);
        let (mut batch_late, mut batch_started) = (0, 0);
        for (memory, endpoint) in self.memories.iter_mut().zip(&seen.endpoints) {
            let (mut ended, mut run_s) = (0, 0.0);
            for runs in &endpoint.runs {
                ended += runs.ended;
                run_s += runs.run_s * self.learned.speeds.get(&runs.kind).copied().unwrap_or(1.0);
                load_total += 5.0 * (runs.cold_loads + runs.disk_loads) as f64;
            }
            if ended > memory.ended {
                let n = (ended - memory.ended) as f64;
                let mean = (run_s - memory.run_s) / n;
                memory.weight = (memory.weight + n).min(50.0);
                memory.service_s += (mean - memory.service_s) * (n / memory.weight).min(1.0);
                (memory.ended, memory.run_s) = (ended, run_s);
            }
            late += endpoint.work[0].late;
            started += endpoint.work[0].started;
            batch_late += endpoint.work[1].late + endpoint.work[2].late;
            batch_started += endpoint.work[1].started + endpoint.work[2].started;
            all_started += endpoint.work.iter().map(|work| work.started).sum::<u64>();
        }
        if all_started > self.all_started {
            let n = (all_started - self.all_started) as f64;
            let mean = (load_total - self.load_total) / n;
            self.learned.load_s += (mean - self.learned.load_s) * (n / 200.0).min(1.0);
            (self.all_started, self.load_total) = (all_started, load_total);
        }
        let batch_over = (batch_late - self.batch_late) as f64
            - self.policy.batch_late_share * (batch_started - self.batch_started) as f64;
        self.learned.batch_pressure =
            (self.learned.batch_pressure + self.policy.batch_late_gain * batch_over).clamp(-1.0, 2.5);
        (self.batch_late, self.batch_started) = (batch_late, batch_started);
        let over = (late - self.late) as f64 - self.policy.late_share * (started - self.started) as f64;
        let price = self.learned.late_usd * (self.policy.late_gain * over).exp();
        self.learned.late_usd = price.clamp(self.policy.late_usd / 100.0, self.policy.late_usd * 100.0);
        self.learned.late = late as f64;
        self.learned.started = started as f64;
        (self.late, self.started) = (late, started);

        // Demand.
        let on: Vec<_> = seen
            .machines
            .iter()
            .filter(|it| matches!(it.phase, Phase::Ready | Phase::Booting | Phase::Resuming))
            .collect();
        let speed = if on.is_empty() {
            self.policy.kinds.first().map_or(1.0, |kind| self.speed(&Name::from(kind.as_str())))
        } else {
            on.iter().map(|it| self.speed(&it.kind)).sum::<f64>() / on.len() as f64
        };
        let load_s = self.learned.load_s;
        let mut group = self.learned.groups.pop().expect("there is one");
        let (mut came, mut jobs, mut backlog, mut waiting) = (0.0, 0_u64, 0.0, 0);
        let (mut batch_jobs, mut batch_came, mut batch_waiting, mut batch_work, mut running) = (0, 0.0, 0, 0.0, 0);
        let mut running_work = 0.0;
        let mut urgent = 0.0;
        for (memory, endpoint) in self.memories.iter_mut().zip(&seen.endpoints) {
            let arrived = [0, 1, 2].map(|n: usize| endpoint.work[n].arrived);
            running += endpoint.running;
            let any = arrived != memory.arrived || endpoint.running > 0 || endpoint.work.iter().any(|work| work.waiting > 0);
            if !any {
                continue;
            }
            let share = Self::share(seen, endpoint);
            let alone_s = memory.service_s / speed + load_s;
            let each = alone_s * share;
            let total = arrived[1] + arrived[2];
            if total > memory.arrived[1] + memory.arrived[2] {
                memory.came.push_back((now_s, total));
            }
            let done = total - endpoint.work[1].waiting - endpoint.work[2].waiting;
            while memory.came.front().is_some_and(|(_, upto)| *upto <= done) {
                memory.came.pop_front();
            }
            let margin_s = self.policy.batch_margin_s * self.learned.batch_pressure.exp();
            let due = memory.came.iter().take_while(|(at_s, _)| now_s - at_s > self.policy.batch_target_s - 240.0 - load_s - margin_s);
            if let Some((_, upto)) = due.last() {
                urgent += (upto - done) as f64 * share * alone_s / (margin_s * 0.5 + alone_s);
            }
            let new = arrived[0] - memory.arrived[0];
            came += new as f64 * each;
            jobs += new;
            let all: u64 = arrived.iter().sum::<u64>() - memory.arrived.iter().sum::<u64>();
            group.job_s += (memory.service_s - group.job_s) * (all as f64 / 200.0).min(1.0);
            backlog += endpoint.work[0].waiting as f64 * each;
            waiting += endpoint.work[0].waiting;
            let new = arrived[1] + arrived[2] - memory.arrived[1] - memory.arrived[2];
            batch_jobs += new;
            batch_came += new as f64 * each;
            let wait = endpoint.work[1].waiting + endpoint.work[2].waiting;
            batch_waiting += wait;
            batch_work += wait as f64 * each;
            running_work += endpoint.running as f64 * each * 0.7;
            memory.arrived = arrived;
        }
        group.came += came;
        if jobs > 0 {
            group.came_jobs += jobs as f64;
            let n = jobs as f64;
            group.service_s += (came / n - group.service_s) * (n / 50.0).min(1.0);
        }
        let tau_s = (group.service_s * 4.0).max(90.0);
        let fade = decay(dt_s, tau_s);
        group.load = group.load * fade + came / tau_s;
        let fade = decay(dt_s, 900.0);
        group.load_slow = group.load_slow * fade + came / 900.0;
        (group.backlog, group.waiting, group.running) = (backlog, waiting, running);
        // What interactive work needs, so that none queues for too long.
        let pressure = (self.learned.late_usd / self.policy.late_usd).ln();
        let queueing_s = (self.policy.queueing_s * (-self.policy.queueing_gain * pressure).exp()).min(60.0);
        let slack_s = queueing_s + group.service_s;
        group.curve.push_back((now_s, group.came - came));
        while group.curve.len() > 2 {
            let horizon_s = 1_200.0_f64.max(group.service_s * 4.0);
            if now_s - group.curve[0].0 > horizon_s { group.curve.pop_front() } else { break };
        }
        let mut demand: f64 = 0.0;
        for (at_s, before) in group.curve.iter().rev() {
            demand = demand.max((group.came - before) / (now_s - at_s + slack_s));
            if group.came - before <= 0.0 && now_s - at_s > 60.0 {
                // Nothing came for a while: older entries count for less and less, but for the whole of what came.
            }
        }
        demand = demand.max(group.load.min(group.load_slow * 2.0) + group.backlog / (self.policy.drain_s * (-self.policy.drain_gain * pressure).exp()).clamp(30.0, 600.0));
        if group.waiting > 0 {
            demand = demand.max(0.5);
        }
        group.demand = demand;
        // Batch.
        let (total_jobs, total_work) = group.batch.back().map_or((0, 0.0), |it| (it.1, it.2));
        if batch_jobs > 0 {
            group.batch.push_back((now_s, total_jobs + batch_jobs, total_work + batch_came));
        }
        let total_jobs = total_jobs + batch_jobs;
        let done = total_jobs - batch_waiting;
        while group.batch.len() > 1 && group.batch[0].1 <= done {
            group.batch.pop_front();
        }
        let mut need: f64 = 0.0;
        let lead_s = 150.0 + load_s + self.policy.batch_margin_s * self.learned.batch_pressure.exp();
        if batch_waiting > 0 {
            let mean = batch_work / batch_waiting as f64;
            for (came_s, upto, _) in &group.batch {
                let due = (*upto).saturating_sub(done) as f64;
                let left_s = came_s + self.policy.batch_target_s - now_s - lead_s;
                let work = due * mean + running_work;
                let alone = (left_s + mean).max(mean).max(1.0);
                if due > 0.0 {
                    need = need.max(work / alone);
                }
            }
        }
        group.urgent = urgent;
        (group.batch_demand, group.batch_waiting, group.batch_work) = (need, batch_waiting, batch_work);
        // Which levels are in use.
        let used = demand.max(0.0);
        let used = (used - 0.15).ceil().max(0.0) as usize;
        for level in group.levels.iter_mut().take(used.min(LEVELS)) {
            level.use_at(now_s);
        }
        self.learned.groups.push(group);
    }
}
