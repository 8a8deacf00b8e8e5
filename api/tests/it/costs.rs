//! Costs of jobs, and access to them.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use stokehold_queue::costs::{BillState, BilledDay, Charged, MachineBill, day_of};
use stokehold_queue::{ManualClock, now_ms};

use crate::stack::Stack;
use crate::worker::Worker;

/// A stack with an instance rented for 3.60 dollars an hour, its worker, and a bill of one dollar for this day.
async fn stack() -> (Stack, ManualClock) {
    let (stack, clock) = Stack::start_on_clock().await;
    let registry = stack.queue.registry();
    let term = registry.lead("test", 60_000).await.unwrap().unwrap();
    let offer = json!({"kind": "RTX 4090", "usd_per_hour": 7.2});
    let machine = json!({"id": "rack", "provider": "cloud", "rental": "7", "offer": offer, "wanted": "running", "wanted_ms": now_ms(),
        "is_done": true, "rented_ms": now_ms(), "usd_micros_per_hour": 3_600_000});
    assert!(registry.put_machine(term, &serde_json::from_value(machine).unwrap()).await.unwrap());
    let of_day = BilledDay {
        running_ms: 277_778,
        running_usd_micros: 1_000_000,
        on_demand_usd_micros: 2_000_000,
        ..BilledDay::default()
    };
    let bill = MachineBill {
        machine: "rack".to_owned(),
        provider: "cloud".to_owned(),
        rental: Some("7".to_owned()),
        kind: "RTX 4090".to_owned(),
        host: String::new(),
        is_interruptible: true,
        usd_micros_per_hour: 3_600_000,
        on_demand_usd_micros_per_hour: 7_200_000,
        stopped_usd_micros_per_hour: 0,
        rented_ms: now_ms(),
        ended_ms: Some(now_ms()),
        state: BillState::Running,
        since_ms: now_ms(),
        days: [(day_of(now_ms()), of_day)].into(),
        charged: Some(Charged {
            gpu_usd_micros: 1_000_000,
            traffic_usd_micros: 10,
            is_final: true,
            ..Charged::default()
        }),
    };
    assert!(registry.put_bill(term, &bill).await.unwrap());
    stack.deploy_echo().await;
    (stack, clock)
}

/// Runs a job of `echo` for 4 seconds, with 2 seconds of load time, in one of the machine's 4 slots.
async fn runs(stack: &Stack, clock: &ManualClock, worker: &Worker<'_>) -> String {
    runs_for(stack, clock, worker, json!({"run_ms": 4_000, "load_ms": 1_500, "env_ms": 500})).await
}

/// Runs a job of `echo` that is held for 6 seconds, with the timings that its worker reports.
async fn runs_for(stack: &Stack, clock: &ManualClock, worker: &Worker<'_>, timing: Value) -> String {
    let id = stack.submit("hi").await;
    let lease = worker.lease().await;
    clock.advance_ms(6_000);
    let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "succeeded", "result": 1, "timing": timing});
    stack.json(worker.post("finish", &json!({"finish": [report]}))).await;
    id
}

async fn costs(stack: &Stack, query: &str) -> Value {
    stack.json(stack.get(&format!("/v1/costs{query}"))).await
}

#[tokio::test]
async fn rows_add_up_to_what_the_provider_charges() {
    let (stack, clock) = stack().await;
    let worker = Worker::join(&stack).await;
    let ids = [runs(&stack, &clock, &worker).await, runs(&stack, &clock, &worker).await];
    let told = costs(&stack, "").await;
    let row = &told["rows"][0];
    assert_eq!((&row["name"], &row["jobs"]), (&json!("acme/echo"), &json!(2)), "{told}");
    assert_eq!((&row["run_usd_micros"], &row["load_usd_micros"]), (&json!(2_000), &json!(1_000)));
    assert_eq!((&row["idle_usd_micros"], &row["traffic_usd_micros"]), (&json!(997_000), &json!(10)));
    assert_eq!((&row["total_usd_micros"], &row["per_job_usd_micros"]), (&json!(1_000_010), &json!(500_005)));
    assert_eq!((row.get("usage"), &row["usd_micros_per_million_tokens"]), (None, &Value::Null));
    assert_eq!((&row["run_s"], &row["is_estimate"]), (&json!(8.0), &json!(false)));
    assert_eq!(
        (&told["savings"]["on_demand_usd_micros"], &told["idle_share"].as_f64().unwrap().round()),
        (&json!(2_000_010), &1.0)
    );
    for by in ["tenant", "batch", "machine", "day", "job"] {
        let told = costs(&stack, &format!("?by={by}")).await;
        let rows = told["rows"].as_array().unwrap();
        let sum: u64 = rows.iter().map(|row| row["total_usd_micros"].as_u64().unwrap()).sum();
        assert_eq!(sum, 1_000_010, "by {by}: {told}");
        assert_eq!(told["total"]["total_usd_micros"], 1_000_010);
        assert_eq!(rows.len(), if by == "job" { 2 } else { 1 });
    }
    let job = stack.job(&ids[0]).await;
    assert_eq!(job["cost_usd_micros"], 1_500, "{job}");
    assert_eq!(
        job["cost"],
        json!({"run_usd_micros": 1_000, "load_usd_micros": 500, "overhead_usd_micros": 498_505,
        "total_usd_micros": 500_005, "is_estimate": false})
    );
    assert_eq!(costs(&stack, "?from=2024-02-28&to=2024-03-01").await["rows"], json!([]));
}

/// Reports the end of a job, with the tokens of its result.
async fn ends_with(worker: &Worker<'_>, stack: &Stack, usage: Value) -> Value {
    let lease = worker.lease().await;
    let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "succeeded", "result": 1,
        "timing": {"run_ms": 4_000}, "usage": usage});
    let ended = stack.json(worker.post("finish", &json!({"finish": [report, report]}))).await;
    assert_eq!(ended["finished"], json!(["ok", "already_ended"]), "{usage}");
    lease["job_id"].clone()
}

#[tokio::test]
async fn the_tokens_of_results_are_counted_and_priced() {
    let (stack, clock) = stack().await;
    let worker = Worker::join(&stack).await;
    runs(&stack, &clock, &worker).await;
    let id = stack.submit("hi").await;
    let usage = json!({"prompt_tokens": 600_000, "cached_tokens": 100_000, "completion_tokens": 400_000});
    ends_with(&worker, &stack, usage.clone()).await;
    let job = stack.job(&id).await;
    assert_eq!(job["usage"], usage, "{job}");
    let plain = runs(&stack, &clock, &worker).await;
    assert_eq!(stack.job(&plain).await.get("usage"), None);
    for by in ["endpoint", "tenant", "batch", "machine", "day"] {
        let told = costs(&stack, &format!("?by={by}")).await;
        assert_eq!((&told["rows"][0]["usage"], &told["total"]["usage"]), (&usage, &usage), "by {by}: {told}");
        assert_eq!(told["rows"][0]["usd_micros_per_million_tokens"], told["total"]["total_usd_micros"], "{told}");
    }
    let by_job = costs(&stack, "?by=job").await;
    let rows = by_job["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["job_id"] == id.as_str()).unwrap();
    assert_eq!((&row["usage"], &row["usd_micros_per_million_tokens"]), (&usage, &row["total_usd_micros"]), "{row}");
    assert_eq!(rows.iter().filter(|row| row["usd_micros_per_million_tokens"].is_null()).count(), 2);
}

#[tokio::test]
async fn a_batch_has_the_tokens_of_its_ended_lines() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let lines = "{\"input\": {\"text\": \"a\"}}\n".repeat(3);
    let request = stack.request(Method::POST, "/v1/batches?endpoint=echo");
    let batch = stack.json(request.header("content-type", "application/jsonl").body(lines)).await;
    let path = format!("/v1/batches/{}", batch["id"].as_str().unwrap());
    assert_eq!(batch.get("usage"), None);
    ends_with(&worker, &stack, json!({"prompt_tokens": 7, "completion_tokens": 2})).await;
    ends_with(&worker, &stack, Value::Null).await;
    // Impossible numbers do not count.
    ends_with(&worker, &stack, json!({"prompt_tokens": 1_u64 << 50, "cached_tokens": 9, "completion_tokens": 3})).await;
    let usage = json!({"prompt_tokens": 7, "cached_tokens": 0, "completion_tokens": 5});
    assert_eq!(stack.json(stack.get(&path)).await["usage"], usage);
}

#[tokio::test]
async fn a_tenant_sees_its_own_costs_and_nobody_elses() {
    let (mut stack, clock) = stack().await;
    {
        let worker = Worker::join(&stack).await;
        runs(&stack, &clock, &worker).await;
    }
    let day = Some(Duration::from_secs(3_600));
    stack.token = stack.token_of("zoo", &[Scope::JobsRead], day).await;
    let told = costs(&stack, "?by=tenant").await;
    assert_eq!((&told["rows"], &told["total"]["total_usd_micros"]), (&json!([]), &json!(0)));
    for query in ["?by=machine", "?tenant=acme", "?by=job&tenant=acme"] {
        let refused = stack.problem(stack.get(&format!("/v1/costs{query}"))).await;
        assert_eq!(refused, (403, "forbidden".to_owned()), "{query}");
    }
    stack.token = stack.token_of("acme", &[Scope::JobsRead], day).await;
    let told = costs(&stack, "?by=day").await;
    assert_eq!((&told["total"]["total_usd_micros"], &told["total"]["jobs"]), (&json!(1_000_010), &json!(1)));
    stack.token = stack.token_of("zoo", &[Scope::JobsRead, Scope::WorkersRead], day).await;
    let told = costs(&stack, "?by=machine").await;
    assert_eq!((&told["rows"][0]["machine"], &told["total"]["total_usd_micros"]), (&json!("rack"), &json!(1_000_010)));
    assert_eq!(costs(&stack, "?tenant=zoo").await["rows"], json!([]));
}

#[tokio::test]
async fn a_worker_cannot_charge_for_more_time_than_its_lease_was_held() {
    let (stack, clock) = stack().await;
    let worker = Worker::join(&stack).await;
    let most = 1_u64 << 50;
    for timing in [
        json!({"run_ms": most}),
        json!({"load_ms": most, "env_ms": most}),
        json!({"run_ms": most, "sharers_milli": 1, "batch_size": 1}),
    ] {
        let id = runs_for(&stack, &clock, &worker, timing.clone()).await;
        let job = stack.job(&id).await;
        // 6 s of one of 4 slots at $3.60 an hour are 1,500 micro-dollars; clocks may differ by a second.
        let cost = job["cost_usd_micros"].as_u64().unwrap();
        assert!((1_500..=1_750).contains(&cost), "{timing}: {cost}");
        assert!(job["timing"]["run_ms"].as_u64().unwrap() <= 7_000, "{job}");
    }
    let metrics = stack.get("/metrics").send().await.unwrap().text().await.unwrap();
    let cut = metrics.lines().find_map(|line| line.strip_prefix("stokehold_timings_cut_total ")).unwrap();
    assert!(cut.parse::<u64>().unwrap() >= 3, "{cut}");
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused() {
    let stack = Stack::start().await;
    for query in [
        "?by=colour",
        "?from=yesterday",
        "?from=2026-11-23&to=2026-11-22",
        "?from=2020-01-01&to=2026-11-22",
        "?endpoint=echo",
        "?limit=0",
        "?limit=1001",
        "?tenant=A!",
        "?more=1",
    ] {
        let refused = stack.problem(stack.get(&format!("/v1/costs{query}"))).await;
        assert_eq!(refused, (400, "invalid_query".to_owned()), "{query}");
    }
    assert_eq!(costs(&stack, "?by=endpoint").await["total"]["total_usd_micros"], 0);
}
