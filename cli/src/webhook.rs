//! `stoke webhook`.

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::Cell;
use reqwest::Method;
use serde_json::{Value, json};
use stokehold_client::models::{WebhookDelivery, WebhookDeliveryState, WebhookSecret, WebhookTry};

use crate::client::{Client, decode, pages, segment};
use crate::{Global, output};

const DELIVERIES: &str = "/v1/webhooks/deliveries";

/// Inspect and replay webhook deliveries; show the signing secret
#[derive(Args)]
#[command(after_help = "Examples:
  stoke webhook secret
  stoke webhook list --state exhausted")]
pub(crate) struct WebhookArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Print the secret that signs webhook messages
    #[command(after_help = "Examples:\n  stoke webhook secret\n  stoke webhook secret --rotate")]
    Secret {
        /// Create a new secret first; for 24 hours, messages are signed with both
        #[arg(long)]
        rotate: bool,
    },
    List(ListArgs),
    /// Show a delivery with its tries
    #[command(after_help = "Examples:\n  stoke webhook get wd_0123456789abcdef")]
    Get {
        /// Delivery id
        id: String,
    },
    /// Send a delivery again, with the same message id
    #[command(after_help = "Examples:\n  stoke webhook replay wd_0123456789abcdef")]
    Replay {
        /// Delivery id
        id: String,
    },
}

/// List deliveries, newest first
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke webhook list --state exhausted")]
struct ListArgs {
    /// Only deliveries about this job
    #[arg(long, value_name = "JOB", conflicts_with = "batch")]
    job: Option<String>,
    /// Only deliveries about this batch
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// Only deliveries in this state
    #[arg(long, value_parser = ["pending", "delivered", "exhausted", "disabled"])]
    state: Option<String>,
    /// Maximum number of deliveries
    #[arg(long, short, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub(crate) async fn run(global: &Global, args: WebhookArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::Secret { rotate } => secret(global, &client, rotate).await,
        Verb::List(args) => list(global, &client, &args).await,
        Verb::Get { id } => {
            let found = client.get(&format!("{DELIVERIES}/{}", segment(&id))).await?;
            if global.json { output::json(&found) } else { show(&decode(&found)?) }
        }
        Verb::Replay { id } => {
            let (_, delivery) = client.post(&format!("{DELIVERIES}/{}/replay", segment(&id)), None).await?;
            if global.json {
                return output::json(&delivery);
            }
            let WebhookDelivery { state, .. } = decode(&delivery)?;
            output::line(format_args!("{id} is {state}; `stoke webhook get {id}` shows its tries"))
        }
    }
}

async fn secret(global: &Global, client: &Client, rotate: bool) -> Result<()> {
    let found = if rotate {
        // Not idempotent: a second rotation would invalidate the secret that the receivers have.
        client.once(Method::POST, "/v1/webhooks/secret/rotate", None).await?
    } else {
        client.get("/v1/webhooks/secret").await?
    };
    if global.json {
        return output::json(&found);
    }
    let found: WebhookSecret = decode(&found)?;
    output::line(found.secret)?;
    if let Some(until) = found.previous_until {
        output::note(output::dim(format_args!(
            "messages are also signed with the previous secret until {until}; update the receivers before then"
        )));
    }
    Ok(())
}

async fn list(global: &Global, client: &Client, args: &ListArgs) -> Result<()> {
    let filter = [("job", args.job.as_deref()), ("batch", args.batch.as_deref()), ("state", args.state.as_deref())];
    let deliveries = pages::collect(client, DELIVERIES, &filter, "deliveries", args.limit).await?;
    if global.json {
        return output::json(&json!({"deliveries": deliveries}));
    }
    output::print_table(&table(&deliveries)?, "no deliveries found")
}

fn table(deliveries: &[Value]) -> Result<output::Table> {
    let mut table =
        output::table(["delivery", "event", "subject", "state", "created", "tries", "last response", "next"])
            .wrapping(&["last response"]);
    for delivery in deliveries {
        let delivery: WebhookDelivery = decode(delivery)?;
        table.add_row([
            Cell::new(&delivery.id),
            Cell::new(output::text(delivery.event.as_str())),
            Cell::new(subject(&delivery)),
            output::state_cell(delivery.state.as_str()),
            Cell::new(output::ago(delivery.created_at.as_str())),
            Cell::new(delivery.tries.len()),
            Cell::new(delivery.tries.last().map_or("-".to_owned(), answer)),
            Cell::new(output::when(delivery.next_try_at.as_deref())),
        ]);
    }
    Ok(table)
}

fn subject(delivery: &WebhookDelivery) -> String {
    output::text(delivery.job_id.as_deref().or(delivery.batch_id.as_deref()))
}

/// The status of the receiver's response, or the error.
fn answer(tried: &WebhookTry) -> String {
    tried.status.map_or_else(|| output::text(tried.error.as_deref()), |status| status.to_string())
}

fn show(delivery: &WebhookDelivery) -> Result<()> {
    output::line(facts(delivery).trim_fmt())?;
    let tries = tries(delivery);
    if tries.is_empty() {
        return Ok(());
    }
    output::line("")?;
    output::line(tries.trim_fmt())
}

fn facts(delivery: &WebhookDelivery) -> output::Table {
    let mut facts = output::table(["delivery", &delivery.id]);
    facts.add_row([Cell::new("state"), output::state_cell(delivery.state.as_str())]);
    facts.add_row(["event", &output::text(delivery.event.as_str())]);
    facts.add_row(["subject", &subject(delivery)]);
    facts.add_row(["url", &output::text(delivery.url.as_str())]);
    facts.add_row(["created", &output::ago(delivery.created_at.as_str())]);
    match delivery.state {
        WebhookDeliveryState::Pending => {
            facts.add_row(["next try", &output::when(delivery.next_try_at.as_deref())]);
        }
        WebhookDeliveryState::Exhausted | WebhookDeliveryState::Disabled => {
            facts.add_row(["next try", "none; send it again with `stoke webhook replay`"]);
        }
        _ => (),
    }
    facts
}

fn tries(delivery: &WebhookDelivery) -> output::Table {
    let mut table = output::table(["try", "at", "status", "took", "error"]).wrapping(&["error"]);
    for (n, tried) in delivery.tries.iter().enumerate() {
        table.add_row([
            (n + 1).to_string(),
            output::ago(tried.at.as_str()),
            output::number(tried.status),
            output::millis(tried.duration_ms),
            output::text(tried.error.as_deref()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::stub::parse;

    fn sample() -> Value {
        json!({"id": "msg_1", "event": "job.completed", "url": "https://x.test/h", "job_id": null, "batch_id": "batch_1",
        "state": "exhausted", "created_at": null, "next_try_at": null, "tries": [
            {"at": null, "status": 503, "error": null, "duration_ms": 12},
            {"at": null, "status": null, "error": "connection refused", "duration_ms": 1_500},
        ]})
    }

    #[test]
    fn every_verb_parses() {
        for line in [
            "secret",
            "secret --rotate",
            "list --job 01",
            "list --batch b --state exhausted",
            "get msg_1",
            "replay msg_1",
        ] {
            assert!(parse(&format!("webhook {line}")).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_delivery_shows_its_tries() {
        let shown = tries(&decode(&sample()).unwrap()).trim_fmt();
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["1", "-", "503", "12", "ms", "-"]);
        assert_eq!(rows[2], ["2", "-", "-", "1.5", "s", "connection", "refused"]);
        assert!(facts(&decode(&sample()).unwrap()).trim_fmt().contains("stoke webhook replay"));
    }

    #[test]
    fn a_list_shows_the_last_answer() {
        let shown = table(&[sample()]).unwrap().trim_fmt();
        assert!(shown.contains("batch_1") && shown.contains("connection refused"), "{shown}");
    }
}
