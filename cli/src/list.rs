//! `stoke list`.

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use serde_json::{Value, json};

use crate::client::{Client, segment};
use crate::job::Job;
use crate::{Global, output};

/// The most the API gives at once.
const PAGE: usize = 100;

/// List jobs, the newest first
#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only jobs in this state
    #[arg(long, value_parser = ["scheduled", "blocked", "queued", "running", "succeeded", "failed", "cancelled", "expired"])]
    state: Option<String>,
    /// Only jobs of this endpoint
    #[arg(long)]
    endpoint: Option<String>,
    /// At most so many
    #[arg(long, short, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub(crate) async fn run(global: &Global, args: ListArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let (limit, mut jobs, mut cursor) = (args.limit as usize, Vec::<Value>::new(), Value::Null);
    while jobs.len() < limit {
        let mut query = format!("/v1/jobs?limit={}", (limit - jobs.len()).min(PAGE));
        for (name, value) in
            [("state", args.state.as_deref()), ("endpoint", args.endpoint.as_deref()), ("cursor", cursor.as_str())]
        {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", segment(value)));
            }
        }
        let mut page = client.get(&query).await?;
        jobs.extend(page["jobs"].as_array_mut().map(std::mem::take).unwrap_or_default());
        cursor = page["next_cursor"].take();
        if cursor.is_null() {
            break;
        }
    }
    if global.json {
        return output::json(&json!({"jobs": jobs}));
    }
    let mut table = output::table(["job", "endpoint", "state", "created", "attempts", "run"]);
    for job in &jobs {
        let job = Job::decode(job)?;
        table.add_row([
            Cell::new(&job.id),
            Cell::new(job.endpoint()),
            output::state_cell(&job.state),
            Cell::new(output::ago(&job.created_at)),
            Cell::new(job.attempts.len()),
            Cell::new(job.timing.map_or("-".to_owned(), |timing| output::millis(timing.run_ms))),
        ]);
    }
    output::print_table(&table, "there are no such jobs")
}
