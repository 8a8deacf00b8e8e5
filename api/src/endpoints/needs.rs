//! `/v1/endpoints/{name}/needs`: the GPU memory that an endpoint's versions were measured to need.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::Serialize;
use stokehold_queue::vram::ANY_KIND;
use utoipa::ToSchema;

use super::routes::unknown;
use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::Problem;
use crate::names;
use crate::server::path::Path;
use crate::tenants::auth::{Caller, EndpointsRead, EndpointsWrite};
use crate::workers::fleet::Fleets;

/// The GPU memory that the versions of an endpoint were seen to need.
#[derive(Serialize, ToSchema)]
pub(crate) struct Needs {
    needs: Vec<Need>,
}

/// The GPU memory that a version was seen to need on one GPU model.
#[derive(Serialize, ToSchema)]
pub(crate) struct Need {
    version: u32,
    /// The GPU model, as the driver reports it; absent for the minimum on any GPU, learned when the version ran out of
    /// memory on a smaller one.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<String>,
    /// The memory, MiB.
    need_mib: u64,
}

/// The reset values.
#[derive(Serialize, ToSchema)]
pub(crate) struct ForgottenNeeds {
    /// The number of values over all versions and GPU models.
    forgotten: u64,
}

/// Get the GPU memory that an endpoint was seen to need
///
/// By version and GPU model. The value replaces `vram_gib` on that model; `vram_fraction` is not learned.
#[utoipa::path(get, operation_id = "get_endpoint_needs", path = "/v1/endpoints/{name}/needs", tag = "endpoints",
    params(("name" = String, Path, description = "The endpoint's name.")),
    responses((status = 200, description = "The GPU memory that the versions were seen to need.", body = Needs), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    caller: Caller<EndpointsRead>,
    Path(name): Path<String>,
) -> Result<JsonAnswer<Needs>, Problem> {
    known(&db, &caller.tenant, &name).await?;
    let all = db.ask("read an endpoint's learned GPU memory", db.registry.all_needs(&caller.tenant, &name)).await?;
    let need = |((version, gpu), need_mib): ((u32, String), u64)| Need {
        version,
        gpu: Some(gpu).filter(|gpu| gpu != ANY_KIND),
        need_mib,
    };
    Ok(JsonAnswer(Needs { needs: all.into_iter().map(need).collect() }))
}

/// Reset the GPU memory that an endpoint was seen to need
///
/// The versions need what they declare until another value is learned. Workers that have the model loaded reset their
/// values at the next heartbeat; memory reserved for a loaded model stays reserved until it is loaded again.
#[utoipa::path(delete, operation_id = "forget_endpoint_needs", path = "/v1/endpoints/{name}/needs", tag = "endpoints",
    params(("name" = String, Path, description = "The endpoint's name.")),
    responses((status = 200, description = "How many learned values were reset.", body = ForgottenNeeds), crate::server::responses::Problems))]
pub(crate) async fn forget(
    State(db): State<Arc<Database>>,
    State(catalog): State<Arc<Catalog>>,
    State(fleets): State<Arc<Fleets>>,
    caller: Caller<EndpointsWrite>,
    Path(name): Path<String>,
) -> Result<JsonAnswer<ForgottenNeeds>, Problem> {
    known(&db, &caller.tenant, &name).await?;
    let forget = || db.registry.forget_needs(&caller.tenant, &name);
    let forgotten = db.ask_again("reset an endpoint's learned GPU memory", forget).await?;
    fleets.invalidate_forgotten();
    catalog.forgotten_now(&caller.tenant, &name);
    Ok(JsonAnswer(ForgottenNeeds { forgotten }))
}

async fn known(db: &Database, tenant: &str, name: &str) -> Result<(), Problem> {
    let is_known =
        names::is_name(name) && db.ask("read an endpoint", db.registry.traffic(tenant, name)).await?.is_some();
    if is_known { Ok(()) } else { Err(unknown(name)) }
}
