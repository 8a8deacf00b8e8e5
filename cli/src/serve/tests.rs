//! Folders and memory of well-known models, without the network.

#![allow(clippy::unwrap_used, reason = "tests")]
use clap::Parser as _;
use stokehold_package::{Overlay, Package, Requirements};

use super::folder::{self, Written};
use super::model::{self, Model};
use super::plan::{self, Plan};
use super::{ServeArgs, report};
use crate::exit::USAGE;
use crate::failure::Failure;

const CONFIGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/model-size/tests/configs");

#[derive(clap::Parser)]
struct Words {
    #[command(flatten)]
    args: ServeArgs,
}

struct Served {
    args: ServeArgs,
    model: Model,
    plan: Plan,
}

impl Served {
    fn files(&self) -> Vec<Written> {
        folder::files(&self.args, &self.model, &self.plan)
    }
}

async fn try_serve(words: &[&str]) -> anyhow::Result<Served> {
    let args = Words::try_parse_from(["serve"].iter().chain(words))?.args;
    let model = model::load(&args).await?;
    let plan = plan::plan(&args, &model)?;
    Ok(Served { args, model, plan })
}

/// Serves a repository whose configuration is one of the well-known ones.
async fn serve(repository: &str, config: &str, options: &[&str]) -> anyhow::Result<Served> {
    let config = format!("{CONFIGS}/{config}.json");
    let words: Vec<&str> = [repository, "--config", &config].iter().chain(options).copied().collect();
    try_serve(&words).await
}

async fn error(words: &[&str]) -> String {
    let error = try_serve(words).await.err().unwrap();
    assert_eq!(error.downcast_ref::<Failure>().map(|failure| failure.exit_code), Some(USAGE), "{error:#}");
    format!("{error:#}")
}

#[tokio::test]
async fn a_folder_for_vllm_has_the_memory_and_the_command() {
    let served = serve("hf://Qwen/Qwen3-8B", "qwen3-8b", &["--name", "chat"]).await.unwrap();
    let files = served.files();
    assert_eq!(files.len(), 1);
    let expected = include_str!("tests/vllm.toml");
    assert_eq!(files[0].text, expected, "\n{}", files[0].text);
}

#[tokio::test]
async fn a_folder_for_sglang_starts_it_with_a_program() {
    let options =
        ["--engine", "sglang", "--max-model-len", "8192", "--kv-cache-dtype", "fp8", "--tensor-parallel", "2"];
    let served = serve("hf://meta-llama/Llama-3.1-8B@v1", "llama-3.1-8b", &options).await.unwrap();
    let files = served.files();
    assert_eq!(files[0].text, include_str!("tests/sglang.toml"), "\n{}", files[0].text);
    assert_eq!((files[1].name, files[1].text.contains("--mem-fraction-static")), ("serve.py", true));
}

/// Two adapters of repositories, of rank 40 at most.
const ADAPTERS: [&str; 6] =
    ["--lora", "sql=hf://acme/qwen3-sql", "--lora", "mail=hf://acme/qwen3-mail@v2", "--max-lora-rank", "40"];

#[tokio::test]
async fn adapters_are_weights_of_the_folder_and_models_of_the_endpoint() {
    let options = [&["--name", "chat"][..], &ADAPTERS].concat();
    let served = serve("hf://Qwen/Qwen3-8B", "qwen3-8b", &options).await.unwrap();
    let files = served.files();
    assert_eq!(files[0].text, include_str!("tests/vllm-lora.toml"), "\n{}", files[0].text);
    let document = report::json(&served.model, &served.plan, std::path::Path::new("chat"), &files);
    let adapters = serde_json::json!([
        {"model": "chat:sql", "source": "hf://acme/qwen3-sql@main"},
        {"model": "chat:mail", "source": "hf://acme/qwen3-mail@v2"},
    ]);
    assert_eq!(document["adapters"], adapters);

    // SGLang divides `chat:sql` at the colon, and keeps a place for requests without an adapter.
    let options = [&options[..], &["--engine", "sglang"]].concat();
    let sglang = serve("hf://Qwen/Qwen3-8B", "qwen3-8b", &options).await.unwrap();
    let text = &sglang.files()[0].text;
    for part in [
        "\"--enable-lora\", \"--max-loras-per-batch\", \"3\",",
        "\"--lora-paths\", \"sql={weights}/adapters/sql\", \"mail={weights}/adapters/mail\",",
        "openai_models = [\"chat:sql\", \"chat:mail\"]",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (vllm, sglang) = (served.plan.estimate.adapters, sglang.plan.estimate.adapters);
    assert_eq!(vllm / 2 / 64, sglang / 3 / 40, "one adapter of rank 1");
}

/// A folder with this `adapter_config.json`, as the value of `--lora`.
fn adapter(config: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("adapter_config.json"), config).unwrap();
    let given = format!("sql={}", dir.path().display());
    (dir, given)
}

#[tokio::test]
async fn the_rank_of_an_adapter_is_in_its_configuration() {
    for (config, rank) in [
        (r#"{"peft_type": "LORA", "r": 8}"#, 8),
        (r#"{"r": 8, "rank_pattern": {"q_proj": 33}, "modules_to_save": null, "use_dora": false}"#, 64),
    ] {
        let (_dir, given) = adapter(config);
        let served = serve("hf://org/m", "qwen3-8b", &["--lora", &given]).await.unwrap();
        assert_eq!(served.plan.lora_rank, rank, "{config}");
        let source = &served.model.adapters[0].source;
        assert!(source.source.starts_with("file:/") && source.path.as_deref() == Some("adapters/sql"), "{source:?}");
    }
    for (config, says) in [
        (r#"{"peft_type": "IA3", "r": 8}"#, "of type IA3; only LORA can be served"),
        (r#"{"r": 8, "use_dora": true}"#, "vllm does not serve adapters with use_dora; merge the adapter"),
        (r#"{"r": 8, "modules_to_save": ["lm_head"]}"#, "vllm does not serve adapters with modules_to_save"),
        (r#"{"r": 1000}"#, "vllm serves adapters up to the rank 512, not 1000"),
        (r#"{"peft_type": "LORA"}"#, "missing field `r`"),
    ] {
        let (_dir, given) = adapter(config);
        let config = format!("{CONFIGS}/qwen3-8b.json");
        let text = error(&["hf://org/m", "--config", &config, "--lora", &given]).await;
        assert!(text.contains(says), "{text}");
    }
}

#[tokio::test]
async fn mistakes_in_adapters_are_named() {
    let config = format!("{CONFIGS}/qwen3-8b.json");
    let many: Vec<String> = (0..17).flat_map(|n| ["--lora".to_owned(), format!("a{n}=hf://org/a")]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (_dir, given) = adapter(r#"{"r": 16}"#);
    for (options, says) in [
        (vec!["--lora", "hf://acme/sql"], "--lora hf://acme/sql: use NAME=ADAPTER"),
        (vec!["--lora", "a:b=hf://acme/sql"], "with a name of letters, digits, -, _ and ."),
        (vec!["--lora", "sql=hf://acme/sql"], "name their largest rank with --max-lora-rank"),
        (vec!["--lora", "sql=hf://acme"], "use hf://org/model@revision"),
        (vec!["--lora", "sql=nowhere"], "--lora: cannot find nowhere"),
        (vec!["--lora", "sql=sql.gguf"], "vllm needs a folder or a repository with safetensors, not sql.gguf"),
        (vec!["--lora", &given, "--lora", &given], "two adapters have the name sql"),
        (vec!["--lora", &given, "--max-lora-rank", "8"], "--max-lora-rank 8: an adapter has the rank 16"),
        (many, "an endpoint has at most 16 adapters, not 17"),
    ] {
        let text = error(&[&["hf://org/m", "--config", &config], &options[..]].concat()).await;
        assert!(text.contains(says), "{options:?}: {text}");
    }
}

/// What is written is what the packager reads.
#[tokio::test]
async fn folders_can_be_deployed() {
    for engine in ["vllm", "sglang"] {
        let options = [&["--engine", engine][..], &ADAPTERS].concat();
        let served = serve("hf://Qwen/Qwen3-8B", "qwen3-8b", &options).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new/qwen3-8b");
        folder::write(&folder, &served.files()).unwrap();
        let package = Package::open(folder.to_str().unwrap(), Overlay::default()).unwrap();
        assert_eq!((package.name.as_deref(), package.weights.len(), package.notes.len()), (Some("qwen3-8b"), 3, 0));
        let Requirements::Unlocked(unlocked) = package.requirements().unwrap() else { panic!("they are not locked") };
        assert!(unlocked.lines[0].starts_with(&format!("{engine}==")), "{unlocked:?}");
        // The same again changes nothing; another text is not overwritten.
        folder::write(&folder, &served.files()).unwrap();
        std::fs::write(folder.join("stoke.toml"), "name = \"mine\"\n").unwrap();
        let error = folder::write(&folder, &served.files()).unwrap_err().to_string();
        assert!(error.contains("stoke.toml exists and differs; deploy it with `stoke deploy"), "{error}");
    }
}

#[tokio::test]
async fn models_get_the_gpus_that_they_need() {
    for (config, gpus, class_gib) in [
        ("llama-3.1-8b", 1, 20),
        ("llama-3.3-70b", 2, 80),
        ("qwen2.5-7b-awq", 1, 10),
        ("qwen3-8b", 1, 20),
        ("qwen3-30b-a3b", 1, 64),
        ("mistral-7b-v0.3", 1, 20),
        ("mixtral-8x7b", 2, 48),
        ("gemma-2-9b", 1, 24),
        ("phi-3-mini-4k", 1, 11),
        ("deepseek-v2-lite", 1, 40),
        ("gpt-oss-20b", 1, 16),
    ] {
        let plan = serve("hf://org/model", config, &[]).await.unwrap().plan;
        let sold = stokehold_queue::vram::SOLD_GIB.into_iter().find(|sold| f64::from(*sold) >= plan.vram_gib());
        assert_eq!((plan.gpus, sold), (gpus, Some(class_gib)), "{config}: {} GiB", plan.vram_gib());
        assert!((16..=64).contains(&plan.concurrency), "{config}: {}", plan.concurrency);
    }
}

#[tokio::test]
async fn quantization_while_loading_halves_the_layers() {
    let plain = serve("hf://org/m", "qwen3-8b", &[]).await.unwrap();
    let fp8 = serve("hf://org/m", "qwen3-8b", &["--quantization", "fp8"]).await.unwrap();
    let parameters = plain.model.parameters.unwrap();
    let layers = parameters.attention + parameters.mlp;
    let saved = plain.plan.estimate.weights - fp8.plan.estimate.weights;
    assert!(saved.abs_diff(layers) < layers / 500, "{saved} of {layers}");
    let kept = serve("hf://org/m", "qwen2.5-7b-awq", &["--quantization", "awq_marlin"]).await.unwrap();
    assert_eq!(kept.plan.estimate.weights, kept.model.weight_bytes);
    let document = report::json(&fp8.model, &fp8.plan, std::path::Path::new("m"), &fp8.files());
    assert_eq!(document["memory_bytes"]["weights"], fp8.plan.estimate.weights);
    assert!(fp8.files()[0].text.contains("\"--quantization\", \"fp8\""));
}

#[tokio::test]
async fn mistakes_are_named() {
    let config = format!("{CONFIGS}/qwen3-8b.json");
    for (words, says) in [
        (vec!["models/none"], "models/none does not exist; name a folder"),
        (vec!["hf://Qwen"], "use hf://org/model@revision"),
        (vec!["hf://Qwen/Qwen3-8B", "--engine", "llamacpp"], "llamacpp needs one .gguf file"),
        (vec!["hf://Qwen/Qwen3-8B/q4.gguf", "--engine", "vllm"], "vllm needs safetensors"),
        (vec!["hf://org/m/q4.gguf", "--config", &config], "config.json does not have the size of a .gguf file"),
        (vec!["hf://Qwen/Qwen3-8B", "--config", "nowhere.json"], "cannot read nowhere.json"),
        (vec!["hf://Qwen/Qwen3-8B", "--config", &config, "--max-model-len", "99999"], "use at most 40960"),
        (vec!["hf://Qwen/Qwen3-8B", "--config", &config, "--quantization", "awq"], "not quantized with awq"),
        (vec!["hf://Qwen/Qwen3-8B", "--config", &config, "--tensor-parallel", "3"], "3 GPUs cannot share equally"),
        (vec!["hf://Qwen/Qwen3-8B", "--config", &config, "--name", "My_Chat"], "use 1 to 63 lower-case letters"),
        (vec!["hf://Qwen/Qwen3-8B", "--config", &config, "--gpu"], "vllm always runs on a GPU"),
    ] {
        let text = error(&words).await;
        assert!(text.contains(says), "{words:?}: {text}");
    }
}

/// A model of this folder, without an index, whose architecture is not known.
#[tokio::test]
async fn an_unknown_architecture_needs_the_size_of_its_weights() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(format!("{CONFIGS}/llama-3.1-8b.json")).unwrap();
    std::fs::write(dir.path().join("config.json"), text.replace("\"llama\"", "\"newest\"")).unwrap();
    let folder = dir.path().to_str().unwrap();
    let text = error(&[folder]).await;
    assert!(
        text.contains("model_type \"newest\" cannot be counted; put the model's model.safetensors.index.json"),
        "{text}"
    );
    let index = r#"{"metadata": {"total_size": 16060522496}, "weight_map": {}}"#;
    std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    let served = try_serve(&[folder]).await.unwrap();
    assert_eq!(served.plan.estimate.weights, 16_060_522_496);
    assert!(served.model.sources[0].source.starts_with("file:/"), "{:?}", served.model.sources);
}
