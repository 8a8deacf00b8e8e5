//! The KV cache of a sequence.

use crate::shape::{Attention, Shape};

/// Tokens in a block of vLLM's cache, which is allocated in whole blocks.
const BLOCK_TOKENS: u64 = 16;

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvDtype {
    /// Two bytes: float16 or bfloat16.
    Half,
    /// One byte: fp8.
    Fp8,
}

impl KvDtype {
    fn bytes(self) -> u64 {
        match self {
            Self::Half => 2,
            Self::Fp8 => 1,
        }
    }
}

impl Shape {
    /// Bytes of one token in one layer on each of `gpus`. Key and value heads are divided among the GPUs, at least one
    /// for each. A compressed vector is on every GPU.
    fn kv_bytes_of_layer(&self, dtype: KvDtype, gpus: u64) -> u64 {
        let elements = match self.attention {
            Attention::Grouped { kv_heads, head_dim, .. } => 2 * kv_heads.div_ceil(gpus.max(1)) * head_dim,
            Attention::Latent { kv_rank, rope_dim, .. } => kv_rank + rope_dim,
        };
        elements * dtype.bytes()
    }

    /// Bytes of one more token of a long sequence, on each of `gpus`.
    #[must_use]
    pub fn kv_bytes_per_token(&self, dtype: KvDtype, gpus: u64) -> u64 {
        let growing = self.layers.saturating_sub(self.windows.layers + self.windows.stateless_layers);
        growing * self.kv_bytes_of_layer(dtype, gpus)
    }

    /// Bytes of a sequence of `tokens`, on each of `gpus`. A layer with a window keeps the tokens of the window and of
    /// the step in progress (`SlidingWindowSpec` of vLLM: `window - 1 + max_num_batched_tokens`).
    #[must_use]
    pub fn kv_bytes(&self, tokens: u64, batch_tokens: u64, dtype: KvDtype, gpus: u64) -> u64 {
        let blocks = |tokens: u64| tokens.div_ceil(BLOCK_TOKENS) * BLOCK_TOKENS;
        let whole = self.kv_bytes_per_token(dtype, gpus).saturating_mul(blocks(tokens));
        let kept = (self.windows.tokens.saturating_sub(1) + batch_tokens).min(tokens);
        let windowed = (self.windows.layers * self.kv_bytes_of_layer(dtype, gpus)).saturating_mul(blocks(kept));
        whole.saturating_add(windowed)
    }
}
