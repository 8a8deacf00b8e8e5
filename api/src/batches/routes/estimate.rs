//! `POST /v1/batches/estimate`: the expected cost of lines, before they are submitted.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stokehold_queue::costs::Unknown;
use utoipa::ToSchema;

use super::view::{EstimateView, UnknownWord, told};
use crate::batches::lines::LINES_MAX;
use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::Problem;
use crate::jobs::BULK_BODY_MAX;
use crate::server::json::Json;
use crate::tenants::auth::{Caller, JobsRead};

/// What to estimate. The body of a create request with `lines` is accepted as is; its other members do not change the
/// estimate.
#[derive(Deserialize, ToSchema)]
pub(crate) struct EstimateRequest {
    /// The endpoint of lines that name none.
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    endpoint: Option<String>,
    /// The lines.
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    lines: Option<Vec<Box<RawValue>>>,
    /// The number of lines, instead of the lines.
    #[schema(minimum = 1, maximum = 10_000_000)]
    line_count: Option<u64>,
}

/// The estimated cost of the lines.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchEstimate {
    /// The number of lines.
    lines: u64,
    /// Null if no estimate is possible.
    estimate: Option<EstimateView>,
    /// Why no estimate is possible.
    #[schema(value_type = Option<UnknownWord>)]
    estimate_unknown: Option<Unknown>,
}

/// The members of a line that an estimate uses.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    endpoint: Option<String>,
}

/// Estimate the cost of a batch
///
/// The estimate is based on jobs of the same endpoints in the last seven days. Nothing is created.
#[utoipa::path(post, operation_id = "estimate_batch", path = "/v1/batches/estimate", tag = "batches", request_body = EstimateRequest,
    responses((status = 200, description = "The estimate.", body = BatchEstimate), crate::server::responses::Problems))]
pub(crate) async fn estimate(
    State(db): State<Arc<Database>>,
    State(catalog): State<Arc<Catalog>>,
    caller: Caller<JobsRead>,
    Json(wanted): Json<EstimateRequest, BULK_BODY_MAX>,
) -> Result<JsonAnswer<BatchEstimate>, Problem> {
    if let Some(endpoint) = &wanted.endpoint {
        catalog.resolve(&caller.tenant, endpoint, None).await?;
    }
    let lines = counted(&wanted)?;
    let forecast = db.ask("read the spending", crate::batches::forecast(&db.queue, &caller.tenant, &lines)).await?;
    let (estimate, estimate_unknown) = told(Some(&forecast));
    Ok(JsonAnswer(BatchEstimate { lines: lines.values().sum(), estimate, estimate_unknown }))
}

/// Number of lines per endpoint.
fn counted(wanted: &EstimateRequest) -> Result<BTreeMap<String, u64>, Problem> {
    let mut counted = BTreeMap::new();
    let named = |endpoint: Option<String>| {
        endpoint.or_else(|| wanted.endpoint.clone()).ok_or_else(|| Problem::field("/endpoint", "is missing"))
    };
    match (&wanted.lines, wanted.line_count) {
        (Some(lines), None) if !lines.is_empty() => {
            for line in lines {
                // Errors in a line are reported when it is submitted.
                let of_line = serde_json::from_str::<Named>(line.get()).ok().and_then(|named| named.endpoint);
                *counted.entry(named(of_line)?).or_default() += 1;
            }
        }
        (None, Some(lines)) if (1..=LINES_MAX).contains(&lines) => {
            counted.insert(named(None)?, lines);
        }
        (None, Some(_)) => return Err(Problem::field("/line_count", format!("must be 1 to {LINES_MAX}"))),
        _ => return Err(Problem::field("/lines", "give lines, or line_count if the lines are stored elsewhere")),
    }
    Ok(counted)
}
