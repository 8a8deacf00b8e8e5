use axum::Json as JsonAnswer;
use axum::extract::State;
use stokehold_queue::gateway::{ExtendAnswer, ExtendReply, ExtendRequest, LeaseRef, STARTING_MAX, WorkerStatus};
use stokehold_queue::queue::LEASES_MAX;
use stokehold_queue::{Queue, WorkerRecord, now_ms};

use super::advice::Advice;
use super::join::{mint, ttl_ms};
use super::{needs, own};
use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::{Code, Problem};
use crate::metrics;
use crate::server::json::Json;
use crate::state::App;
use crate::tenants::auth::JoinedWorker;
use crate::workers::gateway::own::Ownership;

/// Longest time of an attempt apart from its handler's run, milliseconds: its environment and weights, the model, its
/// turn, its result. No lease is extended beyond this time plus the limit of the run.
const BESIDE_RUN_MS: u64 = 2 * 3_600_000;

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
            format!("must list at most {LOADED_MAX} endpoints, {GPUS_MAX} GPUs and {LEARNED_MAX} learned values"),
        ));
    }
    if request.cards.len() > GPUS_MAX {
        return Err(Problem::field("/cards", format!("must be at most {GPUS_MAX}")));
    }
    let told = async {
        let known = app.fleets.worker(&worker.worker_id).await?.ok_or_else(unknown)?;
        let mut status = request.status.clone();
        status.starting.truncate(STARTING_MAX);
        // The worker itself need not set it, because it gets no jobs. The readers of its status see that it drains.
        status.draining |= app.fleets.drains().await?.contains_key(&known.name);
        let advised = async { Ok(app.advisor.advise(&known, &request.cards, &status).await) };
        let (advice, ()) = tokio::try_join!(advised, seen(&app.db, &app.catalog, &known, status.clone()))?;
        Ok::<_, Problem>(advice)
    };
    let (leases, advice, token) = tokio::try_join!(
        extended(&app.db, &app.ownership, &worker.worker_id, &request.leases),
        told,
        renewed(&app, &worker)
    )?;
    metrics::lost(leases.iter().filter(|answer| **answer == ExtendAnswer::Lost).count());
    let Advice { hold, keep, next } = advice;
    let forgotten = app.fleets.forgotten().await.inspect_err(|error| {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "a heartbeat is answered without resets of learned memory"
        );
    });
    let forgotten = forgotten.map(|forgotten| forgotten.to_vec()).unwrap_or_default();
    Ok(JsonAnswer(ExtendReply { leases, token, hold, keep, next, forgotten }))
}

/// Extends the worker's own leases, except those that it has held for longer than any attempt takes: it cannot be
/// running them.
async fn extended(
    db: &Database,
    ownership: &Ownership,
    worker_id: &str,
    leases: &[LeaseRef],
) -> Result<Vec<ExtendAnswer>, Problem> {
    let holdings = ownership.holdings(leases).await?;
    let mut may = Vec::with_capacity(leases.len());
    for (lease, holding) in leases.iter().zip(&holdings) {
        let is_over = match holding {
            Some(holding) if holding.held_ms > BESIDE_RUN_MS => is_over(db, lease, holding.held_ms).await?,
            _ => false,
        };
        if is_over {
            tracing::warn!(worker.id = worker_id, job.id = %lease.job_id, "a lease is older than its attempt may take; requeueing the job");
        }
        may.push(!is_over && !own::is_anothers(holding.as_ref(), worker_id));
    }
    let own: Vec<LeaseRef> = leases.iter().zip(&may).filter(|(_, may)| **may).map(|(lease, _)| lease.clone()).collect();
    let mut answers = db.ask_again("extend", || db.queue.extend(&own)).await?.into_iter();
    Ok(may.into_iter().map(|may| may.then(|| answers.next()).flatten().unwrap_or(ExtendAnswer::Lost)).collect())
}

/// Returns whether an attempt has used the time limit of its handler and the longest time for everything else.
async fn is_over(db: &Database, lease: &LeaseRef, held_ms: u64) -> Result<bool, Problem> {
    let held = db.ask("check a lease", db.queue.held(lease)).await?;
    Ok(held.is_some_and(|(spec, _)| held_ms > spec.timeout_ms.saturating_add(BESIDE_RUN_MS)))
}

/// Records that the worker is alive, and its status.
async fn seen(db: &Database, catalog: &Catalog, known: &WorkerRecord, mut status: WorkerStatus) -> Result<(), Problem> {
    needs::learned(db, catalog, known, std::mem::take(&mut status.learned)).await?;
    let record = WorkerRecord { seen_ms: now_ms(), status, ..known.clone() };
    db.ask_again("store a worker", || db.registry.put_worker(&record, ttl_ms())).await?;
    Ok(())
}

pub(super) fn unknown() -> Problem {
    Problem::new(Code::Unauthorized, "this worker is no longer registered; join again")
}

/// Issues a new token once half of the old one's lifetime has passed, except for the worker of an instance that should
/// stop.
async fn renewed(app: &App, worker: &JoinedWorker) -> Result<Option<String>, Problem> {
    if now_ms().saturating_sub(worker.token.created_ms) < ttl_ms() / 2
        || !app.instances.is_wanted(&worker.token).await?
    {
        return Ok(None);
    }
    let token = mint(&app.db, &app.config, &worker.token, &worker.worker_id).await?;
    Ok(Some(token.expose().to_owned()))
}
