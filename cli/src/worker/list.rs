//! `stoke worker list`.

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use stokehold_client::models::{Gpu, GpuHealth, Worker, WorkerList};

use crate::client::{Client, decode};
use crate::{Global, output};

/// List workers with their running jobs, loaded models and GPUs
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke worker list")]
pub(crate) struct ListArgs {}

pub(super) async fn run(global: &Global, _args: ListArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let found = client.get("/v1/workers").await?;
    if global.json {
        return output::json(&found);
    }
    let mut table =
        output::table(["worker", "state", "trust", "sandbox", "running", "loaded", "gpus", "joined", "seen", "id"])
            .wrapping(&["loaded", "gpus"]);
    for worker in decode::<WorkerList>(&found)?.workers {
        let loaded: Vec<String> = worker.loaded.iter().map(|model| output::text(model.as_str())).collect();
        table.add_row([
            Cell::new(output::text(worker.name.as_str())),
            output::state_cell(worker.state.as_str()),
            Cell::new(whose(&worker)),
            Cell::new(worker.sandbox.as_ref().map_or("-", |level| level.as_str())),
            Cell::new(format!("{}/{}", worker.running, worker.slots)),
            Cell::new(if loaded.is_empty() { "-".to_owned() } else { loaded.join(" ") }),
            Cell::new(gpus(&worker.gpus)),
            Cell::new(output::ago(worker.joined_at.as_str())),
            Cell::new(output::ago(worker.seen_at.as_str())),
            Cell::new(&worker.id),
        ]);
    }
    output::print_table(&table, "no workers; start one with `stoke worker run`")
}

/// Trust level and, if known, region of a worker.
fn whose(worker: &Worker) -> String {
    let words = [worker.trust.as_str(), &worker.region];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// GPUs of a worker, one line each: name, memory in use, temperature and, if it takes no work, the reason.
fn gpus(gpus: &[Gpu]) -> String {
    let line = |gpu: &Gpu| {
        let gib = |mib: u64| mib as f64 / 1024.0;
        let used = gpu.vram_used_mib.map_or(String::new(), |used| format!("{:.1}/", gib(used)));
        let mut line = format!("{} {used}{:.1} GiB", output::text(gpu.name.as_str()), gib(gpu.vram_mib));
        if let Some(degrees) = gpu.temperature_c {
            line.push_str(&format!(" {degrees} °C"));
        }
        if let Some(health) = health(gpu) {
            line.push_str(&match &gpu.why {
                None => format!(" {health}"),
                Some(why) => format!(" {health}: {why}"),
            });
        }
        line
    };
    let lines: Vec<String> = gpus.iter().map(line).collect();
    if lines.is_empty() { "CPU only".to_owned() } else { lines.join("\n") }
}

/// The health of a GPU that takes no work, or less than it could.
pub(crate) fn health(gpu: &Gpu) -> Option<&str> {
    Some(gpu.health.as_str()).filter(|health| gpu.health != GpuHealth::Healthy && !health.is_empty())
}
