//! Dead letters, retries, bulk cancels, and limits.

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use stokehold_queue::Queue;

use crate::stack::{Stack, echo};
use crate::worker::Worker;

async fn failed_job(stack: &Stack, worker: &Worker<'_>, text: &str) -> String {
    let body = json!({"endpoint": "echo", "input": {"text": text}, "max_attempts": 1, "metadata": {"run": "7"}});
    let job = stack.json(stack.post("/v1/jobs", &body)).await;
    worker.fail(&worker.lease().await, "handler_error").await;
    job["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_dead_job_is_tried_again_once_and_leaves_the_dead_letters() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let dead = failed_job(&stack, &worker, "a").await;
    let listed = stack.json(stack.get("/v1/dead-letters?endpoint=echo&error_code=handler_error")).await;
    assert_eq!(listed["jobs"][0]["id"], dead);

    let retry = || stack.post(&format!("/v1/jobs/{dead}/retry"), &Value::Null);
    let again = stack.json(retry()).await;
    assert_eq!((&again["retry_of"], &again["state"]), (&json!(dead), &json!("queued")));
    assert_eq!(stack.json(retry()).await["id"], again["id"], "asking again answers the same job");
    assert_eq!(stack.json(stack.get("/v1/dead-letters")).await["jobs"], json!([]));
    assert_eq!(stack.job(&dead).await["state"], "failed", "what has ended stays as it ended");

    let open = again["id"].as_str().unwrap();
    let retry = stack.post(&format!("/v1/jobs/{open}/retry"), &Value::Null);
    assert_eq!(stack.problem(retry).await, (409, "not_retryable".to_owned()));
    worker.succeed(&worker.lease().await, json!("done")).await;
    assert_eq!(stack.job(open).await["state"], "succeeded");
}

#[tokio::test]
async fn a_retry_runs_on_the_current_version_unless_it_is_pinned_or_told_otherwise() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let mut dead = Vec::new();
    for text in ["a", "b", "c", "d"] {
        dead.push(failed_job(&stack, &worker, text).await);
    }
    let body = json!({"endpoint": "echo", "version": 1, "input": {"text": "e"}, "max_attempts": 1, "timeout_s": 77});
    let pinned = stack.json(stack.post("/v1/jobs", &body)).await["id"].as_str().unwrap().to_owned();
    worker.fail(&worker.lease().await, "handler_error").await;
    let mut mended = echo();
    mended["timeout_s"] = json!(123);
    assert_eq!(stack.deploy(mended).await["version"], 2);

    let retry = |id: &str, query: &str| stack.post(&format!("/v1/jobs/{id}/retry{query}"), &Value::Null);
    let spec = async |id: &Value| stack.queue.get(id.as_str().unwrap().parse().unwrap()).await.unwrap().unwrap().spec;
    let again = spec(&stack.json(retry(&dead[0], "")).await["id"]).await;
    assert_eq!((again.version, again.timeout_ms, again.max_attempts), (2, 123_000, 1));
    let again = spec(&stack.json(retry(&dead[1], "?same_version=true")).await["id"]).await;
    assert_eq!((again.version, again.timeout_ms), (1, 600_000));
    let again = spec(&stack.json(retry(&pinned, "")).await["id"]).await;
    assert_eq!((again.version, again.timeout_ms), (1, 77_000));
    let wrong = retry(&dead[2], "?same_version=perhaps");
    assert_eq!(stack.problem(wrong).await, (400, "invalid_query".to_owned()));

    for (same_version, version) in [(true, 1), (false, 2)] {
        let body = json!({"filter": {"endpoint": "echo"}, "limit": 1, "same_version": same_version});
        let many = stack.json(stack.post("/v1/jobs/retry", &body)).await;
        assert_eq!(spec(&many["retried"][0]["new_id"]).await.version, version, "{many}");
    }
}

#[tokio::test]
async fn many_are_tried_again_or_cancelled_by_filter() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    for text in ["a", "b", "c"] {
        failed_job(&stack, &worker, text).await;
    }
    let none = stack.post("/v1/jobs/retry", &json!({"filter": {}}));
    assert_eq!(stack.problem(none).await, (400, "invalid_request".to_owned()));
    let some = stack.post("/v1/jobs/retry", &json!({"filter": {"metadata": {"run": "7"}}, "limit": 2}));
    let some = stack.json(some).await;
    assert_eq!((some["retried"].as_array().unwrap().len(), &some["more"]), (2, &json!(true)));
    let rest = stack.json(stack.post("/v1/jobs/retry", &json!({"filter": {"endpoint": "echo"}}))).await;
    assert_eq!((rest["retried"].as_array().unwrap().len(), &rest["more"]), (1, &json!(false)));

    let cancel = json!({"filter": {"endpoint": "echo", "state": "queued"}});
    assert_eq!(stack.json(stack.post("/v1/jobs/cancel", &cancel)).await, json!({"cancelled": 3, "more": false}));
    assert_eq!(stack.json(stack.post("/v1/jobs/cancel", &cancel)).await["cancelled"], 0);
}

#[tokio::test]
async fn a_quota_refuses_what_is_over_it_and_says_when_to_come_back() {
    let stack = Stack::start().await;
    stack.deploy(echo()).await;
    let limits = json!({"max_open": 2, "weight": 2.0});
    let set = stack.request(Method::PUT, "/v1/limits/acme").body(limits.to_string());
    assert_eq!(stack.json(set).await["max_open"], 2);
    let first = stack.submit("1").await;
    stack.submit("2").await;
    let body = json!({"endpoint": "echo", "input": {"text": "3"}});
    let refused = stack.post("/v1/jobs", &body).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "5"));
    assert_eq!(refused.json::<Value>().await.unwrap()["code"], "quota_exceeded");
    stack.json(stack.post(&format!("/v1/jobs/{first}/cancel"), &Value::Null)).await;
    stack.submit("3").await;
    let own = stack.json(stack.get("/v1/limits")).await;
    assert_eq!((&own["usage"]["open"], &own["limits"]["weight"]), (&json!(2), &json!(2.0)));
    assert_eq!(own["endpoints"]["echo"]["usage"]["open"], 2);
}

#[tokio::test]
async fn only_operators_set_limits() {
    let stack = Stack::start().await;
    let token = stack.token_of("acme", &[Scope::JobsRead, Scope::JobsWrite], None).await;
    let url = format!("{}/v1/limits/acme", stack.url);
    let set = stack.client.put(url).bearer_auth(token).body(json!({"max_open": 1}).to_string());
    assert_eq!(stack.problem(set).await, (403, "forbidden".to_owned()));
    for wrong in [json!({"weight": 0}), json!({"starts_per_minute": 0}), json!({"max_opn": 1})] {
        let set = stack.request(Method::PUT, "/v1/limits/acme").body(wrong.to_string());
        assert_eq!(stack.problem(set).await.0, 400);
    }
}

#[tokio::test]
async fn a_job_that_nobody_starts_in_time_expires_and_says_why() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let body = json!({"endpoint": "echo", "input": {"text": "a"}, "queue_timeout_s": 1, "deadline_s": 60});
    let job = stack.json(stack.post("/v1/jobs", &body)).await;
    let job = stack.json(stack.get(&format!("/v1/jobs/{}?wait_s=20", job["id"].as_str().unwrap()))).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("expired"), &json!("queue_timeout")));
    assert!(job["deadline_at"].is_string());
}
