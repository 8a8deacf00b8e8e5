//! Jobs that wait for others: dependencies, references, and the steps before and after a job.

use std::time::Duration;

use serde_json::{Value, json};
use stokehold_queue::Queue;
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{FinishOutcome, FinishReport};
use stokehold_queue::job::{ErrorCode, JobState, Timing};
use stokehold_queue::queue::LeaseQuery;

use crate::stack::{PACKAGE, Stack, sha256};
use crate::worker::Worker;

pub(crate) fn endpoint(name: &str, more: Value) -> Value {
    let mut endpoint = json!({
        "name": name, "package_sha256": sha256(PACKAGE), "package_size_bytes": PACKAGE.len(), "entry": "main.py:run",
        "input_schema": true, "max_attempts": 1,
    });
    for (member, value) in more.as_object().unwrap() {
        endpoint[member] = value.clone();
    }
    endpoint
}

async fn submit(stack: &Stack, job: Value) -> Value {
    stack.json(stack.post("/v1/jobs", &job)).await
}

fn id(job: &Value) -> String {
    job["id"].as_str().unwrap().to_owned()
}

async fn ended(stack: &Stack, job: &Value) -> Value {
    stack.json(stack.get(&format!("/v1/jobs/{}?wait_s=20", id(job)))).await
}

#[tokio::test]
async fn the_output_of_one_is_the_input_of_the_next() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let jobs = json!({"jobs": [
        {"endpoint": "any", "input": "first"},
        {"endpoint": "any", "input": "second"},
        {"endpoint": "any", "input": {"a": {"$job": "#0", "pointer": "/x"}, "b": [{"$job": "#1"}]}},
    ]});
    let ids = stack.json(stack.post("/v1/jobs/bulk", &jobs)).await["ids"].clone();
    let last = ids[2].as_str().unwrap();
    let waiting = stack.job(last).await;
    assert_eq!(waiting["state"], "blocked");
    assert_eq!(waiting["depends_on"], json!([{"job": ids[0], "on": "success"}, {"job": ids[1], "on": "success"}]));

    for result in [json!({"x": {"y": 1}}), json!("out")] {
        let lease = worker.lease().await;
        assert_ne!(lease["job_id"], ids[2], "it waits for both");
        worker.succeed(&lease, result).await;
    }
    let lease = worker.lease().await;
    assert_eq!(lease["job_id"], ids[2]);
    assert_eq!(lease["input"], json!({"a": {"y": 1}, "b": ["out"]}));
    worker.succeed(&lease, json!(null)).await;
}

#[tokio::test]
async fn a_bulk_call_with_references_may_be_repeated() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let jobs = json!({"idempotency_key": "k", "jobs": [
        {"endpoint": "any", "input": 1}, {"endpoint": "any", "input": {"$job": "#0"}, "depends_on": ["#0"]},
    ]});
    let first = stack.json(stack.post("/v1/jobs/bulk", &jobs)).await;
    assert_eq!(stack.json(stack.post("/v1/jobs/bulk", &jobs)).await, first);
}

#[tokio::test]
async fn a_retried_job_does_not_wait_again_and_its_input_is_data() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let first = submit(&stack, json!({"endpoint": "any", "input": 1})).await;
    let second =
        submit(&stack, json!({"endpoint": "any", "input": {"a": {"$job": first["id"], "pointer": "/x"}}})).await;
    let looks_like_one = json!({"$job": "0192f0c1a2b37cde8f00112233445500"});
    worker.succeed(&worker.lease().await, json!({"x": looks_like_one})).await;
    let lease = worker.lease().await;
    assert_eq!((&lease["job_id"], &lease["input"]), (&second["id"], &json!({"a": looks_like_one})));
    worker.fail(&lease, "handler_error").await;

    let again = stack.json(stack.post(&format!("/v1/jobs/{}/retry", id(&second)), &Value::Null)).await;
    assert_eq!((&again["state"], &again["depends_on"]), (&json!("queued"), &json!([])), "{again}");
    let lease = worker.lease().await;
    assert_eq!((&lease["job_id"], &lease["input"]), (&again["id"], &json!({"a": looks_like_one})));
    worker.succeed(&lease, json!(null)).await;

    // A job that was cancelled while it waited still has its references, and waits again.
    let open = submit(&stack, json!({"endpoint": "any", "input": 2})).await;
    let waits = submit(&stack, json!({"endpoint": "any", "input": {"$job": open["id"]}})).await;
    stack.json(stack.post(&format!("/v1/jobs/{}/cancel", id(&waits)), &Value::Null)).await;
    let again = stack.json(stack.post(&format!("/v1/jobs/{}/retry", id(&waits)), &Value::Null)).await;
    assert_eq!(again["state"], "blocked");
    worker.succeed(&worker.lease().await, json!("out")).await;
    let lease = worker.lease().await;
    assert_eq!((&lease["job_id"], &lease["input"]), (&again["id"], &json!("out")));
    worker.succeed(&lease, json!(null)).await;
}

#[tokio::test]
async fn a_job_whose_upstream_result_is_gone_fails_and_says_so() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let first = submit(&stack, json!({"endpoint": "any", "input": 1})).await;
    let whole = submit(&stack, json!({"endpoint": "any", "input": {"$job": first["id"]}})).await;
    let lease = stack.queue.lease(LeaseQuery::new("w", 1, Capability::usual(0))).await.unwrap().remove(0);
    // Its result is recorded as stored in the object store, which has no such object.
    let outcome = FinishOutcome::Stored { size_bytes: 5 };
    stack.queue.finish(&[FinishReport::new(lease.named(), Timing::default(), outcome)]).await.unwrap();
    let ended = ended(&stack, &whole).await;
    assert_eq!((&ended["state"], &ended["error"]["code"]), (&json!("failed"), &json!("dependency_failed")), "{ended}");
    let why = format!("the result of job {} is missing from the object store", id(&first));
    assert_eq!(ended["error"]["message"], why);
}

/// Null in its place would be an answer that no job gave.
#[tokio::test]
async fn a_result_that_is_too_large_to_be_shown_ends_who_waits_for_it() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let first = submit(&stack, json!({"endpoint": "any", "input": 1})).await;
    let names = submit(&stack, json!({"endpoint": "any", "input": [{"$job": first["id"]}]})).await;
    let waits = submit(&stack, json!({"endpoint": "any", "input": 2, "depends_on": [first["id"]]})).await;
    let lease = stack.queue.lease(LeaseQuery::new("w", 1, Capability::usual(0))).await.unwrap().remove(0);
    let outcome = FinishOutcome::Stored { size_bytes: (1 << 20) + 1 };
    stack.queue.finish(&[FinishReport::new(lease.named(), Timing::default(), outcome)]).await.unwrap();
    let names = ended(&stack, &names).await;
    assert_eq!((&names["state"], &names["error"]["code"]), (&json!("failed"), &json!("dependency_failed")), "{names}");
    let why = names["error"]["message"].as_str().unwrap();
    assert!(why.contains("has 1048577 bytes") && why.contains("as files"), "{why}");
    // A job that waits only for the end of another does not receive its result.
    while stack.job(&id(&waits)).await["state"] != "queued" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_job_whose_input_cannot_be_read_is_ended_and_the_next_one_runs() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let first = submit(&stack, json!({"endpoint": "any", "input": 1})).await;
    let broken = submit(&stack, json!({"endpoint": "any", "input": 2, "depends_on": [first["id"]]})).await;
    worker.succeed(&worker.lease().await, json!(null)).await;
    while stack.job(&id(&broken)).await["state"] != "queued" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Nested deeper than the limit for reads into memory.
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    stack.redis.ask::<i64>(&["HSET", &format!("{{stoke:0}}:j:{}", id(&broken)), "input", &deep]);
    let next = submit(&stack, json!({"endpoint": "any", "input": 3})).await;

    let reply = stack.json(worker.post("lease", &json!({"want": 9, "reach_gib": 0, "wait_ms": 0}))).await;
    let leased: Vec<&Value> = reply["leases"].as_array().unwrap().iter().map(|lease| &lease["job_id"]).collect();
    assert_eq!(leased, [&next["id"]], "{reply}");
    // A client would see an input of the same depth, so the test reads the record itself.
    let ended = stack.queue.get(id(&broken).parse().unwrap()).await.unwrap().unwrap();
    let error = ended.error.unwrap();
    assert_eq!((ended.state, error.code), (JobState::Failed, ErrorCode::DependencyFailed));
    assert!(error.message.starts_with("the job's input cannot be read"), "{}", error.message);
}

#[tokio::test]
async fn what_cannot_be_waited_for_is_refused() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let unknown = "0192f0c1a2b37cde8f00112233445500";
    let job = json!({"endpoint": "any", "input": 1, "depends_on": [unknown]});
    assert_eq!(stack.problem(stack.post("/v1/jobs", &job)).await, (422, "dependency_missing".to_owned()));
    let foreign = stack.token_of("other", &stokehold_api::token::Scope::ALL, None).await;
    let own = submit(&stack, json!({"endpoint": "any", "input": 1})).await;
    let job = json!({"endpoint": "any", "input": 1, "depends_on": [own["id"]]});
    let request = stack.client.post(format!("{}/v1/jobs", stack.url)).bearer_auth(foreign).body(job.to_string());
    assert_eq!(stack.problem(request).await.0, 404, "another tenant has not even the endpoint");
    let job = json!({"endpoint": "any", "input": 1, "depends_on": ["#0"]});
    assert_eq!(stack.problem(stack.post("/v1/jobs", &job)).await, (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn a_failed_dependency_fails_those_that_need_its_success() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let first = submit(&stack, json!({"endpoint": "any", "input": 1})).await;
    let strict = submit(&stack, json!({"endpoint": "any", "input": 2, "depends_on": [first["id"]]})).await;
    let lenient = json!({"endpoint": "any", "input": 3, "depends_on": [{"job": first["id"], "on": "completion"}]});
    let lenient = submit(&stack, lenient).await;
    worker.fail(&worker.lease().await, "handler_error").await;
    let strict = ended(&stack, &strict).await;
    assert_eq!((&strict["state"], &strict["error"]["code"]), (&json!("failed"), &json!("dependency_failed")));
    let lease = worker.lease().await;
    assert_eq!(lease["job_id"], lenient["id"]);
    worker.succeed(&lease, json!(null)).await;
}

async fn moderated() -> Stack {
    let stack = Stack::start().await;
    stack.deploy(endpoint("prompt-check", json!({}))).await;
    stack.deploy(endpoint("image-check", json!({}))).await;
    let steps = json!({
        "before": [{"endpoint": "prompt-check", "thresholds": {"violence": 0.5}}],
        "after": [{"endpoint": "image-check"}],
    });
    stack.deploy(endpoint("render", steps)).await;
    stack
}

#[tokio::test]
async fn a_rejected_prompt_never_reaches_the_render() {
    let stack = moderated().await;
    let worker = Worker::join(&stack).await;
    let job = submit(&stack, json!({"endpoint": "render", "input": {"prompt": "blood"}})).await;
    assert_eq!(job["state"], "blocked");
    let check = worker.lease().await;
    assert_eq!(check["endpoint"], "prompt-check");
    let asked = json!({"endpoint": "render", "input": {"prompt": "blood"}, "thresholds": {"violence": 0.5}});
    assert_eq!(check["input"], asked);
    worker.succeed(&check, json!({"scores": {"violence": 0.9}})).await;

    let job = ended(&stack, &job).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("rejected")));
    assert_eq!(job["error"]["message"], "violence is 0.90, over the threshold of 0.5");
    assert_eq!(job["attempts"], json!([]), "the render has cost nothing");
    let step = &job["steps"][0];
    assert_eq!((&step["decision"], &step["scores"]["violence"]), (&json!("reject"), &json!(0.9)));
    assert!(step["timing"].is_object() && step["job_id"] == check["job_id"]);
    assert_eq!(job["steps"][1]["job_id"], Value::Null, "nor has the image check");
}

#[tokio::test]
async fn an_allowed_job_runs_and_its_output_is_seen_when_it_is_allowed_too() {
    let stack = moderated().await;
    let worker = Worker::join(&stack).await;
    let job = submit(&stack, json!({"endpoint": "render", "input": {"prompt": "p"}})).await;
    let rewrite = json!({"decision": "rewrite", "value": {"prompt": "a polite p"}});
    worker.succeed(&worker.lease().await, rewrite).await;
    let render = worker.lease().await;
    assert_eq!((&render["job_id"], &render["input"]["prompt"]), (&job["id"], &json!("a polite p")));
    worker.succeed(&render, json!({"image": 1})).await;

    let check = worker.lease().await;
    assert_eq!(check["endpoint"], "image-check");
    assert_eq!(check["input"]["output"], json!({"image": 1}));
    let held = stack.job(&id(&job)).await;
    assert_eq!((&held["state"], &held["result"], &held["result_url"]), (&json!("blocked"), &Value::Null, &Value::Null));
    let result = stack.get(&format!("/v1/jobs/{}/result", id(&job)));
    assert_eq!(stack.problem(result).await, (409, "not_ready".to_owned()));
    worker.succeed(&check, json!({"decision": "allow"})).await;

    let job = ended(&stack, &job).await;
    assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!({"image": 1})));
    let decisions: Vec<&Value> = job["steps"].as_array().unwrap().iter().map(|step| &step["decision"]).collect();
    assert_eq!(decisions, ["rewrite", "allow"]);
}

#[tokio::test]
async fn a_rejected_output_is_never_seen() {
    let stack = moderated().await;
    let worker = Worker::join(&stack).await;
    let job = submit(&stack, json!({"endpoint": "render", "input": {"prompt": "p"}})).await;
    worker.succeed(&worker.lease().await, json!({"decision": "allow"})).await;
    worker.succeed(&worker.lease().await, json!({"image": 1})).await;
    worker.succeed(&worker.lease().await, json!({"decision": "reject", "reason": "too dark"})).await;
    let job = ended(&stack, &job).await;
    assert_eq!((&job["state"], &job["error"]["message"]), (&json!("failed"), &json!("too dark")));
    assert_eq!(job["result"], Value::Null);
    let result = stack.get(&format!("/v1/jobs/{}/result", id(&job)));
    assert_eq!(stack.problem(result).await, (409, "no_result".to_owned()));
}

#[tokio::test]
async fn cancelling_a_job_cancels_the_step_that_it_waits_for() {
    let stack = moderated().await;
    let worker = Worker::join(&stack).await;
    let job = submit(&stack, json!({"endpoint": "render", "input": {"prompt": "p"}})).await;
    let check = worker.lease().await;
    stack.json(stack.post(&format!("/v1/jobs/{}/cancel", id(&job)), &Value::Null)).await;
    assert_eq!(worker.succeed(&check, json!({"decision": "allow"})).await, "stale_fence");
    assert_eq!(stack.job(&id(&job)).await["state"], "cancelled");
}

/// If the request were repeated for ever, the job would stay among the jobs to be settled without a visible reason.
#[tokio::test]
async fn a_waiting_job_whose_record_cannot_be_read_waits_for_an_operator() {
    let stack = Stack::start().await;
    stack.deploy(endpoint("any", json!({}))).await;
    let worker = Worker::join(&stack).await;
    let first = submit(&stack, json!({"endpoint": "any", "input": 1})).await;
    let after = json!({"endpoint": "any", "input": 2, "depends_on": [first["id"]]});
    let (broken, whole) = (submit(&stack, after.clone()).await, submit(&stack, after).await);
    stack.redis.ask::<i64>(&["HSET", &format!("{{stoke:0}}:j:{}", id(&broken)), "steps", "{"]);
    worker.succeed(&worker.lease().await, json!(null)).await;
    assert_eq!(worker.lease().await["job_id"], whole["id"]);
    let quarantine = stack.queue.quarantine();
    while quarantine.count().await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let found = quarantine.list(10).await.unwrap().remove(0);
    assert_eq!((found.id.to_string(), found.state), (id(&broken), Some(JobState::Blocked)));
    assert!(found.why.contains("steps"), "{}", found.why);
}
