//! Budgets: nothing starts once they are spent, and each waiting job shows the reason. Estimates: the expected cost of
//! a batch, and its actual cost.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{FinishOutcome, FinishReport};
use stokehold_queue::job::Timing;
use stokehold_queue::queue::{Lease, LeaseQuery};
use stokehold_queue::{Queue, RedisQueue};

use crate::stack::{PATIENCE, Stack};

async fn take(queue: &RedisQueue, want: u32) -> Vec<Lease> {
    queue.lease(LeaseQuery::new("w", want, Capability::usual(0))).await.unwrap()
}

/// Ends an attempt with this cost.
async fn ends(queue: &RedisQueue, lease: &Lease, cost_usd_micros: u64) {
    let timing = Timing { run_ms: 9, load_ms: 1, ..Timing::default() };
    let outcome = FinishOutcome::Succeeded { result: lease.input.clone() };
    let report = FinishReport::new(lease.named(), timing, outcome);
    queue.finish(&[FinishReport { cost_usd_micros: Some(cost_usd_micros), ..report }]).await.unwrap();
}

async fn put(stack: &Stack, path: &str, limits: Value) -> Value {
    stack.json(stack.request(Method::PUT, path).body(limits.to_string())).await
}

/// The response at `path` once it satisfies `is`.
async fn until(stack: &Stack, path: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let seen = stack.json(stack.get(path)).await;
        if is(&seen) {
            return seen;
        }
        assert!(tokio::time::Instant::now() < deadline, "{seen}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn send(stack: &Stack, query: &str, count: usize) -> String {
    let lines: Vec<String> = (0..count).map(|n| json!({"input": {"text": n.to_string()}}).to_string()).collect();
    let request = stack.request(Method::POST, &format!("/v1/batches?endpoint=echo&{query}"));
    let batch = stack.json(request.header("content-type", "application/jsonl").body(lines.join("\n"))).await;
    batch["id"].as_str().unwrap().to_owned()
}

/// Leases `want` jobs once the lines have been fed.
async fn fed(stack: &Stack, want: u32) -> Vec<Lease> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut leases = Vec::new();
    while leases.len() < want as usize {
        assert!(tokio::time::Instant::now() < deadline, "{} leases", leases.len());
        leases.extend(take(&stack.queue, want - leases.len() as u32).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    leases
}

async fn codes(stack: &Stack, batch: &str) -> Vec<String> {
    let text = stack.get(&format!("/v1/batches/{batch}/errors")).send().await.unwrap().text().await.unwrap();
    let code = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["error"]["code"].as_str().unwrap().to_owned()
    };
    text.lines().map(code).collect()
}

#[tokio::test]
async fn a_tenant_whose_budget_is_spent_starts_nothing_and_is_told_why() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let set = put(&stack, "/v1/limits/acme", json!({"budget_usd_micros_per_day": 1_000, "max_running": 2})).await;
    assert_eq!((&set["at_budget"], &set["max_running"]), (&json!("drain"), &json!(2)));
    assert_eq!(
        set["budget"],
        json!({"limit_usd_micros": 1_000, "spent_today_usd_micros": 0, "state": "within", "resumes_at": null})
    );
    for text in ["a", "b"] {
        stack.submit(text).await;
    }
    let last = stack.submit("c").await;
    let leases = take(&stack.queue, 2).await;
    ends(&stack.queue, &leases[0], 850).await;
    let own = stack.json(stack.get("/v1/limits")).await;
    assert_eq!((&own["budget"]["state"], &own["budget"]["spent_today_usd_micros"]), (&json!("warned"), &json!(850)));
    assert!(own["endpoints"]["echo"].get("budget").is_none(), "it has none of its own");
    ends(&stack.queue, &leases[1], 200).await;
    let limits = until(&stack, "/v1/limits/acme", |seen| seen["budget"]["resumes_at"].is_string()).await;
    assert_eq!(
        (&limits["budget"]["state"], &limits["budget"]["spent_today_usd_micros"]),
        (&json!("reached"), &json!(1_050))
    );
    assert!(limits["budget"]["resumes_at"].as_str().unwrap().ends_with("T00:00:00.000Z"), "{limits}");
    assert!(take(&stack.queue, 2).await.is_empty());
    let waiting = stack.json(stack.get(&format!("/v1/jobs/{last}"))).await["waiting"].clone();
    assert_eq!(waiting["reason"], "budget");
    let message = waiting["message"].as_str().unwrap();
    assert!(
        message.starts_with("its tenant's budget of $0.0010 for today is spent; jobs start again at "),
        "{message}"
    );
    assert!(message.ends_with("or raise it: stoke limit set acme --budget-usd-per-day 1.00"), "{message}");
    let queue = stack.json(stack.get("/v1/queue")).await;
    assert_eq!(queue["lanes"][0]["waiting"]["reason"], "budget");
    put(&stack, "/v1/limits/acme", json!({"budget_usd_micros_per_day": 2_000})).await;
    assert_eq!(take(&stack.queue, 2).await.len(), 1, "there is room again");
}

#[tokio::test]
async fn with_a_budget_of_nothing_nothing_starts_from_that_moment_on() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let job = stack.submit("a").await;
    let set = put(&stack, "/v1/limits/acme", json!({"budget_usd_micros_per_day": 0})).await;
    assert_eq!((&set["budget"]["state"], &set["budget"]["resumes_at"]), (&json!("reached"), &Value::Null), "{set}");
    assert!(take(&stack.queue, 2).await.is_empty());
    let waiting = stack.json(stack.get(&format!("/v1/jobs/{job}"))).await["waiting"].clone();
    let message =
        "its tenant's budget is 0, so nothing starts; raise it: stoke limit set acme --budget-usd-per-day 1.00";
    assert_eq!((&waiting["reason"], &waiting["message"]), (&json!("budget"), &json!(message)));
    put(&stack, "/v1/limits/acme", json!({})).await;
    assert_eq!(take(&stack.queue, 2).await.len(), 1);
}

#[tokio::test]
async fn what_runs_goes_back_into_its_queue_where_that_is_asked_for() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let path = "/v1/limits/acme/endpoints/echo";
    put(&stack, path, json!({"budget_usd_micros_per_day": 100, "at_budget": "stop"})).await;
    stack.submit("a").await;
    stack.submit("b").await;
    let leases = take(&stack.queue, 2).await;
    ends(&stack.queue, &leases[0], 100).await;
    let job = until(&stack, &format!("/v1/jobs/{}", leases[1].job_id), |job| job["state"] == "queued").await;
    assert_eq!((&job["attempts"][0]["state"], &job["waiting"]["reason"]), (&json!("released"), &json!("budget")));
    assert!(job["waiting"]["message"].as_str().unwrap().contains("stoke limit set acme --endpoint echo --budget"));
    assert!(take(&stack.queue, 2).await.is_empty());
}

#[tokio::test]
async fn a_batch_that_drains_at_its_budget_cancels_what_has_not_started() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = send(&stack, "budget_usd_micros=500", 20).await;
    let path = format!("/v1/batches/{id}");
    let leases = fed(&stack, 3).await;
    ends(&stack.queue, &leases[0], 450).await;
    let warned = stack.json(stack.get(&path)).await;
    assert_eq!((&warned["budget_state"], &warned["at_budget"]), (&json!("warned"), &json!("drain")));
    ends(&stack.queue, &leases[1], 100).await;
    let stopping = until(&stack, &path, |batch| batch["counts"]["cancelled"] == 17).await;
    assert_eq!((&stopping["stop_reason"], &stopping["counts"]["running"]), (&json!("budget"), &json!(1)));
    assert_eq!(stopping["state"], "running", "what runs goes on");
    ends(&stack.queue, &leases[2], 100).await;
    let ended = until(&stack, &path, |batch| !batch["ended_at"].is_null()).await;
    assert_eq!(
        (&ended["state"], &ended["stop_reason"], &ended["budget_state"]),
        (&json!("cancelled"), &json!("budget"), &json!("reached"))
    );
    assert_eq!((&ended["spent_usd_micros"], &ended["budget_usd_micros"]), (&json!(650), &json!(500)));
    assert_eq!((&ended["counts"]["succeeded"], &ended["counts"]["open"]), (&json!(3), &json!(0)));
    assert_eq!(codes(&stack, &id).await, vec!["budget_reached"; 17]);
}

#[tokio::test]
async fn a_batch_that_stops_at_its_budget_cancels_what_runs_too() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = send(&stack, "budget_usd_micros=500&at_budget=stop", 6).await;
    let leases = fed(&stack, 2).await;
    ends(&stack.queue, &leases[0], 500).await;
    let ended = until(&stack, &format!("/v1/batches/{id}"), |batch| !batch["ended_at"].is_null()).await;
    assert_eq!((&ended["state"], &ended["counts"]["cancelled"]), (&json!("cancelled"), &json!(5)));
    assert_eq!(codes(&stack, &id).await, vec!["budget_reached"; 5]);
}

#[tokio::test]
async fn a_batch_is_estimated_before_it_starts_and_told_how_far_that_was_off() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let asked = json!({"endpoint": "echo", "line_count": 1_000});
    let estimate = || stack.json(stack.post("/v1/batches/estimate", &asked));
    assert_eq!(estimate().await, json!({"lines": 1_000, "estimate": null, "estimate_unknown": "no_jobs"}));
    for n in 0..2 {
        stack.submit(&n.to_string()).await;
    }
    for lease in take(&stack.queue, 2).await {
        ends(&stack.queue, &lease, 100).await;
    }
    assert_eq!(
        estimate().await["estimate"],
        json!({"usd_micros": 100_000, "low_usd_micros": 50_000, "high_usd_micros": 150_000, "per_line_usd_micros": 100.0,
            "basis_jobs": 2})
    );
    let body =
        json!({"endpoint": "echo", "lines": [{"input": {}}, {"input": {}, "endpoint": "echo"}], "priority": "batch"});
    let of_body = stack.json(stack.post("/v1/batches/estimate", &body)).await;
    assert_eq!((&of_body["lines"], &of_body["estimate"]["usd_micros"]), (&json!(2), &json!(200)));
    for wrong in [json!({"line_count": 5}), json!({"endpoint": "echo"}), json!({"endpoint": "echo", "line_count": 0})] {
        assert_eq!(stack.problem(stack.post("/v1/batches/estimate", &wrong)).await.0, 400, "{wrong}");
    }
    let unknown = json!({"endpoint": "nobody", "line_count": 5});
    assert_eq!(stack.problem(stack.post("/v1/batches/estimate", &unknown)).await.0, 404);

    let id = send(&stack, "", 4).await;
    for lease in fed(&stack, 4).await {
        ends(&stack.queue, &lease, 110).await;
    }
    let ended = until(&stack, &format!("/v1/batches/{id}"), |batch| !batch["ended_at"].is_null()).await;
    assert_eq!((&ended["estimate"]["usd_micros"], &ended["spent_usd_micros"]), (&json!(400), &json!(440)));
    assert_eq!((&ended["estimate_error_pct"], &ended["stop_reason"]), (&json!(10.0), &Value::Null));
}

#[tokio::test]
async fn a_budget_that_is_none_is_refused() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    for wrong in [json!({"at_budget": "stop"}), json!({"budget_usd_micros_per_day": 1, "at_budget": "burn"})] {
        let set = stack.request(Method::PUT, "/v1/limits/acme").body(wrong.to_string());
        assert_eq!(stack.problem(set).await.0, 400, "{wrong}");
    }
    for wrong in [json!({"budget_usd_micros": 0}), json!({"at_budget": "stop"})] {
        let mut body = json!({"endpoint": "echo", "lines": [{"input": {"text": "a"}}]});
        body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        assert_eq!(stack.problem(stack.post("/v1/batches", &body)).await.0, 400, "{body}");
    }
}
