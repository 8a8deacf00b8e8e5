//! Authorization: scopes, expired tokens, and tenants that are hidden from each other.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::token::{Scope, mint};
use stokehold_queue::TokenKind;

use crate::stack::{Stack, echo, sha256};
use crate::worker::Worker;

fn unauthorized() -> (u16, String) {
    (401, "unauthorized".to_owned())
}

#[tokio::test]
async fn a_token_that_ended_is_refused() {
    let stack = Stack::start().await;
    let with = |token: String| stack.client.get(format!("{}/v1/jobs", stack.url)).bearer_auth(token);

    let (record, unknown) = mint(TokenKind::Api, "acme", &Scope::ALL, "never stored", None, &stack.key).unwrap();
    assert_eq!(stack.problem(with(unknown.expose().to_owned())).await, unauthorized());
    drop(record);

    // Redis deletes an expired record by itself; one that still exists is refused as well.
    let (mut ended, secret) =
        mint(TokenKind::Api, "acme", &Scope::ALL, "ended", Some(Duration::from_secs(60)), &stack.key).unwrap();
    ended.expires_ms = None;
    stack.queue.registry().put_token(&ended).await.unwrap();
    stack.json(with(secret.expose().to_owned())).await;
    let (ended, secret) = mint(TokenKind::Api, "acme", &Scope::ALL, "ended", Some(Duration::ZERO), &stack.key).unwrap();
    stack.queue.registry().put_token(&ended).await.unwrap();
    assert_eq!(stack.problem(with(secret.expose().to_owned())).await, unauthorized());

    // A record that belongs to another secret.
    let (mine, _) = mint(TokenKind::Api, "acme", &Scope::ALL, "mine", None, &stack.key).unwrap();
    let (mut theirs, secret) = mint(TokenKind::Api, "acme", &Scope::ALL, "theirs", None, &stack.key).unwrap();
    theirs.hash = mine.hash;
    stack.queue.registry().put_token(&theirs).await.unwrap();
    assert_eq!(stack.problem(with(secret.expose().to_owned())).await, unauthorized());
}

#[tokio::test]
async fn a_revoked_token_is_refused_within_seconds() {
    let stack = Stack::start().await;
    let token = stack.token_of("acme", &Scope::ALL, None).await;
    let with = || stack.client.get(format!("{}/v1/jobs", stack.url)).bearer_auth(&token);
    stack.json(with()).await;
    let id = token.split('_').nth(1).unwrap();
    assert!(stack.queue.registry().delete_token(id).await.unwrap());
    let refused = async {
        while with().send().await.unwrap().status() != 401 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(crate::stack::PATIENCE, refused).await.expect("it is refused at last");
}

#[tokio::test]
async fn a_token_of_one_kind_opens_no_route_of_another() {
    let stack = Stack::start().await;
    let join = stack.join_token(false).await;
    let at = |method: Method, path: &str, token: &str| {
        stack.client.request(method, format!("{}{path}", stack.url)).bearer_auth(token).body("{}")
    };
    assert_eq!(stack.problem(at(Method::GET, "/v1/jobs", &join)).await, unauthorized());
    assert_eq!(stack.problem(at(Method::POST, "/worker/v1/lease", &join)).await, unauthorized());
    for verb in ["join", "lease", "extend", "finish", "release", "events", "uploads"] {
        let request = at(Method::POST, &format!("/worker/v1/{verb}"), &stack.token);
        assert_eq!(stack.problem(request).await, unauthorized(), "{verb}");
    }
    let request = at(Method::GET, "/worker/v1/endpoints/acme/echo/1", &stack.token);
    assert_eq!(stack.problem(request).await, unauthorized());
}

#[tokio::test]
async fn what_is_another_tenants_does_not_exist() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let file = json!({"name": "a", "size_bytes": 5, "sha256": sha256(b"bytes")});
    let file = stack.json(stack.post("/v1/files", &file)).await;
    stack.upload(&file["upload_url"], &file["headers"], b"bytes").await;
    let id = stack.submit("secret").await;
    let worker = Worker::join(&stack).await;
    let lease = worker.lease().await;
    worker.succeed(&lease, json!("secret")).await;

    let token = stack.token_of("rival", &Scope::ALL, None).await;
    let at =
        |method: Method, path: &str| stack.client.request(method, format!("{}{path}", stack.url)).bearer_auth(&token);
    let not_found = (404, "not_found".to_owned());
    for path in ["", "?wait_s=1", "/events", "/result", "/files/a"] {
        assert_eq!(stack.problem(at(Method::GET, &format!("/v1/jobs/{id}{path}"))).await, not_found, "{path}");
    }
    assert_eq!(stack.problem(at(Method::POST, &format!("/v1/jobs/{id}/cancel"))).await, not_found);
    let file_id = file["id"].as_str().unwrap();
    assert_eq!(stack.problem(at(Method::GET, &format!("/v1/files/{file_id}"))).await, not_found);
    for path in ["/v1/endpoints/echo", "/v1/endpoints/echo/versions"] {
        assert_eq!(stack.problem(at(Method::GET, path)).await, (404, "unknown_endpoint".to_owned()));
    }
    let lists = [("/v1/jobs", json!({"jobs": [], "next_cursor": null})), ("/v1/endpoints", json!({"endpoints": []}))];
    for (path, empty) in lists {
        assert_eq!(stack.json(at(Method::GET, path)).await, empty);
    }
    let submit = at(Method::POST, "/v1/jobs").body(json!({"endpoint": "echo", "input": {"text": ""}}).to_string());
    assert_eq!(stack.problem(submit).await, (404, "unknown_endpoint".to_owned()));
    // A hash does not reveal what other tenants have deployed either.
    let about = json!({"sha256": echo()["package_sha256"], "size_bytes": echo()["package_size_bytes"]});
    let package: Value = stack.json(at(Method::POST, "/v1/packages").body(about.to_string())).await;
    assert_eq!(package["exists"], false);
}
