//! `POST /v1/packages`: upload URLs for endpoint packages that are not stored yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stokehold_objects::Announced;
use stokehold_objects::Objects;
use utoipa::ToSchema;

use crate::config::Config;
use crate::database::Database;
use crate::deletion::objects::is_stored;
use crate::error::{Problem, ProblemBody};
use crate::names;
use crate::object_keys::package_key;
use crate::server::json::Json;
use crate::tenants::auth::{Caller, EndpointsWrite};
use crate::tenants::storage::Storage;

/// Time after a URL was issued within which its upload must start.
const URL_TTL: Duration = Duration::from_secs(3600);

const CONTENT_TYPE: &str = "application/gzip";

/// A package to upload.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackageRequest {
    /// The SHA-256 of the `.tar.gz`, lower-case hex.
    sha256: String,
    /// The size of the `.tar.gz`.
    size_bytes: u64,
}

/// What to do with the package.
#[derive(Serialize, ToSchema)]
pub(crate) struct PackageReply {
    /// Whether the package exists, so that no upload is needed.
    exists: bool,
    /// PUT the `.tar.gz` here.
    upload_url: Option<String>,
    /// Send exactly these headers.
    headers: BTreeMap<String, String>,
}

/// Upload an endpoint's package
#[utoipa::path(post, operation_id = "create_package", path = "/v1/packages", tag = "endpoints", request_body = PackageRequest,
    responses(
        (status = 200, description = "Whether the package exists, or the address to PUT it to within one hour.", body = PackageReply),
        (status = 409, description = "`storage_exceeded`: the tenant may not store that much.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn create(
    State(config): State<Arc<Config>>,
    State(db): State<Arc<Database>>,
    State(objects): State<Arc<Objects>>,
    State(storage): State<Arc<Storage>>,
    caller: Caller<EndpointsWrite>,
    Json(request): Json<PackageRequest>,
) -> Result<JsonAnswer<PackageReply>, Problem> {
    check(&config, &request.sha256, request.size_bytes, "/sha256", "/size_bytes")?;
    let key = package_key(&caller.tenant, &request.sha256);
    let object = format!("packages/{}", request.sha256);
    if is_stored(&db, &objects, &caller.tenant, &object, request.size_bytes).await? {
        return Ok(JsonAnswer(PackageReply { exists: true, upload_url: None, headers: BTreeMap::new() }));
    }
    storage.reserve(&caller.tenant, request.size_bytes).await?;
    let announced = Announced {
        size_bytes: request.size_bytes,
        sha256_hex: &request.sha256,
        content_type: CONTENT_TYPE,
        name: None,
    };
    let put = objects.presign_put(&key, announced, URL_TTL).await?;
    Ok(JsonAnswer(PackageReply { exists: false, upload_url: Some(put.url), headers: put.headers }))
}

/// Checks a package's hash and size; the last two parameters are the names of the fields.
pub(crate) fn check(
    config: &Config,
    sha256: &str,
    size_bytes: u64,
    sha256_at: &str,
    size_at: &str,
) -> Result<(), Problem> {
    let most = config.limits.package_bytes;
    if !names::is_sha256(sha256) {
        return Err(Problem::field(sha256_at, "must be 64 lower-case hex digits"));
    }
    if !(1..=most).contains(&size_bytes) {
        return Err(Problem::field(
            size_at,
            format!("must be 1 to {most} bytes; keep weights and data out of the package"),
        ));
    }
    Ok(())
}
