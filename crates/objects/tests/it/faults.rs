//! Errors of our client when the server or the caller is at fault.

use std::time::Duration;

use bytes::Bytes;
use stokehold_objects::{Announced, Error, Objects, ObjectsConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::server::store_endpoint;

async fn client(url: &str) -> Objects {
    Objects::connect(store_endpoint(url).config()).await.unwrap()
}

#[tokio::test]
async fn nobody_there_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let objects = client(&url).await;
    assert!(matches!(objects.ping().await, Err(Error::Unavailable { .. })));
    assert!(matches!(objects.put("a", Bytes::new(), "text/plain").await, Err(Error::Unavailable { .. })));
}

/// Sends the next of these texts to each connection, byte for byte, and closes it.
async fn answers<const N: usize>(texts: [&'static str; N]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for text in texts {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn a_server_in_trouble_is_asked_again() {
    let broken = "HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let url = answers([broken, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"]).await;
    assert_eq!(client(&url).await.get("a", 10).await.unwrap().unwrap(), "ok");
}

#[tokio::test]
async fn a_refusal_names_a_clock_that_is_wrong() {
    let url = answers([
        "HTTP/1.1 403 Forbidden\r\ndate: Sat, 01 Jan 2000 00:00:00 GMT\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    ])
    .await;
    let objects = client(&url).await;
    let told = objects.get("a", 10).await.unwrap_err().to_string();
    assert!(told.contains("minutes ahead of the store's; correct it"), "{told}");
    let told = objects.get("a", 10).await.unwrap_err().to_string();
    assert!(!told.contains("clock"), "{told}");
}

#[tokio::test]
async fn a_body_cut_short_is_read_again() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\no";
    let url = answers([cut, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"]).await;
    assert_eq!(client(&url).await.get("a", 10).await.unwrap().unwrap(), "ok");
    let url = answers([cut, cut, cut]).await;
    assert!(matches!(client(&url).await.get("a", 10).await, Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn a_body_of_unannounced_length_is_bounded_too() {
    let url =
        answers(["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"])
            .await;
    assert!(matches!(client(&url).await.get("a", 2).await, Err(Error::TooLarge { max_bytes: 2, .. })));
}

#[tokio::test]
async fn wrong_arguments_are_told_before_anything_is_sent() {
    let objects = client("http://127.0.0.1:9").await;
    let hour = Duration::from_secs(3600);
    let digest = "00".repeat(32);
    let invalid = |error: Error| matches!(error, Error::Invalid(_));
    fn announced(size_bytes: u64, sha256_hex: &str) -> Announced<'_> {
        Announced { size_bytes, sha256_hex, content_type: "text/plain", name: None }
    }
    assert!(invalid(objects.presign_put("a", announced(1, "zz"), hour).await.unwrap_err()));
    assert!(invalid(objects.presign_put("", announced(1, &digest), hour).await.unwrap_err()));
    assert!(invalid(objects.presign_put("a", announced(6 << 30, &digest), hour).await.unwrap_err()));
    assert!(invalid(objects.presign_put("a", announced(1, &digest), 24 * 30 * hour).await.unwrap_err()));
    assert!(invalid(objects.presign_get(&"k".repeat(1025), hour).await.unwrap_err()));
    let config = store_endpoint("http://127.0.0.1:9").config();
    let half = ObjectsConfig { secret_access_key: None, ..config };
    assert!(invalid(Objects::connect(half).await.unwrap_err()));
}

#[tokio::test]
async fn no_secret_prints() {
    let config = store_endpoint("http://127.0.0.1:9").config();
    let secret = config.secret_access_key.clone().unwrap();
    let objects = Objects::connect(config.clone()).await.unwrap();
    let printed = format!("{config:?} {objects:?} {:?}", crate::server::store_config("x".as_ref()));
    assert!(!printed.contains(secret.expose()), "{printed}");
}
