//! `stoke audit`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use stokehold_client::models::{Change, ChangeList};
use tokio::time::sleep;

use crate::client::{Client, decode, query};
use crate::{Global, output};

/// Polling interval of `--follow`.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Maximum page size of the API.
const PAGE: u32 = 100;

/// Cursor of the start of a log.
const BEGINNING: &str = "0-0";

/// Show the audit log: who changed what
///
/// The log has every change except jobs and batches, which have records of their own. It keeps the last 10,000 changes
/// of the past 400 days.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke audit
  stoke audit --follow --json >> changes.jsonl
  stoke audit --tenant '*' --limit 1000          all tenants (operator only)")]
pub(crate) struct AuditArgs {
    /// Tenant, or * for all tenants (operator only) [default: yours]
    #[arg(long)]
    tenant: Option<String>,
    /// Number of changes to print, newest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    limit: u32,
    /// Keep printing new changes until interrupted; with --json, one JSON document per line
    #[arg(long)]
    follow: bool,
}

pub(crate) async fn run(global: &Global, args: AuditArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let tenant = args.tenant.as_deref();
    let (mut changes, newest) = latest(&client, tenant, args.limit).await?;
    if !args.follow {
        if global.json {
            return output::json(&serde_json::json!({"changes": changes}));
        }
        let mut table = output::table(["when", "tenant", "actor", "action", "object", "outcome", "address"]);
        for change in &changes {
            let change: Change = decode(change)?;
            table.add_row(cells(&change, output::ago(change.at.as_str())));
        }
        return output::print_table(&table, "the audit log is empty");
    }
    changes.reverse();
    changes.iter().try_for_each(|change| print(global, change))?;
    follow(global, &client, tenant, newest).await
}

/// Returns the newest changes, newest first, and the cursor after which later ones begin.
async fn latest(client: &Client, tenant: Option<&str>, most: u32) -> Result<(Vec<Value>, String)> {
    let (mut changes, mut newest, mut cursor) = (Vec::new(), None, None::<String>);
    while changes.len() < most as usize {
        let limit = PAGE.min(most - u32::try_from(changes.len()).unwrap_or(most)).to_string();
        let members = [("tenant", tenant), ("limit", Some(limit.as_str())), ("cursor", cursor.as_deref())];
        let (found, page) = page(client, &members).await?;
        newest = newest.or(page.newest);
        changes.extend(found);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok((changes, newest.unwrap_or_else(|| BEGINNING.to_owned())))
}

/// Fetches a page: the changes as the API sent them, for `--json`, and the page.
async fn page(client: &Client, members: &[(&str, Option<&str>)]) -> Result<(Vec<Value>, ChangeList)> {
    let mut found = client.get(&query("/v1/audit", members)).await?;
    let page = decode(&found)?;
    let changes = found["changes"].as_array_mut().map(std::mem::take);
    Ok((changes.unwrap_or_default(), page))
}

async fn follow(global: &Global, client: &Client, tenant: Option<&str>, mut after: String) -> Result<()> {
    let limit = PAGE.to_string();
    loop {
        let members = [("tenant", tenant), ("limit", Some(limit.as_str())), ("after", Some(after.as_str()))];
        let (found, page) = page(client, &members).await?;
        found.iter().try_for_each(|change| print(global, change))?;
        if let Some(newest) = page.newest {
            after = newest;
        }
        if page.next_cursor.is_none() {
            sleep(LOOK_EVERY).await;
        }
    }
}

fn print(global: &Global, change: &Value) -> Result<()> {
    if global.json {
        return output::json_line(change);
    }
    let change: Change = decode(change)?;
    output::line(cells(&change, output::text(change.at.as_str())).join("  "))
}

fn cells(change: &Change, when: String) -> Vec<String> {
    let name = output::text(change.actor.token_name.as_str());
    let who = match &change.actor.user {
        Some(user) => format!("{name} ({user})"),
        None => name,
    };
    let [tenant, action, object, outcome] =
        [&*change.tenant, &change.action, &change.object, change.outcome.as_str()].map(output::text);
    let from = change.address.as_deref().unwrap_or("-").to_owned();
    vec![when, tenant, who, action, object, outcome, from]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::stub::parse;

    #[test]
    fn a_change_says_who_what_and_from_where() {
        let change = json!({
            "id": "1-0", "at": "2026-11-23T05:00:00.000Z", "tenant": "acme", "actor": {"token_name": "ci", "user": "ana"},
            "action": "PUT /v1/secrets/{name}", "object": "KEY", "outcome": "done", "address": "10.0.0.1",
        });
        let cells = cells(&decode(&change).unwrap(), "now".to_owned());
        assert_eq!(cells, ["now", "acme", "ci (ana)", "PUT /v1/secrets/{name}", "KEY", "done", "10.0.0.1"]);
        assert!(parse("audit --follow --tenant * --limit 5").is_ok() && parse("audit --limit 0").is_err());
    }
}
