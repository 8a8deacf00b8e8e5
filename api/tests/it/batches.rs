//! Batches from end to end: every line ends once and is reported once, whatever fails in between.

mod large;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_api::run;
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{FinishOutcome, FinishReport};
use stokehold_queue::job::{ErrorCode, JobError, Timing};
use stokehold_queue::queue::LeaseQuery;
use stokehold_queue::{Queue, RedisQueue};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::stack::{PATIENCE, Stack, sha256};

/// `count` valid lines for `echo`; the text of every tenth one requests a failure.
fn good_lines(count: usize) -> Vec<String> {
    let line = |n: usize| {
        let text = if n.is_multiple_of(10) { format!("fail {n}") } else { format!("say {n}") };
        json!({"custom_id": format!("c{n}"), "input": {"text": text}}).to_string()
    };
    (1..=count).map(line).collect()
}

async fn send(stack: &Stack, query: &str, lines: &[String]) -> Value {
    let text = lines.join("\n");
    let request = stack.request(reqwest::Method::POST, &format!("/v1/batches?endpoint=echo&{query}"));
    stack.json(request.header("content-type", "application/jsonl").body(text)).await
}

/// The current state of the batch; its counts must add up at any time.
async fn look(stack: &Stack, id: &str) -> Value {
    let batch = stack.json(stack.get(&format!("/v1/batches/{id}"))).await;
    adds_up(&batch);
    batch
}

fn adds_up(batch: &Value) {
    let count = |name: &str| batch["counts"][name].as_u64().unwrap();
    assert_eq!(count("accepted"), count("total") - count("invalid"), "{batch}");
    let ended = ["succeeded", "failed", "cancelled", "expired"].map(count).iter().sum::<u64>();
    assert_eq!(count("accepted"), ended + count("open"), "{batch}");
    let over =
        ["finalizing", "completed", "failed", "cancelled", "expired"].contains(&batch["state"].as_str().unwrap());
    assert!(!over || count("open") == 0, "{batch}");
}

fn id_of(batch: &Value) -> String {
    batch["id"].as_str().unwrap().to_owned()
}

async fn until(stack: &Stack, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let batch = look(stack, id).await;
        if is(&batch) {
            return batch;
        }
        assert!(tokio::time::Instant::now() < deadline, "{batch}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_ended(stack: &Stack, id: &str) -> Value {
    until(stack, id, |batch| !batch["ended_at"].is_null()).await
}

async fn lines_of(stack: &Stack, id: &str, file: &str) -> Vec<Value> {
    let answer = stack.get(&format!("/v1/batches/{id}/{file}")).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/jsonl");
    let text = answer.text().await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every line of the two files, by its number: no line occurs twice.
async fn told(stack: &Stack, id: &str) -> BTreeMap<u64, String> {
    let mut told = BTreeMap::new();
    for file in ["results", "errors"] {
        for line in lines_of(stack, id, file).await {
            let state = line["state"].as_str().unwrap_or("succeeded").to_owned();
            let before = told.insert(line["line"].as_u64().unwrap(), state);
            assert!(before.is_none(), "twice: {line}");
        }
    }
    told
}

fn count(told: &BTreeMap<u64, String>, state: &str) -> u64 {
    told.values().filter(|seen| *seen == state).count() as u64
}

/// Runs the available jobs as a worker would, and fails those whose inputs request it. Returns the number of jobs.
async fn work(queue: &RedisQueue) -> usize {
    let query = LeaseQuery::new("w", 100, Capability::usual(0));
    let leases = queue.lease(query).await.unwrap();
    let reports: Vec<FinishReport> = leases
        .iter()
        .map(|lease| {
            let outcome = if lease.input.get().contains("\"fail ") {
                let error = JobError::new(ErrorCode::Rejected, "as asked");
                FinishOutcome::Failed { error }
            } else {
                FinishOutcome::Succeeded { result: lease.input.clone() }
            };
            FinishReport::new(lease.named(), Timing::default(), outcome)
        })
        .collect();
    queue.finish(&reports).await.unwrap();
    reports.len()
}

async fn work_until_ended(stack: &Stack, id: &str) -> Value {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let worked = work(&stack.queue).await;
        let batch = look(stack, id).await;
        if !batch["ended_at"].is_null() {
            return batch;
        }
        assert!(tokio::time::Instant::now() < deadline, "{batch}");
        if worked == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_batch_runs_to_its_end_and_tells_of_each_line_once() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let mut lines = good_lines(2_500);
    lines[4] = r#"{"input": {"text": 5}}"#.to_owned();
    lines[17] = "no JSON".to_owned();
    lines[1_999] = r#"{"custom_id": "away", "input": {"text": "x"}, "endpoint": "nobody"}"#.to_owned();
    let batch = send(&stack, "on_invalid=skip&metadata.team=a", &lines).await;
    adds_up(&batch);
    let id = id_of(&batch);
    assert_eq!((&batch["state"], &batch["priority"]), (&json!("validating"), &json!("batch")));
    let batch = until(&stack, &id, |batch| batch["state"] == "running").await;
    assert_eq!((&batch["counts"]["total"], &batch["counts"]["invalid"]), (&json!(2_500), &json!(3)));
    let wrong: Vec<u64> =
        batch["errors"].as_array().unwrap().iter().map(|error| error["line"].as_u64().unwrap()).collect();
    assert_eq!(wrong, [5, 18, 2_000]);
    assert!(batch["errors"][0]["message"].as_str().unwrap().contains("/input/text"));

    for _ in 0..15 {
        work(&stack.queue).await;
        let batch = look(&stack, &id).await;
        // The recorded lines and the others form a whole at any time.
        let told = told(&stack, &id).await;
        let ended = batch["counts"]["succeeded"].as_u64().unwrap() + batch["counts"]["failed"].as_u64().unwrap();
        assert!(told.len() as u64 >= ended + 3, "{} of {batch}", told.len());
    }
    let batch = work_until_ended(&stack, &id).await;
    assert_eq!(batch["state"], "completed");
    let told = told(&stack, &id).await;
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), (1..=2_500).collect::<Vec<_>>());
    for state in ["succeeded", "failed"] {
        assert_eq!(count(&told, state), batch["counts"][state].as_u64().unwrap());
    }
    assert_eq!((count(&told, "failed"), count(&told, "invalid")), (249, 3), "the 2,000th is wrong, so it never failed");
    let first = lines_of(&stack, &id, "results").await.into_iter().find(|line| line["line"] == 1).unwrap();
    assert_eq!((&first["custom_id"], &first["result"]), (&json!("c1"), &json!({"text": "say 1"})));
    let failed = lines_of(&stack, &id, "errors").await.into_iter().find(|line| line["line"] == 10).unwrap();
    assert_eq!((&failed["error"]["code"], &failed["custom_id"]), (&json!("rejected"), &json!("c10")));

    // The failed lines run again as a new batch, under their old names.
    let again = stack.json(stack.post(&format!("/v1/batches/{id}/retry-failed"), &json!({}))).await;
    assert_eq!(again["retry_of"], json!(id));
    let again = work_until_ended(&stack, &id_of(&again)).await;
    assert_eq!((&again["counts"]["total"], &again["counts"]["failed"]), (&json!(249), &json!(249)));
    let before = lines_of(&stack, &id, "errors").await;
    let errors = lines_of(&stack, &id_of(&again), "errors").await;
    let names: BTreeMap<u64, String> = errors
        .iter()
        .map(|line| (line["line"].as_u64().unwrap(), line["custom_id"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!((names.len(), names[&1].as_str(), names[&249].as_str()), (249, "c10", "c2500"));
    // Their jobs name the jobs that they retry, which are no longer dead letters.
    let tried: BTreeMap<&str, &str> = before
        .iter()
        .filter(|line| line["state"] == "failed")
        .map(|line| (line["custom_id"].as_str().unwrap(), line["job_id"].as_str().unwrap()))
        .collect();
    for line in &errors {
        let job = stack.job(line["job_id"].as_str().unwrap()).await;
        assert_eq!(job["retry_of"], tried[line["custom_id"].as_str().unwrap()], "{job}");
    }
    let (mut dead, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = stack.json(stack.get(&format!("/v1/dead-letters?limit=100{cursor}"))).await;
        dead.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["batch_id"].clone()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(dead, vec![again["id"].clone(); 249]);

    let listed = stack.json(stack.get("/v1/batches?state=completed&limit=1")).await;
    assert_eq!(listed["batches"][0]["id"], again["id"]);
    let cursor = listed["next_cursor"].as_str().unwrap();
    let listed = stack.json(stack.get(&format!("/v1/batches?state=completed&cursor={cursor}"))).await;
    assert_eq!((&listed["batches"][0]["id"], &listed["next_cursor"]), (&json!(id), &Value::Null));
}

#[tokio::test]
async fn the_jobs_of_a_large_batch_do_not_wait_for_the_sweep_of_the_minute() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = id_of(&send(&stack, "", &good_lines(3_000)).await);
    let batch = work_until_ended(&stack, &id).await;
    assert_eq!(batch["counts"]["succeeded"], 2_700, "more than the sweep lets lie for its minute");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let waiting = stack.queue.history().waiting().await.unwrap();
        if waiting <= 1_000 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{waiting} ended jobs are still in Redis");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn wrong_lines_fail_the_batch_before_anything_runs() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let openai =
        |id: &str, text: Value| json!({"custom_id": id, "method": "POST", "url": "/v1/x", "body": {"text": text}});
    let file = format!("file_{}", "0".repeat(32));
    let lines = json!([
        openai("a", json!("x")),
        openai("b", json!(7)),
        openai("a", json!("y")),
        {"input": {"text": "z", "file": {"$file": file}}},
    ]);
    let batch = stack.json(stack.post("/v1/batches", &json!({"endpoint": "echo", "lines": lines}))).await;
    let batch = until_ended(&stack, &id_of(&batch)).await;
    assert_eq!(batch["state"], "failed");
    let messages: Vec<String> = batch["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| format!("{}: {}", error["line"], error["message"].as_str().unwrap()))
        .collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages[0].starts_with("2: /body/text"), "{messages:?}");
    assert!(messages[1].starts_with("3: /custom_id"), "{messages:?}");
    assert!(messages[2].starts_with("4: file"), "{messages:?}");
    let told = told(&stack, &id_of(&batch)).await;
    assert_eq!(told.into_values().collect::<Vec<_>>(), ["cancelled", "invalid", "invalid", "invalid"]);
    assert_eq!(stack.queue.depth().await.unwrap(), [], "nothing of it was queued");

    let empty = send(&stack, "", &[]).await;
    let empty = until_ended(&stack, &id_of(&empty)).await;
    assert_eq!((&empty["state"], &empty["counts"]["total"]), (&json!("failed"), &json!(0)));
    let blank = send(&stack, "", &[good_lines(1)[0].clone(), String::new(), "  ".to_owned()]).await;
    let blank = work_until_ended(&stack, &id_of(&blank)).await;
    assert_eq!(
        (&blank["state"], &blank["counts"]["total"]),
        (&json!("completed"), &json!(1)),
        "empty lines at the end are none"
    );
}

#[tokio::test]
async fn a_cancelled_batch_stops_and_keeps_what_it_has() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = id_of(&send(&stack, "", &good_lines(6_000)).await);
    until(&stack, &id, |batch| batch["state"] == "running").await;
    while work(&stack.queue).await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let cancelled = stack.json(stack.post(&format!("/v1/batches/{id}/cancel"), &json!({}))).await;
    adds_up(&cancelled);
    assert!(cancelled["counts"]["cancelled"].as_u64().unwrap() >= 1_000, "what was not fed is called off at once");
    let batch = until_ended(&stack, &id).await;
    assert_eq!(batch["state"], "cancelled");
    let told = told(&stack, &id).await;
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), (1..=6_000).collect::<Vec<_>>());
    for state in ["succeeded", "failed", "cancelled"] {
        assert_eq!(count(&told, state), batch["counts"][state].as_u64().unwrap(), "{state}");
    }
    assert!(count(&told, "succeeded") > 0);
    stack.json(stack.post(&format!("/v1/batches/{id}/cancel"), &json!({}))).await;
    let nothing = json!([{"input": {"text": "x"}}]);
    let other = stack.json(stack.post("/v1/batches", &json!({"endpoint": "echo", "lines": nothing}))).await;
    let retry = stack.post(&format!("/v1/batches/{}/retry-failed", id_of(&other)), &json!({}));
    assert_eq!(stack.problem(retry).await, (409, "not_ready".to_owned()));
    work_until_ended(&stack, &id_of(&other)).await;
    let retry = stack.post(&format!("/v1/batches/{}/retry-failed", id_of(&other)), &json!({}));
    assert_eq!(stack.problem(retry).await, (409, "nothing_to_retry".to_owned()));
    let late = stack.post(&format!("/v1/batches/{}/cancel", id_of(&other)), &json!({}));
    assert_eq!(stack.problem(late).await, (409, "already_ended".to_owned()));
}

#[tokio::test]
async fn what_a_deadline_leaves_expires() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = id_of(&send(&stack, "deadline_s=2", &good_lines(6_000)).await);
    let batch = until(&stack, &id, |batch| batch["counts"]["expired"].as_u64() >= Some(1_000)).await;
    assert!(batch["deadline_at"].is_string());
    let batch = work_until_ended(&stack, &id).await;
    assert_eq!(batch["state"], "expired");
    let told = told(&stack, &id).await;
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), (1..=6_000).collect::<Vec<_>>());
    assert_eq!(count(&told, "expired"), batch["counts"]["expired"].as_u64().unwrap());
}

#[tokio::test]
async fn lines_may_lie_in_a_file_and_a_key_repeats_a_batch() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let text: &'static str = good_lines(3).join("\n").leak();
    let file = json!({"name": "lines.jsonl", "size_bytes": text.len(), "sha256": sha256(text.as_bytes())});
    let file = stack.json(stack.post("/v1/files", &file)).await;
    let request = json!({"endpoint": "echo", "input_file": file["id"], "idempotency_key": "k"});
    assert_eq!(stack.problem(stack.post("/v1/batches", &request)).await, (422, "file_missing".to_owned()));
    stack.upload(&file["upload_url"], &file["headers"], text.as_bytes()).await;
    let first = stack.json(stack.post("/v1/batches", &request)).await;
    let again = stack.post("/v1/batches", &request).send().await.unwrap();
    assert_eq!(again.status(), 200);
    assert_eq!(again.json::<Value>().await.unwrap()["id"], first["id"]);
    let other = json!({"endpoint": "echo", "input_file": file["id"], "idempotency_key": "k", "on_invalid": "skip"});
    assert_eq!(stack.problem(stack.post("/v1/batches", &other)).await, (422, "idempotency_conflict".to_owned()));
    let key = json!({"endpoint": "echo", "input_key": format!("inputs/acme/{}", file["id"].as_str().unwrap())});
    let third = stack.json(stack.post("/v1/batches", &key)).await;
    for batch in [&first, &third] {
        let batch = work_until_ended(&stack, &id_of(batch)).await;
        assert_eq!(batch["counts"]["succeeded"], 3);
    }
    let waited = stack.json(stack.get(&format!("/v1/batches/{}?wait_s=5", id_of(&first)))).await;
    assert_eq!(waited["state"], "completed");
}

#[tokio::test]
async fn wrong_requests_are_refused_where_they_are_wrong() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let line = json!([{"input": {"text": "x"}}]);
    for (request, wanted) in [
        (json!({"endpoint": "nobody", "lines": line}), (404, "unknown_endpoint")),
        (json!({"endpoint": "echo"}), (400, "invalid_request")),
        (json!({"endpoint": "echo", "lines": line, "input_key": "inputs/acme/x"}), (400, "invalid_request")),
        (json!({"endpoint": "echo", "input_key": "inputs/other/x"}), (400, "invalid_request")),
        (json!({"endpoint": "echo", "input_key": "inputs/acme/../other/x"}), (400, "invalid_request")),
        (json!({"endpoint": "echo", "input_file": "../x"}), (400, "invalid_request")),
        (json!({"endpoint": "echo", "lines": line, "deadline_s": 0}), (400, "invalid_request")),
        (json!({"endpoint": "echo", "lines": line, "max_attempts": 101}), (400, "invalid_request")),
        (json!({"endpoint": "echo", "lines": line, "webhook": "http://x.test/"}), (400, "invalid_request")),
        (json!({"endpoint": "echo", "lines": line, "webhook_events": ["job.started"]}), (400, "invalid_request")),
        (json!({"endpoint": "echo", "lines": line, "more": 1}), (400, "invalid_request")),
    ] {
        let (status, code) = stack.problem(stack.post("/v1/batches", &request)).await;
        assert_eq!((status, code.as_str()), wanted, "{request}");
    }
    let jsonl = |query: &str| {
        let request = stack.request(reqwest::Method::POST, &format!("/v1/batches?{query}"));
        request.header("content-type", "application/x-ndjson").body("{}")
    };
    assert_eq!(stack.problem(jsonl("endpoint=echo&on_invalid=maybe")).await.1, "invalid_query");
    assert_eq!(stack.problem(jsonl("endpoint=echo&colour=red")).await.1, "invalid_query");
    let other = stack.token_of("other", &stokehold_api::token::Scope::ALL, None).await;
    let batch = stack.json(stack.post("/v1/batches", &json!({"endpoint": "echo", "lines": line}))).await;
    for path in ["", "/results", "/errors"] {
        let path = format!("{}/v1/batches/{}{path}", stack.url, id_of(&batch));
        assert_eq!(stack.problem(stack.client.get(path).bearer_auth(&other)).await.0, 404);
    }
    assert_eq!(stack.problem(stack.get("/v1/batches/batch_x")).await.0, 404);
}

#[tokio::test]
async fn lines_that_each_name_their_endpoint_need_none_of_the_batch() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let named = json!({"endpoint": "echo", "input": {"text": "x"}});
    let lines = json!([named, {"input": {"text": "x"}}]);
    let batch = stack.json(stack.post("/v1/batches", &json!({"lines": lines}))).await;
    let batch = until_ended(&stack, &id_of(&batch)).await;
    assert_eq!((&batch["state"], &batch["endpoint"]), (&json!("failed"), &Value::Null));
    assert_eq!(batch["errors"][0]["line"], 2);
    assert_eq!(batch["errors"][0]["message"], "/endpoint: is missing, and the batch sets no default endpoint");
    let batch = stack.json(stack.post("/v1/batches", &json!({"lines": [named]}))).await;
    assert_eq!(work_until_ended(&stack, &id_of(&batch)).await["counts"]["succeeded"], 1);
}

#[tokio::test]
async fn replicas_that_come_and_go_lose_and_repeat_nothing() {
    let mut config = None;
    let stack = Stack::start_with(|own| config = Some(own.clone())).await;
    let config = config.unwrap();
    stack.deploy_echo().await;
    let id = id_of(&send(&stack, "on_invalid=skip", &good_lines(4_000)).await);
    let mut redis = stack.redis.connection().await;
    let deadline = tokio::time::Instant::now() + 2 * PATIENCE;
    let mut round = 0;
    let batch = loop {
        // The replica that has the batch loses it, as if its claim had expired during the work, so that two replicas
        // work on it at once.
        let role = format!("{{stoke:0}}:role:batch:{id}");
        let _: () = redis::cmd("DEL").arg(role).query_async(&mut redis).await.unwrap();
        let (ends, listener) = (CancellationToken::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let replica = tokio::spawn(run(config.clone(), listener, ends.clone()));
        for _ in 0..3 {
            work(&stack.queue).await;
            tokio::time::sleep(Duration::from_millis(40 + 37 * (round % 5))).await;
        }
        ends.cancel();
        replica.await.unwrap().unwrap();
        round += 1;
        let batch = look(&stack, &id).await;
        if !batch["ended_at"].is_null() {
            break batch;
        }
        assert!(tokio::time::Instant::now() < deadline, "{batch}");
    };
    assert_eq!(batch["state"], "completed");
    let told = told(&stack, &id).await;
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), (1..=4_000).collect::<Vec<_>>());
    assert_eq!((count(&told, "succeeded"), count(&told, "failed")), (3_600, 400));
}

#[tokio::test]
async fn a_line_whose_record_cannot_be_read_keeps_no_other_from_the_results() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = id_of(&send(&stack, "", &good_lines(3)).await);
    until(&stack, &id, |batch| batch["counts"]["open"] == 3 && batch["state"] == "running").await;
    let mut leases = Vec::new();
    while leases.len() < 3 {
        leases.extend(stack.queue.lease(LeaseQuery::new("w", 3, Capability::usual(0))).await.unwrap());
    }
    let succeed = |n: usize| {
        let lease: &stokehold_queue::queue::Lease = &leases[n];
        FinishReport::new(lease.named(), Timing::default(), FinishOutcome::Succeeded { result: lease.input.clone() })
    };
    stack.queue.finish(&[succeed(0)]).await.unwrap();
    stack.redis.ask::<i64>(&["HSET", &format!("{{stoke:0}}:j:{}", leases[0].job_id), "spec", "{"]);
    stack.queue.finish(&[succeed(1), succeed(2)]).await.unwrap();
    let batch = until_ended(&stack, &id).await;
    assert_eq!((&batch["state"], &batch["counts"]["succeeded"]), (&json!("completed"), &json!(3)), "{batch}");
    let told = told(&stack, &id).await;
    let mut lines: Vec<u64> = leases[1..].iter().map(|lease| lease.spec.batch.as_ref().unwrap().line).collect();
    lines.sort_unstable();
    assert_eq!(told.into_keys().collect::<Vec<_>>(), lines);
}
