//! The worker gateway: one file per route under `/worker/v1/`. Messages are in `stokehold_queue::gateway`; inputs and results pass
//! through as they are.

pub(crate) mod advice;
mod endpoint;
mod events;
mod extend;
mod finish;
mod join;
mod lease;
mod needs;
pub(crate) mod own;
mod release;
mod secrets;
mod uploads;

use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};

use crate::state::App;

/// A worker's bodies may be larger than others: 100 results of 16 KiB, or as many tracebacks.
const BODY_MAX: usize = 8 << 20;

/// A worker's token lives this long; `extend` renews it when half is gone.
const TOKEN_TTL: Duration = Duration::from_secs(15 * 60);

/// How long a presigned URL for a worker may be used.
const URL_TTL: Duration = Duration::from_secs(3600);

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/worker/v1/join", post(join::join))
        .route("/worker/v1/lease", post(lease::lease))
        .route("/worker/v1/extend", post(extend::extend))
        .route("/worker/v1/finish", post(finish::finish))
        .route("/worker/v1/release", post(release::release))
        .route("/worker/v1/events", post(events::events))
        .route("/worker/v1/uploads", post(uploads::uploads))
        .route("/worker/v1/secrets", post(secrets::secrets))
        .route("/worker/v1/endpoints/{tenant}/{name}/{version}", get(endpoint::endpoint))
}
