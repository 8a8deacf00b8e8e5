//! Snapshots: the input of a decision, i.e. an observation and learned statistics. Passive data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stokehold_protocol::requirements::Requirements;
use stokehold_units::{Mib, gib};

use crate::learned::Level;
use crate::name::Name;
use crate::observation::{Machine, Observation, Offer, Traits};

/// Input of a decision.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Snapshot<'a> {
    /// Current observation.
    pub seen: &'a Observation,
    /// Statistics learned from this observation and all earlier ones.
    pub learned: &'a Learned,
}

/// Learned statistics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Groups of endpoints by requirements, the least demanding first.
    pub groups: Vec<Group>,
    /// Price of a late interactive job, dollars.
    pub late_usd: f64,
    /// Statistics by kind of GPU.
    pub kinds: BTreeMap<Name, KindLearned>,
    /// Hosts on which a boot failed, and the end of their cooldown, unix seconds.
    pub cooldowns: BTreeMap<Name, f64>,
    /// Average loading time per run on a machine with everything on its disk, seconds.
    pub swap_s: f64,
    /// Share of resumes that succeed, 0 to 1.
    pub resumes_well: f64,
    /// Duration of those resumes, seconds.
    pub resume_s: f64,
}

/// Statistics of a kind of GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KindLearned {
    /// Speed; 1.0 is an RTX 4090.
    pub speed: f64,
    /// Duration of a boot, seconds.
    pub boot_s: f64,
    /// Losses of an interruptible machine per hour.
    pub losses_per_hour: f64,
}

/// A group of endpoints that need at least certain properties of a machine, including endpoints that need more. Jobs
/// and machines of a group also belong to every group that needs less.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Requirements of the group.
    pub needs: Needs,
    /// Machines that interactive work needs so that no job queues for too long.
    pub interactive: f64,
    /// Machines in addition to those, which work off the backlog of a burst.
    pub burst: f64,
    /// Machines that interactive work keeps busy, averaged over a quarter of an hour.
    pub steady: f64,
    /// Machines that deferrable work needs from now on to start in time.
    pub deferred: f64,
    /// Machines in addition to the ready ones that deferrable work needs at once.
    pub urgent: f64,
    /// Waiting jobs: interactive and deferrable.
    pub waiting: (u64, u64),
    /// Running jobs.
    pub running: u64,
    /// Interactive jobs per second over the last minutes.
    pub jobs_per_s: f64,
    /// Duration of a run on a machine of speed 1, seconds.
    pub run_s: f64,
    /// Runs that share a process, and so its slot, weighted by demand. Snapshots of earlier releases have none: 1.
    #[serde(default = "alone")]
    pub at_once: f64,
    /// Factor by which the group's endpoints ran faster on a kind of GPU than its speed predicts, weighted by demand.
    /// Factors near 1 are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub faster: BTreeMap<Name, f64>,
    /// Memory of the models of all endpoints with recent demand.
    #[serde(rename = "working_set_gib", alias = "working_set_gb", with = "gib")]
    pub working_set: Mib,
    /// Arrival rate at this time of the day relative to the average.
    pub hour_factor: f64,
    /// Usage by number of machines, starting at one.
    pub levels: Vec<Level>,
}

const fn alone() -> f64 {
    1.0
}

/// Requirements of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// Memory of each GPU that the model needs, rounded up to the smallest GPU that has it.
    #[serde(rename = "vram_gib", alias = "vram_gb", with = "gib")]
    pub vram: Mib,
    /// Requirements other than memory.
    pub demands: Requirements,
}

impl Needs {
    /// Whether meeting these requirements also meets the others.
    #[must_use]
    pub fn imply(&self, other: &Self) -> bool {
        self.vram >= other.vram && (self.demands == other.demands || other.demands.ask_nothing())
    }

    /// Whether a machine meets the requirements.
    #[must_use]
    pub fn are_met_by(&self, machine: &Machine) -> bool {
        self.meet(machine.vram, machine.cards, &machine.kind, &machine.traits)
    }

    /// Whether an offer meets the requirements.
    #[must_use]
    pub fn are_met_by_offer(&self, offer: &Offer) -> bool {
        self.meet(offer.vram, offer.cards, &offer.kind, &offer.traits)
    }

    fn meet(&self, vram: Mib, cards: u32, kind: &Name, traits: &Traits) -> bool {
        let has_gpus = self.vram == Mib::ZERO || vram >= self.vram && cards >= self.demands.gpus;
        // The same check as the gateway's, so that a rented machine will be leased jobs.
        let is_met = || self.demands.is_met_by_kind(kind, || traits.compute_capability);
        let offer = stokehold_protocol::requirements::Offer {
            gpus: &[],
            cuda: traits.cuda,
            region: &traits.region,
            trust: traits.trust,
            sandbox: traits.sandbox,
        };
        let met_gpus = if has_gpus && self.demands.asks_of_gpus() && is_met() { cards as usize } else { 0 };
        has_gpus && self.demands.unmet(&offer, met_gpus).is_none()
    }

    /// Jobs with these requirements that a machine with this number of GPUs runs at once, each on its own GPUs.
    #[must_use]
    pub fn at_once(&self, cards: u32) -> u32 {
        if self.vram == Mib::ZERO { cards.max(1) } else { cards / self.demands.gpus.max(1) }
    }
}
