//! Our client against this server: each call, and each error as the caller gets it.

use std::time::Duration;

use bytes::Bytes;
use stokehold_objects::{Error, Objects, ObjectsConfig};

use super::bytes;
use crate::server::Endpoint;

pub(super) async fn exercise(server: &Endpoint) {
    let objects = server.objects().await;
    objects.ensure_bucket().await.unwrap();
    objects.ping().await.unwrap();
    reads_and_writes(&objects).await;
    reads_ranges_and_writes_parts(&objects).await;
    lists_and_deletes(&objects).await;
    other_buckets(server).await;
    another_public_address(server).await;
}

async fn reads_and_writes(objects: &Objects) {
    let body = Bytes::from(bytes(200_000));
    objects.put("client/a", body.clone(), "application/json").await.unwrap();
    assert!(objects.get("client/a", 200_000).await.unwrap().unwrap() == body);
    assert!(matches!(objects.get("client/a", 199_999).await, Err(Error::TooLarge { max_bytes: 199_999, .. })));
    let meta = objects.head("client/a").await.unwrap().unwrap();
    assert_eq!((meta.size_bytes, meta.content_type.as_deref()), (200_000, Some("application/json")));
    assert!(meta.metadata.is_empty());
    assert_eq!(objects.get("client/nothing", 10).await.unwrap(), None);
    assert_eq!(objects.head("client/nothing").await.unwrap(), None);
    objects.put("client/empty", Bytes::new(), "text/plain").await.unwrap();
    assert_eq!(objects.get("client/empty", 0).await.unwrap(), Some(Bytes::new()));
}

async fn reads_ranges_and_writes_parts(objects: &Objects) {
    let body = Bytes::from(bytes(20_000_000));
    let mut upload = objects.upload("client/large", "application/jsonl");
    for piece in body.chunks(3_000_001) {
        upload.write(piece).await.unwrap();
        assert_eq!(objects.head("client/large").await.unwrap(), None, "nothing is there before its end");
    }
    upload.finish().await.unwrap();
    let meta = objects.head("client/large").await.unwrap().unwrap();
    assert_eq!((meta.size_bytes, meta.content_type.as_deref()), (20_000_000, Some("application/jsonl")));
    let range = async |from, most| objects.get_range("client/large", from, most).await.unwrap().unwrap();
    assert!(range(8_388_000, 1_000).await == body.slice(8_388_000..8_389_000));
    assert!(range(19_999_990, 1_000).await == body.slice(19_999_990..));
    assert!(range(20_000_000, 1_000).await.is_empty() && range(u64::MAX / 2, 1).await.is_empty());
    assert_eq!(objects.get_range("client/nothing", 0, 10).await.unwrap(), None);

    let mut small = objects.upload("client/small", "text/plain");
    small.write(b"x").await.unwrap();
    small.finish().await.unwrap();
    assert_eq!(objects.get("client/small", 1).await.unwrap(), Some(Bytes::from_static(b"x")));
    let mut given_up = objects.upload("client/given-up", "text/plain");
    given_up.write(&body).await.unwrap();
    drop(given_up);
    assert_eq!(objects.head("client/given-up").await.unwrap(), None);
}

async fn lists_and_deletes(objects: &Objects) {
    let keys: Vec<String> = (0..7).map(|n| format!("client/list/{n}")).collect();
    for key in &keys {
        objects.put(key, Bytes::from_static(b"xyz"), "text/plain").await.unwrap();
    }
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = objects.list("client/list/", cursor.as_deref(), 3).await.unwrap();
        assert!(page.objects.len() <= 3 && page.objects.iter().all(|object| object.size_bytes == 3));
        listed.extend(page.objects.into_iter().map(|object| object.key));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, keys);
    objects.delete(&keys[..6]).await.unwrap();
    objects.delete(&keys).await.expect("what is gone may be deleted again");
    assert_eq!(objects.list("client/list/", None, 1000).await.unwrap().objects, []);

    let keys: Vec<String> =
        ["2025/12/a", "2026/01/a", "2026/01/b", "2026/x", "z"].map(|key| format!("client/days/{key}")).into();
    for key in &keys {
        objects.put(key, "x".into(), "text/plain").await.unwrap();
    }
    assert_eq!(objects.folders("client/days/").await.unwrap(), ["2025", "2026"]);
    assert_eq!(objects.folders("client/days/2026/").await.unwrap(), ["01"]);
    assert_eq!(objects.folders("client/days/2024/").await.unwrap(), [""; 0]);
    objects.delete(&keys).await.unwrap();
    objects.delete(&[]).await.unwrap();
}

async fn other_buckets(server: &Endpoint) {
    let other =
        Objects::connect(ObjectsConfig { bucket: "another-bucket".to_owned(), ..server.config() }).await.unwrap();
    assert!(matches!(other.ping().await, Err(Error::Refused { .. })));
    let put = other.put("x", Bytes::new(), "text/plain").await;
    assert!(matches!(put, Err(Error::Refused { .. })), "{put:?}");
    other.ensure_bucket().await.unwrap();
    other.ensure_bucket().await.expect("a second time changes nothing");
    other.put("x", Bytes::new(), "text/plain").await.unwrap();
    assert_eq!(server.objects().await.head("x").await.unwrap(), None, "buckets are apart");
}

/// A URL signed for a public name is refused under any other name, and works under it.
async fn another_public_address(server: &Endpoint) {
    let public = server.url.replace("127.0.0.1", "localhost");
    let config = ObjectsConfig { public_url: Some(public.clone()), ..server.config() };
    let objects = Objects::connect(config).await.unwrap();
    let url = objects.presign_get("client/a", Duration::from_secs(60)).await.unwrap();
    assert!(url.starts_with(&public), "{url}");
    assert_eq!(reqwest::get(&url).await.unwrap().status(), 200);
    assert_eq!(reqwest::get(url.replace("localhost", "127.0.0.1")).await.unwrap().status(), 403);
}
