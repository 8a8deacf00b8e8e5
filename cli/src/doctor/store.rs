//! Check of the API's rights in its bucket, if the API's settings are in the environment.

use bytes::Bytes;
use stokehold_api::Config;
use stokehold_objects::{Error, Objects};
use stokehold_worker::machine::Finding;
use tokio::time::timeout;

use super::{LIMIT, network};

/// Variable that marks an environment with the API's settings.
const BUCKET: &str = "STOKE_S3_BUCKET";

const RIGHTS: &str = "S3 rights";

pub(super) async fn checks() -> Vec<Finding> {
    if std::env::var_os(BUCKET).is_none() {
        return Vec::new();
    }
    let config = match Config::load(None, |name| std::env::var(name).ok()) {
        Ok(config) => config.s3,
        Err(error) => {
            return vec![Finding::fail(
                RIGHTS,
                error.to_string(),
                "`stoke api` cannot start with these settings either.",
            )];
        }
    };
    let (bucket, url) = (config.bucket.clone(), config.endpoint_url.clone());
    let mut checks = Vec::new();
    if let Some(url) = url {
        match reqwest::Client::new().get(&url).timeout(LIMIT).send().await {
            Ok(answer) => checks.extend(network::clock("clock difference to S3", answer.headers())),
            Err(_) => return vec![network::unreached("S3", &url).await],
        }
    }
    checks.push(match Objects::connect(config).await {
        Ok(objects) => rights(&objects, &bucket).await,
        Err(error) => Finding::fail(RIGHTS, error.to_string(), "Check STOKE_S3_ENDPOINT_URL and its keys."),
    });
    checks
}

/// Writes, reads, lists and deletes a test object.
async fn rights(objects: &Objects, bucket: &str) -> Finding {
    let key = format!("doctor/{:032x}", rand::random::<u128>());
    let body = Bytes::from_static(b"stoke doctor");
    let tried = async {
        objects.put(&key, body.clone(), "text/plain").await.map_err(|error| ("put", error))?;
        let read = objects.get(&key, 1_024).await.map_err(|error| ("get", error))?;
        objects.list("doctor/", None, 1).await.map_err(|error| ("list", error))?;
        objects.delete(std::slice::from_ref(&key)).await.map_err(|error| ("delete", error))?;
        Ok::<_, (&str, Error)>(read)
    };
    match timeout(LIMIT * 3, tried).await {
        Ok(Ok(Some(read))) if read == body => Finding::ok(RIGHTS, format!("put, get, list and delete in {bucket}")),
        Ok(Ok(_)) => Finding::fail(
            RIGHTS,
            format!("a test object in {bucket} did not read back unchanged"),
            "Check the bucket for lifecycle rules that delete objects.",
        ),
        Ok(Err((verb, error))) => Finding::fail(
            RIGHTS,
            format!("{verb} in {bucket}: {error}"),
            "Grant the API's keys s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket.",
        ),
        Err(_) => Finding::fail(RIGHTS, format!("no response from {bucket}"), "Check STOKE_S3_ENDPOINT_URL."),
    }
}
