//! `POST /v1/files/upload`: a file that goes through the API in one request.

use reqwest::Method;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::json;
use stokehold_api::token::Scope;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stack::{PATIENCE, Stack};

const PATH: &str = "/v1/files/upload?name=h%C3%A9%20llo.txt";

#[tokio::test]
async fn the_bytes_the_name_and_the_type_arrive_and_an_input_can_name_the_file() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    // One that fits into one request to the store, and one that takes several.
    for size in [1, 5, 20 << 20] {
        let bytes: Vec<u8> = (0..size).map(|n: usize| u8::try_from(n % 251).unwrap()).collect();
        let sent = stack.request(Method::POST, PATH).header(CONTENT_TYPE, "text/plain").body(bytes.clone());
        let answer = sent.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 201);
        let file: serde_json::Value = answer.json().await.unwrap();
        assert_eq!((&file["name"], &file["size_bytes"]), (&json!("hé llo.txt"), &json!(size)));
        let id = file["id"].as_str().unwrap();
        let shown = stack.json(stack.get(&format!("/v1/files/{id}"))).await;
        assert_eq!((&shown["size_bytes"], &shown["content_type"]), (&json!(size), &json!("text/plain")));
        let stored = stack.client.get(file["url"].as_str().unwrap()).send().await.unwrap();
        // The worker takes the name from here.
        assert!(
            stored.headers()[CONTENT_DISPOSITION].to_str().unwrap().ends_with("filename*=UTF-8''h%C3%A9%20llo%2Etxt")
        );
        assert!(stored.bytes().await.unwrap() == bytes);
        let job = json!({"endpoint": "echo", "input": {"text": "x", "file": {"$file": id}}});
        stack.json(stack.post("/v1/jobs", &job)).await;
    }
}

#[tokio::test]
async fn what_is_missing_wrong_or_too_large_is_refused_before_it_is_stored() {
    let stack = Stack::start_with(|config| config.limits.file_bytes = 1000).await;
    let send = |path: &str, kind: &str| stack.request(Method::POST, path).header(CONTENT_TYPE, kind);
    let refused = |status: u16, code: &str| (status, code.to_owned());
    let nameless = send("/v1/files/upload", "text/plain").body("x");
    assert_eq!(stack.problem(nameless).await, refused(400, "invalid_query"));
    let odd_name = send("/v1/files/upload?name=a%0Ab", "text/plain").body("x");
    assert_eq!(stack.problem(odd_name).await, refused(400, "invalid_query"));
    assert_eq!(stack.problem(send(PATH, "picture").body("x")).await, refused(400, "invalid_request"));
    let large = send(PATH, "text/plain").body(vec![0; 1001]);
    assert_eq!(stack.problem(large).await, refused(413, "body_too_large"));
    // Of unknown length.
    let chunks = futures::stream::iter([Ok::<_, std::io::Error>("some")]);
    let unknown = send(PATH, "text/plain").body(reqwest::Body::wrap_stream(chunks));
    assert_eq!(stack.problem(unknown).await, refused(400, "invalid_request"));
    let reader = stack.token_of("default", &[Scope::FilesRead], None).await;
    let address = format!("{}{PATH}", stack.url);
    assert_eq!(
        stack.problem(stack.client.post(address).bearer_auth(reader).body("x")).await,
        refused(403, "forbidden")
    );
}

#[tokio::test]
async fn a_refusal_arrives_although_the_body_is_being_sent() {
    let stack = Stack::start_with(|config| config.limits.file_bytes = 1000).await;
    // More than the buffers of a connection hold.
    let body = vec![0; 12 << 20];
    let large = stack.request(Method::POST, PATH).header(CONTENT_TYPE, "text/plain").body(body.clone());
    assert_eq!(stack.problem(large).await, (413, "body_too_large".to_owned()));
    let address = format!("{}{PATH}", stack.url);
    let anybody = stack.client.post(address).bearer_auth("nobody").body(body);
    assert_eq!(stack.problem(anybody).await, (401, "unauthorized".to_owned()));
}

#[tokio::test]
async fn a_body_that_is_refused_is_not_asked_for() {
    let stack = Stack::start_with(|config| config.limits.file_bytes = 1000).await;
    let address = stack.url.strip_prefix("http://").unwrap();
    let first_line = async |bytes: usize| {
        let mut connection = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: text/plain\r\n\
             Content-Length: {bytes}\r\nExpect: 100-continue\r\n\r\n",
            stack.token
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        timeout(PATIENCE, connection.read_exact(&mut answer)).await.unwrap().unwrap();
        String::from_utf8(answer.to_vec()).unwrap()
    };
    assert_eq!(first_line(1000).await, "HTTP/1.1 100");
    assert_eq!(first_line(1001).await, "HTTP/1.1 413");
}
