//! `/v1/requirement-sets`: the requirement sets of a tenant.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use sha2::{Digest, Sha256};
use stokehold_queue::requirements::Requirements;
use utoipa::ToSchema;

use super::requirements::RequirementsRequest;
use crate::database::Database;
use crate::deletion::dependents::find;
use crate::deletion::routes::{Deletion, Options, deleted, in_use, would_delete};
use crate::deletion::{Subject, end};
use crate::error::{DependentKind, Problem, ProblemBody};
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, EndpointsRead, EndpointsWrite, demand};
use crate::tenants::scope::Scope;

/// The requirement sets of the tenant.
#[derive(Serialize, ToSchema)]
pub(crate) struct RequirementSetList {
    requirement_sets: Vec<RequirementSet>,
    /// How many a tenant may have.
    limit: u32,
}

/// A requirement set: all that endpoints require of workers besides memory.
#[derive(Serialize, ToSchema)]
pub(crate) struct RequirementSet {
    /// The id. It follows from the requirements: the same set always has the same id.
    id: String,
    #[schema(value_type = RequirementsRequest)]
    demands: Requirements,
    /// The versions with these requirements, as `name@version`.
    versions: Vec<String>,
}

/// List requirement sets
///
/// A set counts toward the tenant's limit from the first deploy with these requirements, until it is deleted or unused
/// for an hour.
#[utoipa::path(get, operation_id = "list_requirement_sets", path = "/v1/requirement-sets", tag = "endpoints",
    responses((status = 200, description = "The tenant's sets, by id.", body = RequirementSetList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    caller: Caller<EndpointsRead>,
) -> Result<JsonAnswer<RequirementSetList>, Problem> {
    let sets = known(&db, &caller.tenant).await?;
    let requirement_sets = sets.into_iter().map(|(_, set)| set).collect();
    let limit = stokehold_queue::registry::REQUIREMENT_SETS_OF_TENANT_MAX;
    Ok(JsonAnswer(RequirementSetList { requirement_sets, limit }))
}

/// Delete a requirement set
///
/// The set no longer counts toward the tenant's limit. Versions with these requirements stay deployed; the next job of
/// one of them makes the set again.
#[utoipa::path(delete, operation_id = "delete_requirement_set", path = "/v1/requirement-sets/{id}", tag = "endpoints",
    params(
        ("id" = String, Path, description = "The set's id."),
        ("dry_run" = Option<bool>, Query, description = "Delete nothing; report what depends on the set. Default: false."),
        ("force" = Option<bool>, Query, description = "Delete the set although others depend on it: open jobs with these requirements are cancelled. This requires the scope `jobs:cancel`, too. Default: false."),
    ),
    responses(
        (status = 200, description = "What was deleted or, for a dry run, would be.", body = Deletion),
        (status = 409, description = "`in_use`: versions or open jobs have these requirements; `dependents` names them.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller<EndpointsWrite>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let options = Options::of(params)?;
    let tenant = &caller.tenant;
    let sets = known(&app.db, tenant).await?;
    let found = sets.into_iter().find(|(_, set)| set.id == id);
    let (number, set) = found.ok_or_else(|| Problem::not_found("requirement set"))?;
    let subject = Subject::Requirements { number };
    let mut dependents = find(&app.db, tenant, &subject).await?;
    let has_jobs = !dependents.is_empty();
    for version in set.versions {
        dependents.add(DependentKind::Version, version);
    }
    if options.dry_run {
        return Ok(would_delete(dependents, 0));
    }
    if !dependents.is_empty() && !options.force {
        let or = "delete these versions, or repeat with force=true, which cancels open jobs";
        return Err(in_use(&format!("requirement set {id}"), dependents, or));
    }
    if has_jobs {
        demand(&caller.token, Scope::JobsCancel)?;
        end::end(&app.db, tenant, &subject).await?;
    }
    let drop = || app.db.registry.drop_requirements(tenant, number);
    app.db.ask_again("delete a requirement set", drop).await?;
    Ok(deleted(tenant, id, dependents, 0))
}

/// The sets of a tenant with their numbers, ordered by id.
async fn known(db: &Database, tenant: &str) -> Result<Vec<(u32, RequirementSet)>, Problem> {
    let numbered = db.ask("read the requirement sets", db.registry.requirements_of(tenant)).await?;
    let versions = db.ask("list versions", db.registry.requirements_by_version(tenant)).await?;
    let set = |(number, demands): (u32, Requirements)| {
        let with_it = versions.iter().filter(|(_, required)| *required == demands);
        let names = with_it.map(|(version, _)| version.clone()).collect();
        Some((number, RequirementSet { id: id_of(&demands)?, demands, versions: names }))
    };
    let mut sets: Vec<_> = numbered.into_iter().filter_map(set).collect();
    sets.sort_by(|(_, a), (_, b)| a.id.cmp(&b.id));
    Ok(sets)
}

/// The id of a set: `rs_` and a part of the hash of its stored form. Its number can later belong to another set.
fn id_of(demands: &Requirements) -> Option<String> {
    let text = serde_json::to_vec(demands)
        .inspect_err(|error| tracing::error!(%error, "a requirement set cannot be serialised"))
        .ok()?;
    Some(format!("rs_{}", hex::encode(&Sha256::digest(text)[..16])))
}
