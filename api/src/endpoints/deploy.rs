//! `POST /v1/endpoints`: creates a version of an endpoint.

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use stokehold_queue::endpoint::EndpointSpec;
use stokehold_queue::registry::{Deployed, ENDPOINTS_MAX, VERSIONS_MAX};

use super::options::{DeployRequest, VersionView};
use super::{packages, request, traffic, weights};
use crate::deletion;
use crate::error::{Code, Problem, ProblemBody};
use crate::object_keys::package_key;
use crate::secrets::routes as secrets;
use crate::server::json::Json;
use crate::state::App;
use crate::tenants::auth::{Caller, EndpointsWrite};

/// Deploy an endpoint
///
/// Adds a version; with `traffic_percent` 100, the default, it becomes the current one. Deploying an identical version
/// changes nothing, so repeating is safe.
#[utoipa::path(post, operation_id = "deploy_endpoint", path = "/v1/endpoints", tag = "endpoints", request_body = DeployRequest,
    responses(
        (status = 201, description = "The new version.", body = VersionView),
        (status = 200, description = "The current version, which is identical to the request.", body = VersionView),
        (status = 409, description = "`package_missing`: upload it first. `secret_missing`: set it first.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn deploy(
    State(app): State<App>,
    caller: Caller<EndpointsWrite>,
    Json(request): Json<DeployRequest>,
) -> Result<(StatusCode, JsonAnswer<VersionView>), Problem> {
    packages::check(
        &app.config,
        &request.package_sha256,
        request.package_size_bytes,
        "/package_sha256",
        "/package_size_bytes",
    )?;
    let percent = traffic::checked_percent(request.traffic_percent, "/traffic_percent")?;
    let (name, spec) = request::checked(request, &app.config.package_indexes)?;
    let bytes = serde_json::to_vec(&spec).map_or(0, |text| text.len() as u64);
    app.db.ask("check whether a version may be deployed", app.db.queue.admits_version(&caller.tenant, bytes)).await?;
    weights::check(&app.config, &spec.weights)?;
    check_stored(&app, &caller.tenant, &spec).await?;
    if !spec.secrets.is_empty() {
        let known = app.db.ask("read secrets", app.db.registry.secrets(&caller.tenant)).await?;
        if let Some(name) = spec.secrets.iter().find(|name| !known.contains_key(*name)) {
            return Err(secrets::missing(name));
        }
    }
    // First, so that no version is created that cannot be used.
    let number = app.catalog.number(&caller.tenant, &spec.demands, true).await?;
    let (version, traffic, created) = match stored(&app, &caller.tenant, &name, &spec, percent).await? {
        Deployed::Done { version, traffic, is_new } => (*version, traffic, is_new),
        Deployed::TooManyVersions => {
            return Err(Problem::new(
                Code::QuotaExceeded,
                format!(
                    "endpoint {name:?} already has {VERSIONS_MAX} versions, the most it may have; delete unused ones \
                        with `stoke endpoint prune {name}` or DELETE /v1/endpoints/{name}/versions/{{version}}, and \
                        deploy again"
                ),
            ));
        }
        Deployed::TooManyNames => {
            return Err(Problem::field(
                "/name",
                format!(
                    "would be one endpoint name too many: the tenant already has {ENDPOINTS_MAX}, including those of deleted endpoints; reuse one of them"
                ),
            ));
        }
        Deployed::Swept => return Err(deletion::Error::Busy.into()),
    };
    if traffic.current == version.version {
        // A deploy that fails here is retried, and then this step runs again.
        traffic::keep_warm(&app.db, &caller.tenant, &name, version.version, spec.min_warm).await?;
    }
    app.catalog.routed_now(&caller.tenant, &name, traffic);
    app.models.changed_now(&caller.tenant);
    app.fleets.requirements_added(number).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, JsonAnswer(version.into())))
}

/// Adds the version once its package and its weights are stored, and no deletion could have removed them meanwhile.
async fn stored(app: &App, tenant: &str, name: &str, spec: &EndpointSpec, percent: u32) -> Result<Deployed, Problem> {
    let mut attempts = 0;
    loop {
        let swept = app.db.ask("read how often objects were deleted", app.db.registry.swept(tenant)).await?;
        check_stored(app, tenant, spec).await?;
        let deploy = || app.db.registry.deploy_stored(tenant, name, spec.clone(), percent, Some(swept));
        match app.db.ask_again("deploy", deploy).await? {
            Deployed::Swept => deletion::objects::wait(attempts).await?,
            outcome => return Ok(outcome),
        }
        attempts += 1;
    }
}

/// Checks that the package and the uploaded weights of a version are stored.
async fn check_stored(app: &App, tenant: &str, spec: &EndpointSpec) -> Result<(), Problem> {
    let package = app.objects.head(&package_key(tenant, &spec.package_sha256)).await?;
    if package.is_none_or(|package| package.size_bytes != spec.package_size_bytes) {
        return Err(Problem::new(
            Code::PackageMissing,
            "no such package; POST /v1/packages returns the address to PUT it to, then deploy again",
        ));
    }
    weights::check_uploaded(&app.objects, tenant, &spec.weights).await
}
