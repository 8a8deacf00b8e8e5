//! `stoke submit`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::client::{Call, Client};
use crate::job::{self, Job};
use crate::{Global, output, upload, wait};

/// Submit a job, and wait for its result with --wait
#[derive(Args)]
#[command(after_help = "Examples:
  stoke submit echo --input '{\"text\": \"hi\"}' --wait
  stoke submit render --input @prompt.json --wait --out pictures/
  stoke submit transcribe --file audio=talk.mp3 --wait")]
pub(crate) struct SubmitArgs {
    /// The endpoint, or a version of it as NAME@VERSION
    endpoint: String,
    /// The input as JSON, as @FILE, or as - for standard input
    #[arg(long, short)]
    input: Option<String>,
    /// Upload a file and give it as this member of the input; may be repeated
    #[arg(long, short, value_name = "KEY=PATH")]
    file: Vec<String>,
    /// Wait until the job has ended and print its result
    #[arg(long, short)]
    wait: bool,
    /// Stop waiting after this long, as 90s or 5m; the job goes on
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, requires = "wait")]
    wait_timeout: Option<Duration>,
    /// Save the files that the result names in this folder
    #[arg(long, short, value_name = "FOLDER", requires = "wait")]
    out: Option<PathBuf>,
    /// How urgent it is
    #[arg(long, value_enum)]
    priority: Option<Priority>,
    /// The longest that an attempt may run, seconds [default: the endpoint's]
    #[arg(long, value_name = "SECONDS")]
    timeout_s: Option<u64>,
    /// Attempts before the job is given up [default: the endpoint's]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Not before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    run_after: Option<String>,
    /// A label of your own; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// The same key and the same job again give the job that is there
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Priority {
    Interactive,
    Standard,
    Batch,
}

pub(crate) async fn run(global: &Global, args: SubmitArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let body = body(&client, &args).await?;
    // A request that is sent again must not make a second job.
    let key = args.idempotency_key.clone().unwrap_or_else(|| format!("stoke-{:032x}", rand::random::<u128>()));
    let call = Call {
        method: Method::POST,
        path: "/v1/jobs",
        body: Some(&body),
        headers: &[("idempotency-key", &key)],
        hold: Duration::ZERO,
    };
    let (_, accepted) = client.call(&call).await?;
    let job = Job::decode(&accepted)?;
    if args.wait {
        let ended = wait::until_ended(&client, &job.id, args.wait_timeout).await?;
        return show_ended(&client, &ended, args.out.as_deref(), global.json).await;
    }
    if global.json {
        return output::json(&accepted);
    }
    output::line(&job.id)?;
    output::note(output::dim(format_args!(
        "{} on {}; `stoke get {} --wait` prints its result",
        job.state,
        job.endpoint(),
        job.id
    )));
    Ok(())
}

/// Prints the result of an ended job, or with `json` the whole job. A job that did not succeed is an error.
pub(crate) async fn show_ended(client: &Client, ended: &Value, out: Option<&Path>, json: bool) -> Result<()> {
    let job = Job::decode(ended)?;
    if job.state != "succeeded" {
        if json {
            output::json(ended)?;
        }
        return job.succeeded();
    }
    let result = if json && out.is_none() { Value::Null } else { job::result(client, &job).await? };
    // Before anything is printed: whoever reads it may have seen enough and close the pipe.
    if let Some(folder) = out {
        for path in job::save_files(client, &result, folder).await? {
            output::note(format_args!("saved {}", path.display()));
        }
    }
    output::json(if json { ended } else { &result })
}

async fn body(client: &Client, args: &SubmitArgs) -> Result<Value> {
    let (endpoint, version) = match args.endpoint.split_once('@') {
        Some((endpoint, version)) => {
            let version: u32 =
                version.parse().with_context(|| format!("{version:?} is no version; they are 1, 2, ..."))?;
            (endpoint, Some(version))
        }
        None => (args.endpoint.as_str(), None),
    };
    let mut body = Map::new();
    body.insert("endpoint".to_owned(), endpoint.into());
    body.insert("input".to_owned(), input(client, args).await?);
    let priority = args.priority.and_then(|priority| Some(priority.to_possible_value()?.get_name().to_owned()));
    let given = [
        ("version", version.map(Value::from)),
        ("priority", priority.map(Value::from)),
        ("timeout_s", args.timeout_s.map(Value::from)),
        ("max_attempts", args.max_attempts.map(Value::from)),
        ("run_after", args.run_after.clone().map(Value::from)),
    ];
    body.extend(given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    if !args.metadata.is_empty() {
        let metadata: Result<Map<String, Value>> =
            args.metadata.iter().map(|pair| pair_of(pair).map(|(key, value)| (key.to_owned(), value.into()))).collect();
        body.insert("metadata".to_owned(), metadata?.into());
    }
    Ok(body.into())
}

async fn input(client: &Client, args: &SubmitArgs) -> Result<Value> {
    let mut input = match args.input.as_deref() {
        None => json!({}),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            parse(&text, "standard input")?
        }
        Some(given) => match given.strip_prefix('@') {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
                parse(&text, path)?
            }
            None => parse(given, "--input")?,
        },
    };
    for pair in &args.file {
        let (key, path) = pair_of(pair)?;
        let Some(members) = input.as_object_mut() else {
            bail!("--file gives a member of the input, and the input is no JSON object");
        };
        let id = upload::input_file(client, Path::new(path)).await?;
        members.insert(key.to_owned(), json!({"$file": id}));
    }
    Ok(input)
}

fn parse(text: &str, from: &str) -> Result<Value> {
    serde_json::from_str(text)
        .with_context(|| format!("{from} is not JSON; strings want double quotes, as in '{{\"text\": \"hi\"}}'"))
}

fn pair_of(text: &str) -> Result<(&str, &str)> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.with_context(|| format!("{text:?} is not KEY=VALUE"))
}
