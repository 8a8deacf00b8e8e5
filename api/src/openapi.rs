//! The API's OpenAPI document, generated from the code.

mod links;

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use self::links::Links;
use crate::batches::routes as batches;
use crate::costs::routes as costs;
use crate::dashboard::{live_routes as live, series_routes as series, session_routes as session};
use crate::endpoints::{
    deploy, needs, packages, requirement_set_routes as requirement_sets, routes as endpoints, stats, traffic, undeploy,
    weights,
};
use crate::error::ProblemBody;
use crate::files::{self, list_routes, upload_routes};
use crate::jobs::feedback::routes as feedback;
use crate::jobs::{events, quarantine, queue, redrive, results, routes as jobs, submit};
use crate::schedules::routes as schedules;
use crate::secrets::routes as secrets;
use crate::server::health;
use crate::tenants::{audit_routes as audit, limits, routes as tenants, tokens};
use crate::traces::routes as trace;
use crate::webhooks::routes as webhooks;
use crate::workers::{archives, fleet_routes as fleet, readings, routes as workers};

#[derive(OpenApi)]
#[openapi(
    info(title = "Stokehold", description = "Jobs for GPUs: submit them, follow them, fetch their results. Errors are problem+json with a stable `code`."),
    paths(
        submit::one, submit::bulk, jobs::list, jobs::get, jobs::cancel, events::events, results::result, results::file, trace::get,
        batches::create, batches::estimate, batches::list, batches::get, batches::cancel, batches::retry_failed, batches::results, batches::errors,
        redrive::retry, redrive::retry_many, redrive::cancel_many, redrive::dead_letters,
        quarantine::get, quarantine::readmit, quarantine::discard,
        limits::own, limits::get, limits::set, limits::get_endpoint, limits::set_endpoint,
        schedules::create, schedules::list, schedules::get, schedules::delete, schedules::pause, schedules::resume,
        packages::create, weights::create, weights::sign, deploy::deploy, endpoints::list, endpoints::get, endpoints::versions,
        undeploy::endpoint, undeploy::version, requirement_sets::list, requirement_sets::delete, traffic::get, traffic::set, needs::get, needs::forget, secrets::set, secrets::list, secrets::delete, secrets::rewrap,
        feedback::give, feedback::summary, feedback::export, list_routes::list, files::create, upload_routes::upload, files::get, files::delete,
        webhooks::secret, webhooks::rotate, webhooks::list, webhooks::get, webhooks::replay, workers::list, workers::evict, readings::list, archives::script, archives::archive, queue::get, fleet::get, costs::get,
        tokens::create, tokens::list, tokens::rotate, tokens::revoke, tenants::create, tenants::list, tenants::disable, tenants::enable, audit::list,
        session::log_in, session::get, session::log_out, live::follow, series::get, stats::get,
        health::healthz, health::readyz, health::metrics,
    ),
    components(schemas(ProblemBody)),
    modifiers(&Bearer, &Links),
    security(("bearer" = []), ("session" = [])),
    tags(
        (name = "jobs", description = "Submit, follow and cancel jobs."),
        (name = "batches", description = "Run an endpoint on many inputs in one call."),
        (name = "limits", description = "Set and read the limits of tenants and endpoints."),
        (name = "access", description = "Manage tenants and tokens, and read the audit log."),
        (name = "schedules", description = "Submit jobs on a schedule."),
        (name = "endpoints", description = "Deploy and configure the models that jobs run on."),
        (name = "secrets", description = "Store values that only handlers can read."),
        (name = "feedback", description = "Store what people thought of results."),
        (name = "files", description = "Upload inputs that are too large for JSON."),
        (name = "webhooks", description = "Receive events, signed as Standard Webhooks describes."),
        (name = "costs", description = "Read costs and how they are split."),
        (name = "workers", description = "List and manage the workers and instances that run jobs."),
        (name = "dashboard", description = "Routes behind the page at `/dashboard`."),
        (name = "health", description = "Health checks and metrics."),
    ),
)]
struct Api;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("sk_<id>_<secret>_<crc>").build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
        let cookie = "The cookie of a page that logged in. Every method but GET and HEAD also requires the header `Stokehold-Request: dashboard`.";
        let cookie = ApiKey::Cookie(ApiKeyValue::with_description(crate::dashboard::session::COOKIE, cookie));
        components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
    }
}

/// The document in the form that `/openapi.json` returns.
#[must_use]
pub fn json() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let text = Api::openapi().to_pretty_json().unwrap_or_default();
        // The registry of formats spells it without a hyphen; utoipa writes `u-int32`.
        text.replace(r#""format": "u-int"#, r#""format": "uint"#)
    });
    &TEXT
}

/// `GET /openapi.json`.
pub(crate) async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json")], json()).into_response()
}
