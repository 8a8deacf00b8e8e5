//! Outages of the services behind the API: the requests that still work, and those that are refused.

use serde_json::json;

use crate::stack::{Stack, sha256};
use crate::wire::Wire;

#[tokio::test]
async fn without_s3_what_needs_it_is_refused_and_the_rest_goes_on() {
    const FILE: &[u8] = b"a file";
    let mut wire = None;
    let stack = Stack::start_with(|config| wire = Some(Wire::before_objects(config))).await;
    let wire = wire.unwrap();
    stack.deploy_echo().await;
    let file = json!({"name": "a", "size_bytes": FILE.len(), "sha256": sha256(FILE)});
    let made = stack.json(stack.post("/v1/files", &file)).await;
    stack.upload(&made["upload_url"], &made["headers"], FILE).await;
    let with_file = json!({"endpoint": "echo", "input": {"text": "a", "file": {"$file": made["id"]}}});

    wire.cut();
    let unavailable = (503, "unavailable".to_owned());
    assert_eq!(stack.problem(stack.post("/v1/jobs", &with_file)).await, unavailable);
    let package = json!({"sha256": sha256(b"new"), "size_bytes": 3});
    assert_eq!(stack.problem(stack.post("/v1/packages", &package)).await, unavailable);
    let job = stack.submit("needs no file").await;
    assert_eq!(stack.job(&job).await["state"], "queued");
    let listed = stack.json(stack.get("/v1/jobs")).await;
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1, "what was refused left nothing behind");

    wire.mend();
    stack.json(stack.post("/v1/jobs", &with_file)).await;
}
