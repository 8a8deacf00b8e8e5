//! `/v1/files`: inputs that are too large for JSON.

pub(crate) mod list_routes;
pub(crate) mod relays;
pub(crate) mod stored;
pub(crate) mod upload_routes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use stokehold_objects::{Announced, Objects};
use stokehold_queue::now_ms;
use utoipa::ToSchema;
use uuid::Uuid;

use self::stored::{FileMetadata, metadata_key};
use crate::config::Config;
use crate::deletion::dependents::find;
use crate::deletion::routes::{Deletion, Options, deleted, in_use, would_delete};
use crate::deletion::{Subject, end, objects};
use crate::error::{Code, Problem, ProblemBody};
use crate::jobs::inputs::file_key;
use crate::names;
use crate::server::json;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, FilesRead, FilesWrite, demand};
use crate::tenants::scope::Scope;
use crate::tenants::storage::Storage;
use crate::time_format::rfc3339;

/// Time after a URL was issued within which its upload or download must start.
pub(crate) const URL_TTL: Duration = Duration::from_secs(3600);

/// Maximum length of a file's name, characters.
pub(crate) const NAME_MAX: usize = 255;

/// Maximum size of a file's metadata object, bytes. The API writes no larger one.
pub(crate) const METADATA_MAX: u64 = 16 << 10;

/// Metadata objects that one list reads at the same time.
pub(crate) const GETS_AT_ONCE: usize = 16;

/// A file to upload.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileRequest {
    /// Your name for the file.
    #[schema(min_length = 1, max_length = 255)]
    name: String,
    /// The file's size.
    size_bytes: u64,
    /// The SHA-256 of the file, lower-case hex.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: String,
    /// The MIME type. Default `application/octet-stream`.
    content_type: Option<String>,
}

/// Where to upload the file.
#[derive(Serialize, ToSchema)]
pub(crate) struct FileUpload {
    /// The id, which an input references as `{"$file": "<id>"}`.
    id: String,
    name: String,
    /// PUT the bytes here.
    upload_url: String,
    /// Send exactly these headers.
    headers: BTreeMap<String, String>,
    /// When the URL expires, RFC 3339.
    expires_at: String,
}

/// An uploaded file.
#[derive(Serialize, ToSchema)]
#[schema(as = File)]
pub(crate) struct FileView {
    id: String,
    name: String,
    size_bytes: u64,
    content_type: String,
    /// Download the file here within one hour.
    url: String,
}

/// Upload a file
#[utoipa::path(post, operation_id = "create_file", path = "/v1/files", tag = "files", request_body = FileRequest,
    responses(
        (status = 201, description = "The address to PUT the bytes to within one hour.", body = FileUpload),
        (status = 409, description = "`storage_exceeded`: the tenant may not store that much.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn create(
    State(config): State<Arc<Config>>,
    State(objects): State<Arc<Objects>>,
    State(storage): State<Arc<Storage>>,
    caller: Caller<FilesWrite>,
    Json(request): Json<FileRequest>,
) -> Result<(StatusCode, JsonAnswer<FileUpload>), Problem> {
    let metadata = FileMetadata {
        content_type: request.content_type.unwrap_or_else(|| "application/octet-stream".to_owned()),
        name: request.name,
        openai: None,
    };
    if !is_name(&metadata.name) {
        return Err(Problem::field("/name", format!("must be 1 to {NAME_MAX} printable characters")));
    }
    if request.size_bytes > config.limits.file_bytes {
        return Err(Problem::field("/size_bytes", format!("must be at most {} bytes", config.limits.file_bytes)));
    }
    if !names::is_sha256(&request.sha256) {
        return Err(Problem::field("/sha256", "must be 64 lower-case hex digits"));
    }
    if !names::is_content_type(&metadata.content_type) {
        return Err(Problem::field("/content_type", "must be a MIME type, e.g. image/png"));
    }
    storage.reserve(&caller.tenant, request.size_bytes).await?;
    let id = format!("file_{}", Uuid::new_v4().simple());
    let key = file_key(&caller.tenant, &id);
    let text = json::write(&metadata)?;
    objects.put(&metadata_key(&key), text.into(), "application/json").await?;
    let announced = Announced {
        size_bytes: request.size_bytes,
        sha256_hex: &request.sha256,
        content_type: &metadata.content_type,
        name: Some(&metadata.name),
    };
    let put = objects.presign_put(&key, announced, URL_TTL).await?;
    let expires_ms = now_ms() + u64::try_from(URL_TTL.as_millis()).unwrap_or_default();
    let upload = FileUpload {
        id,
        name: metadata.name,
        upload_url: put.url,
        headers: put.headers,
        expires_at: rfc3339(expires_ms),
    };
    Ok((StatusCode::CREATED, JsonAnswer(upload)))
}

/// Returns whether a text can be the name of a file.
pub(crate) fn is_name(name: &str) -> bool {
    matches!(name.chars().count(), 1..=NAME_MAX) && !name.chars().any(char::is_control)
}

/// Get an uploaded file
#[utoipa::path(get, operation_id = "get_file", path = "/v1/files/{id}", tag = "files",
    params(("id" = String, Path, description = "The file's id.")),
    responses(
        (status = 200, description = "The file.", body = FileView),
        (status = 422, description = "`file_missing`: the file's bytes were not uploaded.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn get(
    State(objects): State<Arc<Objects>>,
    caller: Caller<FilesRead>,
    Path(id): Path<String>,
) -> Result<JsonAnswer<FileView>, Problem> {
    if !names::is_file_id(&id) {
        return Err(Problem::not_found("file"));
    }
    let key = file_key(&caller.tenant, &id);
    let metadata = objects.get(&metadata_key(&key), METADATA_MAX).await?.ok_or_else(|| Problem::not_found("file"))?;
    let metadata: FileMetadata = serde_json::from_slice(&metadata).map_err(|error| {
        tracing::error!(%error, file = id, "a file's record cannot be read");
        Problem::new(Code::Internal, "the record of this file cannot be read; upload the file again")
    })?;
    let Some(stored) = objects.head(&key).await? else {
        return Err(Problem::new(Code::FileMissing, "the file was created but its bytes were not uploaded"));
    };
    let url = objects.presign_get(&key, URL_TTL).await?;
    let view =
        FileView { id, name: metadata.name, size_bytes: stored.size_bytes, content_type: metadata.content_type, url };
    Ok(JsonAnswer(view))
}

/// Delete an uploaded file
///
/// Ended jobs that named the file stay, but cannot be retried. A job that is submitted during the deletion may fail
/// because its file is missing.
#[utoipa::path(delete, operation_id = "delete_file", path = "/v1/files/{id}", tag = "files",
    params(
        ("id" = String, Path, description = "The file's id."),
        ("dry_run" = Option<bool>, Query, description = "Delete nothing; report what depends on the file. Default: false."),
        ("force" = Option<bool>, Query, description = "Delete the file although others depend on it: open jobs that name it are cancelled, schedules that name it are paused, and batches that have not read it are cancelled. This requires the scope `jobs:cancel`, too. Default: false."),
    ),
    responses(
        (status = 200, description = "What was deleted or, for a dry run, would be.", body = Deletion),
        (status = 409, description = "`in_use`: open jobs, schedules or batches name the file; `dependents` names them.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller<FilesWrite>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let options = Options::of(params)?;
    if !names::is_file_id(&id) {
        return Err(Problem::not_found("file"));
    }
    let tenant = &caller.tenant;
    let key = file_key(tenant, &id);
    let keys = [key.clone(), metadata_key(&key)];
    // The metadata is stored first and deleted last, so a file without it does not exist.
    if app.objects.head(&keys[1]).await?.is_none() {
        return Err(Problem::not_found("file"));
    }
    let subject = Subject::File { id: id.clone() };
    let dependents = find(&app.db, tenant, &subject).await?;
    let freed = objects::size_of(&app.objects, &keys).await?;
    if options.dry_run {
        return Ok(would_delete(dependents, freed));
    }
    if !dependents.is_empty() {
        if !options.force {
            let or = "wait for them to end, or repeat with force=true, which cancels open jobs and pauses schedules";
            return Err(in_use(&format!("file {id}"), dependents, or));
        }
        demand(&caller.token, Scope::JobsCancel)?;
        end::end(&app.db, tenant, &subject).await?;
    }
    for key in keys {
        app.objects.delete(&[key]).await?;
    }
    app.storage.shrunk(tenant);
    Ok(deleted(tenant, format!("{id} ({freed} bytes)"), dependents, freed))
}
