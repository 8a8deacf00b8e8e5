//! The report of the computation, as a table and as JSON.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::engine::{EngineName, KvCache};
use super::folder::Written;
use super::model::Model;
use super::plan::{Plan, gib};
use crate::output;

/// The parts of the memory: name, bytes, and what they are computed from.
pub(super) fn rows(model: &Model, plan: &Plan) -> Vec<(&'static str, u64, String)> {
    let parameters =
        model.parameter_count.map_or(String::new(), |count| format!("{} parameters, ", output::count(count)));
    let parts = if plan.gpus > 1 { format!(", a part of {}", plan.gpus) } else { String::new() };
    let sequences = if plan.sequences == 1 { "sequence" } else { "sequences" };
    let kv_type = match (plan.engine, plan.kv_cache) {
        (_, KvCache::Fp8) => "fp8",
        (EngineName::Llamacpp, _) => "float16",
        _ => "16 bits",
    };
    let estimate = &plan.estimate;
    let mut rows = vec![("weights", estimate.weights, format!("{parameters}{}{parts}", stored(model, plan)))];
    if !plan.adapters.is_empty() {
        rows.push(("adapters", estimate.adapters, adapters(plan)));
    }
    rows.extend([
        (
            "KV cache",
            estimate.kv,
            format!("{} {sequences} of {} tokens in {kv_type}", plan.sequences, output::count(plan.max_model_len)),
        ),
        ("activations", estimate.activations, activations(plan)),
        ("context, graphs, buffers", estimate.context, context(plan)),
    ]);
    rows
}

fn stored(model: &Model, plan: &Plan) -> String {
    let is_loaded_as = plan.quantization.as_ref().filter(|_| model.format.is_none());
    match (is_loaded_as, &model.format, &model.file) {
        (Some(method), _, _) => format!("quantized while loading: {method}"),
        (None, Some(format), _) => format.name.clone(),
        (None, None, Some(_)) => "types of the .gguf file".to_owned(),
        (None, None, None) => plan.dtype.unwrap_or(model.dtype).as_str().to_owned(),
    }
}

fn adapters(plan: &Plan) -> String {
    let count = plan.adapters.len();
    match plan.engine {
        EngineName::Llamacpp => "size of the .gguf file".to_owned(),
        EngineName::Vllm => format!("{count} of rank {}", plan.lora_rank),
        EngineName::Sglang => format!("{count} of rank {}, and a place for requests without one", plan.lora_rank),
    }
}

fn activations(plan: &Plan) -> String {
    match plan.engine {
        EngineName::Vllm => format!("a step of 2,048 tokens, logits of {} sequences", plan.logits),
        EngineName::Sglang => "a step of 2,048 tokens, CUDA graphs".to_owned(),
        EngineName::Llamacpp => "a step of 512 tokens".to_owned(),
    }
}

fn context(plan: &Plan) -> String {
    match (plan.engine, plan.is_on_gpu) {
        (EngineName::Vllm, _) => "CUDA context, CUDA graphs".to_owned(),
        (_, true) => "CUDA context".to_owned(),
        (_, false) => "buffers of the backend".to_owned(),
    }
}

/// Prints the memory and the settings that follow from it.
pub(super) fn computation(model: &Model, plan: &Plan) -> Result<()> {
    let gpus = match (plan.is_on_gpu, plan.gpus) {
        (false, _) => "the CPU".to_owned(),
        (true, 1) => "1 GPU".to_owned(),
        (true, gpus) => format!("{gpus} GPUs, memory of each"),
    };
    output::line(output::bold(format_args!(
        "{} ({}) with {} on {gpus}",
        model.title,
        model.family,
        plan.engine.as_str()
    )))?;
    for (what, bytes, note) in rows(model, plan) {
        output::line(format_args!("  {what:<26}{:>8.2} GiB   {note}", gib(bytes)))?;
    }
    output::line(format_args!(
        "  {:<26}{:>8.2} GiB   weights from {}",
        "total",
        gib(plan.estimate.total()),
        model.size_from
    ))?;
    let fraction = plan.vram_fraction().map_or(String::new(), |fraction| format!(", vram_fraction = {fraction}"));
    output::line(format_args!(
        "  vram_gib = {}{fraction}, {} jobs at once, {} KiB of KV cache per token",
        plan.vram_gib(),
        plan.concurrency,
        output::count(plan.kv_bytes_per_token.div_ceil(1024))
    ))
}

/// Prints the files and the computation.
pub(super) fn dry_run(model: &Model, plan: &Plan, folder: &Path, files: &[Written]) -> Result<()> {
    for file in files {
        output::line(output::bold(format_args!("{}", folder.join(file.name).display())))?;
        for line in file.text.lines() {
            output::line(format_args!("  {line}").to_string().trim_end())?;
        }
        output::line("")?;
    }
    computation(model, plan)?;
    output::line("nothing was written or deployed (--dry-run)")
}

/// The document of `--json`.
pub(super) fn json(model: &Model, plan: &Plan, folder: &Path, files: &[Written]) -> Value {
    let estimate = &plan.estimate;
    let models = plan.adapter_models().zip(&model.adapters);
    let adapters: Vec<Value> =
        models.map(|(model, adapter)| json!({"model": model, "source": adapter.source.source})).collect();
    let files: Vec<Value> = files.iter().map(|file| json!({"name": file.name, "text": file.text})).collect();
    json!({
        "name": plan.name,
        "engine": plan.engine.as_str(),
        "requirement": plan.requirement,
        "folder": folder,
        "files": files,
        "model": {
            "family": model.family,
            "parameters": model.parameter_count,
            "context_tokens": model.context,
            "weights_from": model.size_from,
            "weights": model.sources.iter().map(|one| &one.source).collect::<Vec<_>>(),
        },
        "adapters": adapters,
        "gpus": if plan.is_on_gpu { plan.gpus } else { 0 },
        "max_model_len": plan.max_model_len,
        "concurrency": plan.concurrency,
        "vram_gib": plan.vram_gib(),
        "vram_fraction": plan.vram_fraction(),
        "memory_bytes": {
            "weights": estimate.weights,
            "adapters": estimate.adapters,
            "kv_cache": estimate.kv,
            "kv_cache_per_sequence": estimate.kv_of_sequence,
            "kv_cache_per_token": plan.kv_bytes_per_token,
            "activations": estimate.activations,
            "context": estimate.context,
            "total": estimate.total(),
        },
        "deployed": null,
    })
}
