//! Bad input returns a 4xx with a code that shows what to change.

use std::time::Instant;

use serde_json::{Value, json};

use crate::api::{self, Api};

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_answered_with_what_to_change() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let deep = format!(r#"{{"endpoint": "slow", "input": {}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let job = |endpoint: &str, input: Value| json!({"endpoint": endpoint, "input": input}).to_string();
    let big = job("slow", json!({"n": 1, "pad": "x".repeat(2 * 1024 * 1024)}));
    let table: [(&str, &str, String, u16, &str); 12] = [
        ("POST", "/v1/jobs", job("slow", json!({"n": "one"})), 400, "invalid_input"),
        ("POST", "/v1/jobs", job("slow", json!({})), 400, "invalid_input"),
        ("POST", "/v1/jobs", job("slow", json!({"n": 1, "extra": 2})), 400, "invalid_input"),
        ("POST", "/v1/jobs", job("slouw", json!({"n": 1})), 404, "unknown_endpoint"),
        ("POST", "/v1/jobs", json!({"input": {"n": 1}}).to_string(), 400, "invalid_request"),
        (
            "POST",
            "/v1/jobs",
            json!({"endpoint": "slow", "input": {"n": 1}, "prio": 1}).to_string(),
            400,
            "invalid_request",
        ),
        ("POST", "/v1/jobs", big, 413, "body_too_large"),
        ("POST", "/v1/jobs", r#"{"endpoint": "slow", "#.to_owned(), 400, "invalid_json"),
        ("POST", "/v1/jobs", deep, 400, "too_deep"),
        ("GET", "/v1/jobs/0192f0c1a2b37cde8f00112233445500", String::new(), 404, "not_found"),
        ("GET", "/v1/jobs/nonsense", String::new(), 404, "not_found"),
        ("GET", "/v1/jobs/0192f0c1a2b37cde8f00112233445500?wait_s=abc", String::new(), 400, "invalid_query"),
    ];
    for (method, path, body, status, code) in table {
        let shown: String = body.chars().take(80).collect();
        let start = Instant::now();
        let request = api.request(method, path).header("content-type", "application/json");
        let answer = if method == "GET" { request } else { request.body(body) }.send().await.unwrap();
        let took_ms = start.elapsed().as_millis();
        eprintln!("{method} {path} {shown}: {} after {took_ms} ms", answer.status());
        assert_eq!(answer.status(), status, "{method} {path} {shown}");
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        assert_eq!(kind, "application/problem+json", "{method} {path}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], code, "{method} {path} {shown}: {problem}");
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{problem}");
    }
    let depth = api.get("/v1/jobs").await;
    assert_eq!(depth["jobs"], json!([]), "nothing of it was queued");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_is_refused_everywhere() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let http = reqwest::Client::new();
    for path in ["/v1/jobs", "/v1/endpoints", "/v1/workers", "/v1/files/x"] {
        for token in [None, Some("sk_nonsense"), Some("Basic abc")] {
            let request = http.get(format!("{}{path}", stack.url));
            let request = match token {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 401, "{path} with {token:?}");
            let problem: Value = answer.json().await.unwrap();
            assert_eq!(problem["code"], "unauthorized");
        }
    }
}
