//! The number of parameters of a model, by what they are used for: quantization covers some groups only.

use crate::shape::{Attention, Shape};

/// Numbers of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parameters {
    /// Input embedding and output head.
    pub embeddings: u64,
    /// Matrices of the attention.
    pub attention: u64,
    /// Matrices of dense feed-forward networks and shared experts.
    pub mlp: u64,
    /// Matrices of routed experts.
    pub experts: u64,
    /// Norms, biases and routers, which stay in the model's own type.
    pub other: u64,
}

impl Parameters {
    /// All parameters.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.embeddings + self.attention + self.mlp + self.experts + self.other
    }
}

impl Shape {
    /// Counts the parameters.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let hidden = self.hidden;
        let embedding = self.vocab * hidden;
        let norm = if self.has_norm_bias { 2 * hidden } else { hidden };
        let (attention, attention_other) = self.attention.parameters(hidden);
        let dense_layers = self.layers - self.experts.as_ref().map_or(0, |experts| experts.layers);
        let mut all = Parameters {
            embeddings: if self.is_tied { embedding } else { 2 * embedding },
            attention: self.layers * attention,
            mlp: dense_layers * self.mlp.matrices * hidden * self.mlp.intermediate,
            experts: 0,
            other: self.layers * (self.norms * norm + attention_other) + norm,
        };
        if self.mlp.has_bias {
            // The inner matrices have a bias of the inner width, the last one of the hidden width.
            all.other += dense_layers * ((self.mlp.matrices - 1) * self.mlp.intermediate + hidden);
        }
        if let Some(experts) = &self.experts {
            let matrices = self.mlp.matrices;
            all.experts = experts.layers * experts.count * matrices * hidden * experts.intermediate;
            all.mlp += experts.layers * matrices * hidden * experts.shared_intermediate;
            all.other += experts.layers * (hidden * experts.count + experts.router_extra);
            if experts.has_bias {
                let bias = (matrices - 1) * experts.intermediate + hidden;
                all.other += experts.layers * experts.count * bias;
            }
        }
        all
    }
}

impl Attention {
    /// Elements of the matrices of a layer, and of its biases and norms.
    fn parameters(&self, hidden: u64) -> (u64, u64) {
        match *self {
            Self::Grouped { heads, kv_heads, head_dim, has_qkv_bias, has_output_bias, qk_norm, extra } => {
                let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
                let matrices = hidden * queries + 2 * hidden * keys + queries * hidden;
                let qkv_bias = if has_qkv_bias { queries + 2 * keys } else { 0 };
                let output_bias = if has_output_bias { hidden } else { 0 };
                (matrices, qkv_bias + output_bias + qk_norm + extra)
            }
            Self::Latent { heads, q_rank, kv_rank, nope_dim, rope_dim, value_dim } => {
                let queries = heads * (nope_dim + rope_dim);
                let query = if q_rank == 0 { hidden * queries } else { hidden * q_rank + q_rank * queries };
                let down = hidden * (kv_rank + rope_dim);
                let up = kv_rank * heads * (nope_dim + value_dim);
                let output = heads * value_dim * hidden;
                (query + down + up + output, q_rank + kv_rank)
            }
        }
    }
}
