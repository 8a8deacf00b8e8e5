//! `stoke workers`.

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use serde_json::Value;

use crate::client::Client;
use crate::{Global, output};

/// List workers with their running jobs, loaded models and GPUs
#[derive(Args)]
pub(crate) struct WorkersArgs {}

pub(crate) async fn run(global: &Global, _args: WorkersArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let found = client.get("/v1/workers").await?;
    if global.json {
        return output::json(&found);
    }
    let mut table =
        output::table(["worker", "state", "trust", "sandbox", "running", "loaded", "gpus", "joined", "seen", "id"]);
    for worker in found["workers"].as_array().into_iter().flatten() {
        let loaded: Vec<String> = worker["loaded"].as_array().into_iter().flatten().map(output::cell).collect();
        table.add_row([
            Cell::new(output::cell(&worker["name"])),
            output::state_cell(worker["state"].as_str().unwrap_or_default()),
            Cell::new(whose(worker)),
            Cell::new(worker["sandbox"].as_str().unwrap_or("-")),
            Cell::new(format!("{}/{}", output::cell(&worker["running"]), output::cell(&worker["slots"]))),
            Cell::new(if loaded.is_empty() { "-".to_owned() } else { loaded.join(" ") }),
            Cell::new(gpus(&worker["gpus"])),
            Cell::new(output::ago(&worker["joined_at"])),
            Cell::new(output::ago(&worker["seen_at"])),
            Cell::new(output::cell(&worker["id"])),
        ]);
    }
    output::print_table(&table, "no workers; start one with `stoke worker`")
}

/// Trust level and, if known, region of a worker.
fn whose(worker: &Value) -> String {
    let words = [worker["trust"].as_str(), worker["region"].as_str()];
    words.into_iter().flatten().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// One line per GPU: name, memory in use, temperature and, if it takes no work, the reason.
fn gpus(cards: &Value) -> String {
    let line = |card: &Value| {
        let gib = |member: &str| card[member].as_u64().map(|mib| mib as f64 / 1024.0);
        let used = gib("vram_used_mib").map_or(String::new(), |used| format!("{used:.1}/"));
        let mut line = format!("{} {used}{:.1} GiB", output::cell(&card["name"]), gib("vram_mib").unwrap_or_default());
        if let Some(degrees) = card["temperature_c"].as_u64() {
            line.push_str(&format!(" {degrees} °C"));
        }
        match (card["health"].as_str(), card["why"].as_str()) {
            (Some("well") | None, _) => {}
            (Some(health), None) => line.push_str(&format!(" {health}")),
            (Some(health), Some(why)) => line.push_str(&format!(" {health}: {why}")),
        }
        line
    };
    let lines: Vec<String> = cards.as_array().into_iter().flatten().map(line).collect();
    if lines.is_empty() { "CPU only".to_owned() } else { lines.join("\n") }
}
