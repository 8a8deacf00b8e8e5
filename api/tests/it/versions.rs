//! A worker of another release: what it says more is ignored, what it does not know to say is not missed.

use serde_json::{Value, json};
use stokehold_queue::gateway::PROTOCOL;

use crate::stack::Stack;

/// The message as a later release might send it: with members that this one has never heard of, at every level.
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

/// A job from its lease to its end, by a worker whose every message goes through `as_sent`. All it says is what the first release of
/// the protocol knew.
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
    // A result is the user's own and goes through as it is.
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
