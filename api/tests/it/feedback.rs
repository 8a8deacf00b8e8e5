//! Feedback on results: it is given, replaced, counted and exported.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stokehold_api::token::Scope;

use crate::stack::{Stack, echo};
use crate::worker::Worker;

async fn done(stack: &Stack, worker: &Worker<'_>, text: &str) -> String {
    let id = stack.submit(text).await;
    let lease = worker.lease().await;
    worker.succeed(&lease, json!({"said": text})).await;
    id
}

async fn exported(stack: &Stack, query: &str) -> Vec<Value> {
    let answer = stack.get(&format!("/v1/feedback/export?{query}")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/jsonl");
    let text = answer.text().await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn feedback_is_kept_replaced_and_counted() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let give = async |id: &str, said: Value| stack.json(stack.post(&format!("/v1/jobs/{id}/feedback"), &said)).await;
    let sums = async || stack.json(stack.get("/v1/feedback?endpoint=echo")).await["versions"].clone();
    assert_eq!(sums().await, json!([]));

    let (a, b) = (done(&stack, &worker, "a").await, done(&stack, &worker, "b").await);
    let kept = give(&a, json!({"accepted": false, "score": 2, "labels": ["dull"], "comment": "no"})).await;
    assert_eq!((&kept["job_id"], &kept["endpoint"], &kept["version"]), (&json!(a), &json!("echo"), &json!(1)));
    assert_eq!((&kept["accepted"], &kept["labels"], &kept["comment"]), (&json!(false), &json!(["dull"]), &json!("no")));
    let kept = give(&a, json!({"accepted": true, "score": 5})).await;
    assert_eq!((&kept["labels"], &kept["comment"]), (&json!([]), &json!(null)), "the former is gone");
    give(&b, json!({"score": 2})).await;
    assert_eq!(
        sums().await,
        json!([{"endpoint": "echo", "version": 1, "rated": 2, "accepted": 1, "success_rate": 1.0, "mean_score": 3.5}])
    );

    // Another version is counted separately; the newest comes first.
    let mut changed = echo();
    changed["entry"] = json!("echo.py:again");
    stack.deploy(changed).await;
    let c = done(&stack, &worker, "c").await;
    give(&c, json!({"comment": "hm"})).await;
    assert_eq!(
        sums().await[0],
        json!({"endpoint": "echo", "version": 2, "rated": 1, "accepted": 0, "success_rate": null, "mean_score": null})
    );

    let mut lines = exported(&stack, "").await;
    lines.sort_by_key(|line| line["job_id"].as_str().unwrap().to_owned());
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["input"], &lines[0]["result"]), (&json!({"text": "a"}), &json!({"said": "a"})));
    assert_eq!((&lines[0]["score"], &lines[0]["at"].is_string()), (&json!(5), &true));
    assert_eq!(exported(&stack, "endpoint=echo&version=2").await.len(), 1);
    assert_eq!(exported(&stack, "endpoint=ech").await.len(), 0);
}

#[tokio::test]
async fn feedback_is_exported_as_a_random_sample() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    for n in 0..12 {
        let id = done(&stack, &worker, &n.to_string()).await;
        stack.json(stack.post(&format!("/v1/jobs/{id}/feedback"), &json!({"score": 3}))).await;
    }
    let ids = async |query: &str| -> Vec<String> {
        exported(&stack, query).await.iter().map(|line| line["job_id"].as_str().unwrap().to_owned()).collect()
    };
    let drawn = ids("endpoint=echo&sample=4&seed=1").await;
    assert_eq!(drawn.len(), 4);
    assert_eq!(drawn, ids("endpoint=echo&sample=4&seed=1").await);
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        seen.extend(ids(&format!("sample=4&seed={seed}")).await);
    }
    assert_eq!(seen.len(), 12, "none is left out for ever");
}

#[tokio::test]
async fn feedback_is_checked() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = done(&stack, &worker, "a").await;
    let path = format!("/v1/jobs/{id}/feedback");
    let long = "x".repeat(2_001);
    for wrong in [
        json!({}),
        json!({"score": 0}),
        json!({"score": 6}),
        json!({"score": 2.5}),
        json!({"labels": []}),
        json!({"labels": [""]}),
        json!({"labels": vec!["x"; 21]}),
        json!({"comment": long}),
        json!({"accepted": true, "mood": 1}),
    ] {
        assert_eq!(stack.problem(stack.post(&path, &wrong)).await, (400, "invalid_request".to_owned()), "{wrong}");
    }
    for wrong in ["sample=0", "sample=100001", "version=1", "endpoint=echo&version=0", "seed=-1", "endpoint=A"] {
        let export = stack.get(&format!("/v1/feedback/export?{wrong}"));
        assert_eq!(stack.problem(export).await, (400, "invalid_query".to_owned()), "{wrong}");
    }
    let open = stack.submit("open").await;
    let early = stack.post(&format!("/v1/jobs/{open}/feedback"), &json!({"score": 1}));
    assert_eq!(stack.problem(early).await, (409, "not_ready".to_owned()));
    stack.json(stack.post(&format!("/v1/jobs/{open}/cancel"), &json!({}))).await;
    let late = stack.post(&format!("/v1/jobs/{open}/feedback"), &json!({"score": 1}));
    assert_eq!(stack.problem(late).await, (409, "no_result".to_owned()));

    let other = stack.token_of("other", &Scope::ALL, None).await;
    let theirs = stack.client.post(format!("{}{path}", stack.url)).bearer_auth(&other).body(r#"{"score":1}"#);
    assert_eq!(stack.problem(theirs).await, (404, "not_found".to_owned()));
    let reader = stack.token_of("acme", &[Scope::JobsRead], None).await;
    let reading = stack.client.post(format!("{}{path}", stack.url)).bearer_auth(&reader).body(r#"{"score":1}"#);
    assert_eq!(stack.problem(reading).await, (403, "forbidden".to_owned()));
    let mine = stack.client.get(format!("{}/v1/feedback", stack.url)).bearer_auth(&reader);
    assert_eq!(stack.json(mine).await, json!({"versions": []}));
}
