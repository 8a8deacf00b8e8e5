//! Deleting endpoints and versions: `DELETE /v1/endpoints/{name}` and `DELETE /v1/endpoints/{name}/versions/{version}`.

use axum::extract::State;
use axum::response::Response;
use stokehold_queue::failpoint;
use stokehold_queue::registry::Undeployed;

use super::routes::{unknown, unknown_version};
use crate::deletion::dependents::{Dependents, find};
use crate::deletion::routes::{Deletion, Options, deleted, in_use, would_delete};
use crate::deletion::{Subject, duty, objects};
use crate::error::{DependentKind, Problem, ProblemBody};
use crate::names;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, EndpointsWrite};

const OR_FORCE: &str = "wait for it to end or move it elsewhere, or repeat with force=true, which cancels open jobs and \
    batches and pauses schedules";

/// Delete an endpoint
///
/// Deletes all its versions, and the packages and uploaded weights that no other endpoint of the tenant uses. Its ended
/// jobs, their results and their costs stay. A version that is deployed under the name later gets the next number, so
/// that version numbers are never reused.
#[utoipa::path(delete, operation_id = "delete_endpoint", path = "/v1/endpoints/{name}", tag = "endpoints",
    params(
        ("name" = String, Path, description = "The endpoint's name."),
        ("dry_run" = Option<bool>, Query, description = "Delete nothing; report what depends on the endpoint. Default: false."),
        ("force" = Option<bool>, Query, description = "Delete the endpoint although others depend on it: its open jobs and batches are cancelled, schedules that submit to it are paused. Default: false."),
    ),
    responses(
        (status = 200, description = "What was deleted or, for a dry run, would be.", body = Deletion),
        (status = 409, description = "`in_use`: others depend on the endpoint; `dependents` names them.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn endpoint(
    State(app): State<App>,
    caller: Caller<EndpointsWrite>,
    Path(name): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let options = Options::of(params)?;
    if !names::is_name(&name) {
        return Err(unknown(&name));
    }
    let versions = app.db.ask("list versions", app.db.registry.versions(&caller.tenant, &name)).await?;
    if versions.is_empty() {
        return Err(unknown(&name));
    }
    let numbers = versions.iter().map(|version| version.version).collect();
    let subject = Subject::Versions { endpoint: name.clone(), numbers, is_whole: true };
    delete(&app, &caller.tenant, &name, None, &subject, options).await
}

/// Delete a version
///
/// Deletes the version, and its package and uploaded weights if no other version of the tenant uses them. A version
/// that receives new jobs cannot be deleted; route them to another one first. Its ended jobs stay. The numbers of other
/// versions do not change.
#[utoipa::path(delete, operation_id = "delete_endpoint_version", path = "/v1/endpoints/{name}/versions/{version}", tag = "endpoints",
    params(
        ("name" = String, Path, description = "The endpoint's name."),
        ("version" = u32, Path, description = "The version's number."),
        ("dry_run" = Option<bool>, Query, description = "Delete nothing; report what depends on the version. Default: false."),
        ("force" = Option<bool>, Query, description = "Delete the version although others depend on it: its open jobs and batches are cancelled, schedules that name it are paused, and the endpoint cannot be rolled back to it. Default: false."),
    ),
    responses(
        (status = 200, description = "What was deleted or, for a dry run, would be.", body = Deletion),
        (status = 409, description = "`in_use`: the version receives new jobs, or others depend on it; `dependents` names them.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn version(
    State(app): State<App>,
    caller: Caller<EndpointsWrite>,
    Path((name, version)): Path<(String, String)>,
    params: Params,
) -> Result<Response, Problem> {
    let options = Options::of(params)?;
    if !names::is_name(&name) {
        return Err(unknown(&name));
    }
    let tenant = &caller.tenant;
    if app.db.ask("read an endpoint", app.db.registry.traffic(tenant, &name)).await?.is_none() {
        return Err(unknown(&name));
    }
    let Ok(number) = version.parse() else { return Err(unknown_version(&name, version)) };
    if app.db.ask("read a version", app.db.registry.endpoint(tenant, &name, Some(number))).await?.is_none() {
        return Err(unknown_version(&name, version));
    }
    let subject = Subject::Versions { endpoint: name.clone(), numbers: vec![number], is_whole: false };
    delete(&app, tenant, &name, Some(number), &subject, options).await
}

/// Deletes one version, or the endpoint. First the registry, so that no job is submitted from there on and nothing
/// names what is missing; then the jobs are ended, then the objects deleted. If a later step fails or this replica dies,
/// the duty finishes the deletion.
async fn delete(
    app: &App,
    tenant: &str,
    name: &str,
    version: Option<u32>,
    subject: &Subject,
    options: Options,
) -> Result<Response, Problem> {
    let dependents = find(&app.db, tenant, subject).await?;
    if options.dry_run {
        let goes = |other: &str, number: u32| other == name && version.is_none_or(|version| version == number);
        let freed = objects::size_without(&app.db, tenant, goes).await?;
        return Ok(would_delete(dependents, freed));
    }
    let what = match version {
        Some(version) => format!("version {version} of endpoint {name:?}"),
        None => format!("endpoint {name:?}"),
    };
    if dependents.has(DependentKind::Traffic) {
        return Err(has_traffic(&what, name, dependents));
    }
    if !options.force && !dependents.is_empty() {
        return Err(in_use(&what, dependents, OR_FORCE));
    }
    let undeploy = app.db.registry.undeploy(tenant, name, version);
    let undeployed = app.db.ask("delete an endpoint", undeploy).await?;
    app.catalog.undeployed_now(tenant, name);
    app.models.changed_now(tenant);
    let (deletion, orphans) = match undeployed {
        Undeployed::Done(deletion, orphans) => (deletion, orphans),
        Undeployed::UnknownEndpoint => return Err(unknown(name)),
        Undeployed::UnknownVersion => return Err(unknown_version(name, version.unwrap_or_default())),
        Undeployed::HasTraffic => {
            let mut dependents = Dependents::default();
            dependents.add(DependentKind::Traffic, format!("{name}@{}", version.unwrap_or_default()));
            return Err(has_traffic(&what, name, dependents));
        }
    };
    failpoint::reach("deletion.undeployed").await;
    if let Err(error) = duty::follow(app, &deletion).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(deletion.id, error, "a deletion is incomplete; the next round of the duty finishes it");
    }
    let freed = objects::sweep(&app.db, &app.objects, tenant, &orphans).await.unwrap_or_else(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(deletion.id, error, "objects are not deleted yet; the next round of the duty deletes them");
        0
    });
    app.storage.shrunk(tenant);
    let numbers: Vec<String> = deletion.versions.iter().map(u32::to_string).collect();
    let object = format!("{name}@{} ({freed} bytes)", numbers.join(","));
    Ok(deleted(tenant, object, dependents, freed))
}

fn has_traffic(what: &str, name: &str, dependents: Dependents) -> Problem {
    let or = format!("route new jobs to another version first with PUT /v1/endpoints/{name}/traffic");
    in_use(what, dependents, &or)
}
