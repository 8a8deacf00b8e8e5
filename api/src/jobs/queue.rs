//! `GET /v1/queue`: ready jobs that have not started, and the reasons.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use stokehold_queue::costs::day_of;
use stokehold_queue::job::{JobSpec, Priority};
use stokehold_queue::queue::LaneDepth;
use stokehold_queue::requirements::Requirements;
use stokehold_queue::{Queue, capability, now_ms};
use utoipa::ToSchema;

use super::view::WaitingView;
use super::words::PriorityWord;
use crate::costs::budgets::spent_budget;
use crate::endpoints::requirements::RequirementsRequest;
use crate::error::Problem;
use crate::jobs::lanes::{LaneParts, parts_of_lane};
use crate::jobs::waiting;
use crate::state::App;
use crate::tenants::auth::{Caller, WorkersRead};
use crate::time_format::rfc3339;

/// Concurrent requests to Redis.
const AT_ONCE: usize = 32;

/// Lanes with ready jobs, longest first; at most 1,000.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueueView {
    lanes: Vec<LaneView>,
}

/// The ready jobs of one endpoint, at one priority, for one GPU class.
#[derive(Serialize, ToSchema)]
#[schema(as = Lane)]
pub(crate) struct LaneView {
    tenant: String,
    endpoint: String,
    #[schema(value_type = PriorityWord)]
    priority: Priority,
    /// The GPU memory class; 0 is the CPU.
    vram_class_gib: u32,
    /// The endpoint's other requirements for workers; empty if it has none.
    #[schema(value_type = RequirementsRequest)]
    demands: Requirements,
    /// The number of jobs.
    jobs: u64,
    /// Since when the first of them is ready, RFC 3339; null if all wait for their concurrency key.
    oldest_at: Option<String>,
    waiting: WaitingView,
    /// When they are expected to be done, as estimated by the autoscaler from current and coming instances. Null if no
    /// autoscaler runs, or if nothing that could run them exists or is coming.
    eta_s: Option<u64>,
}

/// List waiting jobs
///
/// The list covers all tenants, so this requires the operator scope `workers:read`.
#[utoipa::path(get, operation_id = "get_queue", path = "/v1/queue", tag = "workers",
    responses((status = 200, description = "The jobs that are ready and have not started.", body = QueueView), crate::server::responses::Problems))]
pub(crate) async fn get(State(app): State<App>, _: Caller<WorkersRead>) -> Result<Json<QueueView>, Problem> {
    look(&app).await.map(Json)
}

/// Returns the waiting jobs now.
pub(crate) async fn look(app: &App) -> Result<QueueView, Problem> {
    let now = now_ms();
    let (depths, budgets, fleet, autoscaler) = tokio::try_join!(
        app.db.ask("read the lanes", app.db.queue.depth()),
        app.db.ask("read the budgets", app.db.queue.budgets(day_of(now))),
        app.fleets.fleet(),
        app.db.ask("read the autoscaler's status", app.db.registry.autoscaler()),
    )?;
    let status = autoscaler.filter(|status| status.is_current(now));
    let etas = status.as_ref().map_or(&[][..], |status| &status.etas);
    let eta_s = |lane: &LaneParts<'_>| {
        let name = format!("{}/{}", lane.tenant, lane.endpoint);
        etas.iter().find(|eta| eta.endpoint == name && eta.priority == lane.priority.digit())?.seconds
    };
    // Each endpoint once, regardless of its priorities and classes.
    let named: BTreeSet<(&str, &str)> =
        depths.iter().filter_map(|depth| parts_of_lane(&depth.lane)).map(|lane| (lane.tenant, lane.endpoint)).collect();
    let held = named.into_iter().map(|(tenant, endpoint)| async move {
        let spec = JobSpec { tenant: tenant.to_owned(), endpoint: endpoint.to_owned(), ..JobSpec::default() };
        Ok::<_, Problem>(((tenant, endpoint), waiting::held_back(&app.db, &spec).await?))
    });
    let held: BTreeMap<_, _> = stream::iter(held.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).try_collect().await?;
    let lane = |depth: &LaneDepth| {
        let lane = parts_of_lane(&depth.lane)?;
        let (demands, vram_class_gib) = capability::parts_of(lane.class);
        Some(LaneView {
            tenant: lane.tenant.to_owned(),
            endpoint: lane.endpoint.to_owned(),
            priority: lane.priority,
            vram_class_gib,
            demands: fleet.demands(demands).cloned().unwrap_or_default(),
            jobs: depth.jobs,
            oldest_at: depth.since_ms.map(rfc3339),
            waiting: spent_budget(lane.tenant, lane.endpoint, &budgets, now)
                .or_else(|| held.get(&(lane.tenant, lane.endpoint)).cloned().flatten())
                .unwrap_or_else(|| fleet.why(vram_class_gib, demands))
                .into(),
            eta_s: eta_s(&lane),
        })
    };
    Ok(QueueView { lanes: depths.iter().filter_map(lane).collect() })
}
