//! `stoke endpoints`.

mod delete;
mod diff;
mod needs;
pub(crate) mod traffic;

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::ColumnConstraint;
use serde_json::Value;

use crate::client::{Client, segment};
use crate::{Global, output, schema};

/// List endpoints, or all versions of one endpoint
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct EndpointsArgs {
    /// Show the versions of this endpoint, newest first
    name: Option<String>,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    Diff(diff::DiffArgs),
    Traffic(traffic::TrafficArgs),
    Rollback(traffic::RollbackArgs),
    Needs(needs::NeedsArgs),
    ForgetNeeds(needs::ForgetArgs),
    Delete(delete::DeleteArgs),
    Prune(delete::PruneArgs),
}

pub(crate) async fn run(global: &Global, args: EndpointsArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.what {
        Some(What::Diff(args)) => diff::run(global, &client, &args).await,
        Some(What::Traffic(args)) => traffic::run(global, &client, &args).await,
        Some(What::Rollback(args)) => traffic::roll_back(global, &client, &args).await,
        Some(What::Needs(args)) => needs::show(global, &client, &args).await,
        Some(What::ForgetNeeds(args)) => needs::forget(global, &client, &args).await,
        Some(What::Delete(args)) => delete::run(global, &client, &args).await,
        Some(What::Prune(args)) => delete::prune(global, &client, &args).await,
        None => list(global, &client, args.name.as_deref()).await,
    }
}

async fn list(global: &Global, client: &Client, name: Option<&str>) -> Result<()> {
    let (path, member) = match name {
        Some(name) => (format!("/v1/endpoints/{}/versions", segment(name)), "versions"),
        None => ("/v1/endpoints".to_owned(), "endpoints"),
    };
    let found = client.get(&path).await?;
    if global.json {
        return output::json(&found);
    }
    let traffic = match name {
        Some(name) => traffic::of(client, name).await?.versions,
        None => Vec::new(),
    };
    let mut table = output::table(["endpoint", "traffic", "input", "result", "vram", "package", "deployed"]);
    for version in found[member].as_array().into_iter().flatten() {
        let part = traffic.iter().find(|part| Some(part.version) == version["version"].as_u64());
        table.add_row([
            format!("{}@{}", output::cell(&version["name"]), output::cell(&version["version"])),
            part.map_or("-".to_owned(), |part| format!("{} %", part.percent)),
            schema::summary(&version["input_schema"]),
            schema::type_of(&version["output_schema"]),
            vram(&version["vram_gib"]),
            output::bytes(version["package_size_bytes"].as_u64().unwrap_or_default()),
            output::ago(&version["created_at"]),
        ]);
    }
    if name.is_none() {
        // Without a name, each row is a current version, and traffic has no meaning.
        if let Some(column) = table.column_mut(1) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    output::print_table(&table, "no endpoints; deploy one with `stoke deploy PATH`")
}

fn vram(gib: &Value) -> String {
    match gib.as_f64() {
        None | Some(0.0) => "CPU".to_owned(),
        Some(gib) => format!("{gib} GiB"),
    }
}
