//! The S3 requests that this store supports. All others fail with `NotImplemented`.

use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use super::digest::Checksums;
use super::disk::Disk;
use super::format::timestamp;
use super::ingest::blocking;
use super::listing::{Page, Query, Start};
use super::{objects, uploads};

/// S3's limit on one page.
const PAGE_MAX: i32 = 1000;

/// The characters that `encoding-type=url` encodes.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The implementation of the trait that s3s calls.
pub(super) struct Service {
    pub(super) disk: Arc<Disk>,
}

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for Service {
    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        let bucket = request.input.bucket;
        let location = format!("/{bucket}");
        let disk = self.disk.clone();
        blocking(move || disk.create_bucket(&bucket)).await?;
        Ok(S3Response::new(CreateBucketOutput { location: Some(location) }))
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.disk.index.require_bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn get_bucket_location(&self, request: S3Request<GetBucketLocationInput>) -> Answer<GetBucketLocationOutput> {
        self.disk.index.require_bucket(&request.input.bucket)?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let buckets = self.disk.index.buckets().into_iter().map(|(name, created_ms)| Bucket {
            name: Some(name),
            creation_date: Some(timestamp(created_ms)),
            ..Bucket::default()
        });
        Ok(S3Response::new(ListBucketsOutput { buckets: Some(buckets.collect()), ..ListBucketsOutput::default() }))
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        objects::put(&self.disk, request).await.map(S3Response::new)
    }

    async fn post_object(&self, _: S3Request<PostObjectInput>) -> Answer<PostObjectOutput> {
        Err(s3_error!(NotImplemented, "uploads by HTML form are not supported; use a presigned PUT"))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        objects::get(&self.disk, request.input).await.map(S3Response::new)
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        objects::head(&self.disk, request.input).await.map(S3Response::new)
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        objects::copy(&self.disk, request.input).await.map(S3Response::new)
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        objects::delete(&self.disk, request.input).await?;
        Ok(S3Response::with_status(DeleteObjectOutput::default(), http::StatusCode::NO_CONTENT))
    }

    async fn delete_objects(&self, request: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        objects::delete_many(&self.disk, request.input).await.map(S3Response::new)
    }

    async fn list_objects_v2(&self, request: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        let input = request.input;
        let start = match (&input.continuation_token, &input.start_after) {
            (Some(token), _) => Start::from_token(token)
                .ok_or_else(|| s3_error!(InvalidArgument, "this continuation token was not issued by this store"))?,
            (None, Some(key)) => Start::After(key.clone()),
            (None, None) => Start::Beginning,
        };
        let max = page_max(input.max_keys)?;
        let query = query(input.prefix.as_ref(), input.delimiter.as_ref(), start, max);
        let page = self.disk.index.list(&input.bucket, &query)?;
        let encode = Encode::of(input.encoding_type.as_ref());
        let (contents, common_prefixes, next) = shown(page, encode);
        Ok(S3Response::new(ListObjectsV2Output {
            key_count: i32::try_from(contents.len() + common_prefixes.len()).ok(),
            contents: Some(contents),
            common_prefixes: Some(common_prefixes),
            name: Some(input.bucket),
            prefix: Some(encode.text(query.prefix)),
            delimiter: query.delimiter.map(|delimiter| encode.text(delimiter)),
            start_after: input.start_after.map(|key| encode.text(key)),
            max_keys: Some(max),
            encoding_type: input.encoding_type,
            continuation_token: input.continuation_token,
            is_truncated: Some(next.is_some()),
            next_continuation_token: next.map(|next| next.to_token()),
            ..ListObjectsV2Output::default()
        }))
    }

    async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        let input = request.input;
        let start = match (&input.marker, &input.delimiter) {
            // A marker is a key or, if a page of this store ended with one, a common prefix.
            (Some(marker), Some(delimiter)) if marker.ends_with(delimiter.as_str()) => Start::Beyond(marker.clone()),
            (Some(marker), _) => Start::After(marker.clone()),
            (None, _) => Start::Beginning,
        };
        let max = page_max(input.max_keys)?;
        let query = query(input.prefix.as_ref(), input.delimiter.as_ref(), start, max);
        let page = self.disk.index.list(&input.bucket, &query)?;
        let encode = Encode::of(input.encoding_type.as_ref());
        let (contents, common_prefixes, next) = shown(page, encode);
        Ok(S3Response::new(ListObjectsOutput {
            contents: Some(contents),
            common_prefixes: Some(common_prefixes),
            name: Some(input.bucket),
            prefix: Some(encode.text(query.prefix)),
            delimiter: query.delimiter.map(|delimiter| encode.text(delimiter)),
            marker: input.marker.map(|marker| encode.text(marker)),
            max_keys: Some(max),
            encoding_type: input.encoding_type,
            is_truncated: Some(next.is_some()),
            next_marker: next.map(|next| {
                encode.text(match next {
                    Start::After(text) | Start::Beyond(text) => text,
                    Start::Beginning => String::new(),
                })
            }),
            ..ListObjectsOutput::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        uploads::create(&self.disk, request.input).await.map(S3Response::new)
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        uploads::put_part(&self.disk, request).await.map(S3Response::new)
    }

    async fn upload_part_copy(&self, request: S3Request<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        uploads::copy_part(&self.disk, request.input).await.map(S3Response::new)
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        uploads::list_parts(&self.disk, request.input).await.map(S3Response::new)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        uploads::list(&self.disk, request.input).await.map(S3Response::new)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let whole = Checksums::from_headers(&request.headers);
        uploads::complete(&self.disk, request.input, &whole).await.map(S3Response::new)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        uploads::abort(&self.disk, request.input).await?;
        Ok(S3Response::with_status(AbortMultipartUploadOutput::default(), http::StatusCode::NO_CONTENT))
    }
}

fn page_max(asked: Option<i32>) -> S3Result<i32> {
    match asked.unwrap_or(PAGE_MAX) {
        asked @ 0.. => Ok(asked.min(PAGE_MAX)),
        asked => Err(s3_error!(InvalidArgument, "max-keys must be 0 to {PAGE_MAX}, not {asked}")),
    }
}

fn query(prefix: Option<&String>, delimiter: Option<&String>, start: Start, max: i32) -> Query {
    Query {
        prefix: prefix.cloned().unwrap_or_default(),
        delimiter: delimiter.filter(|delimiter| !delimiter.is_empty()).cloned(),
        start,
        max: usize::try_from(max).unwrap_or(0),
    }
}

/// The encoding of keys: unchanged, or percent-encoded for clients that requested keys which XML can always represent.
#[derive(Clone, Copy)]
struct Encode {
    url: bool,
}

impl Encode {
    fn of(encoding: Option<&EncodingType>) -> Self {
        Self { url: encoding.is_some_and(|encoding| encoding.as_str() == EncodingType::URL) }
    }

    fn text(self, text: String) -> String {
        if self.url { utf8_percent_encode(&text, PLAIN).to_string() } else { text }
    }
}

fn shown(page: Page, encode: Encode) -> (Vec<Object>, Vec<CommonPrefix>, Option<Start>) {
    let object = |(key, entry): (String, super::format::Entry)| Object {
        key: Some(encode.text(key)),
        size: i64::try_from(entry.size_bytes).ok(),
        e_tag: Some(ETag::Strong(entry.etag)),
        last_modified: Some(timestamp(entry.modified_ms)),
        ..Object::default()
    };
    let prefix = |prefix| CommonPrefix { prefix: Some(encode.text(prefix)) };
    (page.objects.into_iter().map(object).collect(), page.common_prefixes.into_iter().map(prefix).collect(), page.next)
}
