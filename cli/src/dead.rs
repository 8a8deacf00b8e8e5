//! `stoke job dead`.

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::Cell;
use serde_json::{Value, json};
use stokehold_client::models::{Job, JobErrorCode, JobFilter, JobState};

use crate::client::{Client, decode, pages};
use crate::failure::require;
use crate::filter::{self, FilterArgs};
use crate::{Global, output, progress};

/// States of dead letters. Cancelled jobs are not included.
const DEAD: [JobState; 2] = [JobState::Failed, JobState::Expired];

const LIST_DEFAULT: u32 = 20;

/// Maximum number of jobs that one command lists. `retry` has no limit by default.
const LIST_MAX: u32 = 10_000;

/// List or retry dead letters: failed or expired jobs that were not retried
#[derive(Args)]
#[command(after_help = "Examples:
  stoke job dead list --endpoint render
  stoke job dead retry --endpoint render --error-code oom_gpu
  stoke job dead retry --all")]
pub(crate) struct DeadArgs {
    #[command(subcommand)]
    verb: Verb,
    // Global, so that they work before and after the verb: `retry` must never ignore a filter.
    /// Only jobs of this endpoint
    #[arg(long, global = true)]
    endpoint: Option<String>,
    /// Only jobs that ended with this error code, e.g. handler_error or timeout
    #[arg(long, global = true, value_name = "CODE")]
    error_code: Option<String>,
    /// Maximum number of jobs [default: 20 for list, all for retry]
    #[arg(long, short, global = true, value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

#[derive(Subcommand)]
enum Verb {
    /// List dead letters, newest first
    #[command(after_help = "Examples:\n  stoke job dead list --endpoint render --limit 100")]
    List,
    /// Retry dead letters, each as a new job
    #[command(
        after_help = "Examples:\n  stoke job dead retry --all\n  stoke job dead retry --endpoint render --error-code oom_gpu"
    )]
    Retry {
        /// Retry all dead letters
        #[arg(long)]
        all: bool,
        /// Use the endpoint version on which each job ran, instead of the current one
        #[arg(long)]
        same_version: bool,
        #[command(flatten)]
        filter: FilterArgs,
    },
}

pub(crate) async fn run(global: &Global, args: DeadArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match &args.verb {
        Verb::List => {
            let limit = args.limit.unwrap_or(LIST_DEFAULT).min(LIST_MAX);
            let given = [("endpoint", args.endpoint.as_deref()), ("error_code", args.error_code.as_deref())];
            let jobs = pages::collect(&client, "/v1/dead-letters", &given, "jobs", limit).await?;
            list(global, &jobs)
        }
        Verb::Retry { all, same_version, filter } => {
            let chosen = JobFilter {
                endpoint: args.endpoint.clone(),
                error_code: args.error_code.clone().map(JobErrorCode::from),
                ..filter.job_filter()?
            };
            require!(
                *all || chosen != JobFilter::default(),
                "no jobs given: use --all, or filter with --endpoint, --error-code, --batch, --schedule, --priority or --metadata"
            );
            let limit = args.limit.unwrap_or(u32::MAX);
            let retried = retry(&client, &chosen, *same_version, limit).await?;
            if global.json {
                let pairs: Vec<Value> = retried.iter().map(|[old, new]| json!({"id": old, "new_id": new})).collect();
                return output::json(&json!({"retried": pairs}));
            }
            output::line(format_args!("retried {}", output::counted(retried.len() as u64, "job")))
        }
    }
}

async fn retry(client: &Client, chosen: &JobFilter, same_version: bool, limit: u32) -> Result<Vec<[String; 2]>> {
    let spinner = progress::spinner("retrying");
    let (mut retried, mut left) = (Vec::new(), limit);
    // One call per state: without a state, the filter would also match cancelled jobs.
    for state in DEAD {
        let filter = JobFilter { state: Some(state), ..chosen.clone() };
        let before = retried.len() as u64;
        let seen = |n| spinner.set_message(format!("{} retried", output::count(before + n)));
        let done = filter::retry_all(client, &filter, same_version, left, seen).await?;
        left = left.saturating_sub(u32::try_from(done.len()).unwrap_or(u32::MAX));
        retried.extend(done);
    }
    spinner.finish_and_clear();
    Ok(retried)
}

fn list(global: &Global, jobs: &[Value]) -> Result<()> {
    if global.json {
        return output::json(&json!({"jobs": jobs}));
    }
    output::print_table(&table(jobs)?, "no dead letters")?;
    if !jobs.is_empty() {
        output::note(output::dim(
            "`stoke get JOB` shows the error, `stoke retry JOB` retries one job, `stoke job dead retry --all` retries all",
        ));
    }
    Ok(())
}

fn table(jobs: &[Value]) -> Result<output::Table> {
    let mut table = output::table(["job", "endpoint", "state", "ended", "attempts", "error"]).wrapping(&["error"]);
    for job in jobs {
        let job: Job = decode(job)?;
        table.add_row([
            Cell::new(&job.id),
            Cell::new(job.endpoint_version()),
            output::state_cell(job.state.as_str()),
            Cell::new(output::ago(job.ended_at.as_deref())),
            Cell::new(job.attempts.len()),
            Cell::new(job.error.as_ref().map_or("-".to_owned(), |error| error.in_short())),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::{Arc, Mutex};

    use axum::routing::post;
    use axum::{Json, Router};

    use super::*;
    use crate::job::{self, JobArgs};
    use crate::{Command, stub};

    #[test]
    fn filters_stand_before_or_after_the_verb() {
        for line in ["dlq --endpoint e retry", "dlq retry --endpoint e", "dlq --endpoint e", "dlq list --endpoint e"] {
            let Command::Job(JobArgs { verb: job::Verb::Dead(args) }) = stub::parse(line).unwrap() else {
                panic!("is one")
            };
            assert_eq!(args.endpoint.as_deref(), Some("e"), "{line}");
        }
        assert!(stub::parse("dlq retry --all --batch b --error-code poison --limit 5").is_ok());
        assert!(stub::parse("dlq --all").is_err());
    }

    #[tokio::test]
    async fn only_what_failed_or_expired_is_tried_again() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let answer = |Json(body): Json<Value>| async move {
            let state = body["filter"]["state"].as_str().unwrap().to_owned();
            seen.lock().unwrap().push(body["filter"].clone());
            Json(json!({"retried": [{"id": state, "new_id": format!("{state}-again")}], "more": false}))
        };
        let client = stub::serve(Router::new().route("/v1/jobs/retry", post(answer))).await;
        let chosen = JobFilter { endpoint: Some("e".to_owned()), ..JobFilter::default() };
        let done = retry(&client, &chosen, false, u32::MAX).await.unwrap();
        assert_eq!(done.len(), 2);
        let expected = ["failed", "expired"].map(|state| json!({"endpoint": "e", "state": state}));
        assert_eq!(*asked.lock().unwrap(), expected);
    }

    #[test]
    fn the_error_fits_in_a_cell() {
        let job = json!({"id": "1", "endpoint": "e", "version": 2, "state": "failed",
            "error": {"code": "handler_error", "class": "LookupError", "message": "no such thing\nat all"}});
        let shown = table(&[job]).unwrap().trim_fmt();
        assert!(shown.contains("handler_error: LookupError: no such thing"), "{shown}");
        assert!(!shown.contains("at all"), "{shown}");
    }
}
