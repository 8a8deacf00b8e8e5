//! `stoke job quarantined`.

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use comfy_table::{Cell, Table};
use serde_json::{Value, json};

use crate::client::Client;
use crate::{Global, output};

/// Maximum number of ids per request.
const AT_ONCE: usize = 100;

/// Manage jobs with unreadable records
#[derive(Args)]
pub(crate) struct JobArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Quarantined(QuarantinedArgs),
}

/// List, requeue or discard jobs with unreadable records (operator only)
#[derive(Args)]
#[command(after_help = "Examples:
  stoke job quarantined
  stoke job quarantined put-back JOB
  stoke job quarantined discard --all")]
struct QuarantinedArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// List quarantined jobs, oldest first
    List,
    /// Put jobs back at the front of their queue, even if they were running
    PutBack(Chosen),
    /// End jobs as failed; delete records that cannot be changed
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

pub(crate) async fn run(global: &Global, JobArgs { what: What::Quarantined(args) }: JobArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        None | Some(Verb::List) => {
            let found = client.get("/v1/quarantine").await?;
            if global.json {
                return output::json(&found);
            }
            output::print_table(&table(&found), "no quarantined jobs: every job record is readable")?;
            if found["total"].as_u64() > Some(0) {
                output::note(output::dim(
                    "`stoke job quarantined put-back JOB` requeues a job, `stoke job quarantined discard JOB` ends it as failed",
                ));
            }
            Ok(())
        }
        Some(Verb::PutBack(chosen)) => decide(global, &client, "readmit", chosen).await,
        Some(Verb::Discard(chosen)) => decide(global, &client, "discard", chosen).await,
    }
}

async fn decide(global: &Global, client: &Client, verb: &str, chosen: Chosen) -> Result<()> {
    let ids = if chosen.all { all(client).await? } else { chosen.ids };
    let mut jobs: Vec<Value> = Vec::new();
    for ids in ids.chunks(AT_ONCE) {
        let (_, answer) = client.post(&format!("/v1/quarantine/{verb}"), Some(&json!({"ids": ids}))).await?;
        jobs.extend(answer["jobs"].as_array().into_iter().flatten().cloned());
    }
    let stays: Vec<&Value> =
        jobs.iter().filter(|job| matches!(job["outcome"].as_str(), Some("unreadable" | "not_found"))).collect();
    if global.json {
        output::json(&json!({"jobs": jobs}))?;
    } else {
        let mut table = output::table(["job", "outcome", "why"]);
        for job in &jobs {
            table.add_row([&job["id"], &job["outcome"], &job["why"]].map(output::cell));
        }
        output::print_table(&table, "no quarantined jobs: every job record is readable")?;
    }
    ensure!(stays.is_empty(), "{} of {} jobs could not be moved", stays.len(), jobs.len());
    Ok(())
}

async fn all(client: &Client) -> Result<Vec<String>> {
    let found = client.get("/v1/quarantine").await?;
    let Some(jobs) = found["jobs"].as_array() else { bail!("the API's response has no list of jobs") };
    Ok(jobs.iter().map(|job| output::cell(&job["id"])).collect())
}

fn table(found: &Value) -> Table {
    let mut table = output::table(["job", "tenant", "endpoint", "was", "since", "why"]);
    for job in found["jobs"].as_array().into_iter().flatten() {
        table.add_row([
            Cell::new(output::cell(&job["id"])),
            Cell::new(output::cell(&job["tenant"])),
            Cell::new(output::cell(&job["endpoint"])),
            Cell::new(output::cell(&job["state"])),
            Cell::new(output::ago(&job["since"])),
            Cell::new(output::cell(&job["why"])),
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
        assert!(table(&jobs).trim_fmt().contains("no run"));
        let answer = |Json(body): Json<Value>| async move {
            Json(json!({"jobs": [{"id": body["ids"][0], "outcome": "unreadable", "why": "no run"}]}))
        };
        let routes = Router::new()
            .route("/v1/quarantine", get(|| async { Json(jobs) }))
            .route("/v1/quarantine/readmit", post(answer));
        let client = stub::serve(routes).await;
        assert_eq!(all(&client).await.unwrap(), ["a"]);
        let global = Global { json: false, no_color: true, url: None, token: None };
        let chosen = Chosen { ids: Vec::new(), all: true };
        let failed = decide(&global, &client, "readmit", chosen).await.unwrap_err();
        assert_eq!(failed.to_string(), "1 of 1 jobs could not be moved");
    }
}
