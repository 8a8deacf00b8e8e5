use axum::Json as JsonAnswer;
use axum::extract::State;
use stokehold_queue::gateway::{ReleaseReply, ReleaseRequest};
use stokehold_queue::{BATCH_MAX, Queue};

use crate::auth::JoinedWorker;
use crate::error::Problem;
use crate::json::Json;
use crate::state::App;

/// `release`: hand leases back unharmed.
pub(super) async fn release(
    State(app): State<App>,
    _: JoinedWorker,
    Json(request): Json<ReleaseRequest>,
) -> Result<JsonAnswer<ReleaseReply>, Problem> {
    if request.leases.len() > BATCH_MAX {
        return Err(Problem::field("/leases", format!("must be at most {BATCH_MAX}")));
    }
    let released = app.ask_again("release", || app.queue.release(&request.leases)).await?;
    Ok(JsonAnswer(ReleaseReply { released }))
}
