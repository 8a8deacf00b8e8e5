//! LoRA adapters: where they are, and what their configuration says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use stokehold_package::{HubModel, WeightSource};

use super::ServeArgs;
use super::engine::EngineName;
use super::source::{explained, is_gguf, text, usage};
use crate::weights;

/// Folder of the adapters in the folder of the weights.
const FOLDER: &str = "adapters";

const CONFIG: &str = "adapter_config.json";

/// Maximum number of adapters. Each is one of the other names of the endpoint (`openai_models`).
const ADAPTERS_MAX: usize = 16;

/// Values of vLLM's `--max-lora-rank`: `MaxLoRARanks` of its `LoRAConfig`.
const VLLM_RANKS: [u64; 9] = [1, 8, 16, 32, 64, 128, 256, 320, 512];

/// A LoRA adapter.
#[derive(Debug)]
pub(super) struct Adapter {
    pub(super) name: String,
    pub(super) source: WeightSource,
    pub(super) is_gated: bool,
    /// Its rank, if its configuration was read.
    rank: Option<u64>,
    /// Size of a .gguf file.
    pub(super) file_bytes: u64,
}

impl Adapter {
    /// Its path in the folder of the weights.
    pub(super) fn path(&self) -> &str {
        self.source.path.as_deref().unwrap_or_default()
    }
}

/// The members of `adapter_config.json` of PEFT that matter here.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    peft_type: Option<String>,
    r: u64,
    #[serde(default)]
    rank_pattern: Option<BTreeMap<String, u64>>,
    #[serde(default)]
    use_dora: Option<bool>,
    #[serde(default)]
    modules_to_save: Option<Vec<String>>,
}

impl Config {
    /// Parses the configuration and returns the largest rank of a matrix.
    fn rank(text: &str, shown: &str, engine: EngineName) -> Result<u64> {
        let config: Self = serde_json::from_str(text).map_err(|error| usage(format!("{shown}: {error}")))?;
        if let Some(kind) = config.peft_type.filter(|kind| kind != "LORA") {
            return Err(usage(format!("{shown}: the adapter is of type {kind}; only LORA can be served")));
        }
        let has_modules = config.modules_to_save.is_some_and(|modules| !modules.is_empty());
        let refused =
            [("use_dora", config.use_dora == Some(true)), ("modules_to_save", has_modules)].into_iter().find(|it| it.1);
        if let Some((member, _)) = refused.filter(|_| engine == EngineName::Vllm) {
            return Err(usage(format!(
                "{shown}: vllm does not serve adapters with {member}; merge the adapter into the model"
            )));
        }
        Ok(config.rank_pattern.into_iter().flatten().map(|(_, rank)| rank).chain([config.r]).max().unwrap_or(config.r))
    }
}

/// Reads the adapters of `--lora`. With `--config`, the network is not used.
pub(super) async fn load(args: &ServeArgs, engine: EngineName) -> Result<Vec<Adapter>> {
    check(args, engine)?;
    let mut adapters = Vec::new();
    let mut names = BTreeSet::new();
    for given in &args.lora {
        let (name, source) = given.split_once('=').filter(|(name, _)| is_name(name)).ok_or_else(|| {
            usage(format!("--lora {given}: use NAME=ADAPTER with a name of letters, digits, -, _ and ."))
        })?;
        if !names.insert(name) {
            return Err(usage(format!("--lora: two adapters have the name {name}")));
        }
        adapters.push(one(args, engine, name, source).await?);
    }
    Ok(adapters)
}

fn check(args: &ServeArgs, engine: EngineName) -> Result<()> {
    let count = args.lora.len();
    if count > ADAPTERS_MAX {
        return Err(usage(format!("--lora: an endpoint has at most {ADAPTERS_MAX} adapters, not {count}")));
    }
    if engine == EngineName::Llamacpp && count > 1 {
        return Err(usage("--lora: llamacpp uses its adapters in every answer; name one, or use vllm or sglang"));
    }
    if engine == EngineName::Llamacpp && args.max_lora_rank.is_some() {
        return Err(usage("--max-lora-rank is not for llamacpp: a .gguf file has its own"));
    }
    Ok(())
}

/// A name may be a folder and a part of `name=path`.
fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    (1..=63).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_letter)
}

async fn one(args: &ServeArgs, engine: EngineName, name: &str, source: &str) -> Result<Adapter> {
    let wants_file = engine == EngineName::Llamacpp;
    let path = if wants_file { format!("{FOLDER}/{name}.gguf") } else { format!("{FOLDER}/{name}") };
    if is_gguf(source) != wants_file {
        let wanted = if wants_file { "one .gguf file" } else { "a folder or a repository with safetensors" };
        return Err(usage(format!("--lora {name}: {} needs {wanted}, not {source}", engine.as_str())));
    }
    let adapter = Adapter {
        name: name.to_owned(),
        source: WeightSource { source: String::new(), path: Some(path), sha256: None },
        is_gated: false,
        rank: None,
        file_bytes: 0,
    };
    match source.strip_prefix("hf://") {
        Some(rest) => {
            let model = HubModel::parse(rest).map_err(usage)?;
            if args.config.is_some() {
                return Ok(at(adapter, model.source(None)));
            }
            let host = weights::host()?;
            let repository = model.repository.clone();
            let read = tokio::task::spawn_blocking(move || on_hub(&host, &model, engine, adapter));
            let read = read.await.context("reading the adapter was interrupted")?;
            read.map_err(|error| explained(error, &repository))
        }
        None => local(Path::new(source), engine, adapter),
    }
}

fn at(adapter: Adapter, source: String) -> Adapter {
    Adapter { source: WeightSource { source, ..adapter.source }, ..adapter }
}

fn local(path: &Path, engine: EngineName, adapter: Adapter) -> Result<Adapter> {
    let shown = path.display();
    let path = std::fs::canonicalize(path).map_err(|error| usage(format!("--lora: cannot find {shown}: {error}")))?;
    let adapter = at(adapter, format!("file:{}", path.display()));
    if engine == EngineName::Llamacpp {
        let file_bytes = std::fs::metadata(&path).with_context(|| format!("cannot read {shown}"))?.len();
        return Ok(Adapter { file_bytes, ..adapter });
    }
    let config: PathBuf = path.join(CONFIG);
    let shown = config.display().to_string();
    let text = std::fs::read_to_string(&config).map_err(|error| usage(format!("cannot read {shown}: {error}")))?;
    Ok(Adapter { rank: Some(Config::rank(&text, &shown, engine)?), ..adapter })
}

/// An adapter of a repository. Its revision becomes the current commit.
fn on_hub(
    host: &dyn stokehold_package::Host,
    model: &HubModel,
    engine: EngineName,
    adapter: Adapter,
) -> Result<Adapter> {
    let repository = &model.repository;
    let name = model.file.as_deref().unwrap_or(CONFIG);
    let Some(file) = model.file(host, name)? else {
        return Err(usage(format!("{repository} has no {name}; is it a LoRA adapter?")));
    };
    let adapter = Adapter { is_gated: file.is_gated, ..at(adapter, model.source(Some(&file.commit))) };
    if engine == EngineName::Llamacpp {
        return Ok(Adapter { file_bytes: model.size(host, name)?.unwrap_or(0), ..adapter });
    }
    let text = text(file.body).with_context(|| format!("cannot read {CONFIG} of {repository}"))?;
    Ok(Adapter { rank: Some(Config::rank(&text, &format!("{CONFIG} of {repository}"), engine)?), ..adapter })
}

/// The rank that the engine is started for; 0 without adapters and for llama.cpp.
pub(super) fn max_rank(args: &ServeArgs, engine: EngineName, adapters: &[Adapter]) -> Result<u64> {
    if adapters.is_empty() || engine == EngineName::Llamacpp {
        return Ok(0);
    }
    let known = adapters.iter().filter_map(|adapter| adapter.rank).max().unwrap_or(0);
    let wanted = match args.max_lora_rank {
        Some(rank) if rank < known => {
            return Err(usage(format!("--max-lora-rank {rank}: an adapter has the rank {known}")));
        }
        Some(rank) => rank,
        None if adapters.iter().all(|adapter| adapter.rank.is_some()) => known,
        None => {
            return Err(usage(format!(
                "with --config, {CONFIG} of the adapters is not read; name their largest rank with --max-lora-rank"
            )));
        }
    };
    if engine == EngineName::Sglang {
        return Ok(wanted);
    }
    VLLM_RANKS
        .into_iter()
        .find(|rank| *rank >= wanted)
        .ok_or_else(|| usage(format!("vllm serves adapters up to the rank {}, not {wanted}", VLLM_RANKS[8])))
}
