//! `stoke top`.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use serde_json::json;
use stokehold_client::models::{Gpu, Lane, Model, ModelOnGpu, QueueView, Worker, WorkerList};
use tokio::time::sleep;

use crate::client::{Client, decode};
use crate::worker::list as workers;
use crate::{Global, duration, output};

/// Width of a GPU's memory bar, characters.
const BAR: usize = 40;

/// Live view of GPUs, running jobs and queues
///
/// The bar of a GPU shows memory that models use (#), that is reserved for them but unused (=), that other processes
/// use (x), and free memory (.). `stoke worker list` lists workers once, and `stoke fleet` machines with prices.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke top
  stoke top --once")]
pub(crate) struct TopArgs {
    /// Refresh interval, e.g. 1s
    #[arg(long, default_value = "1s", value_parser = duration::parse, value_name = "DURATION")]
    every: Duration,
    /// Print once and exit
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(global: &Global, args: TopArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let is_live = !args.once && !global.json && std::io::stdout().is_terminal();
    loop {
        let (workers, queue) = tokio::try_join!(client.get("/v1/workers"), client.get("/v1/queue"))?;
        if global.json {
            return output::json(&json!({"workers": workers["workers"], "lanes": queue["lanes"]}));
        }
        if is_live {
            output::clear_screen()?;
        }
        output::line(screen(&decode(&workers)?, &decode(&queue)?))?;
        if !is_live {
            return Ok(());
        }
        sleep(args.every).await;
    }
}

fn screen(WorkerList { workers }: &WorkerList, queue: &QueueView) -> String {
    let mut text = String::new();
    for worker in workers {
        text.push_str(&head(worker));
        for gpu in &worker.gpus {
            text.push_str(&gpu_lines(gpu, &worker.models));
        }
        let on_cpu: Vec<&Model> = worker.models.iter().filter(|model| model.cards.is_empty()).collect();
        if !on_cpu.is_empty() {
            text.push_str("  CPU\n");
            on_cpu.iter().for_each(|model| text.push_str(&model_line(model, None)));
        }
        text.push('\n');
    }
    if workers.is_empty() {
        text.push_str("no workers; start one with `stoke worker run`\n\n");
    }
    text.push_str(&waiting(&queue.lanes));
    text
}

fn head(worker: &Worker) -> String {
    let host = &worker.host;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let facts = format!(
        "{}, {} of {} slots, memory {:.0} of {:.0} GiB free, disk {:.0} of {:.0} GiB free",
        output::text(worker.state.as_str()),
        worker.running,
        worker.slots,
        gib(host.memory_free_bytes),
        gib(host.memory_total_bytes),
        gib(host.disk_free_bytes),
        gib(host.disk_total_bytes),
    );
    format!("{}  {}\n", output::bold(output::text(worker.name.as_str())), output::dim(facts))
}

fn gpu_lines(gpu: &Gpu, models: &[Model]) -> String {
    let part = |model: &Model| model.cards.iter().find(|on| on.index == gpu.index).copied();
    let mine: Vec<(&Model, ModelOnGpu)> = models.iter().filter_map(|model| Some((model, part(model)?))).collect();
    let seen_mib: u64 = mine.iter().filter_map(|(_, on)| on.seen_mib).sum();
    let (held_mib, foreign_mib) = (gpu.vram_held_mib.unwrap_or_default(), gpu.vram_foreign_mib.unwrap_or_default());
    let free_mib = gpu.vram_free_mib.unwrap_or_default();
    let mut facts = vec![format!("{:.1} of {:.1} GiB free", gib(free_mib), gib(gpu.vram_mib))];
    facts.extend(gpu.temperature_c.map(|degrees| format!("{degrees} °C")));
    facts.extend(gpu.utilisation_pct.map(|percent| format!("{percent} %")));
    facts.extend(gpu.power_w.map(|watts| format!("{watts} W")));
    let why = gpu.why.as_deref().unwrap_or_default();
    facts.extend(workers::health(gpu).map(|health| format!("{health} {why}").trim_end().to_owned()));
    let map = bar(gpu.vram_mib, seen_mib, held_mib, foreign_mib);
    let name = output::text(gpu.name.as_str());
    let mut text = format!("  {} {name}  [{map}]  {}\n", gpu.index, facts.join("  "));
    mine.iter().for_each(|(model, on)| text.push_str(&model_line(model, Some(*on))));
    text
}

/// The line of a model, with its memory on one GPU.
fn model_line(model: &Model, on: Option<ModelOnGpu>) -> String {
    let memory = on.map_or(String::new(), |on| {
        let held = format!("{:.1}", gib(on.held_mib));
        match on.seen_mib {
            Some(seen_mib) => format!("{:.1} of {held} GiB", gib(seen_mib)),
            None if held != "0.0" => format!("{held} GiB"),
            None => String::new(),
        }
    });
    let times = match (model.mean_ms, model.p95_ms) {
        (Some(mean_ms), Some(p95_ms)) => format!("mean {}, p95 {}", output::millis(mean_ms), output::millis(p95_ms)),
        _ => String::new(),
    };
    let (name, state) = (output::text(model.name.as_str()), output::text(model.state.as_str()));
    let line = format!("      {name:<32} {state:<8} {memory:<18} {times}");
    format!("{}\n", line.trim_end())
}

fn waiting(lanes: &[Lane]) -> String {
    if lanes.is_empty() {
        return "no jobs are waiting".to_owned();
    }
    let mut table = output::table(["waiting", "endpoint", "priority", "needs", "done in", "why"]).wrapping(&["why"]);
    for lane in lanes {
        let (tenant, endpoint) = (output::text(lane.tenant.as_str()), output::text(lane.endpoint.as_str()));
        let (reason, message) = (lane.waiting.reason.as_str(), lane.waiting.message.as_str());
        table.add_row([
            Cell::new(lane.jobs),
            Cell::new(format!("{tenant}/{endpoint}")),
            Cell::new(output::text(lane.priority.as_str())),
            Cell::new(if lane.vram_class_gib == 0 { "CPU".to_owned() } else { format!("{} GiB", lane.vram_class_gib) }),
            Cell::new(lane.eta_s.map_or("-".to_owned(), |eta_s| output::millis(eta_s * 1_000))),
            Cell::new(format!("{}: {}", output::text(reason), output::text(message))),
        ]);
    }
    table.trim_fmt()
}

/// The memory bar of a GPU: used by models (#), reserved but unused (=), used by others (x), free (.).
fn bar(total_mib: u64, seen_mib: u64, held_mib: u64, foreign_mib: u64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to BAR")]
    let cells = |mib: u64| (mib as f64 / total_mib.max(1) as f64 * BAR as f64).round().min(BAR as f64) as usize;
    let used = cells(seen_mib);
    let held = cells(held_mib.max(seen_mib)).max(used);
    let others = cells(foreign_mib).min(BAR - held);
    let parts = [("#", used), ("=", held - used), ("x", others), (".", BAR - held - others)];
    parts.map(|(sign, count)| sign.repeat(count)).concat()
}

fn gib(mib: u64) -> f64 {
    mib as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_gpu_is_drawn_as_what_is_on_it() {
        assert_eq!(
            bar(40, 10, 20, 5),
            format!("{}{}{}{}", "#".repeat(10), "=".repeat(10), "x".repeat(5), ".".repeat(15))
        );
        assert_eq!(bar(40, 50, 20, 40), "#".repeat(40), "more than there is stays within the frame");
        assert_eq!(bar(0, 0, 0, 0), ".".repeat(40));
    }

    #[test]
    fn a_screen_shows_gpus_models_and_what_waits_for_what() {
        let workers = json!({"workers": [{
            "id": "w1", "name": "desk", "state": "ready", "running": 1, "slots": 2, "host": {},
            "gpus": [{"index": 0, "name": "RTX 4090", "vram_mib": 24_576, "vram_held_mib": 10_240, "vram_free_mib": 12_288,
                "vram_foreign_mib": 512, "temperature_c": 61, "health": "faulty", "why": "Xid 79"}],
            "models": [{"tenant": "acme", "name": "render@3", "state": "busy", "cards": [{"index": 0, "held_mib": 10_240, "seen_mib": 9_216}], "mean_ms": 1_200, "p95_ms": 2_000},
                {"tenant": "acme", "name": "split@1", "state": "idle", "cards": []}],
        }]});
        let queue = json!({"lanes": [{"tenant": "acme", "endpoint": "film", "priority": "batch", "vram_class_gib": 48, "jobs": 7, "eta_s": 90,
            "waiting": {"reason": "unschedulable", "message": "it needs a GPU of 48 GiB"}}]});
        let text = screen(&decode(&workers).unwrap(), &decode(&queue).unwrap());
        for part in [
            "desk",
            "12.0 of 24.0 GiB free  61 °C  faulty Xid 79",
            "render@3",
            "9.0 of 10.0 GiB",
            "p95 2.0 s",
            "CPU",
            "split@1",
            "7",
            "acme/film",
            "48 GiB",
            "unschedulable: it needs a GPU of 48 GiB",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }
}
