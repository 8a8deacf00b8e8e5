//! `stoke batch submit`: uploads a file while reading it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use stokehold_client::models::{Batch, BatchRequest};

use super::lines::{self, Kind};
use super::{estimate, show, watch};
use crate::client::{Client, decode, query};
use crate::submit::flags::BatchFlags;
use crate::submit::options;
use crate::upload::lines::{Lines, send};
use crate::{Global, completions, output};

/// Submit each line of a file as a job
///
/// A line is {"input": ...} with optional "custom_id", "endpoint" and "metadata", or a line of an OpenAI batch file.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke batch submit prompts.jsonl --endpoint render --watch -o results.jsonl --errors errors.jsonl
  stoke batch submit prompts.jsonl --endpoint render --budget-usd 2.50 --at-budget stop
  generate-lines | stoke batch submit - --endpoint embed --on-invalid skip")]
pub(super) struct SubmitArgs {
    /// File with one job per line, or - for standard input
    file: PathBuf,
    /// Endpoint of lines that name none, or one version of it
    #[arg(long, value_name = "NAME[@VERSION]", add = completions::endpoints())]
    endpoint: Option<String>,
    /// Show the progress until the batch ends
    #[arg(long, short)]
    watch: bool,
    /// Print the estimated cost and submit nothing
    #[arg(long, conflicts_with_all = ["watch", "budget_usd"])]
    estimate: bool,
    #[command(flatten)]
    batch: BatchFlags,
    /// Save the results to this file when the batch ends
    #[arg(long, short, value_name = "FILE", requires = "watch")]
    output: Option<PathBuf>,
    /// Save the failed lines to this file when the batch ends
    #[arg(long, value_name = "FILE", requires = "watch")]
    errors: Option<PathBuf>,
    /// Idempotency key: submitting the same file with the same key returns the existing batch
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub(super) async fn run(global: &Global, client: &Client, args: SubmitArgs) -> Result<()> {
    let path = path(&args)?;
    let endpoint = args.endpoint.as_deref().map(options::endpoint).transpose()?.map(|(name, _)| name);
    let lines = Lines::open(&args.file).await?;
    if args.estimate {
        return estimate::run(global, client, endpoint.as_deref(), &lines).await;
    }
    estimate::say(client, endpoint.as_deref(), &lines).await;
    let key = args.idempotency_key.clone().unwrap_or_else(|| format!("stoke-{:032x}", rand::random::<u128>()));
    let accepted = send(client, &path, &key, &lines).await?;
    if !args.watch {
        return show::accepted(global, &accepted);
    }
    let id = decode::<Batch>(&accepted)?.id;
    // Printed early: the id is needed to watch again after an interruption.
    output::note(output::dim(format_args!("batch {id}; to watch it again: `stoke batch watch {id}`")));
    let ended = watch::until_ended(client, &id).await?;
    for (kind, to) in [(Kind::Results, &args.output), (Kind::Errors, &args.errors)] {
        if let Some(to) = to {
            let count = lines::save(client, kind, &id, to).await?;
            lines::said(kind, count, Some(to));
        }
    }
    show::show_ended(&ended, global.json)
}

/// The request path. The options are its query.
fn path(args: &SubmitArgs) -> Result<String> {
    let (endpoint, version) = args.endpoint.as_deref().map(options::endpoint).transpose()?.unzip();
    let mut request = BatchRequest { endpoint, version: version.flatten(), ..BatchRequest::default() };
    args.batch.set(&mut request)?;
    path_of(&request)
}

/// The path of a request whose body is the lines: its members are the query.
pub(crate) fn path_of(request: &BatchRequest) -> Result<String> {
    let members = serde_json::to_value(request)?;
    let mut path = "/v1/batches".to_owned();
    for (name, value) in members.as_object().into_iter().flatten() {
        match value {
            Value::String(text) => path = query(&path, &[(name, Some(text))]),
            Value::Object(labels) => {
                for (label, value) in labels {
                    path = query(&path, &[(&format!("{name}.{label}"), value.as_str())]);
                }
            }
            other => path = query(&path, &[(name, Some(&other.to_string()))]),
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::batch::{BatchArgs, Verb};
    use crate::{Command, stub};

    #[test]
    fn options_become_the_query() {
        let line = "batch submit f --endpoint e@3 --on-invalid skip --priority standard --deadline 60s --timeout 5s \
            --max-attempts 2 --format openai --budget-usd 2.50 --at-budget stop --metadata a=b --metadata c=d&e --webhook https://x.test/?a=b";
        let Command::Batch(BatchArgs { verb: Verb::Submit(args) }) = stub::parse(line).unwrap() else {
            panic!("is one")
        };
        assert_eq!(
            path(&args).unwrap(),
            "/v1/batches?at_budget=stop&budget_usd_micros=2500000&deadline_s=60&endpoint=e&format=openai&max_attempts=2\
             &metadata.a=b&metadata.c=d%26e&on_invalid=skip&priority=standard&timeout_s=5&version=3\
             &webhook=https%3A%2F%2Fx.test%2F%3Fa%3Db"
        );
    }
}
