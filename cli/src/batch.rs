//! `stoke batch`: thousands of jobs from the lines of one file.

mod estimate;
pub(crate) mod lines;
pub(crate) mod model;
mod show;
mod submit;
pub(crate) mod watch;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::Method;

use crate::client::{Client, segment};
use crate::{Global, output};
use lines::Kind;
use model::Batch;

/// Submit thousands of jobs as the lines of one file, and collect what came of them
#[derive(Args)]
pub(crate) struct BatchArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Submit(Box<submit::SubmitArgs>),
    /// List batches, the newest first
    List(show::ListArgs),
    /// Show a batch: its state, its counts, its invalid lines
    Get {
        /// The batch's id
        id: String,
    },
    /// Show how far a batch is, until it has ended
    Watch {
        /// The batch's id
        id: String,
    },
    /// Print or save the results, at any time
    Results(LinesArgs),
    /// Print or save the lines that failed, at any time
    Errors(LinesArgs),
    /// Cancel a batch; results that are there stay
    Cancel {
        /// The batch's id
        id: String,
    },
    /// Try the failed and expired lines again, as a new batch
    Retry {
        /// The batch's id
        id: String,
        /// Show how far the new batch is, until it has ended
        #[arg(long, short)]
        watch: bool,
    },
}

#[derive(Args)]
struct LinesArgs {
    /// The batch's id
    id: String,
    /// Save them in this file [default: standard output]
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
            let batch = Batch::decode(&batch)?;
            output::line(format_args!("batch {} is {}; {}", batch.id, batch.state, batch.counts))
        }
        Verb::Retry { id, watch } => retry(global, &client, &id, watch).await,
    }
}

async fn retry(global: &Global, client: &Client, id: &str, watch: bool) -> Result<()> {
    // Sent twice, it would make two batches.
    let accepted = client.once(Method::POST, &format!("/v1/batches/{}/retry-failed", segment(id)), None).await?;
    let batch = Batch::decode(&accepted)?;
    if watch {
        output::note(output::dim(format_args!("batch {} tries the lines of {id} again", batch.id)));
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
            "batch submit - --endpoint e --watch --on-invalid skip --priority standard --deadline-s 60 --timeout-s 5 --max-attempts 2 \
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
