//! Schedules over the API: their operations, the refusals, and their ticks.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::run;
use stokehold_api::token::Scope;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::stack::{PATIENCE, Stack, echo};

/// A schedule that ticks very rarely.
fn yearly() -> Value {
    json!({"cron": "30 9 1 1 *", "job": {"endpoint": "echo", "input": {"text": "hi"}}})
}

fn every_second() -> Value {
    json!({"cron": "* * * * * *", "job": {"endpoint": "echo", "input": {"text": "tick"}, "metadata": {"by": "clock"}}})
}

async fn create(stack: &Stack, schedule: &Value) -> Value {
    let answer = stack.post("/v1/schedules", schedule).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    answer.json().await.unwrap()
}

async fn see(stack: &Stack, schedule: &Value) -> Value {
    stack.json(stack.get(&path(schedule))).await
}

fn path(schedule: &Value) -> String {
    format!("/v1/schedules/{}", schedule["id"].as_str().unwrap())
}

/// The schedule, once it satisfies `wanted`.
async fn until(stack: &Stack, schedule: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
    let look = async {
        loop {
            let seen = see(stack, schedule).await;
            if wanted(&seen) {
                return seen;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, look).await.expect("the schedule gets there")
}

fn ms(time: &Value) -> i128 {
    let at = time::OffsetDateTime::parse(time.as_str().unwrap(), &time::format_description::well_known::Rfc3339);
    at.unwrap().unix_timestamp_nanos() / 1_000_000
}

async fn jobs(stack: &Stack) -> Vec<Value> {
    stack.json(stack.get("/v1/jobs?limit=100")).await["jobs"].as_array().unwrap().clone()
}

#[tokio::test]
async fn schedule_is_made_seen_listed_paused_resumed_and_deleted() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let full = json!({
        "name": "new year", "cron": "30 9 1 1 *", "time_zone": "Europe/Berlin", "missed": "run_all", "grace_s": 90,
        "paused": false, "job": {"endpoint": "echo", "version": 1, "input": {"text": "hi"}, "priority": "batch"},
    });
    let made = create(&stack, &full).await;
    for member in ["name", "cron", "time_zone", "missed", "grace_s", "paused", "job"] {
        assert_eq!(made[member], full[member], "{member}");
    }
    assert!(made["id"].as_str().unwrap().starts_with("sch_"));
    assert!(made["next_at"].as_str().unwrap().ends_with("-01-01T08:30:00.000Z"), "{made}");
    for member in ["last_at", "last_job_id", "last_error"] {
        assert_eq!(made[member], Value::Null, "{member}");
    }
    assert_eq!(made["ticks"], 0);
    assert_eq!(see(&stack, &made).await, made);

    let plain = create(&stack, &yearly()).await;
    let defaults = json!({"name": null, "time_zone": "UTC", "missed": "run_once", "grace_s": 60, "paused": false});
    for (member, value) in defaults.as_object().unwrap() {
        assert_eq!(plain[member], *value, "{member}");
    }

    let page = stack.json(stack.get("/v1/schedules?limit=1")).await;
    assert_eq!((&page["schedules"][0], &page["next_cursor"]), (&plain, &plain["id"]), "newest first");
    let next = format!("/v1/schedules?limit=1&cursor={}", page["next_cursor"].as_str().unwrap());
    let page = stack.json(stack.get(&next)).await;
    assert_eq!((&page["schedules"][0], &page["next_cursor"]), (&made, &Value::Null));

    let pause = || stack.post(&format!("{}/pause", path(&made)), &Value::Null);
    let resume = || stack.post(&format!("{}/resume", path(&made)), &Value::Null);
    for _ in 0..2 {
        let paused = stack.json(pause()).await;
        assert_eq!((&paused["paused"], &paused["next_at"]), (&json!(true), &Value::Null));
    }
    for _ in 0..2 {
        assert_eq!(stack.json(resume()).await, made);
    }
    let mut begun_paused = yearly();
    begun_paused["paused"] = json!(true);
    assert_eq!(create(&stack, &begun_paused).await["next_at"], Value::Null);

    // For other tenants it does not exist.
    let other = stack.token_of("other", &Scope::ALL, None).await;
    for (method, end) in [(Method::GET, ""), (Method::DELETE, ""), (Method::POST, "/pause"), (Method::POST, "/resume")]
    {
        let request = stack.client.request(method, format!("{}{}{end}", stack.url, path(&made))).bearer_auth(&other);
        assert_eq!(stack.problem(request).await, (404, "not_found".to_owned()));
    }
    let delete = || stack.request(Method::DELETE, &path(&made));
    assert_eq!(delete().send().await.unwrap().status(), 204);
    for request in [delete(), stack.get(&path(&made)), pause(), resume()] {
        assert_eq!(stack.problem(request).await, (404, "not_found".to_owned()));
    }
}

#[tokio::test]
async fn schedule_mistakes_are_refused_with_what_to_change() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let with = |member: &str, value: Value| {
        let mut schedule = yearly();
        match member.strip_prefix("job.") {
            Some(member) => schedule["job"][member] = value,
            None => schedule[member] = value,
        }
        schedule
    };
    let table = [
        (with("cron", json!("* * *")), 400, "/cron", "must have 5 fields"),
        (with("cron", json!("61 * * * *")), 400, "/cron", "the minute is \"61\"; it must be 0 to 59"),
        (with("cron", json!("0 0 30 2 *")), 400, "/cron", "never occurs"),
        (with("time_zone", json!("Berlin")), 400, "/time_zone", "did you mean Europe/Berlin?"),
        (with("missed", json!("all")), 400, "/missed", "run_once"),
        (with("grace_s", json!(0)), 400, "/grace_s", "must be 1 to 604800 seconds"),
        (with("name", json!("")), 400, "/name", "must be 1 to 255"),
        (with("every", json!("1h")), 400, "", "unknown field `every`"),
        (with("job", json!(null)), 400, "/job", "must be an object, not null"),
        (with("job.run_after", json!("2027-01-01T00:00:00Z")), 400, "/job/run_after", "the schedule sets when"),
        (with("job.idempotency_key", json!("k")), 400, "/job/idempotency_key", "its own key"),
        (with("job.depends_on", json!([])), 400, "/job/depends_on", "waits for no other"),
        (with("job.priority", json!("now")), 400, "/job/priority", "unknown variant"),
        (with("job.timeout_s", json!(0)), 400, "/job/timeout_s", "must be 1 to"),
        (with("job.input", json!({"text": 5})), 400, "/job/input/text", "string"),
        (with("job.endpoint", json!("nothing")), 404, "", "there is no endpoint \"nothing\""),
        (with("job.version", json!(9)), 404, "", "has no version 9"),
        (
            with("job.input", json!({"text": "x", "file": {"$file": format!("file_{}", "0".repeat(32))}})),
            422,
            "",
            "was not uploaded",
        ),
    ];
    for (schedule, status, path, words) in table {
        let answer = stack.post("/v1/schedules", &schedule).send().await.unwrap();
        assert_eq!(answer.status(), status, "{schedule}");
        let problem: Value = answer.json().await.unwrap();
        assert!(problem["detail"].as_str().unwrap().contains(words), "{schedule}: {problem}");
        if !path.is_empty() {
            assert_eq!(problem["errors"][0]["path"], path, "{problem}");
        }
    }
    for query in ["cursor=x", "limit=0", "limit=101", "state=paused"] {
        let request = stack.get(&format!("/v1/schedules?{query}"));
        assert_eq!(stack.problem(request).await, (400, "invalid_query".to_owned()), "{query}");
    }
    for id in ["x", "sch_0", &format!("sch_{}", "0".repeat(32))] {
        let request = stack.get(&format!("/v1/schedules/{id}"));
        assert_eq!(stack.problem(request).await, (404, "not_found".to_owned()), "{id}");
    }
    let reader = stack.token_of("acme", &[Scope::JobsRead], None).await;
    let request = stack.client.post(format!("{}/v1/schedules", stack.url)).bearer_auth(reader);
    assert_eq!(stack.problem(request.body(yearly().to_string())).await, (403, "forbidden".to_owned()));
    assert!(stack.json(stack.get("/v1/schedules")).await["schedules"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn schedule_ticks_on_the_dot_until_it_is_deleted() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let made = create(&stack, &every_second()).await;
    let seen = until(&stack, &made, |seen| seen["ticks"].as_u64() >= Some(3)).await;
    assert_eq!(seen["last_error"], Value::Null);
    let last = stack.job(seen["last_job_id"].as_str().unwrap()).await;
    assert_eq!((&last["metadata"], &last["input"]), (&json!({"by": "clock"}), &json!({"text": "tick"})));

    let paused = stack.json(stack.post(&format!("{}/pause", path(&made)), &Value::Null)).await;
    let at_pause = jobs(&stack).await;
    assert!(at_pause.len() as u64 >= paused["ticks"].as_u64().unwrap());
    let mut late: Vec<i128> = at_pause.iter().map(|job| ms(&job["created_at"]).rem_euclid(1_000)).collect();
    late.sort_unstable();
    assert!(late[late.len() / 2] < 500, "a job comes within a fraction of its second: {late:?}");
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(jobs(&stack).await.len(), at_pause.len(), "no job while paused");

    let resumed = stack.json(stack.post(&format!("{}/resume", path(&made)), &Value::Null)).await;
    assert!(ms(&resumed["next_at"]) > ms(&paused["last_at"]) + 2_000, "what was paused is not missed");
    until(&stack, &made, |seen| seen["ticks"].as_u64() > paused["ticks"].as_u64()).await;
    assert_eq!(stack.request(Method::DELETE, &path(&made)).send().await.unwrap().status(), 204);
    let at_delete = jobs(&stack).await.len();
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(jobs(&stack).await.len(), at_delete, "no job after the answer");
}

#[tokio::test]
async fn schedule_ticks_go_on_after_one_that_is_refused() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let made = create(&stack, &every_second()).await;
    until(&stack, &made, |seen| seen["ticks"].as_u64() >= Some(1)).await;
    // The next version requires a number where the schedule has a text.
    let mut strict = echo();
    strict["input_schema"]["properties"]["text"] = json!({"type": "number"});
    stack.deploy(strict).await;
    let refused = until(&stack, &made, |seen| seen["last_error"].is_string()).await;
    assert!(refused["last_error"].as_str().unwrap().starts_with("invalid_input: /job/input/text: "), "{refused}");
    let mut later = echo();
    later["timeout_s"] = json!(60);
    stack.deploy(later).await;
    let ticking = until(&stack, &made, |seen| seen["last_error"].is_null()).await;
    assert!(ticking["ticks"].as_u64() > refused["ticks"].as_u64());
}

#[tokio::test]
async fn schedule_of_two_replicas_makes_one_job_a_tick() {
    let mut config = None;
    let stack = Stack::start_with(|first| config = Some(first.clone())).await;
    stack.deploy_echo().await;
    let (listener, ends) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), CancellationToken::new());
    let second = tokio::spawn(run(config.unwrap(), listener, ends.clone()));
    let made = create(&stack, &every_second()).await;
    let begun = Instant::now();
    let seen = until(&stack, &made, |seen| seen["ticks"].as_u64() >= Some(4)).await;
    assert!(begun.elapsed() > Duration::from_secs(2), "ticks are a second apart");
    let mut seconds: Vec<i128> = jobs(&stack).await.iter().map(|job| ms(&job["created_at"]) / 1_000).collect();
    let made_jobs = seconds.len();
    seconds.sort_unstable();
    seconds.dedup();
    assert_eq!(seconds.len(), made_jobs, "no second has two");
    assert!(made_jobs as u64 >= seen["ticks"].as_u64().unwrap());
    ends.cancel();
    second.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_key_makes_one_schedule() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let body = json!({"cron": "0 3 * * *", "job": {"endpoint": "echo", "input": {"text": "hi"}}});
    let create = |body: &Value| stack.post("/v1/schedules", body).header("idempotency-key", "k");
    let first = stack.json(create(&body)).await;
    let again = create(&body).send().await.unwrap();
    assert_eq!(again.status(), 200);
    assert_eq!(again.json::<Value>().await.unwrap()["id"], first["id"]);
    let other = json!({"cron": "0 4 * * *", "job": body["job"]});
    assert_eq!(stack.problem(create(&other)).await, (422, "idempotency_conflict".to_owned()));

    // A job under the same key does not conflict with the schedule.
    let job = json!({"endpoint": "echo", "input": {"text": "hi"}});
    let submit = || stack.post("/v1/jobs", &job).header("idempotency-key", "k");
    let job = stack.json(submit()).await;
    assert_eq!(stack.json(submit()).await["id"], job["id"]);
    assert_eq!(create(&body).send().await.unwrap().status(), 200);
}
