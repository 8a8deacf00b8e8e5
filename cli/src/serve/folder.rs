//! The files of the folder: `stoke.toml`, and a program that starts the engine where it needs one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::ServeArgs;
use super::command;
use super::engine::EngineName;
use super::model::Model;
use super::plan::{Plan, gib};
use super::report;
use super::source::usage;

/// A file of the folder.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) name: &'static str,
    pub(super) text: String,
}

/// Limit of a job, in seconds. A long answer takes some minutes on a busy engine.
const TIMEOUT_S: u64 = 600;

/// The files of the endpoint.
pub(super) fn files(args: &ServeArgs, model: &Model, plan: &Plan) -> Vec<Written> {
    let mut files = vec![Written { name: "stoke.toml", text: manifest(args, model, plan) }];
    files.extend(plan.engine.script().map(|(name, text)| Written { name, text: text.to_owned() }));
    files
}

fn manifest(args: &ServeArgs, model: &Model, plan: &Plan) -> String {
    let mut lines = vec![
        format!("# Written by `stoke serve {}`. After a change, deploy it with `stoke deploy`.", args.model),
        format!("name = {}", quoted(&plan.name)),
        "kind = \"server\"".to_owned(),
        "command = [".to_owned(),
    ];
    for words in command::words(plan) {
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        lines.push(format!("    {},", words.join(", ")));
    }
    lines.push("]".to_owned());
    lines.push(format!("requirements = [{}]", quoted(&plan.requirement)));
    lines.push(String::new());
    let memory = if plan.is_on_gpu { "Memory of each GPU" } else { "Main memory" };
    lines.push(format!("# {memory}, in GiB:"));
    for (what, bytes, note) in report::rows(model, plan) {
        lines.push(format!("#   {what:<28}{:>7.2}   {note}", gib(bytes)));
    }
    lines.push(format!("vram_gib = {}", plan.vram_gib()));
    lines.extend(plan.vram_fraction().map(|fraction| format!("vram_fraction = {fraction}")));
    if plan.gpus > 1 {
        lines.push(format!("gpus = {}", plan.gpus));
    }
    lines.push(format!("max_concurrency = {}", plan.concurrency));
    lines.push(format!("timeout_s = {TIMEOUT_S}"));
    lines.push(format!("warmup = [{}]", warmup(plan)));
    if model.is_gated {
        lines.push("secrets = [\"HF_TOKEN\"]".to_owned());
    }
    if !plan.adapters.is_empty() {
        let models: Vec<String> = plan.adapter_models().map(|model| quoted(&model)).collect();
        lines.push(format!("openai_models = [{}]", models.join(", ")));
    }
    lines.extend([String::new(), "[server]".to_owned(), "ready_path = \"/health\"".to_owned()]);
    lines.extend(plan.engine.busy().map(|busy| format!("busy = {}", quoted(busy))));
    let environment = environment(plan.engine);
    if !environment.is_empty() {
        lines.extend([String::new(), "[env]".to_owned()]);
        lines.extend(environment.iter().map(|(name, value)| format!("{name} = {}", quoted(value))));
    }
    for source in model.sources.iter().chain(model.adapters.iter().map(|adapter| &adapter.source)) {
        lines.extend([String::new(), "[[weights]]".to_owned(), format!("source = {}", quoted(&source.source))]);
        lines.extend(source.path.as_ref().map(|path| format!("path = {}", quoted(path))));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A short prompt, so that the first job does not wait for what an engine compiles at its first request. Completions
/// need no chat template, unlike a chat.
fn warmup(plan: &Plan) -> String {
    let name = quoted(&plan.name);
    format!("{{ path = \"/v1/completions\", body = {{ model = {name}, prompt = \"Hello\", max_tokens = 4 }} }}")
}

/// Variables that keep the engines from the network, which an endpoint does not have.
fn environment(engine: EngineName) -> &'static [(&'static str, &'static str)] {
    match engine {
        EngineName::Vllm => &[("HF_HUB_OFFLINE", "1"), ("VLLM_NO_USAGE_STATS", "1")],
        EngineName::Sglang => &[("HF_HUB_OFFLINE", "1")],
        EngineName::Llamacpp => &[],
    }
}

/// A string in TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Writes the files. Files with the same text stay; others are never changed.
pub(super) fn write(folder: &Path, files: &[Written]) -> Result<()> {
    let mut missing = Vec::new();
    for file in files {
        let path = folder.join(file.name);
        match fs::read_to_string(&path) {
            Ok(text) if text == file.text => {}
            Ok(_) => {
                return Err(usage(format!(
                    "{} exists and differs; deploy it with `stoke deploy {}`, or write another folder with --out",
                    path.display(),
                    folder.display()
                )));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing.push((path, &file.text)),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (path, text) in missing {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
