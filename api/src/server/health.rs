//! Health endpoints of this replica for probes and monitoring: liveness, readiness and metrics. No token is needed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stokehold_metrics::Metrics;
use stokehold_queue::Health as ShardHealth;
use stokehold_supervise::Supervisor;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::error::ProblemBody;
use crate::server::readiness::{Reachable, Readiness};
use crate::state::App;
use crate::tenants::auth::{Caller, WorkersRead};

/// The health of this replica.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
    /// What an accepted job survives: `strict` (a power cut), `standard` (any crash of a process) or `ephemeral`
    /// (nothing).
    durability: &'static str,
    /// The number of Redis replicas that hold a job, or its end, before it is acknowledged.
    replicas_to_wait: u32,
    /// Whether new work is accepted, as of the last second; with several shards, on all of them.
    admission: Admission,
    /// The state of Redis, as of the last second; with several shards, the fullest one.
    redis: Memory,
    /// This API's release.
    release: &'static str,
}

/// Whether new work is accepted. Accepted work continues in any case.
#[derive(Serialize, ToSchema)]
pub(crate) struct Admission {
    /// Whether new work is accepted.
    open: bool,
    /// The reason for refusing new work.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The memory and the replicas of Redis.
#[derive(Serialize, ToSchema)]
pub(crate) struct Memory {
    /// Memory in use.
    memory_used_bytes: u64,
    /// The `maxmemory` setting; 0 without a limit.
    memory_max_bytes: u64,
    /// Replicas in sync.
    replicas: u32,
}

/// Whether this replica can serve requests.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Ready {
    /// The queue answers, this replica is not shutting down, and no background duty that jobs depend on panics
    /// repeatedly.
    ready: bool,
    /// The queue answers.
    redis: bool,
    /// The object store answers. Without it, results and files wait but everything else continues, so it does not
    /// affect `ready`.
    s3: bool,
    /// Background duties of this replica whose last five rounds failed, by name. The log has the reasons.
    failing: Vec<&'static str>,
}

impl Ready {
    /// A replica that has not reached Redis and the object store yet.
    pub(crate) const STARTING: Self = Self { ready: false, redis: false, s3: false, failing: Vec::new() };
}

/// Check liveness
#[utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses(
        (status = 200, description = "The process is alive.", body = Health),
        (status = 503, description = "The replica is starting.", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn healthz(State(app): State<App>) -> Json<Health> {
    let shards = app.db.queue.health();
    let used = |shard: &ShardHealth| shard.vitals.used_bytes.saturating_mul(100) / shard.vitals.max_bytes.max(1);
    let fullest = shards.iter().max_by_key(|shard| used(shard)).map(|shard| shard.vitals.clone()).unwrap_or_default();
    let refusal = shards.iter().enumerate().find_map(|(shard, health)| Some((shard, health.refusal?)));
    Json(Health {
        status: "ok",
        durability: app.durability.as_str(),
        replicas_to_wait: shards.iter().map(|shard| shard.replicas_to_wait).min().unwrap_or(0),
        admission: Admission {
            open: refusal.is_none(),
            reason: refusal.map(|(shard, why)| match shards.len() {
                1 => why.to_string(),
                _ => format!("shard {shard}: {why}"),
            }),
        },
        redis: Memory {
            memory_used_bytes: fullest.used_bytes,
            memory_max_bytes: fullest.max_bytes,
            replicas: shards.iter().map(|shard| shard.vitals.replicas).min().unwrap_or(0),
        },
        release: env!("CARGO_PKG_VERSION"),
    })
}

/// Check readiness
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses(
        (status = 200, description = "The replica can serve.", body = Ready),
        (status = 503, description = "The replica cannot serve: send requests to another one.", body = Ready),
    ))]
pub(crate) async fn readyz(
    State(supervisor): State<Supervisor>,
    State(readiness): State<Arc<Readiness>>,
    State(shutdown): State<CancellationToken>,
) -> Response {
    let Reachable { redis, s3 } = readiness.reachable().await;
    let ready = redis && !shutdown.is_cancelled() && !supervisor.blocks_readiness();
    let ready = Ready { ready, redis, s3, failing: supervisor.failing() };
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ready)).into_response()
}

/// Get Prometheus metrics
///
/// The metrics of this replica are public; the metrics of the installation name tenants and machines and require a
/// token with the scope `workers:read`.
#[utoipa::path(get, path = "/metrics", tag = "health", security((), ("bearer" = [])),
    responses((status = 200, description = "Metrics in the Prometheus text format.", content_type = "text/plain", body = String), crate::server::responses::Problems))]
pub(crate) async fn metrics(State(exposition): State<Metrics>, operator: Option<Caller<WorkersRead>>) -> Response {
    let mut text = exposition.events();
    match operator {
        Some(_) => text.push_str(&exposition.snapshots_text()),
        None => text.push_str("# The metrics of the installation require a token with the scope workers:read.\n"),
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
