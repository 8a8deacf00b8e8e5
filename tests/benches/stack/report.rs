//! The table and the JSON.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::measure::Figures;

pub(crate) fn print(systems: &BTreeMap<&str, Figures>) {
    let (Some(ours), Some(raw)) = (systems.get("stokehold"), systems.get("raw")) else { return };
    println!("{:<34}{:>14}{:>14}{:>10}", "", "stokehold", "raw streams", "ratio");
    let row = |name: &str, of: &dyn Fn(&Figures) -> Option<f64>, digits: usize| {
        let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
        let ratio = of(ours).zip(of(raw)).map(|(a, b)| format!("{:.3}", a / b)).unwrap_or_default();
        println!("{name:<34}{:>14}{:>14}{ratio:>10}", text(of(ours)), text(of(raw)));
    };
    row("submit, one by one, jobs/s", &|f| f.submit_single_per_s, 0);
    row("submit, bulk, jobs/s", &|f| f.submit_bulk_per_s, 0);
    row("drain, 1 worker, jobs/s", &|f| f.drain_per_s, 0);
    row("drain, 2 workers, jobs/s", &|f| f.drain2_per_s, 0);
    row("round trip p50, ms", &|f| f.rtt_ms.map(|r| r.p50), 2);
    row("round trip p95, ms", &|f| f.rtt_ms.map(|r| r.p95), 2);
    row("round trip p99, ms", &|f| f.rtt_ms.map(|r| r.p99), 2);
    for part in ["api", "worker", "runner", "redis"] {
        row(&format!("CPU s per 1,000 jobs: {part}"), &|f| f.cpu_s_per_1000.get(part).copied(), 4);
    }
    row("CPU s per 1,000 jobs: all", &|f| Some(f.cpu_s_per_1000.values().sum()), 4);
    row("Redis bytes per queued job", &|f| f.redis_bytes_per_job, 0);
}

pub(crate) fn json(systems: &BTreeMap<&str, Figures>) -> Value {
    json!({"machine": machine(), "systems": systems})
}

fn machine() -> Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cpu": model.trim_start_matches([' ', '\t', ':']),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": kernel.trim(),
        "redis": "appendonly yes, appendfsync always",
    })
}
