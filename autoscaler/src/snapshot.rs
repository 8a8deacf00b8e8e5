//! What a decision looks at: what is seen, and what has been learned. Passive data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stokehold_queue::demands::Demands;

use crate::learned::Level;
use crate::name::Name;
use crate::observation::{Machine, Observation, Offer, Traits};

/// What a decision looks at.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Snapshot<'a> {
    /// What is seen.
    pub seen: &'a Observation,
    /// What has been learned from this and from all before.
    pub learned: &'a Learned,
}

/// What has been learned.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// By what machines must have, the least first.
    pub groups: Vec<Group>,
    /// What a late interactive job costs, dollars.
    pub late_usd: f64,
    /// By kind of card.
    pub kinds: BTreeMap<Name, KindLearned>,
    /// Hosts on which a boot failed, and until when they are left alone, unix seconds.
    pub cooldowns: BTreeMap<Name, f64>,
    /// Seconds of loading per run on a machine that has everything on its disk, on average.
    pub swap_s: f64,
    /// Of resumes, the share that came to something, 0 to 1.
    pub resumes_well: f64,
    /// How long those took, seconds.
    pub resume_s: f64,
}

/// What has been learned of a kind of card.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KindLearned {
    /// How fast it is; 1.0 is an RTX 4090.
    pub speed: f64,
    /// How long a machine of it boots, seconds.
    pub boot_s: f64,
    /// How often an interruptible one is lost, times per hour.
    pub losses_per_hour: f64,
}

/// Endpoints that need at least this of a machine, with those that need more. Jobs and machines of a group are also
/// those of every group that asks for less.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// What machines must have.
    pub needs: Needs,
    /// Machines that interactive work needs, so that none queues for too long.
    pub interactive: f64,
    /// Machines that work off what a burst has left, beside those.
    pub burst: f64,
    /// Machines that interactive work keeps busy on average, over a quarter of an hour.
    pub steady: f64,
    /// Machines that deferrable work needs from now on, so that it starts in time.
    pub deferred: f64,
    /// Machines, beside those that are ready, that deferrable work needs at once.
    pub urgent: f64,
    /// Interactive jobs that wait, and deferrable ones.
    pub waiting: (u64, u64),
    /// Jobs that run.
    pub running: u64,
    /// Interactive jobs per second, over the last minutes.
    pub jobs_per_s: f64,
    /// Seconds of a machine of speed 1 that a run takes.
    pub run_s: f64,
    /// How many times faster than is said its endpoints were seen to run on a kind of card, weighed by how often they
    /// are asked for; what is about as fast is not here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub faster: BTreeMap<Name, f64>,
    /// What the models of all endpoints that were asked for lately take together, GB.
    pub working_set_gb: f64,
    /// How much more often than on average jobs come at this time of the day.
    pub hour_factor: f64,
    /// By number of machines, from one on: how long it goes unused.
    pub levels: Vec<Level>,
}

/// What a machine must have to run an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// What a model takes of each card, GB, rounded up to the smallest card that holds it.
    pub vram_gb: f64,
    /// What is asked for beside that.
    pub demands: Demands,
}

impl Needs {
    /// Whether who meets these also meets the others.
    #[must_use]
    pub fn imply(&self, other: &Self) -> bool {
        self.vram_gb >= other.vram_gb && (self.demands == other.demands || other.demands.ask_nothing())
    }

    /// Whether a machine meets them.
    #[must_use]
    pub fn are_met_by(&self, machine: &Machine) -> bool {
        self.meet(machine.vram_gb, machine.cards, &machine.kind, &machine.traits)
    }

    /// Whether an offer does.
    #[must_use]
    pub fn are_met_by_offer(&self, offer: &Offer) -> bool {
        self.meet(offer.vram_gb, offer.cards, &offer.kind, &offer.traits)
    }

    fn meet(&self, vram_gb: f64, cards: u32, kind: &Name, traits: &Traits) -> bool {
        let has_cards = self.vram_gb <= 0.0 || vram_gb >= self.vram_gb && cards >= self.demands.gpus;
        // The same check as the gateway's, so that a machine which is rented is one that will lease.
        let is_met = || self.demands.is_met_by_kind(kind, || traits.compute_capability);
        let offer = stokehold_queue::demands::Offer {
            gpus: &[],
            cuda: traits.cuda,
            region: &traits.region,
            trust: traits.trust,
            sandbox: traits.sandbox,
        };
        let met_cards = if has_cards && self.demands.asks_of_cards() && is_met() { cards as usize } else { 0 };
        has_cards && self.demands.unmet(&offer, met_cards).is_none()
    }

    /// Jobs of these needs that a machine with so many cards holds at once, each on cards of its own.
    #[must_use]
    pub fn at_once(&self, cards: u32) -> u32 {
        if self.vram_gb <= 0.0 { cards.max(1) } else { cards / self.demands.gpus.max(1) }
    }
}
