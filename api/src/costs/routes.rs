//! `GET /v1/costs`: the costs of jobs, and how the money was spent.

mod view;

use axum::Json;
use axum::extract::State;
use stokehold_queue::costs::{By, DAYS_MAX, day_of, report};
use stokehold_queue::queue::ListFilter;
use stokehold_queue::{Queue, now_ms};

use self::view::{ByWord, CostsView, RowView};
use crate::config::Config;
use crate::costs::Costs;
use crate::error::{Code, Problem};
use crate::names;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsRead};
use crate::time_format;

/// The default number of days.
const DAYS: u32 = 7;

/// The maximum and the default number of listed jobs.
const JOBS_MAX: usize = 1_000;
const JOBS: usize = 100;

/// Jobs that are read at a time.
const PAGE: u32 = 100;

/// Maximum number of pages that are searched for ended jobs.
const PAGES_MAX: usize = 20;

/// The parameters of the request.
struct Asked {
    by: ByWord,
    from: u32,
    to: u32,
    /// The tenant; `None` means all.
    tenant: Option<String>,
    endpoint: Option<String>,
    batch: Option<String>,
    limit: Option<usize>,
}

/// Get the cost of jobs
///
/// Each attempt pays for the time in which it ran and loaded. The other costs of instances (boot, idle, stopped, disk,
/// traffic) are split over what they served, so that all rows together equal the cost of the instances. A tenant sees
/// its own costs; a token with the scope `workers:read` sees all tenants and the instances. The last few seconds may be
/// missing. Days are UTC.
#[utoipa::path(get, operation_id = "get_costs", path = "/v1/costs", tag = "costs",
    params(
        ("by" = Option<ByWord>, Query, description = "What to group by; default `endpoint`. `machine` is for operators. `job` lists the most recently ended jobs that are not archived yet."),
        ("from" = Option<String>, Query, description = "The first day, e.g. 2026-11-22. Default: six days before `to`."),
        ("to" = Option<String>, Query, description = "The last day. Default: today."),
        ("tenant" = Option<String>, Query, description = "The tenant. Default: your own; for operators, all tenants."),
        ("endpoint" = Option<String>, Query, description = "With `by=job`: return only jobs of this endpoint."),
        ("batch" = Option<String>, Query, description = "With `by=job`: return only lines of this batch."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "The maximum number of rows. Default: 100 with `by=job`, otherwise all rows up to 1,000."),
    ),
    responses((status = 200, description = "The costs.", body = CostsView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller<JobsRead>,
    params: Params,
) -> Result<Json<CostsView>, Problem> {
    let asked = asked(&caller, params)?;
    let by = match asked.by {
        ByWord::Endpoint => By::Endpoint,
        ByWord::Tenant => By::Tenant,
        ByWord::Batch => By::Batch,
        ByWord::Machine => By::Machine,
        ByWord::Day => By::Day,
        ByWord::Job => By::Endpoint,
    };
    let apart = asked.by == ByWord::Machine && asked.tenant.is_none();
    let lines = app.costs.lines(asked.from..=asked.to, apart).await?;
    let report = report(&lines, by, asked.tenant.as_deref(), &app.config.costs.hosted);
    let limit = asked.limit.unwrap_or(JOBS_MAX);
    let rows = match asked.by {
        ByWord::Job => jobs(&app, &asked, &caller.tenant).await?,
        _ => report.rows.iter().map(|row| RowView::new(row, asked.by)).collect(),
    };
    Ok(Json(CostsView::new(asked.by, (asked.from, asked.to), rows, limit, &report)))
}

/// Today's cost of jobs by endpoint, of one tenant or, with `None`, of all.
pub(crate) async fn today(config: &Config, costs: &Costs, tenant: Option<&str>) -> Result<CostsView, Problem> {
    let today = day_of(now_ms());
    let lines = costs.lines(today..=today, false).await?;
    let report = report(&lines, By::Endpoint, tenant, &config.costs.hosted);
    let rows = report.rows.iter().map(|row| RowView::new(row, ByWord::Endpoint)).collect();
    Ok(CostsView::new(ByWord::Endpoint, (today, today), rows, JOBS_MAX, &report))
}

fn asked(caller: &Caller<JobsRead>, mut params: Params) -> Result<Asked, Problem> {
    let day = |text: &str| time_format::parse(&format!("{text}T00:00:00Z")).map(day_of);
    let name = |text: &str| names::is_name(text).then(|| text.to_owned());
    let text = |text: &str| matches!(text.len(), 1..=255).then(|| text.to_owned());
    let by = params.take("by", &format!("one of {}", ByWord::words()), ByWord::parse)?.unwrap_or(ByWord::Endpoint);
    let to = params.take("to", "a day, e.g. 2026-11-22", day)?.unwrap_or_else(|| day_of(now_ms()));
    let from = params.take("from", "a day, e.g. 2026-11-22", day)?.unwrap_or(to.saturating_sub(DAYS - 1));
    let tenant = params.take("tenant", "a tenant's name", name)?;
    let endpoint = params.take("endpoint", "an endpoint's name", name)?;
    let batch = params.take("batch", "a batch's id", text)?;
    let read = |text: &str| text.parse().ok().filter(|n| (1..=JOBS_MAX).contains(n));
    let limit = params.take("limit", &format!("1 to {JOBS_MAX}"), read)?;
    params.finish()?;
    if from > to {
        return Err(Problem::query("from", "must not be after `to`"));
    }
    if to - from >= DAYS_MAX {
        return Err(Problem::query("from", format!("must be less than {DAYS_MAX} days before `to`")));
    }
    if by != ByWord::Job && (endpoint.is_some() || batch.is_some()) {
        return Err(Problem::query("by", "must be job to filter by endpoint or batch"));
    }
    let tenant = match tenant {
        Some(other) if other != caller.tenant && !caller.operates => {
            return Err(Problem::new(
                Code::Forbidden,
                "another tenant's costs require the operator scope workers:read",
            ));
        }
        None if !caller.operates => Some(caller.tenant.clone()),
        named => named,
    };
    if by == ByWord::Machine && !caller.operates {
        return Err(Problem::new(
            Code::Forbidden,
            "instances serve every tenant; listing their costs requires the scope workers:read",
        ));
    }
    Ok(Asked { by, from, to, tenant, endpoint, batch, limit })
}

/// The newest jobs of one tenant that ended in these days and are not archived yet. The tenant is the caller's own,
/// unless another is named.
async fn jobs(app: &App, asked: &Asked, own: &str) -> Result<Vec<RowView>, Problem> {
    let (tenant, limit) = (asked.tenant.as_deref().unwrap_or(own), asked.limit.unwrap_or(JOBS));
    let filter = ListFilter { endpoint: asked.endpoint.clone(), batch: asked.batch.clone(), ..ListFilter::default() };
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..PAGES_MAX {
        let page = app.db.ask("list jobs", app.db.queue.list(tenant, &filter, cursor.as_deref(), PAGE)).await?;
        let is_within = |ended_ms: u64| (asked.from..=asked.to).contains(&day_of(ended_ms));
        let ended = page.jobs.into_iter().filter(|job| job.ended_ms.is_some_and(is_within));
        found.extend(ended.take(limit - found.len()));
        cursor = page.next_cursor;
        if cursor.is_none() || found.len() >= limit {
            break;
        }
    }
    let costs = app.costs.of_jobs(&found).await?;
    Ok(found.iter().zip(costs).map(|(job, cost)| RowView::of_job(job, cost)).collect())
}
