//! Instances that are rented or started, and whose workers have not joined yet. Pure.

use serde::Deserialize;
use stokehold_queue::WorkerRecord;
use stokehold_queue::registry::{AutoscalerStatus, MachineRecord, MachineState};
use stokehold_queue::requirements::{Offer, Requirements, SandboxLevel, Trust, Version};
use stokehold_queue::vram::{mib_of_gib, sold_gib};

use super::rented::slots_of;

/// An instance whose worker has not joined yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coming {
    /// The GPU model; empty without GPUs.
    pub(crate) kind: String,
    /// Number of GPUs.
    pub(crate) cards: u32,
    pub(crate) step: ComingStep,
    /// Start of the step, Unix milliseconds.
    pub(crate) since_ms: u64,
    /// Time until its worker is expected to join, milliseconds; `None` if unknown, or if that time has passed.
    pub(crate) left_ms: Option<u64>,
    /// Whether that time has passed.
    pub(crate) is_late: bool,
    /// Number of such jobs that it runs at once.
    pub(crate) slots: u64,
}

/// What an instance does before its worker joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComingStep {
    /// The provider has not shown the instance in its list.
    Renting,
    /// The provider has the instance, and the instance boots.
    Booting,
    /// The instance was stopped, and starts again.
    Resuming,
}

/// Members of the autoscaler's offer, as recorded at the rental. All have defaults: another release may have written
/// the offer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Offered {
    kind: String,
    cards: u32,
    #[serde(alias = "vram_gb")]
    vram_gib: f64,
    boot_s: f64,
    traits: Traits,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Traits {
    compute_capability: Option<Version>,
    cuda: Option<Version>,
    region: String,
    trust: Trust,
    sandbox: SandboxLevel,
}

impl Offered {
    /// Number of jobs of this class and with these requirements that the instance will run at once; 0 if it cannot run
    /// them. The same conditions as the autoscaler's.
    fn slots(&self, demands: &Requirements, class_gib: u32, all: u32) -> u64 {
        let gib = sold_gib(mib_of_gib(self.vram_gib));
        let has_gpus = class_gib == 0 || gib >= class_gib && self.cards >= demands.gpus;
        let is_met = demands.is_met_by_kind(&self.kind, || self.traits.compute_capability);
        let met_gpus = if has_gpus && demands.asks_of_gpus() && is_met { self.cards as usize } else { 0 };
        let offer = Offer {
            gpus: &[],
            cuda: self.traits.cuda,
            region: &self.traits.region,
            trust: self.traits.trust,
            sandbox: self.traits.sandbox,
        };
        if !has_gpus || demands.unmet(&offer, met_gpus).is_some() {
            return 0;
        }
        slots_on(all, (0..self.cards).map(|_| gib), class_gib, demands.gpus)
    }
}

/// Number of jobs of a class that run at once on a worker with these slots and GPUs: limited by the memory of the GPUs
/// if the class needs any. At least 1.
pub(crate) fn slots_on(slots: u32, cards_gib: impl Iterator<Item = u32>, class_gib: u32, gpus: u32) -> u64 {
    if class_gib == 0 {
        return u64::from(slots.max(1));
    }
    let room: u64 = cards_gib.map(|gib| u64::from(gib / class_gib)).sum();
    u64::from(slots).min(room / u64::from(gpus.max(1))).max(1)
}

/// The coming instances that will run jobs of this class with these requirements; the first one to be ready first.
///
/// An instance is expected to be ready a usual boot after its rental: the autoscaler's mean for the GPU model, else the
/// value in the offer. `left = boot - (now - rental)`. Example: with a usual boot of 40 s, 35 s are left 5 s after the
/// rental; after 40 s the instance is late, and nothing is estimated.
pub(crate) fn coming<'a>(
    machines: impl Iterator<Item = &'a MachineRecord>,
    workers: &[WorkerRecord],
    status: Option<&AutoscalerStatus>,
    (demands, class_gib): (&Requirements, u32),
    (now_ms, silent_ms): (u64, u64),
) -> Vec<Coming> {
    let of = |machine: &MachineRecord| {
        if machine.drained_ms.is_some() {
            return None;
        }
        let (state, wanted_ms) = machine.state(machine.worker(workers), now_ms, silent_ms);
        let is_resuming = match state {
            MachineState::Booting => false,
            MachineState::Resuming => true,
            _ => return None,
        };
        let offered = Offered::deserialize(&machine.offer).ok()?;
        let slots = offered.slots(demands, class_gib, slots_of(machine));
        if slots == 0 {
            return None;
        }
        let (step, since_ms) = match machine.listed_ms {
            _ if is_resuming => (ComingStep::Resuming, wanted_ms),
            Some(listed_ms) => (ComingStep::Booting, listed_ms.max(wanted_ms)),
            None => (ComingStep::Renting, wanted_ms),
        };
        let learned_s = status.and_then(|status| match is_resuming {
            true => status.resume_s,
            false => status.boots_s.get(&offered.kind).copied(),
        });
        let offered_ms = (!is_resuming && offered.boot_s > 0.0).then(|| whole_ms(offered.boot_s));
        let usual_ms = learned_s.map(|seconds| seconds.saturating_mul(1_000)).or(offered_ms);
        let left_ms = usual_ms.map(|usual_ms| usual_ms.saturating_sub(now_ms.saturating_sub(wanted_ms)));
        Some(Coming {
            cards: offered.cards,
            kind: offered.kind,
            step,
            since_ms,
            left_ms: left_ms.filter(|left_ms| *left_ms > 0),
            is_late: left_ms == Some(0),
            slots,
        })
    };
    let mut coming: Vec<Coming> = machines.filter_map(of).collect();
    coming.sort_by_key(|one| (one.left_ms.is_none(), one.left_ms, one.since_ms));
    coming
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a boot, not negative")]
fn whole_ms(seconds: f64) -> u64 {
    (seconds * 1_000.0) as u64
}

impl Coming {
    /// The instance in words, e.g. `an RTX 4090`, `4 × H100`, or `an instance` without GPUs.
    pub(crate) fn words(&self) -> String {
        match (self.cards, self.kind.as_str()) {
            (0, _) | (_, "") => "an instance".to_owned(),
            (1, kind) => format!("{} {kind}", article(kind)),
            (cards, kind) => format!("{cards} × {kind}"),
        }
    }
}

/// The indefinite article before the name of a GPU. Abbreviations are read letter by letter: an RTX 4090, an H100, a
/// T4, a Tesla V100.
fn article(name: &str) -> &'static str {
    let mut letters = name.chars();
    let (first, second) = (letters.next().unwrap_or(' '), letters.next().unwrap_or(' '));
    let is_word = second.is_ascii_lowercase();
    let sounds_open = if is_word { "AEIOUaeiou" } else { "AEFHILMNORSX8" };
    if sounds_open.contains(first) { "an" } else { "a" }
}

#[cfg(test)]
mod tests;
