//! `POST /v1/batches`: the lines are durable before the response; everything else happens afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::Response;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use stokehold_objects::Objects;
use stokehold_queue::batches::{Batch, BatchBudget, BatchSpec, LineFormat, NewBatch, OnInvalid, Source};
use stokehold_queue::budgets::AtBudget;
use stokehold_queue::job::{Hook, HookEvent, Idempotency, Priority};
use stokehold_queue::now_ms;
use tokio::time::timeout;
use utoipa::ToSchema;
use uuid::Uuid;

use super::made;
use super::view::{BatchView, LineFormatWord, OnInvalidWord};
use crate::batches::lines::INPUT_BYTES_MAX;
use crate::batches::uploads::Uploads;
use crate::config::{Config, Webhooks};
use crate::endpoints::catalog::Catalog;
use crate::error::{Code, Problem, ProblemBody};
use crate::jobs::submit::{ATTEMPTS_MAX, TIMEOUT_MAX_S, check_metadata, idempotency_key};
use crate::jobs::words::{BatchHookEventWord, PriorityWord};
use crate::jobs::{BULK_BODY_MAX, inputs};
use crate::server::json::Json;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsSubmit};
use crate::tenants::limits::{AtBudgetWord, BUDGET_MAX};
use crate::{names, webhooks};

/// The longest deadline: 30 days.
pub(crate) const DEADLINE_MAX_S: u64 = 30 * 24 * 3600;

/// Longest pause within a body.
const BODY_IDLE: Duration = Duration::from_secs(30);

/// Longest wait of a body for its turn: each body in progress takes two parts of 8 MiB.
const TURN: Duration = Duration::from_secs(10);

/// Many inputs for one endpoint. Instead of JSON, the body may be the lines themselves as `application/jsonl`; all
/// other members are then query parameters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchRequest {
    /// The endpoint of lines that name none.
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    endpoint: Option<String>,
    /// The version of `endpoint`. Default: the version that is current while the batch validates.
    #[schema(minimum = 1)]
    version: Option<u32>,
    /// The lines, if there are few: the body may have 8 MiB.
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    lines: Option<Vec<Box<RawValue>>>,
    /// The id of an uploaded file with the lines.
    input_file: Option<String>,
    /// The S3 key of an object with the lines, below `inputs/<tenant>/`.
    input_key: Option<String>,
    /// The format of the lines. Default `auto`: detected per line.
    #[schema(value_type = Option<LineFormatWord>)]
    format: Option<LineFormat>,
    /// The priority of the jobs. Default `batch`.
    #[schema(value_type = Option<PriorityWord>)]
    priority: Option<Priority>,
    /// What to do with invalid lines: run nothing (`fail`, the default) or run the others (`skip`).
    #[schema(value_type = Option<OnInvalidWord>)]
    on_invalid: Option<OnInvalid>,
    /// Seconds until the batch must have ended; lines that are left then expire.
    #[schema(minimum = 1, maximum = 2_592_000)]
    deadline_s: Option<u64>,
    /// The longest that one attempt of a line may run, seconds. Default: the endpoint's.
    #[schema(minimum = 1, maximum = 604_800)]
    timeout_s: Option<u64>,
    /// How many attempts of a line may fail because of the handler. Default: the endpoint's.
    #[schema(minimum = 1, maximum = 100)]
    max_attempts: Option<u32>,
    /// The budget of all lines together, micro-dollars. Lines that are already running when it is reached add to the
    /// cost.
    #[schema(minimum = 1)]
    budget_usd_micros: Option<u64>,
    /// What happens when the budget is reached: lines that have not started are cancelled (`drain`, the default), or
    /// running lines as well (`stop`).
    #[schema(value_type = Option<AtBudgetWord>)]
    at_budget: Option<AtBudget>,
    /// Your own labels for the batch as a whole: up to 32.
    metadata: Option<BTreeMap<String, String>>,
    /// An https URL that receives an event when the batch ends.
    webhook: Option<String>,
    /// The events to send. `batch.completed` is the only one and the default.
    #[schema(value_type = Option<Vec<BatchHookEventWord>>)]
    webhook_events: Option<Vec<String>>,
    /// Repeating the request with this key within 24 hours returns the same batch. Same as the header.
    #[schema(min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
}

/// Submit a batch
#[utoipa::path(post, operation_id = "create_batch", path = "/v1/batches", tag = "batches",
    request_body(content((BatchRequest = "application/json"), (String = "application/jsonl"))),
    params(("Idempotency-Key" = Option<String>, Header, description = "As `idempotency_key`.")),
    responses(
        (status = 202, description = "The batch's lines are stored durably and validated before the first one runs.", body = BatchView),
        (status = 200, description = "The batch that was created earlier with this idempotency key.", body = BatchView),
        (status = 422, description = "`idempotency_conflict` or `file_missing`.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "`body_too_large`: the limit is 8 MiB of JSON, or 5 GiB of lines.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    params: Params,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let (mut wanted, body) = if matches!(kind.as_str(), "application/jsonl" | "application/x-ndjson") {
        (from_params(params)?, Some(request.into_body()))
    } else {
        params.finish()?;
        let Json(wanted) = Json::<BatchRequest, BULK_BODY_MAX>::from_request(request, &app).await?;
        (wanted, None)
    };
    let key = idempotency_key(&headers, wanted.idempotency_key.take())?;
    let mut spec = checked(&app.config, &app.catalog, &caller.tenant, &wanted).await?;
    let mut hash = Sha256::new();
    hash.update(asked(&wanted));

    let (id, input) = (new_id(), "input.jsonl");
    let input = format!("{}{input}", Batch::prefix_of(&caller.tenant, &id));
    let sources = [body.is_some(), wanted.lines.is_some(), wanted.input_file.is_some(), wanted.input_key.is_some()];
    if sources.into_iter().filter(|given| *given).count() != 1 {
        return Err(Problem::field(
            "/lines",
            "give one of lines, input_file and input_key, or send the lines as application/jsonl",
        ));
    }
    if let Some(body) = body {
        let declared = headers.get(CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse::<u64>().ok());
        if declared.is_some_and(|bytes| bytes > INPUT_BYTES_MAX) {
            return Err(too_large());
        }
        receive(&app.objects, &app.uploads, &caller.tenant, &input, body, &mut hash).await?;
    } else if let Some(lines) = &wanted.lines {
        let text = jsonl(lines);
        hash.update(&text);
        app.objects.put(&input, text.into(), "application/jsonl").await?;
    } else {
        let key = source_key(&caller.tenant, &wanted)?;
        require(&app.objects, &key).await?;
        hash.update(&key);
        spec.source = Source::Object { key };
    }
    let uploaded = spec.source == Source::Uploaded;
    let idempotency = key.map(|key| Idempotency::new(key, hex::encode(hash.finalize())));
    let input_key = uploaded.then(|| input.clone());
    let new = NewBatch { id, spec, input: input_key, idempotency, idempotency_ttl_ms: None };
    let answer = made(&app, new).await;
    let kept = matches!(&answer, Ok(answer) if answer.status() == axum::http::StatusCode::ACCEPTED);
    let unknown = matches!(&answer, Err(problem) if problem.code() == Code::Unavailable);
    if uploaded && !kept && !unknown {
        // The existing batch of the key has its own lines, and a refused batch needs none.
        if let Err(error) = app.objects.delete(&[input]).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "an unused upload of lines could not be deleted");
        }
    }
    answer
}

/// Makes an ID for a new batch.
pub(crate) fn new_id() -> String {
    format!("batch_{}", Uuid::now_v7().simple())
}

fn from_params(mut params: Params) -> Result<BatchRequest, Problem> {
    fn word<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
        serde_json::from_value(text.into()).ok()
    }
    let text = |text: &str| Some(text.to_owned());
    let endpoint = params.take("endpoint", "an endpoint's name", text)?;
    let wanted = BatchRequest {
        endpoint,
        version: params.take("version", "a version's number", |text| text.parse().ok())?,
        lines: None,
        input_file: None,
        input_key: None,
        format: params.take("format", "auto, stokehold or openai", word)?,
        priority: params.take("priority", "interactive, standard or batch", word)?,
        on_invalid: params.take("on_invalid", "fail or skip", word)?,
        deadline_s: params.take("deadline_s", "a number of seconds", |text| text.parse().ok())?,
        timeout_s: params.take("timeout_s", "a number of seconds", |text| text.parse().ok())?,
        max_attempts: params.take("max_attempts", "a number", |text| text.parse().ok())?,
        budget_usd_micros: params.take("budget_usd_micros", "a number of micro-dollars", |text| text.parse().ok())?,
        at_budget: params.take("at_budget", "drain or stop", word)?,
        webhook: params.take("webhook", "a URL", text)?,
        webhook_events: params.take("webhook_events", "a comma-separated list of events", |text| {
            Some(text.split(',').map(str::to_owned).collect())
        })?,
        idempotency_key: params.take("idempotency_key", "a text", text)?,
        metadata: Some(params.take_all("metadata.").into_iter().collect()),
    };
    params.finish()?;
    Ok(wanted)
}

/// Checks everything that does not depend on where the lines are.
async fn checked(
    config: &Config,
    catalog: &Catalog,
    tenant: &str,
    wanted: &BatchRequest,
) -> Result<BatchSpec, Problem> {
    match &wanted.endpoint {
        Some(endpoint) => drop(catalog.resolve(tenant, endpoint, wanted.version).await?),
        None if wanted.version.is_some() => return Err(Problem::field("/version", "needs an endpoint")),
        None => {}
    }
    within("/deadline_s", wanted.deadline_s, DEADLINE_MAX_S)?;
    within("/timeout_s", wanted.timeout_s, TIMEOUT_MAX_S)?;
    within("/max_attempts", wanted.max_attempts.map(u64::from), u64::from(ATTEMPTS_MAX))?;
    let metadata = wanted.metadata.clone().unwrap_or_default();
    check_metadata(&metadata, "")?;
    let created_ms = now_ms();
    Ok(BatchSpec {
        tenant: tenant.to_owned(),
        endpoint: wanted.endpoint.clone().unwrap_or_default(),
        version: wanted.version,
        created_ms,
        priority: wanted.priority.unwrap_or(Priority::Batch),
        on_invalid: wanted.on_invalid.unwrap_or_default(),
        format: wanted.format.unwrap_or_default(),
        source: Source::Uploaded,
        metadata,
        timeout_s: wanted.timeout_s,
        max_attempts: wanted.max_attempts,
        deadline_ms: wanted.deadline_s.map(|seconds| created_ms + seconds * 1000),
        retry_of: None,
        hook: hook(&config.webhooks, wanted)?,
        budget: budget(wanted)?,
        openai: None,
    })
}

fn budget(wanted: &BatchRequest) -> Result<Option<BatchBudget>, Problem> {
    within("/budget_usd_micros", wanted.budget_usd_micros, BUDGET_MAX)?;
    if wanted.at_budget.is_some() && wanted.budget_usd_micros.is_none() {
        return Err(Problem::field("/at_budget", "needs a budget_usd_micros"));
    }
    let at = wanted.at_budget.unwrap_or_default();
    Ok(wanted.budget_usd_micros.map(|usd_micros| BatchBudget { usd_micros, at }))
}

fn within(path: &str, value: Option<u64>, most: u64) -> Result<(), Problem> {
    match value {
        Some(value) if !(1..=most).contains(&value) => Err(Problem::field(path, format!("must be 1 to {most}"))),
        _ => Ok(()),
    }
}

fn hook(config: &Webhooks, wanted: &BatchRequest) -> Result<Option<Hook>, Problem> {
    if let Some(events) = &wanted.webhook_events
        && (events.len() != 1 || events[0] != HookEvent::BatchCompleted.as_str())
    {
        return Err(Problem::field("/webhook_events", "must be [\"batch.completed\"]"));
    }
    let Some(url) = &wanted.webhook else {
        if wanted.webhook_events.is_some() {
            return Err(Problem::field("/webhook_events", "needs a webhook"));
        }
        return Ok(None);
    };
    webhooks::check_url(config, url).map_err(|why| Problem::field("/webhook", why))?;
    Ok(Some(Hook { url: url.clone(), events: vec![HookEvent::BatchCompleted] }))
}

/// Text that is equal for equal requests, without the lines.
fn asked(wanted: &BatchRequest) -> String {
    // Destructured without `..`, so that no member is forgotten. The lines are hashed separately; an event list has
    // only one possible value.
    let BatchRequest {
        endpoint,
        version,
        lines: _,
        input_file: _,
        input_key: _,
        format,
        priority,
        on_invalid,
        deadline_s,
        timeout_s,
        max_attempts,
        budget_usd_micros,
        at_budget,
        metadata,
        webhook,
        webhook_events: _,
        idempotency_key: _,
    } = wanted;
    let metadata = metadata.as_ref().filter(|metadata| !metadata.is_empty());
    let mut asked = serde_json::json!([
        endpoint,
        format,
        priority,
        on_invalid,
        deadline_s,
        timeout_s,
        max_attempts,
        metadata,
        webhook,
    ]);
    // Added only if present: keys from before budgets and versions existed stay valid.
    if let (Some(budget), Some(asked)) = (budget_usd_micros, asked.as_array_mut()) {
        asked.push(serde_json::json!([budget, at_budget.unwrap_or_default()]));
    }
    if let (Some(version), Some(asked)) = (version, asked.as_array_mut()) {
        asked.push(serde_json::json!({"version": version}));
    }
    asked.to_string()
}

/// Joins values as lines of JSON. A value that spans several lines is joined to one; a JSON string never contains a raw
/// line break.
pub(crate) fn jsonl(lines: &[Box<RawValue>]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        text.extend(line.get().bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        text.push(b'\n');
    }
    text
}

fn source_key(tenant: &str, wanted: &BatchRequest) -> Result<String, Problem> {
    if let Some(id) = &wanted.input_file {
        if !names::is_file_id(id) {
            return Err(Problem::field("/input_file", "is not a file id; POST /v1/files returns one"));
        }
        return Ok(inputs::file_key(tenant, id));
    }
    let key = wanted.input_key.as_deref().unwrap_or_default();
    let below = key.strip_prefix(&format!("inputs/{tenant}/")).unwrap_or_default();
    let sound = !below.is_empty()
        && key.len() <= 1_024
        && !below.chars().any(char::is_control)
        && below.split('/').all(|step| !matches!(step, "" | "." | ".."));
    if !sound {
        return Err(Problem::field("/input_key", format!("must be a key below inputs/{tenant}/")));
    }
    Ok(key.to_owned())
}

async fn require(objects: &Objects, key: &str) -> Result<(), Problem> {
    let Some(found) = objects.head(key).await? else {
        return Err(Problem::new(Code::FileMissing, "the object does not exist; upload the lines first"));
    };
    if found.size_bytes > INPUT_BYTES_MAX {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> Problem {
    Problem::new(
        Code::BodyTooLarge,
        format!("the lines of a batch may have at most {INPUT_BYTES_MAX} bytes; split them"),
    )
}

/// Streams a body to S3. Once this returns, the body is durable.
async fn receive(
    objects: &Objects,
    uploads: &Uploads,
    tenant: &str,
    key: &str,
    mut body: Body,
    hash: &mut Sha256,
) -> Result<(), Problem> {
    let too_many = || Problem::new(Code::RateLimited, "too many batch uploads are in progress; try again");
    let Ok(Some(_turn)) = timeout(TURN, uploads.turn(tenant)).await else { return Err(too_many()) };
    let mut upload = objects.upload(key, "application/jsonl");
    let mut bytes = 0;
    loop {
        let frame = timeout(BODY_IDLE, body.frame()).await;
        let frame =
            frame.map_err(|_| Problem::new(Code::BodyTimeout, "the body stopped arriving; send it without pauses"))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Problem::new(Code::InvalidRequest, "the body ended early"))?;
        let Ok(data) = frame.into_data() else { continue };
        bytes += data.len() as u64;
        if bytes > INPUT_BYTES_MAX {
            return Err(too_large());
        }
        hash.update(&data);
        upload.write(&data).await?;
    }
    upload.finish().await?;
    Ok(())
}
