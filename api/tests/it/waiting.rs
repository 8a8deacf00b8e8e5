//! Held requests: only the event that they wait for wakes them.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::AsyncCommands;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::stack::{PATIENCE, Stack, echo};
use crate::worker::Worker;

/// Longer than a test waits, so that only a wakeup can end it.
const LONG_MS: u64 = 60_000;

/// Shorter than a lease: if a job had to wait for its lease to expire, this would end first.
const WELL_WITHIN_A_LEASE: Duration = Duration::from_secs(20);

async fn raw_redis(stack: &Stack) -> redis::aio::MultiplexedConnection {
    stack.redis.connection().await
}

/// Waits until this number of lease polls are parked.
async fn parked(stack: &Stack, pulls: usize) {
    let mut redis = raw_redis(stack).await;
    let all = async {
        while redis.zcard::<_, usize>("{stoke:0}:parked:0").await.unwrap() != pulls {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, all).await.expect("the pulls are parked");
}

async fn scripts_run(redis: &mut redis::aio::MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(redis).await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    line.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_wait_ends_with_its_job() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let run_one = async {
        let lease = worker.lease().await;
        worker.succeed(&lease, json!("done")).await
    };
    let submit = stack
        .post("/v1/jobs", &json!({"endpoint": "echo", "input": {"text": "hi"}}))
        .header("prefer", "wait=20")
        .send();
    let (answer, _) = tokio::join!(submit, run_one);
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.json::<Value>().await.unwrap()["result"], "done");

    let id = stack.submit("again").await;
    let waits: FuturesUnordered<_> =
        (0..20).map(|_| stack.json(stack.get(&format!("/v1/jobs/{id}?wait_s=20")))).collect();
    let run_one = async {
        let lease = worker.lease().await;
        worker.succeed(&lease, json!("again")).await
    };
    let (jobs, _) = tokio::join!(waits.collect::<Vec<_>>(), run_one);
    assert!(jobs.iter().all(|job| job["state"] == "succeeded"));

    let id = stack.submit("cancelled").await;
    let cancelled = stack.get(&format!("/v1/jobs/{id}?wait_s=20"));
    let (job, _) =
        tokio::join!(stack.json(cancelled), stack.json(stack.post(&format!("/v1/jobs/{id}/cancel"), &Value::Null)));
    assert_eq!(job["state"], "cancelled");
}

#[tokio::test]
async fn a_wait_that_runs_out_shows_the_job_as_it_is() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let submit =
        stack.post("/v1/jobs", &json!({"endpoint": "echo", "input": {"text": "hi"}})).header("prefer", "wait=1");
    let answer = submit.send().await.unwrap();
    assert_eq!(answer.status(), 202);
    let id = answer.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(stack.json(stack.get(&format!("/v1/jobs/{id}?wait_s=1"))).await["state"], "queued");
    stack.json(stack.post(&format!("/v1/jobs/{id}/cancel"), &Value::Null)).await;

    // A job that has started meanwhile is shown as running.
    let worker = Worker::join(&stack).await;
    let submit =
        stack.post("/v1/jobs", &json!({"endpoint": "echo", "input": {"text": "hi"}})).header("prefer", "wait=2");
    let (answer, _lease) = tokio::join!(submit.send(), worker.lease());
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 202);
    let job = answer.json::<Value>().await.unwrap();
    assert_eq!((&job["state"], job["attempts"].as_array().map(Vec::len)), (&json!("running"), Some(1)), "{job}");
}

#[tokio::test]
async fn one_submit_wakes_one_of_many_parked_pulls() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let pull = || stack.json(worker.post("lease", &json!({"want": 1, "reach_gib": 0, "wait_ms": LONG_MS})));
    let mut pulls: FuturesUnordered<_> = (0..64).map(|_| pull()).collect();
    let everybody = parked(&stack, 64);
    tokio::select! {
        early = pulls.next() => panic!("a pull came back with nothing to lease: {early:?}"),
        () = everybody => {}
    }

    let mut redis = raw_redis(&stack).await;
    let before = scripts_run(&mut redis).await;
    for text in ["one", "two"] {
        let (id, reply) = tokio::join!(stack.submit(text), pulls.next());
        let leases = reply.unwrap()["leases"].as_array().unwrap().clone();
        assert_eq!(leases.len(), 1);
        assert_eq!(leases[0]["job_id"], id.as_str());
    }
    let ran = scripts_run(&mut redis).await - before;
    // Two submits, two leases, and the maintenance in between; a stampede would be more than 64.
    assert!(ran < 30, "{ran} scripts ran for two jobs");
    parked(&stack, 62).await;
}

#[tokio::test]
async fn a_pull_that_goes_away_hands_its_wake_on() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let pull = || worker.post("lease", &json!({"want": 1, "reach_gib": 0, "wait_ms": LONG_MS}));
    // When the submit wakes it, the API may have noticed that the first connection is closed, may be noticing it, or
    // may have leased already: the job must reach the other poll long before its lease would expire.
    for round in 0..20 {
        let (gone, stays) = (pull(), stack.json(pull()));
        tokio::pin!(stays);
        {
            let gone = gone.send();
            tokio::pin!(gone);
            tokio::select! {
                _ = &mut gone => panic!("there is nothing to lease"),
                () = parked(&stack, 1) => {}
            }
            tokio::select! {
                _ = &mut gone => panic!("there is nothing to lease"),
                _ = &mut stays => panic!("there is nothing to lease"),
                () = parked(&stack, 2) => {}
            }
        }
        let (id, reply) = tokio::join!(stack.submit("hi"), timeout(WELL_WITHIN_A_LEASE, stays));
        let lease = reply.expect("it is woken")["leases"][0].clone();
        assert_eq!(lease["job_id"], id.as_str(), "round {round}");
        assert_eq!(worker.succeed(&lease, json!(round)).await, "ok");
        parked(&stack, 0).await;
    }
}

#[tokio::test]
async fn a_pull_with_nothing_to_do_ends_with_its_wait() {
    let stack = Stack::start().await;
    let worker = Worker::join(&stack).await;
    let reply = stack.json(worker.post("lease", &json!({"want": 1, "reach_gib": 0, "wait_ms": 50}))).await;
    assert_eq!(reply, json!({}));
    parked(&stack, 0).await;
}

#[tokio::test]
async fn a_replica_holds_no_more_than_it_may() {
    let stack = Stack::start_with(|config| config.limits.held_requests = 1).await;
    let worker = Worker::join(&stack).await;
    let pull = || worker.post("lease", &json!({"want": 1, "reach_gib": 0, "wait_ms": LONG_MS}));
    let held = stack.json(pull());
    tokio::pin!(held);
    tokio::select! {
        _ = &mut held => panic!("there is nothing to lease"),
        () = parked(&stack, 1) => {}
    }
    assert_eq!(stack.problem(pull()).await, (429, "rate_limited".to_owned()));
}

#[tokio::test]
async fn a_scheduled_job_becomes_ready_by_itself() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let soon = time::OffsetDateTime::now_utc() + Duration::from_millis(700);
    let soon = soon.format(&time::format_description::well_known::Rfc3339).unwrap();
    let submit = json!({"endpoint": "echo", "input": {"text": "hi"}, "run_after": soon});
    let job = stack.json(stack.post("/v1/jobs", &submit)).await;
    assert_eq!(job["state"], "scheduled");
    assert_eq!(worker.lease().await["job_id"], job["id"]);
}

#[tokio::test]
async fn a_pull_that_waits_goes_by_what_its_worker_offers_since() {
    let stack = Stack::start().await;
    let mut large = echo();
    large["vram_gib"] = json!(20);
    stack.deploy(large).await;
    let worker = Worker::join(&stack).await;
    let offer = |reach_gib: u32| json!({"reach_gib": reach_gib, "cards": [{"index": 0, "reach_gib": reach_gib, "whole_gib": reach_gib}]});
    let told = stack.json(worker.post("finish", &json!({"finish": [], "offer": offer(24)}))).await;
    assert_eq!(told["offer_taken"], false, "no pull of it waits");
    let mut ask = offer(4);
    (ask["want"], ask["wait_ms"]) = (json!(1), json!(LONG_MS));
    let pull = stack.json(worker.post("lease", &ask));
    tokio::pin!(pull);
    tokio::select! {
        early = &mut pull => panic!("there is no room for it: {early}"),
        () = parked(&stack, 1) => {}
    }
    let id = stack.submit("hi").await;
    let told = stack.json(worker.post("finish", &json!({"finish": [], "offer": offer(24)}))).await;
    assert_eq!(told["offer_taken"], true);
    assert_eq!(pull.await["leases"][0]["job_id"], id.as_str());
}

#[tokio::test]
async fn what_holds_a_job_back_is_said() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let submit = async |more: Value| {
        let mut body = json!({"endpoint": "echo", "input": {"text": "hi"}});
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        stack.json(stack.post("/v1/jobs", &body)).await["id"].as_str().unwrap().to_owned()
    };
    let waiting = async |id: &str| {
        let waiting = &stack.job(id).await["waiting"];
        (waiting["reason"].clone(), waiting["message"].as_str().unwrap_or_default().to_owned())
    };
    let limit = async |limits: Value| {
        stack.json(stack.request(reqwest::Method::PUT, "/v1/limits/acme").body(limits.to_string())).await
    };

    limit(json!({"max_running": 1})).await;
    submit(json!({})).await;
    let first = worker.lease().await;
    let held = submit(json!({})).await;
    let said = (json!("limit"), "tenant acme is at its max_running of 1".to_owned());
    assert_eq!(waiting(&held).await, said);
    let lanes = stack.json(stack.get("/v1/queue")).await;
    assert_eq!(lanes["lanes"][0]["waiting"]["reason"], "limit", "{lanes}");
    worker.succeed(&first, json!("done")).await;
    worker.succeed(&worker.lease().await, json!("done")).await;

    limit(json!({"starts_per_minute": 1})).await;
    submit(json!({})).await;
    worker.succeed(&worker.lease().await, json!("done")).await;
    let (reason, message) = waiting(&submit(json!({})).await).await;
    assert_eq!(reason, "limit");
    assert!(
        message.starts_with("tenant acme has used up its starts_per_minute of 1; the next starts at 2"),
        "{message}"
    );
    limit(json!({})).await;
    worker.succeed(&worker.lease().await, json!("done")).await;

    submit(json!({"concurrency_key": "one"})).await;
    let first = worker.lease().await;
    let held = submit(json!({"concurrency_key": "one"})).await;
    let said = (json!("concurrency_key"), "1 of 1 jobs with the concurrency key \"one\" are running".to_owned());
    assert_eq!(waiting(&held).await, said);
    worker.succeed(&first, json!("done")).await;

    let blocked = submit(json!({"depends_on": [held]})).await;
    assert_eq!(waiting(&blocked).await, (json!("dependency"), format!("it waits for job {held} (queued)")));
    worker.succeed(&worker.lease().await, json!("done")).await;
    worker.succeed(&worker.lease().await, json!("done")).await;
}
