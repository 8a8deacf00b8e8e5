//! `stoke endpoints`.

mod delete;
mod diff;
mod needs;
pub(crate) mod traffic;

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::ColumnConstraint;
use stokehold_client::models::{EndpointList, VersionList};

use crate::client::{Client, decode, segment};
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
    let path = match name {
        Some(name) => format!("/v1/endpoints/{}/versions", segment(name)),
        None => "/v1/endpoints".to_owned(),
    };
    let found = client.get(&path).await?;
    if global.json {
        return output::json(&found);
    }
    let (versions, traffic) = match name {
        Some(name) => (decode::<VersionList>(&found)?.versions, traffic::of(client, name).await?.versions),
        None => (decode::<EndpointList>(&found)?.endpoints, Vec::new()),
    };
    let mut table = output::table(["endpoint", "traffic", "input", "result", "vram", "package", "deployed"]);
    for version in &versions {
        let part = traffic.iter().find(|part| part.version == version.version);
        table.add_row([
            format!("{}@{}", output::text(version.name.as_str()), version.version),
            part.map_or("-".to_owned(), |part| format!("{} %", part.percent)),
            schema::summary(&version.input_schema),
            schema::type_of(&version.output_schema),
            vram(version.vram_gib),
            output::bytes(version.package_size_bytes),
            output::ago(version.created_at.as_str()),
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

fn vram(gib: f64) -> String {
    if gib == 0.0 { "CPU".to_owned() } else { format!("{gib} GiB") }
}
