//! What a worker can take, as sent with every lease call, and models by their names.

use serde::{Deserialize, Serialize};

/// What a worker can take now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The largest VRAM class, GiB; 0 takes CPU jobs only.
    pub reach_gib: u32,
    /// The same card by card, for endpoints that are particular about theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<CardReach>,
    /// The models it has loaded that take more jobs: these go first, and need no room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm: Vec<WarmModel>,
    /// What it takes there to load another, milliseconds.
    #[serde(default)]
    pub cold_ms: u64,
}

impl Offer {
    /// Whether it is more than another: more room on a card, or a model that takes jobs and did not.
    #[must_use]
    pub fn exceeds(&self, before: &Self) -> bool {
        let room_before = |index| before.cards.iter().find(|card| card.index == index);
        let has_more = |card: &CardReach| {
            let (reach_gib, whole_gib) =
                room_before(card.index).map_or((0, 0), |card| (card.reach_gib, card.whole_gib));
            card.reach_gib > reach_gib || card.whole_gib > whole_gib
        };
        let is_new = |warm: &WarmModel| before.warm.iter().all(|known| known.model != warm.model);
        self.cards.iter().any(has_more) || self.warm.iter().any(is_new)
    }
}

/// A model, named.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelRef {
    /// Whose it is.
    pub tenant: String,
    /// The endpoint.
    pub endpoint: String,
    /// And its version.
    pub version: u32,
}

/// A model that a worker has loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmModel {
    /// Which.
    #[serde(flatten)]
    pub model: ModelRef,
    /// How many jobs more it takes now.
    pub takes: u32,
    /// The class of card that it is on, GiB; 0 is the CPU. A job that has outgrown that is not for it.
    #[serde(default)]
    pub card_gib: u32,
}

/// What a card of a worker can take now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardReach {
    /// NVML's index.
    pub index: u32,
    /// The largest VRAM class, GiB; 0 takes nothing.
    pub reach_gib: u32,
    /// The same for a model that wants the card for itself.
    #[serde(default)]
    pub whole_gib: u32,
}
