use axum::Json;
use axum::extract::State;
use stokehold_queue::gateway::{ModelRef, RunnerSpec};

use super::URL_TTL;
use super::extend::unknown;
use crate::endpoints::weights;
use crate::error::{Code, Problem};
use crate::object_keys::package_key;
use crate::server::path::Path;
use crate::state::App;
use crate::tenants::auth::JoinedWorker;

/// Returns the data that a worker needs to start a runner of this version. A worker gets it if it holds a job of the
/// version, should keep it loaded, or should fetch it ahead; every other worker gets 404.
pub(super) async fn endpoint(
    State(app): State<App>,
    worker: JoinedWorker,
    Path((tenant, name, version)): Path<(String, String, String)>,
) -> Result<Json<RunnerSpec>, Problem> {
    let missing = || {
        Problem::new(
            Code::NotFound,
            "no such endpoint version, or this worker neither holds one of its jobs nor was asked to load or fetch it",
        )
    };
    let number = version.parse().map_err(|_| missing())?;
    let known = app.fleets.worker(&worker.worker_id).await?.ok_or_else(unknown)?;
    let model = ModelRef { tenant, endpoint: name, version: number };
    if !app.ownership.may_know(&known, &model).await? {
        return Err(missing());
    }
    let ModelRef { tenant, endpoint: name, .. } = model;
    let version = app.db.ask("read an endpoint", app.db.registry.endpoint(&tenant, &name, Some(number))).await?;
    let version = version.ok_or_else(|| {
        let detail = format!("version {number} of endpoint {name:?} was deleted; submit the job to another version");
        Problem::new(Code::UnknownVersion, detail)
    })?;
    // A host that may not run an endpoint's jobs may not read its code either.
    if version.spec.demands.refusal(&known.offer()).is_some() {
        return Err(missing());
    }
    let needs_mib = app
        .db
        .ask("read the GPU memory that a version needs", app.db.registry.needs(&tenant, &name, version.version))
        .await?;
    let key = package_key(&tenant, &version.spec.package_sha256);
    let package_url = app.objects.presign_get(&key, URL_TTL).await?;
    let weight_urls = weights::urls(&app.objects, &app.config, &tenant, &version.spec.weights).await?;
    Ok(Json(RunnerSpec { version, package_url, weight_urls, needs_mib }))
}
