//! Conversion between the headers of S3's requests and responses and `Meta`; rejection of headers that would have no
//! effect.

use std::collections::BTreeMap;

use s3s::dto::{
    CopyObjectInput, CreateMultipartUploadInput, ETag, GetObjectOutput, HeadObjectOutput, Metadata, PutObjectInput,
};
use s3s::{S3Result, s3_error};

use super::digest::Checksums;
use super::format::{Headers, Meta};

/// S3's limit on user metadata, names and values together, bytes.
const METADATA_BYTES_MAX: usize = 2048;

/// Reads the headers of an upload. This is a macro because S3 has three inputs with the same fields and no common type.
macro_rules! uploaded_headers {
    ($input:expr) => {{
        let input = $input;
        require_absent(&[
            ("x-amz-server-side-encryption-customer-algorithm", input.sse_customer_algorithm.is_some()),
            ("x-amz-server-side-encryption", input.server_side_encryption.is_some()),
            ("x-amz-object-lock-mode", input.object_lock_mode.is_some()),
            ("x-amz-object-lock-legal-hold", input.object_lock_legal_hold_status.is_some()),
            ("x-amz-tagging", input.tagging.is_some()),
            ("x-amz-website-redirect-location", input.website_redirect_location.is_some()),
            ("x-amz-acl", input.acl.as_ref().is_some_and(|acl| acl.as_str() != "private")),
        ])?;
        Ok(Headers {
            content_type: input.content_type.take(),
            content_encoding: input.content_encoding.take(),
            content_disposition: input.content_disposition.take(),
            content_language: input.content_language.take(),
            cache_control: input.cache_control.take(),
            expires: input.expires.take(),
            metadata: user_metadata(input.metadata.take())?,
        })
    }};
}

impl Headers {
    pub(super) fn of_put(input: &mut PutObjectInput) -> S3Result<Self> {
        require_absent(&[("x-amz-write-offset-bytes", input.write_offset_bytes.is_some())])?;
        uploaded_headers!(input)
    }

    pub(super) fn of_upload(input: &mut CreateMultipartUploadInput) -> S3Result<Self> {
        uploaded_headers!(input)
    }

    pub(super) fn of_copy(input: &mut CopyObjectInput) -> S3Result<Self> {
        uploaded_headers!(input)
    }
}

/// Rejects headers for features that this store does not implement.
pub(super) fn require_absent(headers: &[(&str, bool)]) -> S3Result<()> {
    match headers.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(s3_error!(NotImplemented, "this store does not support {name}; remove it")),
        None => Ok(()),
    }
}

fn user_metadata(metadata: Option<Metadata>) -> S3Result<BTreeMap<String, String>> {
    let metadata: BTreeMap<_, _> = metadata.unwrap_or_default().into_iter().collect();
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > METADATA_BYTES_MAX {
        return Err(s3_error!(
            MetadataTooLarge,
            "user metadata may have at most {METADATA_BYTES_MAX} bytes, not {bytes}"
        ));
    }
    Ok(metadata)
}

impl Meta {
    pub(super) fn e_tag(&self) -> ETag {
        ETag::Strong(self.etag.clone())
    }

    fn metadata(&self) -> Option<Metadata> {
        let metadata = &self.headers.metadata;
        (!metadata.is_empty()).then(|| metadata.clone().into_iter().collect())
    }

    /// The headers of the response to a GET; the caller adds the body and its length.
    pub(super) fn to_get(&self, with_checksums: bool) -> GetObjectOutput {
        let headers = self.headers.clone();
        let sums = if with_checksums { self.checksums.clone() } else { Checksums::default() };
        GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            e_tag: Some(self.e_tag()),
            last_modified: Some(self.modified()),
            content_type: headers.content_type,
            content_encoding: headers.content_encoding,
            content_disposition: headers.content_disposition,
            content_language: headers.content_language,
            cache_control: headers.cache_control,
            expires: headers.expires,
            metadata: self.metadata(),
            checksum_crc32: sums.crc32,
            checksum_crc32c: sums.crc32c,
            checksum_crc64nvme: sums.crc64nvme,
            checksum_sha1: sums.sha1,
            checksum_sha256: sums.sha256,
            ..GetObjectOutput::default()
        }
    }

    /// The headers of the response to a HEAD.
    pub(super) fn to_head(&self, with_checksums: bool) -> HeadObjectOutput {
        let get = self.to_get(with_checksums);
        HeadObjectOutput {
            accept_ranges: get.accept_ranges,
            content_length: i64::try_from(self.size_bytes).ok(),
            e_tag: get.e_tag,
            last_modified: get.last_modified,
            content_type: get.content_type,
            content_encoding: get.content_encoding,
            content_disposition: get.content_disposition,
            content_language: get.content_language,
            cache_control: get.cache_control,
            expires: get.expires,
            metadata: get.metadata,
            checksum_crc32: get.checksum_crc32,
            checksum_crc32c: get.checksum_crc32c,
            checksum_crc64nvme: get.checksum_crc64nvme,
            checksum_sha1: get.checksum_sha1,
            checksum_sha256: get.checksum_sha256,
            ..HeadObjectOutput::default()
        }
    }
}
