//! `stoke cancel`.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use stokehold_client::models::{Job, JobFilter, JobState};

use crate::client::{Client, decode, segment};
use crate::failure::{Failures, usage};
use crate::filter::{self, FilterArgs};
use crate::{Global, output, progress};

/// Cancel jobs by id, or every job that a filter matches (--all)
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:
  stoke cancel 0192f0c1a2b37cde8f00112233445500
  stoke cancel --endpoint render --state queued --all"
)]
pub(crate) struct CancelArgs {
    /// Job ids
    #[arg(value_name = "JOB", conflicts_with_all = [
        "all", "endpoint", "state", "batch", "schedule", "priority", "metadata",
    ])]
    ids: Vec<String>,
    /// Cancel every job that the filter matches
    #[arg(long)]
    all: bool,
    /// Only jobs of this endpoint
    #[arg(long, requires = "all")]
    endpoint: Option<String>,
    /// Only jobs in this state
    #[arg(long, requires = "all", value_parser = ["scheduled", "blocked", "queued", "running"])]
    state: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
}

pub(crate) async fn run(global: &Global, args: CancelArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match &args.ids[..] {
        [] => matching(global, &client, &args).await,
        [id] => one(global, &client, id).await,
        ids => several(global, &client, ids).await,
    }
}

async fn one(global: &Global, client: &Client, id: &str) -> Result<()> {
    let cancelled = cancel(client, id).await?;
    if global.json {
        return output::json(&cancelled);
    }
    output::line(describe(&decode(&cancelled)?))
}

async fn several(global: &Global, client: &Client, ids: &[String]) -> Result<()> {
    let (mut jobs, mut failures) = (Vec::new(), Failures::default());
    for id in ids {
        match cancel(client, id).await {
            Ok(cancelled) => {
                if !global.json {
                    output::line(describe(&decode(&cancelled)?))?;
                }
                jobs.push(cancelled);
            }
            // Continue with the remaining jobs.
            Err(error) => failures.add(format_args!("job {id}"), &error),
        }
    }
    if global.json {
        output::json(&json!({"jobs": jobs}))?;
    }
    failures.end(ids.len(), "job", "were not cancelled")
}

async fn matching(global: &Global, client: &Client, args: &CancelArgs) -> Result<()> {
    let filter = JobFilter {
        endpoint: args.endpoint.clone(),
        state: args.state.clone().map(JobState::from),
        ..args.filter.job_filter()?
    };
    match (args.all, filter == JobFilter::default()) {
        (true, false) => (),
        (false, false) => usage!("this would cancel every job that the filter matches; add --all to confirm"),
        (_, true) => {
            usage!(
                "no jobs given: pass job ids, or filter with --endpoint, --state, --batch, --schedule, --priority or --metadata"
            )
        }
    }
    let spinner = progress::spinner("cancelling");
    let cancelled =
        filter::cancel_all(client, &filter, |n| spinner.set_message(format!("{} cancelled", output::count(n)))).await?;
    spinner.finish_and_clear();
    if global.json {
        return output::json(&json!({"cancelled": cancelled}));
    }
    output::line(format_args!("{} cancelled; workers stop the running ones", output::counted(cancelled, "job")))
}

async fn cancel(client: &Client, id: &str) -> Result<Value> {
    Ok(client.post(&format!("/v1/jobs/{}/cancel", segment(id)), None).await?.1)
}

fn describe(job: &Job) -> String {
    let suffix = if job.state.has_ended() { "" } else { "; its worker is stopping it" };
    format!("job {} is {}{suffix}", job.id, job.state)
}

#[cfg(test)]
mod tests {
    use crate::stub::parse;

    #[test]
    fn ids_and_filters_are_two_forms() {
        assert!(parse("cancel 01").is_ok() && parse("cancel 01 02").is_ok());
        assert!(parse("cancel --endpoint e --state queued --all").is_ok());
        assert!(parse("cancel --batch batch_1 --metadata a=b --all").is_ok());
        assert!(parse("cancel 01 --all").is_err_and(|said| said.contains("cannot be used with")));
        assert!(parse("cancel --endpoint e").is_err_and(|said| said.contains("--all")));
    }
}
