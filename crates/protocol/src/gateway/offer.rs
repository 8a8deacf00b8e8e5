//! The capability of a worker, sent with every lease call, and the names of models.

use serde::{Deserialize, Serialize};

/// The current capability of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The largest VRAM class that it can take, GiB; 0 means CPU jobs only.
    pub reach_gib: u32,
    /// The same per GPU, for endpoints with requirements on GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<GpuCapability>,
    /// The loaded models that can take more jobs. Their jobs go first and need no further memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm: Vec<WarmModel>,
    /// Expected time to load another model, milliseconds.
    #[serde(default)]
    pub cold_ms: u64,
}

impl Offer {
    /// Whether this offer exceeds an earlier one: more room on a GPU, or a model that takes jobs and did not before.
    #[must_use]
    pub fn exceeds(&self, before: &Self) -> bool {
        let room_before = |index| before.cards.iter().find(|card| card.index == index);
        let has_more = |card: &GpuCapability| {
            let (reach_gib, whole_gib) =
                room_before(card.index).map_or((0, 0), |card| (card.reach_gib, card.whole_gib));
            card.reach_gib > reach_gib || card.whole_gib > whole_gib
        };
        let is_new = |warm: &WarmModel| before.warm.iter().all(|known| known.model != warm.model);
        self.cards.iter().any(has_more) || self.warm.iter().any(is_new)
    }
}

/// A reference to a model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelRef {
    /// The tenant that owns the endpoint.
    pub tenant: String,
    /// Name of the endpoint.
    pub endpoint: String,
    /// Version of the endpoint.
    pub version: u32,
}

/// A model that a worker has loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmModel {
    /// The model.
    #[serde(flatten)]
    pub model: ModelRef,
    /// Number of further jobs that it can take now.
    pub takes: u32,
    /// The VRAM class of the GPU that it is on, GiB; 0 is the CPU. It does not take jobs that have outgrown this class.
    #[serde(default)]
    pub card_gib: u32,
}

/// The current capability of one GPU of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCapability {
    /// The NVML index.
    pub index: u32,
    /// The largest VRAM class that it can take, GiB; 0 means nothing.
    pub reach_gib: u32,
    /// The same for a model that needs the whole GPU.
    #[serde(default)]
    pub whole_gib: u32,
}
