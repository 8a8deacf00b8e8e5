//! The log of changes.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use stokehold_queue::now_ms;
use stokehold_queue::registry::{Actor, Change, Which};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::access::{as_whom, text};
use crate::stack::{PATIENCE, Stack};

#[tokio::test]
async fn a_change_that_cannot_be_written_down_is_not_made() {
    let mut stack = Stack::start().await;
    let set = |stack: &Stack| stack.request(Method::PUT, "/v1/secrets/KEY").body(r#"{"value": "a"}"#);
    // The key of open changes has a value of another type.
    stack.redis.ask::<String>(&["SET", "{stoke:registry}:changes", "in the way"]);
    assert_eq!(stack.problem(set(&stack)).await, (503, "unavailable".to_owned()));
    let listed = stack.json(stack.get("/v1/secrets")).await;
    assert_eq!(listed["secrets"], json!([]), "nothing was changed");
    stack.redis.ask::<u32>(&["DEL", "{stoke:registry}:changes"]);
    stack.json(set(&stack)).await;

    // If only the end of a change cannot be recorded, the change is made, and the log shows later that its outcome is
    // unknown.
    stack.redis.ask::<String>(&["RENAME", "{stoke:registry}:audit:acme", "away"]);
    stack.redis.ask::<String>(&["SET", "{stoke:registry}:audit:acme", "in the way"]);
    assert_eq!(stack.request(Method::DELETE, "/v1/secrets/KEY").send().await.unwrap().status(), 204);
    stack.redis.ask::<String>(&["RENAME", "away", "{stoke:registry}:audit:acme"]);
    let registry = stack.queue.registry();
    assert_eq!(registry.abandoned_changes(now_ms() + 1).await.unwrap(), 1);
    let log = stack.json(stack.get("/v1/audit")).await;
    assert_eq!(
        (&log["changes"][0]["action"], &log["changes"][0]["outcome"]),
        (&json!("DELETE /v1/secrets/{name}"), &json!("unknown"))
    );
    // The log outlives a replica, as all records do.
    stack.token = stack.token_of("acme", &[Scope::AuditRead], None).await;
    let other = stack.replica(|_| {}).await;
    let again = other.json(as_whom(&other, &stack.token, Method::GET, "/v1/audit")).await;
    assert_eq!(again["changes"], log["changes"]);
}

#[tokio::test]
async fn the_log_is_read_in_pages_both_ways_and_says_what_was_refused() {
    let stack = Stack::start().await;
    for n in 0..5 {
        let put = stack.request(Method::PUT, &format!("/v1/secrets/KEY_{n}")).body(r#"{"value": "a"}"#);
        stack.json(put).await;
    }
    let reader = stack.token_of("acme", &[Scope::AuditRead], None).await;
    let refused = as_whom(&stack, &reader, Method::DELETE, "/v1/secrets/KEY_0");
    assert_eq!(stack.problem(refused).await.0, 403);
    // A request that is merely invalid is not a change.
    assert_eq!(stack.problem(stack.request(Method::DELETE, "/v1/secrets/NONE")).await.0, 404);
    let get = |query: String| stack.json(as_whom(&stack, &reader, Method::GET, &format!("/v1/audit{query}")));
    let objects = |page: &Value| -> Vec<String> {
        page["changes"].as_array().unwrap().iter().map(|change| text(&change["object"]).to_owned()).collect()
    };
    let first = get("?limit=2".to_owned()).await;
    assert_eq!(objects(&first), ["KEY_0", "KEY_4"]);
    assert_eq!(first["changes"][0]["outcome"], "refused");
    let second = get(format!("?limit=3&cursor={}", text(&first["next_cursor"]))).await;
    assert_eq!(objects(&second), ["KEY_3", "KEY_2", "KEY_1"]);
    let rest = get(format!("?limit=3&cursor={}", text(&second["next_cursor"]))).await;
    assert_eq!((objects(&rest), &rest["next_cursor"]), (vec!["KEY_0".to_owned()], &Value::Null));
    let later = get(format!("?after={}", text(&second["newest"]))).await;
    assert_eq!(objects(&later), ["KEY_4", "KEY_0"], "the oldest first");
    let none = get(format!("?after={}", text(&later["newest"]))).await;
    assert_eq!((objects(&none), &none["newest"]), (vec![], &Value::Null));
    for query in ["?cursor=x", "?tenant=A", "?cursor=1-0&after=1-0"] {
        assert_eq!(stack.problem(as_whom(&stack, &reader, Method::GET, &format!("/v1/audit{query}"))).await.0, 400);
    }
    for query in ["?tenant=*", "?tenant=zoo"] {
        let foreign = as_whom(&stack, &reader, Method::GET, &format!("/v1/audit{query}"));
        assert_eq!(stack.problem(foreign).await.0, 403, "{query}");
    }
}

#[tokio::test]
async fn a_log_keeps_so_many_changes_and_no_more() {
    let stack = Stack::start().await;
    let registry = stack.queue.registry();
    let change = |n: usize| Change {
        id: n.to_string(),
        tenant: "acme".to_owned(),
        at_ms: now_ms(),
        actor: Actor::default(),
        action: "PUT /v1/secrets/{name}".to_owned(),
        object: n.to_string(),
        address: String::new(),
        request_id: String::new(),
        end: None,
    };
    for chunk in (0..10_300).collect::<Vec<_>>().chunks(300) {
        futures::future::try_join_all(chunk.iter().map(async |n| registry.end_change(&change(*n)).await))
            .await
            .unwrap();
    }
    let kept: u64 = stack.redis.ask(&["XLEN", "{stoke:registry}:audit:acme"]);
    assert!((10_000..10_300).contains(&kept), "{kept}");
    let newest = registry.audit(Some("acme"), Which::Before(None), 1).await.unwrap();
    assert!(newest.changes[0].change.object.parse::<usize>().unwrap() >= 10_000);
}

#[tokio::test]
async fn a_change_whose_asker_hangs_up_is_not_left_open() {
    let stack = Stack::start().await;
    let redis = stack.redis.connection().await;
    let until_open = async |wanted: usize| {
        let mut redis = redis.clone();
        let look = async {
            while redis::cmd("HLEN").arg("{stoke:registry}:changes").query_async::<usize>(&mut redis).await.unwrap()
                != wanted
            {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, look).await.expect("so many are open");
    };
    // Half of a body: the handler waits for the rest.
    let mut line = TcpStream::connect(stack.url.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "PUT /v1/secrets/A HTTP/1.1\r\nhost: api\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        stack.token
    );
    line.write_all(head.as_bytes()).await.unwrap();
    until_open(1).await;
    drop(line);
    until_open(0).await;
}
