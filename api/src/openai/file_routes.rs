//! `/openai/v1/files`: list, get, download and delete.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stokehold_objects::Objects;
use stokehold_queue::now_ms;

use super::error::Error;
use super::files::{self, BATCH, Entry, FILES_MAX, File};
use crate::deletion::Subject;
use crate::deletion::dependents::find;
use crate::deletion::routes::in_use;
use crate::error::{Code, Problem};
use crate::files::URL_TTL;
use crate::jobs::inputs::file_key;
use crate::jobs::results::redirect;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, FilesRead, FilesWrite};

/// Purposes of uploads. Only `batch` has an effect.
pub(super) const PURPOSES: [&str; 6] = [BATCH, "assistants", "fine-tune", "vision", "user_data", "evals"];

/// Maximum number of files of one page. Clients follow `has_more`.
const PAGE_MAX: usize = 100;

/// A file in OpenAI's form.
#[derive(Serialize)]
pub(super) struct FileView {
    id: String,
    object: &'static str,
    bytes: u64,
    created_at: u64,
    expires_at: u64,
    filename: String,
    purpose: String,
    /// Clients wait for this state.
    status: &'static str,
    status_details: Option<String>,
}

impl FileView {
    pub(super) fn new(file: &File) -> Self {
        Self {
            id: files::shown_id(&file.id),
            object: "file",
            bytes: file.about.bytes,
            created_at: file.about.created_s,
            expires_at: file.about.expires_s,
            filename: file.name.clone(),
            purpose: file.about.purpose.clone(),
            status: "processed",
            status_details: None,
        }
    }
}

#[derive(Serialize)]
pub(super) struct FileList {
    object: &'static str,
    data: Vec<FileView>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Deleted {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// `GET /openai/v1/files`.
pub(super) async fn list(
    State(objects): State<Arc<Objects>>,
    caller: Caller<FilesRead>,
    mut params: Params,
) -> Result<JsonAnswer<FileList>, Error> {
    let after = params.take("after", "the id of a file", files::native_id)?;
    let limits = 1..=FILES_MAX;
    let limit = params
        .take("limit", &format!("1 to {FILES_MAX}"), |text| text.parse().ok().filter(|limit| limits.contains(limit)))?;
    let is_ascending = params.take("order", "asc or desc", |text| match text {
        "asc" => Some(true),
        "desc" => Some(false),
        _ => None,
    })?;
    let purpose = params.take("purpose", "a purpose", |text| Some(text.to_owned()))?;
    params.finish()?;
    let is_ascending = is_ascending.unwrap_or(false);
    let now_s = now_ms() / 1000;
    let mut entries = files::entries(&objects, &caller.tenant, now_s).await?;
    if !is_ascending {
        entries.reverse();
    }
    entries.retain(|entry| {
        let is_after = after.as_ref().is_none_or(|id| if is_ascending { entry.id > *id } else { entry.id < *id });
        is_after && purpose.as_ref().is_none_or(|purpose| entry.purpose == *purpose)
    });
    let limit = limit.unwrap_or(FILES_MAX).min(PAGE_MAX);
    let (found, used) = files::read(&objects, &entries, limit, now_s).await?;
    let data: Vec<FileView> = found.iter().map(FileView::new).collect();
    let id = |file: Option<&FileView>| file.map(|file| file.id.clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    Ok(JsonAnswer(FileList { object: "list", has_more: used < entries.len(), data, first_id, last_id }))
}

/// `GET /openai/v1/files/{id}`.
pub(super) async fn get(
    State(objects): State<Arc<Objects>>,
    caller: Caller<FilesRead>,
    Path(id): Path<String>,
) -> Result<JsonAnswer<FileView>, Error> {
    own(&objects, &caller.tenant, &id).await.map(|file| JsonAnswer(FileView::new(&file)))
}

/// `GET /openai/v1/files/{id}/content`.
pub(super) async fn content(
    State(objects): State<Arc<Objects>>,
    caller: Caller<FilesRead>,
    Path(id): Path<String>,
) -> Result<Response, Error> {
    let file = own(&objects, &caller.tenant, &id).await?;
    let key = file_key(&caller.tenant, &file.id);
    if objects.head(&key).await?.is_none() {
        return Err(missing(&id));
    }
    Ok(redirect(objects.presign_get(&key, URL_TTL).await?))
}

/// `DELETE /openai/v1/files/{id}`.
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller<FilesWrite>,
    Path(id): Path<String>,
) -> Result<Response, Error> {
    let tenant = &caller.tenant;
    let file = own(&app.objects, tenant, &id).await?;
    let dependents = find(&app.db, tenant, &Subject::File { id: file.id.clone() }).await?;
    if !dependents.is_empty() {
        return Err(in_use(&format!("file {id}"), dependents, "wait for them to end, or cancel them").into());
    }
    files::remove(&app.objects, &Entry::new(tenant, &file.id, &file.about)).await?;
    app.storage.shrunk(tenant);
    Ok(JsonAnswer(Deleted { id, object: "file", deleted: true }).into_response())
}

/// The caller's own file with this ID. For all other tenants it does not exist.
pub(super) async fn own(objects: &Objects, tenant: &str, id: &str) -> Result<File, Error> {
    let Some(native) = files::native_id(id) else { return Err(missing(id)) };
    files::find(objects, tenant, &native, now_ms() / 1000).await?.ok_or_else(|| missing(id))
}

fn missing(id: &str) -> Error {
    Problem::new(Code::NotFound, format!("no such file: {id:?}")).into()
}
