//! `stoke list`.

use anyhow::Result;
use clap::Args;
use comfy_table::{Cell, Table};
use serde_json::{Value, json};
use stokehold_client::models::{Job, Priority};

use crate::client::{Client, decode, pages};
use crate::submit::options::words;
use crate::{Global, output};

/// List jobs, newest first
#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only jobs in this state
    #[arg(long, value_parser = ["scheduled", "blocked", "queued", "running", "succeeded", "failed", "cancelled", "expired"])]
    state: Option<String>,
    /// Only jobs of this endpoint
    #[arg(long)]
    endpoint: Option<String>,
    /// Only jobs of this batch
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// Only jobs of this schedule
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// Only jobs of this priority
    #[arg(long, value_parser = words::<Priority>())]
    priority: Option<Priority>,
    /// Only jobs that ended with this error code, e.g. handler_error or timeout
    #[arg(long, value_name = "CODE")]
    error_code: Option<String>,
    /// Maximum number of jobs
    #[arg(long, short, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub(crate) async fn run(global: &Global, args: ListArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let filter = [
        ("state", args.state.as_deref()),
        ("endpoint", args.endpoint.as_deref()),
        ("batch", args.batch.as_deref()),
        ("schedule", args.schedule.as_deref()),
        ("priority", args.priority.as_ref().map(Priority::as_str)),
        ("error_code", args.error_code.as_deref()),
    ];
    let jobs = pages::collect(&client, "/v1/jobs", &filter, "jobs", args.limit).await?;
    if global.json {
        return output::json(&json!({"jobs": jobs}));
    }
    output::print_table(&table(&jobs)?, "no jobs found")
}

fn table(jobs: &[Value]) -> Result<Table> {
    let mut table = output::table(["job", "endpoint", "state", "created", "attempts", "run"]);
    for job in jobs {
        let job: Job = decode(job)?;
        table.add_row([
            Cell::new(&job.id),
            Cell::new(job.endpoint_version()),
            output::state_cell(job.state.as_str()),
            Cell::new(output::ago(job.created_at.as_str())),
            Cell::new(job.attempts.len()),
            Cell::new(job.timing.map_or("-".to_owned(), |timing| output::millis(timing.run_ms))),
        ]);
    }
    Ok(table)
}
