//! Statistics from the starts and losses of machines.

use std::collections::BTreeMap;

use super::means::Mean;
use crate::name::Name;
use crate::observation::{Machine, Observation, Phase};
use crate::policy::Policy;
use crate::snapshot::{KindLearned, Learned};

/// Maximum number of boots and resumes that an estimate is based on. The advertised value of a kind counts as this
/// many.
const SEEN_MAX: f64 = 30.0;
const ASSUMED: f64 = 5.0;

/// Prior for resumes: the share that succeeds, and the duration in seconds.
const RESUMES_WELL: f64 = 0.9;
const RESUME_S: f64 = 30.0;

/// Weight of the advertised rate of losses, in hours of observation.
const ASSUMED_HOURS: f64 = 10.0;

/// Statistics of machines.
#[derive(Debug, Clone)]
pub(super) struct Machines {
    last: BTreeMap<Name, (Phase, f64)>,
    boots: BTreeMap<Name, Mean>,
    speeds: BTreeMap<Name, f64>,
    /// Hours of interruptible machines and their losses, by kind of GPU.
    lost: BTreeMap<Name, (f64, f64)>,
    resumes_well: Mean,
    resume_s: Mean,
}

impl Machines {
    pub(super) fn new() -> Self {
        Self {
            last: BTreeMap::new(),
            boots: BTreeMap::new(),
            speeds: BTreeMap::new(),
            lost: BTreeMap::new(),
            resumes_well: Mean::prior(RESUMES_WELL, 10.0),
            resume_s: Mean::prior(RESUME_S, ASSUMED),
        }
    }

    /// Learns from an observation, this many seconds after the previous one.
    pub(super) fn note(&mut self, seen: &Observation, since_s: f64, policy: &Policy, learned: &mut Learned) {
        for offer in &seen.offers {
            if !self.boots.contains_key(&offer.kind) {
                self.boots.insert(offer.kind.clone(), Mean::prior(offer.boot_s, ASSUMED));
                self.speeds.insert(offer.kind.clone(), offer.speed);
                self.lost.insert(offer.kind.clone(), (ASSUMED_HOURS, ASSUMED_HOURS * offer.losses_per_hour));
                self.fill(&offer.kind, learned);
            }
        }
        learned.cooldowns.retain(|_, until_s| *until_s > seen.at_s);
        for machine in &seen.machines {
            let before = self.last.insert(machine.id.clone(), (machine.phase, machine.since_s));
            if self.change(machine, before, since_s, seen.at_s, policy, learned) {
                self.fill(&machine.kind, learned);
            }
        }
        if self.last.len() > seen.machines.len() {
            let is_there = |id: &Name| seen.machines.binary_search_by(|machine| machine.id.cmp(id)).is_ok();
            self.last.retain(|id, _| is_there(id));
        }
        (learned.resumes_well, learned.resume_s) = (self.resumes_well.get(), self.resume_s.get());
    }

    /// Learns from the change of one machine. Returns whether the statistics of its kind changed.
    fn change(
        &mut self,
        machine: &Machine,
        before: Option<(Phase, f64)>,
        since_s: f64,
        now_s: f64,
        policy: &Policy,
        learned: &mut Learned,
    ) -> bool {
        let lost = self.lost.entry(machine.kind.clone()).or_insert((ASSUMED_HOURS, 0.0));
        if machine.is_interruptible && machine.phase == Phase::Ready {
            lost.0 += since_s / 3_600.0;
        }
        let Some((phase, phase_since_s)) = before.filter(|(phase, _)| *phase != machine.phase) else {
            let is_late = |deadline_s: f64| now_s - machine.since_s > deadline_s;
            if machine.phase == Phase::Booting && is_late(policy.boot_deadline_s) && !machine.host.is_empty() {
                learned.cooldowns.insert(machine.host.clone(), now_s + policy.host_penalty_s);
            }
            if machine.phase == Phase::Resuming && is_late(policy.resume_deadline_s) {
                self.resumes_well.note(0.0, 1.0, SEEN_MAX);
            }
            return false;
        };
        let took_s = (machine.since_s - phase_since_s).max(0.0);
        match (phase, machine.phase) {
            (Phase::Booting, Phase::Ready) => {
                self.boots.entry(machine.kind.clone()).or_default().note(took_s, 1.0, SEEN_MAX);
                true
            }
            (Phase::Resuming, Phase::Ready) => {
                self.resumes_well.note(1.0, 1.0, SEEN_MAX);
                self.resume_s.note(took_s, 1.0, SEEN_MAX);
                false
            }
            (_, Phase::Lost) => {
                lost.1 += 1.0;
                true
            }
            _ => false,
        }
    }

    fn fill(&self, kind: &Name, learned: &mut Learned) {
        let boot_s = self.boots.get(kind).map_or(0.0, Mean::get);
        let losses_per_hour = self.lost.get(kind).map_or(0.0, |(hours, losses)| losses / hours);
        let speed = self.speeds.get(kind).copied().unwrap_or(1.0);
        let known = learned.kinds.entry(kind.clone());
        let known = known.or_insert(KindLearned { speed, boot_s, losses_per_hour });
        (known.boot_s, known.losses_per_hour) = (boot_s, losses_per_hour);
    }
}
