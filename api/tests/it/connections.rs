//! Limits of a connection: slow, silent or ambiguous clients are disconnected.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stack::{PATIENCE, Stack};

/// Sends `start` and nothing more. Returns everything that the server sends until it closes the connection.
async fn said_until_closed(stack: &Stack, start: &str) -> String {
    let mut stream = TcpStream::connect(stack.url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(start.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("the connection is closed").unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn slow_heads_and_silence_are_cut() {
    let stack = Stack::start().await;
    let (slow, silent, half_preface, slow_body) = tokio::join!(
        said_until_closed(&stack, "GET /healthz HTTP/1.1\r\nhost: a\r\nx-slow: "),
        said_until_closed(&stack, ""),
        said_until_closed(&stack, "PRI * HTTP/2"),
        said_until_closed(&stack, "GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"),
    );
    assert!(!slow.contains("200 OK") && silent.is_empty() && !half_preface.contains("200 OK"));
    assert!(slow_body.starts_with("HTTP/1.1 200 OK"), "a client that is not slow is served meanwhile");
}

#[tokio::test]
async fn nothing_follows_an_ambiguous_request() {
    let stack = Stack::start().await;
    let smuggled = "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    let said = said_until_closed(
        &stack,
        &format!(
            "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
            smuggled.len() + 5
        ),
    )
    .await;
    assert_eq!(said.matches("HTTP/1.1").count(), 1, "{said}");
    assert!(said.starts_with("HTTP/1.1 401"), "{said}");
}

#[tokio::test]
async fn a_head_with_too_many_headers_is_refused() {
    let stack = Stack::start().await;
    let headers: String = (0..150).map(|n| format!("x-{n}: 1\r\n")).collect();
    let said = said_until_closed(&stack, &format!("GET /healthz HTTP/1.1\r\nhost: a\r\n{headers}\r\n")).await;
    assert!(said.starts_with("HTTP/1.1 431"), "{said}");
}

#[tokio::test]
async fn http2_is_served_on_the_same_port() {
    let stack = Stack::start().await;
    let client = reqwest::Client::builder().http2_prior_knowledge().timeout(PATIENCE).build().unwrap();
    let answer = client.get(format!("{}/healthz", stack.url)).header("x-request-id", "mine-1").send().await.unwrap();
    assert_eq!((answer.version(), answer.status().as_u16()), (reqwest::Version::HTTP_2, 200));
    assert_eq!(answer.headers()["x-request-id"], "mine-1");
}
