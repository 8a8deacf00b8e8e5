//! `stoke serve`: writes and deploys the folder of a language model behind an inference engine.

mod adapter;
mod command;
mod engine;
mod folder;
mod model;
mod plan;
mod report;
mod source;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use stokehold_package::Overlay;

use crate::client::Client;
use crate::deploy::{Builder, Deployed};
use crate::failure::Failure;
use crate::{Global, output};
use engine::{EngineName, KvCache};

/// Deploy a language model behind an inference engine
///
/// Writes a folder with a stoke.toml and deploys it. The GPU memory is computed from the model's config.json.
/// The endpoint takes requests in the format of OpenAI's API.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke serve hf://Qwen/Qwen3-8B
  stoke serve hf://Qwen/Qwen3-8B --engine sglang --name chat --max-model-len 16384
  stoke serve models/tiny.gguf --name tiny
  stoke serve hf://Qwen/Qwen3-8B --name chat --lora sql=hf://acme/qwen3-sql --lora mail=adapters/mail
  stoke serve hf://Qwen/Qwen3-8B --config config.json --dry-run")]
pub(crate) struct ServeArgs {
    /// hf://ORG/MODEL[@REVISION][/FILE.gguf], a folder with config.json and safetensors files, or a .gguf file
    model: String,
    /// Inference engine [default: llamacpp for a .gguf file, else vllm]
    #[arg(long, value_enum)]
    engine: Option<EngineName>,
    /// Endpoint name, which is also the model's name in requests [default: from the model's name]
    #[arg(long)]
    name: Option<String>,
    /// Longest sequence, prompt and answer together, in tokens [default: that of the model, at most 16384; llamacpp: 4096]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=1 << 27))]
    max_model_len: Option<u64>,
    /// Element type of weights and activations [default: that of the model]
    #[arg(long, value_name = "TYPE", value_parser = ["float16", "bfloat16", "float32"])]
    dtype: Option<String>,
    /// Quantization: fp8 or bitsandbytes of unquantized weights, or the method of the quantized weights
    #[arg(long, value_name = "METHOD")]
    quantization: Option<String>,
    /// Element type of the KV cache
    #[arg(long, value_name = "TYPE", value_enum, default_value_t = KvCache::Auto)]
    kv_cache_dtype: KvCache,
    /// GPUs that share the model [default: as many as it takes with 80 GiB each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    tensor_parallel: Option<u64>,
    /// Sequences of the maximum length whose KV cache must fit [default: 1; llamacpp: the concurrency]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    sequences: Option<u64>,
    /// Jobs at once in one engine [default: what fits into the smallest GPU, at most 64; llamacpp: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    concurrency: Option<u64>,
    /// Run on the GPU with a llamacpp package that supports it; see --requirement
    #[arg(long)]
    gpu: bool,
    /// LoRA adapter, served as the model ENDPOINT:NAME: hf://ORG/ADAPTER[@REVISION] or a folder; llamacpp: a .gguf file (repeatable)
    #[arg(long, value_name = "NAME=ADAPTER")]
    lora: Vec<String>,
    /// Largest rank of the adapters [default: from their adapter_config.json]
    #[arg(long, value_name = "RANK", requires = "lora", value_parser = clap::value_parser!(u64).range(1..=1_024))]
    max_lora_rank: Option<u64>,
    /// Python package of the engine, instead of the pinned one, e.g. vllm==0.33.0
    #[arg(long, value_name = "LINE")]
    requirement: Option<String>,
    /// config.json of the model, or a folder with it, for the computation without the network
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Folder to write [default: a folder with the endpoint's name]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the files and the computation, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(global: &Global, args: ServeArgs) -> Result<()> {
    let model = model::load(&args).await?;
    let plan = plan::plan(&args, &model)?;
    let files = folder::files(&args, &model, &plan);
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from(&plan.name));
    let mut document = report::json(&model, &plan, &folder, &files);
    if args.dry_run {
        return if global.json { output::json(&document) } else { report::dry_run(&model, &plan, &folder, &files) };
    }
    // Before anything is written: without a token, the deploy fails.
    let client = Client::connect(global)?;
    folder::write(&folder, &files)?;
    if !global.json {
        report::computation(&model, &plan)?;
        output::line(format_args!("wrote {}", folder.display()))?;
    }
    let target = folder.to_str().ok_or_else(|| Failure::usage(format!("{} is not UTF-8", folder.display())))?;
    let deployed = Builder::open().await?.deploy(&client, target, Overlay::default(), 100).await?;
    if global.json {
        document["deployed"] = deployed.version;
        return output::json(&document);
    }
    report_deployed(&deployed, &plan.name)
}

fn report_deployed(deployed: &Deployed, name: &str) -> Result<()> {
    let news = if deployed.is_new { "" } else { " (unchanged)" };
    output::line(format_args!("{}{news}", output::bold(format_args!("deployed {}", deployed.name()))))?;
    output::line(format_args!("  try it  stoke submit {name} --wait --input '{}'", example(name)))
}

/// An input that asks for a short answer.
fn example(name: &str) -> Value {
    let messages = json!([{"role": "user", "content": "Hello!"}]);
    json!({"path": "/v1/chat/completions", "body": {"model": name, "messages": messages, "max_tokens": 64}})
}
