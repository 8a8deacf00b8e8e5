//! The observer: learns from successive observations.

use stokehold_units::Mib;

use std::collections::{BTreeMap, BTreeSet};

use super::endpoint::{Memory, New};
use super::group::{Memory as GroupMemory, Work};
use super::machines::Machines;
use super::means::Mean;
use super::steer::Steer;
use crate::name::Name;
use crate::observation::{Endpoint, Machine, Observation, Offer, Phase};
use crate::policy::Policy;
use crate::snapshot::{Group, Learned, Needs};

/// Maximum number of starts that the mean loading time is based on.
const STARTS_MAX: f64 = 200.0;
/// Arrivals from which an endpoint has recent demand.
const LATELY_MIN: f64 = 0.01;
/// Index of the standard priority.
const STANDARD: usize = 1;
/// Average remainder of a run in progress, as a share of it.
const LEFT_OF_RUN: f64 = 0.7;
/// Share of the margin within which deferrable work should start.
const OF_MARGIN: f64 = 0.5;
/// Duration of the slowest boots relative to the mean.
const SLOW_BOOT: f64 = 1.6;

/// Learns statistics from observations, in the same way live, in `plan` and in simulations.
pub struct Observer {
    policy: Policy,
    learned: Learned,
    at_s: Option<f64>,
    endpoints: Vec<Memory>,
    groups: Vec<GroupMemory>,
    /// Indexes of the endpoints of each group.
    members: Vec<Vec<usize>>,
    /// Memory of all kinds of GPU observed so far, sorted.
    cards: Vec<Mib>,
    machines: Machines,
    interactive: Steer,
    deferrable: Steer,
    swaps: Mean,
    loaded: (f64, f64),
}

impl Observer {
    /// Creates an observer without observations.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self {
            policy: policy.clone(),
            learned: Learned { late_usd: policy.late_usd, ..Learned::default() },
            at_s: None,
            endpoints: Vec::new(),
            groups: Vec::new(),
            members: Vec::new(),
            cards: Vec::new(),
            machines: Machines::new(),
            interactive: Steer::default(),
            deferrable: Steer::default(),
            swaps: Mean::default(),
            loaded: (0.0, 0.0),
        }
    }

    /// Statistics learned so far.
    #[must_use]
    pub fn learned(&self) -> &Learned {
        &self.learned
    }

    /// Learns from an observation and returns the statistics.
    pub fn note(&mut self, seen: &Observation) -> &Learned {
        let now_s = seen.at_s;
        let since_s = self.at_s.map_or(0.0, |at_s| (now_s - at_s).max(0.0));
        self.at_s = Some(now_s);
        self.machines.note(seen, since_s, &self.policy, &mut self.learned);
        self.regroup(seen);
        self.steer(seen);
        let new: Vec<New> = self
            .endpoints
            .iter_mut()
            .zip(&seen.endpoints)
            .map(|(memory, endpoint)| memory.note(endpoint, now_s, since_s, &self.learned.kinds))
            .collect();
        self.swap(seen);
        let rise = self.interactive.factor();
        let queueing_s = (self.policy.queueing_s * rise.powf(-self.policy.queueing_gain))
            .min(self.policy.interactive_target_s * 2.0);
        for (place, memory) in self.groups.iter_mut().enumerate() {
            let group = &mut self.learned.groups[place];
            let pace = Pace::of(seen, group, &self.learned.kinds, &self.policy);
            let look = Reading {
                seen,
                policy: &self.policy,
                endpoints: &self.endpoints,
                members: &self.members[place],
                pace,
                swap_s: self.learned.swap_s,
                margin_s: self.policy.deferred_margin_s * self.deferrable.factor(),
            };
            let work = look.work(&new, group);
            memory.note(&work, now_s, since_s, queueing_s, &self.policy, group);
        }
        &self.learned
    }

    /// Sorts endpoints into groups if the endpoints have changed.
    fn regroup(&mut self, seen: &Observation) {
        let known = self.cards.len();
        let cards = seen.offers.iter().map(|offer| offer.vram).chain(seen.machines.iter().map(|machine| machine.vram));
        for vram in cards {
            if let Err(place) = self.cards.binary_search(&vram) {
                self.cards.insert(place, vram);
            }
        }
        let is_same = self.endpoints.len() == seen.endpoints.len()
            && self.endpoints.iter().zip(&seen.endpoints).all(|(memory, endpoint)| memory.name == endpoint.name);
        if is_same && known == self.cards.len() {
            return;
        }
        let mut before: BTreeMap<Name, Memory> =
            self.endpoints.drain(..).map(|memory| (memory.name.clone(), memory)).collect();
        let remembered = |endpoint: &Endpoint| {
            before.remove(&endpoint.name).unwrap_or_else(|| Memory::new(endpoint.name.clone(), self.policy.run_prior_s))
        };
        self.endpoints = seen.endpoints.iter().map(remembered).collect();
        let needs: Vec<Needs> = seen.endpoints.iter().map(|endpoint| self.needs(endpoint)).collect();
        let mut distinct: Vec<Needs> = Vec::new();
        for need in &needs {
            if !distinct.contains(need) {
                distinct.push(need.clone());
            }
        }
        distinct
            .sort_by(|a, b| a.vram.cmp(&b.vram).then(a.demands.ask_nothing().cmp(&b.demands.ask_nothing()).reverse()));
        let mut learned: Vec<(Group, GroupMemory)> = self.learned.groups.drain(..).zip(self.groups.drain(..)).collect();
        self.members.clear();
        for need in distinct {
            let place = learned.iter().position(|(group, _)| group.needs == need);
            let fresh = || (Group { needs: need.clone(), hour_factor: 1.0, ..Group::default() }, GroupMemory::new());
            let (group, memory) = place.map_or_else(fresh, |place| learned.swap_remove(place));
            let members = (0..needs.len()).filter(|endpoint| needs[*endpoint].imply(&need));
            self.members.push(members.collect());
            self.learned.groups.push(group);
            self.groups.push(memory);
        }
    }

    /// Requirements of an endpoint, with its memory rounded up to the smallest GPU that has it.
    fn needs(&self, endpoint: &Endpoint) -> Needs {
        let card = self.cards.iter().find(|card| **card >= endpoint.vram);
        let vram = if endpoint.vram > Mib::ZERO { card.copied().unwrap_or(endpoint.vram) } else { Mib::ZERO };
        Needs { vram, demands: endpoint.demands.clone() }
    }

    fn steer(&mut self, seen: &Observation) {
        let policy = &self.policy;
        let of = |priorities: &[usize]| {
            let work = || seen.endpoints.iter().flat_map(|endpoint| priorities.iter().map(|n| endpoint.work[*n]));
            (work().map(|work| work.late).sum(), work().map(|work| work.started).sum())
        };
        let (late, started) = of(&[0]);
        let bounds = (-policy.late_fall_max.ln(), policy.late_rise_max.ln());
        self.interactive.note(late, started, policy.late_share, policy.late_gain, bounds);
        self.learned.late_usd = policy.late_usd * self.interactive.factor();
        let (late, started) = of(&[1, 2]);
        self.deferrable.note(late, started, policy.deferred_late_share, policy.deferred_late_gain, (-1.0, 2.5));
    }

    /// Learns the loading time per turn of a process on machines that have everything on their disks. First loads do
    /// not count. A turn runs as many jobs as the process runs at once.
    fn swap(&mut self, seen: &Observation) {
        let (mut started, mut loaded_s) = (0.0, 0.0);
        for endpoint in &seen.endpoints {
            let jobs = endpoint.work.iter().map(|work| work.started).sum::<u64>();
            started += jobs as f64 / f64::from(endpoint.at_once.max(1));
            loaded_s += endpoint.runs.iter().map(|runs| runs.disk_load_s).sum::<f64>();
        }
        let new = started - self.loaded.0;
        if new > 0.0 {
            self.swaps.note((loaded_s - self.loaded.1).max(0.0) / new, new, STARTS_MAX);
        }
        self.loaded = (started, loaded_s);
        // A single endpoint stays loaded.
        let in_demand = self.endpoints.iter().filter(|memory| memory.lately.0 + memory.lately.1 > LATELY_MIN).count();
        let prior_s = self.policy.load_prior_s * (1.0 - 1.0 / (in_demand as f64).max(1.0));
        self.learned.swap_s = if self.swaps.is_seen() { self.swaps.get() } else { prior_s };
    }
}

/// Speed of a group's machines, and the time until they could help.
#[derive(Debug, Clone, Copy)]
struct Pace {
    speed: f64,
    /// Memory of a GPU that models may use, and slots.
    vram: Mib,
    slots: u32,
    boot_s: f64,
    could_s: f64,
}

impl Pace {
    fn of(
        seen: &Observation,
        group: &Group,
        kinds: &BTreeMap<Name, crate::snapshot::KindLearned>,
        policy: &Policy,
    ) -> Self {
        let speed_of = |kind: &Name| kinds.get(kind).map_or(1.0, |kind| kind.speed);
        let boot_of = |kind: &Name| kinds.get(kind).map_or(0.0, |kind| kind.boot_s);
        let is_coming = |phase: Phase| matches!(phase, Phase::Ready | Phase::Booting | Phase::Resuming);
        let on = || seen.machines.iter().filter(|it| is_coming(it.phase) && group.needs.are_met_by(it));
        let is_allowed = |kind: &Name| policy.kinds.is_empty() || policy.kinds.iter().any(|it| **it == **kind);
        let offers = || seen.offers.iter().filter(|it| is_allowed(&it.kind) && group.needs.are_met_by_offer(it));
        // The offer with the least cost per work represents the market.
        let usd_of_work = |offer: &Offer| offer.usd_per_hour.usd() / speed_of(&offer.kind);
        let best = offers().min_by(|a, b| usd_of_work(a).total_cmp(&usd_of_work(b)));
        let boot_s = best.map_or(0.0, |best| boot_of(&best.kind));
        let count = on().count();
        if let (Some(first), true) = (on().next(), count > 0) {
            let speed = on().map(|it| speed_of(&it.kind)).sum::<f64>() / count as f64;
            let helps_s = |it: &Machine| {
                let age_s = seen.at_s - it.since_s;
                match it.phase {
                    Phase::Booting => boot_s - (boot_of(&it.kind) - age_s).clamp(boot_s * 0.1, boot_s),
                    Phase::Resuming => boot_s - (30.0 - age_s).clamp(0.0, boot_s),
                    _ => boot_s,
                }
            };
            let could_s = on().map(helps_s).sum();
            return Self { speed, vram: first.vram, slots: first.slots, boot_s, could_s };
        }
        let (speed, vram, slots) =
            best.map_or((1.0, Mib::ZERO, 1), |best| (speed_of(&best.kind), best.vram, best.slots));
        Self { speed, vram, slots, boot_s, could_s: 0.0 }
    }
}

/// Evaluation of the endpoints of one group.
struct Reading<'a> {
    seen: &'a Observation,
    policy: &'a Policy,
    endpoints: &'a [Memory],
    members: &'a [usize],
    pace: Pace,
    swap_s: f64,
    /// Margin before the target at which deferrable work is started, seconds.
    margin_s: f64,
}

impl Reading<'_> {
    fn work(&self, new: &[New], group: &mut Group) -> Work {
        let now_s = self.seen.at_s;
        group.working_set = Mib::ZERO;
        let mut work = Work { boot_s: self.pace.boot_s, could_s: self.pace.could_s, ..Work::default() };
        let (mut runs, mut runs_s, mut slots_s) = (0.0, 0.0, 0.0);
        let mut running_s = 0.0;
        let mut due: Vec<Due> = Vec::new();
        for place in self.members {
            let (memory, endpoint, new) = (&self.endpoints[*place], &self.seen.endpoints[*place], new[*place]);
            let [interactive, standard, batch] = &endpoint.work;
            work.running += endpoint.running;
            if memory.lately.0 + memory.lately.1 > LATELY_MIN {
                group.working_set += endpoint.vram;
            }
            // A turn of the process lasts as long as one run, whatever number of jobs share it.
            let alone_s = memory.run_s() / self.pace.speed + self.swap_s;
            let share = endpoint.share(self.pace.vram, self.pace.slots) / memory.at_once;
            work.came += new.interactive as f64;
            let (lately, deferred) = memory.lately;
            work.lately.0 += lately;
            work.lately.1 += lately * alone_s * share;
            work.lately.2 += lately * alone_s;
            runs += lately + deferred;
            runs_s += (lately + deferred) * memory.run_s();
            slots_s += (lately + deferred) * memory.run_s() / memory.at_once;
            work.backlog_s += interactive.waiting as f64 * alone_s * share;
            work.spread += (interactive.waiting + endpoint.running) as f64 * share;
            running_s += endpoint.running as f64 * alone_s * share * LEFT_OF_RUN;
            work.waiting.0 += interactive.waiting;
            work.waiting.1 += standard.waiting + batch.waiting;
            let targets_s = [(1, self.policy.standard_target_s), (2, self.policy.batch_target_s)];
            let mut spare = self.spare(endpoint, group);
            for (n, target_s) in targets_s.into_iter().filter(|(n, _)| endpoint.work[*n].waiting > 0) {
                // Only batch work is deferred; a standard job starts a machine at once.
                let lead_s =
                    if n == STANDARD { target_s } else { self.pace.boot_s * SLOW_BOOT + self.swap_s + self.margin_s };
                for (at_s, jobs) in memory.waiting(endpoint, n) {
                    let left_s = at_s + target_s - lead_s - now_s;
                    let jobs = jobs as f64;
                    if left_s < 0.0 {
                        let beyond = (jobs - spare).max(0.0);
                        spare -= jobs - beyond;
                        work.urgent += beyond * share * alone_s / (self.margin_s * OF_MARGIN + alone_s);
                    }
                    due.push(Due { left_s, jobs, machine_s: jobs * alone_s * share, alone_s: jobs * alone_s });
                }
            }
        }
        group.faster = self.faster();
        work.deferred = machines_until(&mut due, running_s);
        group.run_s = if runs > LATELY_MIN { runs_s / runs } else { self.policy.run_prior_s };
        group.at_once = if slots_s > 0.0 { runs_s / slots_s } else { 1.0 };
        work
    }

    /// Waiting jobs of an endpoint that processes on ready machines will take without another machine: a process that
    /// is being loaded has taken one of them so far. 0 where a process takes one job, because each is leased at once.
    fn spare(&self, endpoint: &Endpoint, group: &Group) -> f64 {
        if endpoint.at_once <= 1 {
            return 0.0;
        }
        let is_for_it = |machine: &&Machine| {
            let takes_it = machine.running == 0 || machine.resident.is_empty();
            machine.phase == Phase::Ready
                && group.needs.are_met_by(machine)
                && (takes_it || machine.resident.contains(&endpoint.name))
        };
        let processes = self.seen.machines.iter().filter(is_for_it).count() as f64;
        (processes * f64::from(endpoint.at_once) - endpoint.running as f64).max(0.0)
    }

    /// Factor by which these endpoints ran faster than predicted, by kind of GPU.
    fn faster(&self) -> BTreeMap<Name, f64> {
        let members = || self.members.iter().map(|place| &self.endpoints[*place]);
        let kinds: BTreeSet<&Name> = members().flat_map(|memory| memory.faster.keys()).collect();
        let lately = |memory: &Memory| memory.lately.0 + memory.lately.1;
        let all: f64 = members().map(lately).sum();
        let of = |kind: &Name| {
            let factor_of = |memory: &Memory| lately(memory) * memory.faster.get(kind).unwrap_or(&1.0);
            if all > 0.0 { members().map(factor_of).sum::<f64>() / all } else { 1.0 }
        };
        kinds.into_iter().map(|kind| (kind.clone(), of(kind))).collect()
    }
}

/// Deferrable jobs of one endpoint that came at the same time: the time until they must have started, their number, and
/// the seconds that they take, of machines and one by one.
#[derive(Debug, Clone, Copy)]
struct Due {
    left_s: f64,
    jobs: f64,
    machine_s: f64,
    alone_s: f64,
}

/// Machines needed from now on so that all jobs start in time: by each deadline the work due until then must be done,
/// except for the last job on each machine, which must only have started. Running jobs come first.
fn machines_until(due: &mut [Due], running_s: f64) -> f64 {
    due.sort_by(|a, b| a.left_s.total_cmp(&b.left_s));
    let (mut need, mut work_s, mut jobs, mut alone_s): (f64, f64, f64, f64) = (0.0, running_s, 0.0, 0.0);
    for due in due {
        work_s += due.machine_s;
        jobs += due.jobs;
        alone_s += due.alone_s;
        need = need.max(work_s / (due.left_s.max(0.0) + alone_s / jobs).max(1.0));
    }
    need
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferrable_work_is_spread_until_it_is_due() {
        let jobs =
            |count: f64, left_s: f64| Due { left_s, jobs: count, machine_s: count * 30.0, alone_s: count * 30.0 };
        let machines = |due: &[Due]| machines_until(&mut due.to_vec(), 0.0);
        assert!(machines(&[]) < 1e-9);
        assert!((machines(&[jobs(100.0, 2_970.0)]) - 1.0).abs() < 1e-9, "3,000 s of work in 3,000 s");
        assert!((machines(&[jobs(1.0, 0.0)]) - 1.0).abs() < 1e-9, "it is due now");
        assert!(machines(&[jobs(1.0, 3_000.0)]) < 0.05, "it can wait");
        let both = [jobs(100.0, 2_970.0), jobs(10.0, 100.0)];
        assert!((machines(&both) - 300.0 / 130.0).abs() < 1e-9, "what is due first needs the most");
        assert!(machines_until(&mut both.to_vec(), 260.0) > machines(&both), "what runs is in the way");
    }
}
