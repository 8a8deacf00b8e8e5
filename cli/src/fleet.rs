//! `stoke fleet`.

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use stokehold_client::models::{Decision, Fleet};

use crate::client::{Client, decode};
use crate::{Global, output};

/// Decisions shown.
const DECISIONS_MAX: usize = 5;

/// List machines, own and rented: state, running jobs, loaded models and price
///
/// A machine is shown from the moment it is rented, before it has a worker. Below are the autoscaler's last decisions
/// and their reasons; --json has more of them. `stoke worker list` lists the workers, with their GPUs.
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
    if !fleet.decisions.is_empty() {
        output::line("")?;
        output::print_table(&decisions(&fleet.decisions), "")?;
    }
    Ok(())
}

/// The newest decisions of the autoscaler.
fn decisions(newest_first: &[Decision]) -> output::Table {
    let mut table = output::table(["decision", "action", "machine", "reason"]).wrapping(&["reason"]);
    for Decision { action, at, failure, machine, reason } in newest_first.iter().take(DECISIONS_MAX) {
        let reason = match failure {
            Some(failure) => format!("{reason}; it failed: {failure}"),
            None => reason.clone(),
        };
        table.add_row([
            Cell::new(output::ago(at.as_str())),
            Cell::new(output::text(action.as_str())),
            Cell::new(output::text(machine.as_deref())),
            Cell::new(output::text(reason.as_str())),
        ]);
    }
    table
}

fn dollars(micros: u64) -> String {
    format!("{:.3}", micros as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_decisions_are_shown_with_their_reasons() {
        let decision = |number: u32| {
            let failure = (number == 1).then_some("no credit");
            json!({"action": "rent", "at": "2026-01-01T00:00:00Z", "failure": failure, "reason": format!("reason {number}")})
        };
        let list: Vec<Decision> = (1..=7).map(|number| decode(&decision(number)).unwrap()).collect();
        let shown = decisions(&list).trim_fmt();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 1 + DECISIONS_MAX, "{shown}");
        assert!(lines[1].ends_with("rent    -        reason 1; it failed: no credit"), "{shown}");
        assert!(lines[5].ends_with("reason 5"), "{shown}");
    }
}
