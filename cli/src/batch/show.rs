//! Batches as tables.

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use serde_json::{Value, json};
use stokehold_client::models::{Batch, OnInvalid};
use stokehold_queue::now_ms;

use super::model;
use crate::client::{Client, decode, pages, segment};
use crate::{Global, output, tokens};

#[derive(Args)]
#[command(after_help = "Examples:\n  stoke batch list --state running")]
pub(super) struct ListArgs {
    /// Only batches in this state
    #[arg(long, value_parser = ["validating", "running", "finalizing", "completed", "failed", "cancelled", "expired"])]
    state: Option<String>,
    /// Maximum number of batches
    #[arg(long, short, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub(super) async fn list(global: &Global, client: &Client, args: &ListArgs) -> Result<()> {
    let filter = [("state", args.state.as_deref())];
    let batches = pages::collect(client, "/v1/batches", &filter, "batches", args.limit).await?;
    if global.json {
        return output::json(&json!({"batches": batches}));
    }
    output::print_table(&table(&batches)?, "no batches found; submit one with `stoke batch submit FILE`")
}

fn table(batches: &[Value]) -> Result<output::Table> {
    let mut table =
        output::table(["batch", "endpoint", "state", "created", "lines", "succeeded", "failed", "expired", "open"]);
    for batch in batches {
        let batch: Batch = decode(batch)?;
        let counts = batch.counts;
        let mut row = vec![
            Cell::new(&batch.id),
            Cell::new(batch.endpoint.as_deref().unwrap_or("-")),
            output::state_cell(batch.state.as_str()),
            Cell::new(output::ago(batch.created_at.as_str())),
        ];
        let numbers = [counts.total, counts.succeeded, counts.failed, counts.expired, counts.open];
        row.extend(numbers.map(|number| Cell::new(output::count(number))));
        table.add_row(row);
    }
    Ok(table)
}

pub(super) async fn get(global: &Global, client: &Client, id: &str) -> Result<()> {
    let found = client.get(&format!("/v1/batches/{}", segment(id))).await?;
    if global.json {
        return output::json(&found);
    }
    show(&decode(&found)?)
}

/// Prints the id of a new batch and the next steps.
pub(super) fn accepted(global: &Global, accepted: &Value) -> Result<()> {
    if global.json {
        return output::json(accepted);
    }
    let batch: Batch = decode(accepted)?;
    output::line(&batch.id)?;
    output::note(output::dim(format_args!(
        "{}; `stoke batch watch {id}` shows its progress, `stoke batch results {id} -o FILE` saves the results",
        batch.state,
        id = batch.id
    )));
    Ok(())
}

/// Prints a batch that has ended. Fails if it did not complete or has failed lines.
pub(super) fn show_ended(ended: &Value, json: bool) -> Result<()> {
    let batch: Batch = decode(ended)?;
    if json {
        output::json(ended)?;
    } else if model::succeeded(&batch).is_ok() {
        output::line(format_args!("batch {} is {}: {}", batch.id, batch.state, model::counts(batch.counts)))?;
    }
    model::succeeded(&batch)
}

fn show(batch: &Batch) -> Result<()> {
    output::line(facts(batch).trim_fmt())?;
    if !batch.errors.is_empty() {
        output::line("")?;
        output::line(invalid(batch).trim_fmt())?;
    }
    Ok(())
}

fn facts(batch: &Batch) -> output::Table {
    let counts = batch.counts;
    let mut facts = output::table(["batch", &batch.id]);
    facts.add_row([Cell::new("state"), output::state_cell(batch.state.as_str())]);
    facts.add_row(["endpoint", batch.endpoint.as_deref().unwrap_or("set by each line")]);
    facts.add_row(["priority", &output::text(batch.priority.as_str())]);
    facts.add_row(["created", &output::ago(batch.created_at.as_str())]);
    if batch.state.has_ended() {
        facts.add_row(["ended", &output::ago(batch.ended_at.as_deref())]);
    } else {
        if let Some(deadline_at) = batch.deadline_at.as_deref() {
            facts.add_row(["deadline", &output::when(deadline_at)]);
        }
        if let Some(pace) = model::pace(batch, now_ms()) {
            facts.add_row(["pace", &pace]);
        }
    }
    if batch.spent_usd_micros > 0 || batch.budget_usd_micros.is_some() || batch.estimate.is_some() {
        facts.add_row(["cost", &model::cost(batch)]);
    }
    if let Some(usage) = batch.usage {
        facts.add_row(["tokens", &tokens::counts(usage)]);
    }
    if let Some(reason) = &batch.stop_reason {
        facts.add_row(["stopped by", reason.as_str()]);
    }
    if let Some(retry_of) = &batch.retry_of {
        facts.add_row(["retry of", retry_of]);
    }
    facts.add_row(["lines", &output::count(counts.total)]);
    let numbers = [
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("cancelled", counts.cancelled),
        ("expired", counts.expired),
        ("open", counts.open),
        ("running", counts.running),
    ];
    for (name, number) in numbers {
        facts.add_row([format!("  {name}"), output::count(number)]);
    }
    if counts.invalid > 0 {
        let does = if batch.on_invalid == OnInvalid::Skip { "skipped" } else { "the batch fails" };
        facts.add_row(["  invalid", &format!("{} ({does})", output::count(counts.invalid))]);
    }
    facts
}

fn invalid(batch: &Batch) -> output::Table {
    let mut table = output::table(["line", "error"]).wrapping(&["error"]);
    for error in &batch.errors {
        table.add_row([error.line.to_string(), error.message.clone()]);
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn sample() -> Value {
        json!({
            "id": "batch_1", "endpoint": "echo", "state": "running", "priority": "batch", "on_invalid": "skip", "format": "stokehold",
            "metadata": {}, "created_at": null, "retry_of": "batch_0", "rate_per_s": 2.0, "eta_at": null,
            "counts": {"total": 1_234, "invalid": 1, "accepted": 1_233, "succeeded": 1_200, "failed": 3, "cancelled": 0, "expired": 0,
                "open": 30, "running": 4},
            "errors": [{"line": 9, "message": "input is missing"}],
        })
    }

    #[test]
    fn a_list_has_a_row_for_each() {
        let shown = table(&[sample()]).unwrap().trim_fmt();
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["batch_1", "echo", "running", "-", "1,234", "1,200", "3", "0", "30"]);
    }

    #[test]
    fn a_batch_shows_its_counts_and_invalid_lines() {
        let batch = decode(&sample()).unwrap();
        let shown = format!("{}\n{}", facts(&batch).trim_fmt(), invalid(&batch).trim_fmt());
        let mut costly = sample();
        costly["estimate"] =
            json!({"usd_micros": 3_200_000, "low_usd_micros": 2_900_000, "high_usd_micros": 3_700_000});
        for (name, value) in [
            ("budget_usd_micros", json!(2_500_000)),
            ("spent_usd_micros", json!(2_600_000)),
            ("budget_state", json!("reached")),
            ("stop_reason", json!("budget")),
            ("estimate_error_pct", json!(-3.12)),
            ("usage", json!({"prompt_tokens": 20_000_000, "cached_tokens": 0, "completion_tokens": 6_000_000})),
        ] {
            costly[name] = value;
        }
        let told = facts(&decode(&costly).unwrap()).trim_fmt();
        let cost =
            "$2.60 of $2.50, reached; $0.10 per 1M tokens; estimated at about $3.20 (2.90 to 3.70), actual cost -3.1 %";
        assert!(told.contains(cost) && told.contains("stopped by"), "{told}");
        assert!(told.contains("20,000,000 prompt, 6,000,000 completion"), "{told}");
        for part in ["batch_0", "2.0/s", "1,234", "1 (skipped)", "9     input is missing"] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
    }
}
