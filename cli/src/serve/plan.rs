//! The settings of an engine for a model, and the memory that they take.

use anyhow::Result;
use stokehold_model_size::{BATCH_TOKENS, Dtype, Estimate, Format, KvDtype, Settings, estimate};
use stokehold_queue::names::is_name;
use stokehold_queue::vram::{DECLARED_MAX_GIB, SOLD_GIB};

use super::ServeArgs;
use super::adapter;
use super::engine::{EngineName, KvCache};
use super::model::Model;
use super::source::usage;

/// Share of a GPU that vLLM and SGLang fill. The worker keeps a twentieth of the GPU free.
pub(super) const VRAM_FRACTION: f64 = 0.9;

/// Default of the longest sequence, if the model was made for longer ones.
const MAX_MODEL_LEN: u64 = 16_384;
const MAX_MODEL_LEN_LLAMACPP: u64 = 4_096;

/// Default concurrency of llama.cpp, as that of its own server.
const CONCURRENCY_LLAMACPP: u64 = 4;

/// Bounds of the default concurrency. The memory is computed for the upper one. Below the lower one, a larger GPU than the
/// smallest would be idle much of the time.
const CONCURRENCY: std::ops::RangeInclusive<u64> = 16..=64;

/// Length of a sequence that the default concurrency assumes: a prompt and an answer of about a page each.
const TYPICAL_TOKENS: u64 = 1_024;

/// Memory of the GPUs that large models are divided among by default.
const GPU_GIB: f64 = 80.0;

const GIB: f64 = (1_u64 << 30) as f64;

/// The settings of an endpoint.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) engine: EngineName,
    /// Python package.
    pub(super) requirement: String,
    pub(super) max_model_len: u64,
    /// Sequences of the maximum length that fit.
    pub(super) sequences: u64,
    /// Jobs at once.
    pub(super) concurrency: u64,
    /// Sequences whose logits the estimate includes.
    pub(super) logits: u64,
    pub(super) gpus: u64,
    pub(super) is_on_gpu: bool,
    /// Element type, if it is set.
    pub(super) dtype: Option<Dtype>,
    pub(super) quantization: Option<String>,
    pub(super) kv_cache: KvCache,
    /// Name of the .gguf file in the folder of the weights.
    pub(super) file: Option<String>,
    /// Name and path of each adapter; the path is relative to the folder of the weights.
    pub(super) adapters: Vec<(String, String)>,
    /// Rank that the engine is started for; 0 without adapters and for llama.cpp.
    pub(super) lora_rank: u64,
    pub(super) estimate: Estimate,
    /// KV cache of one more token, in bytes.
    pub(super) kv_bytes_per_token: u64,
}

impl Plan {
    /// The memory that a GPU must have at least, in GiB, rounded up to a tenth.
    pub(super) fn total_gib(&self) -> f64 {
        (gib(self.estimate.total()) * 10.0).ceil() / 10.0
    }

    /// `vram_gib` of the manifest.
    pub(super) fn vram_gib(&self) -> f64 {
        if self.is_on_gpu { self.total_gib() } else { 0.0 }
    }

    /// `vram_fraction` of the manifest.
    pub(super) fn vram_fraction(&self) -> Option<f64> {
        (self.engine != EngineName::Llamacpp).then_some(VRAM_FRACTION)
    }

    /// The models of the adapters in requests. The name of an endpoint has no colon, so none of them is another endpoint.
    pub(super) fn adapter_models(&self) -> impl Iterator<Item = String> {
        self.adapters.iter().map(|(name, _)| format!("{}:{name}", self.name))
    }

    /// Memory besides weights, adapters and KV cache.
    pub(super) fn reserved_mib(&self) -> u64 {
        self.estimate.overhead().div_ceil(1 << 20)
    }
}

/// Converts bytes to GiB.
#[expect(clippy::cast_precision_loss, reason = "for display and for sizes with one decimal")]
pub(super) fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB
}

/// Chooses the settings that are not given, and computes the memory.
pub(super) fn plan(args: &ServeArgs, model: &Model) -> Result<Plan> {
    let engine = model.engine;
    check(args, engine)?;
    let is_llamacpp = engine == EngineName::Llamacpp;
    let max_model_len = max_model_len(args, model)?;
    let default = if is_llamacpp { CONCURRENCY_LLAMACPP } else { *CONCURRENCY.end() };
    let concurrency = args.concurrency.unwrap_or(default);
    let dtype = args.dtype.as_deref().map(Dtype::parse).transpose().map_err(usage)?;
    // Engines load weights in float32 as float16 or bfloat16.
    let of_weights = dtype.unwrap_or(if model.dtype == Dtype::Float32 { Dtype::Bfloat16 } else { model.dtype });
    let weight_bytes = weight_bytes(args, model, of_weights)?;
    let lora_rank = adapter::max_rank(args, model.engine, &model.adapters)?;
    let settings = Settings {
        engine: engine.engine(),
        max_model_len,
        // llama.cpp allocates the cache of all its slots.
        sequences: args.sequences.unwrap_or(if is_llamacpp { concurrency } else { 1 }),
        concurrency,
        gpus: 1,
        kv_dtype: args.kv_cache_dtype.dtype(),
        dtype: of_weights,
        adapter_bytes: adapter_bytes(model, lora_rank, of_weights),
    };
    let is_on_gpu = !is_llamacpp || args.gpu;
    let (gpus, estimate) = gpus(args, model, weight_bytes, &settings)?;
    let mut plan = Plan {
        name: args.name.clone().unwrap_or_else(|| model.endpoint_name()),
        engine,
        requirement: args.requirement.clone().unwrap_or_else(|| engine.requirement().to_owned()),
        max_model_len,
        sequences: settings.sequences,
        concurrency,
        logits: concurrency,
        gpus,
        is_on_gpu,
        dtype,
        quantization: args.quantization.clone(),
        kv_cache: args.kv_cache_dtype,
        file: model.file.clone(),
        adapters: model.adapters.iter().map(|one| (one.name.clone(), one.path().to_owned())).collect(),
        lora_rank,
        estimate,
        kv_bytes_per_token: model.shape.kv_bytes_per_token(settings.kv_dtype, gpus),
    };
    if args.concurrency.is_none() && !is_llamacpp {
        plan.concurrency = default_concurrency(&plan, model, settings.kv_dtype);
    }
    check_name(&plan.name)?;
    if plan.vram_gib() > f64::from(DECLARED_MAX_GIB) {
        let total = plan.total_gib();
        return Err(usage(format!(
            "the model needs {total} GiB on each GPU, and no GPU has as much; use more GPUs with --tensor-parallel, a smaller --max-model-len, or quantized weights"
        )));
    }
    Ok(plan)
}

fn check(args: &ServeArgs, engine: EngineName) -> Result<()> {
    if engine != EngineName::Llamacpp {
        return if args.gpu {
            Err(usage(format!("{} always runs on a GPU; leave out --gpu", engine.as_str())))
        } else {
            Ok(())
        };
    }
    let given = [
        ("--dtype", args.dtype.is_some()),
        ("--quantization", args.quantization.is_some()),
        ("--tensor-parallel", args.tensor_parallel.is_some_and(|gpus| gpus > 1)),
        ("--kv-cache-dtype", args.kv_cache_dtype == KvCache::Fp8),
    ];
    if let Some((name, _)) = given.iter().find(|(_, is_given)| *is_given) {
        return Err(usage(format!("{name} is not for llamacpp: a .gguf file has its own types, and runs on one GPU")));
    }
    if args.gpu && args.requirement.is_none() {
        return Err(usage(format!(
            "the wheel of {} on PyPI computes on the CPU; for a GPU, name one with CUDA: --requirement 'xllamacpp @ https://...', whose address must be in STOKE_PACKAGE_INDEXES",
            engine.requirement()
        )));
    }
    Ok(())
}

/// Endpoint names, as the API accepts them.
fn check_name(name: &str) -> Result<()> {
    if !is_name(name) {
        return Err(usage(format!("--name {name}: use 1 to 63 lower-case letters, digits and -, e.g. chat")));
    }
    Ok(())
}

fn max_model_len(args: &ServeArgs, model: &Model) -> Result<u64> {
    let default = if model.engine == EngineName::Llamacpp { MAX_MODEL_LEN_LLAMACPP } else { MAX_MODEL_LEN };
    match (args.max_model_len, model.context) {
        (Some(wanted), Some(context)) if wanted > context => Err(usage(format!(
            "--max-model-len {wanted}: the model was made for sequences of {context} tokens; use at most {context}"
        ))),
        (Some(wanted), _) => Ok(wanted),
        (None, context) => Ok(context.map_or(default, |context| context.min(default))),
    }
}

/// Bytes of the weights in the engine. Their size in the files counts, unless the engine converts or quantizes them.
fn weight_bytes(args: &ServeArgs, model: &Model, dtype: Dtype) -> Result<u64> {
    let Some(method) = &args.quantization else {
        // The types of quantized weights are not converted.
        let is_converted = model.format.is_none() && model.file.is_none() && dtype.bytes() != model.dtype.bytes();
        let bytes = model.weight_bytes;
        return Ok(if is_converted { bytes / model.dtype.bytes() * dtype.bytes() } else { bytes });
    };
    let stored = model.format.as_ref();
    if stored.is_some_and(|stored| *method == stored.name || method.strip_suffix("_marlin") == Some(&stored.name)) {
        return Ok(model.weight_bytes);
    }
    if let Some(stored) = stored {
        let name = &stored.name;
        return Err(usage(format!(
            "--quantization {method}: the weights are quantized with {name} already; leave it out"
        )));
    }
    let format = Format::on_load(method).map_err(|error| usage(format!("--quantization {method}: {error}")))?;
    let Some(parameters) = model.parameters else {
        return Err(usage(format!("--quantization {method}: the parameters of {} cannot be counted", model.family)));
    };
    Ok(parameters.bytes(dtype, Some(&format)))
}

/// Bytes of the adapters on each GPU. vLLM and SGLang reserve the same for each of them; llama.cpp loads the file.
fn adapter_bytes(model: &Model, rank: u64, dtype: Dtype) -> u64 {
    let count = model.adapters.len() as u64;
    match model.engine {
        _ if count == 0 => 0,
        EngineName::Llamacpp => model.adapters.iter().map(|adapter| adapter.file_bytes).sum(),
        EngineName::Vllm => count * model.shape.adapter_bytes(rank, dtype),
        EngineName::Sglang => sglang_slots(count) * model.shape.adapter_bytes(rank, dtype),
    }
}

/// `--max-loras-per-batch` of SGLang, where requests without an adapter take a place, too.
pub(super) fn sglang_slots(adapters: u64) -> u64 {
    adapters + 1
}

/// The number of GPUs and the memory of each: the given number, or the smallest one that takes no more than 80 GiB.
fn gpus(args: &ServeArgs, model: &Model, weight_bytes: u64, settings: &Settings) -> Result<(u64, Estimate)> {
    let with = |gpus| estimate(&model.shape, weight_bytes, &Settings { gpus, ..*settings });
    if let Some(gpus) = args.tensor_parallel {
        let estimate = with(gpus).map_err(|error| usage(format!("--tensor-parallel {gpus}: {error}")))?;
        return Ok((gpus, estimate));
    }
    let one = with(1).map_err(usage)?;
    if model.engine == EngineName::Llamacpp {
        return Ok((1, one));
    }
    let sizes = [1, 2, 4, 8, 16].into_iter().filter_map(|gpus| Some((gpus, with(gpus).ok()?)));
    let mut last = (1, one);
    for (gpus, estimate) in sizes {
        last = (gpus, estimate);
        if gib(estimate.total()) <= GPU_GIB {
            break;
        }
    }
    Ok(last)
}

/// Typical sequences whose KV cache fits into the smallest GPU that the model fits into.
fn default_concurrency(plan: &Plan, model: &Model, kv_dtype: KvDtype) -> u64 {
    let total_gib = plan.total_gib();
    let sold = SOLD_GIB.into_iter().map(f64::from).find(|sold| *sold >= total_gib);
    let held_gib = sold.map_or(total_gib, |sold| total_gib.max(sold * VRAM_FRACTION));
    let cache_gib = held_gib - gib(plan.estimate.loaded() + plan.estimate.overhead());
    let tokens = TYPICAL_TOKENS.min(plan.max_model_len);
    let sequence = model.shape.kv_bytes(tokens, BATCH_TOKENS, kv_dtype, plan.gpus);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds, else clamped")]
    let count = (cache_gib / gib(sequence.max(1))) as u64;
    count.clamp(*CONCURRENCY.start(), *CONCURRENCY.end())
}
