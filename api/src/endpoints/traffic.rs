//! `/v1/endpoints/{name}/traffic`: split of new jobs among versions.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stokehold_queue::endpoint::Traffic;
use stokehold_queue::registry::TrafficSet;
use utoipa::ToSchema;

use super::routes::{unknown, unknown_version};
use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::Problem;
use crate::names;
use crate::openai::models::Models;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::tenants::auth::{Caller, EndpointsRead, EndpointsWrite};

/// The version that receives new jobs.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrafficRequest {
    /// A deployed version.
    version: u32,
    /// The share of new jobs for this version, 0 to 100 percent; the current version gets the rest. With 100, the
    /// default, it becomes the current one.
    percent: Option<u32>,
}

/// The versions that receive new jobs.
#[derive(Serialize, ToSchema)]
#[schema(as = Traffic)]
pub(crate) struct TrafficView {
    name: String,
    /// The current version first.
    versions: Vec<TrafficPart>,
    /// The version that was current before and that `stoke endpoint rollback` returns to; absent after a rollback.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<u32>,
}

/// A version's share of new jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrafficPart {
    version: u32,
    percent: u32,
}

impl TrafficView {
    fn new(name: String, traffic: Traffic) -> Self {
        let versions = traffic.parts().map(|(version, percent)| TrafficPart { version, percent }).collect();
        Self { name, versions, previous: traffic.previous }
    }
}

/// Get the versions that receive new jobs
#[utoipa::path(get, operation_id = "get_traffic", path = "/v1/endpoints/{name}/traffic", tag = "endpoints",
    params(("name" = String, Path, description = "The endpoint's name.")),
    responses((status = 200, description = "The versions that receive new jobs.", body = TrafficView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    caller: Caller<EndpointsRead>,
    Path(name): Path<String>,
) -> Result<JsonAnswer<TrafficView>, Problem> {
    if !names::is_name(&name) {
        return Err(unknown(&name));
    }
    let traffic = db.ask("read an endpoint", db.registry.traffic(&caller.tenant, &name)).await?;
    Ok(JsonAnswer(TrafficView::new(name.clone(), traffic.ok_or_else(|| unknown(&name))?)))
}

/// Route new jobs to a version
///
/// Takes effect immediately on the replica that answers and within a second on others. Jobs that were submitted before
/// stay on their version.
#[utoipa::path(put, operation_id = "set_traffic", path = "/v1/endpoints/{name}/traffic", tag = "endpoints", request_body = TrafficRequest,
    params(("name" = String, Path, description = "The endpoint's name.")),
    responses((status = 200, description = "The versions that receive new jobs.", body = TrafficView), crate::server::responses::Problems))]
pub(crate) async fn set(
    State(db): State<Arc<Database>>,
    State(catalog): State<Arc<Catalog>>,
    State(models): State<Arc<Models>>,
    caller: Caller<EndpointsWrite>,
    Path(name): Path<String>,
    Json(request): Json<TrafficRequest>,
) -> Result<JsonAnswer<TrafficView>, Problem> {
    if !names::is_name(&name) {
        return Err(unknown(&name));
    }
    let percent = checked_percent(request.percent, "/percent")?;
    let (tenant, version) = (&caller.tenant, request.version);
    let set = || db.registry.set_traffic(tenant, &name, version, percent);
    let traffic = match db.ask_again("set an endpoint's traffic", set).await? {
        TrafficSet::Done(traffic) => traffic,
        TrafficSet::UnknownEndpoint => return Err(unknown(&name)),
        TrafficSet::UnknownVersion => return Err(unknown_version(&name, version)),
    };
    catalog.routed_now(tenant, &name, traffic);
    models.changed_now(tenant);
    if traffic.current == version {
        // Only the current version stays loaded.
        let spec = db.ask("read an endpoint", db.registry.endpoint(tenant, &name, Some(version))).await?;
        let min_warm = spec.map_or(0, |version| version.spec.min_warm);
        keep_warm(&db, tenant, &name, version, min_warm).await?;
    }
    Ok(JsonAnswer(TrafficView::new(name, traffic)))
}

pub(super) fn checked_percent(percent: Option<u32>, at: &str) -> Result<u32, Problem> {
    match percent.unwrap_or(100) {
        percent @ 0..=100 => Ok(percent),
        _ => Err(Problem::field(at, "must be 0 to 100")),
    }
}

/// Sets the number of workers that keep this version loaded; other versions of the endpoint are not kept.
pub(super) async fn keep_warm(
    db: &Database,
    tenant: &str,
    name: &str,
    version: u32,
    workers: u32,
) -> Result<(), Problem> {
    let set = || db.registry.set_floor(tenant, name, version, workers);
    if db.ask_again("set how many workers keep a model loaded", set).await? {
        return Ok(());
    }
    Err(Problem::field(
        "/min_warm",
        "is not in effect: too many endpoints of this tenant, or of all tenants, already stay loaded. The version was \
            deployed without it; lower min_warm of another endpoint and deploy again",
    ))
}
