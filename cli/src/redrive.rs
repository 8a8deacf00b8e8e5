//! `stoke retry`: retries jobs. (`retry.rs` retries requests.)

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use serde_json::{Value, json};
use stokehold_client::models::Job;

use crate::client::{Client, decode, segment};
use crate::failure::Failures;
use crate::{Global, output};

/// Retry failed, expired or cancelled jobs, each as a new job
#[derive(Args)]
#[command(after_help = "Examples:
  stoke retry 0192f0c1a2b37cde8f00112233445500
  stoke retry 0192f0c1a2b37cde8f00112233445500 --same-version

To retry many jobs, use `stoke job dead retry`; for the lines of a batch, `stoke batch retry`.")]
pub(crate) struct RetryArgs {
    /// Job ids
    #[arg(value_name = "JOB", required = true)]
    ids: Vec<String>,
    /// Use the endpoint version on which each job ran, instead of the current one
    #[arg(long)]
    same_version: bool,
}

pub(crate) async fn run(global: &Global, args: RetryArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let (mut jobs, mut failures) = (Vec::new(), Failures::default());
    let query = if args.same_version { "?same_version=true" } else { "" };
    for id in &args.ids {
        match client.post(&format!("/v1/jobs/{}/retry{query}", segment(id)), None).await {
            Ok((_, job)) => jobs.push((id.as_str(), job)),
            // Continue with the remaining jobs.
            Err(error) if args.ids.len() > 1 => failures.add(format_args!("job {id}"), &error),
            Err(error) => return Err(error),
        }
    }
    show(global.json, &jobs)?;
    failures.end(args.ids.len(), "job", "were not retried")
}

fn show(json: bool, jobs: &[(&str, Value)]) -> Result<()> {
    if json {
        return output::json(&retried(jobs)?);
    }
    let mut table = output::table(["job", "new job", "state"]);
    for (old, job) in jobs {
        let job: Job = decode(job)?;
        table.add_row([Cell::new(old), Cell::new(&job.id), output::state_cell(job.state.as_str())]);
    }
    output::print_table(&table, "no jobs were retried")
}

/// The response format of the API's bulk retry.
fn retried(jobs: &[(&str, Value)]) -> Result<Value> {
    let pairs: Result<Vec<Value>> =
        jobs.iter().map(|(old, job)| Ok(json!({"id": old, "new_id": decode::<Job>(job)?.id}))).collect();
    Ok(json!({"retried": pairs?}))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::stub::parse;

    #[test]
    fn old_and_new_ids_stand_side_by_side() {
        let pairs = retried(&[("1", json!({"id": "11", "state": "queued"}))]).unwrap();
        assert_eq!(pairs, json!({"retried": [{"id": "1", "new_id": "11"}]}));
    }

    #[test]
    fn it_wants_a_job() {
        assert!(parse("retry").is_err());
        assert!(parse("retry 1 2 --same-version").is_ok());
    }
}
