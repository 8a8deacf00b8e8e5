//! The model to serve: where its weights are, and what its configuration says.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use stokehold_model_size::{Dtype, Format, Model as Config, Parameters, Shape, gguf, index_bytes};
use stokehold_package::{HubModel, WeightSource, name_of};

use super::ServeArgs;
use super::adapter::{self, Adapter};
use super::engine::EngineName;
use super::source::{explained, is_gguf, text, usage};
use crate::weights;

const CONFIG: &str = "config.json";
const INDEX: &str = "model.safetensors.index.json";
const SAFETENSORS: &str = "model.safetensors";

/// A model.
#[derive(Debug)]
pub(super) struct Model {
    /// The last part of its source, e.g. `Qwen3-8B`.
    pub(super) title: String,
    pub(super) engine: EngineName,
    /// `[[weights]]` of the manifest.
    pub(super) sources: Vec<WeightSource>,
    /// Name of the .gguf file in the folder of the weights.
    pub(super) file: Option<String>,
    /// Whether workers need the secret `HF_TOKEN`.
    pub(super) is_gated: bool,
    pub(super) family: String,
    pub(super) shape: Shape,
    pub(super) dtype: Dtype,
    pub(super) format: Option<Format>,
    pub(super) context: Option<u64>,
    /// Parameters by group; `None` if the architecture is not known.
    pub(super) parameters: Option<Parameters>,
    /// Number of all parameters, if known.
    pub(super) parameter_count: Option<u64>,
    /// Size of the weights.
    pub(super) weight_bytes: u64,
    /// What the size was taken from.
    pub(super) size_from: &'static str,
    /// LoRA adapters.
    pub(super) adapters: Vec<Adapter>,
}

impl Model {
    /// The endpoint name for a model without one: from its title.
    pub(super) fn endpoint_name(&self) -> String {
        name_of(self.title.strip_suffix(".gguf").unwrap_or(&self.title))
    }
}

/// The argument `MODEL`.
enum Place {
    Hub(HubModel),
    Folder(PathBuf),
    Gguf(PathBuf),
}

impl Place {
    fn parse(model: &str) -> Result<Self> {
        if let Some(rest) = model.strip_prefix("hf://") {
            return Ok(Self::Hub(HubModel::parse(rest).map_err(usage)?));
        }
        let path = PathBuf::from(model);
        if !path.exists() {
            return Err(usage(format!(
                "{model} does not exist; name a folder, a .gguf file, or a repository such as hf://Qwen/Qwen3-8B"
            )));
        }
        let path = std::fs::canonicalize(&path).with_context(|| format!("cannot find {model}"))?;
        if path.is_dir() {
            return Ok(Self::Folder(path));
        }
        if is_gguf(model) {
            Ok(Self::Gguf(path))
        } else {
            Err(usage(format!("{model} is not a folder or a .gguf file")))
        }
    }

    fn is_gguf(&self) -> bool {
        match self {
            Self::Hub(model) => model.file.as_deref().is_some_and(is_gguf),
            Self::Folder(_) => false,
            Self::Gguf(_) => true,
        }
    }
}

/// Reads what the computation needs. With `--config`, the network is not used.
pub(super) async fn load(args: &ServeArgs) -> Result<Model> {
    let model = base(args).await?;
    let adapters = adapter::load(args, model.engine).await?;
    let is_gated = model.is_gated || adapters.iter().any(|adapter| adapter.is_gated);
    Ok(Model { adapters, is_gated, ..model })
}

async fn base(args: &ServeArgs) -> Result<Model> {
    let place = Place::parse(&args.model)?;
    let engine = args.engine.unwrap_or(if place.is_gguf() { EngineName::Llamacpp } else { EngineName::Vllm });
    match (engine, place.is_gguf()) {
        (EngineName::Llamacpp, false) => {
            return Err(usage(format!(
                "llamacpp needs one .gguf file, and {} is none, e.g. hf://ORG/MODEL-GGUF/model-q4_k_m.gguf",
                args.model
            )));
        }
        (EngineName::Vllm | EngineName::Sglang, true) => {
            return Err(usage(format!(
                "{} needs safetensors; serve a .gguf file with --engine llamacpp",
                engine.as_str()
            )));
        }
        _ => {}
    }
    let config = args.config.as_deref().map(read_config).transpose()?;
    match place {
        Place::Gguf(path) => local_gguf(&path, engine),
        Place::Folder(path) => {
            let config = match config {
                Some(config) => config,
                None => read_config(&path)?,
            };
            let source = WeightSource { source: format!("file:{}", path.display()), path: None, sha256: None };
            of_config(title(&path), engine, vec![source], config)
        }
        Place::Hub(model) => on_hub(model, engine, config).await,
    }
}

fn title(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A configuration with the size of the weights, if that is known.
struct Texts {
    config: String,
    size: Option<(u64, &'static str)>,
    /// Path for messages.
    shown: String,
}

/// Reads a `config.json`, or that of a folder with what is beside it.
fn read_config(path: &Path) -> Result<Texts> {
    let (file, folder) = if path.is_dir() { (path.join(CONFIG), Some(path)) } else { (path.to_owned(), None) };
    let shown = file.display().to_string();
    let config = std::fs::read_to_string(&file).map_err(|error| usage(format!("cannot read {shown}: {error}")))?;
    let size = match folder {
        Some(folder) => size_of_folder(folder)?,
        None => None,
    };
    Ok(Texts { config, size, shown })
}

/// Size of the weights in a folder: from the index, else the sum of the files.
fn size_of_folder(folder: &Path) -> Result<Option<(u64, &'static str)>> {
    let index = folder.join(INDEX);
    if index.exists() {
        let text = std::fs::read_to_string(&index).with_context(|| format!("cannot read {}", index.display()))?;
        let size = index_bytes(&text).map_err(|error| usage(format!("{}: {error}", index.display())))?;
        return Ok(Some((size, INDEX)));
    }
    let listing = || format!("cannot read {}", folder.display());
    let mut sum = 0;
    for entry in std::fs::read_dir(folder).with_context(listing)? {
        let entry = entry.with_context(listing)?;
        if entry.path().extension().is_some_and(|ending| ending == "safetensors") {
            sum += std::fs::metadata(entry.path()).with_context(listing)?.len();
        }
    }
    Ok((sum > 0).then_some((sum, "size of the safetensors files")))
}

fn of_config(title: String, engine: EngineName, sources: Vec<WeightSource>, texts: Texts) -> Result<Model> {
    let config = Config::parse(&texts.config).map_err(|error| usage(format!("{}: {error}", texts.shown)))?;
    let parameters = config.is_counted.then(|| config.shape.parameters());
    let (weight_bytes, size_from) = match (texts.size, &parameters) {
        (Some(size), _) => size,
        (None, Some(parameters)) => (parameters.bytes(config.dtype, config.format.as_ref()), CONFIG),
        (None, None) => {
            return Err(usage(format!(
                "{}: the parameters of model_type {:?} cannot be counted; put the model's {INDEX} beside it, and name the folder with --config",
                texts.shown, config.family
            )));
        }
    };
    Ok(Model {
        title,
        engine,
        sources,
        file: None,
        is_gated: false,
        family: config.family,
        shape: config.shape,
        dtype: config.dtype,
        format: config.format,
        context: config.context,
        parameters,
        parameter_count: parameters.map(|parameters| parameters.total()),
        weight_bytes,
        size_from,
        adapters: Vec::new(),
    })
}

fn of_gguf(title: String, engine: EngineName, sources: Vec<WeightSource>, header: gguf::Gguf, bytes: u64) -> Model {
    Model {
        engine,
        sources,
        is_gated: false,
        family: header.family,
        shape: header.shape,
        dtype: Dtype::Float16,
        format: None,
        context: header.context,
        parameters: None,
        parameter_count: (header.files == 1).then_some(header.parameters),
        weight_bytes: bytes,
        size_from: "size of the .gguf file",
        adapters: Vec::new(),
        file: Some(title.clone()),
        title,
    }
}

fn local_gguf(path: &Path, engine: EngineName) -> Result<Model> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| usage(format!("cannot read {shown}: {error}")))?;
    let header = gguf::read(BufReader::new(file)).map_err(|error| usage(format!("{shown}: {error}")))?;
    let name = title(path);
    let mut bytes = 0;
    let mut sources = Vec::new();
    for part in parts(&name, header.files)? {
        let path = path.with_file_name(&part);
        bytes +=
            std::fs::metadata(&path).map_err(|error| usage(format!("cannot read {}: {error}", path.display())))?.len();
        sources.push(WeightSource { source: format!("file:{}", path.display()), path: Some(part), sha256: None });
    }
    Ok(of_gguf(name, engine, sources, header, bytes))
}

/// The names of all files of a divided model, e.g. `model-00001-of-00003.gguf` and the two after it.
fn parts(name: &str, files: u64) -> Result<Vec<String>> {
    if files == 1 {
        return Ok(vec![name.to_owned()]);
    }
    let first = format!("-00001-of-{files:05}.gguf");
    let Some(stem) = name.strip_suffix(&first) else {
        return Err(usage(format!(
            "{name} is a part of a model of {files} files; name the first one, which ends in {first}"
        )));
    };
    Ok((1..=files).map(|part| format!("{stem}-{part:05}-of-{files:05}.gguf")).collect())
}

/// A model of a repository. Without `--config`, its revision becomes the current commit.
async fn on_hub(model: HubModel, engine: EngineName, config: Option<Texts>) -> Result<Model> {
    let name = model.name().to_owned();
    if let Some(texts) = config {
        if model.file.is_some() {
            return Err(usage(format!(
                "{CONFIG} does not have the size of a .gguf file; download the file and serve it, or leave out --config"
            )));
        }
        let source = WeightSource { source: model.source(None), path: None, sha256: None };
        return of_config(name, engine, vec![source], texts);
    }
    let read = tokio::task::spawn_blocking({
        let host = weights::host()?;
        move || read_hub(&host, &model, engine)
    });
    read.await.context("reading the model was interrupted")?.map_err(|error| explained(error, &name))
}

fn read_hub(host: &dyn stokehold_package::Host, model: &HubModel, engine: EngineName) -> Result<Model> {
    if let Some(path) = &model.file {
        let Some(file) = model.file(host, path)? else {
            return Err(usage(format!("{} has no file {path}", model.repository)));
        };
        let header = gguf::read(BufReader::new(file.body)).map_err(|error| usage(format!("{path}: {error}")))?;
        let (folder, name) = path.rsplit_once('/').map_or(("", path.as_str()), |(folder, name)| (folder, name));
        let (mut bytes, mut sources) = (0, Vec::new());
        for part in parts(name, header.files)? {
            let path = if folder.is_empty() { part.clone() } else { format!("{folder}/{part}") };
            bytes += model.size(host, &path)?.unwrap_or(0);
            let source = HubModel { file: Some(path), ..model.clone() }.source(Some(&file.commit));
            sources.push(WeightSource { source, path: Some(part), sha256: None });
        }
        let is_gated = file.is_gated;
        return Ok(Model { is_gated, ..of_gguf(name.to_owned(), engine, sources, header, bytes) });
    }
    let Some(config) = model.file(host, CONFIG)? else {
        return Err(usage(format!("{} has no {CONFIG}; is it a language model with safetensors?", model.repository)));
    };
    let (commit, is_gated) = (config.commit.clone(), config.is_gated);
    let pinned = HubModel { revision: commit.clone(), ..model.clone() };
    let size = match pinned.file(host, INDEX)? {
        Some(index) => {
            let text = text(index.body).with_context(|| format!("cannot read {INDEX}"))?;
            Some((index_bytes(&text).map_err(|error| usage(format!("{INDEX}: {error}")))?, INDEX))
        }
        None => pinned.size(host, SAFETENSORS)?.map(|size| (size, SAFETENSORS)),
    };
    let shown = format!("{CONFIG} of {}", model.repository);
    let texts = Texts { config: text(config.body).with_context(|| format!("cannot read {CONFIG}"))?, size, shown };
    let source = WeightSource { source: model.source(Some(&commit)), path: None, sha256: None };
    Ok(Model { is_gated, ..of_config(model.name().to_owned(), engine, vec![source], texts)? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_divided_model_is_all_its_files() {
        assert_eq!(parts("a.gguf", 1).unwrap(), ["a.gguf"]);
        let files = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
        assert_eq!(parts(files[0], 2).unwrap(), files);
        let error = parts(files[1], 2).unwrap_err().to_string();
        assert!(error.contains("name the first one, which ends in -00001-of-00002.gguf"), "{error}");
    }
}
