//! `GET /v1/workers/{id}/readings`: measurements of a worker in the last hour.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stokehold_queue::gateway::GpuReading;
use stokehold_queue::now_ms;
use stokehold_queue::readings::WorkerReading;
use utoipa::ToSchema;

use crate::database::Database;
use crate::error::Problem;
use crate::server::path::Path;
use crate::tenants::auth::{Caller, WorkersRead};
use crate::time_format::rfc3339;

/// A worker's readings of the last hour, oldest first: one per half minute.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReadingList {
    readings: Vec<ReadingView>,
}

/// A reading of a worker.
#[derive(Serialize, ToSchema)]
#[schema(as = Reading)]
pub(crate) struct ReadingView {
    /// RFC 3339.
    at: String,
    /// Attempts that were running.
    running: u32,
    gpus: Vec<GpuReadingView>,
    memory_free_bytes: u64,
    disk_free_bytes: u64,
    /// Bytes since the machine started, over all interfaces except loopback.
    received_bytes: u64,
    sent_bytes: u64,
}

/// A reading of a GPU; null is what it does not report.
#[derive(Serialize, ToSchema)]
#[schema(as = GpuReading)]
pub(crate) struct GpuReadingView {
    index: u32,
    vram_used_mib: Option<u64>,
    /// Reserved by models.
    vram_held_mib: u64,
    temperature_c: Option<u32>,
    utilisation_pct: Option<u32>,
    power_w: Option<u32>,
}

/// Get the readings of a worker
#[utoipa::path(get, operation_id = "list_worker_readings", path = "/v1/workers/{id}/readings", tag = "workers",
    params(("id" = String, Path, description = "The worker's id.")),
    responses((status = 200, description = "The readings of the last hour, as far as this replica has them.", body = ReadingList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    _: Caller<WorkersRead>,
    Path(id): Path<String>,
) -> Result<Json<ReadingList>, Problem> {
    let readings = db.ask("read a worker's readings", db.registry.readings(&id, now_ms())).await?;
    if readings.is_empty() {
        return Err(Problem::not_found("worker"));
    }
    Ok(Json(ReadingList { readings: readings.into_iter().map(ReadingView::from).collect() }))
}

impl From<WorkerReading> for ReadingView {
    fn from(reading: WorkerReading) -> Self {
        let gpu = |gpu: GpuReading| GpuReadingView {
            index: gpu.index,
            vram_used_mib: gpu.vram_used_mib,
            vram_held_mib: gpu.vram_held_mib,
            temperature_c: gpu.temperature_c,
            utilisation_pct: gpu.utilisation_pct,
            power_w: gpu.power_w,
        };
        Self {
            at: rfc3339(reading.at_ms),
            running: reading.running,
            gpus: reading.gpus.into_iter().map(gpu).collect(),
            memory_free_bytes: reading.host.memory_free_bytes,
            disk_free_bytes: reading.host.disk_free_bytes,
            received_bytes: reading.host.received_bytes,
            sent_bytes: reading.host.sent_bytes,
        }
    }
}
