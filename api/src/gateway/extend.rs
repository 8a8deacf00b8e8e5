use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use stokehold_queue::gateway::{ExtendReply, ExtendRequest, WorkerStatus};
use stokehold_queue::{Queue, WorkerRecord, now_ms};

use super::join::{mint, ttl_ms};
use super::needs;
use crate::auth::JoinedWorker;
use crate::error::{Code, Problem};
use crate::json::Json;
use crate::state::App;

const LEASES_MAX: usize = 1_000;
const LOADED_MAX: usize = 1_000;
const GPUS_MAX: usize = 64;
const LEARNED_MAX: usize = 100;

/// `extend`: the heartbeat.
pub(super) async fn extend(
    State(app): State<App>,
    worker: JoinedWorker,
    Json(request): Json<ExtendRequest>,
) -> Result<JsonAnswer<ExtendReply>, Problem> {
    if request.leases.len() > LEASES_MAX {
        return Err(Problem::field("/leases", format!("must be at most {LEASES_MAX}")));
    }
    let WorkerStatus { loaded, models, gpus, learned, .. } = &request.status;
    if loaded.len().max(models.len()) > LOADED_MAX || gpus.len() > GPUS_MAX || learned.len() > LEARNED_MAX {
        return Err(Problem::field(
            "/status",
            format!("must name at most {LOADED_MAX} endpoints, {GPUS_MAX} cards and {LEARNED_MAX} needs"),
        ));
    }
    let (leases, (), token) = tokio::try_join!(
        app.ask_again("extend", || app.queue.extend(&request.leases)),
        seen(&app, &worker.worker_id, request.status),
        renewed(&app, &worker),
    )?;
    Ok(JsonAnswer(ExtendReply { leases, token }))
}

/// Notes that the worker is alive, and how it is.
async fn seen(app: &App, worker_id: &str, mut status: WorkerStatus) -> Result<(), Problem> {
    let known = known(app, worker_id)
        .await?
        .ok_or_else(|| Problem::new(Code::Unauthorized, "this worker is not known any more; join again"))?;
    needs::learned(app, &known, std::mem::take(&mut status.learned)).await?;
    let record = WorkerRecord { seen_ms: now_ms(), status, ..WorkerRecord::clone(&known) };
    app.ask_again("store a worker", || app.registry.put_worker(&record, ttl_ms())).await?;
    Ok(())
}

/// What this worker said of itself when it joined.
pub(super) async fn known(app: &App, worker_id: &str) -> Result<Option<Arc<WorkerRecord>>, Problem> {
    if let Some(known) = app.workers.get(worker_id) {
        return Ok(Some(known));
    }
    let known = app.ask("read a worker", app.registry.worker(worker_id)).await?.map(Arc::new);
    if let Some(known) = &known {
        app.workers.insert(worker_id.to_owned(), known.clone());
    }
    Ok(known)
}

/// A fresh token when the old one has lived half its life.
async fn renewed(app: &App, worker: &JoinedWorker) -> Result<Option<String>, Problem> {
    if now_ms().saturating_sub(worker.token.created_ms) < ttl_ms() / 2 {
        return Ok(None);
    }
    let token = mint(app, &worker.token.tenant, &worker.worker_id).await?;
    Ok(Some(token.expose().to_owned()))
}
