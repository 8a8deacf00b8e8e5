//! The worker gateway: one file per route under `/worker/v1/`. Messages are in `stokehold_queue::gateway`; inputs and
//! results are passed through unchanged.

pub(crate) mod advice;
mod endpoint;
mod events;
mod extend;
mod finish;
mod join;
mod lease;
mod needs;
pub(crate) mod output_relay;
pub(crate) mod own;
mod release;
mod secrets;
mod uploads;

use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};

use crate::state::App;

/// Maximum size of a worker's request body, bytes. It is larger than for other routes: 100 results of 16 KiB, or as
/// many tracebacks.
const BODY_MAX: usize = 8 << 20;

/// Lifetime of a worker's token; `extend` renews it after half of it.
const TOKEN_TTL: Duration = Duration::from_secs(15 * 60);

/// Lifetime of a presigned URL for a worker.
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
