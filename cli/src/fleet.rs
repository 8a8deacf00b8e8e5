//! `stoke fleet`.

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use serde_json::Value;

use crate::client::Client;
use crate::{Global, output};

/// List machines: state, running jobs, loaded models and price
#[derive(Args)]
pub(crate) struct FleetArgs {}

pub(crate) async fn run(global: &Global, _args: FleetArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let found = client.get("/v1/fleet").await?;
    if global.json {
        return output::json(&found);
    }
    let mut table =
        output::table(["machine", "provider", "kind", "state", "since", "running", "idle", "loaded", "$/h", "rented"]);
    let machines = found["machines"].as_array().map(Vec::as_slice).unwrap_or_default();
    for machine in machines {
        let loaded: Vec<String> = machine["loaded"].as_array().into_iter().flatten().map(output::cell).collect();
        let idle = &machine["idle_since"];
        table.add_row([
            Cell::new(output::cell(&machine["id"])),
            Cell::new(output::cell(&machine["provider"])),
            Cell::new(output::cell(&machine["kind"])),
            output::state_cell(machine["state"].as_str().unwrap_or_default()),
            Cell::new(output::ago(&machine["since"])),
            Cell::new(format!("{}/{}", output::cell(&machine["running"]), output::cell(&machine["slots"]))),
            Cell::new(if idle.is_null() { "-".to_owned() } else { output::ago(idle) }),
            Cell::new(if loaded.is_empty() { "-".to_owned() } else { loaded.join(" ") }),
            Cell::new(dollars(&machine["usd_micros_per_hour"])),
            Cell::new(output::ago(&machine["rented_at"])),
        ]);
    }
    output::print_table(
        &table,
        "no machines; start a worker with `stoke worker`, or the autoscaler with `stoke autoscaler run`",
    )?;
    for notice in found["notices"].as_array().into_iter().flatten() {
        let text = output::cell(&notice["text"]);
        output::note(output::bold(format_args!("{text} (since {})", output::ago(&notice["since"]))));
    }
    if !machines.is_empty() {
        output::note(format_args!("total ${} per hour", dollars(&found["usd_micros_per_hour"])));
    }
    Ok(())
}

fn dollars(micros: &Value) -> String {
    format!("{:.3}", micros.as_f64().unwrap_or_default() / 1e6)
}
