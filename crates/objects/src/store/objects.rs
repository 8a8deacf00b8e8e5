//! Requests for whole objects: put, get, head, copy, delete. `service` only forwards to these functions.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use s3s::dto::{
    ChecksumMode, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, DeleteObjectInput,
    DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, GetObjectInput, GetObjectOutput, HeadObjectInput,
    HeadObjectOutput, MetadataDirective, PutObjectInput, PutObjectOutput, Range, StreamingBlob,
};
use s3s::{S3Request, S3Result, s3_error};
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use super::conditions::{Conditions, unsatisfiable};
use super::disk::Disk;
use super::failure::failed;
use super::format::{Headers, Meta, now_ms};
use super::headers::require_absent;
use super::ingest::{Incoming, blocking};

/// Size of a piece in which a body is read for a client, bytes.
const READ_BYTES: usize = 256 * 1024;

/// S3's limit on one batch delete.
const DELETE_MAX: usize = 1000;

pub(super) async fn put(disk: &Arc<Disk>, request: S3Request<PutObjectInput>) -> S3Result<PutObjectOutput> {
    let mut input = request.input;
    let headers = Headers::of_put(&mut input)?;
    let conditions = Conditions { if_match: input.if_match, if_none_match: input.if_none_match };
    // An early check before the body is received, so that a client does not send it in vain. The check at commit
    // decides.
    conditions.check_write(disk.index.get(&input.bucket, &input.key)?.as_ref())?;
    let incoming = Incoming {
        body: input.body,
        content_length: input.content_length,
        content_md5: input.content_md5,
        headers: &request.headers,
        trailers: request.trailing_headers,
    };
    let (temp, digests) = incoming.receive(disk).await?;
    let meta = Meta {
        key: input.key,
        size_bytes: digests.size_bytes,
        etag: digests.etag(),
        modified_ms: now_ms(),
        headers,
        checksums: digests.checksums,
    };
    let disk = disk.clone();
    let meta = blocking(move || disk.commit(&input.bucket, temp, &meta, &conditions).map(|()| meta)).await?;
    Ok(PutObjectOutput {
        e_tag: Some(meta.e_tag()),
        checksum_crc32: meta.checksums.crc32,
        checksum_crc32c: meta.checksums.crc32c,
        checksum_crc64nvme: meta.checksums.crc64nvme,
        checksum_sha1: meta.checksums.sha1,
        checksum_sha256: meta.checksums.sha256,
        ..PutObjectOutput::default()
    })
}

pub(super) async fn get(disk: &Arc<Disk>, input: GetObjectInput) -> S3Result<GetObjectOutput> {
    require_absent(&[("partNumber", input.part_number.is_some()), ("versionId", input.version_id.is_some())])?;
    let conditions = Conditions { if_match: input.if_match, if_none_match: input.if_none_match };
    let (mut file, meta) = open(disk, input.bucket, input.key).await?;
    conditions.check_read(&meta, input.if_modified_since.as_ref(), input.if_unmodified_since.as_ref())?;
    let (first, length) = select(input.range, meta.size_bytes)?;
    file.seek(SeekFrom::Start(first)).map_err(failed("read an object"))?;
    let body = ReaderStream::with_capacity(tokio::fs::File::from_std(file).take(length), READ_BYTES);
    // A stored checksum is that of the whole body.
    let checksums = input.range.is_none() && enabled(input.checksum_mode.as_ref());
    Ok(GetObjectOutput {
        body: Some(StreamingBlob::wrap(body)),
        content_length: i64::try_from(length).ok(),
        content_range: input.range.map(|_| format!("bytes {first}-{}/{}", first + length - 1, meta.size_bytes)),
        ..meta.to_get(checksums)
    })
}

pub(super) async fn head(disk: &Arc<Disk>, input: HeadObjectInput) -> S3Result<HeadObjectOutput> {
    require_absent(&[
        ("partNumber", input.part_number.is_some()),
        ("versionId", input.version_id.is_some()),
        ("Range", input.range.is_some()),
    ])?;
    let conditions = Conditions { if_match: input.if_match, if_none_match: input.if_none_match };
    let (_, meta) = open(disk, input.bucket, input.key).await?;
    conditions.check_read(&meta, input.if_modified_since.as_ref(), input.if_unmodified_since.as_ref())?;
    Ok(meta.to_head(enabled(input.checksum_mode.as_ref())))
}

pub(super) async fn copy(disk: &Arc<Disk>, mut input: CopyObjectInput) -> S3Result<CopyObjectOutput> {
    require_absent(&[
        ("x-amz-checksum-algorithm", input.checksum_algorithm.is_some()),
        (
            "x-amz-copy-source-server-side-encryption-customer-algorithm",
            input.copy_source_sse_customer_algorithm.is_some(),
        ),
    ])?;
    let headers = Headers::of_copy(&mut input)?;
    let replaces = input.metadata_directive.as_ref().is_some_and(|one| one.as_str() == MetadataDirective::REPLACE);
    let (bucket, key) = source(input.copy_source)?;
    if !replaces && bucket == input.bucket && key == input.key {
        return Err(s3_error!(InvalidRequest, "a copy of an object onto itself must replace its metadata"));
    }
    let conditions =
        Conditions { if_match: input.copy_source_if_match, if_none_match: input.copy_source_if_none_match };
    let disk = disk.clone();
    let copied = blocking(move || {
        let (file, from) = disk.open_object(&bucket, &key)?;
        source_is(&conditions, &from)?;
        let mut temp = disk.temp()?;
        append(file, 0, from.size_bytes, &mut temp.file)?;
        let headers = if replaces { headers } else { from.headers };
        let meta = Meta { key: input.key, modified_ms: now_ms(), headers, ..from };
        disk.commit(&input.bucket, temp, &meta, &Conditions::default())?;
        Ok(meta)
    });
    let meta = copied.await?;
    let result = CopyObjectResult {
        e_tag: Some(meta.e_tag()),
        last_modified: Some(meta.modified()),
        ..CopyObjectResult::default()
    };
    Ok(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
}

pub(super) async fn delete(disk: &Arc<Disk>, input: DeleteObjectInput) -> S3Result<()> {
    require_absent(&[("versionId", input.version_id.is_some())])?;
    let conditions = Conditions { if_match: input.if_match, if_none_match: None };
    let disk = disk.clone();
    blocking(move || disk.delete(&input.bucket, &[input.key], &conditions)).await
}

pub(super) async fn delete_many(disk: &Arc<Disk>, input: DeleteObjectsInput) -> S3Result<DeleteObjectsOutput> {
    let named = input.delete.objects;
    require_absent(&[
        ("VersionId", named.iter().any(|one| one.version_id.is_some())),
        ("ETag", named.iter().any(|one| one.e_tag.is_some())),
    ])?;
    if named.is_empty() || named.len() > DELETE_MAX {
        return Err(s3_error!(MalformedXML, "name 1 to {DELETE_MAX} keys, not {}", named.len()));
    }
    let keys: Vec<String> = named.into_iter().map(|one| one.key).collect();
    let disk = disk.clone();
    let work = move || disk.delete(&input.bucket, &keys, &Conditions::default()).map(|()| keys);
    let keys = blocking(work).await?;
    let deleted = |key| DeletedObject { key: Some(key), ..DeletedObject::default() };
    Ok(DeleteObjectsOutput {
        deleted: (input.delete.quiet != Some(true)).then(|| keys.into_iter().map(deleted).collect()),
        ..DeleteObjectsOutput::default()
    })
}

async fn open(disk: &Arc<Disk>, bucket: String, key: String) -> S3Result<(File, Meta)> {
    let disk = disk.clone();
    blocking(move || disk.open_object(&bucket, &key)).await
}

/// First byte and length of a range.
fn select(range: Option<Range>, size_bytes: u64) -> S3Result<(u64, u64)> {
    let Some(range) = range else { return Ok((0, size_bytes)) };
    // An empty object has no bytes for a range.
    let selected = range.check(size_bytes).ok().filter(|selected| !selected.is_empty());
    let selected = selected.ok_or_else(|| unsatisfiable(size_bytes))?;
    Ok((selected.start, selected.end - selected.start))
}

fn enabled(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

/// The source object of a copy.
pub(super) fn source(source: CopySource) -> S3Result<(String, String)> {
    match source {
        CopySource::Bucket { bucket, key, version_id: None } => Ok((bucket.into(), key.into())),
        _ => Err(s3_error!(NotImplemented, "x-amz-copy-source must be <bucket>/<key>, without a version")),
    }
}

/// Checks the conditions on the source of a copy. Either kind of condition fails with 412, because "not modified" has
/// no meaning for a copy.
pub(super) fn source_is(conditions: &Conditions, meta: &Meta) -> S3Result<()> {
    conditions
        .check_read(meta, None, None)
        .map_err(|_| s3_error!(PreconditionFailed, "the source does not meet the condition"))
}

/// Copies bytes of a body inside the kernel.
pub(super) fn append(mut from: File, first: u64, length: u64, to: &mut File) -> S3Result<()> {
    let copied = from.seek(SeekFrom::Start(first)).and_then(|_| io::copy(&mut from.take(length), to));
    match copied.map_err(failed("copy an object"))? {
        copied if copied == length => Ok(()),
        copied => Err(s3_error!(InternalError, "the object has {copied} bytes, but {length} were recorded")),
    }
}
