//! Guarantees of our store alone: one process per folder, no partial writes, damage is detected.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use stokehold_objects::store::serve;
use stokehold_objects::{Announced, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::server::{store, store_config, store_in};

/// All files under a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_served_once() {
    let server = store().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let second = serve(listener, store_config(&server.dir), std::future::pending()).await;
    assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_outlives_the_server() {
    let server = store().await;
    let objects = server.endpoint.objects().await;
    objects.put("a", Bytes::from_static(b"1"), "text/x-a").await.unwrap();
    objects.put("a/b", Bytes::from_static(b"2"), "text/x-b").await.unwrap();
    let s3 = server.endpoint.sdk();
    let begun = s3.create_multipart_upload().bucket("conformance").key("c").send().await.unwrap();
    let temp = server.stop().await.unwrap();

    let server = store_in(temp.path()).await;
    let objects = server.endpoint.objects().await;
    assert_eq!(objects.get("a", 9).await.unwrap().unwrap(), "1");
    assert_eq!(objects.head("a/b").await.unwrap().unwrap().content_type.as_deref(), Some("text/x-b"));
    let listed = objects.list("", None, 10).await.unwrap().objects;
    assert_eq!(listed.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["a", "a/b"]);
    let uploads = server.endpoint.sdk().list_multipart_uploads().bucket("conformance").send().await.unwrap();
    assert_eq!(uploads.uploads()[0].upload_id(), begun.upload_id());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_left_is_swept() {
    let server = store().await;
    let temp = server.stop().await.unwrap();
    fs::write(temp.path().join("tmp/half"), "half a body").unwrap();
    let abandoned = temp.path().join("uploads/00ff");
    fs::create_dir(&abandoned).unwrap();
    let manifest = r#"{"bucket": "conformance", "key": "k", "created_ms": 1, "headers": {}}"#;
    fs::write(abandoned.join("manifest.json"), manifest).unwrap();
    let server = store_in(temp.path()).await;
    server.endpoint.objects().await.ping().await.unwrap();
    assert_eq!(files(&temp.path().join("tmp")), [] as [PathBuf; 0]);
    assert!(!abandoned.exists());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_object_is_left_out_and_may_be_written_again() {
    let server = store().await;
    let objects = server.endpoint.objects().await;
    objects.put("damaged", Bytes::from_static(b"body"), "text/plain").await.unwrap();
    objects.put("whole", Bytes::from_static(b"body"), "text/plain").await.unwrap();
    let temp = server.stop().await.unwrap();
    let object = files(&temp.path().join("buckets"))
        .into_iter()
        .find(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).contains("\"damaged\""))
        .unwrap();
    let length = fs::metadata(&object).unwrap().len();
    fs::OpenOptions::new().write(true).open(&object).unwrap().set_len(length - 1).unwrap();

    let server = store_in(temp.path()).await;
    let objects = server.endpoint.objects().await;
    let listed = objects.list("", None, 10).await.unwrap().objects;
    assert_eq!(listed.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["whole"]);
    objects.put("damaged", Bytes::from_static(b"again"), "text/plain").await.unwrap();
    assert_eq!(objects.get("damaged", 9).await.unwrap().unwrap(), "again");
    server.stop().await;
}

/// A sender that disconnects in the middle of a body leaves nothing: neither the object nor its file.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_ends_leaves_nothing() {
    let server = store().await;
    let objects = server.endpoint.objects().await;
    let digest = "00".repeat(32);
    let ttl = std::time::Duration::from_secs(60);
    let presigned = objects
        .presign_put(
            "cut",
            Announced { size_bytes: 4 << 20, sha256_hex: &digest, content_type: "text/plain", name: None },
            ttl,
        )
        .await
        .unwrap();
    let (host, path) = presigned.url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let headers: String = presigned.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    stream.write_all(format!("PUT /{path} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n").as_bytes()).await.unwrap();
    stream.write_all(&vec![7; 3 << 20]).await.unwrap();
    stream.shutdown().await.unwrap();
    // The store answers, or closes the connection, once it has seen the end.
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(objects.head("cut").await.unwrap(), None);
    let temp = server.stop().await.unwrap();
    // A thread that writes to the disk finishes its work even if the sender has disconnected.
    let swept = async {
        while !files(&temp.path().join("tmp")).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), swept).await.expect("its file is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_dropped_is_refused() {
    let server = store().await;
    let s3 = server.endpoint.sdk();
    let tagged = s3.put_object().bucket("conformance").key("a").tagging("a=b").body(b"x".to_vec().into()).send().await;
    let error = tagged.unwrap_err();
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 501);
    assert_eq!(server.endpoint.objects().await.head("a").await.unwrap(), None);
}
