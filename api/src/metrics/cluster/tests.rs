use std::collections::BTreeSet;

use stokehold_metrics::Metrics;
use stokehold_queue::WorkerRecord;
use stokehold_queue::budgets::{AtBudget, Budget, Budgeted};
use stokehold_queue::costs::Cost;
use stokehold_queue::flow::{Flow, LaneFlow};
use stokehold_queue::gateway::{GpuHealth, GpuReading, HostStatus, ModelOnGpu, ModelState, ModelStatus};
use stokehold_queue::job::Priority;
use stokehold_queue::queue::LimitScope;
use stokehold_queue::registry::{AutoscalerStatus, MachineRecord, Notice};

use super::*;
use crate::workers::fleet::tests::worker;

const NOW_MS: u64 = 1_000_000_000;

/// Metric lines of a snapshot.
async fn told(snapshot: &Snapshot) -> Vec<String> {
    let exposition = Metrics::default();
    exposition.show(TELLER, METRICS, || set_metrics(snapshot));
    exposition
        .snapshots_text()
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::to_owned)
        .collect()
}

fn flow(endpoint: &str, waiting: u64, oldest_ms: u64) -> Flow {
    let lane = LaneFlow {
        priority: Priority::Standard,
        // The 24 GiB class of the second set of requirements.
        class: stokehold_queue::capability::class_of(1, 24),
        arrived: 9,
        started: 5,
        late: 0,
        waiting,
        oldest_ms,
    };
    Flow {
        tenant: "acme".to_owned(),
        endpoint: endpoint.to_owned(),
        running: 2,
        ended: 7,
        failed: 1,
        tokens: [30, 10, 5].into(),
        lanes: vec![lane],
        ..Flow::default()
    }
}

fn desk() -> WorkerRecord {
    let faulty = GpuReading {
        vram_used_mib: Some(1_024),
        vram_held_mib: 2_048,
        temperature_c: Some(80),
        utilisation_pct: Some(50),
        power_w: Some(300),
        ecc_uncorrected: Some(1),
        health: GpuHealth::Faulty,
        ..GpuReading::default()
    };
    let mut desk = WorkerRecord { seen_ms: NOW_MS, ..worker(&[24_576], 1, vec![faulty]) };
    desk.gpus[0].name = "NVIDIA GeForce RTX 4090".to_owned();
    desk.status.host = HostStatus { disk_total_bytes: 100, memory_total_bytes: 100, ..HostStatus::default() };
    desk.status.models = vec![ModelStatus {
        tenant: "acme".to_owned(),
        name: "draw@3".to_owned(),
        state: ModelState::Busy,
        cards: vec![ModelOnGpu { index: 0, held_mib: 2_048, seen_mib: None }],
        succeeded_ms: None,
        mean_ms: None,
        p95_ms: None,
    }];
    desk
}

fn given_back(ago_ms: u64) -> MachineRecord {
    let wanted_ms = NOW_MS - ago_ms;
    serde_json::from_value(serde_json::json!({
        "id": "m_1", "provider": "vast", "offer": null, "wanted": "gone", "wanted_ms": wanted_ms, "is_done": true,
        "rented_ms": 0, "usd_micros_per_hour": 400_000,
    }))
    .unwrap()
}

/// A snapshot with one of everything.
fn house() -> Snapshot {
    let scope = LimitScope::Endpoint { tenant: "acme".to_owned(), endpoint: "draw".to_owned() };
    let budget = Budget { usd_micros_per_day: 5_000_000, at: AtBudget::Drain };
    Snapshot {
        now_ms: NOW_MS,
        silent_ms: 15_000,
        flows: vec![flow("draw", 3, 61_500)],
        workers: vec![desk()],
        machines: vec![given_back(660_000)],
        autoscaler: Some(AutoscalerStatus {
            at_ms: NOW_MS,
            notices: vec![Notice { kind: "provider_unreachable vast".to_owned(), text: String::new(), since_ms: 0 }],
            etas: vec![],
            ..AutoscalerStatus::default()
        }),
        budgets: vec![Budgeted { scope, budget, spent_usd_micros: 4_500_000, stood: None, paused_until_ms: None }],
        cost_today: Cost { run: 1_500_000, ..Cost::default() },
        jobs_ended: 4,
        quarantined: vec![0, 2],
        script_faults: [("gate".to_owned(), 3)].into(),
        ..Snapshot::default()
    }
}

#[tokio::test]
async fn all_that_is_told_is_in_the_catalogue_and_a_full_house_tells_all_of_it() {
    let mut seen = BTreeSet::new();
    for line in told(&house()).await {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
        let labels: Vec<&str> = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
            .map(|(labels, _)| labels.split("\",").map(|label| label.split_once('=').unwrap().0).collect())
            .unwrap_or_default();
        let metric = METRICS.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{line} has no name"));
        assert_eq!(labels, metric.labels, "{line}");
        seen.insert(name.to_owned());
    }
    let missing: Vec<&str> = METRICS.iter().map(|metric| metric.name).filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn figures_are_in_base_units_and_of_what_is_there() {
    let lines = told(&house()).await;
    for line in [
        "stokehold_queue_depth_jobs{priority=\"standard\",vram_class_gib=\"24\"} 3",
        "stokehold_queue_oldest_age_seconds{priority=\"standard\"} 61.5",
        "stokehold_queue_oldest_age_seconds{priority=\"batch\"} 0",
        "stokehold_endpoint_jobs_ended_total{tenant=\"acme\",endpoint=\"draw\"} 7",
        "stokehold_tokens_total{tenant=\"acme\",endpoint=\"draw\",kind=\"cached\"} 10",
        "stokehold_gpu_vram_size_bytes{worker=\"desk\",gpu=\"0\",kind=\"RTX 4090\"} 25769803776",
        "stokehold_gpu_utilization_ratio{worker=\"desk\",gpu=\"0\",kind=\"RTX 4090\"} 0.5",
        "stokehold_model_vram_reserved_bytes{tenant=\"acme\",endpoint=\"draw\",version=\"3\"} 2147483648",
        "stokehold_machines{provider=\"vast\",state=\"ending\"} 1",
        "stokehold_machines{provider=\"joined\",state=\"ready\"} 1",
        "stokehold_spend_usd_per_hour{provider=\"vast\"} 0.4",
        "stokehold_cost_today_usd{part=\"run\"} 1.5",
        "stokehold_budgets{state=\"warned\"} 1",
        "stokehold_budget_spent_usd{tenant=\"acme\",endpoint=\"draw\"} 4.5",
    ] {
        assert!(lines.iter().any(|told| told == line), "{line} is not in\n{}", lines.join("\n"));
    }
}

#[tokio::test]
async fn a_machine_is_an_orphan_when_its_end_is_long_unconfirmed() {
    let orphans = async |ago_ms| {
        let snapshot = Snapshot { machines: vec![given_back(ago_ms)], ..house() };
        let lines = told(&snapshot).await;
        lines.iter().any(|line| line == "stokehold_orphan_machines{provider=\"vast\"} 1")
    };
    assert!(!orphans(600_000).await);
    assert!(orphans(600_001).await);
}

#[tokio::test]
async fn a_silent_worker_is_not_told_of() {
    let snapshot = Snapshot { workers: vec![WorkerRecord { seen_ms: NOW_MS - 15_001, ..desk() }], ..house() };
    let lines = told(&snapshot).await;
    assert!(lines.iter().all(|line| !line.contains("worker=\"desk\"")), "{}", lines.join("\n"));
}

#[tokio::test]
async fn labels_are_bounded_by_what_has_most_to_tell() {
    let mut flows: Vec<Flow> = (0..150).map(|n| flow(&format!("e{n:03}"), 0, 0)).collect();
    flows.push(flow("last", 1, 0));
    let lines = told(&Snapshot { flows, ..house() }).await;
    let running = |line: &&String| line.starts_with("stokehold_endpoint_running_jobs{");
    assert_eq!(lines.iter().filter(running).count(), 100);
    assert!(lines.iter().filter(running).any(|line| line.contains("\"last\"")), "who waits is told of");
    assert!(lines.contains(&"stokehold_figures_left_out{of=\"endpoints\"} 51".to_owned()));
    assert!(lines.contains(&"stokehold_jobs_running 302".to_owned()), "a total leaves nobody out");
}
