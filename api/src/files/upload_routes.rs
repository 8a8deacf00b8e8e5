//! `POST /v1/files/upload`: uploads a file in one request through the API. It is for clients that can neither hash a
//! file first nor reach the object store, e.g. the dashboard and curl.

use std::sync::Arc;
use std::time::Duration;

use axum::Json as JsonAnswer;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use stokehold_objects::{Objects, Upload};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::relays::Relays;
use super::stored::{FileMetadata, metadata_key};
use super::{FileView, NAME_MAX, URL_TTL, is_name};
use crate::config::Config;
use crate::error::{Code, Problem, ProblemBody};
use crate::jobs::inputs::file_key;
use crate::names;
use crate::server::json::{self, BODY_IDLE, drain};
use crate::server::query::Params;
use crate::tenants::auth::{Caller, FilesWrite};
use crate::tenants::storage::Storage;

/// Maximum size of a file that is uploaded through the API, bytes.
pub(crate) const BYTES_MAX: u64 = 1 << 30;

/// Longest time for a whole upload.
pub(crate) const TOTAL: Duration = Duration::from_secs(3600);

/// Upload a file in one request
///
/// The body is the file, at most 1 GiB; `Content-Type` is its MIME type. The API relays it to the object store. Use
/// `POST /v1/files` for larger files, and where the client can reach the store.
#[utoipa::path(post, operation_id = "upload_file", path = "/v1/files/upload", tag = "files",
    params(("name" = String, Query, description = "Your name for the file.", min_length = 1, max_length = 255)),
    request_body(content = Option<String>, content_type = "application/octet-stream", description = "The bytes of the file; none for an empty file."),
    responses(
        (status = 201, description = "The uploaded file.", body = FileView),
        (status = 409, description = "`storage_exceeded`: the tenant may not store that much.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
#[expect(clippy::too_many_arguments, reason = "each is an extractor")]
pub(crate) async fn upload(
    State(config): State<Arc<Config>>,
    State(objects): State<Arc<Objects>>,
    State(storage): State<Arc<Storage>>,
    State(relays): State<Arc<Relays>>,
    caller: Result<Caller<FilesWrite>, Problem>,
    params: Result<Params, Problem>,
    headers: HeaderMap,
    mut body: Body,
) -> Result<(StatusCode, JsonAnswer<FileView>), Problem> {
    let most = BYTES_MAX.min(config.limits.file_bytes);
    let mut is_asked_for = false;
    let relayed = async {
        let caller = caller?;
        let (metadata, bytes) = announced(params?, &headers, most)?;
        let _permit = relays.take(&caller.tenant).ok_or_else(|| {
            Problem::new(Code::RateLimited, "too many uploads go through this replica; retry, or use POST /v1/files")
        })?;
        storage.reserve(&caller.tenant, bytes).await?;
        let id = format!("file_{}", Uuid::new_v4().simple());
        let key = file_key(&caller.tenant, &id);
        is_asked_for = true;
        let upload = relay(&objects, &key, &metadata, bytes, &mut body).await?;
        // As with POST /v1/files, the metadata is stored first: a replica that dies in between leaves a file without
        // bytes, which can be deleted, and not bytes that nothing names.
        objects.put(&metadata_key(&key), json::write(&metadata)?.into(), "application/json").await?;
        upload.finish().await?;
        let url = objects.presign_get(&key, URL_TTL).await?;
        Ok::<_, Problem>(FileView {
            id,
            name: metadata.name,
            size_bytes: bytes,
            content_type: metadata.content_type,
            url,
        })
    };
    match relayed.await {
        Ok(view) => Ok((StatusCode::CREATED, JsonAnswer(view))),
        Err(problem) => {
            // A client that is sending the body may read the response only after it. One that waits for `100 Continue`
            // sends none: reading the body would ask for it.
            if is_asked_for || !headers.contains_key(EXPECT) {
                drain(body).await;
            }
            Err(problem)
        }
    }
}

/// Name, type and size of the file, from the query and the headers.
fn announced(mut params: Params, headers: &HeaderMap, most: u64) -> Result<(FileMetadata, u64), Problem> {
    let wanted = format!("1 to {NAME_MAX} printable characters");
    let name = params.take("name", &wanted, |name| is_name(name).then(|| name.to_owned()))?;
    params.finish()?;
    let name = name.ok_or_else(|| Problem::query("name", "is required: your name for the file"))?;
    let text = |header| headers.get(header).and_then(|value| value.to_str().ok());
    let content_type = match headers.contains_key(CONTENT_TYPE) {
        true => text(CONTENT_TYPE).unwrap_or_default().to_owned(),
        false => "application/octet-stream".to_owned(),
    };
    if !names::is_content_type(&content_type) {
        return Err(Problem::field("Content-Type", "must be a MIME type, e.g. image/png"));
    }
    let bytes = text(CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let bytes = bytes.ok_or_else(|| Problem::field("Content-Length", "is required: the size of the file, bytes"))?;
    if bytes > most {
        let detail = format!("a file of at most {most} bytes can be uploaded through the API; use POST /v1/files");
        return Err(Problem::new(Code::BodyTooLarge, detail));
    }
    Ok((FileMetadata { name, content_type, openai: None }, bytes))
}

/// Sends the body to the store. The object does not exist until the caller finishes the upload.
async fn relay(
    objects: &Objects,
    key: &str,
    metadata: &FileMetadata,
    bytes: u64,
    body: &mut Body,
) -> Result<Upload, Problem> {
    let deadline = Instant::now() + TOTAL;
    let slow = |_| Problem::new(Code::BodyTimeout, "the body stopped arriving; send it without pauses");
    let cut = || Problem::new(Code::InvalidRequest, "the body ended early; upload the file again");
    let mut upload = objects.upload(key, &metadata.content_type).named(&metadata.name);
    let mut arrived = 0;
    while let Some(frame) =
        timeout_at(deadline, timeout(BODY_IDLE, body.frame())).await.and_then(|frame| frame).map_err(slow)?
    {
        let Ok(data) = frame.map_err(|_| cut())?.into_data() else { continue };
        arrived += data.len() as u64;
        upload.write(&data).await?;
    }
    if arrived != bytes {
        return Err(cut());
    }
    Ok(upload)
}
