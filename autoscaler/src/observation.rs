//! What is seen at one moment: endpoints and their work, machines, offers. Passive data, in JSON as the live loop
//! records it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stokehold_queue::demands::{Demands, SandboxLevel, Trust, Version};

use crate::name::Name;

/// What is seen at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Unix time, seconds.
    pub at_s: f64,
    /// Every endpoint that has, or lately had, work; by name, in order.
    pub endpoints: Vec<Endpoint>,
    /// Every machine that is paid for, owned, or expected; by id, in order.
    pub machines: Vec<Machine>,
    /// What could be rented or started now; by id, in order.
    pub offers: Vec<Offer>,
}

/// An endpoint and its work. Counters only ever grow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// `<tenant>/<name>`; in a trace, the endpoint's name.
    pub name: Name,
    /// What its model takes of each of its cards, GB; 0 runs on a machine without cards.
    pub vram_gb: f64,
    /// What it asks of its machine beside that.
    #[serde(default)]
    pub demands: Demands,
    /// By priority: interactive, standard, batch.
    pub work: [Work; 3],
    /// Jobs that machines hold now.
    pub running: u64,
    /// Jobs that one process runs at once: `max_concurrency` times `max_batch_size`. They share its slot.
    #[serde(default = "one_at_once")]
    pub at_once: u32,
    /// Runs that have ended, by kind of card.
    #[serde(default)]
    pub runs: Vec<Runs>,
}

const fn one_at_once() -> u32 {
    1
}

/// The jobs of one endpoint and priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Jobs that ever became ready.
    pub arrived: u64,
    /// Jobs that wait now.
    pub waiting: u64,
    /// How long the oldest of them has waited, seconds; 0 when none does.
    pub oldest_s: f64,
    /// Jobs that ever started.
    pub started: u64,
    /// Of those, how many had waited for longer than their class may.
    pub late: u64,
}

/// Runs of one endpoint on one kind of card, since its counters began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// The kind of card, as in [`Offer::kind`].
    pub kind: Name,
    /// Runs that have ended.
    pub ended: u64,
    /// Seconds that they took, without loading, whoever else ran in the same process.
    pub run_s: f64,
    /// Loads of the model from elsewhere, and the seconds they took.
    #[serde(default)]
    pub cold_loads: u64,
    /// See `cold_loads`.
    #[serde(default)]
    pub cold_load_s: f64,
    /// Loads from the machine's own disk, and the seconds they took.
    #[serde(default)]
    pub disk_loads: u64,
    /// See `disk_loads`.
    #[serde(default)]
    pub disk_load_s: f64,
}

/// The provider of machines whose workers joined by themselves: they count for what they do, and their coming and going
/// is their operator's business.
pub const JOINED: &str = "joined";

/// Where a machine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Rented; its worker has not joined yet.
    Booting,
    /// Its worker takes jobs.
    Ready,
    /// It takes no more jobs, and ends those it has.
    Draining,
    /// Its cards are given back; its disk is kept and paid for.
    Stopped,
    /// Was stopped, and is asked to start again.
    Resuming,
    /// Somebody outbid it, or it fell silent: it may come back by itself.
    Lost,
}

/// A machine that is paid for, owned, or expected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The autoscaler's own id of it.
    pub id: Name,
    /// Who sold it, as in [`Offer::provider`].
    pub provider: Name,
    /// Its kind of card, as in [`Offer::kind`].
    pub kind: Name,
    /// The box it stands in, as in [`Offer::host`]: what happens to machines there is remembered of it.
    #[serde(default)]
    pub host: Name,
    /// Where it is in its life.
    pub phase: Phase,
    /// Since when it has been there, unix seconds.
    pub since_s: f64,
    /// Since when it has been rented, unix seconds.
    pub rented_s: f64,
    /// What an hour costs while it runs, dollars, disk included; 0 for owned ones.
    pub usd_per_hour: f64,
    /// What an hour costs while it is stopped, dollars.
    #[serde(default)]
    pub stopped_usd_per_hour: f64,
    /// Whether it may be taken away by who pays more.
    #[serde(default)]
    pub is_interruptible: bool,
    /// Whether a stop keeps its disk, so that it can be resumed.
    #[serde(default)]
    pub can_stop: bool,
    /// How many cards it has; 0 computes on the CPU.
    pub cards: u32,
    /// What models may hold of each card, GB.
    pub vram_gb: f64,
    /// Jobs it runs at once on a card: 1, or more where models share one. 0: as many as their memory allows.
    #[serde(default)]
    pub slots: u32,
    /// Whether it meets what endpoints ask for beside memory.
    #[serde(default)]
    pub traits: Traits,
    /// Jobs that it holds now.
    pub running: u64,
    /// What those hold of its cards, GB; known where models share a card.
    #[serde(default)]
    pub running_gb: f64,
    /// Since when it has held none, unix seconds; the moment it became ready, if it never had one.
    #[serde(default)]
    pub idle_since_s: Option<f64>,
    /// Endpoints whose models are loaded.
    #[serde(default)]
    pub resident: Vec<Name>,
    /// Endpoints whose weights and environment are on its disk.
    #[serde(default)]
    pub on_disk: Vec<Name>,
}

impl Machine {
    /// Whether the autoscaler started it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        *self.provider != *JOINED
    }
}

/// What endpoints may ask of a machine beside memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traits {
    /// CUDA's, of each of its cards.
    pub compute_capability: Option<Version>,
    /// The newest CUDA that its driver serves.
    pub cuda: Option<Version>,
    /// Where it stands.
    pub region: String,
    /// Whose it is.
    pub trust: Trust,
    /// How far it shuts handlers in.
    pub sandbox: SandboxLevel,
}

/// Something that could be rented or started now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The provider's id of it.
    pub id: Name,
    /// Which provider.
    pub provider: Name,
    /// Its kind of card, as `RTX 4090`: what is learned of speed is kept under this.
    pub kind: Name,
    /// The box it stands in; empty where nobody says.
    #[serde(default)]
    pub host: Name,
    /// How many machines of it can be had.
    pub count: u32,
    /// Cards in one machine.
    pub cards: u32,
    /// Which cards of its host they are, where the provider says: offers overlap, and two that share a card are one
    /// machine.
    #[serde(default)]
    pub gpu_ids: Vec<u64>,
    /// What models may hold of each card, GB.
    pub vram_gb: f64,
    /// As [`Machine::slots`].
    #[serde(default)]
    pub slots: u32,
    /// How fast it is thought to be, until it has been measured; 1.0 is an RTX 4090.
    pub speed: f64,
    /// On-demand: what an hour costs, dollars, with the disk that will be rented.
    pub usd_per_hour: f64,
    /// The least bid for an interruptible one, dollars per hour; `None` where there are none.
    #[serde(default)]
    pub min_bid_usd_per_hour: Option<f64>,
    /// Times per hour that such a one is thought to be lost, until that has been measured.
    #[serde(default)]
    pub losses_per_hour: f64,
    /// What an hour of its disk costs while it is stopped, dollars; `None`: it cannot be stopped.
    #[serde(default)]
    pub stopped_usd_per_hour: Option<f64>,
    /// How long it is thought to boot, seconds, until that has been measured.
    pub boot_s: f64,
    /// What fetching a gigabyte there costs, dollars.
    #[serde(default)]
    pub inbound_usd_per_gb: f64,
    /// How fast it fetches, megabits per second; 0 where nobody says.
    #[serde(default)]
    pub inbound_mbit_per_s: f64,
    /// Share of the time that its host was reachable, 0 to 1; 1 where nobody says.
    #[serde(default = "always")]
    pub reliability: f64,
    /// How long it is listed for yet, seconds; `None` where it does not end.
    #[serde(default)]
    pub listed_for_s: Option<f64>,
    /// Whether it meets what endpoints ask for beside memory.
    #[serde(default)]
    pub traits: Traits,
    /// The operator's own: costs nothing, and goes first.
    #[serde(default)]
    pub is_owned: bool,
}

impl Offer {
    /// An offer as it was written down, with the members that cannot be read as nothing, and whether there were any:
    /// another release may have written it, or a file was edited. Whatever it says, its machine is there and costs
    /// money.
    #[must_use]
    pub(crate) fn recovered(recorded: &Value) -> (Self, bool) {
        let unread = match Self::deserialize(recorded) {
            Ok(offer) => return (offer, false),
            Err(_) => Self::unknown(),
        };
        let Ok(mut known) = serde_json::to_value(&unread) else { return (unread, true) };
        let mut offer = unread;
        for (member, value) in recorded.as_object().into_iter().flatten() {
            let before = known.get(member).cloned();
            known[member] = value.clone();
            match (Self::deserialize(&known), before) {
                (Ok(read), _) => offer = read,
                (Err(_), Some(before)) => known[member] = before,
                (Err(_), None) => drop(known.as_object_mut().and_then(|known| known.remove(member))),
            }
        }
        (offer, true)
    }

    fn unknown() -> Self {
        Self {
            id: Name::default(),
            provider: Name::default(),
            kind: Name::default(),
            host: Name::default(),
            count: 0,
            cards: 0,
            gpu_ids: Vec::new(),
            vram_gb: 0.0,
            slots: 0,
            speed: 1.0,
            usd_per_hour: 0.0,
            min_bid_usd_per_hour: None,
            losses_per_hour: 0.0,
            stopped_usd_per_hour: None,
            boot_s: 0.0,
            inbound_usd_per_gb: 0.0,
            inbound_mbit_per_s: 0.0,
            reliability: 1.0,
            listed_for_s: None,
            traits: Traits::default(),
            is_owned: false,
        }
    }
}

fn always() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_offer_that_cannot_be_read_keeps_what_can() {
        let recorded = json!({"id": "77", "provider": "cloud", "kind": "RTX 4090", "host": 3, "count": 1, "cards": 2, "vram_gb": "24",
            "usd_per_hour": 0.35, "stopped_usd_per_hour": 0.01, "boot_s": 90.0, "of_a_later_release": true});
        let (offer, is_damaged) = Offer::recovered(&recorded);
        assert!(is_damaged);
        assert_eq!((&*offer.kind, &*offer.host, offer.cards, offer.vram_gb), ("RTX 4090", "", 2, 0.0));
        assert_eq!((offer.usd_per_hour, offer.stopped_usd_per_hour, offer.speed), (0.35, Some(0.01), 1.0));
        for recorded in [json!(null), json!([1]), json!("x"), json!({})] {
            assert_eq!(Offer::recovered(&recorded), (Offer::unknown(), true), "{recorded}");
        }
        let whole = serde_json::to_value(&offer).unwrap_or_default();
        assert_eq!(Offer::recovered(&whole), (offer, false));
    }
}
