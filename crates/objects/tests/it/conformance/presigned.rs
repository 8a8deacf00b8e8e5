//! Presigned URLs for clients without credentials: they allow exactly what was signed.

use std::time::{Duration, SystemTime};

use aws_sdk_s3::config::RequestChecksumCalculation;
use aws_sdk_s3::presigning::PresigningConfig;
use reqwest::StatusCode;
use sha2::{Digest, Sha256};
use stokehold_objects::{Announced, Objects, Presigned};

use super::{bytes, refusal};
use crate::server::Endpoint;

const TTL: Duration = Duration::from_secs(300);

pub(super) async fn exercise(server: &Endpoint) {
    let objects = server.objects().await;
    an_upload_is_what_was_signed(&objects).await;
    a_download_is_of_one_object(&objects).await;
    a_url_past_its_time(server).await;
    the_wrong_secret_and_none(server).await;
}

/// Sends a presigned upload, with its headers changed by `change`.
async fn upload(presigned: &Presigned, body: &[u8], change: impl FnOnce(&mut Vec<(String, String)>)) -> StatusCode {
    let mut headers: Vec<_> = presigned.headers.clone().into_iter().collect();
    change(&mut headers);
    // An HTTP client sends the length of the body; the server must detect that another length was signed.
    headers.retain(|(name, _)| name != "content-length");
    headers.push(("content-length".to_owned(), body.len().to_string()));
    let request = reqwest::Client::new().put(&presigned.url).body(body.to_vec());
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    request.send().await.unwrap().status()
}

async fn an_upload_is_what_was_signed(objects: &Objects) {
    let (key, body) = ("presigned/ä put", bytes(100_000));
    let digest = hex::encode(Sha256::digest(&body));
    let presigned = objects
        .presign_put(
            key,
            Announced {
                size_bytes: body.len() as u64,
                sha256_hex: &digest,
                content_type: "image/png",
                name: Some("ä b.png"),
            },
            TTL,
        )
        .await
        .unwrap();
    for name in ["content-length", "content-type", "content-disposition", "x-amz-checksum-sha256"] {
        assert!(presigned.headers.contains_key(name), "{name} is not in {:?}", presigned.headers);
    }
    let unchanged = |_: &mut Vec<_>| {};
    let set = |name: &'static str, value: &'static str| {
        move |headers: &mut Vec<(String, String)>| {
            headers.retain(|(one, _)| one != name);
            if !value.is_empty() {
                headers.push((name.to_owned(), value.to_owned()));
            }
        }
    };
    let mut other = body.clone();
    other[50_000] ^= 1;
    assert_eq!(upload(&presigned, &other, unchanged).await, 400, "another body");
    assert_eq!(upload(&presigned, &[&body[..], b"x"].concat(), unchanged).await, 403, "a longer body");
    assert_eq!(upload(&presigned, &body[1..], unchanged).await, 403, "a shorter body");
    assert_eq!(upload(&presigned, &body, set("content-type", "text/html")).await, 403, "another type");
    assert!(
        matches!(upload(&presigned, &body, set("x-amz-checksum-sha256", "")).await.as_u16(), 400 | 403),
        "no checksum"
    );
    let elsewhere = Presigned { url: presigned.url.replace("%20put", "%20elsewhere"), ..presigned.clone() };
    assert_ne!(elsewhere.url, presigned.url);
    assert_eq!(upload(&elsewhere, &body, unchanged).await, 403, "another key");
    assert_eq!(objects.head(key).await.unwrap(), None, "nothing of all that is there");

    assert_eq!(upload(&presigned, &body, unchanged).await, 200);
    assert!(objects.get(key, 1 << 20).await.unwrap().unwrap() == body);
    assert_eq!(objects.head(key).await.unwrap().unwrap().content_type.as_deref(), Some("image/png"));
    let answer = reqwest::get(objects.presign_get(key, TTL).await.unwrap()).await.unwrap();
    assert_eq!(answer.headers()["content-disposition"], "inline; filename*=UTF-8''%C3%A4%20b%2Epng");

    let empty = hex::encode(Sha256::digest(b""));
    let presigned = objects
        .presign_put(
            "presigned/empty",
            Announced { size_bytes: 0, sha256_hex: &empty, content_type: "text/plain", name: None },
            TTL,
        )
        .await
        .unwrap();
    assert_eq!(upload(&presigned, b"", unchanged).await, 200);
    assert_eq!(objects.head("presigned/empty").await.unwrap().unwrap().size_bytes, 0);
}

async fn a_download_is_of_one_object(objects: &Objects) {
    let body = bytes(1000);
    objects.put("presigned/get", body.clone().into(), "text/plain").await.unwrap();
    let url = objects.presign_get("presigned/get", TTL).await.unwrap();
    let get = |url: &str| reqwest::Client::new().get(url).send();
    let answer = get(&url).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.bytes().await.unwrap() == body);
    let part = reqwest::Client::new().get(&url).header("range", "bytes=10-19").send().await.unwrap();
    assert_eq!((part.status().as_u16(), part.bytes().await.unwrap().as_ref()), (206, &body[10..20]));

    assert_eq!(get(&url.replace("presigned/get", "presigned/got")).await.unwrap().status(), 403, "another key");
    assert_eq!(get(&forge(&url)).await.unwrap().status(), 403, "another signature");
    let longer = url.replace("X-Amz-Expires=300", "X-Amz-Expires=3000");
    assert_ne!(longer, url);
    assert_eq!(get(&longer).await.unwrap().status(), 403, "a longer time");
    let delete = reqwest::Client::new().delete(&url).send().await.unwrap();
    assert_eq!(delete.status(), 403, "another method");
    assert!(objects.head("presigned/get").await.unwrap().is_some());
}

/// The URL with one digit of its signature changed.
fn forge(url: &str) -> String {
    let (before, signature) = url.split_once("X-Amz-Signature=").unwrap();
    let digit = if signature.starts_with('0') { "1" } else { "0" };
    format!("{before}X-Amz-Signature={digit}{}", &signature[1..])
}

async fn a_url_past_its_time(server: &Endpoint) {
    let (s3, bucket) = (server.sdk(), server.bucket.as_str());
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let past = PresigningConfig::builder().start_time(hour_ago).expires_in(TTL).build().unwrap();
    let get = s3.get_object().bucket(bucket).key("presigned/get").presigned(past.clone()).await.unwrap();
    let status = reqwest::get(get.uri()).await.unwrap().status();
    assert_eq!(status, server.capabilities.expired_status);
    let put = s3.put_object().bucket(bucket).key("presigned/late").presigned(past).await.unwrap();
    let status = reqwest::Client::new().put(put.uri()).body("x").send().await.unwrap().status();
    assert_eq!(status, server.capabilities.expired_status);
    assert_eq!(refusal(s3.head_object().bucket(bucket).key("presigned/late").send().await).0, 404);
}

async fn the_wrong_secret_and_none(server: &Endpoint) {
    let wrong = server.sdk_with("another secret", RequestChecksumCalculation::WhenRequired);
    let get = wrong.get_object().bucket(&server.bucket).key("presigned/get").send().await;
    assert_eq!(refusal(get).0, 403);
    let put = wrong.put_object().bucket(&server.bucket).key("presigned/forged").body(b"x".to_vec().into());
    assert_eq!(refusal(put.send().await).0, 403);
    let url = format!("{}/{}/presigned/get", server.url, server.bucket);
    assert_eq!(reqwest::get(&url).await.unwrap().status(), 403, "nobody at all");
}
