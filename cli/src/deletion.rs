//! Deletions: what depends on an object is shown first, and a terminal is asked.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use reqwest::Method;
use serde_json::Value;
use stokehold_client::models::{Deletion, Dependent};

use crate::client::{Call, Client, decode};
use crate::failure::Failure;
use crate::{Global, output};

/// Options of every deletion.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct DeletionArgs {
    /// Delete in spite of what depends on it: open jobs are cancelled, and what uses it stops working
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation on a terminal
    #[arg(long, short)]
    yes: bool,
    /// Print what depends on it, and delete nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

/// Deletes the object at `path`, named `what` in texts.
pub(crate) async fn run(global: &Global, client: &Client, what: &str, path: &str, args: DeletionArgs) -> Result<()> {
    let preview = send(client, path, "dry_run=true").await?;
    let Deletion { dependents, freed_bytes, .. } = decode(&preview)?;
    if args.dry_run {
        if global.json {
            return output::json(&preview);
        }
        show(&dependents);
        let force = if dependents.is_empty() || args.force { "" } else { "; this needs --force" };
        return output::line(format_args!("would delete {what} and free {}{force}", output::bytes(freed_bytes)));
    }
    if !dependents.is_empty() && !args.force {
        return Err(in_use(what, &dependents).into());
    }
    if !args.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        show(&dependents);
        confirm(&format!("Delete {what} and free {}?", output::bytes(freed_bytes))).await?;
    }
    let done = send(client, path, if args.force { "force=true" } else { "" }).await?;
    if global.json {
        return output::json(&done);
    }
    let freed = output::bytes(decode::<Deletion>(&done)?.freed_bytes);
    output::line(format_args!("deleted {what}; {freed} freed"))
}

/// Deletes the object at `path` unless something depends on it.
pub(crate) async fn unused(client: &Client, path: &str) -> Result<()> {
    send(client, path, "").await.map(drop)
}

async fn send(client: &Client, path: &str, query: &str) -> Result<Value> {
    let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let call = Call { method: Method::DELETE, path: &path, body: None, headers: &[], hold: Duration::ZERO };
    Ok(client.call(&call).await?.1)
}

/// Prints what depends on an object.
fn show(dependents: &[Dependent]) {
    if dependents.is_empty() {
        return;
    }
    let mut table = output::table(["depends on it", "count", "examples"]).wrapping(&["examples"]);
    for Dependent { kind, count, examples } in dependents {
        let examples: Vec<String> = examples.iter().map(|example| output::text(example.as_str())).collect();
        table.add_row([output::text(kind.as_str()), output::count(*count), examples.join(" ")]);
    }
    output::note(table.trim_fmt());
}

fn in_use(what: &str, dependents: &[Dependent]) -> Failure {
    let list = dependents.iter().map(|Dependent { kind, count, examples }| {
        let examples = examples.iter().map(|example| output::text(example.as_str())).collect::<Vec<_>>().join(", ");
        let examples = if examples.is_empty() { String::new() } else { format!(", e.g. {examples}") };
        format!("\n  {}: {}{examples}", output::plain(kind.as_str()), output::count(*count))
    });
    let text = format!("{what} is in use:{}", list.collect::<String>());
    Failure::in_use(text).hint("Delete it anyway with --force.")
}

/// Asks on the terminal. Any answer but yes is an error.
async fn confirm(question: &str) -> Result<()> {
    output::note(format_args!("{question} [y/N]"));
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).map(|_| answer)
    });
    match answer.await??.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::usage("not confirmed; nothing was deleted").into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::{Arc, Mutex};

    use axum::extract::RawQuery;
    use axum::routing::delete;
    use axum::{Json, Router};
    use serde_json::json;

    use super::*;
    use crate::stub;

    /// An API with an endpoint that has these dependents. Returns the queries of the requests too.
    async fn api(dependents: Value) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let answer = move |RawQuery(query): RawQuery| async move {
            let query = query.unwrap_or_default();
            let deleted = query != "dry_run=true";
            seen.lock().unwrap().push(query);
            Json(json!({"deleted": deleted, "dependents": dependents, "freed_bytes": 2048}))
        };
        (stub::serve(Router::new().route("/v1/endpoints/greet", delete(answer))).await, asked)
    }

    async fn deleted(client: &Client, args: DeletionArgs) -> Result<()> {
        run(&Global::default(), client, "endpoint greet", "/v1/endpoints/greet", args).await
    }

    #[tokio::test]
    async fn what_nothing_depends_on_is_deleted_after_a_look() {
        let (client, asked) = api(json!([])).await;
        deleted(&client, DeletionArgs { yes: true, ..DeletionArgs::default() }).await.unwrap();
        assert_eq!(*asked.lock().unwrap(), ["dry_run=true", ""]);
    }

    #[tokio::test]
    async fn what_is_in_use_stays_without_force() {
        let jobs = json!([{"kind": "job", "count": 3, "examples": ["01", "02"]}]);
        let (client, asked) = api(jobs).await;
        let yes = DeletionArgs { yes: true, ..DeletionArgs::default() };
        let error = deleted(&client, yes).await.unwrap_err();
        assert_eq!(error.downcast_ref::<Failure>().unwrap().code, "in_use");
        let text = "endpoint greet is in use:\n  job: 3, e.g. 01, 02\nDelete it anyway with --force.";
        assert_eq!(error.to_string(), text);
        assert_eq!(*asked.lock().unwrap(), ["dry_run=true"]);
        deleted(&client, DeletionArgs { force: true, ..yes }).await.unwrap();
        assert_eq!(*asked.lock().unwrap(), ["dry_run=true", "dry_run=true", "force=true"]);
    }

    #[tokio::test]
    async fn a_dry_run_deletes_nothing() {
        let (client, asked) = api(json!([{"kind": "schedule", "count": 1, "examples": []}])).await;
        deleted(&client, DeletionArgs { dry_run: true, ..DeletionArgs::default() }).await.unwrap();
        assert_eq!(*asked.lock().unwrap(), ["dry_run=true"]);
    }

    #[test]
    fn every_deletion_has_the_same_options() {
        for line in [
            "endpoint delete greet --force --yes",
            "endpoint delete greet@3 --dry-run",
            "file delete file_1 -y",
            "requirements delete 00ff --force",
        ] {
            assert!(stub::parse(line).is_ok(), "{line}: {:?}", stub::parse(line).err());
        }
        assert!(stub::parse("endpoint delete greet --dry-run --yes").is_err());
    }
}
