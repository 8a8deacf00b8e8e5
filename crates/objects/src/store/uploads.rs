//! Requests of multipart uploads. `multipart` implements them.

use std::sync::Arc;

use s3s::dto::{
    AbortMultipartUploadInput, CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart,
    CopyPartResult, CreateMultipartUploadInput, CreateMultipartUploadOutput, ETag, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload, Part, Range, UploadPartCopyInput,
    UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Request, S3Result, s3_error};

use super::conditions::{Conditions, unsatisfiable};
use super::digest::{Checksums, Hasher};
use super::disk::Disk;
use super::format::{Headers, Meta, now_ms, timestamp};
use super::headers::require_absent;
use super::ingest::{Incoming, blocking};
use super::multipart::{self, Manifest, Named, Upload};
use super::objects::{append, source, source_is};

/// S3's limit on one page of parts or uploads.
const PAGE_MAX: usize = 1000;

pub(super) async fn create(
    disk: &Arc<Disk>,
    mut input: CreateMultipartUploadInput,
) -> S3Result<CreateMultipartUploadOutput> {
    let headers = Headers::of_upload(&mut input)?;
    let manifest = Manifest { bucket: input.bucket.clone(), key: input.key.clone(), created_ms: now_ms(), headers };
    let disk = disk.clone();
    let id = blocking(move || multipart::begin(&disk, &manifest)).await?;
    Ok(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(id),
        ..CreateMultipartUploadOutput::default()
    })
}

pub(super) async fn put_part(disk: &Arc<Disk>, request: S3Request<UploadPartInput>) -> S3Result<UploadPartOutput> {
    let input = request.input;
    require_absent(&[("x-amz-server-side-encryption-customer-algorithm", input.sse_customer_algorithm.is_some())])?;
    // Checked before the body is received, so that a client does not send it in vain.
    let (bucket, key, id) = (input.bucket, input.key, input.upload_id);
    let (bucket, key, id) = {
        let disk = disk.clone();
        blocking(move || Upload::find(&disk, &bucket, &key, &id).map(drop).map(|()| (bucket, key, id))).await?
    };
    let incoming = Incoming {
        body: input.body,
        content_length: input.content_length,
        content_md5: input.content_md5,
        headers: &request.headers,
        trailers: request.trailing_headers,
    };
    let (temp, digests) = incoming.receive(disk).await?;
    let disk = disk.clone();
    let work = move || Upload::find(&disk, &bucket, &key, &id)?.put_part(input.part_number, temp, digests);
    let part = blocking(work).await?;
    Ok(UploadPartOutput {
        e_tag: Some(part.e_tag()),
        checksum_crc32: part.checksums.crc32,
        checksum_crc32c: part.checksums.crc32c,
        checksum_crc64nvme: part.checksums.crc64nvme,
        checksum_sha1: part.checksums.sha1,
        checksum_sha256: part.checksums.sha256,
        ..UploadPartOutput::default()
    })
}

pub(super) async fn copy_part(disk: &Arc<Disk>, input: UploadPartCopyInput) -> S3Result<UploadPartCopyOutput> {
    let (bucket, key) = source(input.copy_source)?;
    let range = input.copy_source_range.as_deref().map(Range::parse).transpose();
    let range =
        range.map_err(|_| s3_error!(InvalidArgument, "x-amz-copy-source-range must be bytes=<first>-<last>"))?;
    let conditions =
        Conditions { if_match: input.copy_source_if_match, if_none_match: input.copy_source_if_none_match };
    let disk = disk.clone();
    let work = move || {
        let upload = Upload::find(&disk, &input.bucket, &input.key, &input.upload_id)?;
        let (file, from) = disk.open_object(&bucket, &key)?;
        source_is(&conditions, &from)?;
        let bytes = match range {
            Some(range) => range.check(from.size_bytes).map_err(|_| unsatisfiable(from.size_bytes))?,
            None => 0..from.size_bytes,
        };
        let mut temp = disk.temp()?;
        append(file, bytes.start, bytes.end - bytes.start, &mut temp.file)?;
        // The ETag of a part becomes part of the whole object's ETag, so the copy is read once more.
        let digests = Hasher::of_file(&temp.file)?;
        upload.put_part(input.part_number, temp, digests)
    };
    let part = blocking(work).await?;
    Ok(UploadPartCopyOutput {
        copy_part_result: Some(CopyPartResult {
            e_tag: Some(part.e_tag()),
            last_modified: Some(part.modified()),
            ..CopyPartResult::default()
        }),
        ..UploadPartCopyOutput::default()
    })
}

pub(super) async fn list_parts(disk: &Arc<Disk>, input: ListPartsInput) -> S3Result<ListPartsOutput> {
    let marker = input.part_number_marker.unwrap_or(0);
    let max = page_max(input.max_parts)?;
    let disk = disk.clone();
    let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
    let mut parts = blocking(move || Upload::find(&disk, &bucket, &key, &id)?.parts()).await?;
    parts.retain(|(number, _)| *number > marker);
    let truncated = parts.len() > max;
    parts.truncate(max);
    let last = parts.last().map(|(number, _)| *number);
    let part = |(number, meta): (i32, Meta)| Part {
        part_number: Some(number),
        e_tag: Some(meta.e_tag()),
        size: i64::try_from(meta.size_bytes).ok(),
        last_modified: Some(meta.modified()),
        checksum_crc32: meta.checksums.crc32,
        checksum_crc32c: meta.checksums.crc32c,
        checksum_crc64nvme: meta.checksums.crc64nvme,
        checksum_sha1: meta.checksums.sha1,
        checksum_sha256: meta.checksums.sha256,
    };
    Ok(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: Some(marker),
        max_parts: i32::try_from(max).ok(),
        is_truncated: Some(truncated),
        next_part_number_marker: last.filter(|_| truncated),
        parts: Some(parts.into_iter().map(part).collect()),
        ..ListPartsOutput::default()
    })
}

pub(super) async fn list(disk: &Arc<Disk>, input: ListMultipartUploadsInput) -> S3Result<ListMultipartUploadsOutput> {
    require_absent(&[("delimiter", input.delimiter.is_some()), ("encoding-type", input.encoding_type.is_some())])?;
    let max = page_max(input.max_uploads)?;
    let prefix = input.prefix.clone().unwrap_or_default();
    let (disk, bucket) = (disk.clone(), input.bucket.clone());
    let mut uploads = blocking(move || multipart::list(&disk, &bucket, &prefix)).await?;
    let key_marker = input.key_marker.clone().unwrap_or_default();
    uploads.retain(|(id, manifest)| match &input.upload_id_marker {
        Some(id_marker) => (&manifest.key, id) > (&key_marker, id_marker),
        None => manifest.key > key_marker,
    });
    let truncated = uploads.len() > max;
    uploads.truncate(max);
    let last = uploads.last().filter(|_| truncated).cloned();
    let upload = |(id, manifest): (String, Manifest)| MultipartUpload {
        upload_id: Some(id),
        key: Some(manifest.key),
        initiated: Some(timestamp(manifest.created_ms)),
        ..MultipartUpload::default()
    };
    Ok(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: input.prefix,
        key_marker: input.key_marker,
        upload_id_marker: input.upload_id_marker,
        max_uploads: i32::try_from(max).ok(),
        is_truncated: Some(truncated),
        next_key_marker: last.as_ref().map(|(_, manifest)| manifest.key.clone()),
        next_upload_id_marker: last.map(|(id, _)| id),
        uploads: Some(uploads.into_iter().map(upload).collect()),
        ..ListMultipartUploadsOutput::default()
    })
}

/// Completes an upload. `whole` contains checksums of the joined object, which are rejected because the object would
/// have to be read again to check them.
pub(super) async fn complete(
    disk: &Arc<Disk>,
    input: CompleteMultipartUploadInput,
    whole: &Checksums,
) -> S3Result<CompleteMultipartUploadOutput> {
    require_absent(&[("x-amz-checksum-* of the whole object", !whole.is_empty())])?;
    let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
    let parts = parts.into_iter().map(named).collect::<S3Result<Vec<_>>>()?;
    let conditions = Conditions { if_match: input.if_match, if_none_match: input.if_none_match };
    let disk = disk.clone();
    let (bucket, key) = (input.bucket.clone(), input.key.clone());
    let work = move || {
        Upload::find(&disk, &bucket, &key, &input.upload_id)?.complete(&parts, input.mpu_object_size, &conditions)
    };
    let meta = blocking(work).await?;
    Ok(CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        bucket: Some(input.bucket),
        key: Some(input.key),
        e_tag: Some(meta.e_tag()),
        ..CompleteMultipartUploadOutput::default()
    })
}

pub(super) async fn abort(disk: &Arc<Disk>, input: AbortMultipartUploadInput) -> S3Result<()> {
    let disk = disk.clone();
    blocking(move || Upload::find(&disk, &input.bucket, &input.key, &input.upload_id)?.end()).await
}

fn named(part: CompletedPart) -> S3Result<Named> {
    Ok(Named {
        number: part.part_number.ok_or_else(|| s3_error!(MalformedXML, "a part has no number"))?,
        etag: part.e_tag.map(ETag::into_value),
        checksums: Checksums {
            crc32: part.checksum_crc32,
            crc32c: part.checksum_crc32c,
            crc64nvme: part.checksum_crc64nvme,
            sha1: part.checksum_sha1,
            sha256: part.checksum_sha256,
        },
    })
}

fn page_max(asked: Option<i32>) -> S3Result<usize> {
    match asked.map_or(Ok(PAGE_MAX), usize::try_from) {
        Ok(asked) => Ok(asked.min(PAGE_MAX)),
        Err(_) => Err(s3_error!(InvalidArgument, "a page may have 0 to {PAGE_MAX} entries")),
    }
}
