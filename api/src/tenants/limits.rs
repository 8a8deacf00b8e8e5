//! `/v1/limits`: the limits of tenants. A tenant sees its own limits; operators set them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use stokehold_queue::budgets::{AtBudget, Budget, Budgeted, FOREVER_MS, Standing, standing};
use stokehold_queue::costs::day_of;
use stokehold_queue::queue::{LimitScope, Limits, Usage};
use stokehold_queue::registry::Quotas;
use stokehold_queue::{Queue, now_ms};
use utoipa::ToSchema;

use crate::costs::budgets;
use crate::database::Database;
use crate::error::Problem;
use crate::names;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::tenants::Tenants;
use crate::tenants::auth::{Caller, JobsRead, LimitsRead, LimitsWrite};
use crate::tenants::storage::Storage;
use crate::time_format::rfc3339;

/// Largest budget, micro-dollars: a million dollars, so that sums stay exact in a double.
pub(crate) const BUDGET_MAX: u64 = 1_000_000_000_000;

const WEIGHT: std::ops::RangeInclusive<f64> = 0.01..=1_000.0;

/// Limits. Absent or null: no limit.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Limits)]
pub(crate) struct LimitsBody {
    /// The share of the machines relative to other tenants, 0.01 to 1,000; default 1. Tenants only.
    weight: Option<f64>,
    /// Jobs that run concurrently; 0 stops every start.
    max_running: Option<u32>,
    /// Jobs that have not ended; a submit beyond this is refused with `quota_exceeded`.
    max_open: Option<u64>,
    /// Starts per minute; the burst is one second's worth, at least one.
    starts_per_minute: Option<u32>,
    /// The daily budget (UTC) for running and loading, micro-dollars. Jobs that are already running when it is reached
    /// add to the cost.
    budget_usd_micros_per_day: Option<u64>,
    /// What happens when the budget is reached. With `drain`, the default, nothing more starts before midnight; with
    /// `stop`, running jobs also return to the front of their queue and start again after midnight.
    #[schema(value_type = Option<AtBudgetWord>)]
    at_budget: Option<AtBudget>,
    /// Requests per minute to each replica of the API; the burst is ten seconds' worth. Requests beyond this are
    /// refused with `rate_limited`. Tenants only.
    requests_per_minute: Option<u32>,
    /// Bytes of uploaded files, packages and weights; an upload beyond this is refused with `storage_exceeded`. Tenants
    /// only.
    max_storage_bytes: Option<u64>,
    /// Bytes of the queue's memory for the tenant's jobs, including ended ones until they move to the archive; a submit
    /// beyond this is refused with `quota_exceeded`, and lines of batches wait. Absent: no limit until 60 % of the
    /// memory is in use, then a fifth of it. Tenants only.
    max_memory_bytes: Option<u64>,
}

/// What happens when a budget is reached.
#[derive(ToSchema)]
#[schema(as = AtBudget, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum AtBudgetWord {
    Drain,
    Stop,
}

/// The state of a budget: `warned` from 80 %.
#[derive(ToSchema)]
#[schema(as = BudgetState, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum BudgetStateWord {
    Within,
    Warned,
    Reached,
}

/// A daily budget and its use.
#[derive(Serialize, ToSchema)]
#[schema(as = BudgetOfDay)]
pub(crate) struct BudgetView {
    limit_usd_micros: u64,
    /// The cost of attempts that ended today, and of running ones as of a few seconds ago.
    spent_today_usd_micros: u64,
    #[schema(value_type = BudgetStateWord)]
    state: Standing,
    /// When jobs start again, RFC 3339; null while they do, and if the budget is 0.
    resumes_at: Option<String>,
}

impl BudgetView {
    fn new(budgeted: &Budgeted, now_ms: u64) -> Self {
        let limit_usd_micros = budgeted.budget.usd_micros_per_day;
        let seen = budgeted.stood.filter(|stood| stood.day == day_of(now_ms)).map_or(0, |stood| stood.spent_usd_micros);
        let spent_today_usd_micros = budgeted.spent_usd_micros.max(seen);
        let paused = budgeted.paused_until_ms.filter(|until_ms| *until_ms > now_ms);
        let state =
            if paused.is_some() { Standing::Reached } else { standing(spent_today_usd_micros, limit_usd_micros) };
        let resumes_at = paused.filter(|until_ms| *until_ms < FOREVER_MS).map(rfc3339);
        Self { limit_usd_micros, spent_today_usd_micros, state, resumes_at }
    }
}

/// The current usage.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageView {
    /// Jobs that have not ended.
    open: u64,
    /// Jobs that are running.
    running: u64,
    /// Stored bytes, as of a minute ago; only for a tenant with a storage limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_bytes: Option<u64>,
    /// Bytes of the queue's memory in use by jobs, including ended ones; tenants only.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
}

/// Limits and their usage.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsOf)]
pub(crate) struct LimitsView {
    limits: LimitsBody,
    usage: UsageView,
    /// The daily budget, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<BudgetView>,
}

/// Limits, with the state of the budget.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsShown)]
pub(crate) struct LimitsShown {
    /// The share of the machines relative to other tenants; tenants only.
    weight: Option<f64>,
    /// Jobs that run concurrently.
    max_running: Option<u32>,
    /// Jobs that have not ended.
    max_open: Option<u64>,
    /// Starts per minute.
    starts_per_minute: Option<u32>,
    /// The daily budget (UTC), micro-dollars.
    budget_usd_micros_per_day: Option<u64>,
    /// What happens when the budget is reached.
    #[schema(value_type = Option<AtBudgetWord>)]
    at_budget: Option<AtBudget>,
    /// Requests per minute; tenants only.
    requests_per_minute: Option<u32>,
    /// Bytes of files, packages and weights; tenants only.
    max_storage_bytes: Option<u64>,
    /// Bytes of the queue's memory; tenants only.
    max_memory_bytes: Option<u64>,
    /// The daily budget, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<BudgetView>,
}

/// The limits of a tenant and its endpoints.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnLimits)]
pub(crate) struct OwnLimits {
    tenant: String,
    limits: LimitsBody,
    usage: UsageView,
    /// The daily budget, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<BudgetView>,
    /// Deployed endpoints, by name.
    endpoints: BTreeMap<String, LimitsView>,
}

impl LimitsBody {
    fn new(limits: Limits, Quotas { requests_per_minute, max_storage_bytes }: Quotas) -> Self {
        let Limits { weight, max_running, max_open, starts_per_minute, max_memory_bytes, budget } = limits;
        let (budget_usd_micros_per_day, at_budget) = budget.map(|it| (it.usd_micros_per_day, it.at)).unzip();
        Self {
            weight,
            max_running,
            max_open,
            starts_per_minute,
            budget_usd_micros_per_day,
            at_budget,
            requests_per_minute,
            max_storage_bytes,
            max_memory_bytes,
        }
    }
}

impl From<Usage> for UsageView {
    fn from(Usage { open, running }: Usage) -> Self {
        Self { open, running, storage_bytes: None, memory_bytes: None }
    }
}

impl LimitsBody {
    fn checked(self, of_tenant: bool) -> Result<(Limits, Quotas), Problem> {
        let quotas =
            Quotas { requests_per_minute: self.requests_per_minute, max_storage_bytes: self.max_storage_bytes };
        if !of_tenant && quotas != Quotas::default() {
            let message = "and max_storage_bytes apply to a tenant, not to an endpoint";
            return Err(Problem::field("/requests_per_minute", message));
        }
        if !of_tenant && self.max_memory_bytes.is_some() {
            return Err(Problem::field("/max_memory_bytes", "applies to a tenant, not to an endpoint"));
        }
        if quotas.requests_per_minute == Some(0) {
            return Err(Problem::field(
                "/requests_per_minute",
                "must be at least 1; to refuse every request, use `stoke tenant disable`",
            ));
        }
        if let Some(weight) = self.weight {
            if !of_tenant {
                return Err(Problem::field("/weight", "applies to a tenant, not to an endpoint"));
            }
            if !WEIGHT.contains(&weight) {
                return Err(Problem::field("/weight", "must be 0.01 to 1000"));
            }
        }
        if self.starts_per_minute == Some(0) {
            return Err(Problem::field("/starts_per_minute", "must be at least 1; max_running 0 stops every start"));
        }
        if self.at_budget.is_some() && self.budget_usd_micros_per_day.is_none() {
            return Err(Problem::field("/at_budget", "requires budget_usd_micros_per_day"));
        }
        if self.budget_usd_micros_per_day.is_some_and(|micros| micros > BUDGET_MAX) {
            return Err(Problem::field("/budget_usd_micros_per_day", format!("must be 0 to {BUDGET_MAX}")));
        }
        let Self { weight, max_running, max_open, starts_per_minute, budget_usd_micros_per_day, at_budget, .. } = self;
        let max_memory_bytes = self.max_memory_bytes;
        let budget = budget_usd_micros_per_day
            .map(|usd_micros_per_day| Budget { usd_micros_per_day, at: at_budget.unwrap_or_default() });
        Ok((Limits { weight, max_running, max_open, starts_per_minute, max_memory_bytes, budget }, quotas))
    }
}

/// Get your own limits
#[utoipa::path(get, operation_id = "get_own_limits", path = "/v1/limits", tag = "limits",
    responses((status = 200, description = "The limits and their current usage.", body = OwnLimits), crate::server::responses::Problems))]
pub(crate) async fn own(
    State(db): State<Arc<Database>>,
    State(storage): State<Arc<Storage>>,
    caller: Caller<JobsRead>,
) -> Result<JsonAnswer<OwnLimits>, Problem> {
    let tenant = caller.tenant;
    let budgets = budgets::of_tenant(&db, &tenant).await?;
    let budgets = &budgets;
    let LimitsView { limits, mut usage, budget } = read(&db, &LimitScope::Tenant(tenant.clone()), budgets).await?;
    if limits.max_storage_bytes.is_some() {
        usage.storage_bytes = Some(storage.used(&tenant).await?.1);
    }
    usage.memory_bytes = Some(db.ask("read the usage of a tenant", db.home(&tenant).await?.memory_of(&tenant)).await?);
    let deployed = db.ask("list endpoints", db.registry.endpoints(&tenant)).await?;
    // All at once: the requests share one connection and travel together.
    let endpoints = try_join_all(deployed.into_iter().map(|version| async {
        let scope = LimitScope::Endpoint { tenant: tenant.clone(), endpoint: version.name.clone() };
        Ok::<_, Problem>((version.name, read(&db, &scope, budgets).await?))
    }));
    let endpoints = endpoints.await?.into_iter().collect();
    Ok(JsonAnswer(OwnLimits { tenant, limits, usage, budget, endpoints }))
}

/// Get a tenant's limits
#[utoipa::path(get, operation_id = "get_limits", path = "/v1/limits/{tenant}", tag = "limits",
    params(("tenant" = String, Path, description = "The tenant's name.")),
    responses((status = 200, description = "The limits.", body = LimitsShown), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    _: Caller<LimitsRead>,
    Path(tenant): Path<String>,
) -> Result<JsonAnswer<LimitsShown>, Problem> {
    shown(&db, &tenant_gate(tenant)?).await
}

/// Set a tenant's limits
///
/// Replaces all limits: absent members remove a limit.
#[utoipa::path(put, operation_id = "set_limits", path = "/v1/limits/{tenant}", tag = "limits", request_body = LimitsBody,
    params(("tenant" = String, Path, description = "The tenant's name.")),
    responses((status = 200, description = "The new limits.", body = LimitsShown), crate::server::responses::Problems))]
pub(crate) async fn set(
    State(db): State<Arc<Database>>,
    State(tenants): State<Arc<Tenants>>,
    _: Caller<LimitsWrite>,
    Path(tenant): Path<String>,
    Json(body): Json<LimitsBody>,
) -> Result<JsonAnswer<LimitsShown>, Problem> {
    let (scope, (limits, quotas)) = (tenant_gate(tenant)?, body.checked(true)?);
    let tenant = scope.tenant();
    db.ask_again("set a tenant's quotas", || db.registry.set_quotas(tenant, quotas)).await?;
    tenants.forget(tenant);
    write(&db, &scope, limits).await
}

/// Get the limits of a tenant's endpoint
#[utoipa::path(get, operation_id = "get_endpoint_limits", path = "/v1/limits/{tenant}/endpoints/{name}", tag = "limits",
    params(
        ("tenant" = String, Path, description = "The tenant's name."),
        ("name" = String, Path, description = "The endpoint's name."),
    ),
    responses((status = 200, description = "The limits.", body = LimitsShown), crate::server::responses::Problems))]
pub(crate) async fn get_endpoint(
    State(db): State<Arc<Database>>,
    _: Caller<LimitsRead>,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<JsonAnswer<LimitsShown>, Problem> {
    shown(&db, &endpoint_gate(tenant, name)?).await
}

/// Set the limits of a tenant's endpoint
#[utoipa::path(put, operation_id = "set_endpoint_limits", path = "/v1/limits/{tenant}/endpoints/{name}", tag = "limits", request_body = LimitsBody,
    params(
        ("tenant" = String, Path, description = "The tenant's name."),
        ("name" = String, Path, description = "The endpoint's name."),
    ),
    responses((status = 200, description = "The new limits.", body = LimitsShown), crate::server::responses::Problems))]
pub(crate) async fn set_endpoint(
    State(db): State<Arc<Database>>,
    _: Caller<LimitsWrite>,
    Path((tenant, name)): Path<(String, String)>,
    Json(body): Json<LimitsBody>,
) -> Result<JsonAnswer<LimitsShown>, Problem> {
    let (scope, (limits, _)) = (endpoint_gate(tenant, name)?, body.checked(false)?);
    write(&db, &scope, limits).await
}

fn tenant_gate(tenant: String) -> Result<LimitScope, Problem> {
    if names::is_name(&tenant) { Ok(LimitScope::Tenant(tenant)) } else { Err(Problem::not_found("tenant")) }
}

fn endpoint_gate(tenant: String, endpoint: String) -> Result<LimitScope, Problem> {
    if names::is_name(&tenant) && names::is_name(&endpoint) {
        Ok(LimitScope::Endpoint { tenant, endpoint })
    } else {
        Err(Problem::not_found("endpoint"))
    }
}

async fn read(db: &Database, scope: &LimitScope, budgets: &[Budgeted]) -> Result<LimitsView, Problem> {
    let (limits, usage) = db.ask("read limits", db.queue.usage(scope)).await?;
    let budgeted = budgets.iter().find(|budgeted| budgeted.scope == *scope);
    let budget = budgeted.map(|budgeted| BudgetView::new(budgeted, now_ms()));
    let quotas = match scope {
        LimitScope::Tenant(tenant) => db.ask("read a tenant", db.registry.tenant(tenant)).await?.quotas,
        LimitScope::Endpoint { .. } => Quotas::default(),
    };
    Ok(LimitsView { limits: LimitsBody::new(limits, quotas), usage: usage.into(), budget })
}

async fn shown(db: &Database, scope: &LimitScope) -> Result<JsonAnswer<LimitsShown>, Problem> {
    let LimitsView { limits, budget, .. } = read(db, scope, &budgets::of_tenant(db, scope.tenant()).await?).await?;
    // Not flattened: a request body refuses unknown members, which would then apply to this type too.
    Ok(JsonAnswer(LimitsShown {
        weight: limits.weight,
        max_running: limits.max_running,
        max_open: limits.max_open,
        starts_per_minute: limits.starts_per_minute,
        budget_usd_micros_per_day: limits.budget_usd_micros_per_day,
        at_budget: limits.at_budget,
        requests_per_minute: limits.requests_per_minute,
        max_storage_bytes: limits.max_storage_bytes,
        max_memory_bytes: limits.max_memory_bytes,
        budget,
    }))
}

async fn write(db: &Database, scope: &LimitScope, limits: Limits) -> Result<JsonAnswer<LimitsShown>, Problem> {
    let limits = (limits != Limits::default()).then_some(limits);
    db.ask_again("set limits", || db.queue.limit(scope, limits.as_ref())).await?;
    shown(db, scope).await
}
