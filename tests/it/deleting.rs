//! Deleting with the whole stack: what was deployed and used is gone from Redis and from the store, and a replica that
//! is killed in between leaves nothing behind.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_tests::stack::Stack;

use crate::api::{self, Api};

/// Bytes and number of the files below a folder.
fn below(folder: &Path) -> (u64, usize) {
    let Ok(entries) = std::fs::read_dir(folder) else { return (0, 0) };
    entries.map(Result::unwrap).fold((0, 0), |(bytes, files), entry| {
        let (more, found) = match entry.metadata() {
            Ok(about) if about.is_dir() => below(&entry.path()),
            Ok(about) => (about.len(), 1),
            // A temporary file of the store.
            Err(_) => (0, 0),
        };
        (bytes + more, files + found)
    })
}

/// A connection to the Redis of the stack.
fn connected(data: &Path) -> redis::Connection {
    let state: Value = serde_json::from_str(&std::fs::read_to_string(data.join("stack.json")).unwrap()).unwrap();
    redis::Client::open(state["redis_url"].as_str().unwrap()).unwrap().get_connection().unwrap()
}

/// Size of the records of versions, bytes. Those of deleted versions are empty.
fn registered(redis: &mut redis::Connection) -> usize {
    let versions: Vec<String> = redis::cmd("KEYS").arg("*:versions:*").query(redis).unwrap();
    let filled = versions.iter().flat_map(|key| redis::cmd("HVALS").arg(key).query::<Vec<String>>(redis).unwrap());
    filled.map(|version| version.len()).sum()
}

async fn delete(api: &Api, path: &str) -> reqwest::Result<reqwest::Response> {
    api.request("DELETE", path).send().await
}

async fn deleted(api: &Api, path: &str) -> Value {
    let answer = delete(api, path).await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
    answer.json().await.unwrap()
}

/// Repeats `look` until it returns true. No signal crosses processes for this.
async fn until(what: &str, stack: &Stack, look: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if look().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}\n{}", stack.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_endpoint_leaves_neither_versions_nor_objects_and_its_jobs_stay() {
    let (stack, dir) = api::stack(&[]);
    if stack.children("redis.sock").is_empty() {
        // In the other topologies Redis is not the stack's own.
        return;
    }
    let before = below(&dir.path().join("objects"));
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let job = api.submit("slow", json!({"n": 7})).await;
    assert_eq!(api.ended(&job).await["state"], "succeeded");
    let mut redis = connected(dir.path());
    let used = below(&dir.path().join("objects"));
    assert!(used > before && registered(&mut redis) > 0, "{used:?}");

    let dry = deleted(&api, "/v1/endpoints/slow?dry_run=true").await;
    let done = deleted(&api, "/v1/endpoints/slow").await;
    assert_eq!(done["dependents"], json!([]));
    assert_eq!((&done["deleted"], &done["freed_bytes"]), (&json!(true), &dry["freed_bytes"]));
    assert!(done["freed_bytes"].as_u64().unwrap() > 100, "{done}");
    assert!(below(&dir.path().join("objects")).0 + 100 < used.0);
    assert_eq!(registered(&mut redis), 0);
    assert_eq!(api.get(&format!("/v1/jobs/{job}")).await["result"]["n"], 7);
    assert_eq!(delete(&api, "/v1/endpoints/slow").await.unwrap().status(), 404);

    // The same folder is deployed again, and runs.
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let job = api.submit("slow", json!({"n": 8})).await;
    let job = api.ended(&job).await;
    assert_eq!((&job["state"], &job["version"]), (&json!("succeeded"), &json!(2)), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_killed_while_it_deletes_leaves_nothing_behind() {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    if stack.children("redis.sock").is_empty() {
        // In the other topologies Redis is not the stack's own.
        return;
    }
    let api = Api::of(&stack);
    let mut redis = connected(dir.path());
    // After the registry has changed; with its object claimed; with its object deleted and still claimed.
    for place in ["deletion.undeployed", "deletion.claimed", "deletion.swept"] {
        let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
        let packages = || below(&dir.path().join("objects")).0;
        let (full, job) = (packages(), api.submit("slow", json!({"n": 1})).await);
        let replica = stack.start_replica(&[("STOKE_FAILPOINTS", &format!("{place}=exit@1"))]);
        let doomed = Api::of(&stack).at(&replica.url);
        assert!(delete(&doomed, "/v1/endpoints/slow?force=true").await.is_err(), "{place}: the replica is dead");
        assert_eq!(registered(&mut redis), 0, "{place}");
        until("the job is cancelled", &stack, async || {
            api.get(&format!("/v1/jobs/{job}")).await["state"] == "cancelled"
        })
        .await;
        // The claim of the killed replica ends.
        let claims: Vec<String> = redis::cmd("KEYS").arg("*:sweeps:*").query(&mut redis).unwrap();
        for key in claims {
            let fields: Vec<String> = redis::cmd("HKEYS").arg(&key).query(&mut redis).unwrap();
            for field in fields.iter().filter(|field| field.contains('/')) {
                let _: u32 = redis::cmd("HSET").arg(&key).arg(field).arg(1).query(&mut redis).unwrap();
            }
        }
        until("the package is deleted", &stack, async || packages() + 100 < full).await;
        until("no object is left to check", &stack, async || {
            let mut redis = connected(dir.path());
            let keys: Vec<String> = redis::cmd("KEYS").arg("*:orphans").query(&mut redis).unwrap();
            keys.is_empty()
        })
        .await;
    }
}
