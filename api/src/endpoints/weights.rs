//! `/v1/weights`: files that are too large for a package. They are uploaded here, or referenced where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stokehold_objects::{Announced, Objects};
use stokehold_queue::endpoint::Weight;
use url::Url;
use utoipa::ToSchema;

use crate::config::Config;
use crate::database::Database;
use crate::deletion::objects::is_stored;
use crate::error::{Code, Problem, ProblemBody};
use crate::names;
use crate::object_keys::weights_key;
use crate::server::json::Json;
use crate::server::query::Params;
use crate::tenants::auth::{Caller, EndpointsWrite};
use crate::tenants::storage::Storage;

/// Time after a URL was issued within which its upload or download must start.
const URL_TTL: Duration = Duration::from_secs(6 * 3600);

const CONTENT_TYPE: &str = "application/octet-stream";

/// Maximum size of one PUT to S3, bytes.
const UPLOAD_BYTES_MAX: u64 = 5 << 30;

/// Maximum size of a file of weights, bytes. No model has a larger one.
const FILE_BYTES_MAX: u64 = 1 << 40;

pub(super) const FILES_MAX: usize = 1_000;
const PATH_BYTES_MAX: usize = 200;
const URL_BYTES_MAX: usize = 2_048;

/// Weights to upload.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WeightsRequest {
    /// The SHA-256 of the file, lower-case hex.
    sha256: String,
    /// The size of the file: 1 byte to 5 GiB. Reference larger files by URL.
    size_bytes: u64,
}

/// What to do with the weights.
#[derive(Serialize, ToSchema)]
pub(crate) struct WeightsReply {
    /// Whether the weights exist, so that no upload is needed.
    exists: bool,
    /// PUT the file here.
    upload_url: Option<String>,
    /// Send exactly these headers.
    headers: BTreeMap<String, String>,
}

/// The address of a file in an operator's bucket.
#[derive(Serialize, ToSchema)]
pub(crate) struct WeightsUrl {
    /// GET it within six hours.
    url: String,
}

/// One file of an endpoint's weights.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Weight)]
pub(crate) struct WeightView {
    /// The file's path in the folder `STOKE_WEIGHTS`, e.g. `unet/model.safetensors`.
    path: String,
    /// The origin of the file, for people to read, e.g. `hf://org/model@<commit>/model.safetensors`.
    source: String,
    /// The address that workers fetch it from: `https://`, `http://` or `s3://`. Null if it was uploaded, see `POST
    /// /v1/weights`.
    url: Option<String>,
    /// The SHA-256 of the file, lower-case hex; workers reject other content.
    sha256: String,
    size_bytes: u64,
}

/// Upload weights
#[utoipa::path(post, operation_id = "create_weights", path = "/v1/weights", tag = "endpoints", request_body = WeightsRequest,
    responses(
        (status = 200, description = "Whether the weights exist, or the address to PUT them to within six hours.", body = WeightsReply),
        (status = 409, description = "`storage_exceeded`: the tenant may not store that much.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn create(
    State(db): State<Arc<Database>>,
    State(objects): State<Arc<Objects>>,
    State(storage): State<Arc<Storage>>,
    caller: Caller<EndpointsWrite>,
    Json(WeightsRequest { sha256, size_bytes }): Json<WeightsRequest>,
) -> Result<JsonAnswer<WeightsReply>, Problem> {
    if !names::is_sha256(&sha256) {
        return Err(Problem::field("/sha256", "must be 64 lower-case hex digits"));
    }
    if !(1..=UPLOAD_BYTES_MAX).contains(&size_bytes) {
        let message = format!(
            "must be 1 to {UPLOAD_BYTES_MAX} bytes; put larger files into a bucket and reference them as s3://"
        );
        return Err(Problem::field("/size_bytes", message));
    }
    let key = weights_key(&caller.tenant, &sha256);
    if is_stored(&db, &objects, &caller.tenant, &format!("weights/{sha256}"), size_bytes).await? {
        return Ok(JsonAnswer(WeightsReply { exists: true, upload_url: None, headers: BTreeMap::new() }));
    }
    storage.reserve(&caller.tenant, size_bytes).await?;
    let announced = Announced { size_bytes, sha256_hex: &sha256, content_type: CONTENT_TYPE, name: None };
    let put = objects.presign_put(&key, announced, URL_TTL).await?;
    Ok(JsonAnswer(WeightsReply { exists: false, upload_url: Some(put.url), headers: put.headers }))
}

/// Sign a URL of weights in a bucket
///
/// Use it to inspect a file before a deploy references it. Only buckets in the API's `weight_buckets` are allowed.
#[utoipa::path(get, operation_id = "sign_weights", path = "/v1/weights/url", tag = "endpoints",
    params(("source" = String, Query, description = "As `s3://bucket/key`.")),
    responses((status = 200, description = "The address to read the weights from.", body = WeightsUrl), crate::server::responses::Problems))]
pub(crate) async fn sign(
    State(config): State<Arc<Config>>,
    State(objects): State<Arc<Objects>>,
    _: Caller<EndpointsWrite>,
    mut params: Params,
) -> Result<JsonAnswer<WeightsUrl>, Problem> {
    let source = params.take("source", "s3://bucket/key", |text| Some(text.to_owned()))?;
    params.finish()?;
    let source = source.ok_or_else(|| Problem::query("source", "is missing: give the file as s3://bucket/key"))?;
    let (bucket, key) = in_bucket(&config, &source, "source")?;
    Ok(JsonAnswer(WeightsUrl { url: objects.presign_get_of(&bucket, &key, URL_TTL).await? }))
}

impl From<WeightView> for Weight {
    fn from(WeightView { path, source, url, sha256, size_bytes }: WeightView) -> Self {
        Self { path, source, url, sha256, size_bytes }
    }
}

impl From<Weight> for WeightView {
    fn from(Weight { path, source, url, sha256, size_bytes }: Weight) -> Self {
        Self { path, source, url, sha256, size_bytes }
    }
}

/// Checks the weights that a deploy names.
pub(crate) fn check(config: &Config, weights: &[Weight]) -> Result<(), Problem> {
    if weights.len() > FILES_MAX {
        return Err(Problem::field("/weights", format!("must be at most {FILES_MAX} files")));
    }
    let mut paths = BTreeSet::new();
    for (n, weight) in weights.iter().enumerate() {
        let at = |member: &str| format!("/weights/{n}/{member}");
        if !is_path(&weight.path) {
            return Err(Problem::field(at("path"), "must be a relative path without .., of at most 200 bytes"));
        }
        if !paths.insert(&weight.path) {
            return Err(Problem::field(at("path"), "is listed twice"));
        }
        if !names::is_sha256(&weight.sha256) {
            return Err(Problem::field(at("sha256"), "must be 64 lower-case hex digits"));
        }
        if !(1..=FILE_BYTES_MAX).contains(&weight.size_bytes) {
            return Err(Problem::field(at("size_bytes"), format!("must be 1 to {FILE_BYTES_MAX}")));
        }
        if weight.source.len() > URL_BYTES_MAX || weight.source.chars().any(char::is_control) {
            return Err(Problem::field(at("source"), "must be at most 2,048 printable characters"));
        }
        match weight.url.as_deref() {
            None => {}
            Some(url) if url.starts_with("s3://") => {
                let _ = in_bucket(config, url, &at("url"))?;
            }
            Some(url) if is_web(url) => {}
            Some(_) => {
                return Err(Problem::field(
                    at("url"),
                    "must be an https://, http:// or s3:// URL without user or password",
                ));
            }
        }
    }
    Ok(())
}

/// Checks that weights declared as uploaded exist.
pub(crate) async fn check_uploaded(objects: &Objects, tenant: &str, weights: &[Weight]) -> Result<(), Problem> {
    for weight in weights.iter().filter(|weight| weight.url.is_none()) {
        let found = objects.head(&weights_key(tenant, &weight.sha256)).await?;
        if found.is_none_or(|found| found.size_bytes != weight.size_bytes) {
            let detail = format!(
                "{} was not uploaded; POST /v1/weights returns the address to PUT it to, then deploy again",
                weight.path
            );
            return Err(Problem::new(Code::PackageMissing, detail));
        }
    }
    Ok(())
}

/// URLs from which a worker fetches the weights.
pub(crate) async fn urls(
    objects: &Objects,
    config: &Config,
    tenant: &str,
    weights: &[Weight],
) -> Result<Vec<String>, Problem> {
    let mut urls = Vec::with_capacity(weights.len());
    for weight in weights {
        urls.push(match &weight.url {
            None => objects.presign_get(&weights_key(tenant, &weight.sha256), URL_TTL).await?,
            Some(url) if url.starts_with("s3://") => {
                let (bucket, key) = in_bucket(config, url, "url")?;
                objects.presign_get_of(&bucket, &key, URL_TTL).await?
            }
            Some(url) => url.clone(),
        });
    }
    Ok(urls)
}

/// Returns bucket and key, if the operator allows weights from there: this API's credentials may read more than a
/// tenant may.
fn in_bucket(config: &Config, source: &str, at: &str) -> Result<(String, String), Problem> {
    let wrong = |message: String| Problem::field(at, message);
    let parts = source.strip_prefix("s3://").and_then(|rest| rest.split_once('/'));
    let (bucket, key) = parts
        .filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty() && source.len() <= URL_BYTES_MAX)
        .ok_or_else(|| wrong("must be s3://bucket/key".to_owned()))?;
    if !config.weight_buckets.iter().any(|known| known == bucket) {
        return Err(wrong(format!(
            "is in the bucket {bucket:?}, and this API reads weights only from {}; the operator sets weight_buckets",
            if config.weight_buckets.is_empty() { "none".to_owned() } else { config.weight_buckets.join(", ") }
        )));
    }
    Ok((bucket.to_owned(), key.to_owned()))
}

fn is_web(url: &str) -> bool {
    let plain = |url: &Url| url.username().is_empty() && url.password().is_none() && url.host_str().is_some();
    url.len() <= URL_BYTES_MAX
        && Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && plain(&url))
}

fn is_path(path: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | "..");
    path.len() <= PATH_BYTES_MAX && path.split('/').all(is_part) && !path.chars().any(|c| c.is_control() || c == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_in_its_folder() {
        assert!(is_path("model.safetensors") && is_path("unet/größe 1.bin"));
        for wrong in ["", "/etc/passwd", "a//b", "../a", "a/./b", "a/..", "a\\b", "a\nb", &"a".repeat(201)] {
            assert!(!is_path(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_url_is_one_of_the_web() {
        assert!(is_web("https://models.test/a?b=c") && is_web("http://10.0.0.1:9000/a"));
        for wrong in ["ftp://a/b", "file:///etc/passwd", "https://user:pass@a/b", "hf://a/b", "a"] {
            assert!(!is_web(wrong), "{wrong}");
        }
    }
}
