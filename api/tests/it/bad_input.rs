//! Bad input: each case returns a 4xx problem with a code that shows what to change.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::stack::{Stack, echo};

#[tokio::test]
async fn every_mistake_has_its_code() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let raw = |text: String| stack.request(Method::POST, "/v1/jobs").body(text);
    let job = |member: &str, value: Value| {
        let mut job = json!({"endpoint": "echo", "input": {"text": "hi"}});
        job[member] = value;
        stack.post("/v1/jobs", &job)
    };
    let input = |text: &str| raw(format!(r#"{{"endpoint": "echo", "input": {text}}}"#));
    let deploy = |member: &str, value: Value| {
        let mut endpoint = echo();
        endpoint[member] = value;
        stack.post("/v1/endpoints", &endpoint)
    };
    let with_token = |token: &str| stack.client.get(format!("{}/v1/jobs", stack.url)).bearer_auth(token);
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let unknown_id = "0192f0c1a2b37cde8f00112233445500";
    let table: Vec<(&str, RequestBuilder, u16, &str)> = vec![
        ("wrong type in the input", input(r#"{"text": 5}"#), 400, "invalid_input"),
        ("missing field in the input", input("{}"), 400, "invalid_input"),
        ("input of another kind", input("null"), 400, "invalid_input"),
        ("a member twice in the input", input(r#"{"text": "a", "text": "b"}"#), 400, "invalid_request"),
        ("a file that is none", input(r#"{"text": "a", "file": {"$file": "../../x"}}"#), 400, "invalid_input"),
        ("missing member", stack.post("/v1/jobs", &json!({"endpoint": "echo"})), 400, "invalid_request"),
        ("unknown member", job("inputs", json!({})), 400, "invalid_request"),
        (
            "a member twice",
            raw(r#"{"endpoint": "echo", "endpoint": "echo", "input": {}}"#.to_owned()),
            400,
            "invalid_request",
        ),
        ("wrong type of a member", job("timeout_s", json!("soon")), 400, "invalid_request"),
        ("number out of range", job("timeout_s", json!(0)), 400, "invalid_request"),
        ("attempts out of range", job("max_attempts", json!(1000)), 400, "invalid_request"),
        ("unknown priority", job("priority", json!("now")), 400, "invalid_request"),
        ("no time", job("run_after", json!("tomorrow")), 400, "invalid_request"),
        ("endless label", job("metadata", json!({"a": "x".repeat(600)})), 400, "invalid_request"),
        ("label of another type", job("metadata", json!({"a": 1})), 400, "invalid_request"),
        ("empty idempotency key", job("idempotency_key", json!("")), 400, "invalid_request"),
        (
            "two idempotency keys",
            job("idempotency_key", json!("a")).header("idempotency-key", "b"),
            400,
            "invalid_request",
        ),
        (
            "wait that is no number",
            job("priority", json!("batch")).header("prefer", "wait=soon"),
            400,
            "invalid_request",
        ),
        ("unknown endpoint", job("endpoint", json!("nothing")), 404, "unknown_endpoint"),
        ("endpoint that can be no name", job("endpoint", json!("a:b/../c")), 404, "unknown_endpoint"),
        ("unknown version", job("version", json!(99)), 404, "unknown_version"),
        ("empty body", raw(String::new()), 400, "invalid_json"),
        ("broken JSON", raw(r#"{"endpoint": "#.to_owned()), 400, "invalid_json"),
        (
            "text after the JSON",
            raw(r#"{"endpoint": "echo", "input": {"text": "a"}} x"#.to_owned()),
            400,
            "invalid_json",
        ),
        ("no UTF-8", stack.request(Method::POST, "/v1/jobs").body(vec![b'"', 0xff, b'"']), 400, "invalid_json"),
        ("JSON of another kind", raw("[1]".to_owned()), 400, "invalid_request"),
        ("nested 10,000 deep", input(&nested(10_000)), 400, "too_deep"),
        ("nested 65 deep", input(&nested(64)), 400, "too_deep"),
        ("2 MiB", input(&format!(r#"{{"text": "{}"}}"#, "x".repeat(2 << 20))), 413, "body_too_large"),
        (
            "9 MiB in bulk",
            stack.request(Method::POST, "/v1/jobs/bulk").body("x".repeat(9 << 20)),
            413,
            "body_too_large",
        ),
        ("bulk of none", stack.post("/v1/jobs/bulk", &json!({"jobs": []})), 400, "invalid_request"),
        (
            "bulk of too many",
            stack.post(
                "/v1/jobs/bulk",
                &json!({"jobs": vec![json!({"endpoint": "echo", "input": {"text": ""}}); 1001]}),
            ),
            400,
            "invalid_request",
        ),
        ("wait_s=abc", stack.get(&format!("/v1/jobs/{unknown_id}?wait_s=abc")), 400, "invalid_query"),
        ("wait_s=61", stack.get(&format!("/v1/jobs/{unknown_id}?wait_s=61")), 400, "invalid_query"),
        ("unknown parameter", stack.get("/v1/jobs?stat=queued"), 400, "invalid_query"),
        ("unknown state", stack.get("/v1/jobs?state=done"), 400, "invalid_query"),
        ("a parameter twice", stack.get("/v1/jobs?limit=1&limit=2"), 400, "invalid_query"),
        ("limit out of range", stack.get("/v1/jobs?limit=101"), 400, "invalid_query"),
        ("cursor of our own making", stack.get("/v1/jobs?cursor=(1"), 400, "invalid_query"),
        ("unknown id", stack.get(&format!("/v1/jobs/{unknown_id}")), 404, "not_found"),
        ("id that is none", stack.get("/v1/jobs/17"), 404, "not_found"),
        ("id with a slash", stack.get("/v1/jobs/..%2f..%2fx/events"), 404, "not_found"),
        ("bad bytes in the path", stack.get("/v1/jobs/%ff"), 404, "not_found"),
        ("no token", stack.client.get(format!("{}/v1/jobs", stack.url)), 401, "unauthorized"),
        ("bad token", with_token("sk_0123"), 401, "unauthorized"),
        (
            "another scheme",
            stack.client.get(format!("{}/v1/jobs", stack.url)).basic_auth("a", Some("b")),
            401,
            "unauthorized",
        ),
        ("a cursor before the first", stack.get("/v1/jobs?cursor=0-0"), 400, "invalid_query"),
        ("a cursor after the last", stack.get(&format!("/v1/jobs?cursor={0}-{0}", u64::MAX)), 400, "invalid_query"),
        ("a cursor in another spelling", stack.get("/v1/jobs?cursor=01-0"), 400, "invalid_query"),
        (
            "an event id after the last",
            stack.get(&format!("/v1/jobs/{unknown_id}/events")).header("last-event-id", format!("{0}-{0}.3", u64::MAX)),
            400,
            "invalid_request",
        ),
        ("a webhook without slashes", job("webhook", json!("https:example.com")), 400, "invalid_request"),
        ("a webhook at a host with two dots", job("webhook", json!("https://127.0.0.1../")), 400, "invalid_request"),
        (
            "event id of our own making",
            stack.get(&format!("/v1/jobs/{unknown_id}/events")).header("last-event-id", "$"),
            400,
            "invalid_request",
        ),
        ("endpoint's name", deploy("name", json!("A")), 400, "invalid_request"),
        ("endpoint's entry", deploy("entry", json!("/etc/passwd:x")), 400, "invalid_request"),
        ("endpoint's entry, upwards", deploy("entry", json!("../x.py:x")), 400, "invalid_request"),
        ("runner of no kind", deploy("runner", json!({"kind": "magic"})), 400, "invalid_request"),
        ("runner that is no script", deploy("runner", json!({"kind": "runpod"})), 400, "invalid_request"),
        (
            "server that has an entry",
            deploy("runner", json!({"kind": "server", "command": ["a"]})),
            400,
            "invalid_request",
        ),
        (
            "command without a program",
            deploy("runner", json!({"kind": "command", "command": []})),
            400,
            "invalid_request",
        ),
        ("variable with an odd name", deploy("env", json!({"A-B": ""})), 400, "invalid_request"),
        ("variable that the worker sets", deploy("env", json!({"PATH": "/"})), 400, "invalid_request"),
        ("endpoint's schema", deploy("input_schema", json!({"type": "strange"})), 400, "invalid_request"),
        (
            "endpoint's remote schema",
            deploy("input_schema", json!({"$ref": "http://127.0.0.1/x"})),
            400,
            "invalid_request",
        ),
        ("endpoint's VRAM", deploy("vram_gib", json!(4000)), 400, "invalid_request"),
        ("endpoint's warm-ups", deploy("warmup", json!(vec![json!({"text": "a"}); 9])), 400, "invalid_request"),
        ("endpoint's warm-up", deploy("warmup", json!([{"text": 1}])), 400, "invalid_request"),
        ("endpoint's warm-up file", deploy("warmup", json!([{"text": {"$file": "x"}}])), 400, "invalid_request"),
        ("endpoint's hash", deploy("package_sha256", json!("x")), 400, "invalid_request"),
        ("endpoint's Python", deploy("python", json!("2.7")), 400, "invalid_request"),
        (
            "file's size",
            stack.post("/v1/files", &json!({"name": "a", "size_bytes": u64::MAX, "sha256": "0".repeat(64)})),
            400,
            "invalid_request",
        ),
        (
            "file's type",
            stack.post(
                "/v1/files",
                &json!({"name": "a", "size_bytes": 1, "sha256": "0".repeat(64), "content_type": "x\r\ny: z/"}),
            ),
            400,
            "invalid_request",
        ),
        ("file id that is none", stack.get("/v1/files/x"), 404, "not_found"),
    ];
    for (mistake, request, status, code) in table {
        assert_eq!(stack.problem(request).await, (status, code.to_owned()), "{mistake}");
    }
}

#[tokio::test]
async fn a_refusal_names_the_place() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    for (name, body) in [
        ("refused_input", r#"{"endpoint": "echo", "input": {"text": 5, "more": true}}"#),
        ("refused_member", r#"{"endpoint": "echo", "input": {}, "priorty": "batch"}"#),
        ("refused_json", r#"{"endpoint": }"#),
    ] {
        let answer = stack.request(Method::POST, "/v1/jobs").body(body).send().await.unwrap();
        insta::assert_json_snapshot!(name, crate::stack::shown(answer).await);
    }
}
