//! The memory of a GPU that an engine needs for a model.

use crate::error::Error;
use crate::format::Dtype;
use crate::kv::KvDtype;
use crate::shape::Shape;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Tokens of one step on a GPU below 70 GiB, and above. vLLM: `max_num_batched_tokens` of the API server (2,048 and
/// 8,192 in `EngineArgs.get_batch_defaults`); SGLang: `chunked_prefill_size` (2,048 up to 35 GiB, 8,192 above 60 GiB).
/// The engines are started with the first.
pub const BATCH_TOKENS: u64 = 2_048;

/// CUDA context, libraries and communication buffers that PyTorch does not count. vLLM measures 1.79 GiB for them with
/// Llama-3-8B on an H100 (pull request 10511) and 0.1 to 0.2 GiB beside a context of about 0.5 GiB in later reports.
const CONTEXT_BYTES: u64 = GIB;

/// CUDA graphs of vLLM: "CUDA graphs can take additional 1~3 GiB memory per GPU", as it logs. Graphs for at most 256
/// sequences are at the lower end.
const VLLM_GRAPHS_BYTES: u64 = GIB;

/// Buffers of NCCL and of custom all-reduce for each GPU of a group: SGLang reserves `tp_size / 8` GiB, at least this.
const PARALLEL_BYTES: u64 = 512 * MIB;

/// Bytes of logits for a token of the vocabulary while sampling: logits, probabilities and their logarithms in float32,
/// and an index of 32 bits for sorting.
const LOGIT_BYTES: u64 = 16;

/// Tokens of one step of llama.cpp: `--ubatch-size`.
const LLAMACPP_UBATCH: u64 = 512;

/// CUDA context of llama.cpp, which has no PyTorch.
const LLAMACPP_CONTEXT_BYTES: u64 = 512 * MIB;

/// An inference engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp.
    Llamacpp,
}

/// Settings of an engine that decide about memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The engine.
    pub engine: Engine,
    /// Longest sequence, prompt and answer together, in tokens.
    pub max_model_len: u64,
    /// Sequences of that length that must fit at the same time.
    pub sequences: u64,
    /// Sequences that are computed at the same time, of any length: vLLM holds the logits of all of them.
    pub concurrency: u64,
    /// GPUs that share the model.
    pub gpus: u64,
    /// Element type of the KV cache.
    pub kv_dtype: KvDtype,
    /// Element type of activations.
    pub dtype: Dtype,
    /// LoRA adapters on each GPU, in bytes.
    pub adapter_bytes: u64,
}

/// Memory of each GPU, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Weights.
    pub weights: u64,
    /// LoRA adapters.
    pub adapters: u64,
    /// KV cache of one sequence of the maximum length.
    pub kv_of_sequence: u64,
    /// KV cache of all sequences that must fit.
    pub kv: u64,
    /// Largest intermediate results.
    pub activations: u64,
    /// CUDA context, CUDA graphs and communication buffers.
    pub context: u64,
}

impl Estimate {
    /// All memory.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.loaded().saturating_add(self.kv).saturating_add(self.overhead())
    }

    /// Weights and adapters.
    #[must_use]
    pub fn loaded(&self) -> u64 {
        self.weights.saturating_add(self.adapters)
    }

    /// Memory besides weights, adapters and KV cache.
    #[must_use]
    pub fn overhead(&self) -> u64 {
        self.activations.saturating_add(self.context)
    }
}

/// Computes the memory of each GPU for a model whose weights have `weight_bytes`.
///
/// # Errors
/// If the attention heads cannot be divided among the GPUs.
pub fn estimate(shape: &Shape, weight_bytes: u64, settings: &Settings) -> Result<Estimate, Error> {
    let gpus = settings.gpus.max(1);
    let heads = shape.heads();
    if !heads.is_multiple_of(gpus) {
        return Err(Error::invalid(format!(
            "the model has {heads} attention heads, which {gpus} GPUs cannot share equally"
        )));
    }
    let kv_of_sequence = shape.kv_bytes(settings.max_model_len, BATCH_TOKENS, settings.kv_dtype, gpus);
    Ok(Estimate {
        weights: weight_bytes.div_ceil(gpus),
        adapters: settings.adapter_bytes,
        kv_of_sequence,
        kv: kv_of_sequence.saturating_mul(settings.sequences),
        activations: settings.engine.activations(shape, settings, gpus),
        context: settings.engine.context(gpus),
    })
}

impl Engine {
    fn activations(self, shape: &Shape, settings: &Settings, gpus: u64) -> u64 {
        match self {
            Self::Vllm => {
                shape.step_bytes(BATCH_TOKENS, settings.dtype, gpus) + settings.concurrency * shape.vocab * LOGIT_BYTES
            }
            // `reserved_mem` of `ServerArgs`: 512 MiB, 1.5 MiB for each token of a step, and 2 MiB for each sequence of
            // the CUDA graphs (up to 24 sequences below 35 GiB).
            Self::Sglang => (512 + BATCH_TOKENS * 3 / 2 + 24 * 2) * MIB,
            // A step holds the logits of all its tokens.
            Self::Llamacpp => {
                shape.step_bytes(LLAMACPP_UBATCH, Dtype::Float32, gpus) + LLAMACPP_UBATCH * shape.vocab * 4
            }
        }
    }

    fn context(self, gpus: u64) -> u64 {
        let parallel = if gpus > 1 { PARALLEL_BYTES.max(gpus * GIB / 8) } else { 0 };
        let own = match self {
            Self::Vllm => CONTEXT_BYTES + VLLM_GRAPHS_BYTES,
            // Its graphs are among the activations.
            Self::Sglang => CONTEXT_BYTES,
            Self::Llamacpp => LLAMACPP_CONTEXT_BYTES,
        };
        own + parallel
    }
}

impl Shape {
    fn heads(&self) -> u64 {
        match self.attention {
            crate::Attention::Grouped { heads, .. } | crate::Attention::Latent { heads, .. } => heads,
        }
    }

    /// Bytes of the largest step through a feed-forward network: its input, the residual, both inner results of a gated
    /// network and their product.
    fn step_bytes(&self, tokens: u64, dtype: Dtype, gpus: u64) -> u64 {
        let dense = self.mlp.intermediate;
        let routed = self.experts.as_ref().map_or(0, |experts| {
            // The inputs of the experts are copied for each expert of a token.
            experts.per_token * (experts.intermediate + self.hidden / 3) + experts.shared_intermediate
        });
        tokens * (2 * self.hidden + 3 * dense.max(routed).div_ceil(gpus)) * dtype.bytes()
    }
}
