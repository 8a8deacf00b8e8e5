//! `/v1/tenants`: tenants, for operators. A tenant is never deleted, because its jobs are in the archive and its name
//! is part of keys; it is disabled instead.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use stokehold_queue::Queue;
use stokehold_queue::queue::LimitScope;
use stokehold_queue::registry::TenantRecord;
use utoipa::ToSchema;

use crate::database::Database;
use crate::error::Problem;
use crate::names;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::tenants::Tenants;
use crate::tenants::audit::Touched;
use crate::tenants::auth::{Caller, TenantsRead, TenantsWrite};
use crate::time_format::rfc3339;

/// A tenant to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantRequest {
    /// 1 to 63 of a-z, 0-9 and -; must not start with -.
    name: String,
}

/// A tenant.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenant)]
pub(crate) struct TenantView {
    name: String,
    /// When it was created, RFC 3339; null for a tenant that was created with its first token.
    created_at: Option<String>,
    /// When it was disabled, RFC 3339: its requests are refused and none of its jobs start. Null: it is not disabled.
    disabled_at: Option<String>,
    /// Jobs that have not ended; those of a disabled tenant wait.
    open_jobs: u64,
}

/// Tenants, by name.
#[derive(Serialize, ToSchema)]
pub(crate) struct TenantList {
    tenants: Vec<TenantView>,
}

/// Create a tenant
///
/// The tenant has no tokens yet: create one with the role `admin`, which can create the others.
#[utoipa::path(post, operation_id = "create_tenant", path = "/v1/tenants", tag = "access", request_body = TenantRequest,
    responses(
        (status = 201, description = "The tenant was created.", body = TenantView),
        (status = 200, description = "The tenant already exists.", body = TenantView),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn create(
    State(db): State<Arc<Database>>,
    _: Caller<TenantsWrite>,
    Json(TenantRequest { name }): Json<TenantRequest>,
) -> Result<(StatusCode, Extension<Touched>, JsonAnswer<TenantView>), Problem> {
    if !names::is_name(&name) {
        return Err(Problem::field("/name", "must be 1 to 63 of a-z, 0-9 and -, and must not start with -"));
    }
    let created = db.ask_again("create a tenant", || db.registry.create_tenant(&name)).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let touched = Touched { object: name.clone(), tenant: name.clone() };
    Ok((status, Extension(touched), JsonAnswer(read(&db, &name).await?)))
}

/// List tenants
#[utoipa::path(get, operation_id = "list_tenants", path = "/v1/tenants", tag = "access",
    responses((status = 200, description = "All tenants that were created or have ever had a job.", body = TenantList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    _: Caller<TenantsRead>,
) -> Result<JsonAnswer<TenantList>, Problem> {
    let tenants = db.ask("list tenants", db.registry.tenants()).await?;
    // All at once: the requests share one connection and travel together.
    let tenants = try_join_all(tenants.into_iter().map(|record| view(&db, record))).await?;
    Ok(JsonAnswer(TenantList { tenants }))
}

/// Disable a tenant
///
/// Its tokens are refused within five seconds (`tenant_disabled`), and none of its jobs start; running jobs finish.
/// Nothing is deleted.
#[utoipa::path(post, operation_id = "disable_tenant", path = "/v1/tenants/{tenant}/disable", tag = "access",
    params(("tenant" = String, Path, description = "The tenant's name.")),
    responses((status = 200, description = "The tenant's new state.", body = TenantView), crate::server::responses::Problems))]
pub(crate) async fn disable(
    State(db): State<Arc<Database>>,
    State(tenants): State<Arc<Tenants>>,
    caller: Caller<TenantsWrite>,
    Path(tenant): Path<String>,
) -> Result<JsonAnswer<TenantView>, Problem> {
    if tenant == caller.tenant {
        return Err(Problem::field("tenant", "is your own tenant, which you could not enable again"));
    }
    switch(&db, &tenants, &tenant, true).await
}

/// Enable a tenant
#[utoipa::path(post, operation_id = "enable_tenant", path = "/v1/tenants/{tenant}/enable", tag = "access",
    params(("tenant" = String, Path, description = "The tenant's name.")),
    responses((status = 200, description = "The tenant's new state.", body = TenantView), crate::server::responses::Problems))]
pub(crate) async fn enable(
    State(db): State<Arc<Database>>,
    State(tenants): State<Arc<Tenants>>,
    _: Caller<TenantsWrite>,
    Path(tenant): Path<String>,
) -> Result<JsonAnswer<TenantView>, Problem> {
    switch(&db, &tenants, &tenant, false).await
}

async fn switch(
    db: &Database,
    tenants: &Tenants,
    tenant: &str,
    disabled: bool,
) -> Result<JsonAnswer<TenantView>, Problem> {
    if !is_there(db, tenant).await? {
        return Err(Problem::not_found("tenant"));
    }
    db.ask_again("disable or enable a tenant", || db.registry.disable_tenant(tenant, disabled)).await?;
    tenants.forget(tenant);
    db.ask_again("disable or enable a tenant", || db.queue.disable(tenant, disabled)).await?;
    Ok(JsonAnswer(read(db, tenant).await?))
}

/// Returns whether a tenant of this name exists: it was created, or has a job or a token.
pub(crate) async fn is_there(db: &Database, name: &str) -> Result<bool, Problem> {
    if !names::is_name(name) {
        return Ok(false);
    }
    if db.ask("list tenants", db.registry.tenants()).await?.iter().any(|tenant| tenant.name == name) {
        return Ok(true);
    }
    Ok(!db.ask("list tokens", db.registry.tokens_of(name)).await?.is_empty())
}

async fn read(db: &Database, name: &str) -> Result<TenantView, Problem> {
    view(db, db.ask("read a tenant", db.registry.tenant(name)).await?).await
}

async fn view(db: &Database, record: TenantRecord) -> Result<TenantView, Problem> {
    let scope = LimitScope::Tenant(record.name.clone());
    let (_, usage) = db.ask("count a tenant's jobs", db.queue.usage(&scope)).await?;
    Ok(TenantView {
        name: record.name,
        created_at: record.created_ms.map(rfc3339),
        disabled_at: record.disabled_ms.map(rfc3339),
        open_jobs: usage.open,
    })
}
