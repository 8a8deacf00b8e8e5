//! Objects are stored and returned unchanged.

use aws_sdk_s3::Client;
use aws_sdk_s3::config::RequestChecksumCalculation;
use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::{ChecksumMode, Delete, MetadataDirective, ObjectIdentifier};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{bytes, refusal};
use crate::server::Endpoint;

pub(super) async fn exercise(server: &Endpoint) {
    let s3 = server.sdk();
    let bucket = server.bucket.as_str();
    what_is_put_is_got(&s3, bucket).await;
    odd_keys_live_side_by_side(&s3, bucket).await;
    headers_and_metadata_come_back(&s3, bucket).await;
    ranges(&s3, bucket).await;
    reads_with_conditions(&s3, bucket).await;
    a_refused_write_leaves_the_object_that_is_there(&s3, bucket).await;
    copies(&s3, bucket).await;
    deletes(&s3, bucket).await;
    what_is_not_there(&s3, bucket).await;
    the_sdks_own_checksums(server).await;
}

pub(super) async fn put(s3: &Client, bucket: &str, key: &str, body: &[u8]) -> String {
    let answer = s3.put_object().bucket(bucket).key(key).body(body.to_vec().into()).send().await;
    answer.unwrap_or_else(|error| panic!("put {key:?}: {error:?}")).e_tag.expect("an ETag")
}

pub(super) async fn get(s3: &Client, bucket: &str, key: &str) -> Vec<u8> {
    let answer = s3.get_object().bucket(bucket).key(key).send().await;
    let answer = answer.unwrap_or_else(|error| panic!("get {key:?}: {error:?}"));
    answer.body.collect().await.unwrap().to_vec()
}

async fn what_is_put_is_got(s3: &Client, bucket: &str) {
    for length in [0, 1, 1000, (1 << 20) - 1, 1 << 20, 3 * (1 << 20) + 7] {
        let (key, body) = (format!("bodies/{length}"), bytes(length));
        let etag = put(s3, bucket, &key, &body).await;
        let head = s3.head_object().bucket(bucket).key(&key).send().await.unwrap();
        assert_eq!(head.content_length, Some(length as i64), "{key}");
        assert_eq!(head.e_tag.as_ref(), Some(&etag), "{key}");
        assert!(get(s3, bucket, &key).await == body, "{key} came back different");
    }
    put(s3, bucket, "bodies/1", b"two").await;
    assert_eq!(get(s3, bucket, "bodies/1").await, b"two", "the last write counts");
}

async fn odd_keys_live_side_by_side(s3: &Client, bucket: &str) {
    let long = format!("odd/{}", "long/".repeat(190));
    let keys = [
        "odd/a",
        "odd/a/b",
        "odd/a/b/c",
        "odd/a/",
        "odd/sp ace+plus%25",
        "odd/ü/日本 🚢",
        "odd/q?x=1&y=#",
        "odd/'\"<&>",
        &long,
    ];
    for key in keys {
        put(s3, bucket, key, key.as_bytes()).await;
    }
    for key in keys {
        assert_eq!(get(s3, bucket, key).await, key.as_bytes(), "{key:?}");
    }
    let page = s3.list_objects_v2().bucket(bucket).prefix("odd/").send().await.unwrap();
    let mut listed: Vec<&str> = page.contents().iter().filter_map(|object| object.key()).collect();
    let mut expected = keys.to_vec();
    expected.sort_unstable();
    assert!(listed.is_sorted(), "{listed:?}");
    listed.sort_unstable();
    assert_eq!(listed, expected);
    s3.delete_object().bucket(bucket).key("odd/a").send().await.unwrap();
    assert_eq!(get(s3, bucket, "odd/a/b").await, b"odd/a/b", "what lies under a deleted key stays");
}

async fn headers_and_metadata_come_back(s3: &Client, bucket: &str) {
    let put = s3
        .put_object()
        .bucket(bucket)
        .key("headers")
        .content_type("image/png")
        .cache_control("max-age=60")
        .content_disposition("attachment; filename=\"x.png\"")
        .content_encoding("identity")
        .metadata("job", "j-1")
        .metadata("step", "2")
        .body(b"x".to_vec().into());
    put.send().await.unwrap();
    let head = s3.head_object().bucket(bucket).key("headers").send().await.unwrap();
    assert_eq!(head.content_type(), Some("image/png"));
    assert_eq!(head.cache_control(), Some("max-age=60"));
    assert_eq!(head.content_disposition(), Some("attachment; filename=\"x.png\""));
    assert_eq!(head.content_encoding(), Some("identity"));
    let metadata = head.metadata().expect("metadata");
    assert_eq!((metadata["job"].as_str(), metadata["step"].as_str()), ("j-1", "2"));
    let now = DateTime::from(std::time::SystemTime::now()).secs();
    let modified = head.last_modified().expect("Last-Modified").secs();
    assert!((now - modified).abs() < 600, "modified at {modified}, now is {now}");
}

async fn ranges(s3: &Client, bucket: &str) {
    let body = bytes(100_000);
    put(s3, bucket, "ranges", &body).await;
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=10-19", 10..20),
        ("bytes=99990-", 99_990..100_000),
        ("bytes=-5", 99_995..100_000),
        ("bytes=99999-200000", 99_999..100_000),
        ("bytes=-200000", 0..100_000),
    ] {
        let answer = s3.get_object().bucket(bucket).key("ranges").range(range).send().await.unwrap();
        let shown = format!("bytes {}-{}/100000", expected.start, expected.end - 1);
        assert_eq!(answer.content_range(), Some(shown.as_str()), "{range}");
        assert!(answer.body.collect().await.unwrap().to_vec() == body[expected], "{range} came back different");
    }
    let beyond = s3.get_object().bucket(bucket).key("ranges").range("bytes=100000-").send().await;
    assert_eq!(refusal(beyond).0, 416);
}

async fn reads_with_conditions(s3: &Client, bucket: &str) {
    let etag = put(s3, bucket, "conditions", b"x").await;
    let get = || s3.get_object().bucket(bucket).key("conditions");
    assert_eq!(refusal(get().if_none_match(&etag).send().await).0, 304);
    assert_eq!(refusal(get().if_match("\"0123\"").send().await).0, 412);
    assert!(get().if_match(&etag).send().await.is_ok());
    assert!(get().if_none_match("\"0123\"").send().await.is_ok());
    let tomorrow = DateTime::from(std::time::SystemTime::now() + std::time::Duration::from_secs(86_400));
    assert_eq!(refusal(get().if_modified_since(tomorrow).send().await).0, 304);
    assert!(get().if_modified_since(DateTime::from_secs(0)).send().await.is_ok());
    assert_eq!(refusal(get().if_unmodified_since(DateTime::from_secs(0)).send().await).0, 412);
}

async fn a_refused_write_leaves_the_object_that_is_there(s3: &Client, bucket: &str) {
    put(s3, bucket, "refused", b"old").await;
    let put = || s3.put_object().bucket(bucket).key("refused").body(bytes(2 << 20).into());
    let wrong_md5 = put().content_md5(BASE64.encode([0; 16])).send().await;
    assert_eq!(refusal(wrong_md5).0, 400, "a wrong Content-MD5");
    let wrong_sha256 = put().checksum_sha256(BASE64.encode([0; 32])).send().await;
    assert_eq!(refusal(wrong_sha256).0, 400, "a wrong checksum");
    assert_eq!(get(s3, bucket, "refused").await, b"old");
    let absent = s3.put_object().bucket(bucket).key("refused/new").body(b"x".to_vec().into());
    assert_eq!(refusal(absent.content_md5(BASE64.encode([0; 16])).send().await).0, 400);
    assert_eq!(refusal(s3.get_object().bucket(bucket).key("refused/new").send().await).0, 404);
}

async fn copies(s3: &Client, bucket: &str) {
    let body = bytes(300_000);
    let put = s3.put_object().bucket(bucket).key("copies/from x").content_type("image/png").metadata("a", "1");
    let put = put.body(body.clone().into()).send().await.unwrap();
    let copy = |to: &str| s3.copy_object().bucket(bucket).key(to).copy_source(format!("{bucket}/copies/from%20x"));
    let copied = copy("copies/to").send().await.unwrap().copy_object_result.expect("a result");
    assert_eq!(copied.e_tag, put.e_tag);
    assert!(get(s3, bucket, "copies/to").await == body);
    let head = s3.head_object().bucket(bucket).key("copies/to").send().await.unwrap();
    assert_eq!((head.content_type(), head.metadata().unwrap()["a"].as_str()), (Some("image/png"), "1"));

    let replaced = copy("copies/replaced").metadata_directive(MetadataDirective::Replace);
    replaced.content_type("text/plain").metadata("b", "2").send().await.unwrap();
    let head = s3.head_object().bucket(bucket).key("copies/replaced").send().await.unwrap();
    assert_eq!(head.content_type(), Some("text/plain"));
    assert_eq!(head.metadata().unwrap().keys().collect::<Vec<_>>(), ["b"]);

    let other = copy("copies/other").copy_source_if_match("\"0123\"");
    assert_eq!(refusal(other.send().await).0, 412);
    let nothing = s3.copy_object().bucket(bucket).key("copies/x").copy_source(format!("{bucket}/copies/nothing"));
    assert_eq!(refusal(nothing.send().await), (404, "NoSuchKey".to_owned()));
}

async fn deletes(s3: &Client, bucket: &str) {
    put(s3, bucket, "deletes/one", b"x").await;
    for _ in 0..2 {
        s3.delete_object().bucket(bucket).key("deletes/one").send().await.expect("deleting twice is no error");
    }
    assert_eq!(refusal(s3.head_object().bucket(bucket).key("deletes/one").send().await).0, 404);

    for key in ["deletes/a", "deletes/b & <b>", "deletes/c"] {
        put(s3, bucket, key, b"x").await;
    }
    let batch = ["deletes/a", "deletes/b & <b>", "deletes/never"]
        .map(|key| ObjectIdentifier::builder().key(key).build().unwrap());
    let delete = Delete::builder().set_objects(Some(batch.to_vec())).build().unwrap();
    let answer = s3.delete_objects().bucket(bucket).delete(delete).send().await.unwrap();
    assert!(answer.errors().is_empty(), "{:?}", answer.errors());
    let left = s3.list_objects_v2().bucket(bucket).prefix("deletes/").send().await.unwrap();
    assert_eq!(left.contents().iter().filter_map(|object| object.key()).collect::<Vec<_>>(), ["deletes/c"]);
}

async fn what_is_not_there(s3: &Client, bucket: &str) {
    assert_eq!(refusal(s3.get_object().bucket(bucket).key("nothing").send().await), (404, "NoSuchKey".to_owned()));
    assert_eq!(refusal(s3.head_object().bucket(bucket).key("nothing").send().await).0, 404);
    s3.head_bucket().bucket(bucket).send().await.expect("the bucket is there");
    let buckets = s3.list_buckets().send().await.unwrap();
    assert!(buckets.buckets().iter().any(|one| one.name() == Some(bucket)));
    let put = s3.put_object().bucket("no-such-bucket").key("x").body(b"x".to_vec().into());
    assert!(matches!(refusal(put.send().await).0, 403 | 404));
}

/// SDKs of users add checksums by themselves, as trailers.
async fn the_sdks_own_checksums(server: &Endpoint) {
    let s3 = server.sdk_with(server.secret, RequestChecksumCalculation::WhenSupported);
    let body = bytes(3 << 20);
    put(&s3, &server.bucket, "checksums/default", &body).await;
    let answer = s3.get_object().bucket(&server.bucket).key("checksums/default").checksum_mode(ChecksumMode::Enabled);
    let answer = answer.send().await.unwrap();
    assert!(answer.checksum_crc32().is_some(), "the checksum that came with the body is kept");
    assert!(answer.body.collect().await.expect("the SDK checked it").to_vec() == body);
}
