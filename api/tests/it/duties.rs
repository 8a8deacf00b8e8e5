//! Background duties of a replica: one that fails keeps no other from its work, and readiness knows of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::stack::Stack;

#[tokio::test]
async fn a_duty_that_fails_keeps_no_other_from_its_work_and_is_named() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    // Every round of `promote` fails at this.
    stack.redis.ask::<String>(&["SET", "{stoke:0}:scheduled", "text"]);
    let job = json!({"endpoint": "echo", "input": {"text": "late"}, "queue_timeout_s": 1});
    let job = stack.json(stack.post("/v1/jobs", &job)).await;
    let ended = stack.json(stack.get(&format!("/v1/jobs/{}?wait_s=20", job["id"].as_str().unwrap()))).await;
    assert_eq!(ended["state"], "expired", "{ended}");
    let failing = loop {
        let ready: Value = stack.json(stack.get("/readyz")).await;
        let failing = ready["failing"].as_array().unwrap().clone();
        if failing.contains(&json!("promote")) {
            assert_eq!(ready["ready"], true, "Redis causes it, and other replicas have the same: {ready}");
            break failing;
        }
        sleep(Duration::from_millis(200)).await;
    };
    assert!(!failing.contains(&json!("expire")) && !failing.contains(&json!("reap")), "{failing:?}");

    stack.redis.ask::<i64>(&["DEL", "{stoke:0}:scheduled"]);
    while stack.json(stack.get("/readyz")).await["failing"].as_array().unwrap().contains(&json!("promote")) {
        sleep(Duration::from_millis(200)).await;
    }
}
