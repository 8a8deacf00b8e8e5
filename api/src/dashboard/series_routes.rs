//! `GET /v1/series`: recent arrivals, runs and waiting jobs, step by step.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stokehold_queue::now_ms;
use stokehold_queue::series::{MINUTES_MAX, Point, STEP_MS};
use utoipa::ToSchema;

use crate::database::Database;
use crate::error::{Code, Problem};
use crate::names;
use crate::server::query::Params;
use crate::tenants::auth::{Caller, JobsRead};

/// Default number of minutes.
const MINUTES: u64 = 60;

/// Arrivals, runs and waiting jobs over time.
#[derive(Serialize, ToSchema)]
#[schema(as = Series)]
pub(crate) struct SeriesView {
    /// The length of a step, seconds.
    step_s: u64,
    /// Oldest first. Steps without data are absent.
    points: Vec<PointView>,
}

/// One step. Counts cover the step; other values are as of its end.
#[derive(Serialize, ToSchema)]
#[schema(as = SeriesPoint)]
pub(crate) struct PointView {
    /// When the step ended, Unix milliseconds.
    at_ms: u64,
    /// Jobs that became ready.
    arrived: u32,
    /// Jobs that started for the first time.
    started: u32,
    /// Jobs that ended.
    ended: u32,
    /// Ended jobs that failed or expired.
    failed: u32,
    waiting: WaitingByPriority,
    /// Jobs that were running.
    running: u32,
    /// Instances that existed or were coming; null for a single tenant.
    machines: Option<u32>,
    /// The cost of all instances; null for a single tenant.
    usd_micros_per_hour: Option<u64>,
}

/// Jobs that waited only for a worker.
#[derive(Serialize, ToSchema)]
pub(crate) struct WaitingByPriority {
    interactive: u32,
    standard: u32,
    batch: u32,
}

impl PointView {
    fn new(at_ms: u64, point: Point, whole: bool) -> Self {
        let [interactive, standard, batch] = point.waiting;
        Self {
            at_ms,
            arrived: point.arrived,
            started: point.started,
            ended: point.ended,
            failed: point.failed,
            waiting: WaitingByPriority { interactive, standard, batch },
            running: point.running,
            machines: whole.then_some(point.machines),
            usd_micros_per_hour: whole.then_some(point.usd_micros_per_hour),
        }
    }
}

/// Get arrivals, runs and waiting jobs over time
///
/// A tenant sees its own; a token with the scope `workers:read` sees all tenants together, and the instances.
#[utoipa::path(get, operation_id = "get_series", path = "/v1/series", tag = "dashboard",
    params(
        ("minutes" = Option<u64>, Query, minimum = 1, maximum = 1440, description = "How many minutes back, 1 to 1,440; default 60."),
        ("tenant" = Option<String>, Query, description = "The tenant. Default: your own; for operators, all tenants."),
    ),
    responses((status = 200, description = "One entry per step.", body = SeriesView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsRead>,
    mut params: Params,
) -> Result<Json<SeriesView>, Problem> {
    let read = |text: &str| text.parse().ok().filter(|n| (1..=MINUTES_MAX).contains(n));
    let minutes = params.take("minutes", &format!("1 to {MINUTES_MAX}"), read)?.unwrap_or(MINUTES);
    let name = |text: &str| names::is_name(text).then(|| text.to_owned());
    let tenant = params.take("tenant", "a tenant's name", name)?;
    params.finish()?;
    let tenant = match tenant {
        Some(other) if other != caller.tenant && !caller.operates => {
            return Err(Problem::new(
                Code::Forbidden,
                "another tenant's series requires the operator scope workers:read",
            ));
        }
        None if !caller.operates => Some(caller.tenant),
        named => named,
    };
    let series = db.registry.series();
    let points = db.ask("read the series", series.read(tenant.as_deref(), minutes, now_ms())).await?;
    let points = points.into_iter().map(|(at_ms, point)| PointView::new(at_ms, point, tenant.is_none())).collect();
    Ok(Json(SeriesView { step_s: STEP_MS / 1000, points }))
}
