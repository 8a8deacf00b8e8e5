//! `stoke batch submit`: uploads a file while reading it.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::lines::{self, Kind};
use super::model::Batch;
use super::{estimate, show, watch};
use crate::client::{Client, query};
use crate::submit::options::{Priority, pair_of};
use crate::upload::lines::{Lines, send};
use crate::{Global, money, output};

/// Submit each line of a file as a job
///
/// A line is {"input": ...} with optional "custom_id", "endpoint" and "metadata", or a line of an OpenAI batch file.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke batch submit prompts.jsonl --endpoint render --watch --output results.jsonl --errors errors.jsonl
  stoke batch submit prompts.jsonl --endpoint render --budget-usd 2.50 --at-budget stop
  generate-lines | stoke batch submit - --endpoint embed --on-invalid skip")]
pub(super) struct SubmitArgs {
    /// File with one job per line, or - for standard input
    file: PathBuf,
    /// Endpoint of lines that name none
    #[arg(long)]
    endpoint: Option<String>,
    /// Version of the endpoint to run on [default: the current one]
    #[arg(long, value_name = "N", requires = "endpoint", value_parser = clap::value_parser!(u32).range(1..))]
    version: Option<u32>,
    /// Show the progress until the batch ends
    #[arg(long, short)]
    watch: bool,
    /// What to do if a line is invalid: fail the batch before any job runs, or skip the line [default: fail]
    #[arg(long, value_enum)]
    on_invalid: Option<OnInvalid>,
    /// Priority of the jobs [default: batch]
    #[arg(long, value_enum)]
    priority: Option<Priority>,
    /// Time limit of the batch in seconds; jobs that are open then become `expired` [default: none]
    #[arg(long, value_name = "SECONDS")]
    deadline_s: Option<u64>,
    /// Time limit of one attempt in seconds [default: the endpoint's]
    #[arg(long, value_name = "SECONDS")]
    timeout_s: Option<u64>,
    /// Maximum attempts per line [default: the endpoint's]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Budget of the batch in US dollars; once it is spent, lines that have not started are cancelled [default: none]
    #[arg(long, value_name = "USD", value_parser = money::micros)]
    budget_usd: Option<u64>,
    /// What happens to running lines when the budget is spent: let them finish (drain) or cancel them (stop) [default:
    /// drain]
    #[arg(long, value_name = "WHAT", value_parser = ["drain", "stop"], requires = "budget_usd")]
    at_budget: Option<String>,
    /// Print the estimated cost and submit nothing
    #[arg(long, conflicts_with_all = ["watch", "budget_usd"])]
    estimate: bool,
    /// Format of the lines [default: auto]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Label of the batch; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// https URL to notify when the batch ends
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
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

#[derive(Clone, Copy, ValueEnum)]
enum OnInvalid {
    Fail,
    Skip,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Auto,
    Stokehold,
    Openai,
}

pub(super) async fn run(global: &Global, client: &Client, args: SubmitArgs) -> Result<()> {
    let path = path(&args)?;
    let lines = Lines::open(&args.file).await?;
    if args.estimate {
        return estimate::run(global, client, args.endpoint.as_deref(), &lines).await;
    }
    estimate::say(client, args.endpoint.as_deref(), &lines).await;
    let key = args.idempotency_key.clone().unwrap_or_else(|| format!("stoke-{:032x}", rand::random::<u128>()));
    let accepted = send(client, &path, &key, &lines).await?;
    if !args.watch {
        return show::accepted(global, &accepted);
    }
    let id = Batch::decode(&accepted)?.id;
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
    let word = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
    let given = [
        ("endpoint", args.endpoint.clone()),
        ("version", args.version.map(|version| version.to_string())),
        ("format", args.format.and_then(|format| word(format.to_possible_value()))),
        ("priority", args.priority.map(|priority| priority.word().to_owned())),
        ("on_invalid", args.on_invalid.and_then(|on| word(on.to_possible_value()))),
        ("deadline_s", args.deadline_s.map(|s| s.to_string())),
        ("timeout_s", args.timeout_s.map(|s| s.to_string())),
        ("max_attempts", args.max_attempts.map(|n| n.to_string())),
        ("budget_usd_micros", args.budget_usd.map(|micros| micros.to_string())),
        ("at_budget", args.at_budget.clone()),
        ("webhook", args.webhook.clone()),
    ];
    let members: Vec<(&str, Option<&str>)> = given.iter().map(|(name, value)| (*name, value.as_deref())).collect();
    let mut path = query("/v1/batches", &members);
    for pair in &args.metadata {
        let (name, value) = pair_of(pair)?;
        path = query(&path, &[(&format!("metadata.{name}"), Some(value))]);
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
        let line = "batch submit f --endpoint e --version 3 --on-invalid skip --priority standard --deadline-s 60 --timeout-s 5 \
            --max-attempts 2 --format openai --budget-usd 2.50 --at-budget stop --metadata a=b --metadata c=d&e --webhook https://x.test/?a=b";
        let Command::Batch(BatchArgs { verb: Verb::Submit(args) }) = stub::parse(line).unwrap() else {
            panic!("is one")
        };
        assert_eq!(
            path(&args).unwrap(),
            "/v1/batches?endpoint=e&version=3&format=openai&priority=standard&on_invalid=skip&deadline_s=60&timeout_s=5&max_attempts=2\
             &budget_usd_micros=2500000&at_budget=stop&webhook=https%3A%2F%2Fx.test%2F%3Fa%3Db&metadata.a=b&metadata.c=d%26e"
        );
    }
}
