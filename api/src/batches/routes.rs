//! `/v1/batches`: many inputs in one call.

pub(crate) mod create;
pub(crate) mod estimate;
pub(crate) mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::TryStreamExt;
use serde::Serialize;
use stokehold_queue::batches::{Batch, BatchSpec, BatchState, Created, NewBatch, Source, StopReason, Stopped};
use stokehold_queue::job::Idempotency;
use stokehold_queue::now_ms;
use tokio::time::{Instant, sleep_until};
use utoipa::ToSchema;

pub(crate) use create::{__path_create, create};
pub(crate) use estimate::{__path_estimate, estimate};

use self::view::BatchView;
use crate::batches::results::{Kind, stream};
use crate::config::Config;
use crate::database;
use crate::database::Database;
use crate::error::{Code, Problem, ProblemBody};
use crate::jobs::submit::idempotency_key;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsCancel, JobsRead, JobsSubmit, check_still};

/// Interval at which a waiting request checks its batch. A batch takes minutes, so half a second does not matter.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// One page of batches, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchList {
    batches: Vec<BatchView>,
    /// The cursor of the next page; null at the end. A page may be short or even empty and still have a next one.
    next_cursor: Option<String>,
}

/// Get a batch
#[utoipa::path(get, operation_id = "get_batch", path = "/v1/batches/{id}", tag = "batches",
    params(
        ("id" = String, Path, description = "The batch's id."),
        ("wait_s" = Option<u64>, Query, description = "Wait up to this many seconds (0 to 60) for the batch to end before answering."),
    ),
    responses((status = 200, description = "The batch.", body = BatchView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller<JobsRead>,
    Path(id): Path<String>,
    mut params: Params,
) -> Result<Response, Problem> {
    let wait_s = params.wait_s()?;
    params.finish()?;
    let mut batch = own(&app.db, &caller.tenant, &id).await?;
    if wait_s > 0 && !batch.state.is_terminal() {
        let _held = app.wait_permits.take(&caller.tenant)?;
        caller.turn.end();
        let deadline = Instant::now() + Duration::from_secs(wait_s);
        while !batch.state.is_terminal() && Instant::now() < deadline && !app.shutdown.is_cancelled() {
            sleep_until(deadline.min(Instant::now() + LOOK_EVERY.mul_f64(0.8 + 0.4 * rand::random::<f64>()))).await;
            batch = own(&app.db, &caller.tenant, &id).await?;
        }
        check_still(&app, &caller.token).await?;
    }
    Ok(Json(shown(&app.config, &batch)).into_response())
}

/// List batches
#[utoipa::path(get, operation_id = "list_batches", path = "/v1/batches", tag = "batches",
    params(
        ("state" = Option<view::BatchStateWord>, Query, description = "Return only batches in this state."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "1 to 100; default 20."),
    ),
    responses((status = 200, description = "One page.", body = BatchList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller<JobsRead>,
    mut params: Params,
) -> Result<Json<BatchList>, Problem> {
    let states = BatchState::ALL.map(BatchState::as_str).join(", ");
    let state = params.take("state", &format!("one of {states}"), BatchState::from_word)?;
    let cursor =
        params.take("cursor", "the next_cursor of a page", |text| is_batch_id(text).then(|| text.to_owned()))?;
    let limit = params.limit()?;
    params.finish()?;
    page(&app, &caller.tenant, state, cursor.as_deref(), limit).await.map(Json)
}

/// One page of a tenant's batches.
pub(crate) async fn page(
    app: &App,
    tenant: &str,
    state: Option<BatchState>,
    cursor: Option<&str>,
    limit: u32,
) -> Result<BatchList, Problem> {
    let batches = app.db.home(tenant).await?.batches();
    let page = app.db.ask("list batches", batches.list(tenant, state, cursor, limit)).await?;
    let batches = page.batches.iter().map(|batch| shown(&app.config, batch)).collect();
    Ok(BatchList { batches, next_cursor: page.next_cursor })
}

/// Cancel a batch
///
/// Lines that have not started never start. Results that exist by then stay. Cancelling twice is safe.
#[utoipa::path(post, operation_id = "cancel_batch", path = "/v1/batches/{id}/cancel", tag = "batches",
    params(("id" = String, Path, description = "The batch's id.")),
    responses(
        (status = 200, description = "The batch. Its state becomes `cancelled` once its running jobs have stopped.", body = BatchView),
        (status = 409, description = "`already_ended`: the batch has already ended in another state.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn cancel(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    caller: Caller<JobsCancel>,
    Path(id): Path<String>,
) -> Result<Json<BatchView>, Problem> {
    let batch = stop(&db, &caller.tenant, &id).await?;
    Ok(Json(shown(&config, &batch)))
}

/// Cancels a batch of a tenant, and returns it.
pub(crate) async fn stop(db: &Database, tenant: &str, id: &str) -> Result<Batch, Problem> {
    let id = parse_id(id)?;
    let batches = db.home(tenant).await?.batches();
    let stopped = db.ask_again("cancel a batch", || batches.stop(tenant, id, StopReason::Cancelled)).await?;
    if stopped == Stopped::NotFound {
        return Err(Problem::not_found("batch"));
    }
    let batch = own(db, tenant, id).await?;
    if stopped == Stopped::Ended && batch.stop != Some(StopReason::Cancelled) {
        let state = batch.state.as_str();
        return Err(Problem::new(
            Code::AlreadyEnded,
            format!("every line of the batch has ended: the batch is {state}"),
        ));
    }
    Ok(batch)
}

/// Retry the failed lines of a batch
///
/// The lines that failed or expired become a new batch. They keep their `custom_id`; line numbers are those of the new
/// batch.
#[utoipa::path(post, operation_id = "retry_batch", path = "/v1/batches/{id}/retry-failed", tag = "batches",
    params(
        ("id" = String, Path, description = "The batch's id."),
        ("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key within 24 hours returns the same batch."),
    ),
    responses(
        (status = 202, description = "The new batch.", body = BatchView),
        (status = 200, description = "The batch that was created earlier with this idempotency key.", body = BatchView),
        (status = 409, description = "`not_ready`: the batch has not ended. `nothing_to_retry`: no line failed or expired.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn retry_failed(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers, None)?;
    let old = own(&app.db, &caller.tenant, &id).await?;
    if !old.state.is_terminal() {
        return Err(Problem::new(
            Code::NotReady,
            format!(
                "the batch is {}; wait for it to end with GET /v1/batches/{}?wait_s=60",
                old.state.as_str(),
                old.id
            ),
        ));
    }
    if old.failed + old.expired == 0 {
        return Err(Problem::new(Code::NothingToRetry, "no line of the batch failed or expired"));
    }
    let created_ms = now_ms();
    let spec = BatchSpec {
        created_ms,
        source: Source::Retry { batch: old.id.clone() },
        // The same time span as for the first batch.
        deadline_ms: old.spec.deadline_ms.map(|ms| created_ms + ms.saturating_sub(old.spec.created_ms)),
        retry_of: Some(old.id.clone()),
        ..old.spec.clone()
    };
    let idempotency = key.map(|key| Idempotency::new(key, format!("retry {}", old.id)));
    let id = create::new_id();
    made(&app, NewBatch { id, spec, input: None, idempotency, idempotency_ttl_ms: None }).await
}

/// Get a batch's results
///
/// Returns the lines that have succeeded so far, each once, in no particular order. Available at any time.
#[utoipa::path(get, operation_id = "get_batch_results", path = "/v1/batches/{id}/results", tag = "batches",
    params(("id" = String, Path, description = "The batch's id.")),
    responses(
        (status = 200, description = "One line each: `{\"line\", \"custom_id\", \"job_id\", \"result\" or \"result_url\", \"run_ms\"}`.", content_type = "application/jsonl", body = String),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn results(
    State(app): State<App>,
    caller: Caller<JobsRead>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    streamed(app, &caller.tenant, &id, Kind::Output).await
}

/// Get a batch's errors
///
/// Returns the lines that have ended without success so far, each once, in no particular order. Available at any time.
/// Lines that were cancelled before they started appear once the batch has ended.
#[utoipa::path(get, operation_id = "get_batch_errors", path = "/v1/batches/{id}/errors", tag = "batches",
    params(("id" = String, Path, description = "The batch's id.")),
    responses(
        (status = 200, description = "One line each: `{\"line\", \"custom_id\", \"job_id\", \"state\", \"error\", \"run_ms\"}`.", content_type = "application/jsonl", body = String),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn errors(
    State(app): State<App>,
    caller: Caller<JobsRead>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    streamed(app, &caller.tenant, &id, Kind::Errors).await
}

async fn streamed(app: App, tenant: &str, id: &str, kind: Kind) -> Result<Response, Problem> {
    let batch = own(&app.db, tenant, id).await?;
    let held = app.wait_permits.take(tenant)?;
    let lines = stream(app, batch, kind).inspect_err(move |error| {
        let _ = &held;
        tracing::warn!(error = error as &dyn std::error::Error, "streaming a batch's lines failed");
    });
    Ok(([(CONTENT_TYPE, "application/jsonl")], Body::from_stream(lines)).into_response())
}

/// Creates the batch and responds with its view.
async fn made(app: &App, new: NewBatch) -> Result<Response, Problem> {
    let (is_new, batch) = store(app, new).await?;
    let status = if is_new { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(crate::jobs::submit::durable(app.durability, (status, Json(shown(&app.config, &batch))).into_response()))
}

/// Stores a batch, and returns it and whether it is new: the idempotency key may have one already.
pub(crate) async fn store(app: &App, new: NewBatch) -> Result<(bool, Batch), Problem> {
    let home = app.db.home(&new.spec.tenant).await?;
    home.admits()?;
    let batches = home.batches();
    let created = app.db.ask_again("create a batch", || batches.create(&new)).await?;
    let (is_new, id) = match &created {
        Created::New => (true, &new.id),
        Created::Repeat(id) => (false, id),
    };
    let batch = app.db.ask_again("read a batch", || batches.get(id)).await?;
    let batch =
        batch.ok_or_else(|| Problem::new(Code::NotFound, "this key's batch is no longer stored; use a new key"))?;
    Ok((is_new, batch))
}

/// Returns the caller's own batch with this ID. For all other tenants it does not exist.
pub(crate) async fn own(db: &Database, tenant: &str, id: &str) -> Result<Batch, Problem> {
    let id = parse_id(id)?;
    let batch = db.ask("read a batch", db.home(tenant).await?.batches().get(id)).await?;
    batch.filter(|batch| batch.spec.tenant == tenant).ok_or_else(|| Problem::not_found("batch"))
}

/// The batch in the form of its webhook; `None` if it is no longer stored.
pub(crate) async fn told(
    db: &Database,
    config: &Config,
    tenant: &str,
    id: &str,
) -> Result<Option<BatchView>, database::Error> {
    let batch = db.ask("read a batch", db.home(tenant).await?.batches().get(id)).await?;
    Ok(batch.filter(|batch| batch.spec.tenant == tenant).map(|batch| shown(config, &batch)))
}

fn shown(config: &Config, batch: &Batch) -> BatchView {
    BatchView::new(batch, &config.public_url, now_ms())
}

fn parse_id(id: &str) -> Result<&str, Problem> {
    if is_batch_id(id) { Ok(id) } else { Err(Problem::not_found("batch")) }
}

pub(crate) fn is_batch_id(text: &str) -> bool {
    text.strip_prefix("batch_")
        .is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}
