//! `stoke fleet`.

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use stokehold_client::models::Fleet;

use crate::client::{Client, decode};
use crate::{Global, output};

/// List machines, own and rented: state, running jobs, loaded models and price
///
/// A machine is shown from the moment it is rented, before it has a worker. `stoke worker list` lists the workers, with
/// their GPUs.
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke fleet")]
pub(crate) struct FleetArgs {}

pub(crate) async fn run(global: &Global, _args: FleetArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let found = client.get("/v1/fleet").await?;
    if global.json {
        return output::json(&found);
    }
    let mut table =
        output::table(["machine", "provider", "kind", "state", "since", "running", "idle", "loaded", "$/h", "rented"])
            .wrapping(&["kind", "loaded"]);
    let fleet: Fleet = decode(&found)?;
    for machine in &fleet.machines {
        let loaded: Vec<String> = machine.loaded.iter().map(|model| output::text(model.as_str())).collect();
        table.add_row([
            Cell::new(&machine.id),
            Cell::new(output::text(machine.provider.as_str())),
            Cell::new(output::text(machine.kind.as_str())),
            output::state_cell(machine.state.as_str()),
            Cell::new(output::ago(machine.since.as_str())),
            Cell::new(format!("{}/{}", machine.running, machine.slots)),
            Cell::new(output::ago(machine.idle_since.as_deref())),
            Cell::new(if loaded.is_empty() { "-".to_owned() } else { loaded.join(" ") }),
            Cell::new(dollars(machine.usd_micros_per_hour)),
            Cell::new(output::ago(machine.rented_at.as_str())),
        ]);
    }
    output::print_table(
        &table,
        "no machines; start a worker with `stoke worker run`, or the autoscaler with `stoke autoscaler run`",
    )?;
    for notice in &fleet.notices {
        let text = output::text(notice.text.as_str());
        output::note(output::bold(format_args!("{text} (since {})", output::ago(notice.since.as_str()))));
    }
    if !fleet.machines.is_empty() {
        output::note(format_args!("total ${} per hour", dollars(fleet.usd_micros_per_hour)));
    }
    Ok(())
}

fn dollars(micros: u64) -> String {
    format!("{:.3}", micros as f64 / 1e6)
}
