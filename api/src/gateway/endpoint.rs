use axum::Json;
use axum::extract::State;
use stokehold_queue::gateway::RunnerSpec;

use super::URL_TTL;
use super::extend::{known, unknown};
use crate::auth::JoinedWorker;
use crate::error::Problem;
use crate::path::Path;
use crate::routes::{packages, weights};
use crate::state::App;

/// What a worker needs to start a runner. Asks for a live worker token, of a worker that jobs of this version may run on; that it holds a
/// lease of one is not checked: workers serve all tenants, and which job comes next is not known before its lease.
pub(super) async fn endpoint(
    State(app): State<App>,
    worker: JoinedWorker,
    Path((tenant, name, version)): Path<(String, String, String)>,
) -> Result<Json<RunnerSpec>, Problem> {
    let missing = || Problem::not_found("endpoint version");
    let number = version.parse().map_err(|_| missing())?;
    let version = app.ask("read an endpoint", app.registry.endpoint(&tenant, &name, Some(number))).await?;
    let version = version.ok_or_else(missing)?;
    let known = known(&app, &worker.worker_id).await?.ok_or_else(unknown)?;
    // A host that is not trusted with its jobs is not shown its code either.
    if version.spec.demands.refusal(&known.offer()).is_some() {
        return Err(missing());
    }
    let needs_mib = app.ask("read what a version needs", app.registry.needs(&tenant, &name, version.version)).await?;
    let key = packages::key(&tenant, &version.spec.package_sha256);
    let package_url = app.objects.presign_get(&key, URL_TTL).await?;
    let weight_urls = weights::urls(&app, &tenant, &version.spec.weights).await?;
    Ok(Json(RunnerSpec { version, package_url, weight_urls, needs_mib }))
}
