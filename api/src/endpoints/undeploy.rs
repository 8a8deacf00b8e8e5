//! Deleting endpoints and versions: `DELETE /v1/endpoints/{name}` and `DELETE /v1/endpoints/{name}/versions/{version}`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stokehold_queue::Queue;
use stokehold_queue::job::JobState;
use stokehold_queue::queue::{LimitScope, ListFilter};
use stokehold_queue::registry::Undeployed;
use utoipa::ToSchema;

use super::routes::{unknown, unknown_version};
use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::{Code, Problem, ProblemBody};
use crate::names;
use crate::server::path::Path;
use crate::server::query::{LIMIT_MAX, Params};
use crate::tenants::auth::{Caller, EndpointsWrite};

/// Maximum number of open jobs of an endpoint that are searched for those of a version.
const LOOKS_MAX: u64 = 1_000;

/// The deleted versions.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeletedVersions {
    /// The number of deleted versions.
    deleted: u64,
}

/// Delete an endpoint
///
/// Deletes all its versions. Its ended jobs, their results and their costs stay. A version that is deployed under the
/// name later gets the next number, so that version numbers are never reused.
#[utoipa::path(delete, operation_id = "delete_endpoint", path = "/v1/endpoints/{name}", tag = "endpoints",
    params(
        ("name" = String, Path, description = "The endpoint's name."),
        ("force" = Option<bool>, Query, description = "Delete the endpoint even if it has open jobs. Jobs that have not started fail. Default: false."),
    ),
    responses(
        (status = 200, description = "The number of deleted versions.", body = DeletedVersions),
        (status = 409, description = "`endpoint_in_use`: the endpoint has open jobs.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn endpoint(
    State(db): State<Arc<Database>>,
    State(catalog): State<Arc<Catalog>>,
    caller: Caller<EndpointsWrite>,
    Path(name): Path<String>,
    params: Params,
) -> Result<Json<DeletedVersions>, Problem> {
    let forces = forces(params)?;
    if !names::is_name(&name) {
        return Err(unknown(&name));
    }
    let open = if forces { 0 } else { open_jobs(&db, &caller.tenant, &name).await? };
    if open > 0 {
        return Err(in_use(format!(
            "endpoint {name:?} has {open} open jobs; cancel them, wait for them to end, or repeat with force=true, \
                which fails those that have not started"
        )));
    }
    delete(&db, &catalog, &caller.tenant, &name, None).await
}

/// Delete a version
///
/// A version that receives new jobs cannot be deleted; route them to another one first. Its ended jobs stay. The
/// numbers of other versions do not change.
#[utoipa::path(delete, operation_id = "delete_endpoint_version", path = "/v1/endpoints/{name}/versions/{version}", tag = "endpoints",
    params(
        ("name" = String, Path, description = "The endpoint's name."),
        ("version" = u32, Path, description = "The version's number."),
        ("force" = Option<bool>, Query, description = "Delete the version even if it may have open jobs. Jobs that have not started fail. Default: false."),
    ),
    responses(
        (status = 200, description = "The version was deleted.", body = DeletedVersions),
        (status = 409, description = "`endpoint_in_use`: the version receives new jobs, or may have open jobs.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn version(
    State(db): State<Arc<Database>>,
    State(catalog): State<Arc<Catalog>>,
    caller: Caller<EndpointsWrite>,
    Path((name, version)): Path<(String, String)>,
    params: Params,
) -> Result<Json<DeletedVersions>, Problem> {
    let forces = forces(params)?;
    if !names::is_name(&name) {
        return Err(unknown(&name));
    }
    let Ok(number) = version.parse() else { return Err(unknown_version(&name, version)) };
    if !forces {
        check_jobs(&db, &caller.tenant, &name, number).await?;
    }
    delete(&db, &catalog, &caller.tenant, &name, Some(number)).await
}

async fn delete(
    db: &Database,
    catalog: &Catalog,
    tenant: &str,
    name: &str,
    version: Option<u32>,
) -> Result<Json<DeletedVersions>, Problem> {
    let undeployed = db.ask("delete an endpoint", db.registry.undeploy(tenant, name, version)).await?;
    catalog.undeployed_now(tenant, name);
    let number = version.map_or_else(String::new, |version| version.to_string());
    match undeployed {
        Undeployed::Done(deleted) => Ok(Json(DeletedVersions { deleted })),
        Undeployed::UnknownEndpoint => Err(unknown(name)),
        Undeployed::UnknownVersion => Err(unknown_version(name, number)),
        Undeployed::HasTraffic => Err(in_use(format!(
            "version {number} of endpoint {name:?} receives new jobs; route traffic to another version first with PUT /v1/endpoints/{name}/traffic"
        ))),
    }
}

/// Refuses while the version has open jobs, and when the endpoint has too many open jobs to search.
async fn check_jobs(db: &Database, tenant: &str, name: &str, version: u32) -> Result<(), Problem> {
    let open = open_jobs(db, tenant, name).await?;
    let or_force =
        "cancel them, wait for them to end, or repeat with force=true, which fails those that have not started";
    if open > LOOKS_MAX {
        return Err(in_use(format!(
            "endpoint {name:?} has {open} open jobs, too many to check which of them belong to version {version}; {or_force}"
        )));
    }
    if open == 0 {
        return Ok(());
    }
    for state in JobState::ALL.into_iter().filter(|state| !state.is_terminal()) {
        let filter = ListFilter { state: Some(state), endpoint: Some(name.to_owned()), ..ListFilter::default() };
        let mut cursor = None;
        loop {
            let page = db.ask("list jobs", db.queue.list(tenant, &filter, cursor.as_deref(), LIMIT_MAX)).await?;
            if let Some(job) = page.jobs.iter().find(|job| job.spec.version == version) {
                let (id, state) = (job.id, state.as_str());
                return Err(in_use(format!(
                    "version {version} of endpoint {name:?} has open jobs ({id} is {state}); {or_force}"
                )));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// Number of jobs of an endpoint that have not ended.
async fn open_jobs(db: &Database, tenant: &str, name: &str) -> Result<u64, Problem> {
    let scope = LimitScope::Endpoint { tenant: tenant.to_owned(), endpoint: name.to_owned() };
    let (_, usage) = db.ask("count open jobs", db.queue.usage(&scope)).await?;
    Ok(usage.open)
}

fn forces(mut params: Params) -> Result<bool, Problem> {
    let forces = params.take("force", "true or false", |text| text.parse().ok())?;
    params.finish()?;
    Ok(forces.unwrap_or(false))
}

fn in_use(detail: String) -> Problem {
    Problem::new(Code::EndpointInUse, detail)
}
