//! A worker of another release: unknown fields are ignored, and fields that it does not send are not missed.

use serde_json::{Value, json};
use stokehold_queue::gateway::PROTOCOL;

use crate::stack::Stack;

/// The message as a later release might send it: with unknown members at every level.
fn later(message: Value) -> Value {
    match message {
        Value::Object(members) => {
            let unknown = ("of_a_later_release".to_owned(), json!({"deep": [1, null]}));
            Value::Object(members.into_iter().map(|(name, value)| (name, later(value))).chain([unknown]).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(later).collect()),
        plain => plain,
    }
}

/// Runs a job from its lease to its end with a worker whose every message goes through `as_sent`. The messages contain
/// only fields that the first release of the protocol had.
async fn serves(as_sent: fn(Value) -> Value) {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let job = stack.submit("hello").await;
    let token = stack.join_token(false).await;
    let call = |verb: &'static str, token: String, message: Value| {
        let url = format!("{}/worker/v1/{verb}", stack.url);
        stack.json(stack.client.post(url).bearer_auth(token).body(as_sent(message).to_string()))
    };
    let joining = json!({"protocol": PROTOCOL, "release": "0.0.1", "name": "other", "slots": 1, "gpus": []});
    let joined = call("join", token, joining).await;
    let worker = joined["token"].as_str().unwrap().to_owned();
    let leased = call("lease", worker.clone(), json!({"want": 1, "reach_gib": 0, "wait_ms": 20_000})).await;
    let lease = json!({"job_id": leased["leases"][0]["job_id"], "fence": leased["leases"][0]["fence"]});
    let status = json!({"draining": false, "slots_busy": 1, "loaded": [], "gpus": []});
    let extended = call("extend", worker.clone(), json!({"leases": [lease.clone()], "status": status})).await;
    assert_eq!(extended["leases"][0], "held", "{extended}");
    let mut report = lease;
    report["outcome"] = "succeeded".into();
    // A result is the user's own data and passes unchanged.
    report["result"] = "done".into();
    let finished = call("finish", worker, json!({"finish": [report]})).await;
    assert_eq!(finished["finished"][0], "ok", "{finished}");
    assert_eq!(stack.job(&job).await["result"], "done");
}

#[tokio::test]
async fn an_older_worker_is_served() {
    serves(|message| message).await;
}

#[tokio::test]
async fn a_newer_worker_is_served() {
    serves(later).await;
}
