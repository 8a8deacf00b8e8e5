//! Events of a job over server-sent events, from the start and from the middle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use stokehold_queue::gateway::LeaseRef;
use stokehold_queue::queue::OutputsPosition;
use stokehold_queue::{Fence, Queue};
use tokio::time::{sleep, timeout};

use crate::stack::{PATIENCE, Replica, Stack, steady};
use crate::worker::Worker;

/// One event as received.
#[derive(Debug, Clone)]
struct Seen {
    id: Option<String>,
    name: String,
    data: Value,
}

/// Reads events until `enough` or the stream's end.
async fn read(stack: &Replica, id: &str, after: Option<&str>, enough: impl Fn(&Seen) -> bool) -> Vec<Seen> {
    let mut request = stack.get(&format!("/v1/jobs/{id}/events"));
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let (mut bytes, mut text, mut seen) = (answer.bytes_stream(), String::new(), Vec::new());
    while let Some(chunk) = timeout(PATIENCE, bytes.next()).await.expect("the story goes on") {
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        while let Some((block, rest)) = text.split_once("\n\n") {
            let field = |name: &str| {
                block.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim_start().to_owned())
            };
            if let (Some(name), Some(data)) = (field("event:"), field("data:")) {
                let event = Seen { id: field("id:"), name, data: serde_json::from_str(&data).unwrap() };
                let last = enough(&event);
                seen.push(event);
                if last {
                    return seen;
                }
            }
            text = rest.to_owned();
        }
    }
    seen
}

fn names(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|event| event.name.as_str()).collect()
}

#[tokio::test]
async fn the_story_is_told_live_and_again_from_any_point() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi\r\nthere").await;

    let act = async {
        let lease = worker.lease().await;
        worker.tell(&lease, json!({"event": "progress", "fraction": 0.5, "message": "half"})).await;
        worker.tell(&lease, json!({"event": "log", "stream": "stdout", "text": "one\ntwo"})).await;
        worker.tell(&lease, json!({"event": "output", "index": 0, "value": {"part": 1}})).await;
        worker.succeed(&lease, json!("end")).await;
    };
    let (live, ()) = tokio::join!(read(&stack, &id, None, |_| false), act);
    assert_eq!(names(&live), ["state", "state", "progress", "log", "output", "state", "done"], "{live:?}");
    let shown: Vec<Value> = live.iter().map(|event| json!([event.name, steady(event.data.clone())])).collect();
    insta::assert_json_snapshot!("events", shown);
    assert_eq!(live[6].data, stack.job(&id).await, "done is the job");

    let again = read(&stack, &id, None, |_| false).await;
    assert_eq!(names(&again), ["state", "progress", "log", "output", "done"]);
    let log = live[3].id.as_deref();
    let resumed = read(&stack, &id, log, |_| false).await;
    assert_eq!(names(&resumed), ["output", "state", "done"]);
    assert_eq!(resumed[0].data, live[4].data);
}

#[tokio::test]
async fn more_is_kept_than_one_page() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let lease = worker.lease().await;
    let line = |n: usize| json!({"job_id": lease["job_id"], "fence": lease["fence"], "event": "log", "stream": "stderr", "text": n.to_string()});
    let lines: Vec<Value> = (0..250).map(line).collect();
    stack.json(worker.post("events", &json!({"events": lines}))).await;
    let seen = read(&stack, &id, None, |event| event.data["text"] == "249").await;
    let texts: Vec<&str> = seen.iter().filter_map(|event| event.data["text"].as_str()).collect();
    let wanted: Vec<String> = (0..250).map(|n| n.to_string()).collect();
    assert_eq!(texts, wanted);

    worker
        .tell(
            &json!({"job_id": id, "fence": "9.0000000000000000"}),
            json!({"event": "log", "stream": "stdout", "text": "stolen"}),
        )
        .await;
    worker.succeed(&lease, json!(1)).await;
    let seen = read(&stack, &id, None, |_| false).await;
    assert!(!seen.iter().any(|event| event.data["text"] == "stolen"), "an event without its lease is dropped");
}

#[tokio::test]
async fn a_revoked_token_hears_no_more_of_a_job() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = stack.submit("waits").await;
    let token = stack.token_of("acme", &[Scope::JobsRead], None).await;
    let follow = stack.client.get(format!("{}/v1/jobs/{id}/events", stack.url)).bearer_auth(&token);
    let mut bytes = follow.send().await.unwrap().bytes_stream();
    let first = bytes.next().await.unwrap().unwrap();
    assert!(first.starts_with(b"event: state"), "{first:?}");
    assert!(stack.queue.registry().delete_token(token.split('_').nth(1).unwrap()).await.unwrap());
    timeout(PATIENCE, async { while bytes.next().await.is_some() {} }).await.expect("the stream ends");
}

/// Waits until a condition holds that has no signal for tests.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let held = async {
        while !holds().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, held).await.expect(what);
}

fn lease_of(lease: &Value) -> LeaseRef {
    let text = |name: &str| lease[name].as_str().unwrap().to_owned();
    LeaseRef { job_id: text("job_id").parse().unwrap(), fence: Fence(text("fence")) }
}

/// A worker's call with outputs, each of which is its index.
fn outputs_call(worker: &Worker<'_>, lease: &Value, handling: &str, index: usize, count: usize) -> RequestBuilder {
    let values: Vec<usize> = (index..index + count).collect();
    let (job_id, fence) = (&lease["job_id"], &lease["fence"]);
    let event = json!({"job_id": job_id, "fence": fence, "event": "outputs", "index": index, "values": values});
    worker.post("events", &json!({"events": [event], "outputs": handling}))
}

#[tokio::test]
async fn a_worker_is_asked_to_store_what_it_relayed_before_a_reader_joined() {
    let stack = Stack::start().await;
    let other = stack.replica(|_| {}).await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let lease = worker.lease().await;
    let relay = async |index: usize| stack.json(outputs_call(&worker, &lease, "relay", index, 1)).await;
    let watching = async |replicas: usize| {
        let held = lease_of(&lease);
        until("the reader has joined", async || {
            stack.queue.watched_attempt(&held).await.unwrap().is_some_and(|attempt| attempt.replicas.len() == replicas)
        })
        .await;
    };
    assert_eq!((relay(0).await, relay(1).await), (Value::Null, Value::Null), "nobody reads");
    let act = async {
        watching(1).await;
        assert_eq!(relay(2).await, json!({"store": [id]}));
        stack.json(outputs_call(&worker, &lease, "store_relayed", 0, 3)).await;
        // Nothing is stored for the reader at the other replica.
        let (there, ()) = tokio::join!(read(&other, &id, None, |_| false), async {
            watching(2).await;
            let mut index = 3;
            until("the other replica's reader is known", async || relay(index).await == json!({"store": [id]})).await;
            index += 1;
            stack.json(outputs_call(&worker, &lease, "store_relayed", 3, 1)).await;
            assert_eq!(relay(index).await, Value::Null, "it is asked once");
            worker.succeed(&lease, json!("end")).await;
        });
        there
    };
    let (here, there) = tokio::join!(read(&stack, &id, None, |_| false), act);
    for seen in [here, there] {
        let outputs = seen.iter().filter(|event| event.name == "output").map(|event| event.data["index"].as_u64());
        assert_eq!(outputs.flatten().collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{seen:?}");
    }
}

#[tokio::test]
async fn relayed_outputs_reach_the_readers_of_every_replica_before_they_are_stored() {
    let stack = Stack::start().await;
    let other = stack.replica(|_| {}).await;
    stack.deploy_echo().await;
    let (worker, stranger) = (Worker::join(&stack).await, Worker::join(&stack).await);
    let id = stack.submit("hi").await;
    let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let count = |reader: usize| {
        let outputs = &counts[reader];
        move |event: &Seen| {
            outputs.fetch_add(usize::from(event.name == "output"), Ordering::Relaxed);
            false
        }
    };
    let act = async {
        let lease = worker.lease().await;
        let held = lease_of(&lease);
        until("both replicas watch the job", async || {
            stack.queue.watched_attempt(&held).await.unwrap().is_some_and(|attempt| attempt.replicas.len() == 2)
        })
        .await;
        let send = async |worker: &Worker<'_>, outputs: &str, index: usize, count: usize| {
            stack.json(outputs_call(worker, &lease, outputs, index, count)).await;
        };
        let have = async |outputs: usize| {
            until("every reader has them", async || {
                counts.iter().all(|count| count.load(Ordering::Relaxed) == outputs)
            })
            .await;
        };
        send(&worker, "relay", 0, 2).await;
        have(2).await;
        send(&worker, "relay", 2, 1).await;
        have(3).await;
        let stored =
            async || stack.queue.read_outputs(held.job_id, OutputsPosition::default(), 10).await.unwrap().len();
        assert_eq!(stored().await, 0);
        send(&worker, "store_relayed", 0, 3).await;
        assert_eq!(stored().await, 1);
        let large = json!({"job_id": id, "fence": held.fence.0, "event": "outputs", "index": 3, "values": ["x".repeat(60_000)]});
        let twice = json!({"events": [large, large], "outputs": "relay"});
        assert_eq!(stack.problem(worker.post("events", &twice)).await.0, 400);
        // Of a worker without the lease.
        send(&stranger, "relay", 3, 1).await;
        // Outputs before these were not relayed; what is stored has them.
        send(&worker, "relay", 5, 1).await;
        send(&worker, "store_relayed", 3, 3).await;
        have(6).await;
        worker.succeed(&lease, json!("end")).await;
    };
    let (here, there, ()) = tokio::join!(read(&stack, &id, None, count(0)), read(&other, &id, None, count(1)), act);
    for seen in [here, there] {
        let outputs: Vec<&Value> =
            seen.iter().filter(|event| event.name == "output").map(|event| &event.data).collect();
        let shown: Vec<_> = outputs.iter().map(|data| (&data["index"], &data["value"], &data["attempt"])).collect();
        let expected: Vec<Value> = (0..6).map(Value::from).collect();
        assert_eq!(shown, expected.iter().map(|n| (n, n, &expected[1])).collect::<Vec<_>>());
        assert!(!names(&seen).contains(&"gap"), "{seen:?}");
    }
}
