//! `/v1/endpoints`: reading endpoints and their versions.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;

use super::options::VersionView;
use super::view::{EndpointList, VersionList};
use crate::database::Database;
use crate::error::{Code, Problem};
use crate::names;
use crate::server::path::Path;
use crate::tenants::auth::{Caller, EndpointsRead};

/// List endpoints
#[utoipa::path(get, operation_id = "list_endpoints", path = "/v1/endpoints", tag = "endpoints",
    responses((status = 200, description = "The current version of every endpoint.", body = EndpointList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    caller: Caller<EndpointsRead>,
) -> Result<JsonAnswer<EndpointList>, Problem> {
    let endpoints = db.ask("list endpoints", db.registry.endpoints(&caller.tenant)).await?;
    Ok(JsonAnswer(EndpointList { endpoints: endpoints.into_iter().map(Into::into).collect() }))
}

/// Get an endpoint
#[utoipa::path(get, operation_id = "get_endpoint", path = "/v1/endpoints/{name}", tag = "endpoints",
    params(("name" = String, Path, description = "The endpoint's name.")),
    responses((status = 200, description = "The endpoint's current version.", body = VersionView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    caller: Caller<EndpointsRead>,
    Path(name): Path<String>,
) -> Result<JsonAnswer<VersionView>, Problem> {
    let version = db.ask("read an endpoint", db.registry.endpoint(&caller.tenant, &name, None)).await?;
    Ok(JsonAnswer(version.ok_or_else(|| unknown(&name))?.into()))
}

/// List an endpoint's versions
#[utoipa::path(get, operation_id = "list_endpoint_versions", path = "/v1/endpoints/{name}/versions", tag = "endpoints",
    params(("name" = String, Path, description = "The endpoint's name.")),
    responses((status = 200, description = "The endpoint's versions, newest first.", body = VersionList), crate::server::responses::Problems))]
pub(crate) async fn versions(
    State(db): State<Arc<Database>>,
    caller: Caller<EndpointsRead>,
    Path(name): Path<String>,
) -> Result<JsonAnswer<VersionList>, Problem> {
    if !names::is_name(&name) {
        return Err(unknown(&name));
    }
    let versions = db.ask("list versions", db.registry.versions(&caller.tenant, &name)).await?;
    if versions.is_empty() {
        return Err(unknown(&name));
    }
    Ok(JsonAnswer(VersionList { versions: versions.into_iter().map(Into::into).collect() }))
}

pub(super) fn unknown(name: &str) -> Problem {
    Problem::new(Code::UnknownEndpoint, format!("there is no endpoint {name:?}; GET /v1/endpoints lists them"))
}

pub(super) fn unknown_version(name: &str, version: impl std::fmt::Display) -> Problem {
    let detail = format!("endpoint {name:?} has no version {version}; GET /v1/endpoints/{name}/versions lists them");
    Problem::new(Code::UnknownVersion, detail)
}
