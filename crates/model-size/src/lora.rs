//! The memory of LoRA adapters.

use crate::format::Dtype;
use crate::shape::{Attention, Experts, Shape};

impl Shape {
    /// Parameters of a LoRA adapter of this rank that changes every matrix of the layers: for each matrix two factors,
    /// of `rank` times its inputs and of `rank` times its outputs. Engines reserve as much for each adapter in a step,
    /// whatever the adapter changes.
    #[must_use]
    pub fn adapter_parameters(&self, rank: u64) -> u64 {
        let expert_layers = self.experts.as_ref().map_or(0, |experts| experts.layers);
        let dense = self.mlp.matrices * (self.hidden + self.mlp.intermediate);
        let routed = self.experts.as_ref().map_or(0, |experts| experts.sides(self.hidden, self.mlp.matrices));
        let layers = self.layers * self.attention.sides(self.hidden)
            + self.layers.saturating_sub(expert_layers) * dense
            + expert_layers * routed;
        layers.saturating_mul(rank)
    }

    /// Bytes of such an adapter. Each GPU of a group is taken to hold all of it: vLLM divides half of it by default.
    #[must_use]
    pub fn adapter_bytes(&self, rank: u64, dtype: Dtype) -> u64 {
        self.adapter_parameters(rank).saturating_mul(dtype.bytes())
    }
}

impl Attention {
    /// Inputs and outputs of all matrices together.
    fn sides(&self, hidden: u64) -> u64 {
        match *self {
            Self::Grouped { heads, kv_heads, head_dim, .. } => {
                // Queries and the output, keys and values.
                2 * (hidden + heads * head_dim) + 2 * (hidden + kv_heads * head_dim)
            }
            Self::Latent { heads, q_rank, kv_rank, nope_dim, rope_dim, value_dim } => {
                let queries = heads * (nope_dim + rope_dim);
                let from = if q_rank == 0 { hidden + queries } else { hidden + q_rank + q_rank + queries };
                let values = hidden + kv_rank + rope_dim + kv_rank + heads * (nope_dim + value_dim);
                from + values + heads * value_dim + hidden
            }
        }
    }
}

impl Experts {
    /// Inputs and outputs of all matrices of a layer together.
    fn sides(&self, hidden: u64, matrices: u64) -> u64 {
        let shared = if self.shared_intermediate == 0 { 0 } else { hidden + self.shared_intermediate };
        matrices * (self.count * (hidden + self.intermediate) + shared)
    }
}
