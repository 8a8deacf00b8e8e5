//! Inference engines: their packages, programs and metrics.

use stokehold_model_size::{Engine, KvDtype};

/// An engine, as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EngineName {
    /// vLLM: safetensors, on GPUs
    Vllm,
    /// SGLang: safetensors, on GPUs
    Sglang,
    /// llama.cpp: .gguf files, on the CPU or a GPU
    Llamacpp,
}

/// The element type of the KV cache, as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KvCache {
    /// Two bytes, as the model
    Auto,
    /// One byte; needs a GPU that supports fp8
    Fp8,
}

impl KvCache {
    pub(super) fn dtype(self) -> KvDtype {
        match self {
            Self::Auto => KvDtype::Half,
            Self::Fp8 => KvDtype::Fp8,
        }
    }
}

impl EngineName {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Llamacpp => "llamacpp",
        }
    }

    pub(super) fn engine(self) -> Engine {
        match self {
            Self::Vllm => Engine::Vllm,
            Self::Sglang => Engine::Sglang,
            Self::Llamacpp => Engine::Llamacpp,
        }
    }

    /// The package of the engine at the version that the generated command line was written for.
    pub(super) fn requirement(self) -> &'static str {
        match self {
            Self::Vllm => "vllm==0.33.0",
            Self::Sglang => "sglang==0.5.23",
            Self::Llamacpp => "xllamacpp==2026.10.11549",
        }
    }

    /// The metric that shows that requests wait in the engine, and its limit. llama.cpp has a slot for each job.
    pub(super) fn busy(self) -> Option<&'static str> {
        match self {
            Self::Vllm => Some("vllm:num_requests_waiting > 0"),
            Self::Sglang => Some("sglang:num_queue_reqs > 0"),
            Self::Llamacpp => None,
        }
    }

    /// The program of the folder that starts the engine, if it needs one: its name and text.
    pub(super) fn script(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Vllm => None,
            Self::Sglang => Some(("serve.py", include_str!("sglang.py"))),
            Self::Llamacpp => Some(("serve.py", include_str!("llamacpp.py"))),
        }
    }
}
