//! Inference engines: their packages and command lines.

use stokehold_model_size::{BATCH_TOKENS, Engine, KvDtype};

use super::plan::Plan;

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

    /// The program of the folder that starts the engine, if it needs one: its name and text.
    pub(super) fn script(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Vllm => None,
            Self::Sglang => Some(("serve.py", include_str!("sglang.py"))),
            Self::Llamacpp => Some(("serve.py", include_str!("llamacpp.py"))),
        }
    }
}

/// The command line, one group of words per line of the manifest.
pub(super) fn command(plan: &Plan) -> Vec<Vec<String>> {
    let group = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let option = |name: &str, value: &dyn ToString| vec![name.to_owned(), value.to_string()];
    let mut lines = match plan.engine {
        EngineName::Vllm => vec![
            group(&["vllm", "serve", "{weights}"]),
            group(&["--host", "127.0.0.1", "--port", "{port}"]),
            option("--served-model-name", &plan.name),
            option("--max-model-len", &plan.max_model_len),
            option("--max-num-seqs", &plan.concurrency),
            option("--max-num-batched-tokens", &BATCH_TOKENS),
            group(&["--gpu-memory-utilization", "{vram_fraction}"]),
        ],
        EngineName::Sglang => vec![
            group(&["python", "serve.py", "--port", "{port}"]),
            group(&["--vram-mib", "{vram_mib}", "--vram-fraction", "{vram_fraction}"]),
            option("--reserved-mib", &plan.reserved_mib()),
            option("--served-model-name", &plan.name),
            option("--context-length", &plan.max_model_len),
            option("--max-running-requests", &plan.concurrency),
            option("--chunked-prefill-size", &BATCH_TOKENS),
        ],
        EngineName::Llamacpp => {
            let mut lines = vec![
                group(&["python", "serve.py", "--port", "{port}"]),
                option("--name", &plan.name),
                option("--parallel", &plan.concurrency),
                // Of all slots together.
                option("--ctx-size", &(plan.max_model_len * plan.concurrency)),
            ];
            lines.extend(plan.file.as_ref().map(|file| option("--model", file)));
            lines.extend((!plan.is_on_gpu).then(|| option("--gpu-layers", &0)));
            return lines;
        }
    };
    if plan.gpus > 1 {
        let name = if plan.engine == EngineName::Vllm { "--tensor-parallel-size" } else { "--tp-size" };
        lines.push(option(name, &plan.gpus));
    }
    lines.extend(plan.dtype.map(|dtype| option("--dtype", &dtype.as_str())));
    lines.extend(plan.quantization.as_ref().map(|method| option("--quantization", method)));
    if plan.kv_cache == KvCache::Fp8 {
        let name = if plan.engine == EngineName::Vllm { "fp8" } else { "fp8_e4m3" };
        lines.push(option("--kv-cache-dtype", &name));
    }
    lines
}
