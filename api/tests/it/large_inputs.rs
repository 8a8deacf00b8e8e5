//! Inputs over 64 KiB are stored in S3: Redis holds a reference, workers fetch them.

use std::time::Duration;

use serde_json::{Value, json};
use stokehold_objects::Objects;
use stokehold_queue::Queue;
use tokio::time::sleep;

use crate::pipelines::endpoint;
use crate::stack::Stack;
use crate::worker::Worker;

const LARGE: usize = 70_000;

fn large(letter: &str) -> Value {
    json!({"text": letter.repeat(LARGE), "n": 1})
}

/// The input as stored in Redis.
async fn in_redis(stack: &Stack, id: &str) -> String {
    let mut redis = stack.redis.connection().await;
    redis::cmd("HGET").arg(format!("{{stoke:0}}:j:{id}")).arg("input").query_async(&mut redis).await.unwrap()
}

async fn submit(stack: &Stack, job: Value) -> String {
    stack.json(stack.post("/v1/jobs", &job)).await["id"].as_str().unwrap().to_owned()
}

/// A lease of a worker that fetches large inputs itself.
async fn lease_reference(stack: &Stack, worker: &Worker<'_>) -> Value {
    let asked = json!({"want": 1, "reach_gib": 0, "wait_ms": 20_000, "fetches_inputs": true});
    stack.json(worker.post("lease", &asked)).await["leases"][0].clone()
}

/// The content at the URL of a lease's input.
async fn fetched(stack: &Stack, lease: &Value) -> Value {
    let id = lease["input_file"].as_str().unwrap();
    let url = lease["files"][id].as_str().unwrap();
    serde_json::from_slice(&stack.client.get(url).send().await.unwrap().bytes().await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_large_input_is_a_file_that_workers_fetch_and_users_see() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let at_the_bound = json!("x".repeat((64 << 10) - 2));
    let small = submit(&stack, json!({"endpoint": "any", "input": at_the_bound})).await;
    assert_eq!(in_redis(&stack, &small).await.len(), 64 << 10);
    worker.succeed(&worker.lease().await, json!(null)).await;

    let id = submit(&stack, json!({"endpoint": "any", "input": large("a")})).await;
    let reference: Value = serde_json::from_str(&in_redis(&stack, &id).await).unwrap();
    let file = reference["$file"].as_str().unwrap();
    assert_eq!(reference, json!({"$file": file, "as": "input"}));
    assert_eq!(stack.job(&id).await["input"], reference);
    let shown = stack.json(stack.get(&format!("/v1/files/{file}"))).await;
    assert_eq!((&shown["name"], &shown["content_type"]), (&json!("input.json"), &json!("application/json")));

    let lease = lease_reference(&stack, &worker).await;
    assert_eq!((&lease["job_id"], &lease["input_file"]), (&json!(id), &json!(file)));
    assert_eq!(fetched(&stack, &lease).await, large("a"));
    worker.fail(&lease, "handler_error").await;

    // A worker of the previous release receives the whole input, and no file that it cannot use; a retry has the same
    // input.
    let again = stack.json(stack.post(&format!("/v1/jobs/{id}/retry"), &Value::Null)).await;
    assert_eq!(again["input"], reference);
    let lease = worker.lease().await;
    assert_eq!((&lease["job_id"], &lease["input"]), (&again["id"], &large("a")));
    assert_eq!((lease.get("input_file"), lease.get("files")), (None, None));
    worker.succeed(&lease, json!(null)).await;
    let feedback = format!("/v1/jobs/{}/feedback", again["id"].as_str().unwrap());
    stack.json(stack.post(&feedback, &json!({"accepted": true}))).await;
    let exported = stack.get("/v1/feedback/export?endpoint=any").send().await.unwrap().text().await.unwrap();
    let exported: Value = serde_json::from_str(exported.trim()).unwrap();
    assert_eq!(exported["input"], large("a"), "feedback is for training, and has the whole input");
}

#[tokio::test]
async fn what_looks_like_a_reference_is_an_input_like_any_other() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let victim = submit(&stack, json!({"endpoint": "any", "input": large("b")})).await;
    let reference: Value = serde_json::from_str(&in_redis(&stack, &victim).await).unwrap();
    worker.succeed(&worker.lease().await, json!(null)).await;
    let forged = submit(&stack, json!({"endpoint": "any", "input": reference})).await;
    assert_ne!(in_redis(&stack, &forged).await, reference.to_string());
    let lease = lease_reference(&stack, &worker).await;
    assert_eq!(fetched(&stack, &lease).await, reference, "the input is what was submitted, and names a file");
    assert!(lease["files"].get(reference["$file"].as_str().unwrap()).is_some(), "{lease}");
    worker.succeed(&lease, json!(null)).await;
}

#[tokio::test]
async fn a_large_input_that_comes_together_of_results_is_a_file_too() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let first = submit(&stack, json!({"endpoint": "any", "input": 1})).await;
    let second = submit(&stack, json!({"endpoint": "any", "input": [large("c"), {"$job": first}]})).await;
    let before = in_redis(&stack, &second).await;
    assert!(before.len() < 100, "{before}");
    worker.succeed(&worker.lease().await, json!("out")).await;
    let lease = lease_reference(&stack, &worker).await;
    assert_eq!((&lease["job_id"], &lease["input"]), (&json!(second), &json!([large("c"), "out"])));
    let after = in_redis(&stack, &second).await;
    assert!(after.len() < 100 && after != before, "{after}");
    worker.fail(&lease, "handler_error").await;
    let again = stack.json(stack.post(&format!("/v1/jobs/{second}/retry"), &Value::Null)).await;
    let lease = lease_reference(&stack, &worker).await;
    assert_eq!(lease["job_id"], again["id"]);
    assert_eq!(fetched(&stack, &lease).await, json!([large("c"), "out"]));
}

#[tokio::test]
async fn a_job_whose_input_is_gone_ends_and_keeps_no_other() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let lost = submit(&stack, json!({"endpoint": "any", "input": large("d")})).await;
    let kept = submit(&stack, json!({"endpoint": "any", "input": 5})).await;
    let reference: Value = serde_json::from_str(&in_redis(&stack, &lost).await).unwrap();
    let objects = Objects::connect(stack.config.s3.clone()).await.unwrap();
    objects.delete(&[format!("inputs/acme/{}", reference["$file"].as_str().unwrap())]).await.unwrap();
    let mut lease = worker.lease().await;
    if lease == Value::Null {
        lease = worker.lease().await;
    }
    assert_eq!(lease["job_id"], kept.as_str());
    let lost = stack.json(stack.get(&format!("/v1/jobs/{lost}?wait_s=20"))).await;
    assert_eq!(lost["state"], "failed", "{lost}");
    assert!(lost["error"]["message"].as_str().unwrap().contains("missing from the object store"), "{lost}");
}

/// Covers the time while a replica of the previous release is present, which would pass the reference to handlers.
#[tokio::test]
async fn beside_an_older_replica_large_inputs_stay_in_their_records() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let older = stack.queue.listen("r_0123456789abcdef").await.unwrap();
    let id = submit(&stack, json!({"endpoint": "any", "input": large("e")})).await;
    assert!(in_redis(&stack, &id).await.len() > LARGE);
    drop(older);
    for _ in 0..100 {
        let id = submit(&stack, json!({"endpoint": "any", "input": large("f")})).await;
        if in_redis(&stack, &id).await.len() < 100 {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("the older replica has gone, and large inputs stay in their records");
}

#[tokio::test]
async fn a_job_whose_input_cannot_be_fetched_keeps_no_other_from_a_worker() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let stuck = submit(&stack, json!({"endpoint": "any", "input": large("g")})).await;
    let kept = submit(&stack, json!({"endpoint": "any", "input": 5})).await;
    // The object is larger than the limit for reads into memory: the object store's response is neither the input nor
    // its absence.
    let reference: Value = serde_json::from_str(&in_redis(&stack, &stuck).await).unwrap();
    let key = format!("inputs/acme/{}", reference["$file"].as_str().unwrap());
    let objects = Objects::connect(stack.config.s3.clone()).await.unwrap();
    objects.put(&key, vec![b' '; 9 << 20].into(), "application/json").await.unwrap();
    let asked = json!({"want": 2, "reach_gib": 0, "wait_ms": 0});
    let reply = stack.json(worker.post("lease", &asked)).await;
    let leased: Vec<&Value> = reply["leases"].as_array().unwrap().iter().map(|lease| &lease["job_id"]).collect();
    assert_eq!(leased, [&json!(kept)]);
    assert_eq!(stack.job(&stuck).await["state"], "queued");
    // With no other job there is no reply: the worker polls again after a pause.
    assert_eq!(stack.problem(worker.post("lease", &asked)).await.0, 500);
}
