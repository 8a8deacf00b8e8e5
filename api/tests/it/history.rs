//! Ended jobs move from Redis to the archive, and requests for them return the same.

use std::collections::BTreeSet;
use std::slice::from_ref;
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::Config;
use stokehold_api::token::Scope;
use stokehold_queue::Queue;
use stokehold_queue::job::JobState;
use stokehold_queue::quarantine::Discarded;
use tokio::time::{sleep, timeout};

use crate::stack::{PATIENCE, Stack, echo};
use crate::wire::Wire;
use crate::worker::Worker;

/// A configuration that keeps nothing in Redis longer than necessary.
fn hasty(config: &mut Config) {
    config.redis.retention_ms = 50;
}

async fn raw(stack: &Stack) -> MultiplexedConnection {
    stack.redis.connection().await
}

fn record(id: &str) -> String {
    format!("{{stoke:0}}:j:{id}")
}

const ENDED: &str = "{stoke:0}:ended";

/// Waits until none of these jobs is in Redis.
async fn swept(stack: &Stack, ids: &[&str]) {
    let mut redis = raw(stack).await;
    let gone = async {
        for id in ids {
            while redis.exists(record(id)).await.unwrap() {
                sleep(Duration::from_millis(20)).await;
            }
        }
    };
    timeout(PATIENCE, gone).await.expect("the sweep takes what has ended");
}

/// Runs one job to its end.
async fn done(stack: &Stack, worker: &Worker<'_>, text: &str) -> String {
    let id = stack.submit(text).await;
    let lease = worker.lease().await;
    worker.tell(&lease, json!({"event": "progress", "fraction": 0.5, "message": "half"})).await;
    worker.succeed(&lease, json!({"said": text})).await;
    id
}

/// Every job of the list, page by page.
async fn listed(stack: &Stack, filter: &str, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = stack.json(stack.get(&format!("/v1/jobs?limit={limit}{filter}{cursor}"))).await;
        let jobs = page["jobs"].as_array().unwrap();
        assert!(jobs.len() <= limit);
        ids.extend(jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn history_is_read_like_the_queue() {
    let stack = Stack::start_with(hasty).await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = done(&stack, &worker, "hi").await;
    swept(&stack, &[&id]).await;

    let job = stack.job(&id).await;
    assert_eq!(
        (&job["state"], &job["input"], &job["result"]),
        (&json!("succeeded"), &json!({"text": "hi"}), &json!({"said": "hi"}))
    );
    assert_eq!(job["attempts"][0]["worker_id"], worker.id.as_str());
    assert!(job["ended_at"].is_string() && job["timing"].is_object());
    assert_eq!(stack.job(&format!("{id}?wait_s=5")).await, job);
    assert_eq!(stack.json(stack.get(&format!("/v1/jobs/{id}/result"))).await, json!({"said": "hi"}));
    let file = stack.get(&format!("/v1/jobs/{id}/files/none.txt"));
    assert_eq!(stack.problem(file).await, (404, "not_found".to_owned()));
    assert_eq!(listed(&stack, "", 20).await, from_ref(&id));
    assert_eq!(listed(&stack, "&endpoint=echo&state=succeeded&priority=standard", 20).await, from_ref(&id));
    for other in [
        "state=running",
        "state=failed",
        "endpoint=other",
        "batch=b",
        "schedule=s",
        "error_code=timeout",
        "priority=batch",
    ] {
        assert!(listed(&stack, &format!("&{other}"), 20).await.is_empty(), "{other}");
    }
    for wrong in ["cursor=h:x", "cursor=x", "priority=soon", "error_code=none", "batch="] {
        let list = stack.get(&format!("/v1/jobs?{wrong}"));
        assert_eq!(stack.problem(list).await, (400, "invalid_query".to_owned()), "{wrong}");
    }
    let events = stack.get(&format!("/v1/jobs/{id}/events")).send().await.unwrap().text().await.unwrap();
    let told: Vec<&str> = events.lines().filter_map(|line| line.strip_prefix("event:")).map(str::trim).collect();
    assert_eq!(told, ["state", "done"]);
    let cancel = stack.post(&format!("/v1/jobs/{id}/cancel"), &json!({}));
    assert_eq!(stack.problem(cancel).await, (409, "already_ended".to_owned()));

    let token = stack.token_of("other", &Scope::ALL, None).await;
    for path in ["", "/result", "/events"] {
        let theirs = stack.client.get(format!("{}/v1/jobs/{id}{path}", stack.url)).bearer_auth(&token);
        assert_eq!(stack.problem(theirs).await.0, 404, "{path}");
    }
    let theirs = stack.client.request(Method::GET, format!("{}/v1/jobs", stack.url)).bearer_auth(&token);
    assert_eq!(stack.json(theirs).await, json!({"jobs": [], "next_cursor": null}));
}

#[tokio::test]
async fn history_remembers_cancelled_jobs_and_idempotency_keys() {
    let stack = Stack::start_with(hasty).await;
    stack.deploy_echo().await;
    let request = json!({"endpoint": "echo", "input": {"text": "x"}, "idempotency_key": "k"});
    let id = stack.json(stack.post("/v1/jobs", &request)).await["id"].as_str().unwrap().to_owned();
    stack.json(stack.post(&format!("/v1/jobs/{id}/cancel"), &json!({}))).await;
    swept(&stack, &[&id]).await;
    let again = stack.json(stack.post(&format!("/v1/jobs/{id}/cancel"), &json!({}))).await;
    assert_eq!(again["state"], "cancelled");
    let repeated = stack.json(stack.post("/v1/jobs", &request)).await;
    assert_eq!((repeated["id"].as_str(), &repeated["state"]), (Some(id.as_str()), &json!("cancelled")));
    let result = stack.get(&format!("/v1/jobs/{id}/result"));
    assert_eq!(stack.problem(result).await, (409, "no_result".to_owned()));
}

#[tokio::test]
async fn history_follows_the_open_jobs_in_a_list_that_misses_none() {
    let stack = Stack::start_with(hasty).await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let mut ended = Vec::new();
    for n in 0..5 {
        ended.push(done(&stack, &worker, &n.to_string()).await);
    }
    let (first, second) = (stack.submit("open").await, stack.submit("open").await);
    swept(&stack, &ended.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let expected: Vec<String> = [second, first].into_iter().chain(ended.into_iter().rev()).collect();
    for limit in [1, 2, 3, 100] {
        assert_eq!(listed(&stack, "", limit).await, expected, "pages of {limit}");
    }
    assert_eq!(listed(&stack, "&state=succeeded", 2).await, expected[2..]);
}

#[tokio::test]
async fn history_has_a_job_once_though_it_was_archived_twice() {
    let stack = Stack::start_with(|config| config.redis.retention_ms = 3_000).await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = done(&stack, &worker, "hi").await;
    let mut redis = raw(&stack).await;
    let dump = |mut redis: MultiplexedConnection, key: String| async move {
        let bytes: Vec<u8> = redis::cmd("DUMP").arg(key).query_async(&mut redis).await.unwrap();
        bytes
    };
    let kept = dump(redis.clone(), record(&id)).await;
    let index = dump(redis.clone(), "{stoke:0}:index:acme".to_owned()).await;
    swept(&stack, &[&id]).await;

    // As if the sweep had died before it deleted the record: the job is in both places.
    let restore = |mut redis: MultiplexedConnection, key: String, bytes: Vec<u8>| async move {
        let _: () = redis::cmd("RESTORE").arg(key).arg(0).arg(bytes).query_async(&mut redis).await.unwrap();
    };
    let _: () = redis.zadd(ENDED, &id, "9e15").await.unwrap();
    restore(redis.clone(), record(&id), kept).await;
    restore(redis.clone(), "{stoke:0}:index:acme".to_owned(), index).await;
    assert_eq!(listed(&stack, "", 20).await, from_ref(&id), "shown with the queue's, not again with the archived");
    assert_eq!(listed(&stack, "", 1).await, from_ref(&id));

    // The next sweep archives it again.
    let _: () = redis.zadd(ENDED, &id, 0).await.unwrap();
    swept(&stack, &[&id]).await;
    assert_eq!(listed(&stack, "", 1).await, from_ref(&id));
    assert_eq!(stack.job(&id).await["result"], json!({"said": "hi"}));
}

#[tokio::test]
async fn history_leaves_nothing_of_a_job_in_redis() {
    let stack = Stack::start_with(hasty).await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let mut redis = raw(&stack).await;
    let mut ids = BTreeSet::new();
    for round in 0..3 {
        let jobs: Vec<Value> =
            (0..1_000).map(|n| json!({"endpoint": "echo", "input": {"text": format!("{round}/{n}")}})).collect();
        let submitted = stack.json(stack.post("/v1/jobs/bulk", &json!({"jobs": jobs}))).await;
        ids.extend(submitted["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    let mut open = ids.len();
    while open > 0 {
        let leases = stack.json(worker.post("lease", &json!({"want": 100, "reach_gib": 0, "wait_ms": 1_000}))).await;
        let reports: Vec<Value> = leases["leases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|lease| json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "succeeded", "result": 1}))
            .collect();
        open -= reports.len();
        if !reports.is_empty() {
            stack.json(worker.post("finish", &json!({"finish": reports}))).await;
        }
    }
    let drained = async {
        loop {
            let keys: Vec<String> = redis::cmd("KEYS").arg("{stoke:0}:*").query_async(&mut redis).await.unwrap();
            let of_jobs = keys
                .iter()
                .filter(|key| [":j:", ":e:", ":i:", ":index:", ":ended"].iter().any(|kind| key.contains(kind)));
            if of_jobs.count() == 0 {
                return keys;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let keys = timeout(PATIENCE, drained).await.expect("Redis returns to what it was");
    // Counts of all jobs together. The number of roles that background duties currently hold does not depend on jobs.
    let counted = keys.iter().filter(|key| !key.contains(":role:")).count();
    assert!(counted < 10, "{keys:?}");
    let list: Vec<String> = listed(&stack, "", 100).await;
    assert_eq!(list.len(), ids.len());
    assert_eq!(list.into_iter().collect::<BTreeSet<_>>(), ids);
}

#[tokio::test]
async fn history_forgets_nothing_while_the_object_store_is_away() {
    let mut wire = None;
    let stack = Stack::start_with(|config| {
        hasty(config);
        wire = Some(Wire::before_objects(config));
    })
    .await;
    let wire = wire.unwrap();
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let before = done(&stack, &worker, "before").await;
    swept(&stack, &[&before]).await;

    wire.cut();
    let meanwhile = done(&stack, &worker, "meanwhile").await;
    let page = stack.json(stack.get("/v1/jobs")).await;
    assert_eq!(page["jobs"][0]["id"], meanwhile.as_str(), "what the queue has is still shown");
    assert_eq!(page["next_cursor"], "h:");
    let rest = stack.get("/v1/jobs?cursor=h:");
    assert_eq!(stack.problem(rest).await, (503, "unavailable".to_owned()));
    assert_eq!(stack.job(&meanwhile).await["state"], "succeeded");

    wire.mend();
    swept(&stack, &[&meanwhile]).await;
    assert_eq!(listed(&stack, "", 20).await, [meanwhile, before]);
}

#[tokio::test]
async fn history_ends_an_event_stream_that_broke_off_before_the_sweep() {
    let stack = Stack::start_with(hasty).await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = done(&stack, &worker, "hi").await;
    swept(&stack, &[id.as_str()]).await;
    let told = async |last: &str| {
        let request = stack.get(&format!("/v1/jobs/{id}/events")).header("last-event-id", last);
        let text = request.send().await.unwrap().text().await.unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("event: "));
        let names: Vec<String> = lines.map(|name| name.trim().to_owned()).collect();
        let last = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap_or(last).to_owned();
        (names, last)
    };
    // The last event that the client received was the job's start, under the first fence, which history does not keep.
    let (names, last) = told("1700000000000-0.12").await;
    assert_eq!(names, ["state", "done"]);
    assert_eq!(told(&last).await.0, [""; 0], "and who has heard the end hears nothing twice");
}

#[tokio::test]
async fn history_can_be_waited_for_and_tried_again() {
    let stack = Stack::start_with(hasty).await;
    let mut any = echo();
    any["name"] = "any".into();
    any["input_schema"] = true.into();
    stack.deploy(any).await;
    let worker = Worker::join(&stack).await;
    let submit = async |job: Value| stack.json(stack.post("/v1/jobs", &job)).await["id"].as_str().unwrap().to_owned();
    let first = submit(json!({"endpoint": "any", "input": 1})).await;
    worker.succeed(&worker.lease().await, json!({"x": 7})).await;
    let dead = submit(json!({"endpoint": "any", "input": {"$job": first, "pointer": "/y"}})).await;
    // It refers to a part that the result does not have, so it fails before it runs.
    swept(&stack, &[first.as_str(), dead.as_str()]).await;

    let next = submit(json!({"endpoint": "any", "input": {"$job": first, "pointer": "/x"}})).await;
    let lease = worker.lease().await;
    assert_eq!((lease["job_id"].as_str(), &lease["input"]), (Some(next.as_str()), &json!(7)));
    worker.succeed(&lease, json!(null)).await;
    let again = stack.json(stack.post(&format!("/v1/jobs/{dead}/retry"), &Value::Null)).await;
    assert_eq!(again["retry_of"], dead);
}

#[tokio::test]
async fn an_ended_job_that_cannot_be_archived_waits_for_an_operator() {
    let stack = Stack::start_with(hasty).await;
    stack.deploy_echo().await;
    let (broken, whole) = (stack.submit("one").await, stack.submit("two").await);
    stack.redis.ask::<i64>(&["HSET", &record(&broken), "spec", "{"]);
    stack.queue.cancel("acme", &[broken.parse().unwrap(), whole.parse().unwrap()]).await.unwrap();
    swept(&stack, &[&whole]).await;
    let quarantine = stack.queue.quarantine();
    while quarantine.count().await.unwrap() == 0 {
        sleep(Duration::from_millis(20)).await;
    }
    let found = quarantine.list(10).await.unwrap().remove(0);
    assert_eq!((found.id.to_string(), found.state), (broken, Some(JobState::Cancelled)));
    assert!(found.why.contains("spec"), "{}", found.why);
    assert_eq!(quarantine.discard(found.id).await.unwrap(), Discarded::Deleted);
}
