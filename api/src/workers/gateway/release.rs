use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use stokehold_queue::gateway::{FinishAnswer, LeaseRef, ReleaseReply, ReleaseRequest};
use stokehold_queue::{BATCH_MAX, Queue};

use super::own;
use crate::database::Database;
use crate::error::Problem;
use crate::server::json::Json;
use crate::tenants::auth::JoinedWorker;
use crate::workers::gateway::own::Ownership;

/// `release`: returns leases to the queue without ending their jobs.
pub(super) async fn release(
    State(db): State<Arc<Database>>,
    State(ownership): State<Arc<Ownership>>,
    worker: JoinedWorker,
    Json(request): Json<ReleaseRequest>,
) -> Result<JsonAnswer<ReleaseReply>, Problem> {
    if request.leases.len() > BATCH_MAX {
        return Err(Problem::field("/leases", format!("must be at most {BATCH_MAX}")));
    }
    let holdings = ownership.holdings(&request.leases).await?;
    let is_own: Vec<bool> =
        holdings.iter().map(|holding| !own::is_anothers(holding.as_ref(), &worker.worker_id)).collect();
    let leases: Vec<LeaseRef> =
        request.leases.into_iter().zip(&is_own).filter(|(_, is_own)| **is_own).map(|(lease, _)| lease).collect();
    let mut answers = db.ask_again("release", || db.queue.release(&leases)).await?.into_iter();
    let answer = |is_own: bool| is_own.then(|| answers.next()).flatten().unwrap_or(FinishAnswer::StaleFence);
    Ok(JsonAnswer(ReleaseReply { released: is_own.into_iter().map(answer).collect() }))
}
