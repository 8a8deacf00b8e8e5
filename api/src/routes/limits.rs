//! `/v1/limits`: how much a tenant may take. A tenant sees its own; who may set them is an operator.

use std::collections::BTreeMap;

use axum::Json as JsonAnswer;
use axum::extract::State;
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use stokehold_queue::Queue;
use stokehold_queue::queue::{Gate, Limits, Usage};
use utoipa::ToSchema;

use crate::auth::{Caller, JobsRead, LimitsRead, LimitsWrite};
use crate::error::Problem;
use crate::json::Json;
use crate::names;
use crate::path::Path;
use crate::state::App;

const WEIGHT: std::ops::RangeInclusive<f64> = 0.01..=1_000.0;

/// How much may be taken. Absent or null: no limit.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Limits)]
pub(crate) struct LimitsBody {
    /// Share of the machines beside other tenants, 0.01 to 1,000; 1 when absent. Of tenants only.
    weight: Option<f64>,
    /// Jobs that run at once; 0 holds all back.
    max_running: Option<u32>,
    /// Jobs that have not ended; a submit beyond is refused with `quota_exceeded`.
    max_open: Option<u64>,
    /// Starts a minute; a burst is what one second lets through, at least one.
    starts_per_minute: Option<u32>,
}

/// What is taken now.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageView {
    /// Jobs that have not ended.
    open: u64,
    /// Jobs that run.
    running: u64,
}

/// Limits and what is taken of them.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsOf)]
pub(crate) struct LimitsView {
    limits: LimitsBody,
    usage: UsageView,
}

/// A tenant's limits, and those of its endpoints.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnLimits)]
pub(crate) struct OwnLimits {
    tenant: String,
    limits: LimitsBody,
    usage: UsageView,
    /// By name: those that are deployed.
    endpoints: BTreeMap<String, LimitsView>,
}

impl From<Limits> for LimitsBody {
    fn from(limits: Limits) -> Self {
        let Limits { weight, max_running, max_open, starts_per_minute } = limits;
        Self { weight, max_running, max_open, starts_per_minute }
    }
}

impl From<Usage> for UsageView {
    fn from(Usage { open, running }: Usage) -> Self {
        Self { open, running }
    }
}

impl LimitsBody {
    fn checked(self, of_tenant: bool) -> Result<Limits, Problem> {
        if let Some(weight) = self.weight {
            if !of_tenant {
                return Err(Problem::field("/weight", "is a tenant's; an endpoint has none"));
            }
            if !WEIGHT.contains(&weight) {
                return Err(Problem::field("/weight", "must be 0.01 to 1000"));
            }
        }
        if self.starts_per_minute == Some(0) {
            return Err(Problem::field("/starts_per_minute", "must be at least 1; max_running 0 holds all back"));
        }
        let Self { weight, max_running, max_open, starts_per_minute } = self;
        Ok(Limits { weight, max_running, max_open, starts_per_minute })
    }
}

/// See your own limits
#[utoipa::path(get, operation_id = "get_own_limits", path = "/v1/limits", tag = "limits",
    responses((status = 200, description = "Limits, and what is taken of them.", body = OwnLimits), crate::openapi::Problems))]
pub(crate) async fn own(State(app): State<App>, caller: Caller<JobsRead>) -> Result<JsonAnswer<OwnLimits>, Problem> {
    let tenant = caller.tenant;
    let LimitsView { limits, usage } = read(&app, &Gate::Tenant(tenant.clone())).await?;
    let deployed = app.ask("list endpoints", app.registry.endpoints(&tenant)).await?;
    // All at once on one connection: the questions travel together.
    let endpoints = try_join_all(deployed.into_iter().map(|version| async {
        let gate = Gate::Endpoint { tenant: tenant.clone(), endpoint: version.name.clone() };
        Ok::<_, Problem>((version.name, read(&app, &gate).await?))
    }));
    let endpoints = endpoints.await?.into_iter().collect();
    Ok(JsonAnswer(OwnLimits { tenant, limits, usage, endpoints }))
}

/// See a tenant's limits
#[utoipa::path(get, operation_id = "get_limits", path = "/v1/limits/{tenant}", tag = "limits",
    params(("tenant" = String, Path, description = "The tenant's name.")),
    responses((status = 200, description = "Its limits.", body = LimitsBody), crate::openapi::Problems))]
pub(crate) async fn get(
    State(app): State<App>,
    _: Caller<LimitsRead>,
    Path(tenant): Path<String>,
) -> Result<JsonAnswer<LimitsBody>, Problem> {
    Ok(JsonAnswer(read(&app, &tenant_gate(tenant)?).await?.limits))
}

/// Set a tenant's limits
///
/// All of them at once: what is not given is lifted.
#[utoipa::path(put, operation_id = "set_limits", path = "/v1/limits/{tenant}", tag = "limits", request_body = LimitsBody,
    params(("tenant" = String, Path, description = "The tenant's name.")),
    responses((status = 200, description = "As they are now.", body = LimitsBody), crate::openapi::Problems))]
pub(crate) async fn set(
    State(app): State<App>,
    _: Caller<LimitsWrite>,
    Path(tenant): Path<String>,
    Json(body): Json<LimitsBody>,
) -> Result<JsonAnswer<LimitsBody>, Problem> {
    let (gate, limits) = (tenant_gate(tenant)?, body.checked(true)?);
    write(&app, &gate, limits).await
}

/// See the limits of a tenant's endpoint
#[utoipa::path(get, operation_id = "get_endpoint_limits", path = "/v1/limits/{tenant}/endpoints/{name}", tag = "limits",
    params(
        ("tenant" = String, Path, description = "The tenant's name."),
        ("name" = String, Path, description = "The endpoint's name."),
    ),
    responses((status = 200, description = "Its limits.", body = LimitsBody), crate::openapi::Problems))]
pub(crate) async fn get_endpoint(
    State(app): State<App>,
    _: Caller<LimitsRead>,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<JsonAnswer<LimitsBody>, Problem> {
    Ok(JsonAnswer(read(&app, &endpoint_gate(tenant, name)?).await?.limits))
}

/// Set the limits of a tenant's endpoint
#[utoipa::path(put, operation_id = "set_endpoint_limits", path = "/v1/limits/{tenant}/endpoints/{name}", tag = "limits", request_body = LimitsBody,
    params(
        ("tenant" = String, Path, description = "The tenant's name."),
        ("name" = String, Path, description = "The endpoint's name."),
    ),
    responses((status = 200, description = "As they are now.", body = LimitsBody), crate::openapi::Problems))]
pub(crate) async fn set_endpoint(
    State(app): State<App>,
    _: Caller<LimitsWrite>,
    Path((tenant, name)): Path<(String, String)>,
    Json(body): Json<LimitsBody>,
) -> Result<JsonAnswer<LimitsBody>, Problem> {
    let (gate, limits) = (endpoint_gate(tenant, name)?, body.checked(false)?);
    write(&app, &gate, limits).await
}

fn tenant_gate(tenant: String) -> Result<Gate, Problem> {
    if names::is_name(&tenant) { Ok(Gate::Tenant(tenant)) } else { Err(Problem::not_found("tenant")) }
}

fn endpoint_gate(tenant: String, endpoint: String) -> Result<Gate, Problem> {
    if names::is_name(&tenant) && names::is_name(&endpoint) {
        Ok(Gate::Endpoint { tenant, endpoint })
    } else {
        Err(Problem::not_found("endpoint"))
    }
}

async fn read(app: &App, gate: &Gate) -> Result<LimitsView, Problem> {
    let (limits, usage) = app.ask("read limits", app.queue.usage(gate)).await?;
    Ok(LimitsView { limits: limits.into(), usage: usage.into() })
}

async fn write(app: &App, gate: &Gate, limits: Limits) -> Result<JsonAnswer<LimitsBody>, Problem> {
    let limits = (limits != Limits::default()).then_some(limits);
    app.ask_again("set limits", || app.queue.limit(gate, limits.as_ref())).await?;
    Ok(JsonAnswer(read(app, gate).await?.limits))
}
