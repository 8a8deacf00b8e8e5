//! `GET /v1/files`: the uploaded files of a tenant, read from the object store, which has the only list of them.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use futures::StreamExt;
use serde::Serialize;
use stokehold_objects::{Error as ObjectsError, ObjectPage, ObjectSummary, Objects};
use utoipa::ToSchema;

use super::stored::{FileMetadata, metadata_key};
use super::{GETS_AT_ONCE, METADATA_MAX};
use crate::error::Problem;
use crate::jobs::inputs::file_key;
use crate::names;
use crate::server::query::Params;
use crate::tenants::auth::{Caller, FilesRead};
use crate::time_format::rfc3339;

/// One page of files, by id.
#[derive(Serialize, ToSchema)]
pub(crate) struct FileList {
    files: Vec<FileSummary>,
    /// The cursor of the next page; null at the end.
    next_cursor: Option<String>,
}

/// A file of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct FileSummary {
    id: String,
    name: String,
    size_bytes: u64,
    content_type: String,
    /// When its bytes were uploaded, RFC 3339.
    uploaded_at: String,
}

/// List uploaded files
///
/// Includes the files that the API makes of inputs larger than 64 KiB, and those uploaded as an OpenAI client. A file
/// whose bytes were not uploaded is not in the list. A page may have fewer files than `limit`, also none, although there
/// are more: read on until `next_cursor` is null.
#[utoipa::path(get, operation_id = "list_files", path = "/v1/files", tag = "files",
    params(
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "1 to 100; default 20."),
    ),
    responses((status = 200, description = "One page, by id.", body = FileList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(objects): State<Arc<Objects>>,
    caller: Caller<FilesRead>,
    mut params: Params,
) -> Result<JsonAnswer<FileList>, Problem> {
    let read = |text: &str| names::is_file_id(text).then(|| text.to_owned());
    let cursor = params.take("cursor", "the next_cursor of a page", read)?;
    let limit = params.limit()?;
    params.finish()?;
    let first = file_key(&caller.tenant, "");
    // The metadata of a file follows its bytes.
    let after = cursor.map(|id| metadata_key(&file_key(&caller.tenant, &id)));
    let page = objects.list_after(&first, after.as_deref(), 2 * limit).await?;
    let (stored, next_cursor) = files_of(page, &first, limit as usize);
    // Collected, because the compiler cannot check a borrowing stream of borrowing futures.
    let summaries: Vec<_> = stored.into_iter().map(|file| summary(objects.clone(), first.clone(), file)).collect();
    let mut summaries = futures::stream::iter(summaries).buffered(GETS_AT_ONCE);
    let mut files = Vec::new();
    while let Some(file) = summaries.next().await {
        files.extend(file?);
    }
    Ok(JsonAnswer(FileList { files, next_cursor }))
}

/// The files of a page of objects whose keys begin with `first`, at most `limit`, and the id after which the next page
/// starts.
fn files_of(page: ObjectPage, first: &str, limit: usize) -> (Vec<ObjectSummary>, Option<String>) {
    let has_more = page.next_cursor.is_some();
    let (mut files, mut last) = (Vec::new(), None);
    for object in page.objects {
        let Some(name) = object.key.strip_prefix(first) else { continue };
        let id = name.strip_suffix(".json").unwrap_or(name);
        if !names::is_file_id(id) {
            continue;
        }
        let is_bytes = id.len() == name.len();
        if is_bytes && files.len() == limit {
            return (files, last);
        }
        last = Some(id.to_owned());
        if is_bytes {
            files.push(object);
        }
    }
    (files, last.filter(|_| has_more))
}

/// A file with its metadata; `None` if it is being deleted or its metadata cannot be read.
async fn summary(
    objects: Arc<Objects>,
    first: String,
    file: ObjectSummary,
) -> Result<Option<FileSummary>, ObjectsError> {
    let Some(metadata) = objects.get(&metadata_key(&file.key), METADATA_MAX).await? else { return Ok(None) };
    let Some(id) = file.key.strip_prefix(&first).map(str::to_owned) else { return Ok(None) };
    let metadata: FileMetadata = match serde_json::from_slice(&metadata) {
        Ok(metadata) => metadata,
        Err(error) => {
            tracing::error!(%error, file = id, "a file's record cannot be read; the list of files skips it");
            return Ok(None);
        }
    };
    Ok(Some(FileSummary {
        id,
        name: metadata.name,
        size_bytes: file.size_bytes,
        content_type: metadata.content_type,
        uploaded_at: rfc3339(file.modified_ms),
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const FIRST: &str = "inputs/acme/";

    fn page(names: &[&str], has_more: bool) -> ObjectPage {
        let object = |name: &&str| ObjectSummary { key: format!("{FIRST}{name}"), size_bytes: 1, modified_ms: 0 };
        ObjectPage {
            objects: names.iter().map(object).collect(),
            next_cursor: has_more.then(|| "a token of the store".to_owned()),
        }
    }

    fn id(digit: char) -> String {
        format!("file_{}", digit.to_string().repeat(32))
    }

    fn ids(files: &[ObjectSummary]) -> Vec<&str> {
        files.iter().map(|file| file.key.strip_prefix(FIRST).unwrap()).collect()
    }

    #[test]
    fn a_page_of_objects_is_files_and_the_id_to_continue_after() {
        let (a, b, c) = (id('a'), id('b'), id('c'));
        let (a_metadata, b_metadata) = (format!("{a}.json"), format!("{b}.json"));
        let (files, next) = files_of(page(&[&a, &a_metadata, &b, &b_metadata], false), FIRST, 2);
        assert_eq!((ids(&files), next), (vec![a.as_str(), b.as_str()], None));

        // More objects than the limit has files.
        let (files, next) = files_of(page(&[&a, &b, &c], true), FIRST, 2);
        assert_eq!((ids(&files), next), (vec![a.as_str(), b.as_str()], Some(b.clone())));
        // The same at the end of the store's list.
        let (files, next) = files_of(page(&[&a, &b, &c], false), FIRST, 2);
        assert_eq!((ids(&files), next), (vec![a.as_str(), b.as_str()], Some(b.clone())));

        // The page ends between a file and its metadata.
        let (files, next) = files_of(page(&[&a, &a_metadata, &b], true), FIRST, 2);
        assert_eq!((ids(&files), next), (vec![a.as_str(), b.as_str()], Some(b.clone())));
        // Files whose bytes were not uploaded fill the page.
        let (files, next) = files_of(page(&[&a_metadata, &b_metadata], true), FIRST, 1);
        assert_eq!((ids(&files), next), (vec![], Some(b)));
        assert_eq!(files_of(page(&["stray", "file_"], false), FIRST, 1).1, None);
    }
}
