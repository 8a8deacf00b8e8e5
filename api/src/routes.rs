//! The public API: one file per noun, each with its own structs.

pub(crate) mod batches;
pub(crate) mod endpoints;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod packages;
pub(crate) mod results;
pub(crate) mod submit;
pub(crate) mod view;
pub(crate) mod workers;

use axum::Router;
use axum::routing::{get, post};

use crate::state::App;

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/v1/jobs", post(submit::one).get(jobs::list))
        .route("/v1/jobs/bulk", post(submit::bulk))
        .route("/v1/jobs/{id}", get(jobs::get))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{id}/events", get(events::events))
        .route("/v1/jobs/{id}/result", get(results::result))
        .route("/v1/jobs/{id}/files/{name}", get(results::file))
        .route("/v1/batches", post(batches::create).get(batches::list))
        .route("/v1/batches/{id}", get(batches::get))
        .route("/v1/batches/{id}/cancel", post(batches::cancel))
        .route("/v1/batches/{id}/retry-failed", post(batches::retry_failed))
        .route("/v1/batches/{id}/results", get(batches::results))
        .route("/v1/batches/{id}/errors", get(batches::errors))
        .route("/v1/packages", post(packages::create))
        .route("/v1/endpoints", post(endpoints::deploy).get(endpoints::list))
        .route("/v1/endpoints/{name}", get(endpoints::get))
        .route("/v1/endpoints/{name}/versions", get(endpoints::versions))
        .route("/v1/files", post(files::create))
        .route("/v1/files/{id}", get(files::get))
        .route("/v1/workers", get(workers::list))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(crate::openapi::document))
}
