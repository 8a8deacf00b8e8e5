use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use stokehold_queue::gateway::{CardReach, ExtendReply, ExtendRequest, GpuHealth, HoldCard, WorkerStatus};
use stokehold_queue::reach::parts_of;
use stokehold_queue::vram::class_of_card_gib;
use stokehold_queue::{Queue, WorkerRecord, now_ms};

use super::join::{mint, ttl_ms};
use super::needs;
use crate::auth::JoinedWorker;
use crate::error::{Code, Problem};
use crate::fleet;
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
    if request.cards.len() > GPUS_MAX {
        return Err(Problem::field("/cards", format!("must be at most {GPUS_MAX}")));
    }
    let (leases, hold, (), token) = tokio::try_join!(
        app.ask_again("extend", || app.queue.extend(&request.leases)),
        hold(&app, &worker.worker_id, &request.cards, &request.status),
        seen(&app, &worker.worker_id, request.status.clone()),
        renewed(&app, &worker),
    )?;
    Ok(JsonAnswer(ExtendReply { leases, token, hold }))
}

/// What a worker whose cards are taken should make room for, if anything has waited too long for it.
async fn hold(
    app: &App,
    worker_id: &str,
    cards: &[CardReach],
    status: &WorkerStatus,
) -> Result<Option<HoldCard>, Problem> {
    let Some(worker) = known(app, worker_id).await?.filter(|_| !cards.is_empty() && !status.draining) else {
        return Ok(None);
    };
    let is_well = |index| status.gpus.iter().any(|gpu| gpu.index == index && gpu.health == GpuHealth::Well);
    let well = || worker.gpus.iter().filter(|gpu| is_well(gpu.index));
    let empty: Vec<CardReach> =
        well().map(|gpu| CardReach { index: gpu.index, reach_gib: class_of_card_gib(gpu.vram_mib) }).collect();
    let demands = app.demands().await?;
    let reach = |cards: &[CardReach]| {
        fleet::reach(&demands, &worker, cards.iter().map(|card| card.reach_gib).max().unwrap_or(0), cards)
    };
    let (now, could) = (reach(cards), reach(&empty));
    if now == could {
        return Ok(None);
    }
    // A heartbeat that is otherwise answered must not fail for this; the next one asks again.
    let asked = app.ask("look for what waits for a card", app.queue.hold(worker_id, &now, &could)).await;
    Ok(asked.ok().flatten().and_then(|class| {
        let (number, gib) = parts_of(class);
        let demands = demands.get(&number)?;
        let able = well().filter(|gpu| demands.is_met_by(gpu) && class_of_card_gib(gpu.vram_mib) >= gib);
        Some(HoldCard { class, gib, cards: able.map(|gpu| gpu.index).collect() })
    }))
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
