//! `/v1/webhooks`: the secret with which receivers check signatures, and the outcome of each delivery.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use stokehold_queue::outbox::{Delivery, DeliveryFilter, DeliveryState, Try};
use stokehold_queue::{WebhookGeneration, now_ms};
use utoipa::ToSchema;

use crate::config::Config;
use crate::database::Database;
use crate::error::Problem;
use crate::jobs::words::HookEventWord;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::tenants::auth::{Caller, WebhooksRead, WebhooksWrite};
use crate::time_format::rfc3339;
use crate::webhooks::sign::Secrets;

/// Maximum length of a delivery's ID, characters; longer than any ID made here.
const ID_CHARS_MAX: usize = 128;

/// The secret that signs webhooks, as Standard Webhooks describes.
#[derive(Serialize, ToSchema)]
pub(crate) struct WebhookSecret {
    /// `whsec_` and base64, the format of Standard Webhooks libraries.
    secret: String,
    /// The previous secret, for one day after a rotation. Until then each webhook has a signature by both.
    previous: Option<String>,
    /// When `previous` expires, RFC 3339.
    previous_until: Option<String>,
}

impl WebhookSecret {
    fn new(config: &Config, tenant: &str, generation: WebhookGeneration) -> Self {
        let secrets = Secrets::of(&config.token_key, tenant, generation, now_ms());
        let (previous, until_ms) = secrets.previous().unzip();
        Self {
            secret: secrets.current().expose().to_owned(),
            previous: previous.map(|secret| secret.expose().to_owned()),
            previous_until: until_ms.map(rfc3339),
        }
    }
}

/// A webhook event and its delivery.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookDelivery)]
pub(crate) struct DeliveryView {
    /// The `webhook-id` of every try.
    id: String,
    /// The event, e.g. `job.completed`.
    #[schema(value_type = HookEventWord)]
    event: &'static str,
    url: String,
    /// The job, unless the event is about a batch.
    job_id: Option<String>,
    /// The batch, unless the event is about a job.
    batch_id: Option<String>,
    #[schema(value_type = DeliveryWord)]
    state: &'static str,
    /// When the event happened, RFC 3339.
    created_at: String,
    /// When the next try is due, RFC 3339; null once the delivery has ended.
    next_try_at: Option<String>,
    /// The latest tries, oldest first.
    tries: Vec<TryView>,
}

/// One try at a delivery.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookTry)]
pub(crate) struct TryView {
    /// When it started, RFC 3339.
    at: String,
    /// The receiver's status code.
    status: Option<u16>,
    /// Why there is no response, or why it counts as failed.
    error: Option<String>,
    duration_ms: u64,
}

/// One page of deliveries, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryList {
    deliveries: Vec<DeliveryView>,
    /// The cursor of the next page; null at the end. A page may be short or even empty and still have a next one.
    next_cursor: Option<String>,
}

/// The state of a delivery.
#[derive(ToSchema)]
#[schema(as = WebhookDeliveryState, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum DeliveryWord {
    Pending,
    Delivered,
    Exhausted,
    Disabled,
}

impl From<Delivery> for DeliveryView {
    fn from(delivery: Delivery) -> Self {
        let of_batch = is_batch(&delivery.subject);
        let (batch_id, job_id) = if of_batch { (Some(delivery.subject), None) } else { (None, Some(delivery.subject)) };
        Self {
            id: delivery.id,
            event: delivery.event.as_str(),
            url: delivery.url,
            job_id,
            batch_id,
            state: delivery.state.as_str(),
            created_at: rfc3339(delivery.created_ms),
            next_try_at: delivery.next_try_ms.map(rfc3339),
            tries: delivery.tries.into_iter().map(TryView::from).collect(),
        }
    }
}

impl From<Try> for TryView {
    fn from(tried: Try) -> Self {
        Self { at: rfc3339(tried.at_ms), status: tried.status, error: tried.error, duration_ms: tried.duration_ms }
    }
}

/// Get the webhook secret
///
/// There is one per tenant. Configure it in the Standard Webhooks library that receives the webhooks.
#[utoipa::path(get, operation_id = "get_webhook_secret", path = "/v1/webhooks/secret", tag = "webhooks",
    responses((status = 200, description = "The secret.", body = WebhookSecret), crate::server::responses::Problems))]
pub(crate) async fn secret(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    caller: Caller<WebhooksRead>,
) -> Result<Json<WebhookSecret>, Problem> {
    let generation = db
        .ask_again("read the generation of a webhook secret", || db.registry.webhook_generation(&caller.tenant))
        .await?;
    Ok(Json(WebhookSecret::new(&config, &caller.tenant, generation)))
}

/// Rotate the webhook secret
///
/// Creates a new secret. The previous one also signs for 24 hours; the one before it becomes invalid immediately. If
/// the outcome is unknown, get the secret before rotating again.
#[utoipa::path(post, operation_id = "rotate_webhook_secret", path = "/v1/webhooks/secret/rotate", tag = "webhooks",
    responses((status = 200, description = "The new secret and the previous one.", body = WebhookSecret), crate::server::responses::Problems))]
pub(crate) async fn rotate(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    caller: Caller<WebhooksWrite>,
) -> Result<Json<WebhookSecret>, Problem> {
    let generation = db.ask("rotate a webhook secret", db.registry.rotate_webhook(&caller.tenant)).await?;
    tracing::info!(tenant = caller.tenant, generation = generation.generation, "a webhook secret was rotated");
    Ok(Json(WebhookSecret::new(&config, &caller.tenant, generation)))
}

/// List webhook deliveries
#[utoipa::path(get, operation_id = "list_webhook_deliveries", path = "/v1/webhooks/deliveries", tag = "webhooks",
    params(
        ("job" = Option<String>, Query, description = "Return only deliveries about this job."),
        ("batch" = Option<String>, Query, description = "Return only deliveries about this batch."),
        ("state" = Option<DeliveryWord>, Query, description = "Return only deliveries in this state."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "1 to 100; default 20."),
    ),
    responses((status = 200, description = "One page.", body = DeliveryList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    caller: Caller<WebhooksRead>,
    mut params: Params,
) -> Result<Json<DeliveryList>, Problem> {
    let states = DeliveryState::ALL.map(DeliveryState::as_str).join(", ");
    let filter = DeliveryFilter {
        job: params.take("job", "a job's id", |id| id.parse().ok())?,
        batch: params.take("batch", "a batch's id", |id| is_batch(id).then(|| id.to_owned()))?,
        state: params.take("state", &format!("one of {states}"), DeliveryState::from_word)?,
    };
    if filter.job.is_some() && filter.batch.is_some() {
        return Err(Problem::query("batch", "and job exclude each other"));
    }
    let cursor = params.take("cursor", "the next_cursor of a page", |text| is_cursor(text).then(|| text.to_owned()))?;
    let limit = params.limit()?;
    params.finish()?;
    let outbox = db.home(&caller.tenant).await?.outbox();
    let list = outbox.list(&caller.tenant, &filter, cursor.as_deref(), limit);
    let page = db.ask("list webhook deliveries", list).await?;
    let deliveries = page.deliveries.into_iter().map(DeliveryView::from).collect();
    Ok(Json(DeliveryList { deliveries, next_cursor: page.next_cursor }))
}

/// Get a webhook delivery
#[utoipa::path(get, operation_id = "get_webhook_delivery", path = "/v1/webhooks/deliveries/{id}", tag = "webhooks",
    params(("id" = String, Path, description = "The delivery's id.")),
    responses((status = 200, description = "The delivery.", body = DeliveryView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    caller: Caller<WebhooksRead>,
    Path(id): Path<String>,
) -> Result<Json<DeliveryView>, Problem> {
    let outbox = db.home(&caller.tenant).await?.outbox();
    let found = match is_message(&id) {
        true => db.ask("read a webhook delivery", outbox.get(&caller.tenant, &id)).await?,
        false => None,
    };
    found.map(|delivery| Json(delivery.into())).ok_or_else(|| Problem::not_found("webhook delivery"))
}

/// Replay a webhook delivery
///
/// Sends the delivery again regardless of its state, with the same `webhook-id` and body; its earlier tries stay
/// listed. A delivery that waits for its next try is tried immediately.
#[utoipa::path(post, operation_id = "replay_webhook_delivery", path = "/v1/webhooks/deliveries/{id}/replay", tag = "webhooks",
    params(("id" = String, Path, description = "The delivery's id.")),
    responses((status = 202, description = "The delivery, due immediately.", body = DeliveryView), crate::server::responses::Problems))]
pub(crate) async fn replay(
    State(db): State<Arc<Database>>,
    caller: Caller<WebhooksWrite>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<DeliveryView>), Problem> {
    let outbox = db.home(&caller.tenant).await?.outbox();
    let found = match is_message(&id) {
        true => db.ask("replay a webhook delivery", outbox.replay(&caller.tenant, &id)).await?,
        false => None,
    };
    let delivery = found.ok_or_else(|| Problem::not_found("webhook delivery"))?;
    Ok((StatusCode::ACCEPTED, Json(delivery.into())))
}

/// Returns whether a text can be a delivery's ID: it becomes part of a Redis key.
fn is_message(id: &str) -> bool {
    id.len() <= ID_CHARS_MAX && id.strip_prefix("msg_").is_some_and(is_word)
}

fn is_batch(id: &str) -> bool {
    id.strip_prefix("batch_").is_some_and(|hex| hex.len() == 32 && is_word(hex))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'))
}

/// Returns whether a text has the form of a cursor: `<milliseconds>.<id>`.
fn is_cursor(text: &str) -> bool {
    text.split_once('.').is_some_and(|(ms, id)| {
        ms.len() <= 20 && ms.bytes().all(|b| b.is_ascii_digit()) && ms.parse::<u64>().is_ok() && is_message(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_made_here_is_an_id_or_a_cursor() {
        let id = "msg_0192f0c1a2b37cde8f00112233445500_completed";
        assert!(is_message(id) && is_cursor(&format!("1795240200123.{id}")));
        assert!(is_message("msg_0192f0c1a2b37cde8f00112233445500_progress_1795240200123-0"));
        for wrong in ["", "msg_", "msg_A", "msg_a:b", "msg_a/b", "msg_ä", "x", &format!("msg_{}", "a".repeat(200))] {
            assert!(!is_message(wrong) && !is_cursor(&format!("1.{wrong}")), "{wrong}");
        }
        for wrong in ["", ".", &format!(".{id}"), &format!("-1.{id}"), &format!("1e3.{id}")] {
            assert!(!is_cursor(wrong), "{wrong}");
        }
        assert!(is_batch("batch_0192f0c1a2b37cde8f00112233445500") && !is_batch("batch_1"));
    }
}
