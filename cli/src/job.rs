//! `stoke job`: every verb of a job. The ones of every day are also commands at the root, e.g. `stoke get`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use stokehold_client::models::Job;

use crate::client::{Client, decode, segment};
use crate::failure::Failure;
use crate::{Global, cancel, dead, get, list, logs, quarantined, redrive, submit};

/// Submit, show, follow, cancel and retry jobs
#[derive(Args)]
#[command(after_help = "Examples:
  stoke job submit echo --input '{\"text\": \"hi\"}' --wait
  stoke job list --endpoint render --state failed
  stoke job dead retry --endpoint render")]
pub(crate) struct JobArgs {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    Submit(Box<submit::SubmitArgs>),
    List(list::ListArgs),
    Get(get::GetArgs),
    Result(ResultArgs),
    Logs(logs::LogsArgs),
    Cancel(cancel::CancelArgs),
    Retry(redrive::RetryArgs),
    Dead(dead::DeadArgs),
    Quarantined(quarantined::QuarantinedArgs),
}

/// Print the result of a job that has succeeded
#[derive(Args)]
#[command(after_help = "Examples:
  stoke job result 0192f0c1a2b37cde8f00112233445500
  stoke job result 0192f0c1a2b37cde8f00112233445500 --out pictures/")]
pub(crate) struct ResultArgs {
    /// Job id
    id: String,
    /// Save the files of the result to this folder
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(crate) async fn run(global: &Global, args: JobArgs) -> Result<()> {
    match args.verb {
        Verb::Submit(args) => Box::pin(submit::run(global, *args)).await,
        Verb::List(args) => Box::pin(list::run(global, args)).await,
        Verb::Get(args) => Box::pin(get::run(global, args)).await,
        Verb::Result(args) => result(global, &args).await,
        Verb::Logs(args) => Box::pin(logs::run(global, args)).await,
        Verb::Cancel(args) => Box::pin(cancel::run(global, args)).await,
        Verb::Retry(args) => Box::pin(redrive::run(global, args)).await,
        Verb::Dead(args) => Box::pin(dead::run(global, args)).await,
        Verb::Quarantined(args) => Box::pin(quarantined::run(global, args)).await,
    }
}

async fn result(global: &Global, args: &ResultArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let found = client.get(&format!("/v1/jobs/{}", segment(&args.id))).await?;
    let job: Job = decode(&found)?;
    if !job.state.has_ended() {
        let hint = format!("Wait for its result with `stoke get {} --wait`.", job.id);
        return Err(Failure::timed_out(format!("job {} is {}", job.id, job.state)).hint(hint).into());
    }
    submit::show_ended(&client, &found, args.out.as_deref(), false).await
}
