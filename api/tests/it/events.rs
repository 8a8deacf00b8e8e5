//! Events of a job over server-sent events, from the start and from the middle.

use futures::StreamExt;
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use tokio::time::timeout;

use crate::stack::{PATIENCE, Stack, steady};
use crate::worker::Worker;

/// One event as received.
#[derive(Debug, Clone)]
struct Seen {
    id: Option<String>,
    name: String,
    data: Value,
}

/// Reads events until `enough` or the stream's end.
async fn read(stack: &Stack, id: &str, after: Option<&str>, enough: impl Fn(&Seen) -> bool) -> Vec<Seen> {
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
