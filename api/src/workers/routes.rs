//! `/v1/workers`: the connected workers, and the evicted ones.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stokehold_queue::gateway::{Gpu, GpuHealth, HostStatus, ModelOnGpu, ModelState, ModelStatus};
use stokehold_queue::requirements::Trust;
use stokehold_queue::{WorkerRecord, now_ms};
use utoipa::ToSchema;

use crate::config::Config;
use crate::database::Database;
use crate::endpoints::requirements::{SandboxWord, TrustWord};
use crate::error::Problem;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::tenants::auth::{Caller, WorkersJoin, WorkersRead};
use crate::time_format::rfc3339;
use crate::workers::evicted::Evictions;
use crate::workers::fleet::Fleets;
use crate::workers::fleet::is_lost;

/// The workers that sent a heartbeat in the last 15 minutes, by name.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkerList {
    workers: Vec<WorkerView>,
}

/// A worker.
#[derive(Serialize, ToSchema)]
#[schema(as = Worker)]
pub(crate) struct WorkerView {
    /// Its id.
    id: String,
    /// The name that its operator gave it.
    name: String,
    /// Its release.
    release: String,
    /// Whether it takes jobs.
    state: WorkerState,
    /// When it joined, RFC 3339.
    joined_at: String,
    /// When it last called the gateway, RFC 3339.
    seen_at: String,
    /// Attempts that it runs concurrently.
    slots: u32,
    /// Attempts that it is running now.
    running: u32,
    /// Loaded endpoint versions, as `name@version`.
    loaded: Vec<String>,
    /// The GPU driver's version.
    driver: Option<String>,
    /// The newest CUDA version that the driver supports, e.g. `12.8`.
    cuda: Option<String>,
    /// The sandbox level that the worker reports: `L0` none, `L1` system calls and files, `L2` also namespaces.
    #[schema(value_type = Option<SandboxWord>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
    /// The owner of the machine, as set on its join token.
    #[schema(value_type = TrustWord)]
    trust: Trust,
    /// The region, as set on its join token; empty if the token sets none.
    region: String,
    /// Its GPUs; none on a CPU worker.
    gpus: Vec<GpuView>,
    /// Its models, by name.
    models: Vec<ModelView>,
    host: HostView,
}

/// A model on a worker.
#[derive(Serialize, ToSchema)]
#[schema(as = Model)]
pub(crate) struct ModelView {
    tenant: String,
    /// `name@version`.
    name: String,
    state: ModelStateView,
    /// The GPUs that it uses; none on the CPU.
    cards: Vec<ModelOnGpuView>,
    /// When a run of it last succeeded, RFC 3339.
    succeeded_at: Option<String>,
    /// The mean of its last runs, at most a hundred.
    mean_ms: Option<u64>,
    /// The 95th percentile of its last runs, at most a hundred.
    p95_ms: Option<u64>,
}

/// The memory of a model on a GPU.
#[derive(Serialize, ToSchema)]
#[schema(as = ModelOnGpu)]
pub(crate) struct ModelOnGpuView {
    /// The GPU's index.
    index: u32,
    /// The memory reserved for the model.
    held_mib: u64,
    /// The memory that its processes use; null if that cannot be measured.
    seen_mib: Option<u64>,
}

impl From<ModelOnGpu> for ModelOnGpuView {
    fn from(on: ModelOnGpu) -> Self {
        Self { index: on.index, held_mib: on.held_mib, seen_mib: on.seen_mib }
    }
}

/// The state of a model on a worker.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ModelState)]
pub(crate) enum ModelStateView {
    /// Its environment is built, its runner started, or it warms up.
    Loading,
    /// Loaded without jobs.
    Idle,
    /// Jobs run on it, or are about to.
    Busy,
}

/// A worker's machine; zeros before the first reading.
#[derive(Serialize, ToSchema)]
#[schema(as = Host)]
pub(crate) struct HostView {
    disk_free_bytes: u64,
    disk_total_bytes: u64,
    /// Bytes of cached environments.
    environments_bytes: u64,
    /// Bytes of cached weights.
    weights_bytes: u64,
    memory_free_bytes: u64,
    memory_total_bytes: u64,
    /// Bytes since the machine started, over all interfaces except loopback.
    received_bytes: u64,
    sent_bytes: u64,
}

impl From<ModelStatus> for ModelView {
    fn from(model: ModelStatus) -> Self {
        Self {
            tenant: model.tenant,
            name: model.name,
            state: match model.state {
                ModelState::Loading => ModelStateView::Loading,
                ModelState::Idle => ModelStateView::Idle,
                ModelState::Busy => ModelStateView::Busy,
            },
            cards: model.cards.into_iter().map(ModelOnGpuView::from).collect(),
            succeeded_at: model.succeeded_ms.map(rfc3339),
            mean_ms: model.mean_ms,
            p95_ms: model.p95_ms,
        }
    }
}

impl From<HostStatus> for HostView {
    fn from(host: HostStatus) -> Self {
        let HostStatus {
            disk_free_bytes,
            disk_total_bytes,
            environments_bytes,
            weights_bytes,
            memory_free_bytes,
            memory_total_bytes,
            received_bytes,
            sent_bytes,
        } = host;
        Self {
            disk_free_bytes,
            disk_total_bytes,
            environments_bytes,
            weights_bytes,
            memory_free_bytes,
            memory_total_bytes,
            received_bytes,
            sent_bytes,
        }
    }
}

/// The state of a worker.
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

/// A GPU.
#[derive(Serialize, ToSchema)]
#[schema(as = Gpu)]
pub(crate) struct GpuView {
    index: u32,
    uuid: String,
    name: String,
    /// E.g. `8.9`.
    compute_capability: Option<String>,
    /// The total memory.
    vram_mib: u64,
    /// Memory in use by any process.
    vram_used_mib: Option<u64>,
    /// Memory reserved for models.
    vram_held_mib: Option<u64>,
    /// Memory that a model could still reserve.
    vram_free_mib: Option<u64>,
    /// Memory in use by processes that do not belong to the worker.
    vram_foreign_mib: Option<u64>,
    temperature_c: Option<u32>,
    utilisation_pct: Option<u32>,
    power_w: Option<u32>,
    /// Uncorrected ECC errors since the driver was loaded.
    ecc_uncorrected: Option<u64>,
    health: GpuHealthView,
    /// Why the GPU takes no work.
    why: Option<String>,
}

/// Whether a GPU takes work.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = GpuHealth)]
pub(crate) enum GpuHealthView {
    /// It does.
    Healthy,
    /// Not until it is cooler.
    Hot,
    /// It has failed, and does not until its worker starts again.
    Faulty,
}

impl From<GpuHealth> for GpuHealthView {
    fn from(health: GpuHealth) -> Self {
        match health {
            GpuHealth::Healthy => Self::Healthy,
            GpuHealth::Hot => Self::Hot,
            GpuHealth::Faulty => Self::Faulty,
        }
    }
}

/// List workers
///
/// Workers serve every tenant, so this requires the operator scope `workers:read`.
#[utoipa::path(get, operation_id = "list_workers", path = "/v1/workers", tag = "workers",
    responses((status = 200, description = "The workers that sent a heartbeat recently.", body = WorkerList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    State(fleets): State<Arc<Fleets>>,
    _: Caller<WorkersRead>,
) -> Result<JsonAnswer<WorkerList>, Problem> {
    let (mut workers, drains) = tokio::try_join!(db.ask("list workers", db.registry.workers()), fleets.drains())?;
    for worker in &mut workers {
        worker.status.draining |= drains.contains_key(&worker.name);
    }
    let now_ms = now_ms();
    Ok(JsonAnswer(WorkerList {
        workers: workers.into_iter().map(|worker| view(worker, now_ms, config.extend_every_ms)).collect(),
    }))
}

/// How to evict a worker.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Eviction {
    /// Also revoke the token that it joined with, so that no other worker can join with it. Workers that already joined
    /// with it stay.
    #[serde(default)]
    revoke_join_token: bool,
}

/// An evicted worker.
#[derive(Serialize, ToSchema)]
pub(crate) struct Evicted {
    id: String,
    /// The name that its operator gave it.
    name: String,
    /// The number of its jobs that were requeued.
    requeued: u32,
    /// The id of the token that it joined with; null if it is not known.
    join_token: Option<String>,
    /// Whether that token was revoked.
    join_token_revoked: bool,
}

/// Evict a worker
///
/// Every replica refuses its token within five seconds. Its jobs are requeued, which does not count towards their
/// `max_attempts`, its reports about them are refused, and it cannot join again under its name with the token that it
/// joined with; a rented instance cannot join again at all. To keep out a host that may give a false name, also revoke
/// that token.
#[utoipa::path(post, operation_id = "evict_worker", path = "/v1/workers/{id}/evict", tag = "workers",
    params(("id" = String, Path, description = "The worker's id.")), request_body = Eviction,
    responses((status = 200, description = "The worker was evicted.", body = Evicted), crate::server::responses::Problems))]
pub(crate) async fn evict(
    State(db): State<Arc<Database>>,
    State(evictions): State<Arc<Evictions>>,
    _: Caller<WorkersJoin>,
    Path(id): Path<String>,
    Json(Eviction { revoke_join_token }): Json<Eviction>,
) -> Result<JsonAnswer<Evicted>, Problem> {
    let worker = db.ask("read a worker", db.registry.worker(&id)).await?;
    let worker = worker.ok_or_else(|| Problem::not_found("worker"))?;
    let join_token = worker.joined_with.clone();
    let mut join_token_revoked = false;
    if let Some(token_id) = join_token.as_ref().filter(|_| revoke_join_token) {
        join_token_revoked = db.ask_again("revoke a token", || db.registry.delete_token(token_id)).await?;
    }
    let requeued = evictions.evict(&worker).await?;
    Ok(JsonAnswer(Evicted { id, name: worker.name, requeued, join_token, join_token_revoked }))
}

fn view(worker: WorkerRecord, now_ms: u64, extend_every_ms: u64) -> WorkerView {
    let state = if is_lost(&worker, now_ms, extend_every_ms) {
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
            compute_capability: gpu.compute_capability,
            vram_mib: gpu.vram_mib,
            vram_used_mib: reading.and_then(|reading| reading.vram_used_mib),
            vram_held_mib: reading.map(|reading| reading.vram_held_mib),
            vram_free_mib: reading.map(|reading| reading.vram_free_mib),
            vram_foreign_mib: reading.map(|reading| reading.vram_foreign_mib),
            temperature_c: reading.and_then(|reading| reading.temperature_c),
            utilisation_pct: reading.and_then(|reading| reading.utilisation_pct),
            power_w: reading.and_then(|reading| reading.power_w),
            ecc_uncorrected: reading.and_then(|reading| reading.ecc_uncorrected),
            health: reading.map(|reading| reading.health).unwrap_or_default().into(),
            why: reading.and_then(|reading| reading.why.clone()),
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
        driver: worker.driver,
        cuda: worker.cuda,
        sandbox: worker.sandbox.map(|level| level.to_string()),
        trust: worker.trust,
        region: worker.region,
        gpus: worker.gpus.into_iter().map(gpu).collect(),
        loaded: worker.status.loaded,
        models: worker.status.models.into_iter().map(Into::into).collect(),
        host: worker.status.host.into(),
    }
}
