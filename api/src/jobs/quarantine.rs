//! `/v1/quarantine`: jobs whose records cannot be read, for operators.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use stokehold_queue::JobId;
use stokehold_queue::quarantine::{Discarded, LIST_MAX, Quarantine, Quarantined, Readmitted};
use utoipa::ToSchema;

use crate::database::Database;
use crate::error::Problem;
use crate::jobs::words::StateWord;
use crate::server::json::Json;
use crate::tenants::auth::{Caller, TenantsRead, TenantsWrite};
use crate::time_format::rfc3339;

/// Maximum number of jobs that one request names.
const IDS_MAX: usize = 100;

/// The quarantined jobs, oldest first; at most 1,000 per shard.
#[derive(Serialize, ToSchema)]
#[schema(as = Quarantine)]
pub(crate) struct QuarantineView {
    jobs: Vec<QuarantinedView>,
    /// The number of quarantined jobs.
    total: u64,
}

/// A job whose record cannot be read.
#[derive(Serialize, ToSchema)]
#[schema(as = QuarantinedJob)]
pub(crate) struct QuarantinedView {
    id: String,
    /// The tenant; null if the record does not name it.
    tenant: Option<String>,
    /// The endpoint; null if the record does not name it.
    endpoint: Option<String>,
    /// The state before the quarantine; null if the record does not name it.
    #[schema(value_type = Option<StateWord>)]
    state: Option<String>,
    /// Since when the job is quarantined, RFC 3339.
    since: String,
    /// What could not be read.
    why: String,
}

impl From<Quarantined> for QuarantinedView {
    fn from(Quarantined { id, since_ms, why, state, tenant, endpoint }: Quarantined) -> Self {
        let state = state.map(|state| state.as_str().to_owned());
        Self { id: id.to_string(), tenant, endpoint, state, since: rfc3339(since_ms), why }
    }
}

/// The jobs to act on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QuarantineRequest)]
pub(crate) struct QuarantineRequest {
    /// Their ids, 1 to 100.
    ids: Vec<String>,
}

/// The outcomes, in order.
#[derive(Serialize, ToSchema)]
#[schema(as = QuarantineOutcomes)]
pub(crate) struct OutcomesView {
    jobs: Vec<OutcomeView>,
}

/// The outcome of one job.
#[derive(Serialize, ToSchema)]
#[schema(as = QuarantineOutcome)]
pub(crate) struct OutcomeView {
    id: String,
    /// The new state, e.g. `queued` or `failed`; `deleted`; `unreadable`: the job stays quarantined; or `not_found`: it
    /// is not quarantined.
    outcome: String,
    /// Why the job stays quarantined; null if it does not.
    why: Option<String>,
}

/// List quarantined jobs
///
/// The list covers all tenants, so this requires the operator scope `tenants:read`.
#[utoipa::path(get, operation_id = "get_quarantine", path = "/v1/quarantine", tag = "jobs",
    responses((status = 200, description = "The jobs whose records cannot be read.", body = QuarantineView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    _: Caller<TenantsRead>,
) -> Result<JsonAnswer<QuarantineView>, Problem> {
    let shards: Vec<Quarantine> = db.queue.all().iter().map(|shard| shard.quarantine()).collect();
    let (listed, counted) = tokio::try_join!(
        db.ask("list quarantined jobs", try_join_all(shards.iter().map(|shard| shard.list(LIST_MAX)))),
        db.ask("count quarantined jobs", try_join_all(shards.iter().map(Quarantine::count))),
    )?;
    let mut jobs: Vec<Quarantined> = listed.into_iter().flatten().collect();
    jobs.sort_by_key(|job| (job.since_ms, job.id));
    Ok(JsonAnswer(QuarantineView {
        jobs: jobs.into_iter().map(QuarantinedView::from).collect(),
        total: counted.iter().sum(),
    }))
}

/// Readmit quarantined jobs
///
/// Each job returns to the front of its queue, even if it ran, or to where it waited. A job whose record still cannot
/// be read stays quarantined.
#[utoipa::path(post, operation_id = "readmit_quarantined", path = "/v1/quarantine/readmit", tag = "jobs", request_body = QuarantineRequest,
    responses((status = 200, description = "The outcome for each job.", body = OutcomesView), crate::server::responses::Problems))]
pub(crate) async fn readmit(
    State(db): State<Arc<Database>>,
    _: Caller<TenantsWrite>,
    Json(body): Json<QuarantineRequest>,
) -> Result<JsonAnswer<OutcomesView>, Problem> {
    let mut jobs = Vec::new();
    for id in body.checked()? {
        let answer = match quarantine_of(&db, id) {
            Some(shard) => db.ask_again("readmit a job", || shard.readmit(id)).await?,
            None => Readmitted::NotFound,
        };
        let (outcome, why) = match answer {
            Readmitted::Ok(state) => (state.as_str(), None),
            Readmitted::Unreadable(why) => ("unreadable", Some(why)),
            Readmitted::NotFound => ("not_found", None),
        };
        jobs.push(OutcomeView { id: id.to_string(), outcome: outcome.to_owned(), why });
    }
    Ok(JsonAnswer(OutcomesView { jobs }))
}

/// Discard quarantined jobs
///
/// Each job fails with the error `infra`; a job whose record does not allow even that is deleted.
#[utoipa::path(post, operation_id = "discard_quarantined", path = "/v1/quarantine/discard", tag = "jobs", request_body = QuarantineRequest,
    responses((status = 200, description = "The outcome for each job.", body = OutcomesView), crate::server::responses::Problems))]
pub(crate) async fn discard(
    State(db): State<Arc<Database>>,
    _: Caller<TenantsWrite>,
    Json(body): Json<QuarantineRequest>,
) -> Result<JsonAnswer<OutcomesView>, Problem> {
    let mut jobs = Vec::new();
    for id in body.checked()? {
        let answer = match quarantine_of(&db, id) {
            Some(shard) => db.ask_again("discard a job", || shard.discard(id)).await?,
            None => Discarded::NotFound,
        };
        let outcome = match answer {
            Discarded::Failed => "failed",
            Discarded::Deleted => "deleted",
            Discarded::NotFound => "not_found",
        };
        jobs.push(OutcomeView { id: id.to_string(), outcome: outcome.to_owned(), why: None });
    }
    Ok(JsonAnswer(OutcomesView { jobs }))
}

impl QuarantineRequest {
    fn checked(&self) -> Result<Vec<JobId>, Problem> {
        if !(1..=IDS_MAX).contains(&self.ids.len()) {
            return Err(Problem::field("/ids", format!("must be 1 to {IDS_MAX} ids")));
        }
        let parsed = self
            .ids
            .iter()
            .enumerate()
            .map(|(n, id)| id.parse().map_err(|_| Problem::field(format!("/ids/{n}"), "is not a job id")));
        parsed.collect()
    }
}

fn quarantine_of(db: &Database, id: JobId) -> Option<Quarantine> {
    db.queue.all().get(usize::from(id.shard())).map(|shard| shard.quarantine())
}
