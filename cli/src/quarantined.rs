//! `stoke job quarantined`.

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use comfy_table::Cell;
use serde_json::{Value, json};
use stokehold_client::models::{Quarantine, QuarantineOutcome, QuarantineRequest};

use crate::client::{Client, decode};
use crate::{Global, output};

/// Maximum number of ids per request.
const AT_ONCE: usize = 100;

/// List, requeue or discard jobs with unreadable records (operator only)
#[derive(Args)]
#[command(after_help = "Examples:
  stoke job quarantined list
  stoke job quarantined readmit 0192f0c1a2b37cde8f00112233445500
  stoke job quarantined discard --all")]
pub(crate) struct QuarantinedArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List quarantined jobs, oldest first
    #[command(after_help = "Examples:\n  stoke job quarantined list")]
    List,
    /// Put jobs back at the front of their queue, even if they were running
    #[command(after_help = "Examples:\n  stoke job quarantined readmit 0192f0c1a2b37cde8f00112233445500")]
    Readmit(Chosen),
    /// End jobs as failed; delete records that cannot be changed
    #[command(after_help = "Examples:\n  stoke job quarantined discard --all")]
    Discard(Chosen),
}

/// The selected jobs.
#[derive(Args)]
struct Chosen {
    /// Job ids
    #[arg(value_name = "JOB", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// All quarantined jobs
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(global: &Global, args: QuarantinedArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::List => {
            let found = client.get("/v1/quarantine").await?;
            if global.json {
                return output::json(&found);
            }
            let found: Quarantine = decode(&found)?;
            output::print_table(&table(&found), "no quarantined jobs: every job record is readable")?;
            if found.total > 0 {
                output::note(output::dim(
                    "`stoke job quarantined readmit JOB` requeues a job, `stoke job quarantined discard JOB` ends it as failed",
                ));
            }
            Ok(())
        }
        Verb::Readmit(chosen) => decide(global, &client, "readmit", chosen).await,
        Verb::Discard(chosen) => decide(global, &client, "discard", chosen).await,
    }
}

async fn decide(global: &Global, client: &Client, verb: &str, chosen: Chosen) -> Result<()> {
    let ids = if chosen.all { all(client).await? } else { chosen.ids };
    let mut jobs: Vec<Value> = Vec::new();
    for ids in ids.chunks(AT_ONCE) {
        let request = serde_json::to_value(QuarantineRequest { ids: ids.to_vec() })?;
        let (_, answer) = client.post(&format!("/v1/quarantine/{verb}"), Some(&request)).await?;
        jobs.extend(answer["jobs"].as_array().into_iter().flatten().cloned());
    }
    let outcomes: Vec<QuarantineOutcome> = jobs.iter().map(decode).collect::<Result<_>>()?;
    let stays = outcomes.iter().filter(|job| matches!(job.outcome.as_str(), "unreadable" | "not_found")).count();
    if global.json {
        output::json(&json!({"jobs": jobs}))?;
    } else {
        let mut table = output::table(["job", "outcome", "why"]).wrapping(&["why"]);
        for job in &outcomes {
            table.add_row([Some(job.id.as_str()), Some(job.outcome.as_str()), job.why.as_deref()].map(output::text));
        }
        output::print_table(&table, "no quarantined jobs: every job record is readable")?;
    }
    ensure!(stays == 0, "{stays} of {} could not be moved", output::counted(jobs.len() as u64, "job"));
    Ok(())
}

async fn all(client: &Client) -> Result<Vec<String>> {
    let found: Quarantine = decode(&client.get("/v1/quarantine").await?)?;
    Ok(found.jobs.into_iter().map(|job| job.id).collect())
}

fn table(found: &Quarantine) -> output::Table {
    let mut table = output::table(["job", "tenant", "endpoint", "was", "since", "why"]).wrapping(&["why"]);
    for job in &found.jobs {
        table.add_row([
            Cell::new(&job.id),
            Cell::new(output::text(job.tenant.as_deref())),
            Cell::new(output::text(job.endpoint.as_deref())),
            Cell::new(output::text(job.state.as_ref().map(|state| state.as_str()))),
            Cell::new(output::ago(job.since.as_str())),
            Cell::new(output::text(job.why.as_str())),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::routing::{get, post};
    use axum::{Json, Router};

    use super::*;
    use crate::stub;

    #[test]
    fn jobs_are_named_or_are_all_of_them() {
        for line in ["job quarantined", "job quarantined list", "job quarantined put-back a b"] {
            assert!(stub::parse(line).is_ok(), "{line}");
        }
        assert!(stub::parse("job quarantined discard --all").is_ok());
        assert!(stub::parse("job quarantined discard").is_err());
        assert!(stub::parse("job quarantined discard a --all").is_err());
    }

    #[tokio::test]
    async fn all_are_those_that_are_listed() {
        let jobs = json!({"total": 1, "jobs": [{"id": "a", "tenant": null, "why": "no run"}]});
        assert!(table(&decode(&jobs).unwrap()).trim_fmt().contains("no run"));
        let answer = |Json(body): Json<Value>| async move {
            Json(json!({"jobs": [{"id": body["ids"][0], "outcome": "unreadable", "why": "no run"}]}))
        };
        let routes = Router::new()
            .route("/v1/quarantine", get(|| async { Json(jobs) }))
            .route("/v1/quarantine/readmit", post(answer));
        let client = stub::serve(routes).await;
        assert_eq!(all(&client).await.unwrap(), ["a"]);
        let global = Global { no_color: true, ..Global::default() };
        let chosen = Chosen { ids: Vec::new(), all: true };
        let failed = decide(&global, &client, "readmit", chosen).await.unwrap_err();
        assert_eq!(failed.to_string(), "1 of 1 job could not be moved");
    }
}
