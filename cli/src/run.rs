//! `stoke run`: runs one job of a handler on this machine, in its own environment, without a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};
use stokehold_package::{Kind, Overlay, Package, missing_module};
use stokehold_queue::endpoint::EndpointSpec;
use stokehold_queue::gateway::{JobMessage, LogStream, Secrets};
use stokehold_queue::job::JobError;
use stokehold_worker::local::{self, LocalEnd, LocalJob, LocalWeight, LocalWeights, WeightFrom, run as run_here};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::deploy::Builder;
use crate::describe::describe;
use crate::failure::{Failure, require};
use crate::submit::{input, options};
use crate::{Global, duration, kind, output, paths, progress, schema, weights};

/// Run a handler once on this machine, in its own environment, without a server
#[derive(Args)]
#[command(after_help = "Examples:
  stoke run greet --input '{\"name\": \"world\"}'
  stoke run transcribe --file audio=talk.mp3 --out result/")]
pub(crate) struct RunArgs {
    /// Folder, .py file, or FILE.py:OBJECT
    path: String,
    /// Input as JSON, @FILE, or - for standard input [default: {}]
    #[arg(long, short, allow_negative_numbers = true)]
    input: Option<String>,
    /// Pass a file as the member KEY of the input; may be repeated
    #[arg(long, short, value_name = "KEY=PATH")]
    file: Vec<String>,
    /// Save the files of the result to this folder
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Kind of endpoint [default: from stoke.toml, else cog if there is a cog.yaml, else python]
    #[arg(long, value_name = "KIND", value_parser = kind::parser())]
    kind: Option<Kind>,
    /// Handler in the folder, e.g. main.py:Greet, or handler.py for a RunPod script [default: from stoke.toml]
    #[arg(long, value_name = "FILE[:OBJECT]")]
    handler: Option<String>,
    /// Python version, e.g. 3.11 [default: from stoke.toml, else the python3 on PATH]
    #[arg(long, value_name = "VERSION")]
    python: Option<String>,
    /// Indices of the GPUs to use, e.g. 0,1 [default: the first ones, if the handler needs any]
    #[arg(long, value_name = "INDICES", value_delimiter = ',')]
    gpus: Option<Vec<u32>>,
    /// Time limit of loading, e.g. 90s or 5m
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "30m")]
    load_timeout: Duration,
}

pub(crate) async fn run(global: &Global, args: RunArgs) -> Result<()> {
    let mut input = input::read(args.input.as_deref())?;
    let files = files(&mut input, &args.file)?;
    let overlay = Overlay::parse(json!({"kind": args.kind, "handler": args.handler, "python": args.python}))?;
    let package = Arc::new(Package::open(&args.path, overlay)?);

    let prepared = Builder::open().await?.prepare(&package).await?;
    let described = describe(&package, &prepared.environment.python).await?;
    let body = package.version(described.version)?;
    check(&body["input_schema"], &input)?;
    let scratch =
        tempfile::Builder::new().prefix("stoke-run-").tempdir().context("cannot create a temporary folder")?;
    let weights = fetch_weights(global, &package, scratch.path()).await?;
    let job = LocalJob {
        python: prepared.environment.python.clone(),
        package: package.folder(),
        spec: spec(&body)?,
        secrets: secrets(&body)?,
        weights: weights.as_ref().map(|weights| weights.folder.clone()),
        gpus: args.gpus.unwrap_or_else(|| first_gpus(&Value::Object(body))),
        input: to_raw_value(&input)?,
        files,
        scratch: scratch.path().to_owned(),
        load_timeout: args.load_timeout,
    };
    let (said, heard) = mpsc::unbounded_channel();
    let bar = progress::job();
    bar.set_prefix(package.shown());
    let (end, ()) = tokio::join!(run_here(job, said), show(heard, &bar));
    bar.finish_and_clear();
    let LocalEnd { result, files, load, run } = end.map_err(told)?;
    if let Some(folder) = &args.out {
        save(&files, folder)?;
    } else if !files.is_empty() {
        output::note("the result has files; save them with --out FOLDER");
    }
    let result: Value = serde_json::from_slice(&result).context("the result is not valid JSON")?;
    if global.json {
        return output::json(&json!({"result": result, "load_ms": millis(load), "run_ms": millis(run)}));
    }
    output::note(output::dim(format_args!(
        "loaded in {}, ran for {}",
        output::millis(millis(load)),
        output::millis(millis(run))
    )));
    output::json(&result)
}

/// Adds each KEY=PATH to the input. Returns the paths of the files.
fn files(input: &mut Value, given: &[String]) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for one in given {
        let (key, path) = options::pair_as(one, "KEY=PATH").context("--file")?;
        let found = std::fs::canonicalize(path).with_context(|| Failure::usage(format!("cannot find {path}")))?;
        require!(found.is_file(), "{path} is not a file");
        let members = input.as_object_mut();
        let members = members.with_context(|| Failure::usage("--file requires an input that is a JSON object"))?;
        members.insert(key.to_owned(), json!({"$file": path}));
        files.insert(path.to_owned(), found.to_string_lossy().into_owned());
    }
    Ok(files)
}

/// Collects the weights in one folder, downloading them like a worker. Local files are not copied.
async fn fetch_weights(global: &Global, package: &Arc<Package>, scratch: &Path) -> Result<Option<LocalWeights>> {
    if package.weights.is_empty() {
        return Ok(None);
    }
    let pinned = weights::pin(package, || Client::connect(global)).await?;
    let token = std::env::var("HF_TOKEN").ok().filter(|token| !token.is_empty());
    let mut files = Vec::new();
    for one in pinned {
        let from = match (one.file, one.url) {
            (Some(file), _) => WeightFrom::File(file),
            (None, Some(url)) if url.starts_with("s3://") => {
                WeightFrom::Url(weights::signed(&Client::connect(global)?, &url).await?)
            }
            (None, url) => WeightFrom::Url(url.unwrap_or_default()),
        };
        let token = token.clone().filter(|_| one.source.starts_with("hf://"));
        files.push(LocalWeight { path: one.path, from, token, sha256: one.sha256, size_bytes: one.size_bytes });
    }
    let bar = progress::spinner("weights");
    let told = bar.clone();
    let fetched =
        local::weights(&paths::cache_dir()?, files, &scratch.join("weights"), &move |said| told.set_message(said))
            .await;
    bar.finish_and_clear();
    Ok(Some(fetched?))
}

/// The options of the endpoint, as far as they matter for one job on this machine: without retries and steps.
fn spec(body: &Map<String, Value>) -> Result<EndpointSpec> {
    let mut options = body.clone();
    options.retain(|name, value| !value.is_null() && !["retry", "before", "after"].contains(&name.as_str()));
    // The folder is not packed.
    options.extend([("package_sha256".to_owned(), json!("")), ("package_size_bytes".to_owned(), json!(0))]);
    serde_json::from_value(Value::Object(options)).context("the options of the endpoint are not valid")
}

/// The values of the handler's secrets, from environment variables. Secrets of the API are not used.
fn secrets(body: &Map<String, Value>) -> Result<Secrets> {
    let names = body.get("secrets").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let found = names.map(|name| {
        let value = std::env::var(name);
        Ok((
            name.to_owned(),
            value.with_context(|| {
                Failure::usage(format!(
                    "the handler needs the secret {name}; `stoke run` does not read secrets from the API: set the variable {name}"
                ))
            })?,
        ))
    });
    found.collect()
}

/// Validates the input like the API.
fn check(schema: &Value, input: &Value) -> Result<()> {
    require!(input.is_object(), "the input must be a JSON object");
    let validator = jsonschema::validator_for(schema).context("the input schema is not valid")?;
    let wrong: Vec<String> = validator
        .iter_errors(input)
        .map(|error| format!("  input{}: {error}", error.instance_path().to_string().replace('/', ".")))
        .collect();
    if !wrong.is_empty() {
        let failure = Failure::usage(format!("the input does not match the schema:\n{}", wrong.join("\n")));
        return Err(schema::file_advice(schema, input).into_iter().fold(failure, Failure::hint).into());
    }
    Ok(())
}

/// Indices of the first GPUs, as many as the handler needs.
fn first_gpus(body: &Value) -> Vec<u32> {
    if body["vram_gib"].as_f64().unwrap_or(0.0) == 0.0 {
        return Vec::new();
    }
    let count = body["demands"]["gpus"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
    (0..count).collect()
}

/// Shows the job's logs and progress until it ends.
async fn show(mut heard: mpsc::UnboundedReceiver<JobMessage>, bar: &ProgressBar) {
    while let Some(message) = heard.recv().await {
        match message {
            JobMessage::Log { stream: LogStream::Stdout | LogStream::Stderr, text } => {
                bar.suspend(|| output::note(text.trim_end_matches('\n')));
            }
            JobMessage::Progress { fraction, message } => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000")]
                bar.set_position((fraction * 1_000.0) as u64);
                bar.set_message(output::plain(&message).into_owned());
            }
            // The result contains all outputs.
            JobMessage::Output { .. } | JobMessage::Outputs { .. } => {}
        }
    }
}

fn save(files: &BTreeMap<String, PathBuf>, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, path) in files {
        let to = folder.join(name);
        std::fs::copy(path, &to).with_context(|| format!("cannot write {}", to.display()))?;
        output::note(format_args!("saved {}", to.display()));
    }
    Ok(())
}

fn told(error: JobError) -> anyhow::Error {
    let hint = missing_module(&error.class, &error.message);
    let kind = Some(error.class).filter(|class| !class.is_empty()).map_or(String::new(), |class| format!("{class}: "));
    let mut text = format!("the job failed ({}): {kind}{}", error.code.as_str(), error.message);
    for more in [error.traceback, error.stderr].into_iter().flatten() {
        text = format!("{text}\n{}", more.trim_end());
    }
    hint.into_iter().fold(Failure::job(text), Failure::hint).into()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_request_of_every_kind_has_options_that_run_here() {
        for (golden, kind) in [
            (include_str!("../../crates/package/tests/goldens/cog.json"), "cog"),
            (include_str!("../../crates/package/tests/goldens/command.json"), "command"),
            (include_str!("../../crates/package/tests/goldens/everything.json"), "python"),
            (include_str!("../../crates/package/tests/goldens/runpod.json"), "runpod"),
            (include_str!("../../crates/package/tests/goldens/server.json"), "server"),
        ] {
            let golden: Value = serde_json::from_str(golden).unwrap();
            let spec = spec(golden["request"].as_object().unwrap()).unwrap();
            assert_eq!(spec.runner.kind(), kind);
            assert_eq!(spec.entry, golden["request"]["entry"]);
            assert!(spec.retry.is_none() && spec.before.is_empty());
        }
    }
}
