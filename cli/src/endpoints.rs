//! `stoke endpoints`.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use crate::client::{Client, segment};
use crate::{Global, output, schema};

/// List what is deployed, or every version of one endpoint
#[derive(Args)]
pub(crate) struct EndpointsArgs {
    /// Show the versions of this endpoint, the newest first
    name: Option<String>,
}

pub(crate) async fn run(global: &Global, args: EndpointsArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let (path, member) = match &args.name {
        Some(name) => (format!("/v1/endpoints/{}/versions", segment(name)), "versions"),
        None => ("/v1/endpoints".to_owned(), "endpoints"),
    };
    let found = client.get(&path).await?;
    if global.json {
        return output::json(&found);
    }
    let mut table = output::table(["endpoint", "input", "result", "vram", "package", "deployed"]);
    for version in found[member].as_array().into_iter().flatten() {
        table.add_row([
            format!("{}@{}", output::cell(&version["name"]), output::cell(&version["version"])),
            schema::summary(&version["input_schema"]),
            schema::type_of(&version["output_schema"]),
            vram(&version["vram_gib"]),
            output::bytes(version["package_size_bytes"].as_u64().unwrap_or_default()),
            output::ago(&version["created_at"]),
        ]);
    }
    output::print_table(&table, "nothing is deployed yet; `stoke deploy PATH` does it")
}

fn vram(gib: &Value) -> String {
    match gib.as_f64() {
        None | Some(0.0) => "CPU".to_owned(),
        Some(gib) => format!("{gib} GiB"),
    }
}
