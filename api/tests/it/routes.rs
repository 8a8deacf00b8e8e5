//! One snapshot per public route and outcome.

use reqwest::Method;
use serde_json::{Value, json};

use crate::stack::{Stack, echo, sha256, shown};
use crate::worker::Worker;

macro_rules! snapshot {
    ($name:literal, $request:expr) => {
        insta::assert_json_snapshot!($name, shown($request.send().await.unwrap()).await)
    };
}

#[tokio::test]
async fn health() {
    let stack = Stack::start().await;
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        let answer = stack.client.get(format!("{}{path}", stack.url)).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path} needs no token");
    }
    snapshot!("healthz", stack.get("/healthz"));
    snapshot!("readyz", stack.get("/readyz"));
    stack.deploy_echo().await;
    stack.submit("counted").await;
    let metrics = stack.get("/metrics").send().await.unwrap().text().await.unwrap();
    for name in [
        "stokehold_http_requests_total",
        "stokehold_jobs_submitted_total",
        "stokehold_http_request_duration_seconds_bucket",
    ] {
        assert!(metrics.contains(name), "{name} is not in:\n{metrics}");
    }
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there() {
    let stack = Stack::start().await;
    snapshot!("no_route", stack.get("/v1/nothing"));
    snapshot!("no_method", stack.request(Method::DELETE, "/v1/jobs"));
}

#[tokio::test]
async fn jobs() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let full = json!({
        "endpoint": "echo", "version": 1, "input": {"text": "hi"}, "priority": "interactive", "timeout_s": 5, "max_attempts": 2,
        "run_after": "2020-01-01T00:00:00Z", "metadata": {"team": "a"}, "idempotency_key": "k1",
    });
    snapshot!("submit", stack.post("/v1/jobs", &full));
    snapshot!("submit_repeated", stack.post("/v1/jobs", &full));
    let mut other = full.clone();
    other["input"]["text"] = json!("ho");
    snapshot!("submit_conflict", stack.post("/v1/jobs", &other));
    let header = json!({"endpoint": "echo", "input": {"text": "hi"}});
    let first = stack.json(stack.post("/v1/jobs", &header).header("idempotency-key", "k2")).await;
    let second = stack.json(stack.post("/v1/jobs", &header).header("idempotency-key", "k2")).await;
    assert_eq!(first["id"], second["id"]);

    let later = json!({"endpoint": "echo", "input": {"text": "later"}, "run_after": "2099-01-01T00:00:00Z"});
    assert_eq!(stack.problem(stack.post("/v1/jobs", &later)).await, (400, "invalid_request".to_owned()));
    let tomorrow = stokehold_queue::now_ms() / 1000 + 24 * 3600;
    let tomorrow = time::OffsetDateTime::from_unix_timestamp(tomorrow as i64).unwrap();
    let tomorrow = tomorrow.format(&time::format_description::well_known::Rfc3339).unwrap();
    let scheduled =
        json!({"endpoint": "echo", "input": {"text": "later"}, "run_after": tomorrow, "metadata": {"team": "b"}});
    let scheduled = stack.json(stack.post("/v1/jobs", &scheduled)).await;
    let scheduled = scheduled["id"].as_str().unwrap();
    snapshot!("get_scheduled", stack.get(&format!("/v1/jobs/{scheduled}")));

    snapshot!("list_by_state", stack.get("/v1/jobs?state=scheduled"));
    let by_label = stack.json(stack.get("/v1/jobs?metadata.team=a&endpoint=echo")).await;
    assert_eq!(by_label["jobs"].as_array().unwrap().len(), 1);
    let page = stack.json(stack.get("/v1/jobs?limit=1")).await;
    assert_eq!(page["jobs"][0]["id"], scheduled, "newest first");
    let next =
        stack.json(stack.get(&format!("/v1/jobs?limit=2&cursor={}", page["next_cursor"].as_str().unwrap()))).await;
    assert_eq!(next["jobs"].as_array().unwrap().len(), 2);

    snapshot!("cancel", stack.post(&format!("/v1/jobs/{scheduled}/cancel"), &Value::Null));
    snapshot!("cancel_again", stack.post(&format!("/v1/jobs/{scheduled}/cancel"), &Value::Null));
    snapshot!("result_of_cancelled", stack.get(&format!("/v1/jobs/{scheduled}/result")));
    let queued = first["id"].as_str().unwrap();
    snapshot!("result_of_queued", stack.get(&format!("/v1/jobs/{queued}/result")));

    let worker = Worker::join(&stack).await;
    let lease = worker.lease().await;
    worker.succeed(&lease, json!({"text": "hi"})).await;
    let done = lease["job_id"].as_str().unwrap();
    snapshot!("get_succeeded", stack.get(&format!("/v1/jobs/{done}")));
    snapshot!("result", stack.get(&format!("/v1/jobs/{done}/result")));
    snapshot!("cancel_too_late", stack.post(&format!("/v1/jobs/{done}/cancel"), &Value::Null));
    snapshot!("submit_repeated_after_the_end", stack.post("/v1/jobs", &full));
    snapshot!("get_unknown", stack.get("/v1/jobs/0192f0c1a2b37cde8f00112233445500"));
}

#[tokio::test]
async fn bulk() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let jobs: Vec<Value> = (0..1000).map(|n| json!({"endpoint": "echo", "input": {"text": n.to_string()}})).collect();
    let whole = json!({"jobs": jobs, "idempotency_key": "bulk"});
    let first = stack.json(stack.post("/v1/jobs/bulk", &whole)).await;
    assert_eq!(first["ids"].as_array().unwrap().len(), 1000);
    assert_eq!(stack.json(stack.post("/v1/jobs/bulk", &whole)).await, first, "the same key gives the same ids");
    assert_eq!(stack.job(first["ids"][999].as_str().unwrap()).await["input"]["text"], "999", "in order");
    let fewer = json!({"jobs": jobs[..10], "idempotency_key": "bulk"});
    assert_eq!(stack.problem(stack.post("/v1/jobs/bulk", &fewer)).await, (422, "idempotency_conflict".to_owned()));

    snapshot!("bulk", stack.post("/v1/jobs/bulk", &json!({"jobs": jobs[..2]})));
    let before = stack.json(stack.get("/v1/jobs?limit=1")).await["jobs"][0]["id"].clone();
    let mut one_wrong = jobs[..3].to_vec();
    one_wrong[2]["input"] = json!({"text": 5});
    snapshot!("bulk_one_wrong", stack.post("/v1/jobs/bulk", &json!({"jobs": one_wrong})));
    assert_eq!(stack.json(stack.get("/v1/jobs?limit=1")).await["jobs"][0]["id"], before, "none is accepted");
}

#[tokio::test]
async fn endpoints() {
    let stack = Stack::start().await;
    let about = json!({"sha256": sha256(crate::stack::PACKAGE), "size_bytes": crate::stack::PACKAGE.len()});
    snapshot!("deploy_without_package", stack.post("/v1/endpoints", &echo()));
    snapshot!("package_new", stack.post("/v1/packages", &about));
    let place = stack.json(stack.post("/v1/packages", &about)).await;
    stack.upload(&place["upload_url"], &place["headers"], crate::stack::PACKAGE).await;
    snapshot!("package_there", stack.post("/v1/packages", &about));
    snapshot!("deploy", stack.post("/v1/endpoints", &echo()));
    snapshot!("deploy_same", stack.post("/v1/endpoints", &echo()));

    stack.submit("to version 1").await;
    let mut second = echo();
    second["input_schema"]["properties"]["text"] = json!({"type": "integer"});
    second["timeout_s"] = json!(9);
    stack.deploy(second).await;
    // Immediate on the replica that deployed: nothing is stale there.
    let old = json!({"endpoint": "echo", "input": {"text": "now wrong"}});
    snapshot!("submit_to_new_schema", stack.post("/v1/jobs", &old));
    let pinned = json!({"endpoint": "echo", "version": 1, "input": {"text": "still right"}});
    stack.json(stack.post("/v1/jobs", &pinned)).await;

    snapshot!("endpoints", stack.get("/v1/endpoints"));
    snapshot!("endpoint", stack.get("/v1/endpoints/echo"));
    snapshot!("endpoint_versions", stack.get("/v1/endpoints/echo/versions"));
    snapshot!("endpoint_unknown", stack.get("/v1/endpoints/nothing"));
    snapshot!("endpoint_versions_unknown", stack.get("/v1/endpoints/nothing/versions"));
}

#[tokio::test]
async fn files() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let about = json!({"name": "a.txt", "size_bytes": 5, "sha256": sha256(b"bytes"), "content_type": "text/plain"});
    snapshot!("file_new", stack.post("/v1/files", &about));
    let file = stack.json(stack.post("/v1/files", &about)).await;
    let id = file["id"].as_str().unwrap();
    snapshot!("file_not_uploaded", stack.get(&format!("/v1/files/{id}")));
    let job = json!({"endpoint": "echo", "input": {"text": "x", "file": {"$file": id}}});
    snapshot!("submit_file_missing", stack.post("/v1/jobs", &job));

    stack.upload(&file["upload_url"], &file["headers"], b"bytes").await;
    snapshot!("file", stack.get(&format!("/v1/files/{id}")));
    let view = stack.json(stack.get(&format!("/v1/files/{id}"))).await;
    assert_eq!(stack.client.get(view["url"].as_str().unwrap()).send().await.unwrap().text().await.unwrap(), "bytes");
    stack.json(stack.post("/v1/jobs", &job)).await;
    let lease = Worker::join(&stack).await.lease().await;
    let url = lease["files"][id].as_str().unwrap();
    assert_eq!(stack.client.get(url).send().await.unwrap().text().await.unwrap(), "bytes");
    snapshot!("file_unknown", stack.get(&format!("/v1/files/file_{}", "0".repeat(32))));
}

#[tokio::test]
async fn an_endpoint_of_each_kind_is_deployed_and_shown_as_it_was_named() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let server = json!({"kind": "server", "command": ["serve", "{port}"], "ready_path": "/health", "path": "/infer"});
    for (runner, entry) in [
        (json!({"kind": "cog"}), "predict.py"),
        (json!({"kind": "cog"}), "predict.py:Predictor"),
        (json!({"kind": "runpod"}), "handler.py"),
        (json!({"kind": "command", "command": ["./run", "fast"]}), ""),
        (server, ""),
    ] {
        let mut deploy = echo();
        deploy["runner"] = runner.clone();
        deploy["entry"] = json!(entry);
        deploy["env"] = json!({"GREETING": "Hello"});
        let version = stack.json(stack.post("/v1/endpoints", &deploy)).await;
        assert_eq!((&version["runner"], &version["entry"]), (&runner, &json!(entry)));
        assert_eq!(version["env"], json!({"GREETING": "Hello"}));
    }
    let shown = stack.json(stack.get("/v1/endpoints/echo/versions")).await;
    assert_eq!(shown["versions"][5]["runner"], Value::Null, "python is what goes without saying");
}

#[tokio::test]
async fn new_jobs_go_to_the_versions_that_get_them() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let mut second = echo();
    second["entry"] = json!("echo.py:again");
    second["traffic_percent"] = json!(0);
    stack.json(stack.post("/v1/endpoints", &second)).await;
    snapshot!("traffic_of_a_canary", stack.get("/v1/endpoints/echo/traffic"));
    let version = async || stack.job(&stack.submit("hi").await).await["version"].clone();
    assert_eq!(version().await, 1);
    let put = |body: Value| stack.request(Method::PUT, "/v1/endpoints/echo/traffic").body(body.to_string());
    snapshot!("traffic_half", put(json!({"version": 2, "percent": 50})));
    let mut seen = std::collections::BTreeSet::new();
    // Each of the two is missed in 60 jobs once in 2^59 runs.
    for _ in 0..60 {
        seen.insert(version().await.as_u64().unwrap());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2]);
    stack.json(put(json!({"version": 2}))).await;
    assert_eq!(version().await, 2);
    stack.json(put(json!({"version": 1}))).await;
    assert_eq!(version().await, 1);
    snapshot!("traffic_unknown_version", put(json!({"version": 3})));
    snapshot!("traffic_percent", put(json!({"version": 2, "percent": 101})));
    assert_eq!(stack.problem(stack.get("/v1/endpoints/none/traffic")).await, (404, "unknown_endpoint".to_owned()));
}

#[tokio::test]
async fn a_job_that_does_not_say_is_as_urgent_as_its_endpoint() {
    let stack = Stack::start().await;
    let mut endpoint = echo();
    endpoint["priority"] = json!("batch");
    assert_eq!(stack.deploy(endpoint).await["priority"], "batch");
    let submit = |priority: Option<&str>| {
        stack.json(stack.post("/v1/jobs", &json!({"endpoint": "echo", "input": {"text": "hi"}, "priority": priority})))
    };
    assert_eq!(submit(None).await["priority"], "batch");
    assert_eq!(submit(Some("interactive")).await["priority"], "interactive");
}
