//! The command lines of the engines.

use stokehold_model_size::BATCH_TOKENS;

use super::engine::{EngineName, KvCache};
use super::plan::{Plan, sglang_slots};

/// The command line, one group of words per line of the manifest. No engine logs requests: its lines are in the logs of
/// each job in progress.
pub(super) fn words(plan: &Plan) -> Vec<Vec<String>> {
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
            group(&["--disable-uvicorn-access-log"]),
        ],
        EngineName::Sglang => vec![
            group(&["python", "serve.py", "--port", "{port}"]),
            group(&["--vram-mib", "{vram_mib}", "--vram-fraction", "{vram_fraction}"]),
            option("--reserved-mib", &plan.reserved_mib()),
            option("--served-model-name", &plan.name),
            option("--context-length", &plan.max_model_len),
            option("--max-running-requests", &plan.concurrency),
            option("--chunked-prefill-size", &BATCH_TOKENS),
            group(&["--enable-metrics", "--log-level-http", "warning"]),
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
            lines.extend(plan.adapters.iter().map(|(_, path)| option("--lora", path)));
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
    if !plan.adapters.is_empty() {
        lines.extend(adapters(plan));
    }
    lines
}

/// The options for adapters. Requests name them as `ENDPOINT:ADAPTER`: SGLang divides the name at the colon, and for vLLM
/// that is the whole name.
fn adapters(plan: &Plan) -> [Vec<String>; 2] {
    let count = plan.adapters.len() as u64;
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (slots, mut paths) = match plan.engine {
        EngineName::Vllm => (
            words(&["--max-loras", &count.to_string(), "--max-lora-rank", &plan.lora_rank.to_string()]),
            words(&["--lora-modules"]),
        ),
        _ => (words(&["--max-loras-per-batch", &sglang_slots(count).to_string()]), words(&["--lora-paths"])),
    };
    for ((name, path), model) in plan.adapters.iter().zip(plan.adapter_models()) {
        let name = if plan.engine == EngineName::Vllm { &model } else { name };
        paths.push(format!("{name}={{weights}}/{path}"));
    }
    [[words(&["--enable-lora"]), slots].concat(), paths]
}
