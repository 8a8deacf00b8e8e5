//! Conditional requests: the conditions under which an object is read, replaced or deleted.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use s3s::dto::{ETag, ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use super::format::{Entry, Meta, timestamp};

/// The conditions `If-Match` and `If-None-Match`.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    pub(super) if_match: Option<ETagCondition>,
    pub(super) if_none_match: Option<ETagCondition>,
}

impl Conditions {
    /// Checks the conditions of a write over `current`. The caller has the lock of the key, so the result stays valid
    /// until the write.
    pub(super) fn check_write(&self, current: Option<&Entry>) -> S3Result<()> {
        let matches = |condition: &ETagCondition| current.is_some_and(|entry| names(condition, &entry.etag));
        if let Some(condition) = &self.if_match
            && !matches(condition)
        {
            return Err(match current {
                None => s3_error!(NoSuchKey, "If-Match requires an existing object, and there is none"),
                Some(_) => s3_error!(PreconditionFailed, "If-Match does not match the existing object"),
            });
        }
        if self.if_none_match.as_ref().is_some_and(matches) {
            return Err(s3_error!(
                PreconditionFailed,
                "If-None-Match requires that the object does not exist, but it does"
            ));
        }
        Ok(())
    }

    /// Checks the conditions of a read of `meta`. `since` and `unless_since` are `If-Modified-Since` and
    /// `If-Unmodified-Since`; ETags take precedence over them (RFC 9110, 13.2.2).
    pub(super) fn check_read(
        &self,
        meta: &Meta,
        since: Option<&Timestamp>,
        unless_since: Option<&Timestamp>,
    ) -> S3Result<()> {
        // HTTP dates have no milliseconds.
        let modified = timestamp(meta.modified_ms / 1000 * 1000);
        let passes = match (&self.if_match, unless_since) {
            (Some(condition), _) => names(condition, &meta.etag),
            (None, Some(time)) => modified <= *time,
            (None, None) => true,
        };
        if !passes {
            return Err(s3_error!(PreconditionFailed, "the object does not meet the condition"));
        }
        let changed = match (&self.if_none_match, since) {
            (Some(condition), _) => !names(condition, &meta.etag),
            (None, Some(time)) => modified > *time,
            (None, None) => true,
        };
        if changed { Ok(()) } else { Err(not_modified(meta)) }
    }
}

fn names(condition: &ETagCondition, etag: &str) -> bool {
    condition.as_etag().is_none_or(|named| named.value() == etag)
}

fn not_modified(meta: &Meta) -> S3Error {
    let etag = ETag::Strong(meta.etag.clone()).to_http_header().ok();
    with_headers(S3Error::new(S3ErrorCode::NotModified), etag.map(|etag| (header::ETAG, etag)))
}

/// The error for a range that lies outside of the object.
pub(super) fn unsatisfiable(size_bytes: u64) -> S3Error {
    let all = HeaderValue::from_str(&format!("bytes */{size_bytes}")).ok();
    let error = s3_error!(InvalidRange, "the object has {size_bytes} bytes");
    with_headers(error, all.map(|all| (header::CONTENT_RANGE, all)))
}

fn with_headers(mut error: S3Error, extra: Option<(HeaderName, HeaderValue)>) -> S3Error {
    // The error's headers replace those of its body.
    let mut headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"))]);
    headers.extend(extra.map(|(name, value)| (Some(name), value)));
    error.set_headers(headers);
    error
}
