//! Converts the return value of a handler into a report: small results are inlined, large results and files are stored
//! in S3 first. The tokens that a result says it used are reported with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::{TryStreamExt, stream};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use stokehold_failpoint as failpoint;
use stokehold_protocol::JobId;
use stokehold_protocol::gateway::{FinishOutcome, LeaseRef, UploadFile, UploadsReply, UploadsRequest};
use stokehold_protocol::job::{ErrorCode, INLINE_RESULT_BYTES, JobError, OUTPUT_NAME, TokenUsage};
use stokehold_wire::OutputFile;
use tokio::task::spawn_blocking;

use crate::backoff::Tries;
use crate::gateway::{Error, Gateway};
use crate::runner::RunEnd;
use crate::scratch::open_below;
use crate::transfer::{FILE_BYTES_MAX, PUT_TIMEOUT, RETRY, Source, Transfer, measure};
use crate::usage;

/// Characters to escape in a path segment.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Concurrent uploads. Small files are limited by round trips, large ones by bandwidth; a few uploads at a time suit
/// both.
const UPLOADS_AT_ONCE: usize = 4;

/// Why a result could not be stored.
pub(crate) enum StoreError {
    /// An error to report for the job.
    Job(JobError),
    /// The lease was lost; the result is discarded.
    Stale,
}

fn failed(code: ErrorCode, message: impl Into<String>) -> StoreError {
    StoreError::Job(JobError { code, class: String::new(), message: message.into(), traceback: None, stderr: None })
}

/// Whether the result must be stored in S3 before it is reported.
pub(crate) fn is_stored(end: &RunEnd) -> bool {
    matches!(end, RunEnd::Done { result, files, .. } if !files.is_empty() || result.len() > INLINE_RESULT_BYTES)
}

/// A result as it is reported.
enum Document {
    /// A small result, part of the report.
    Inline(Box<RawValue>, Option<TokenUsage>),
    /// A large result, stored in S3.
    Stored { bytes: Bytes, sha256: String, usage: Option<TokenUsage> },
}

/// Stores a result and its files, and returns the outcome to report, with the tokens that the run used.
pub(crate) async fn store(
    gateway: &Gateway,
    transfer: &Transfer,
    lease: &LeaseRef,
    scratch: &Path,
    result: Vec<u8>,
    files: Vec<OutputFile>,
) -> Result<(FinishOutcome, Option<TokenUsage>), StoreError> {
    let mut sources: Vec<(UploadFile, File)> = Vec::with_capacity(files.len());
    for file in files {
        sources.push(opened(scratch, file).await?);
    }
    let described = sources.iter().map(|(file, _)| file.clone()).collect();
    let document = prepared(lease.job_id, result, described).await?;
    match document {
        Document::Inline(result, usage) => {
            if !sources.is_empty() {
                upload(gateway, transfer, lease, &sources, None).await?;
            }
            Ok((FinishOutcome::Succeeded { result }, usage))
        }
        Document::Stored { bytes, sha256, usage } => {
            let size_bytes = bytes.len() as u64;
            upload(gateway, transfer, lease, &sources, Some((bytes, sha256))).await?;
            Ok((FinishOutcome::Stored { size_bytes }, usage))
        }
    }
}

/// Prepares a result for its report. A result of more than the inline size, or with files to complete, is parsed and
/// hashed on another thread, so that other jobs do not wait.
async fn prepared(job: JobId, result: Vec<u8>, files: Vec<UploadFile>) -> Result<Document, StoreError> {
    if files.is_empty() && result.len() <= INLINE_RESULT_BYTES {
        return document(result);
    }
    let preparing = spawn_blocking(move || document(completed(job, result, &files)?));
    let broken = |error| Err(failed(ErrorCode::Infra, format!("cannot prepare the result: {error}")));
    preparing.await.unwrap_or_else(broken)
}

/// Validates a result, reads the tokens in it, and hashes it if it goes to S3. Slow for large results.
fn document(result: Vec<u8>) -> Result<Document, StoreError> {
    let text = String::from_utf8(result)
        .map_err(|_| failed(ErrorCode::Protocol, "the runner sent a result that is not UTF-8"))?;
    if text.len() <= INLINE_RESULT_BYTES {
        let result = RawValue::from_string(text).map_err(not_json)?;
        let usage = tokens(result.get()).flatten();
        return Ok(Document::Inline(result, usage));
    }
    // Reading the tokens validates the whole text.
    let usage = match tokens(&text) {
        Some(usage) => usage,
        None => {
            serde_json::from_str::<IgnoredAny>(&text).map_err(not_json)?;
            None
        }
    };
    let sha256 = hex::encode(Sha256::digest(&text));
    Ok(Document::Stored { bytes: text.into(), sha256, usage })
}

/// The tokens in a result; `None` if the text was not read to its end.
fn tokens(text: &str) -> Option<Option<TokenUsage>> {
    usage::may_be_in(text).then(|| usage::in_result(text).ok()).flatten()
}

fn not_json(error: serde_json::Error) -> StoreError {
    failed(ErrorCode::Protocol, format!("the runner sent a result that is not JSON: {error}"))
}

/// Opens a file that the runner named: a regular file in the run's scratch folder, of limited size. The handler may
/// change the folder at any time, so the opened file is the one that is measured and uploaded.
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
            return Err(failed(ErrorCode::Protocol, format!("{name} is not a file of this run: {error}")));
        }
        Err(error) => return Err(failed(ErrorCode::BadOutput, format!("cannot read the file {name}: {error}"))),
    };
    if size_bytes > FILE_BYTES_MAX {
        let why = format!("the file {name} has {size_bytes} bytes, more than the limit of {FILE_BYTES_MAX}");
        return Err(failed(ErrorCode::ResultTooLarge, why));
    }
    Ok((UploadFile { name, size_bytes, sha256, content_type: file.content_type }, opened))
}

async fn upload(
    gateway: &Gateway,
    transfer: &Transfer,
    lease: &LeaseRef,
    files: &[(UploadFile, File)],
    document: Option<(Bytes, String)>,
) -> Result<(), StoreError> {
    let mut wanted: Vec<UploadFile> = files.iter().map(|(file, _)| file.clone()).collect();
    let mut sources: Vec<Source<'_>> = files.iter().map(|(_, file)| Source::File(file)).collect();
    if let Some((bytes, sha256)) = document {
        wanted.push(UploadFile {
            name: OUTPUT_NAME.to_owned(),
            size_bytes: bytes.len() as u64,
            sha256,
            content_type: "application/json".to_owned(),
        });
        sources.push(Source::Bytes(bytes));
    }
    let request = UploadsRequest { job_id: lease.job_id, fence: lease.fence.clone(), files: wanted };
    let reply = upload_urls(gateway, &request).await?;
    let puts = reply.uploads.iter().zip(sources).map(Ok);
    let stored = stream::iter(puts).try_for_each_concurrent(UPLOADS_AT_ONCE, |(upload, source)| {
        transfer.put(&upload.url, &upload.headers, source)
    });
    stored.await.map_err(|error| failed(ErrorCode::Infra, format!("cannot store the result: {error}")))?;
    failpoint::reach("upload.after").await;
    Ok(())
}

/// Requests upload URLs. The run would have to be repeated otherwise, so an unreachable gateway is retried as long as
/// an unreachable store, or until the lease is lost, which cancels this call.
async fn upload_urls(gateway: &Gateway, request: &UploadsRequest) -> Result<UploadsReply, StoreError> {
    let mut tries = Tries::within(&RETRY, PUT_TIMEOUT);
    loop {
        match gateway.uploads(request).await {
            Ok(reply) => return Ok(reply),
            Err(Error::Refused { code, .. }) if code == "stale_fence" => return Err(StoreError::Stale),
            Err(error @ (Error::Unavailable(_) | Error::Unauthorized)) if tries.are_left() => {
                tracing::warn!(job.id = %request.job_id, %error, "cannot get upload URLs; retrying");
                tries.pause().await;
            }
            Err(error) => return Err(failed(ErrorCode::Infra, format!("cannot get upload URLs: {error}"))),
        }
    }
}

/// Completes each `{"$file": name}` in the result with the metadata of the file. Slow for large results.
fn completed(job: JobId, result: Vec<u8>, files: &[UploadFile]) -> Result<Vec<u8>, StoreError> {
    if files.is_empty() {
        return Ok(result);
    }
    let files: BTreeMap<&str, &UploadFile> = files.iter().map(|file| (file.name.as_str(), file)).collect();
    let mut result: Value = serde_json::from_slice(&result).map_err(not_json)?;
    complete(&job.to_string(), &files, &mut result);
    Ok(result.to_string().into_bytes())
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
                    "url": format!("/v1/jobs/{job}/files/{}", utf8_percent_encode(&file.name, ESCAPED)),
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

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn large() -> Vec<u8> {
        format!("[\"{}\"]", "x".repeat(INLINE_RESULT_BYTES)).into_bytes()
    }

    /// Counting bytes by copying 64 MiB would double the memory.
    #[tokio::test]
    async fn a_large_result_goes_to_the_store_without_a_copy() {
        let result = large();
        let (address, size) = (result.as_ptr(), result.len());
        let Ok(Document::Stored { bytes, usage: None, .. }) = prepared(JobId::new(0), result, vec![]).await else {
            panic!()
        };
        assert_eq!((bytes.as_ptr(), bytes.len()), (address, size));
    }

    #[tokio::test]
    async fn only_a_small_result_is_read_on_the_workers_own_thread() {
        let file = UploadFile {
            name: "a.txt".to_owned(),
            size_bytes: 1,
            sha256: String::new(),
            content_type: "text/plain".to_owned(),
        };
        let at_once = |result: &[u8], files| prepared(JobId::new(0), result.to_vec(), files).now_or_never();
        assert!(matches!(at_once(b"[1]", vec![]), Some(Ok(Document::Inline(..)))));
        assert!(at_once(&large(), vec![]).is_none());
        assert!(at_once(b"{\"$file\": \"a.txt\"}", vec![file]).is_none());
    }

    #[tokio::test]
    async fn what_is_not_json_is_refused_whatever_its_size() {
        let broken = format!("[\"{}\", {{\"usage\": 1]", "x".repeat(INLINE_RESULT_BYTES));
        let results = [
            b"[1".to_vec(),
            [large(), b"]".to_vec()].concat(),
            vec![0xff; INLINE_RESULT_BYTES + 1],
            b"{\"usage\": {}".to_vec(),
            broken.into_bytes(),
        ];
        for result in results {
            let Err(StoreError::Job(error)) = prepared(JobId::new(0), result, vec![]).await else { panic!() };
            assert_eq!(error.code, ErrorCode::Protocol);
        }
    }

    #[tokio::test]
    async fn tokens_are_read_whatever_the_size_of_the_result() {
        let usage = r#""usage": {"prompt_tokens": 3, "completion_tokens": 2}"#;
        // serde cannot read half of a surrogate pair, which is valid JSON.
        for text in ["", "x", "\\ud800"] {
            let small = format!("{{\"text\": \"{text}\", {usage}}}").into_bytes();
            let Ok(Document::Inline(_, read)) = prepared(JobId::new(0), small, vec![]).await else { panic!() };
            assert_eq!(read, Some([3, 0, 2].into()), "{text}");
            let filler = "x".repeat(INLINE_RESULT_BYTES);
            let large = format!("{{\"text\": \"{text}\", \"filler\": \"{filler}\", {usage}}}").into_bytes();
            let Ok(Document::Stored { usage: read, .. }) = prepared(JobId::new(0), large, vec![]).await else {
                panic!()
            };
            assert_eq!(read, Some([3, 0, 2].into()), "{text}");
        }
        let unreadable = format!("[\"{}\", \"\\ud800\", {{{usage}}}]", "x".repeat(INLINE_RESULT_BYTES));
        let Ok(Document::Stored { .. }) = prepared(JobId::new(0), unreadable.into_bytes(), vec![]).await else {
            panic!()
        };
    }
}
