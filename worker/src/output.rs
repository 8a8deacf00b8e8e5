//! From what a handler returned to a report: small results inline, large ones and files into S3 first.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use futures::{TryStreamExt, stream};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use stokehold_queue::failpoint;
use stokehold_queue::gateway::{FinishOutcome, LeaseRef, UploadFile, UploadsRequest};
use stokehold_queue::job::{ErrorCode, INLINE_RESULT_BYTES, JobError, OUTPUT_NAME};
use stokehold_wire::OutputFile;
use tokio::task::spawn_blocking;

use crate::gateway::{Error, Gateway};
use crate::runner::RunEnd;
use crate::scratch::open_below;
use crate::transfer::{FILE_BYTES_MAX, Source, Transfer, measure};

/// Small files are bound by round trips, large ones by the line: a few at once serve both.
const UPLOADS_AT_ONCE: usize = 4;

/// Why there is no report of success.
pub(crate) enum StoreError {
    /// The job is to be told.
    Job(JobError),
    /// The lease is gone: whatever was made is nobody's.
    Stale,
}

fn failed(code: ErrorCode, message: impl Into<String>) -> StoreError {
    StoreError::Job(JobError { code, class: String::new(), message: message.into(), traceback: None, stderr: None })
}

/// Whether an end has something that goes to S3 before it is reported.
pub(crate) fn is_stored(end: &RunEnd) -> bool {
    matches!(end, RunEnd::Done { result, files, .. } if !files.is_empty() || result.len() > INLINE_RESULT_BYTES)
}

/// Stores a result and its files, and gives the outcome to report.
pub(crate) async fn store(
    gateway: &Gateway,
    transfer: &Transfer,
    lease: &LeaseRef,
    scratch: &Path,
    result: Vec<u8>,
    files: Vec<OutputFile>,
) -> Result<FinishOutcome, StoreError> {
    let text = String::from_utf8(result)
        .map_err(|_| failed(ErrorCode::Protocol, "the runner sent a result that is not UTF-8"))?;
    let mut sources: Vec<(UploadFile, File)> = Vec::with_capacity(files.len());
    for file in files {
        sources.push(opened(scratch, file).await?);
    }
    let text = if sources.is_empty() { text } else { completed(lease, &text, &sources)? };
    let large = text.len() > INLINE_RESULT_BYTES;
    if large || !sources.is_empty() {
        let document = large.then(|| bytes::Bytes::from(text.clone()));
        upload(gateway, transfer, lease, &sources, document).await?;
        failpoint::reach("upload.after").await;
    }
    if large {
        return Ok(FinishOutcome::Stored { size_bytes: text.len() as u64 });
    }
    let result = RawValue::from_string(text)
        .map_err(|_| failed(ErrorCode::Protocol, "the runner sent a result that is not JSON"))?;
    Ok(FinishOutcome::Succeeded { result })
}

/// Opens a file that the runner named: a regular one, inside the run's scratch, not too large. The handler may change what lies there at
/// any time, so what was opened is what is measured and uploaded.
async fn opened(scratch: &Path, file: OutputFile) -> Result<(UploadFile, File), StoreError> {
    let (scratch, path) = (scratch.to_owned(), PathBuf::from(&file.path));
    let opening = spawn_blocking(move || {
        let mut opened = open_below(&scratch, &path)?;
        let measured = measure(&mut opened)?;
        Ok::<_, std::io::Error>((opened, measured))
    });
    let name = file.name;
    let (opened, (size_bytes, sha256)) = match opening.await.unwrap_or_else(|panic| Err(panic.into())) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            return Err(failed(ErrorCode::Protocol, format!("{name} is no file of this run: {error}")));
        }
        Err(error) => return Err(failed(ErrorCode::BadOutput, format!("the file {name} cannot be read: {error}"))),
    };
    if size_bytes > FILE_BYTES_MAX {
        let why = format!("the file {name} has {size_bytes} bytes, more than {FILE_BYTES_MAX}");
        return Err(failed(ErrorCode::ResultTooLarge, why));
    }
    Ok((UploadFile { name, size_bytes, sha256, content_type: file.content_type }, opened))
}

async fn upload(
    gateway: &Gateway,
    transfer: &Transfer,
    lease: &LeaseRef,
    files: &[(UploadFile, File)],
    document: Option<bytes::Bytes>,
) -> Result<(), StoreError> {
    let mut wanted: Vec<UploadFile> = files.iter().map(|(file, _)| file.clone()).collect();
    let mut sources: Vec<Source<'_>> = files.iter().map(|(_, file)| Source::File(file)).collect();
    if let Some(document) = document {
        wanted.push(UploadFile {
            name: OUTPUT_NAME.to_owned(),
            size_bytes: document.len() as u64,
            sha256: hex::encode(Sha256::digest(&document)),
            content_type: "application/json".to_owned(),
        });
        sources.push(Source::Bytes(document));
    }
    let request = UploadsRequest { job_id: lease.job_id, fence: lease.fence.clone(), files: wanted };
    let reply = match gateway.uploads(&request).await {
        Ok(reply) => reply,
        Err(Error::Refused { code, .. }) if code == "stale_fence" => return Err(StoreError::Stale),
        Err(error) => return Err(failed(ErrorCode::Infra, format!("no upload URLs: {error}"))),
    };
    let puts = reply.uploads.iter().zip(sources).map(Ok);
    let stored = stream::iter(puts).try_for_each_concurrent(UPLOADS_AT_ONCE, |(upload, source)| {
        transfer.put(&upload.url, &upload.headers, source)
    });
    stored.await.map_err(|error| failed(ErrorCode::Infra, format!("the result could not be stored: {error}")))
}

/// Completes each `{"$file": name}` in the result with what is known of that file.
fn completed(lease: &LeaseRef, text: &str, files: &[(UploadFile, File)]) -> Result<String, StoreError> {
    let files: BTreeMap<&str, &UploadFile> = files.iter().map(|(file, _)| (file.name.as_str(), file)).collect();
    let mut result: Value = serde_json::from_str(text)
        .map_err(|_| failed(ErrorCode::Protocol, "the runner sent a result that is not JSON"))?;
    complete(&lease.job_id.to_string(), &files, &mut result);
    Ok(result.to_string())
}

fn complete(job: &str, files: &BTreeMap<&str, &UploadFile>, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| complete(job, files, item)),
        Value::Object(members) => {
            let file =
                (members.len() == 1).then(|| members.get("$file")?.as_str().and_then(|name| files.get(name))).flatten();
            if let Some(file) = file {
                *value = serde_json::json!({
                    "$file": file.name,
                    "url": format!("/v1/jobs/{job}/files/{}", file.name),
                    "size_bytes": file.size_bytes,
                    "sha256": file.sha256,
                    "content_type": file.content_type,
                });
            } else {
                members.values_mut().for_each(|member| complete(job, files, member));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
