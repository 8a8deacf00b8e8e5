//! Deleting versions and endpoints.

use reqwest::Method;
use serde_json::{Value, json};

use crate::stack::{PACKAGE, Stack, echo};

/// Deploys another version of the endpoint that all of these tests use.
async fn deploy(stack: &Stack, n: usize) -> Value {
    let mut endpoint = echo();
    endpoint["env"] = json!({"N": n.to_string()});
    stack.deploy(endpoint).await["version"].clone()
}

#[tokio::test]
async fn what_nobody_uses_is_deleted_and_what_somebody_uses_is_not() {
    let stack = Stack::start().await;
    for n in 0..3 {
        deploy(&stack, n).await;
    }
    let delete = |path: &str| stack.request(Method::DELETE, &format!("/v1/endpoints/{path}"));
    let numbers = async || {
        let versions = stack.json(stack.get("/v1/endpoints/echo/versions")).await["versions"].clone();
        versions.as_array().unwrap().iter().map(|version| version["version"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let submit = |version: Option<u32>| {
        let job = json!({"endpoint": "echo", "version": version, "input": {"text": "a"}});
        stack.post("/v1/jobs", &job)
    };
    let in_use = (409, "in_use".to_owned());
    let done = |freed_bytes: usize| json!({"deleted": true, "dependents": [], "freed_bytes": freed_bytes});
    let unknown_version = (404, "unknown_version".to_owned());
    assert_eq!(stack.problem(delete("echo/versions/3")).await, in_use, "new jobs run on it");
    for (path, code) in [
        ("nobody", "unknown_endpoint"),
        ("nobody/versions/1", "unknown_endpoint"),
        ("echo/versions/9", "unknown_version"),
        ("echo/versions/0", "unknown_version"),
        ("echo/versions/-1", "unknown_version"),
        ("echo/versions/99999999999", "unknown_version"),
    ] {
        assert_eq!(stack.problem(delete(path)).await, (404, code.to_owned()), "{path}");
    }
    assert_eq!(stack.problem(delete("echo?force=perhaps")).await, (400, "invalid_query".to_owned()));

    assert_eq!(stack.json(delete("echo/versions/1")).await, done(0), "others have the same package");
    assert_eq!(numbers().await, [3, 2]);
    assert_eq!(stack.problem(submit(Some(1))).await, unknown_version);
    assert_eq!(stack.problem(delete("echo/versions/1")).await, unknown_version);
    assert_eq!(deploy(&stack, 3).await, 4, "no number is given twice");

    // An open job keeps its version and its endpoint, and no other version.
    let job = stack.json(submit(Some(2))).await;
    assert_eq!(stack.problem(delete("echo/versions/2")).await, in_use);
    assert_eq!(stack.problem(delete("echo")).await, in_use);
    assert_eq!(stack.problem(delete("echo/versions/3")).await, in_use, "a rollback would go there");
    let forced = stack.json(delete("echo/versions/3?force=true")).await;
    let rollback = json!([{"kind": "rollback", "count": 1, "examples": ["echo@3"]}]);
    assert_eq!(forced, json!({"deleted": true, "dependents": rollback, "freed_bytes": 0}));
    let id = job["id"].as_str().unwrap();
    stack.json(stack.post(&format!("/v1/jobs/{id}/cancel"), &Value::Null)).await;
    assert_eq!(stack.json(delete("echo")).await, done(PACKAGE.len()));
    assert_eq!(stack.problem(submit(None)).await, (404, "unknown_endpoint".to_owned()));
    assert_eq!(stack.problem(submit(Some(4))).await, (404, "unknown_endpoint".to_owned()));
    assert_eq!(stack.job(id).await["state"], "cancelled", "ended jobs stay");
    assert_eq!(deploy(&stack, 4).await, 5);
}
