//! `GET /v1/endpoints/{name}/stats`: statistics of an endpoint's versions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stokehold_queue::feedback::Tally;
use stokehold_queue::timings::{HOURS_MAX, VersionTimings};
use utoipa::ToSchema;

use crate::database::Database;
use crate::error::{Code, Problem};
use crate::names;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::tenants::auth::{Caller, JobsRead};

/// The default number of hours.
const HOURS: u64 = 24;

/// The statistics of an endpoint's versions.
#[derive(Serialize, ToSchema)]
#[schema(as = EndpointStats)]
pub(crate) struct StatsView {
    /// Versions that ran, newest first.
    versions: Vec<VersionStats>,
}

/// The statistics of a version. Null where there is no data.
#[derive(Serialize, ToSchema)]
pub(crate) struct VersionStats {
    version: u32,
    /// Attempts that ended by themselves.
    runs: u64,
    /// Attempts that produced a result.
    succeeded: u64,
    failed: u64,
    /// Accepted results, by the feedback on this version since it was deployed.
    task_succeeded: Option<u64>,
    /// Results that were not accepted.
    task_failed: Option<u64>,
    /// The cost of running and loading per 1,000 runs, at the instances' prices; `GET /v1/costs` has the other costs.
    usd_micros_per_1000: Option<u64>,
    timing: TimingStats,
}

/// Where the time of successful runs went, milliseconds; within 5 %.
#[derive(Serialize, ToSchema)]
pub(crate) struct TimingStats {
    /// From ready to leased.
    queue_ms: Option<Quantiles>,
    env_ms: Option<Quantiles>,
    weights_ms: Option<Quantiles>,
    boot_ms: Option<Quantiles>,
    load_ms: Option<Quantiles>,
    warmup_ms: Option<Quantiles>,
    run_ms: Option<Quantiles>,
    upload_ms: Option<Quantiles>,
    /// From ready to ended.
    total_ms: Option<Quantiles>,
}

/// The median and the 95th percentile. Runs that did not need a part count as 0.
#[derive(Serialize, ToSchema)]
pub(crate) struct Quantiles {
    p50: u64,
    p95: u64,
}

impl VersionStats {
    fn new(seen: &VersionTimings, tally: Option<&Tally>) -> Self {
        let runs = seen.succeeded + seen.failed;
        let judged = tally.filter(|tally| tally.judged > 0);
        let per_1000 = (u128::from(seen.usd_micros) * 1_000).checked_div(u128::from(runs));
        let part = |name| {
            let [p50, p95] = [0.5, 0.95].map(|share| seen.quantile_ms(name, share));
            Some(Quantiles { p50: p50?, p95: p95? })
        };
        // Every run has these parts, also if each took less than a millisecond.
        let always = |name| part(name).or_else(|| (runs > 0).then_some(Quantiles { p50: 0, p95: 0 }));
        Self {
            version: seen.version,
            runs,
            succeeded: seen.succeeded,
            failed: seen.failed,
            task_succeeded: judged.map(|tally| tally.accepted),
            task_failed: judged.map(|tally| tally.judged.saturating_sub(tally.accepted)),
            usd_micros_per_1000: per_1000.map(|usd| u64::try_from(usd).unwrap_or(u64::MAX)),
            timing: TimingStats {
                queue_ms: always("queue"),
                env_ms: part("env"),
                weights_ms: part("weights"),
                boot_ms: part("boot"),
                load_ms: part("load"),
                warmup_ms: part("warmup"),
                run_ms: always("run"),
                upload_ms: part("upload"),
                total_ms: always("total"),
            },
        }
    }
}

/// Get the statistics of an endpoint's versions
#[utoipa::path(get, operation_id = "get_endpoint_stats", path = "/v1/endpoints/{name}/stats", tag = "endpoints",
    params(
        ("name" = String, Path, description = "The endpoint's name."),
        ("hours" = Option<u64>, Query, minimum = 1, maximum = 48, description = "How many hours back, including the current one: 1 to 48; default 24."),
    ),
    responses((status = 200, description = "The statistics of the endpoint's versions.", body = StatsView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsRead>,
    Path(name): Path<String>,
    mut params: Params,
) -> Result<Json<StatsView>, Problem> {
    let read = |text: &str| text.parse().ok().filter(|n| (1..=HOURS_MAX).contains(n));
    let hours = params.take("hours", &format!("1 to {HOURS_MAX}"), read)?.unwrap_or(HOURS);
    params.finish()?;
    let tenant = caller.tenant.as_str();
    let unknown = || Problem::new(Code::UnknownEndpoint, format!("there is no endpoint {name:?}"));
    if !names::is_name(&name) {
        return Err(unknown());
    }
    db.ask("read an endpoint", db.registry.endpoint(tenant, &name, None)).await?.ok_or_else(unknown)?;
    let (home, counters) = (db.home(tenant).await?, db.queue.feedback());
    let (seen, tallies) = tokio::try_join!(
        db.ask("read how long attempts took", home.timings(tenant, &name, hours, db.now_ms())),
        db.ask("read the feedback", counters.tallies(tenant, Some(&name))),
    )?;
    let tally = |version: u32| tallies.iter().find(|tally| tally.version == version);
    let versions = seen.iter().map(|seen| VersionStats::new(seen, tally(seen.version))).collect();
    Ok(Json(StatsView { versions }))
}
