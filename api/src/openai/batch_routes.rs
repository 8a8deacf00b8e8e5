//! `/openai/v1/batches`: create, get, list and cancel. Native batches run the lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use stokehold_queue::batches::{
    Batch, BatchBudget, BatchSpec, BatchState, LineFormat, NewBatch, OnInvalid, OpenAiBatch, Source,
};
use stokehold_queue::budgets::AtBudget;
use stokehold_queue::job::{Idempotency, Priority};
use stokehold_queue::now_ms;

use super::batch_view::BatchView;
use super::error::Error;
use super::file_routes::own as own_file;
use super::files::BATCH;
use super::route::Call;
use super::upload_routes::keep_s;
use crate::batches::routes::create::{DEADLINE_MAX_S, new_id};
use crate::batches::routes::{is_batch_id, own, stop, store};
use crate::database::Database;
use crate::error::{Code, Problem};
use crate::jobs::inputs::file_key;
use crate::jobs::submit::{check_metadata, durable, idempotency_key};
use crate::server::json::Json;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsCancel, JobsRead, JobsSubmit};
use crate::tenants::limits::BUDGET_MAX;

/// Time within which an equal request returns the same batch, milliseconds. The official clients repeat a request whose
/// answer was lost, and send no idempotency key.
const REPEAT_MS: u64 = 10 * 60 * 1000;

/// Batches without a result that one request may skip to create another equal one.
const SKIPPED_MAX: usize = 20;

/// Shortest completion window, seconds.
const WINDOW_MIN_S: u64 = 60;

/// Batches that are read at a time for a list, and the number of reads: native batches are left out.
const LIST_STEP: u32 = 100;
const LIST_READS_MAX: usize = 10;

/// The member of a batch's metadata with its budget, for clients that cannot send other members.
const BUDGET: &str = "budget_usd";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchRequest {
    input_file_id: String,
    endpoint: String,
    completion_window: String,
    metadata: Option<BTreeMap<String, String>>,
    output_expires_after: Option<ExpiresAfter>,
    budget_usd: Option<Value>,
    at_budget: Option<AtBudget>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpiresAfter {
    anchor: String,
    seconds: u64,
}

#[derive(Serialize)]
pub(super) struct BatchList {
    object: &'static str,
    data: Vec<BatchView>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

/// `POST /openai/v1/batches`.
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    headers: HeaderMap,
    Json(request): Json<BatchRequest>,
) -> Result<Response, Error> {
    let key = idempotency_key(&headers, None)?;
    let hash = hash(&request, if key.is_none() { &caller.token.id } else { "" });
    let spec = checked(&app, &caller.tenant, request).await?;
    // It would validate the lines as native ones.
    if app.db.ask_again("check for older replicas", || app.db.queue.has_older_replicas()).await? {
        let message = "replicas of the previous release are still running; repeat the request when they have stopped";
        return Err(Problem::new(Code::Unavailable, message).into());
    }
    let ttl_ms = key.is_none().then_some(REPEAT_MS);
    let mut key = key.unwrap_or_else(|| format!("openai {hash}"));
    for _ in 0..SKIPPED_MAX {
        let idempotency = Some(Idempotency::new(key.clone(), hash.clone()));
        let new = NewBatch { id: new_id(), spec: spec.clone(), input: None, idempotency, idempotency_ttl_ms: ttl_ms };
        let (is_new, batch) = store(&app, new).await?;
        // A client that creates the batch again after it has failed does not repeat a request.
        let is_without = matches!(batch.state, BatchState::Failed | BatchState::Cancelled | BatchState::Expired);
        if !is_new && is_without && ttl_ms.is_some() {
            key = format!("openai {hash} {}", batch.id);
            continue;
        }
        return Ok(durable(app.durability, JsonAnswer(shown(&batch)?).into_response()));
    }
    let message = "equal batches have failed or were cancelled too often within 10 minutes; repeat the request later";
    Err(Problem::new(Code::RateLimited, message).into())
}

/// A text that is equal for equal requests.
fn hash(request: &BatchRequest, token: &str) -> String {
    // Destructured without `..`, so that no member is forgotten.
    let BatchRequest {
        input_file_id,
        endpoint,
        completion_window,
        metadata,
        output_expires_after,
        budget_usd,
        at_budget,
    } = request;
    let output = output_expires_after.as_ref().map(|after| (&after.anchor, after.seconds));
    let asked =
        serde_json::json!([token, input_file_id, endpoint, completion_window, metadata, output, budget_usd, at_budget]);
    hex::encode(Sha256::digest(asked.to_string()))
}

/// The batch that a request asks for.
async fn checked(app: &App, tenant: &str, request: BatchRequest) -> Result<BatchSpec, Error> {
    if Call::from_path(&request.endpoint).is_none() {
        return Err(Error::invalid("endpoint", format!("endpoint must be one of {}", Call::paths())));
    }
    let window_s = window_s(&request.completion_window)?;
    let metadata = request.metadata.unwrap_or_default();
    check_metadata(&metadata, "")?;
    let budget_usd = request.budget_usd.or_else(|| metadata.get(BUDGET).map(|text| text.as_str().into()));
    let budget = budget_usd.map(|usd| budget(&usd)).transpose()?;
    if budget.is_none() && request.at_budget.is_some() {
        return Err(Error::invalid("at_budget", "at_budget needs a budget_usd"));
    }
    let after = request.output_expires_after.as_ref();
    let param = "output_expires_after";
    let output_expires_after_s = keep_s(param, after.map(|it| it.anchor.as_str()), after.map(|it| it.seconds))?;
    let file = own_file(&app.objects, tenant, &request.input_file_id).await;
    let file = file.map_err(|error| error.param("input_file_id"))?;
    if file.about.purpose != BATCH {
        let message = format!("the purpose of the file must be {BATCH}, not {}", file.about.purpose);
        return Err(Error::invalid("input_file_id", message));
    }
    let created_ms = now_ms();
    Ok(BatchSpec {
        tenant: tenant.to_owned(),
        endpoint: String::new(),
        version: None,
        created_ms,
        priority: Priority::Batch,
        on_invalid: OnInvalid::Fail,
        // That of the copy which validation makes of the lines.
        format: LineFormat::Stokehold,
        source: Source::Object { key: file_key(tenant, &file.id) },
        metadata,
        timeout_s: None,
        max_attempts: None,
        deadline_ms: Some(created_ms + window_s * 1000),
        retry_of: None,
        hook: None,
        budget: budget.map(|usd_micros| BatchBudget { usd_micros, at: request.at_budget.unwrap_or_default() }),
        openai: Some(OpenAiBatch {
            endpoint: request.endpoint,
            input_file_id: request.input_file_id,
            completion_window: request.completion_window,
            output_expires_after_s,
        }),
    })
}

/// A completion window in seconds.
fn window_s(text: &str) -> Result<u64, Error> {
    let unit_s = match text.as_bytes().last() {
        Some(b'm') => 60,
        Some(b'h') => 3_600,
        Some(b'd') => 86_400,
        _ => 0,
    };
    let number = text.get(..text.len().saturating_sub(1)).filter(|digits| digits.bytes().all(|c| c.is_ascii_digit()));
    let seconds = number.and_then(|digits| digits.parse::<u64>().ok()?.checked_mul(unit_s));
    seconds.filter(|seconds| (WINDOW_MIN_S..=DEADLINE_MAX_S).contains(seconds)).ok_or_else(|| {
        let message = "completion_window must be a number of minutes, hours or days up to 30 days, e.g. 30m, 24h or 7d";
        Error::invalid("completion_window", message)
    })
}

/// A budget in micro-dollars, from a number or a text with one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
fn budget(usd: &Value) -> Result<u64, Error> {
    let usd = match usd {
        Value::String(text) => text.trim().parse::<f64>().ok(),
        other => other.as_f64(),
    };
    let micros = usd.map(|usd| (usd * 1e6).round()).filter(|micros| (1.0..=BUDGET_MAX as f64).contains(micros));
    micros.map(|micros| micros as u64).ok_or_else(|| {
        let message = format!("budget_usd must be a number of dollars up to {}", BUDGET_MAX / 1_000_000);
        Error::invalid(BUDGET, message)
    })
}

/// `GET /openai/v1/batches/{id}`.
pub(super) async fn get(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsRead>,
    Path(id): Path<String>,
) -> Result<JsonAnswer<BatchView>, Error> {
    Ok(JsonAnswer(shown(&own(&db, &caller.tenant, &id).await?)?))
}

/// `GET /openai/v1/batches`.
pub(super) async fn list(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsRead>,
    mut params: Params,
) -> Result<JsonAnswer<BatchList>, Error> {
    let after = params.take("after", "the id of a batch", |text| is_batch_id(text).then(|| text.to_owned()))?;
    let limit = params.limit()? as usize;
    params.finish()?;
    let batches = db.home(&caller.tenant).await?.batches();
    let (mut found, mut cursor, mut reads) = (Vec::new(), after, 0);
    while found.len() <= limit && reads < LIST_READS_MAX {
        let page = db.ask("list batches", batches.list(&caller.tenant, None, cursor.as_deref(), LIST_STEP)).await?;
        found.extend(page.batches.into_iter().filter(|batch| batch.spec.openai.is_some()));
        (cursor, reads) = (page.next_cursor, reads + 1);
        if cursor.is_none() {
            break;
        }
    }
    let has_more = found.len() > limit || cursor.is_some();
    found.truncate(limit);
    let id = |batch: Option<&Batch>| batch.map(|batch| batch.id.clone());
    let (first_id, last_id) = (id(found.first()), id(found.last()));
    let data = found.iter().map(shown).collect::<Result<_, _>>()?;
    Ok(JsonAnswer(BatchList { object: "list", data, has_more, first_id, last_id }))
}

/// `POST /openai/v1/batches/{id}/cancel`.
pub(super) async fn cancel(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsCancel>,
    Path(id): Path<String>,
) -> Result<JsonAnswer<BatchView>, Error> {
    // A native batch is not found, and not cancelled.
    let _ = shown(&own(&db, &caller.tenant, &id).await?)?;
    Ok(JsonAnswer(shown(&stop(&db, &caller.tenant, &id).await?)?))
}

/// The view of a batch. One that was created through the native API is not found.
fn shown(batch: &Batch) -> Result<BatchView, Error> {
    let openai = batch.spec.openai.as_ref().ok_or_else(|| Problem::not_found("batch"))?;
    Ok(BatchView::new(batch, openai, now_ms()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn windows_are_numbers_with_a_unit() {
        for (text, seconds) in [("24h", 86_400), ("1m", 60), ("90m", 5_400), ("30d", 2_592_000)] {
            assert_eq!(window_s(text).unwrap(), seconds, "{text}");
        }
        for wrong in ["", "h", "24", "0h", "-1h", "+1h", "1.5h", "31d", "24 h", "99999999999999999999h", "1ß"] {
            assert!(window_s(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn budgets_are_dollars_as_numbers_or_texts() {
        assert_eq!(budget(&json!(2.5)).unwrap(), 2_500_000);
        assert_eq!(budget(&json!("0.000001")).unwrap(), 1);
        assert_eq!(budget(&json!(1_000_000)).unwrap(), BUDGET_MAX);
        for wrong in [json!(0), json!(-1), json!("many"), json!("NaN"), json!(1_000_001), json!(null), json!([1])] {
            assert!(budget(&wrong).is_err(), "{wrong}");
        }
    }
}
