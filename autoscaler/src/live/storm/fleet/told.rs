//! The fleet as the queue and the registry report it.

use serde_json::json;
use stokehold_queue::WorkerRecord;
use stokehold_queue::flow::{Flow, GpuRuns, LaneFlow};

use super::{Fleet, Machine, Parts, RUN_MS};

/// Time after its last heartbeat for which a worker is listed in the registry, milliseconds.
const LISTED_MS: u64 = 900_000;

impl Fleet {
    /// The flows and workers that an autoscaler reads.
    pub(in super::super) fn seen(&self, now_ms: u64) -> (Vec<Flow>, Vec<WorkerRecord>) {
        let parts = self.parts();
        let is_listed = |machine: &&Machine| machine.seen_ms > 0 && now_ms.saturating_sub(machine.seen_ms) < LISTED_MS;
        let listed = parts.machines.iter().filter(|(_, machine)| is_listed(machine));
        let workers = listed.map(|(id, machine)| parts.worker(id, machine)).collect();
        ((0..parts.jobs.endpoints.len()).map(|n| parts.flow(n, now_ms)).collect(), workers)
    }
}

impl Parts {
    fn flow(&self, n: usize, now_ms: u64) -> Flow {
        let (endpoint, lane) = (self.jobs.endpoints[n], &self.jobs.lanes[n]);
        let oldest_ms = lane.waiting.front().map_or(0, |job| now_ms.saturating_sub(job.since_ms()));
        let of_priority = LaneFlow {
            priority: endpoint.priority,
            class: endpoint.class,
            arrived: lane.arrived,
            started: lane.started,
            late: 0,
            waiting: lane.waiting.len() as u64,
            oldest_ms,
        };
        let runs = GpuRuns {
            kind: "RTX 4090".to_owned(),
            ended: lane.ended,
            run_ms: lane.ended * RUN_MS,
            ..GpuRuns::default()
        };
        Flow {
            tenant: "acme".to_owned(),
            endpoint: endpoint.name.to_owned(),
            running: lane.running,
            may_start: None,
            lanes: vec![of_priority],
            runs: vec![runs],
            ..Flow::default()
        }
    }

    fn worker(&self, id: &str, machine: &Machine) -> WorkerRecord {
        let gpu = |index: usize| json!({"index": index, "uuid": format!("GPU-{index}"), "name": "NVIDIA GeForce RTX 4090", "vram_mib": machine.card_mb});
        let cards = machine.slots.cards;
        let record = json!({"worker_id": format!("w_{id}"), "name": id, "release": "", "slots": cards,
            "joined_ms": machine.joined_ms, "seen_ms": machine.seen_ms, "trust": "datacenter",
            "gpus": (0..cards).map(gpu).collect::<Vec<_>>(),
            "status": {"running": machine.slots.held.len(), "draining": self.drained.contains(id)}});
        serde_json::from_value(record).unwrap()
    }
}
