//! Computed figures next to published ones.

use stokehold_model_size::{Dtype, Engine, Estimate, KvDtype, Settings, estimate};

use crate::configs::model;

const GIB: f64 = (1_u64 << 30) as f64;
const GB: f64 = 1e9;

/// A model with its published figures.
struct Row {
    name: &'static str,
    /// Number of parameters, and where it is published.
    parameters: (f64, &'static str),
    /// Memory of the weights in bytes, and where it is published.
    weights: (f64, &'static str),
}

const ROWS: [Row; 15] = [
    Row {
        name: "llama-3.1-8b",
        parameters: (8_030_261_248.0, "safetensors metadata of meta-llama/Llama-3.1-8B"),
        weights: (
            16_060_522_496.0,
            "total_size of its model.safetensors.index.json; 16 GB in huggingface.co/blog/llama31",
        ),
    },
    Row {
        name: "llama-3.3-70b",
        parameters: (70_553_706_496.0, "safetensors metadata of meta-llama/Llama-3.3-70B-Instruct"),
        weights: (140.0 * GB, "huggingface.co/blog/llama31, inference memory requirements, 70B in FP16"),
    },
    Row {
        name: "qwen2.5-7b",
        parameters: (7_615_616_512.0, "safetensors metadata of Qwen/Qwen2.5-7B-Instruct; 7.61B in its model card"),
        weights: (15_231_233_024.0, "total_size of its model.safetensors.index.json"),
    },
    Row {
        name: "qwen2.5-7b-awq",
        parameters: (7_615_616_512.0, "7.61B in the model card of Qwen/Qwen2.5-7B-Instruct-AWQ"),
        weights: (5.29 * GIB, "vLLM logs of several users: Model loading took 5.29 GiB; checkpoint size 5.19 GiB"),
    },
    Row {
        name: "qwen3-8b",
        parameters: (8_190_735_360.0, "safetensors metadata of Qwen/Qwen3-8B; 8.2B in its model card"),
        weights: (15.2683 * GIB, "vLLM logs of several users: Model loading took 15.2683 GiB"),
    },
    Row {
        name: "qwen3-30b-a3b",
        parameters: (30_532_122_624.0, "safetensors metadata of Qwen/Qwen3-30B-A3B; 30.5B in its model card"),
        weights: (56.93 * GIB, "vLLM logs of several users with the 30B-A3B models: Model loading took 56.93 GiB"),
    },
    Row {
        name: "mistral-7b-v0.3",
        parameters: (7_248_023_552.0, "safetensors metadata of mistralai/Mistral-7B-Instruct-v0.3"),
        weights: (14_496_047_104.0, "total_size of its model.safetensors.index.json"),
    },
    Row {
        name: "mixtral-8x7b",
        parameters: (
            46_702_792_704.0,
            "safetensors metadata of mistralai/Mixtral-8x7B-v0.1; 46.7B in its announcement",
        ),
        weights: (93_405_585_408.0, "total_size of its model.safetensors.index.json"),
    },
    Row {
        name: "gemma-2-9b",
        parameters: (9_241_705_984.0, "safetensors metadata of google/gemma-2-9b-it"),
        weights: (
            17.3781 * GIB,
            "vLLM 0.5.2 log in a vLLM issue: Loading model weights took 17.3781 GB, where 1 GB is 2^30",
        ),
    },
    Row {
        name: "gemma-3-1b",
        parameters: (999_885_952.0, "safetensors metadata of google/gemma-3-1b-it"),
        weights: (1_999_771_904.0, "size of its model.safetensors"),
    },
    Row {
        name: "phi-3-mini-4k",
        parameters: (
            3_821_079_552.0,
            "safetensors metadata of microsoft/Phi-3-mini-4k-instruct; 3.8B in its model card",
        ),
        weights: (7_642_159_104.0, "total_size of its model.safetensors.index.json"),
    },
    Row {
        name: "deepseek-v2-lite",
        parameters: (15_706_484_224.0, "safetensors metadata of deepseek-ai/DeepSeek-V2-Lite; 15.7B in its model card"),
        weights: (29.301 * GIB, "vLLM pull request 4650: Loading model weights took 29.3010 GB, where 1 GB is 2^30"),
    },
    Row {
        name: "deepseek-v3",
        parameters: (671e9, "671B in the model card of deepseek-ai/DeepSeek-V3, without the module for further tokens"),
        weights: (
            685.0 * GB,
            "685B at one byte in the same model card, with the 14B of that module, which engines leave out",
        ),
    },
    Row {
        name: "gpt-oss-20b",
        parameters: (20.91e9, "model card of gpt-oss, arXiv 2508.10925, table 1"),
        weights: (12.8 * GIB, "checkpoint size in the same table"),
    },
    Row {
        name: "falcon-7b",
        parameters: (6_921_720_704.0, "sum of the tensors of tiiuae/falcon-7b, whose head is its embedding"),
        weights: (15.0 * GB, "huggingface.co/blog/falcon: Falcon-7B needs about 15 GB"),
    },
];

fn off_by(computed: f64, published: f64) -> f64 {
    (computed / published - 1.0).abs()
}

#[test]
fn parameters_are_within_one_percent() {
    for row in &ROWS {
        let (published, source) = row.parameters;
        let computed = model(row.name).shape.parameters().total() as f64;
        assert!(off_by(computed, published) <= 0.01, "{}: {computed}, but {published} in: {source}", row.name);
    }
}

/// What [`ROWS`] has to the last digit is computed to the last digit.
#[test]
fn parameters_of_open_weights_are_exact() {
    for row in ROWS.iter().filter(|row| row.parameters.1.starts_with("safetensors") || row.name == "falcon-7b") {
        let computed = model(row.name).shape.parameters().total();
        assert_eq!(computed, row.parameters.0 as u64, "{}", row.name);
    }
}

#[test]
fn weights_are_within_ten_percent() {
    for row in &ROWS {
        let (published, source) = row.weights;
        let model = model(row.name);
        let computed = model.shape.parameters().bytes(model.dtype, model.format.as_ref()) as f64;
        assert!(off_by(computed, published) <= 0.1, "{}: {computed}, but {published} in: {source}", row.name);
    }
}

const SETTINGS: Settings = Settings {
    engine: Engine::Vllm,
    max_model_len: 2_048,
    sequences: 1,
    concurrency: 64,
    gpus: 1,
    kv_dtype: KvDtype::Half,
    dtype: Dtype::Bfloat16,
    adapter_bytes: 0,
};

/// The estimate for one sequence of this length on each of `gpus`.
fn total(name: &str, max_model_len: u64, concurrency: u64, gpus: u64) -> Estimate {
    let model = model(name);
    let weights = model.shape.parameters().bytes(model.dtype, model.format.as_ref());
    let settings = Settings { max_model_len, concurrency, gpus, ..SETTINGS };
    estimate(&model.shape, weights, &settings).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn totals_are_within_ten_percent() {
    for (name, computed, published, source) in [
        (
            "llama-3.1-8b",
            total("llama-3.1-8b", 8_192, 256, 1).total() - total("llama-3.1-8b", 8_192, 256, 1).kv,
            (14.96 + 1.79 + 1.26) * GIB,
            "vLLM pull request 10511, Meta-Llama-3-8B on an H100: weights, non-torch memory and peak activations",
        ),
        (
            "qwen3-8b",
            total("qwen3-8b", 32_768, 256, 1).total() - total("qwen3-8b", 32_768, 256, 1).kv,
            15.27 * GIB + 1.6 * GIB,
            "vLLM log on an RTX 5090: 15.27 GiB of weights, 1.6 GiB of graphs and activations",
        ),
        (
            "mixtral-8x7b",
            total("mixtral-8x7b", 32_768, 64, 1).total(),
            100.0 * GB,
            "docs.mistral.ai/models: minimum GPU RAM for inference 100 GB",
        ),
        (
            "gpt-oss-20b",
            total("gpt-oss-20b", 8_192, 64, 1).total(),
            16.0 * GIB,
            "model card of openai/gpt-oss-20b: runs within 16 GB of memory",
        ),
    ] {
        let off = off_by(computed as f64, published);
        assert!(off <= 0.1, "{name}: {:.2} GiB, but {:.2} GiB in: {source}", computed as f64 / GIB, published / GIB);
    }
}

/// huggingface.co/blog/llama31, "Memory requirements for the KV cache", in GiB for thousands of tokens in FP16.
#[test]
fn the_kv_cache_of_grouped_queries_is_the_published_one() {
    for (name, tokens, published) in [
        ("llama-3.1-8b", 1_000, 0.125),
        ("llama-3.1-8b", 16_000, 1.95),
        ("llama-3.1-8b", 128_000, 15.62),
        ("llama-3.3-70b", 16_000, 4.88),
        ("llama-3.3-70b", 128_000, 39.06),
    ] {
        let computed = model(name).shape.kv_bytes(tokens, 2_048, KvDtype::Half, 1) as f64 / GIB;
        assert!(off_by(computed, published) <= 0.03, "{name}, {tokens} tokens: {computed} GiB, not {published}");
    }
}

/// A vLLM log of Qwen3-8B: 147,456 bytes per token. DeepSeek-V2 (arXiv 2405.04434, table 1) caches 576 elements per
/// token and layer.
#[test]
fn the_kv_cache_has_the_elements_of_the_architecture() {
    let per_token = |name: &str, gpus| model(name).shape.kv_bytes_per_token(KvDtype::Half, gpus);
    assert_eq!(per_token("qwen3-8b", 1), 147_456);
    assert_eq!(per_token("qwen3-8b", 4), 147_456 / 4);
    assert_eq!(per_token("qwen3-8b", 16), 147_456 / 8, "each GPU has at least one head");
    assert_eq!(per_token("deepseek-v2-lite", 1), 27 * 576 * 2);
    assert_eq!(per_token("deepseek-v2-lite", 8), 27 * 576 * 2, "the compressed vector is on every GPU");
    assert_eq!(model("qwen3-8b").shape.kv_bytes_per_token(KvDtype::Fp8, 1), 147_456 / 2);
}

#[test]
fn layers_with_a_window_keep_the_window() {
    let shape = model("gpt-oss-20b").shape;
    assert_eq!((shape.windows.layers, shape.windows.tokens), (12, 128));
    let layer = 2 * 8 * 64 * 2;
    // Blocks of 16 tokens: 131,072 are whole blocks, and 127 + 2,048 take 136 blocks.
    assert_eq!(shape.kv_bytes(131_072, 2_048, KvDtype::Half, 1), 12 * layer * 131_072 + 12 * layer * 136 * 16);
    assert_eq!(model("gemma-2-9b").shape.windows.layers, 21);
    assert_eq!(model("gemma-3-1b").shape.windows.layers, 22);
    assert_eq!(model("phi-3-mini-4k").shape.windows.layers, 0);
    assert_eq!(model("qwen2.5-7b").shape.windows.layers, 0);
}

#[test]
fn weights_are_divided_among_gpus() {
    let (one, four) = (total("llama-3.3-70b", 16_384, 64, 1), total("llama-3.3-70b", 16_384, 64, 4));
    assert_eq!((four.weights, four.kv), (one.weights.div_ceil(4), one.kv / 4));
    assert!(four.context > one.context, "GPUs that share a model have buffers to communicate");
    let model = model("falcon-7b");
    let error = estimate(&model.shape, 1, &Settings { gpus: 2, ..SETTINGS }).unwrap_err().to_string();
    assert_eq!(error, "the model has 71 attention heads, which 2 GPUs cannot share equally");
}

/// Unsloth prints the trainable parameters of an adapter of rank 16 for all linear layers.
#[test]
fn adapters_have_the_published_number_of_parameters() {
    for (name, published) in [("llama-3.1-8b", 41_943_040), ("mistral-7b-v0.3", 41_943_040), ("qwen2.5-7b", 40_370_176)]
    {
        let shape = model(name).shape;
        assert_eq!(shape.adapter_parameters(16), published, "{name}");
        assert_eq!(shape.adapter_bytes(16, Dtype::Bfloat16), 2 * published, "{name}");
    }
    let shape = model("llama-3.1-8b").shape;
    let with = Settings { adapter_bytes: 3 * shape.adapter_bytes(16, Dtype::Bfloat16), ..SETTINGS };
    let (one, three) = (estimate(&shape, 1 << 30, &SETTINGS).unwrap(), estimate(&shape, 1 << 30, &with).unwrap());
    assert_eq!(three.total() - one.total(), 3 * 83_886_080);
    assert_eq!(three.overhead(), one.overhead());
}
