//! `POST /openai/v1/files`: a file in a form, which is relayed to the object store.

use axum::Json as JsonAnswer;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use stokehold_objects::Upload;
use stokehold_queue::now_ms;
use tokio::time::Instant;
use uuid::Uuid;

use super::error::Error;
use super::file_routes::{FileView, PURPOSES};
use super::files::{self, FILES_MAX, File, KEEP_S};
use super::multipart::{self, FORM_MAX, Head, OCTETS, Parts};
use crate::error::{Code, Problem};
use crate::files::stored::OpenAiFile;
use crate::files::upload_routes::{BYTES_MAX, TOTAL};
use crate::files::{NAME_MAX, is_name};
use crate::jobs::inputs::file_key;
use crate::names;
use crate::state::App;
use crate::tenants::auth::{Caller, FilesWrite};

/// Maximum number of parts of a form, and maximum size of those besides the file, bytes.
const PARTS_MAX: usize = 16;
const TEXT_MAX: usize = 1 << 10;

/// Shortest lifetime of a file, seconds.
pub(super) const KEEP_MIN_S: u64 = 3_600;

/// The form.
#[derive(Default)]
struct Form {
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
    file: Option<Sent>,
}

/// A file that has arrived and does not exist in the store yet.
struct Sent {
    name: String,
    content_type: String,
    bytes: u64,
    upload: Upload,
}

/// `POST /openai/v1/files`.
pub(super) async fn upload(
    State(app): State<App>,
    caller: Result<Caller<FilesWrite>, Problem>,
    headers: HeaderMap,
    mut body: Body,
) -> Result<JsonAnswer<FileView>, Error> {
    let mut is_asked_for = false;
    let outcome = relay(&app, caller, &headers, &mut body, &mut is_asked_for).await;
    multipart::finish(body, &headers, is_asked_for).await;
    outcome.map(|file| JsonAnswer(FileView::new(&file)))
}

async fn relay(
    app: &App,
    caller: Result<Caller<FilesWrite>, Problem>,
    headers: &HeaderMap,
    body: &mut Body,
    is_asked_for: &mut bool,
) -> Result<File, Error> {
    let tenant = &caller?.tenant;
    let most = BYTES_MAX.min(app.config.limits.file_bytes);
    let length = multipart::length(headers)?;
    if length > most.saturating_add(FORM_MAX) {
        return Err(too_large(most));
    }
    let _permit = multipart::permit(app, tenant)?;
    let now_s = now_ms() / 1000;
    if files::entries(&app.objects, tenant, now_s).await?.len() >= FILES_MAX {
        let message = format!("there are {FILES_MAX} files already; delete some, or let them expire earlier");
        return Err(Error::invalid("file", message));
    }
    // The form is little larger than its file.
    app.storage.reserve(tenant, length).await?;
    let id = format!("file_{}", Uuid::now_v7().simple());
    *is_asked_for = true;
    let form = receive(app, &file_key(tenant, &id), Parts::new(headers, body, Instant::now() + TOTAL)?, most).await?;
    let Form { purpose, anchor, seconds, file } = form;
    let Sent { name, content_type, bytes, upload } =
        file.ok_or_else(|| Error::invalid("file", "the form must have a file"))?;
    let purpose = purpose
        .filter(|purpose| PURPOSES.contains(&purpose.as_str()))
        .ok_or_else(|| Error::invalid("purpose", format!("purpose must be one of {}", PURPOSES.join(", "))))?;
    let seconds = seconds
        .map(|seconds| seconds.parse().map_err(|_| Error::invalid("expires_after", "seconds must be a number")))
        .transpose()?;
    let keep_s = keep_s("expires_after", anchor.as_deref(), seconds)?;
    let about = OpenAiFile { purpose, bytes, created_s: now_s, expires_s: now_s + keep_s };
    let file = File { id, name, about };
    files::announce(&app.objects, tenant, &file, &content_type).await?;
    upload.finish().await?;
    Ok(file)
}

/// Time for which a file is kept, from its `anchor` and `seconds`.
pub(super) fn keep_s(param: &str, anchor: Option<&str>, seconds: Option<u64>) -> Result<u64, Error> {
    match (anchor, seconds) {
        (None, None) => Ok(KEEP_S),
        (Some("created_at"), Some(seconds)) if (KEEP_MIN_S..=KEEP_S).contains(&seconds) => Ok(seconds),
        _ => {
            let message = format!("{param} must have the anchor created_at and {KEEP_MIN_S} to {KEEP_S} seconds");
            Err(Error::invalid(param, message))
        }
    }
}

/// Reads the form, whose parts come in any order.
async fn receive(app: &App, key: &str, mut parts: Parts<'_>, most: u64) -> Result<Form, Error> {
    let (mut form, mut count) = (Form::default(), 0);
    while let Some(head) = parts.next().await? {
        count += 1;
        if count > PARTS_MAX {
            return Err(Problem::new(Code::InvalidRequest, format!("a form has at most {PARTS_MAX} parts")).into());
        }
        let given_twice = match head.name.as_str() {
            "file" => form.file.replace(send(app, key, &head, &mut parts, most).await?).is_some(),
            "purpose" => form.purpose.replace(parts.text("purpose", TEXT_MAX).await?).is_some(),
            "expires_after[anchor]" => form.anchor.replace(parts.text("expires_after", TEXT_MAX).await?).is_some(),
            "expires_after[seconds]" => form.seconds.replace(parts.text("expires_after", TEXT_MAX).await?).is_some(),
            name => return Err(Error::invalid(name, format!("{name:?} is not a field of this form"))),
        };
        if given_twice {
            return Err(Error::invalid(&head.name, format!("{} is given twice", head.name)));
        }
    }
    Ok(form)
}

/// Sends a part to the store. The object does not exist until the upload is finished.
async fn send(app: &App, key: &str, head: &Head, parts: &mut Parts<'_>, most: u64) -> Result<Sent, Error> {
    let name = head.file_name.clone().unwrap_or_default();
    if !is_name(&name) {
        let message = format!("file must have a filename of 1 to {NAME_MAX} printable characters");
        return Err(Error::invalid("file", message));
    }
    let content_type = head.content_type.clone().filter(|kind| names::is_content_type(kind));
    let content_type = content_type.unwrap_or_else(|| OCTETS.to_owned());
    let (mut upload, mut bytes) = (app.objects.upload(key, &content_type).named(&name), 0);
    while let Some(chunk) = parts.chunk().await? {
        bytes += chunk.len() as u64;
        if bytes > most {
            return Err(too_large(most));
        }
        upload.write(&chunk).await?;
    }
    Ok(Sent { name, content_type, bytes, upload })
}

fn too_large(most: u64) -> Error {
    Problem::new(Code::BodyTooLarge, format!("a file may have at most {most} bytes; split it")).into()
}
