//! The S3 client: the operations that Stokehold needs, each with a timeout, bounded retries and a documented outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{RequestChecksumCalculation, ResponseChecksumValidation};
use aws_sdk_s3::error::SdkError;
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::operation::list_objects_v2::builders::ListObjectsV2FluentBuilder;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::types::{BucketLocationConstraint, CreateBucketConfiguration, Delete, ObjectIdentifier};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{Error, ObjectsConfig};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout from the last byte sent to the first byte of the response. A store that syncs to a busy disk can take
/// seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of one attempt, including the body. Bodies fit in memory; large ones go through presigned URLs.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout of all attempts of one call together.
const CALL_TIMEOUT: Duration = Duration::from_secs(75);

/// Number of attempts per call, with the SDK's exponential backoff and full jitter in between.
pub(crate) const ATTEMPTS: u32 = 3;

/// Timeout of the readiness check. A slower answer means not ready.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// S3's limit on the keys of one page and of one batch delete.
const KEYS_MAX: usize = 1000;

/// Maximum number of pages in one listing of folders.
const FOLDER_PAGES_MAX: usize = 10;

/// S3's limit on the length of a key, bytes.
const KEY_BYTES_MAX: usize = 1024;

/// The characters that are percent-encoded in a key in `x-amz-copy-source`.
const COPY_SOURCE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// S3's limit on one PUT, bytes.
const PUT_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// The objects of one bucket. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Objects {
    pub(crate) client: Client,
    /// Signs for the public endpoint; sends no requests.
    signer: Client,
    pub(crate) bucket: String,
    /// The bucket's region for AWS, which every region except the first requires.
    location: Option<BucketLocationConstraint>,
}

/// An object to upload.
#[derive(Debug, Clone, Copy)]
pub struct Announced<'a> {
    /// Its size, bytes.
    pub size_bytes: u64,
    /// SHA-256 of its content, 64 hexadecimal digits.
    pub sha256_hex: &'a str,
    /// Its MIME type.
    pub content_type: &'a str,
    /// The file name of the download.
    pub name: Option<&'a str>,
}

/// A request that a client without credentials can send exactly as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presigned {
    /// The URL.
    pub url: String,
    /// Headers that the request must carry, because they are signed too.
    pub headers: BTreeMap<String, String>,
}

/// The metadata of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Length of the body, bytes.
    pub size_bytes: u64,
    /// MIME type given at upload.
    pub content_type: Option<String>,
    /// User metadata (`x-amz-meta-*`), names in lower case.
    pub metadata: BTreeMap<String, String>,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSummary {
    /// The whole key, including the prefix.
    pub key: String,
    /// Length of the body, bytes.
    pub size_bytes: u64,
    /// When the object was written, Unix milliseconds; 0 if the store does not report it.
    pub modified_ms: u64,
}

/// One page of a listing, ordered by the bytes of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectPage {
    /// The objects of this page.
    pub objects: Vec<ObjectSummary>,
    /// The cursor of the next page; `None` on the last.
    pub next_cursor: Option<String>,
}

/// A `Content-Disposition` of RFC 6266, with the name encoded like in RFC 8187. Browsers show the file if they can.
pub(crate) fn disposition(name: &str) -> String {
    format!("inline; filename*=UTF-8''{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

impl Objects {
    /// Creates a client without contacting the server. If the configuration contains no credentials, those of the
    /// environment are used.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the configuration contradicts itself.
    pub async fn connect(config: ObjectsConfig) -> Result<Self, Error> {
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new(config.region.clone()))
            .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
            .timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(CONNECT_TIMEOUT)
                    .read_timeout(ANSWER_TIMEOUT)
                    .operation_attempt_timeout(ATTEMPT_TIMEOUT)
                    .operation_timeout(CALL_TIMEOUT)
                    .build(),
            );
        match (&config.access_key_id, &config.secret_access_key) {
            (Some(id), Some(secret)) => {
                loader =
                    loader.credentials_provider(Credentials::new(id, secret.expose(), None, None, "configuration"));
            }
            (None, None) => {}
            _ => {
                return Err(Error::Invalid(
                    "an S3 access key id requires its secret and the reverse; set both, or neither to use those of the environment"
                        .to_owned(),
                ));
            }
        }
        let shared = loader.load().await;
        let client = |endpoint: Option<&String>| {
            let mut builder = aws_sdk_s3::config::Builder::from(&shared).force_path_style(config.path_style);
            if let Some(url) = endpoint {
                // Some servers other than AWS fail on checksums that are not announced in advance: Garage fails
                // multipart uploads.
                builder = builder
                    .endpoint_url(url)
                    .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
                    .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
            }
            Client::from_conf(builder.build())
        };
        let endpoint = config.endpoint_url.as_ref();
        let location = (endpoint.is_none() && config.region != "us-east-1")
            .then(|| BucketLocationConstraint::from(config.region.as_str()));
        Ok(Self {
            client: client(endpoint),
            signer: client(config.public_url.as_ref().or(endpoint)),
            bucket: config.bucket,
            location,
        })
    }

    /// Creates the bucket if it does not exist.
    ///
    /// # Errors
    /// [`Error::Refused`] if it belongs to another account or may not be created; [`Error::Unavailable`].
    pub async fn ensure_bucket(&self) -> Result<(), Error> {
        match self.client.head_bucket().bucket(&self.bucket).send().await {
            Ok(_) => return Ok(()),
            Err(error) if status(&error) == Some(404) => {}
            Err(error) => return Err(Error::sdk("look up the bucket")(error)),
        }
        let configuration =
            self.location.clone().map(|home| CreateBucketConfiguration::builder().location_constraint(home).build());
        let create = self.client.create_bucket().bucket(&self.bucket).set_create_bucket_configuration(configuration);
        match create.send().await {
            Ok(_) => Ok(()),
            // Another process created the bucket at the same time.
            Err(error) if error.as_service_error().is_some_and(|e| e.is_bucket_already_owned_by_you()) => Ok(()),
            Err(error) => Err(Error::sdk("create the bucket")(error)),
        }
    }

    /// Checks whether the bucket is available: one attempt, two seconds.
    ///
    /// # Errors
    /// [`Error::Refused`] if the bucket does not exist or access is denied; [`Error::Unavailable`].
    pub async fn ping(&self) -> Result<(), Error> {
        let impatient = aws_sdk_s3::config::Builder::new()
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().operation_timeout(PING_TIMEOUT).build());
        let head = self.client.head_bucket().bucket(&self.bucket).customize().config_override(impatient);
        head.send().await.map(drop).map_err(Error::sdk("reach the bucket"))
    }

    /// Allows the upload of one object within `ttl`: this key, and the announced content. The server refuses any other
    /// body.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key, size, digest or time that S3 does not allow.
    pub async fn presign_put(
        &self,
        key: &str,
        Announced { size_bytes, sha256_hex, content_type, name }: Announced<'_>,
        ttl: Duration,
    ) -> Result<Presigned, Error> {
        check_key(key)?;
        let digest = hex::decode(sha256_hex).ok().filter(|digest| digest.len() == 32);
        let digest = digest.ok_or_else(|| Error::Invalid("a SHA-256 has 64 hexadecimal digits".to_owned()))?;
        let length = i64::try_from(size_bytes).ok().filter(|_| size_bytes <= PUT_BYTES_MAX);
        let length = length.ok_or_else(|| Error::Invalid(format!("one PUT may have at most {PUT_BYTES_MAX} bytes")))?;
        let request = self
            .signer
            .put_object()
            .bucket(&self.bucket)
            .key(key)
            .content_length(length)
            .content_type(content_type)
            .set_content_disposition(name.map(disposition))
            .checksum_sha256(BASE64.encode(digest))
            .presigned(presigning(ttl)?)
            .await
            .map_err(Error::sdk("presign an upload"))?;
        Ok(Presigned {
            url: request.uri().to_owned(),
            headers: request.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        })
    }

    /// Allows the download of one object within `ttl`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key or time that S3 does not allow.
    pub async fn presign_get(&self, key: &str, ttl: Duration) -> Result<String, Error> {
        self.presign_get_of(&self.bucket, key, ttl).await
    }

    /// Allows the download of one object from another bucket, which these credentials may read.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key or time that S3 does not allow.
    pub async fn presign_get_of(&self, bucket: &str, key: &str, ttl: Duration) -> Result<String, Error> {
        check_key(key)?;
        let get = self.signer.get_object().bucket(bucket).key(key);
        let request = get.presigned(presigning(ttl)?).await.map_err(Error::sdk("presign a download"))?;
        Ok(request.uri().to_owned())
    }

    /// Writes an object, replacing an existing one. When this returns, the object is durable.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Refused`], [`Error::Unavailable`].
    pub async fn put(&self, key: &str, body: Bytes, content_type: &str) -> Result<(), Error> {
        self.put_as(key, body, content_type, None).await
    }

    /// Like [`Objects::put`], with a `Content-Disposition`.
    pub(crate) async fn put_as(
        &self,
        key: &str,
        body: Bytes,
        content_type: &str,
        disposition: Option<String>,
    ) -> Result<(), Error> {
        check_key(key)?;
        let put = self.client.put_object().bucket(&self.bucket).key(key).content_type(content_type).body(body.into());
        let put = put.set_content_disposition(disposition);
        put.send().await.map(drop).map_err(Error::sdk("write an object"))
    }

    /// Reads an object of at most `max_bytes`; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Refused`], [`Error::Unavailable`].
    pub async fn get(&self, key: &str, max_bytes: u64) -> Result<Option<Bytes>, Error> {
        check_key(key)?;
        let mut attempt = 1;
        loop {
            let answer = match self.client.get_object().bucket(&self.bucket).key(key).send().await {
                Ok(answer) => answer,
                Err(error) if error.as_service_error().is_some_and(|e| e.is_no_such_key()) => return Ok(None),
                Err(error) => return Err(Error::sdk("read an object")(error)),
            };
            // The SDK retries up to the first byte of the body. A connection that is lost later has to be retried here.
            match tokio::time::timeout(ATTEMPT_TIMEOUT, collect(answer, key, max_bytes)).await {
                Ok(Err(Error::Unavailable { .. })) | Err(_) if attempt < ATTEMPTS => {}
                Ok(done) => return done.map(Some),
                Err(late) => return Err(Error::Unavailable { step: "read an object", source: late.into() }),
            }
            tokio::time::sleep(pause(attempt)).await;
            attempt += 1;
        }
    }

    /// Copies an object within the bucket, replacing an existing one. `false` if the source does not exist.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Refused`], [`Error::Unavailable`].
    pub async fn copy(&self, from: &str, to: &str) -> Result<bool, Error> {
        check_key(from)?;
        check_key(to)?;
        let source = format!("{}/{}", self.bucket, utf8_percent_encode(from, COPY_SOURCE));
        match self.client.copy_object().bucket(&self.bucket).copy_source(source).key(to).send().await {
            Ok(_) => Ok(true),
            Err(error) if status(&error) == Some(404) => Ok(false),
            Err(error) => Err(Error::sdk("copy an object")(error)),
        }
    }

    /// Reads the metadata of an object; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`].
    pub async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        check_key(key)?;
        match self.client.head_object().bucket(&self.bucket).key(key).send().await {
            Ok(answer) => Ok(Some(ObjectMeta {
                size_bytes: unsigned(answer.content_length),
                content_type: answer.content_type,
                metadata: answer.metadata.unwrap_or_default().into_iter().collect(),
            })),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(Error::sdk("look up an object")(error)),
        }
    }

    /// One page of the objects whose keys start with `prefix`, at most 1,000; `cursor` comes from the previous page.
    ///
    /// # Errors
    /// [`Error::Refused`], also for an invalid cursor; [`Error::Unavailable`].
    pub async fn list(&self, prefix: &str, cursor: Option<&str>, limit: u32) -> Result<ObjectPage, Error> {
        self.page(prefix, limit, |list| list.set_continuation_token(cursor.map(str::to_owned))).await
    }

    /// Like [`Objects::list`], but starts after the key `after`, which need not exist.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`].
    pub async fn list_after(&self, prefix: &str, after: Option<&str>, limit: u32) -> Result<ObjectPage, Error> {
        self.page(prefix, limit, |list| list.set_start_after(after.map(str::to_owned))).await
    }

    async fn page(
        &self,
        prefix: &str,
        limit: u32,
        start: impl FnOnce(ListObjectsV2FluentBuilder) -> ListObjectsV2FluentBuilder,
    ) -> Result<ObjectPage, Error> {
        let limit = i32::try_from(limit.clamp(1, KEYS_MAX as u32)).unwrap_or(1);
        let list = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix).max_keys(limit);
        let page = start(list).send().await.map_err(Error::sdk("list objects"))?;
        let summary = |object: aws_sdk_s3::types::Object| {
            let modified_ms = object.last_modified.and_then(|at| u64::try_from(at.to_millis().ok()?).ok()).unwrap_or(0);
            Some(ObjectSummary { key: object.key?, size_bytes: unsigned(object.size), modified_ms })
        };
        Ok(ObjectPage {
            objects: page.contents.unwrap_or_default().into_iter().filter_map(summary).collect(),
            next_cursor: page.next_continuation_token.filter(|_| page.is_truncated == Some(true)),
        })
    }

    /// The names that follow `prefix` up to the next slash, ordered by their bytes; `prefix` is empty or ends with a
    /// slash. At most 10,000, because this is for trees that are known to be narrow.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`].
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let (mut names, mut cursor) = (Vec::new(), None);
        for _ in 0..FOLDER_PAGES_MAX {
            let list = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix).delimiter("/");
            let page = list.set_continuation_token(cursor).send().await.map_err(Error::sdk("list folders"))?;
            let folders = page.common_prefixes.unwrap_or_default().into_iter().filter_map(|folder| folder.prefix);
            names.extend(folders.filter_map(|folder| Some(folder.strip_prefix(prefix)?.strip_suffix('/')?.to_owned())));
            cursor = page.next_continuation_token.filter(|_| page.is_truncated == Some(true));
            if cursor.is_none() {
                break;
            }
        }
        Ok(names)
    }

    /// Deletes objects. A key without an object is not an error.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::Unavailable`]; some objects may have been deleted. Safe to retry.
    pub async fn delete(&self, keys: &[String]) -> Result<(), Error> {
        let step = "delete objects";
        for keys in keys.chunks(KEYS_MAX) {
            let identifiers = keys.iter().map(|key| {
                check_key(key)?;
                ObjectIdentifier::builder().key(key).build().map_err(|error| Error::Invalid(error.to_string()))
            });
            let delete = Delete::builder().set_objects(Some(identifiers.collect::<Result<_, _>>()?)).quiet(true);
            let delete = delete.build().map_err(|error| Error::Invalid(error.to_string()))?;
            let answer = self.client.delete_objects().bucket(&self.bucket).delete(delete).send().await;
            let answer = answer.map_err(Error::sdk(step))?;
            if let Some(first) = answer.errors().first() {
                let code = first.code().unwrap_or("no code").to_owned();
                let text = format!("{}: {}", first.key().unwrap_or_default(), first.message().unwrap_or_default());
                return Err(Error::Refused { step, code, source: text.into() });
            }
        }
        Ok(())
    }
}

pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    match key.len() {
        1..=KEY_BYTES_MAX => Ok(()),
        length => Err(Error::Invalid(format!("an object's key must have 1 to {KEY_BYTES_MAX} bytes, not {length}"))),
    }
}

fn presigning(ttl: Duration) -> Result<PresigningConfig, Error> {
    PresigningConfig::expires_in(ttl).map_err(|error| Error::Invalid(error.to_string()))
}

pub(crate) fn status<E>(error: &SdkError<E>) -> Option<u16> {
    error.raw_response().map(|answer| answer.status().as_u16())
}

fn unsigned(number: Option<i64>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

/// Reads the body into memory. At most `max_bytes` are held, whatever length the server announced.
pub(crate) async fn collect(mut answer: GetObjectOutput, key: &str, max_bytes: u64) -> Result<Bytes, Error> {
    let too_large = || Error::TooLarge { key: key.to_owned(), max_bytes };
    let announced = unsigned(answer.content_length);
    if announced > max_bytes {
        return Err(too_large());
    }
    let mut body = BytesMut::with_capacity(usize::try_from(announced).unwrap_or(0));
    while let Some(chunk) = answer.body.next().await {
        let chunk = chunk.map_err(|error| Error::Unavailable { step: "read an object", source: error.into() })?;
        if (body.len() + chunk.len()) as u64 > max_bytes {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Delay between attempts of a read: up to 200 ms, 400 ms, ..., drawn uniformly so that concurrent readers spread out.
pub(crate) fn pause(attempt: u32) -> Duration {
    Duration::from_millis(rand::random_range(0..=100 << attempt.min(6)))
}
