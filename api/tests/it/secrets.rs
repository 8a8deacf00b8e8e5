//! Secrets: only workers that load an endpoint that names them can read them back.

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::config::Config;
use stokehold_api::secrets::Keyring;
use stokehold_api::token::Scope;
use stokehold_queue::gateway::PROTOCOL;

use crate::stack::{Replica, Stack, echo};

const CANARY: &str = "canary-3f9a7c";

async fn set(stack: &Stack, name: &str, value: &str) -> u16 {
    let request = stack.request(Method::PUT, &format!("/v1/secrets/{name}")).body(json!({"value": value}).to_string());
    request.send().await.unwrap().status().as_u16()
}

/// `echo` with these secrets.
fn naming(names: &[&str]) -> Value {
    let mut endpoint = echo();
    endpoint["secrets"] = json!(names);
    endpoint
}

/// The token of a worker that has joined.
async fn join(stack: &Stack) -> String {
    let token = stack.join_token(false).await;
    let message = json!({"protocol": PROTOCOL, "release": "0.1.0", "name": "w", "slots": 1, "gpus": []});
    ask(stack, &token, "join", message).await["token"].as_str().unwrap().to_owned()
}

async fn ask(stack: &Replica, token: &str, verb: &str, message: Value) -> Value {
    let url = format!("{}/worker/v1/{verb}", stack.url);
    stack.json(stack.client.post(url).bearer_auth(token).body(message.to_string())).await
}

async fn refused(stack: &Replica, token: &str, message: Value) -> (u16, String) {
    let url = format!("{}/worker/v1/secrets", stack.url);
    stack.problem(stack.client.post(url).bearer_auth(token).body(message.to_string())).await
}

/// The lease of the next job.
async fn lease(stack: &Replica, worker: &str) -> Value {
    let leased = ask(stack, worker, "lease", json!({"want": 1, "reach_gib": 0, "wait_ms": 20_000})).await;
    json!({"job_id": leased["leases"][0]["job_id"], "fence": leased["leases"][0]["fence"]})
}

fn model(endpoint: &str) -> Value {
    json!({"tenant": "acme", "endpoint": endpoint, "version": 1})
}

#[tokio::test]
async fn they_are_set_and_listed_and_never_shown() {
    let stack = Stack::start().await;
    assert_eq!((set(&stack, "HF_TOKEN", CANARY).await, set(&stack, "HF_TOKEN", CANARY).await), (201, 200));
    stack.deploy(naming(&["HF_TOKEN"])).await;
    let listed = stack.json(stack.get("/v1/secrets")).await;
    let secret = &listed["secrets"][0];
    assert_eq!(
        (&secret["name"], &secret["used_by"], &secret["key_id"]),
        (&json!("HF_TOKEN"), &json!(["echo"]), &json!("token-key"))
    );
    assert!(!listed.to_string().contains(CANARY));
    let version = stack.json(stack.get("/v1/endpoints/echo")).await;
    assert_eq!(version["secrets"], json!(["HF_TOKEN"]));
    // Not even a reader of all of Redis sees it.
    let keys: Vec<String> = stack.redis.ask(&["KEYS", "*secrets*"]);
    assert_eq!(keys.len(), 2);
    for key in keys.iter().filter(|key| key.ends_with(":acme")) {
        let stored: Vec<String> = stack.redis.ask(&["HGETALL", key]);
        assert!(stored[0] == "HF_TOKEN" && !stored.concat().contains(CANARY), "{stored:?}");
    }
    let delete = || stack.request(Method::DELETE, "/v1/secrets/HF_TOKEN");
    assert_eq!(delete().send().await.unwrap().status(), 204);
    assert_eq!(stack.problem(delete()).await, (404, "not_found".to_owned()));
}

#[tokio::test]
async fn who_may_not_is_refused_and_other_tenants_have_their_own() {
    let mut stack = Stack::start().await;
    assert_eq!(set(&stack, "A", CANARY).await, 201);
    stack.token = stack.token_of("other", &[Scope::SecretsRead], None).await;
    assert_eq!(stack.json(stack.get("/v1/secrets")).await, json!({"secrets": []}));
    assert_eq!(set(&stack, "A", "x").await, 403);
    let rewrap = stack.problem(stack.post("/v1/secrets/rewrap", &json!(null))).await;
    assert_eq!(rewrap, (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn what_cannot_be_one_is_refused() {
    let stack = Stack::start().await;
    for name in ["1A", "A-B", "PATH", "STOKE_X", &"A".repeat(200)] {
        assert_eq!(set(&stack, name, "x").await, 400, "{name}");
    }
    for value in ["", "a\0b", &"x".repeat(40_000)] {
        assert_eq!(set(&stack, "A", value).await, 400);
    }
    let deploy = async |names: &[&str]| stack.problem(stack.post("/v1/endpoints", &naming(names))).await;
    stack.deploy_echo().await;
    assert_eq!(deploy(&["A"]).await, (409, "secret_missing".to_owned()));
    assert_eq!(set(&stack, "A", "x").await, 201);
    assert_eq!(deploy(&["A", "A"]).await, (400, "invalid_request".to_owned()));
    assert_eq!(deploy(&["PATH"]).await, (400, "invalid_request".to_owned()));
    let mut twice = naming(&["A"]);
    twice["env"] = json!({"A": "y"});
    assert_eq!(stack.problem(stack.post("/v1/endpoints", &twice)).await.0, 400);
}

#[tokio::test]
async fn a_worker_gets_those_of_the_job_that_it_holds_and_no_others() {
    let stack = Stack::start().await;
    for name in ["A", "B"] {
        assert_eq!(set(&stack, name, &format!("{CANARY}-{name}")).await, 201);
    }
    stack.deploy(naming(&["A"])).await;
    let mut other = naming(&["B"]);
    other["name"] = json!("other");
    stack.deploy(other).await;
    let worker = join(&stack).await;
    let stale = (409, "stale_fence".to_owned());
    assert_eq!(refused(&stack, &worker, json!({"model": model("echo")})).await, stale, "it holds nothing yet");
    stack.submit("hello").await;
    let lease = lease(&stack, &worker).await;
    let given = ask(&stack, &worker, "secrets", json!({"model": model("echo"), "lease": lease})).await;
    assert_eq!(given, json!({"secrets": {"A": format!("{CANARY}-A")}}));
    assert_eq!(refused(&stack, &worker, json!({"model": model("other"), "lease": lease})).await, stale);
    let mut forged = lease.clone();
    forged["fence"] = json!("1.0123456789abcdef");
    assert_eq!(refused(&stack, &worker, json!({"model": model("echo"), "lease": forged})).await, stale);
    // The current value, not the previous one.
    assert_eq!(set(&stack, "A", "another").await, 200);
    let given = ask(&stack, &worker, "secrets", json!({"model": model("echo"), "lease": lease})).await;
    assert_eq!(given["secrets"]["A"], "another");
    let mut report = lease.clone();
    report["outcome"] = "succeeded".into();
    report["result"] = "done".into();
    let _ = ask(&stack, &worker, "finish", json!({"finish": [report]})).await;
    assert_eq!(refused(&stack, &worker, json!({"model": model("echo"), "lease": lease})).await, stale, "it is over");
}

#[tokio::test]
async fn keys_are_changed_while_it_runs_and_without_the_old_one_afterwards() {
    let with = |keys: &str| {
        let keys = keys.to_owned();
        move |config: &mut Config| config.secret_keys = Keyring::parse(&keys, &config.token_key).unwrap()
    };
    let (old, new) = (format!("old:{}", "1".repeat(64)), format!("new:{}", "2".repeat(64)));
    let stack = Stack::start_with(with(&old)).await;
    assert_eq!(set(&stack, "A", CANARY).await, 201);
    stack.deploy(naming(&["A"])).await;
    stack.submit("hello").await;
    let (worker, both) = (join(&stack).await, stack.replica(with(&format!("{new},{old}"))).await);
    let lease = lease(&stack, &worker).await;
    let read = json!({"model": model("echo"), "lease": lease});
    assert_eq!(ask(&both, &worker, "secrets", read.clone()).await["secrets"]["A"], CANARY);
    let later = stack.replica(with(&new)).await;
    assert_eq!(refused(&later, &worker, read.clone()).await, (409, "secret_missing".to_owned()));
    let done = both.json(both.post("/v1/secrets/rewrap", &json!(null))).await;
    assert_eq!(done, json!({"key_id": "new", "rewrapped": 1, "unreadable": []}));
    assert_eq!(ask(&later, &worker, "secrets", read).await["secrets"]["A"], CANARY);
    assert_eq!(later.json(later.post("/v1/secrets/rewrap", &json!(null))).await["rewrapped"], 0);
    let shown = stack.json(stack.post("/v1/secrets/rewrap", &json!(null))).await;
    assert_eq!(shown["unreadable"], json!(["acme/A"]), "who has only the old key says so, and harms nothing");
}
