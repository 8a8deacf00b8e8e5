//! The decision: turns a snapshot into a plan with reasons. No clock, no randomness, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use stokehold_units::UsdMicros;

use crate::learned::Level;
use crate::name::Name;
use crate::observation::{Machine, Offer, Phase};
use crate::plan::{Action, NoBid, Plan, Reason, Shortage, Step, Withheld};
use crate::policy::Policy;
use crate::rank::{Choice, Ranking};
use crate::snapshot::{Group, Snapshot};

/// Fraction of a machine that deferrable work must need before a machine is started for it.
const DEFERRED_FROM: f64 = 0.9;
/// Fraction of that need that is left to chance when rounding up.
const DEFERRED_ROUND: f64 = 0.1;
/// Idle time after which a machine evidently cannot run the waiting jobs, e.g. because of limits, seconds.
const CANNOT_RUN_S: f64 = 10.0;
/// Assumed share of the time that a needed machine runs jobs.
const BUSY: f64 = 0.5;
/// Time after the end of a job, or the start of a machine, in which it may not have been leased waiting work yet,
/// seconds.
const SETTLE_S: f64 = 5.0;
/// Maximum number of rents in one plan.
const RENTS_MAX: usize = 256;

/// Plans the current round.
///
/// Machines that failed are given back first. Then each group of endpoints, the most demanding first, gets the machines
/// that its work needs, stopped ones first. Then idle machines without use to any group are given up as soon as waiting
/// for the next job costs more than starting again. A machine that runs jobs or boots is never given up for lack of
/// work.
///
/// One plan contains everything that can be done now: after it is executed, the same observation yields an empty plan.
#[must_use]
pub fn decide(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    let mut decision = Decision::new(*snapshot, policy);
    decision.mend();
    decision.grow();
    // Machines that are given up make room under the limits for rents that were withheld.
    while decision.shrink() {
        decision.plan.withheld.clear();
        decision.grow();
    }
    decision.forget();
    decision.plan
}

/// Ranked offers of a group, valid while the number of running machines stays the same.
#[derive(Default)]
struct Ranked<'a> {
    of: Option<(usize, Option<NoBid>)>,
    choices: Vec<Choice<'a>>,
}

struct Decision<'a> {
    snapshot: Snapshot<'a>,
    policy: &'a Policy,
    /// Machines that run or start.
    on: Vec<&'a Machine>,
    stopped: Vec<&'a Machine>,
    /// Machines that this plan stops.
    put_off: Vec<&'a Machine>,
    /// Draining machines. They cost money and count towards the limits until their jobs have ended.
    draining: Vec<&'a Machine>,
    /// Offers that this plan rents.
    rented: Vec<&'a Offer>,
    taken: BTreeMap<&'a Name, u32>,
    /// GPUs that rented offers include.
    taken_cards: BTreeSet<(&'a Name, u64)>,
    usd_per_hour: UsdMicros,
    plan: Plan,
}

impl<'a> Decision<'a> {
    fn new(snapshot: Snapshot<'a>, policy: &'a Policy) -> Self {
        Self {
            snapshot,
            policy,
            on: Vec::new(),
            stopped: Vec::new(),
            put_off: Vec::new(),
            draining: Vec::new(),
            rented: Vec::new(),
            taken: BTreeMap::new(),
            taken_cards: BTreeSet::new(),
            usd_per_hour: UsdMicros::ZERO,
            plan: Plan::default(),
        }
    }

    fn now_s(&self) -> f64 {
        self.snapshot.seen.at_s
    }

    fn step(&mut self, action: Action, reason: Reason) {
        self.plan.steps.push(Step { action, reason });
    }

    /// Sorts machines by their use and gives back those that failed.
    fn mend(&mut self) {
        for machine in &self.snapshot.seen.machines {
            let after_s = self.now_s() - machine.since_s;
            let release = Action::Release { machine: machine.id.clone() };
            if !machine.is_ours() {
                if machine.phase == Phase::Ready {
                    self.on.push(machine);
                }
                continue;
            }
            match machine.phase {
                Phase::Booting if after_s > self.policy.boot_deadline_s => {
                    self.step(release, Reason::BootFailed { after_s });
                }
                Phase::Resuming if after_s > self.policy.resume_deadline_s => {
                    self.step(release, Reason::ResumeFailed { after_s });
                }
                Phase::Lost => self.step(release, Reason::Lost),
                Phase::Draining if machine.running > 0 && after_s > self.policy.drain_deadline_s => {
                    self.step(release, Reason::DrainDeadline { after_s });
                }
                Phase::Draining => {
                    self.usd_per_hour += machine.usd_per_hour;
                    self.draining.push(machine);
                }
                Phase::Stopped => self.stopped.push(machine),
                Phase::Booting | Phase::Ready | Phase::Resuming => {
                    self.usd_per_hour += machine.usd_per_hour;
                    self.on.push(machine);
                }
            }
        }
        // The machine that was stopped last is the most likely to find its GPUs free.
        self.stopped.sort_by(|a, b| b.since_s.total_cmp(&a.since_s).then_with(|| a.id.cmp(&b.id)));
    }

    /// Adds the machines that work needs.
    fn grow(&mut self) {
        for group in self.snapshot.learned.groups.iter().rev() {
            let mut ranked = Ranked::default();
            loop {
                let (have, need) = (self.have(group), self.need(group, None));
                if need <= have {
                    break;
                }
                let shortage = shortage(group, have, need);
                if !self.add(group, &shortage, &mut ranked) {
                    break;
                }
            }
        }
        let floor = self.policy.min_machines as usize;
        let mut ranked = Ranked::default();
        while self.ours() < floor && self.running() < self.policy.max_machines as usize {
            let group = self.snapshot.learned.groups.first().cloned().unwrap_or_default();
            let reason = Reason::Minimum { machines: self.policy.min_machines };
            let shortage = shortage(&group, self.ours(), floor);
            if !self.resume(&group, &reason) && !self.rent(&group, &shortage, &reason, Some(NoBid::Stays), &mut ranked)
            {
                break;
            }
        }
    }

    /// Number of own machines that run or start.
    fn running(&self) -> usize {
        self.ours() + self.draining.len()
    }

    /// Number of machines that run or start, without those that joined by themselves.
    fn ours(&self) -> usize {
        self.on.iter().filter(|machine| machine.is_ours()).count() + self.rented.len()
    }

    /// Jobs of a group that run at once on running and starting machines.
    fn have(&self, group: &Group) -> usize {
        let on = self.on.iter().filter(|machine| group.needs.are_met_by(machine)).map(|machine| machine.cards);
        let rented = self.rented.iter().filter(|offer| group.needs.are_met_by_offer(offer)).map(|offer| offer.cards);
        on.chain(rented).map(|cards| group.needs.at_once(cards) as usize).sum()
    }

    /// Machines that the work of a group needs, optionally as if one machine did not exist.
    fn need(&self, group: &Group, without: Option<&Machine>) -> usize {
        let is_left = |machine: &&&Machine| without.is_none_or(|without| machine.id != without.id);
        let of_group = || self.on.iter().filter(is_left).filter(|machine| group.needs.are_met_by(machine));
        let cannot_run =
            of_group().any(|machine| idle_s(machine, self.now_s()).is_some_and(|idle_s| idle_s > CANNOT_RUN_S));
        let interactive = group.interactive + if cannot_run { 0.0 } else { group.burst } - self.policy.round_up_from;
        if cannot_run {
            return whole(interactive);
        }
        let deferred =
            if group.deferred > DEFERRED_FROM { group.deferred + group.steady - DEFERRED_ROUND } else { 0.0 };
        // A machine that drained and was put back into service takes jobs at once.
        let ready = of_group().filter(|machine| matches!(machine.phase, Phase::Ready | Phase::Draining));
        let ready: usize = ready.map(|machine| group.needs.at_once(machine.cards) as usize).sum();
        let urgent = if group.urgent > 0.0 { ready + whole(group.urgent) } else { 0 };
        whole(interactive).max(whole(deferred)).max(urgent)
    }

    /// Adds one machine for a group. Returns whether that was possible.
    fn add(&mut self, group: &Group, shortage: &Shortage, ranked: &mut Ranked<'a>) -> bool {
        let reason = Reason::Work(shortage.clone());
        if let Some(place) = self.draining.iter().position(|machine| group.needs.are_met_by(machine)) {
            let machine = self.draining.remove(place);
            self.step(Action::Undrain { machine: machine.id.clone() }, reason);
            self.on.push(machine);
            return true;
        }
        if self.running() >= self.policy.max_machines as usize || self.rented.len() >= RENTS_MAX {
            let machines = self.policy.max_machines;
            self.plan.withheld.push(Withheld::MaxMachines { machines, shortage: shortage.clone() });
            return false;
        }
        // Deferrable work can run on machines that may be lost. Interactive work needs at least one on-demand machine.
        let is_safe = |machine: &&Machine| group.needs.are_met_by(machine) && !machine.is_interruptible;
        let has_floor = group.waiting.0 == 0 && group.interactive < DEFERRED_FROM
            || self.on.iter().copied().any(|machine| is_safe(&machine))
            || !self.rented.is_empty();
        let no_bid = if !has_floor { Some(NoBid::Waited) } else { (group.urgent > 0.0).then_some(NoBid::Late) };
        self.resume(group, &reason) || self.rent(group, shortage, &reason, no_bid, ranked)
    }

    fn resume(&mut self, group: &Group, reason: &Reason) -> bool {
        let fits = |machine: &&Machine| {
            group.needs.are_met_by(machine)
                && self.usd_per_hour + machine.usd_per_hour <= self.policy.max_per_hour()
                && self.running() < self.policy.max_machines as usize
        };
        let Some(place) = self.stopped.iter().position(fits) else { return false };
        let machine = self.stopped.remove(place);
        self.usd_per_hour += machine.usd_per_hour;
        self.step(Action::Resume { machine: machine.id.clone() }, reason.clone());
        self.on.push(machine);
        true
    }

    fn rent(
        &mut self,
        group: &Group,
        shortage: &Shortage,
        reason: &Reason,
        no_bid: Option<NoBid>,
        ranked: &mut Ranked<'a>,
    ) -> bool {
        let (snapshot, policy) = (self.snapshot, self.policy);
        if ranked.of != Some((self.on.len(), no_bid)) {
            let on: Vec<&Machine> = self.on.iter().copied().filter(|it| group.needs.are_met_by(it)).collect();
            let ranking = Ranking { snapshot, policy, group, on: &on, no_bid };
            *ranked = Ranked { of: Some((self.on.len(), no_bid)), choices: ranking.ranked() };
        }
        let most_usd_per_hour = self.policy.max_per_hour();
        let left = || ranked.choices.iter().filter(|choice| self.is_left(choice.offer));
        let may_spend = |choice: &&Choice<'_>| self.usd_per_hour + choice.usd_per_hour <= most_usd_per_hour;
        let Some(Choice { offer, bid_usd_per_hour, usd_per_hour, .. }) = left().find(may_spend).copied() else {
            let shortage = shortage.clone();
            self.plan.withheld.push(if left().next().is_some() {
                Withheld::MaxSpend { usd_per_hour: most_usd_per_hour, shortage }
            } else {
                Withheld::NoOffer { shortage }
            });
            return false;
        };
        let ranking = Ranking { snapshot, policy, group, on: &[], no_bid };
        let no_bid = ranking.why_no_bid(offer).filter(|_| bid_usd_per_hour.is_none());
        self.step(Action::Rent { offer: offer.id.clone(), bid_usd_per_hour, no_bid }, reason.clone());
        self.usd_per_hour += usd_per_hour;
        *self.taken.entry(&offer.id).or_default() += 1;
        self.taken_cards.extend(offer.gpu_ids.iter().map(|card| (&offer.host, *card)));
        self.rented.push(offer);
        true
    }

    /// Whether another machine of an offer can be rented. Offers of one host overlap, so a rented GPU blocks all offers
    /// that include it.
    fn is_left(&self, offer: &Offer) -> bool {
        let is_taken = |card: &u64| self.taken_cards.contains(&(&offer.host, *card));
        self.taken.get(&offer.id).copied().unwrap_or(0) < offer.count && !offer.gpu_ids.iter().any(is_taken)
    }

    /// Gives up machines that have drained, and idle ones if waiting for the next job costs more than starting again.
    /// Returns whether there were any.
    fn shrink(&mut self) -> bool {
        let (drained, draining) = self.draining.drain(..).partition(|machine| machine.running == 0);
        self.draining = draining;
        let drained: Vec<&Machine> = drained;
        for machine in &drained {
            self.give_up(machine, self.on.len() + self.stopped.len() + 1, Reason::Drained);
        }
        let mut shrinks = !drained.is_empty();
        // If groups share machines, each machine that goes may make another one dispensable.
        while self.give_up_idle() {
            shrinks = true;
        }
        shrinks
    }

    fn give_up_idle(&mut self) -> bool {
        let now_s = self.now_s();
        let mut idle: Vec<(f64, &Machine)> =
            self.on.iter().filter_map(|machine| Some((idle_s(machine, now_s)?, *machine))).collect();
        // A drained machine has finished its jobs. A ready one may not have been leased any yet.
        let is_settled = |idle_s: f64, phase| phase == Phase::Draining || idle_s >= SETTLE_S;
        idle.retain(|(idle_s, machine)| machine.is_ours() && is_settled(*idle_s, machine.phase));
        // Rented machines go before owned ones, and then the longest idle ones.
        idle.sort_by(|(a_s, a), (b_s, b)| {
            let is_free = |machine: &Machine| machine.usd_per_hour <= UsdMicros::ZERO;
            is_free(a).cmp(&is_free(b)).then(b_s.total_cmp(a_s)).then_with(|| a.id.cmp(&b.id))
        });
        let before = self.on.len();
        for (idle_s, machine) in idle {
            if self.ours() <= self.policy.min_machines as usize {
                break;
            }
            let Some((level, unused_s)) = self.is_dispensable(machine, idle_s) else { continue };
            let is_drained = machine.phase == Phase::Draining;
            let reason = if is_drained { Reason::Drained } else { Reason::Idle { idle_s, level, unused_s } };
            self.give_up(machine, self.on.len() + self.stopped.len(), reason);
            self.on.retain(|on| on.id != machine.id);
        }
        self.on.len() < before
    }

    /// Stops a machine or gives it back. `machines` is the number of running and stopped machines, including this one.
    fn give_up(&mut self, machine: &'a Machine, machines: usize, reason: Reason) {
        // The machine may have been put back into service for a group that then got more machines than it needed.
        let undrain = Action::Undrain { machine: machine.id.clone() };
        self.plan.steps.retain(|step| step.action != undrain);
        let action = self.off(machine, machines);
        if let Action::Stop { .. } = action {
            self.put_off.push(machine);
        }
        self.usd_per_hour -= machine.usd_per_hour;
        self.step(action, reason);
    }

    /// Whether no group loses by giving up an idle machine. Returns the number of surplus machines and the time for
    /// which they were surplus. The time is `None` if that number of machines was never needed.
    fn is_dispensable(&self, machine: &Machine, idle_s: f64) -> Option<(usize, Option<f64>)> {
        let now_s = self.now_s();
        let has_time = self.policy.max_idle_s.is_none_or(|most_s| idle_s < most_s);
        let paid = if machine.usd_per_hour > UsdMicros::ZERO {
            machine.usd_per_hour.usd()
        } else {
            self.policy.owned_usd_per_hour
        };
        let (later_usd, saved) = if machine.can_stop && self.policy.may_stop {
            let resume_usd = self.snapshot.learned.resume_s / 3_600.0 * paid;
            (
                resume_usd + self.policy.resume_late * self.snapshot.learned.late_usd,
                paid - machine.stopped_usd_per_hour.usd(),
            )
        } else {
            (self.boot_s(machine) / 3_600.0 * paid + self.policy.boot_late * self.snapshot.learned.late_usd, paid)
        };
        let mut seen = (self.on.len(), Some(0.0));
        for group in self.groups_of(machine) {
            // Work that this machine cannot run would require another machine as soon as this one is gone.
            let (have, need) = (self.have(group), self.need(group, None).max(self.need(group, Some(machine))));
            let without = have - group.needs.at_once(machine.cards) as usize;
            if without < need {
                return None;
            }
            if let Some(level) = group.levels.get(without) {
                if has_time && level.gain_usd(now_s, later_usd * group.hour_factor, saved / 3_600.0) > 0.0 {
                    return None;
                }
                seen = (without + 1, level.unused_s(now_s));
            }
        }
        Some(seen)
    }

    fn groups_of<'s>(&'s self, machine: &'s Machine) -> impl Iterator<Item = &'a Group> + 's {
        self.snapshot.learned.groups.iter().filter(|group| group.needs.are_met_by(machine))
    }

    fn boot_s(&self, machine: &Machine) -> f64 {
        self.snapshot.learned.kinds.get(&machine.kind).map_or(0.0, |kind| kind.boot_s)
    }

    /// Stops a machine or gives it back, whichever costs less. `machines` is the number of running and stopped
    /// machines, including this one.
    fn off(&self, machine: &Machine, machines: usize) -> Action {
        let id = machine.id.clone();
        if machine.can_stop && self.policy.may_stop && self.is_worth_keeping(machine, machines).is_none() {
            Action::Stop { machine: id }
        } else {
            Action::Release { machine: id }
        }
    }

    /// Whether keeping a stopped machine's disk pays: `None` if it does. Otherwise the number of machines, and the time
    /// since that many were last needed, if ever.
    fn is_worth_keeping(&self, machine: &Machine, machines: usize) -> Option<(usize, Option<f64>)> {
        let now_s = self.now_s();
        let learned = self.snapshot.learned;
        let boot_s = self.boot_s(machine) - learned.resume_s;
        // A failed resume costs its deadline, followed by a boot.
        let fails_usd = learned.late_usd * learned.resume_s / self.boot_s(machine).max(1.0) * self.policy.boot_late;
        let since_s = machine.idle_since_s.unwrap_or(machine.since_s);
        // If no group has requirements that the machine meets, no group has needed it since it stopped.
        let mut seen = (machines, Some(now_s - machine.since_s));
        let mut is_first = true;
        for group in self.groups_of(machine) {
            let Some(level) = group.levels.get(machines.saturating_sub(1)) else { continue };
            // Without interactive jobs in the past, no job is late.
            let (late, fails_usd) = if is_interactive(group) {
                let late = self.late_while(group, machine, boot_s).max(self.policy.boot_late - self.policy.resume_late);
                (late, fails_usd)
            } else {
                (0.0, 0.0)
            };
            let well_usd = boot_s / 3_600.0 * machine.usd_per_hour.usd() + late * learned.late_usd;
            let value_usd = learned.resumes_well * well_usd - (1.0 - learned.resumes_well) * fails_usd;
            let usd_per_s = machine.stopped_usd_per_hour.usd() / 3_600.0;
            if level.gain_since_usd(now_s, since_s, value_usd, usd_per_s) > 0.0 {
                return None;
            }
            let unused_s = level.unused_s(now_s);
            seen.1 = match (is_first, seen.1, unused_s) {
                (true, ..) => unused_s,
                (false, Some(seen_s), Some(unused_s)) => Some(seen_s.min(unused_s)),
                (false, seen_s, unused_s) => seen_s.or(unused_s),
            };
            is_first = false;
        }
        Some(seen)
    }

    /// Number of interactive jobs that are late if a needed machine comes later by this time, among the jobs that the
    /// machine could run.
    fn late_while(&self, group: &Group, machine: &Machine, later_s: f64) -> f64 {
        let speed = self.snapshot.learned.kinds.get(&machine.kind).map_or(1.0, |kind| kind.speed);
        let run_s = group.run_s / speed + self.snapshot.learned.swap_s;
        if is_interactive(group) { BUSY * (later_s / run_s.max(0.1)) * group.at_once.max(1.0) } else { 0.0 }
    }

    /// Gives up stopped machines whose disks do not pay, the longest stopped first. Machines that this plan stops come
    /// last.
    fn forget(&mut self) {
        let mut stopped = std::mem::take(&mut self.put_off);
        stopped.sort_by(|a, b| a.id.cmp(&b.id));
        let new = stopped.len();
        stopped.append(&mut self.stopped);
        while let Some(machine) = stopped.pop() {
            let machines = self.on.len() + self.rented.len() + stopped.len() + 1;
            let Some((level, unused_s)) = self.is_worth_keeping(machine, machines) else { return };
            let (release, stop) =
                (Action::Release { machine: machine.id.clone() }, Action::Stop { machine: machine.id.clone() });
            if stopped.len() >= new {
                self.step(release, Reason::Forgotten { level, unused_s });
            } else if let Some(step) = self.plan.steps.iter_mut().find(|step| step.action == stop) {
                step.action = release;
            }
        }
    }
}

/// Whether a group has ever had interactive jobs.
fn is_interactive(group: &Group) -> bool {
    group.levels.first().is_some_and(Level::has_been_used)
}

/// Idle time of a ready machine. It restarts when a draining machine is put back into service.
fn idle_s(machine: &Machine, now_s: f64) -> Option<f64> {
    match machine.phase {
        Phase::Ready if machine.running == 0 => Some(now_s - machine.idle_since_s.unwrap_or(machine.since_s)),
        Phase::Draining if machine.running == 0 => Some(0.0),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of machines, never negative")]
fn whole(machines: f64) -> usize {
    machines.ceil().max(0.0) as usize
}

fn shortage(group: &Group, have: usize, need: usize) -> Shortage {
    Shortage {
        vram: group.needs.vram,
        have,
        need,
        interactive: group.interactive,
        burst: group.burst,
        deferred: group.deferred,
        urgent: group.urgent,
        waiting: group.waiting,
    }
}
