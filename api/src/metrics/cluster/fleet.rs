//! Metrics of workers, their GPUs and their models.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use metrics::gauge;
use stokehold_queue::WorkerRecord;
use stokehold_queue::gateway::{Gpu, GpuHealth, GpuReading, ModelState};
use stokehold_queue::vram::kind_of_gpu;

use super::catalogue::{
    GPU_ECC, GPU_FAULTY, GPU_FOREIGN, GPU_POWER, GPU_RESERVED, GPU_SIZE, GPU_TEMPERATURE, GPU_USED, GPU_UTILIZATION,
    GPUS, MODEL_RESERVED, MODEL_WORKERS, MODELS, WORKER_CACHED, WORKER_DISK_FREE, WORKER_DISK_SIZE, WORKER_MEMORY_FREE,
    WORKER_MEMORY_SIZE, WORKER_RUNNING, WORKER_SLOTS, WORKERS,
};
use super::snapshot::Snapshot;
use super::{LeftOut, bytes, float};

/// Maximum number of workers, and of GPUs, with series of their own.
const WORKERS_MAX: usize = 500;
const GPUS_MAX: usize = 500;

/// Maximum number of models with series of their own.
const MODELS_MAX: usize = 200;

const HEALTHS: [(GpuHealth, &str); 3] =
    [(GpuHealth::Healthy, "healthy"), (GpuHealth::Hot, "hot"), (GpuHealth::Faulty, "faulty")];

const STATES: [(ModelState, &str); 3] =
    [(ModelState::Loading, "loading"), (ModelState::Idle, "idle"), (ModelState::Busy, "busy")];

pub(super) fn set_metrics(snapshot: &Snapshot, left_out: &mut LeftOut) {
    let mut workers: Vec<&WorkerRecord> = snapshot.alive().collect();
    workers.sort_by_key(|worker| &worker.name);
    for (state, is_draining) in [("ready", false), ("draining", true)] {
        let number = workers.iter().filter(|worker| worker.status.draining == is_draining).count();
        gauge!(WORKERS, "state" => state).set(float(number as u64));
    }
    left_out.cut("workers", &workers, WORKERS_MAX).iter().for_each(|worker| one(worker));
    cards(&workers, left_out);
    models(&workers, left_out);
}

fn one(worker: &WorkerRecord) {
    let (labels, host) = ([("worker", worker.name.clone())], &worker.status.host);
    gauge!(WORKER_SLOTS, &labels).set(worker.slots);
    gauge!(WORKER_RUNNING, &labels).set(worker.status.running);
    // A worker that has not measured its disk yet reports zero.
    if host.disk_total_bytes > 0 {
        gauge!(WORKER_DISK_FREE, &labels).set(float(host.disk_free_bytes));
        gauge!(WORKER_DISK_SIZE, &labels).set(float(host.disk_total_bytes));
    }
    if host.memory_total_bytes > 0 {
        gauge!(WORKER_MEMORY_FREE, &labels).set(float(host.memory_free_bytes));
        gauge!(WORKER_MEMORY_SIZE, &labels).set(float(host.memory_total_bytes));
    }
    for (what, cached) in [("environments", host.environments_bytes), ("weights", host.weights_bytes)] {
        gauge!(WORKER_CACHED, "worker" => worker.name.clone(), "what" => what).set(float(cached));
    }
}

fn cards(workers: &[&WorkerRecord], left_out: &mut LeftOut) {
    let all: Vec<(&WorkerRecord, &Gpu, GpuReading)> = workers
        .iter()
        .flat_map(|worker| worker.gpus.iter().map(move |gpu| (*worker, gpu, reading(worker, gpu.index))))
        .collect();
    let mut kinds: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for (_, gpu, reading) in &all {
        let of_kind = kinds.entry(kind_of_gpu(gpu)).or_default();
        for ((health, _), cards) in HEALTHS.into_iter().zip(of_kind) {
            *cards += u64::from(health == reading.health);
        }
    }
    for (kind, healths) in kinds {
        for ((_, health), cards) in HEALTHS.into_iter().zip(healths) {
            gauge!(GPUS, "kind" => kind.clone(), "health" => health).set(float(cards));
        }
    }
    for (worker, gpu, reading) in left_out.cut("gpus", &all, GPUS_MAX) {
        card(worker, gpu, reading);
    }
}

fn card(worker: &WorkerRecord, gpu: &Gpu, reading: &GpuReading) {
    let labels = [("worker", worker.name.clone()), ("gpu", gpu.index.to_string()), ("kind", kind_of_gpu(gpu))];
    gauge!(GPU_SIZE, &labels).set(bytes(gpu.vram_mib));
    gauge!(GPU_RESERVED, &labels).set(bytes(reading.vram_held_mib));
    gauge!(GPU_FOREIGN, &labels).set(bytes(reading.vram_foreign_mib));
    gauge!(GPU_FAULTY, &labels).set(f64::from(u8::from(reading.health == GpuHealth::Faulty)));
    // A reading that is not available is not reported.
    if let Some(used_mib) = reading.vram_used_mib {
        gauge!(GPU_USED, &labels).set(bytes(used_mib));
    }
    if let Some(percent) = reading.utilisation_pct {
        gauge!(GPU_UTILIZATION, &labels).set(f64::from(percent) / 100.0);
    }
    if let Some(temperature_c) = reading.temperature_c {
        gauge!(GPU_TEMPERATURE, &labels).set(temperature_c);
    }
    if let Some(power_w) = reading.power_w {
        gauge!(GPU_POWER, &labels).set(power_w);
    }
    if let Some(errors) = reading.ecc_uncorrected {
        gauge!(GPU_ECC, &labels).set(float(errors));
    }
}

fn reading(worker: &WorkerRecord, index: u32) -> GpuReading {
    worker.status.gpus.iter().find(|reading| reading.index == index).cloned().unwrap_or_default()
}

fn models(workers: &[&WorkerRecord], left_out: &mut LeftOut) {
    let all = || workers.iter().flat_map(|worker| &worker.status.models);
    for (state, word) in STATES {
        let number = all().filter(|model| model.state == state).count();
        gauge!(MODELS, "state" => word).set(float(number as u64));
    }
    // By tenant and `name@version`: the memory that it takes, and the number of workers that have it.
    let mut models: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for model in all() {
        let (held_mib, on) = models.entry((&model.tenant, &model.name)).or_default();
        *held_mib += model.cards.iter().map(|card| card.held_mib).sum::<u64>();
        *on += 1;
    }
    let mut models: Vec<_> = models.into_iter().collect();
    models.sort_by_key(|(_, (held_mib, on))| Reverse((*held_mib, *on)));
    for ((tenant, name), (held_mib, on)) in left_out.cut("models", &models, MODELS_MAX) {
        let (endpoint, version) = name.rsplit_once('@').unwrap_or((*name, ""));
        let labels =
            [("tenant", (*tenant).to_owned()), ("endpoint", endpoint.to_owned()), ("version", version.to_owned())];
        gauge!(MODEL_RESERVED, &labels).set(bytes(*held_mib));
        gauge!(MODEL_WORKERS, &labels).set(float(*on));
    }
}
