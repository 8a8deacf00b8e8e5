//! `stoke batch`: thousands of jobs, one per line of a file.

mod estimate;
pub(crate) mod lines;
pub(crate) mod model;
mod show;
pub(crate) mod submit;
pub(crate) mod watch;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::Method;
use stokehold_client::models::Batch;

use crate::client::{Client, decode, segment};
use crate::{Global, output};
use lines::Kind;

/// Submit thousands of jobs as the lines of one file, and collect the results
#[derive(Args)]
#[command(after_help = "Examples:
  stoke batch submit prompts.jsonl --endpoint render --watch --output results.jsonl
  stoke batch list --state running
  stoke batch retry batch_0123456789abcdef --watch")]
pub(crate) struct BatchArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Submit(Box<submit::SubmitArgs>),
    /// List batches, newest first
    List(show::ListArgs),
    /// Show a batch: state, counts and invalid lines
    #[command(after_help = "Examples:\n  stoke batch get batch_0123456789abcdef")]
    Get {
        /// Batch id
        id: String,
    },
    /// Show the progress of a batch until it ends
    #[command(after_help = "Examples:\n  stoke batch watch batch_0123456789abcdef")]
    Watch {
        /// Batch id
        id: String,
    },
    /// Print or save the results so far
    #[command(after_help = "Examples:\n  stoke batch results batch_0123456789abcdef -o results.jsonl")]
    Results(LinesArgs),
    /// Print or save the lines that failed so far
    #[command(after_help = "Examples:\n  stoke batch errors batch_0123456789abcdef")]
    Errors(LinesArgs),
    /// Cancel a batch (results so far are kept)
    #[command(after_help = "Examples:\n  stoke batch cancel batch_0123456789abcdef")]
    Cancel {
        /// Batch id
        id: String,
    },
    /// Retry the failed and expired lines as a new batch
    #[command(after_help = "Examples:\n  stoke batch retry batch_0123456789abcdef --watch")]
    Retry {
        /// Batch id
        id: String,
        /// Show the progress of the new batch until it ends
        #[arg(long, short)]
        watch: bool,
    },
}

#[derive(Args)]
struct LinesArgs {
    /// Batch id
    id: String,
    /// Save the lines to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) async fn run(global: &Global, args: BatchArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::Submit(args) => submit::run(global, &client, *args).await,
        Verb::List(args) => show::list(global, &client, &args).await,
        Verb::Get { id } => show::get(global, &client, &id).await,
        Verb::Watch { id } => {
            let ended = watch::until_ended(&client, &id).await?;
            show::show_ended(&ended, global.json)
        }
        Verb::Results(args) => lines::run(global, &client, Kind::Results, &args.id, args.output.as_deref()).await,
        Verb::Errors(args) => lines::run(global, &client, Kind::Errors, &args.id, args.output.as_deref()).await,
        Verb::Cancel { id } => {
            let (_, batch) = client.post(&format!("/v1/batches/{}/cancel", segment(&id)), None).await?;
            if global.json {
                return output::json(&batch);
            }
            let batch: Batch = decode(&batch)?;
            output::line(format_args!("batch {} is {}; {}", batch.id, batch.state, model::counts(batch.counts)))
        }
        Verb::Retry { id, watch } => retry(global, &client, &id, watch).await,
    }
}

async fn retry(global: &Global, client: &Client, id: &str, watch: bool) -> Result<()> {
    // Not idempotent: a second request would create a second batch.
    let accepted = client.once(Method::POST, &format!("/v1/batches/{}/retry-failed", segment(id)), None).await?;
    let batch: Batch = decode(&accepted)?;
    if watch {
        output::note(output::dim(format_args!("batch {} retries the lines of {id}", batch.id)));
        let ended = watch::until_ended(client, &batch.id).await?;
        return show::show_ended(&ended, global.json);
    }
    show::accepted(global, &accepted)
}

#[cfg(test)]
mod tests {
    use crate::stub::parse;

    #[test]
    fn every_verb_parses() {
        for line in [
            "batch submit in.jsonl",
            "batch submit - --endpoint e --watch --on-invalid skip --priority standard --deadline 60s --timeout 5s --max-attempts 2 \
             --format openai --metadata a=b --metadata c=d --webhook https://x.test --output r.jsonl --errors e.jsonl --json",
            "batch list --state running",
            "batch get batch_1",
            "batch watch batch_1",
            "batch results batch_1 -o r.jsonl",
            "batch errors batch_1",
            "batch cancel batch_1",
            "batch retry batch_1 --watch",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
        assert!(parse("batch submit in.jsonl --output r.jsonl").is_err_and(|said| said.contains("--watch")));
        assert!(parse("batch list --state done").is_err_and(|said| said.contains("completed")));
    }
}
