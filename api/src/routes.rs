//! The public API: the router of all public routes.

use axum::Router;
use axum::routing::{delete, get, post, put};

use crate::batches::routes as batches;
use crate::costs::routes as costs;
use crate::dashboard::{live_routes as live, series_routes as series, session_routes as session};
use crate::endpoints::{
    deploy, needs, packages, requirement_set_routes as requirement_sets, routes as endpoints, stats, traffic, undeploy,
    weights,
};
use crate::files::{self, list_routes, upload_routes};
use crate::jobs::feedback::routes as feedback;
use crate::jobs::{events, quarantine, queue, redrive, results, routes as jobs, submit};
use crate::schedules::routes as schedules;
use crate::secrets::routes as secrets;
use crate::server::health;
use crate::state::App;
use crate::tenants::{audit_routes as audit, limits, routes as tenants, tokens};
use crate::traces::routes as trace;
use crate::webhooks::routes as webhooks;
use crate::workers::{archives, fleet_routes as fleet, readings, routes as workers};

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/v1/jobs", post(submit::one).get(jobs::list))
        .route("/v1/jobs/bulk", post(submit::bulk))
        .route("/v1/jobs/{id}", get(jobs::get))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{id}/feedback", post(feedback::give))
        .route("/v1/feedback", get(feedback::summary))
        .route("/v1/feedback/export", get(feedback::export))
        .route("/v1/jobs/cancel", post(redrive::cancel_many))
        .route("/v1/jobs/retry", post(redrive::retry_many))
        .route("/v1/jobs/{id}/retry", post(redrive::retry))
        .route("/v1/dead-letters", get(redrive::dead_letters))
        .route("/v1/limits", get(limits::own))
        .route("/v1/limits/{tenant}", get(limits::get).put(limits::set))
        .route("/v1/limits/{tenant}/endpoints/{name}", get(limits::get_endpoint).put(limits::set_endpoint))
        .route("/v1/jobs/{id}/events", get(events::events))
        .route("/v1/jobs/{id}/trace", get(trace::get))
        .route("/v1/jobs/{id}/result", get(results::result))
        .route("/v1/jobs/{id}/files/{name}", get(results::file))
        .route("/v1/batches", post(batches::create).get(batches::list))
        .route("/v1/batches/estimate", post(batches::estimate))
        .route("/v1/batches/{id}", get(batches::get))
        .route("/v1/batches/{id}/cancel", post(batches::cancel))
        .route("/v1/batches/{id}/retry-failed", post(batches::retry_failed))
        .route("/v1/batches/{id}/results", get(batches::results))
        .route("/v1/batches/{id}/errors", get(batches::errors))
        .route("/v1/schedules", post(schedules::create).get(schedules::list))
        .route("/v1/schedules/{id}", get(schedules::get).delete(schedules::delete))
        .route("/v1/schedules/{id}/pause", post(schedules::pause))
        .route("/v1/schedules/{id}/resume", post(schedules::resume))
        .route("/v1/packages", post(packages::create))
        .route("/v1/weights", post(weights::create))
        .route("/v1/weights/url", get(weights::sign))
        .route("/v1/endpoints", post(deploy::deploy).get(endpoints::list))
        .route("/v1/endpoints/{name}", get(endpoints::get).delete(undeploy::endpoint))
        .route("/v1/endpoints/{name}/versions", get(endpoints::versions))
        .route("/v1/endpoints/{name}/versions/{version}", delete(undeploy::version))
        .route("/v1/endpoints/{name}/needs", get(needs::get).delete(needs::forget))
        .route("/v1/endpoints/{name}/traffic", get(traffic::get).put(traffic::set))
        .route("/v1/files", get(list_routes::list).post(files::create))
        .route("/v1/files/upload", post(upload_routes::upload))
        .route("/v1/files/{id}", get(files::get).delete(files::delete))
        .route("/v1/requirement-sets", get(requirement_sets::list))
        .route("/v1/requirement-sets/{id}", delete(requirement_sets::delete))
        .route("/v1/secrets", get(secrets::list))
        .route("/v1/secrets/rewrap", post(secrets::rewrap))
        .route("/v1/secrets/{name}", put(secrets::set).delete(secrets::delete))
        .route("/v1/webhooks/secret", get(webhooks::secret))
        .route("/v1/webhooks/secret/rotate", post(webhooks::rotate))
        .route("/v1/webhooks/deliveries", get(webhooks::list))
        .route("/v1/webhooks/deliveries/{id}", get(webhooks::get))
        .route("/v1/webhooks/deliveries/{id}/replay", post(webhooks::replay))
        .route("/v1/tokens", post(tokens::create).get(tokens::list))
        .route("/v1/tokens/{id}", delete(tokens::revoke))
        .route("/v1/tokens/{id}/rotate", post(tokens::rotate))
        .route("/v1/tenants", post(tenants::create).get(tenants::list))
        .route("/v1/tenants/{tenant}/disable", post(tenants::disable))
        .route("/v1/tenants/{tenant}/enable", post(tenants::enable))
        .route("/v1/audit", get(audit::list))
        .route("/v1/workers", get(workers::list))
        .route("/v1/workers/{id}/evict", post(workers::evict))
        .route("/v1/fleet", get(fleet::get))
        .route("/v1/costs", get(costs::get))
        .route("/v1/workers/{id}/readings", get(readings::list))
        .route("/v1/worker/install.sh", get(archives::script))
        .route("/v1/worker/archives/{name}", get(archives::archive))
        .route("/v1/queue", get(queue::get))
        .route("/v1/quarantine", get(quarantine::get))
        .route("/v1/quarantine/readmit", post(quarantine::readmit))
        .route("/v1/quarantine/discard", post(quarantine::discard))
        .route("/v1/session", post(session::log_in).get(session::get).delete(session::log_out))
        .route("/v1/live", get(live::follow))
        .route("/v1/series", get(series::get))
        .route("/v1/endpoints/{name}/stats", get(stats::get))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(crate::openapi::document))
}
