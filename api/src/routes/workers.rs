//! `GET /v1/workers`: who is here to run jobs.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stokehold_queue::gateway::Gpu;
use stokehold_queue::{WorkerRecord, now_ms};
use utoipa::ToSchema;

use crate::auth::{Caller, WorkersRead};
use crate::error::Problem;
use crate::stamp::rfc3339;
use crate::state::App;

/// The workers heard of in the last quarter of an hour, by name.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkerList {
    workers: Vec<WorkerView>,
}

/// A worker.
#[derive(Serialize, ToSchema)]
#[schema(as = Worker)]
pub(crate) struct WorkerView {
    id: String,
    /// What its operator calls it.
    name: String,
    /// Its release.
    release: String,
    state: WorkerState,
    /// RFC 3339.
    joined_at: String,
    /// RFC 3339.
    seen_at: String,
    /// Attempts it runs at once.
    slots: u32,
    /// Attempts it runs now.
    running: u32,
    /// Endpoint versions it has ready, as `name@version`.
    loaded: Vec<String>,
    /// Its cards; none on a CPU worker.
    gpus: Vec<GpuView>,
}

/// How a worker is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerState {
    /// Taking jobs.
    Ready,
    /// Finishing what it has.
    Draining,
    /// Silent for several heartbeats.
    Lost,
}

/// A card.
#[derive(Serialize, ToSchema)]
#[schema(as = Gpu)]
pub(crate) struct GpuView {
    index: u32,
    uuid: String,
    name: String,
    vram_mib: u64,
    vram_used_mib: Option<u64>,
    temperature_c: Option<u32>,
    utilisation_pct: Option<u32>,
    power_w: Option<u32>,
}

/// List workers
///
/// Workers serve every tenant, so the scope `workers:read` is one for operators.
#[utoipa::path(get, operation_id = "list_workers", path = "/v1/workers", tag = "workers",
    responses((status = 200, description = "The workers heard of lately.", body = WorkerList), crate::openapi::Problems))]
pub(crate) async fn list(State(app): State<App>, _: Caller<WorkersRead>) -> Result<Json<WorkerList>, Problem> {
    let silent_ms = app.config.extend_every_ms.saturating_mul(5);
    let workers = app.ask("list workers", app.registry.workers()).await?;
    let now_ms = now_ms();
    Ok(Json(WorkerList { workers: workers.into_iter().map(|worker| view(worker, now_ms, silent_ms)).collect() }))
}

fn view(worker: WorkerRecord, now_ms: u64, silent_ms: u64) -> WorkerView {
    let state = if now_ms.saturating_sub(worker.seen_ms) > silent_ms {
        WorkerState::Lost
    } else if worker.status.draining {
        WorkerState::Draining
    } else {
        WorkerState::Ready
    };
    let gpu = |gpu: Gpu| {
        let reading = worker.status.gpus.iter().find(|reading| reading.index == gpu.index);
        GpuView {
            index: gpu.index,
            uuid: gpu.uuid,
            name: gpu.name,
            vram_mib: gpu.vram_mib,
            vram_used_mib: reading.map(|reading| reading.vram_used_mib),
            temperature_c: reading.and_then(|reading| reading.temperature_c),
            utilisation_pct: reading.and_then(|reading| reading.utilisation_pct),
            power_w: reading.and_then(|reading| reading.power_w),
        }
    };
    WorkerView {
        id: worker.worker_id,
        name: worker.name,
        release: worker.release,
        state,
        joined_at: rfc3339(worker.joined_ms),
        seen_at: rfc3339(worker.seen_ms),
        slots: worker.slots,
        running: worker.status.running,
        gpus: worker.gpus.into_iter().map(gpu).collect(),
        loaded: worker.status.loaded,
    }
}
