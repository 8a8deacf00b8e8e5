//! `stoke list`.

use anyhow::Result;
use clap::Args;
use comfy_table::{Cell, ColumnConstraint};
use serde_json::{Value, json};
use stokehold_client::models::{Job, JobFilter, Priority};

use crate::client::{Client, decode, pages, query};
use crate::filter::FilterArgs;
use crate::{Global, completions, output, waiting};

/// Index of the column with the reason why a job waits.
const WAITING: usize = 6;

/// List jobs, newest first
#[derive(Args)]
#[command(after_help = "Examples:
  stoke list --endpoint render --state failed
  stoke list --metadata customer=7 --limit 100 --json")]
pub(crate) struct ListArgs {
    /// Only jobs in this state
    #[arg(long, value_parser = ["scheduled", "blocked", "queued", "running", "succeeded", "failed", "cancelled", "expired"])]
    state: Option<String>,
    /// Only jobs of this endpoint
    #[arg(long, add = completions::endpoints())]
    endpoint: Option<String>,
    /// Only jobs that ended with this error code, e.g. handler_error or timeout
    #[arg(long, value_name = "CODE")]
    error_code: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Maximum number of jobs
    #[arg(long, short, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub(crate) async fn run(global: &Global, args: ListArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let jobs = pages::collect(&client, &args.path()?, &[], "jobs", args.limit).await?;
    if global.json {
        return output::json(&json!({"jobs": jobs}));
    }
    output::print_table(&table(&jobs)?, "no jobs found")
}

impl ListArgs {
    /// The path of the list, with the filters as its query.
    fn path(&self) -> Result<String> {
        let JobFilter { batch, schedule, priority, metadata, .. } = self.filter.job_filter()?;
        let filter = [
            ("state", self.state.as_deref()),
            ("endpoint", self.endpoint.as_deref()),
            ("batch", batch.as_deref()),
            ("schedule", schedule.as_deref()),
            ("priority", priority.as_ref().map(Priority::as_str)),
            ("error_code", self.error_code.as_deref()),
        ];
        let path = query("/v1/jobs", &filter);
        let labels = metadata.unwrap_or_default();
        Ok(labels
            .iter()
            .fold(path, |path, (label, value)| query(&path, &[(&format!("metadata.{label}"), Some(value.as_str()))])))
    }
}

fn table(jobs: &[Value]) -> Result<output::Table> {
    let mut table =
        output::table(["job", "endpoint", "state", "created", "attempts", "run", "waiting"]).wrapping(&["waiting"]);
    let mut is_waiting = false;
    for job in jobs {
        let job: Job = decode(job)?;
        let waiting = waiting::text(&job);
        is_waiting |= waiting.is_some();
        table.add_row([
            Cell::new(&job.id),
            Cell::new(job.endpoint_version()),
            output::state_cell(job.state.as_str()),
            Cell::new(output::ago(job.created_at.as_str())),
            Cell::new(job.attempts.len()),
            Cell::new(job.timing.map_or("-".to_owned(), |timing| output::millis(timing.run_ms))),
            Cell::new(waiting.unwrap_or_else(|| "-".to_owned())),
        ]);
    }
    if let Some(column) = table.column_mut(WAITING).filter(|_| !is_waiting) {
        column.set_constraint(ColumnConstraint::Hidden);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{Command, stub};

    #[test]
    fn filters_become_the_query() {
        let line = "list --endpoint e --state queued --batch b --priority batch --metadata a=b&c --metadata d=e";
        let Command::List(args) = stub::parse(line).unwrap() else { panic!("is one") };
        let expected = "/v1/jobs?state=queued&endpoint=e&batch=b&priority=batch&metadata.a=b%26c&metadata.d=e";
        assert_eq!(args.path().unwrap(), expected);
    }

    #[test]
    fn a_job_that_waits_shows_why() {
        let job = json!({"id": "01", "endpoint": "e", "version": 1, "state": "queued"});
        assert!(!table(std::slice::from_ref(&job)).unwrap().trim_fmt().contains("waiting"));
        let mut waits = job.clone();
        waits["waiting"] = json!({"reason": "renting", "message": "renting an RTX 4090", "estimate_s": 40});
        let shown = table(&[job, waits]).unwrap().trim_fmt();
        assert!(shown.contains("waiting") && shown.contains("renting an RTX 4090, about 40 s"), "{shown}");
    }
}
