//! Jobs whose records cannot be read: their owner sees the error, and operators decide.

use serde_json::{Value, json};

use crate::stack::Stack;
use crate::worker::Worker;

/// An operator's decision about these jobs.
async fn decide(stack: &Stack, verb: &str, ids: &[&str]) -> Value {
    stack.json(stack.post(&format!("/v1/quarantine/{verb}"), &json!({"ids": ids}))).await["jobs"].clone()
}

#[tokio::test]
async fn a_job_that_cannot_be_read_is_listed_and_put_back_or_ended() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let ids = [stack.submit("one").await, stack.submit("two").await, stack.submit("three").await];
    let lease = worker.lease().await;
    assert_eq!(lease["job_id"], ids[0]);
    let mut redis = stack.redis.connection().await;
    for (id, field, value) in [(&ids[0], "run", "nobody"), (&ids[1], "spec", "{")] {
        let _: u32 = redis::cmd("HSET")
            .arg(format!("{{stoke:0}}:j:{id}"))
            .arg(field)
            .arg(value)
            .query_async(&mut redis)
            .await
            .unwrap();
    }
    assert_eq!(stack.json(stack.get("/v1/quarantine")).await, json!({"jobs": [], "total": 0}));

    // A cancel finds the first record, a lease the second, and the lease still gets the third job.
    let cancel = stack.post(&format!("/v1/jobs/{}/cancel", ids[0]), &json!({}));
    assert_eq!(stack.problem(cancel).await, (409, "quarantined".to_owned()));
    assert_eq!(stack.job(&ids[0]).await["state"], "blocked");
    assert_eq!(worker.lease().await["job_id"], ids[2]);
    assert_eq!(stack.json(stack.get("/v1/jobs")).await["jobs"].as_array().unwrap().len(), 2);

    let found = stack.json(stack.get("/v1/quarantine")).await;
    assert_eq!(found["total"], 2);
    let jobs = found["jobs"].as_array().unwrap();
    let job = |id: &str| jobs.iter().find(|job| job["id"] == id).unwrap();
    let (first, second) = (job(&ids[0]), job(&ids[1]));
    assert_eq!((&first["tenant"], &first["endpoint"]), (&json!("acme"), &json!("echo")));
    assert_eq!((&first["state"], &first["why"]), (&json!("running"), &json!("the field \"run\" cannot be read")));
    assert!(second["why"].as_str().unwrap().starts_with("the field \"spec\" cannot be read"), "{second}");

    let back = decide(&stack, "readmit", &[&ids[0], &ids[1], &ids[2]]).await;
    let outcomes: Vec<&Value> = back.as_array().unwrap().iter().map(|job| &job["outcome"]).collect();
    assert_eq!(outcomes, ["queued", "unreadable", "not_found"]);
    assert_eq!(worker.lease().await["job_id"], ids[0]);
    let ended = decide(&stack, "discard", &[&ids[1], &ids[1]]).await;
    assert_eq!((&ended[0]["outcome"], &ended[1]["outcome"]), (&json!("deleted"), &json!("not_found")));
    assert_eq!(stack.problem(stack.get(&format!("/v1/jobs/{}", ids[1]))).await.0, 404);
    assert_eq!(stack.json(stack.get("/v1/quarantine")).await["total"], 0);

    let bad = stack.post("/v1/quarantine/discard", &json!({"ids": ["nothing"]}));
    assert_eq!(stack.problem(bad).await, (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn ends_are_taken_beside_those_of_jobs_that_cannot_be_read() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    for text in ["one", "two", "three"] {
        stack.submit(text).await;
    }
    let asked = json!({"want": 3, "reach_gib": 0, "wait_ms": 0});
    let leases = stack.json(worker.post("lease", &asked)).await["leases"].clone();
    let record = |n: usize| format!("{{stoke:0}}:j:{}", leases[n]["job_id"].as_str().unwrap());
    // The key of its result is derived from its record; and one is no record at all.
    stack.redis.ask::<i64>(&["HSET", &record(0), "spec", "{"]);
    stack.redis.ask::<i64>(&["DEL", &record(1)]);
    stack.redis.ask::<String>(&["SET", &record(1), "text"]);
    let report = |n: usize, more: Value| {
        let mut report = json!({"job_id": leases[n]["job_id"], "fence": leases[n]["fence"]});
        report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        report
    };
    let stored = json!({"outcome": "stored", "size_bytes": 5});
    let succeeded = json!({"outcome": "succeeded", "result": 1});
    let reports = [report(0, stored.clone()), report(1, stored), report(2, succeeded)];
    let reply = stack.json(worker.post("finish", &json!({"finish": reports}))).await;
    assert_eq!(reply["finished"], json!(["not_found", "stale_fence", "ok"]), "{reply}");
    assert_eq!(stack.json(stack.get("/v1/quarantine")).await["total"], 2);
    assert_eq!(stack.json(stack.get("/v1/jobs?state=succeeded")).await["jobs"][0]["id"], leases[2]["job_id"]);
}
