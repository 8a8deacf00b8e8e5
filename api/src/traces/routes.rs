//! `GET /v1/jobs/{id}/trace`: the timings of a job as an OpenTelemetry trace.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use stokehold_queue::now_ms;
use utoipa::ToSchema;

use crate::config::Config;
use crate::database::Database;
use crate::error::Problem;
use crate::history::Jobs;
use crate::jobs::routes::own;
use crate::server::path::Path;
use crate::tenants::auth::{Caller, JobsRead};
use crate::traces::deliveries;
use crate::traces::job_trace::trace_of;
use crate::traces::otlp;

/// Service name of the spans' resource without a configured collector.
const SERVICE: &str = "stokehold";

/// A trace as OTLP/JSON (<https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>). Ids are hex digits; times
/// are nanoseconds since 1970, as text.
#[derive(ToSchema)]
#[schema(as = Trace, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what OpenTelemetry's own types write")]
pub(crate) struct TraceView {
    /// One entry, with the job's spans grouped by service.
    #[schema(value_type = Vec<Object>)]
    resource_spans: (),
}

/// Get a job's trace
///
/// The trace is built from the job's record, so every job has one: SDK, API, queue, the parts of each attempt,
/// webhooks. For a job that has not ended, it covers what has happened so far. A part of zero length marked
/// `stokehold.warm` was already done before.
#[utoipa::path(get, operation_id = "get_job_trace", path = "/v1/jobs/{id}/trace", tag = "jobs",
    params(("id" = String, Path, description = "The job's id.")),
    responses((status = 200, description = "The job's trace.", body = TraceView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    State(jobs): State<Arc<Jobs>>,
    caller: Caller<JobsRead>,
    Path(id): Path<String>,
) -> Result<Json<ExportTraceServiceRequest>, Problem> {
    let job = own(&jobs, &caller.tenant, &id).await?;
    let deliveries = deliveries(&db, &job).await?;
    let service = config.traces.exporter.as_ref().map_or(SERVICE, |exporter| exporter.service_name.as_str());
    Ok(Json(otlp::request(service, &[trace_of(&job, &deliveries, now_ms())])))
}
