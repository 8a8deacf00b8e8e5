//! `stoke endpoint`.

mod delete;
mod diff;
mod gate;
mod needs;
pub(crate) mod traffic;

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::ColumnConstraint;
use stokehold_client::models::{EndpointList, VersionList};

use crate::client::{Client, decode, segment};
use crate::{Global, completions, deploy, output, schema};

/// Deploy, list, compare, test, roll back and delete endpoints
#[derive(Args)]
#[command(after_help = "Examples:
  stoke endpoint list
  stoke endpoint traffic greet@7 --percent 10
  stoke endpoint rollback greet")]
pub(crate) struct EndpointArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List endpoints with their current version
    #[command(after_help = "Examples:\n  stoke endpoint list")]
    List,
    Get(GetArgs),
    Deploy(Box<deploy::DeployArgs>),
    Diff(diff::DiffArgs),
    Traffic(traffic::TrafficArgs),
    Rollback(traffic::RollbackArgs),
    Gate(Box<gate::GateArgs>),
    Needs(needs::NeedsArgs),
    ForgetNeeds(needs::ForgetArgs),
    Delete(delete::DeleteArgs),
    Prune(delete::PruneArgs),
}

/// List the versions of an endpoint, newest first, with their share of new jobs
#[derive(Args)]
#[command(after_help = "Examples:
  stoke endpoint get greet
  stoke endpoint get greet --json")]
struct GetArgs {
    /// Endpoint name
    #[arg(add = completions::endpoints())]
    name: String,
}

pub(crate) async fn run(global: &Global, args: EndpointArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::List => list(global, &client, None).await,
        Verb::Deploy(args) => Box::pin(deploy::run(global, *args)).await,
        Verb::Get(args) => list(global, &client, Some(&args.name)).await,
        Verb::Diff(args) => diff::run(global, &client, &args).await,
        Verb::Traffic(args) => traffic::run(global, &client, &args).await,
        Verb::Rollback(args) => traffic::roll_back(global, &client, &args).await,
        Verb::Gate(args) => Box::pin(gate::run(global, &client, *args)).await,
        Verb::Needs(args) => needs::show(global, &client, &args).await,
        Verb::ForgetNeeds(args) => needs::forget(global, &client, &args).await,
        Verb::Delete(args) => delete::run(global, &client, &args).await,
        Verb::Prune(args) => delete::prune(global, &client, &args).await,
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
    let mut table = output::table(["endpoint", "traffic", "input", "result", "vram", "package", "deployed"])
        .wrapping(&["input", "result"]);
    for version in &versions {
        let part = traffic.iter().find(|part| part.version == version.version);
        table.add_row([
            format!("{}@{}", output::text(version.name.as_str()), version.version),
            part.map_or("-".to_owned(), |part| format!("{} %", part.percent)),
            schema::summary(&version.input_schema),
            schema::result(&version.output_schema),
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
