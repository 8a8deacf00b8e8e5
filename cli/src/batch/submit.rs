//! `stoke batch submit`: a file goes up as it is read.

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
/// A line is {"input": ...}, with "custom_id", "endpoint" and "metadata" if you like, or a line of an OpenAI batch.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke batch submit prompts.jsonl --endpoint render --watch --output results.jsonl --errors errors.jsonl
  stoke batch submit prompts.jsonl --endpoint render --budget-usd 2.50 --at-budget stop
  generate-lines | stoke batch submit - --endpoint embed --on-invalid skip")]
pub(super) struct SubmitArgs {
    /// The file, a job on each line, or - for standard input
    file: PathBuf,
    /// The endpoint of the lines that name none
    #[arg(long)]
    endpoint: Option<String>,
    /// Its version that they run on [default: the current one]
    #[arg(long, value_name = "N", requires = "endpoint", value_parser = clap::value_parser!(u32).range(1..))]
    version: Option<u32>,
    /// Show how far it is, until it has ended
    #[arg(long, short)]
    watch: bool,
    /// What to do when a line is no job: fail the batch before anything runs, or leave the line out
    #[arg(long, value_enum)]
    on_invalid: Option<OnInvalid>,
    /// How urgent the jobs are [default: batch]
    #[arg(long, value_enum)]
    priority: Option<Priority>,
    /// The longest that the batch may take; what is open then is `expired`
    #[arg(long, value_name = "SECONDS")]
    deadline_s: Option<u64>,
    /// The longest that an attempt may run [default: the endpoint's]
    #[arg(long, value_name = "SECONDS")]
    timeout_s: Option<u64>,
    /// Attempts before a line is given up [default: the endpoint's]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Dollars that the lines may cost together; then those that have not started are cancelled
    #[arg(long, value_name = "USD", value_parser = money::micros)]
    budget_usd: Option<u64>,
    /// What happens to the lines that run then: they end (drain), or are cancelled too (stop) [default: drain]
    #[arg(long, value_name = "WHAT", value_parser = ["drain", "stop"], requires = "budget_usd")]
    at_budget: Option<String>,
    /// Only say what it would cost, and submit nothing
    #[arg(long, conflicts_with_all = ["watch", "budget_usd"])]
    estimate: bool,
    /// How the lines are written [default: auto]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// A label of your own; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// Tell this https URL when the batch has ended
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Save the results in this file when it has ended
    #[arg(long, short, value_name = "FILE", requires = "watch")]
    output: Option<PathBuf>,
    /// Save the lines that failed in this file when it has ended
    #[arg(long, value_name = "FILE", requires = "watch")]
    errors: Option<PathBuf>,
    /// The same key and the same file again give the batch that is there
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
    // Whoever stops watching needs the id to come back.
    output::note(output::dim(format_args!("batch {id}; `stoke batch watch {id}` watches it too")));
    let ended = watch::until_ended(client, &id).await?;
    for (kind, to) in [(Kind::Results, &args.output), (Kind::Errors, &args.errors)] {
        if let Some(to) = to {
            let count = lines::save(client, kind, &id, to).await?;
            lines::said(kind, count, Some(to));
        }
    }
    show::show_ended(&ended, global.json)
}

/// Where the lines go: the options are its query.
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
