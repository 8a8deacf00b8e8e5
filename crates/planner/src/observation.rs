//! Observations: endpoints and their work, machines and offers at one moment. Passive data, in JSON as the live loop
//! records it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stokehold_protocol::requirements::{Requirements, SandboxLevel, Trust, Version};
use stokehold_units::{Mib, UsdMicros, gib, usd};

use crate::name::Name;

/// State of endpoints, machines and offers at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Unix time, seconds.
    pub at_s: f64,
    /// Endpoints that have or recently had work, sorted by name.
    pub endpoints: Vec<Endpoint>,
    /// Machines that are paid for, owned or expected, sorted by ID.
    pub machines: Vec<Machine>,
    /// Offers that can be rented or started now, sorted by ID.
    pub offers: Vec<Offer>,
}

/// An endpoint and its work. Counters only increase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// `<tenant>/<name>`; in a trace, the name of the endpoint.
    pub name: Name,
    /// Memory that the model takes of each of its GPUs; 0 runs on a machine without GPUs.
    #[serde(rename = "vram_gib", alias = "vram_gb", with = "gib")]
    pub vram: Mib,
    /// Requirements other than memory.
    #[serde(default)]
    pub demands: Requirements,
    /// Share of every GPU that the model takes, at least `vram`; `None`: it takes `vram`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_fraction: Option<f64>,
    /// By priority: interactive, standard, batch.
    pub work: [Work; 3],
    /// Jobs that machines run now.
    pub running: u64,
    /// Jobs that one process runs at once in one slot: `max_concurrency` times `max_batch_size`.
    #[serde(default = "one_at_once")]
    pub at_once: u32,
    /// Runs that have ended, by kind of GPU.
    #[serde(default)]
    pub runs: Vec<Runs>,
}

const fn one_at_once() -> u32 {
    1
}

/// Least number of models that share a GPU if neither its slots nor their memory limit it.
const SLOTS_MIN: f64 = 2.0;

impl Endpoint {
    /// Fraction of a machine that one process of the endpoint takes, with its `at_once` jobs: of the slots, or of the
    /// memory if that is more. `vram` and `slots` are those of one GPU of the machine.
    #[must_use]
    pub fn share(&self, vram: Mib, slots: u32) -> f64 {
        if self.demands.gpus > 1 {
            return 1.0;
        }
        let of_memory = if vram > Mib::ZERO && self.vram > Mib::ZERO {
            (self.vram.gib() / vram.gib()).max(self.vram_fraction.unwrap_or(0.0)).min(1.0)
        } else {
            0.0
        };
        match slots {
            0 if of_memory > 0.0 => of_memory,
            0 if vram > Mib::ZERO => 1.0 / SLOTS_MIN,
            0 => 1.0,
            slots => of_memory.max(1.0 / f64::from(slots)),
        }
    }
}

/// The jobs of one endpoint and priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Jobs that became ready since the counters began.
    pub arrived: u64,
    /// Jobs that wait now.
    pub waiting: u64,
    /// Waiting time of the oldest of them, seconds; 0 if none waits.
    pub oldest_s: f64,
    /// Jobs that started since the counters began.
    pub started: u64,
    /// Jobs among those that had waited for longer than the target of their class.
    pub late: u64,
}

/// Runs of one endpoint on one kind of GPU since its counters began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// Kind of GPU, as in [`Offer::kind`].
    pub kind: Name,
    /// Runs that have ended.
    pub ended: u64,
    /// Duration of these runs without loading, seconds.
    pub run_s: f64,
    /// Loads of the model from elsewhere.
    #[serde(default)]
    pub cold_loads: u64,
    /// Duration of `cold_loads`, seconds.
    #[serde(default)]
    pub cold_load_s: f64,
    /// Loads from the machine's own disk.
    #[serde(default)]
    pub disk_loads: u64,
    /// Duration of `disk_loads`, seconds.
    #[serde(default)]
    pub disk_load_s: f64,
}

/// Provider of machines whose workers joined by themselves. They count as capacity, but only their operator starts and
/// stops them.
pub const JOINED: &str = "joined";

/// Phase in the life of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The machine is rented, and its worker has not joined yet.
    Booting,
    /// The worker takes jobs.
    Ready,
    /// The worker takes no more jobs and runs the current ones to their end.
    Draining,
    /// The GPUs are given back; the disk is kept and charged.
    Stopped,
    /// The machine was stopped, and its start is requested.
    Resuming,
    /// The machine was outbid, or its worker is silent. It may come back by itself.
    Lost,
}

/// A machine that is paid for, owned, or expected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// ID of the machine in the autoscaler.
    pub id: Name,
    /// Provider of the machine, as in [`Offer::provider`].
    pub provider: Name,
    /// Kind of its GPUs, as in [`Offer::kind`].
    pub kind: Name,
    /// Host of the machine, as in [`Offer::host`]. Boot failures and losses are remembered per host.
    #[serde(default)]
    pub host: Name,
    /// Phase of the machine.
    pub phase: Phase,
    /// Start of the phase, unix seconds.
    pub since_s: f64,
    /// Time of the rent, unix seconds.
    pub rented_s: f64,
    /// Price per hour while it runs, with its disk; 0 for an owned machine.
    #[serde(with = "usd")]
    pub usd_per_hour: UsdMicros,
    /// Price per hour while it is stopped.
    #[serde(default, with = "usd")]
    pub stopped_usd_per_hour: UsdMicros,
    /// Whether a higher bid may take it away.
    #[serde(default)]
    pub is_interruptible: bool,
    /// Whether a stop keeps its disk, so that it can be resumed.
    #[serde(default)]
    pub can_stop: bool,
    /// Number of GPUs; 0 computes on the CPU.
    pub cards: u32,
    /// Memory of each GPU that models may use.
    #[serde(rename = "vram_gib", alias = "vram_gb", with = "gib")]
    pub vram: Mib,
    /// Jobs that run at once on a GPU: 1, or more if models share it; 0: as many as its memory allows.
    #[serde(default)]
    pub slots: u32,
    /// Properties that requirements other than memory refer to.
    #[serde(default)]
    pub traits: Traits,
    /// Jobs that it runs now.
    pub running: u64,
    /// GPU memory that those jobs use; known where models share a GPU.
    #[serde(default, rename = "running_gib", alias = "running_gb", with = "gib")]
    pub running_vram: Mib,
    /// Time since which it has run no job, unix seconds; the start of the phase if it has never run one.
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

/// Properties of a machine that requirements other than memory refer to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traits {
    /// Compute capability of each GPU.
    pub compute_capability: Option<Version>,
    /// Newest CUDA version that the driver supports.
    pub cuda: Option<Version>,
    /// Region of the machine.
    pub region: String,
    /// Trust level of the owner.
    pub trust: Trust,
    /// Sandbox level of handlers.
    pub sandbox: SandboxLevel,
}

/// An offer that can be rented or started now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The provider's ID of the offer.
    pub id: Name,
    /// Provider of the offer.
    pub provider: Name,
    /// Kind of GPU, e.g. `RTX 4090`. Learned speeds are kept by kind.
    pub kind: Name,
    /// Host of the offer; empty if unknown.
    #[serde(default)]
    pub host: Name,
    /// Number of machines that the offer provides.
    pub count: u32,
    /// GPUs per machine.
    pub cards: u32,
    /// GPUs of the host that the offer includes, if the provider reports them. Offers overlap: of two that share a GPU
    /// only one can be rented.
    #[serde(default)]
    pub gpu_ids: Vec<u64>,
    /// Memory of each GPU that models may use. Records of rented machines contain offers, which autoscalers of the
    /// previous release read: the name of the member stays.
    #[serde(rename = "vram_gb", alias = "vram_gib", with = "gib")]
    pub vram: Mib,
    /// See [`Machine::slots`].
    #[serde(default)]
    pub slots: u32,
    /// Assumed speed until it is measured; 1.0 is an RTX 4090.
    pub speed: f64,
    /// On-demand price per hour with the disk that will be rented.
    #[serde(with = "usd")]
    pub usd_per_hour: UsdMicros,
    /// Minimum bid per hour for an interruptible machine; `None` if there are none.
    #[serde(default, with = "usd::option")]
    pub min_bid_usd_per_hour: Option<UsdMicros>,
    /// Assumed losses of an interruptible machine per hour, until they are measured.
    #[serde(default)]
    pub losses_per_hour: f64,
    /// Price of the disk of a stopped machine per hour; `None`: it cannot be stopped.
    #[serde(default, with = "usd::option")]
    pub stopped_usd_per_hour: Option<UsdMicros>,
    /// Assumed time of a boot until it is measured, seconds.
    pub boot_s: f64,
    /// Price of a GB of inbound traffic.
    #[serde(default, with = "usd")]
    pub inbound_usd_per_gb: UsdMicros,
    /// Download rate, megabits per second; 0 if unknown.
    #[serde(default)]
    pub inbound_mbit_per_s: f64,
    /// Share of the time that the host was reachable, 0 to 1; 1 if unknown.
    #[serde(default = "always")]
    pub reliability: f64,
    /// Remaining time of the listing, seconds; `None` if it does not end.
    #[serde(default)]
    pub listed_for_s: Option<f64>,
    /// Properties that requirements other than memory refer to.
    #[serde(default)]
    pub traits: Traits,
    /// Whether it belongs to the operator. It costs nothing and is used first.
    #[serde(default)]
    pub is_owned: bool,
}

impl Offer {
    /// Reads a recorded offer. Members that cannot be read get their defaults, and the second value is true if there
    /// were any: another release may have written it, or a file was edited. Its machine exists and costs money in any
    /// case.
    #[must_use]
    pub fn recovered(recorded: &Value) -> (Self, bool) {
        let unread = match Self::deserialize(recorded) {
            Ok(offer) => return (offer, false),
            Err(_) => Self::unknown(),
        };
        let Ok(mut known) = serde_json::to_value(&unread) else { return (unread, true) };
        let mut offer = unread;
        for (member, value) in recorded.as_object().into_iter().flatten() {
            let member = if member == "vram_gib" { "vram_gb" } else { member };
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
            vram: Mib::ZERO,
            slots: 0,
            speed: 1.0,
            usd_per_hour: UsdMicros::ZERO,
            min_bid_usd_per_hour: None,
            losses_per_hour: 0.0,
            stopped_usd_per_hour: None,
            boot_s: 0.0,
            inbound_usd_per_gb: UsdMicros::ZERO,
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
        let written = serde_json::to_value(Offer::unknown()).unwrap();
        assert!(written.get("vram_gb").is_some(), "autoscalers of the previous release read it: {written}");
        let recorded = json!({"id": "77", "provider": "cloud", "kind": "RTX 4090", "host": 3, "count": 1, "cards": 2, "vram_gb": "24",
            "usd_per_hour": 0.35, "stopped_usd_per_hour": 0.01, "boot_s": 90.0, "of_a_later_release": true});
        let (offer, is_damaged) = Offer::recovered(&recorded);
        assert!(is_damaged);
        assert_eq!((&*offer.kind, &*offer.host, offer.cards, offer.vram), ("RTX 4090", "", 2, Mib::ZERO));
        assert_eq!(
            (offer.usd_per_hour, offer.stopped_usd_per_hour, offer.speed),
            (350_000.into(), Some(10_000.into()), 1.0)
        );
        for recorded in [json!(null), json!([1]), json!("x"), json!({})] {
            assert_eq!(Offer::recovered(&recorded), (Offer::unknown(), true), "{recorded}");
        }
        let whole = serde_json::to_value(&offer).unwrap_or_default();
        assert_eq!(Offer::recovered(&whole), (offer, false));
    }
    #[test]
    fn a_process_takes_its_part_of_the_slots_or_of_the_memory() {
        let share = |vram_gib: f64, vram_fraction: Option<f64>, card_gib: f64, slots: u32| {
            let endpoint = Endpoint {
                name: Name::default(),
                vram: Mib::from_gib(vram_gib),
                demands: Requirements::default(),
                vram_fraction,
                work: Default::default(),
                running: 0,
                at_once: 1,
                runs: Vec::new(),
            };
            endpoint.share(Mib::from_gib(card_gib), slots)
        };
        assert_eq!(
            [share(10.0, None, 40.0, 0), share(10.0, None, 40.0, 2), share(10.0, None, 40.0, 8)],
            [0.25, 0.5, 0.25]
        );
        assert_eq!([share(20.0, None, 24.0, 8), share(16.0, Some(0.9), 80.0, 8)], [20.0 / 24.0, 0.9]);
        assert_eq!([share(0.0, None, 24.0, 8), share(0.0, None, 0.0, 0)], [0.125, 1.0]);
        assert_eq!(share(0.0, None, 40.0, 0), 0.5, "else no machine would ever be rented for it");
    }
}
