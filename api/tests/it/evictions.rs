//! Evicted workers and revoked join tokens.

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::token::{Role, Scope};

use crate::access::{as_whom, text, until_status};
use crate::stack::Stack;
use crate::worker::{Worker, joining, post};

#[tokio::test]
async fn an_evicted_worker_is_out_and_its_jobs_go_on_elsewhere_at_no_cost() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let other_replica = stack.replica(|_| {}).await;
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let lease = worker.lease().await;
    let path = format!("/v1/workers/{}/evict", worker.id);
    let looks = stack.token_of("acme", &[Scope::WorkersRead], None).await;
    let refused = as_whom(&stack, &looks, Method::POST, &path).body("{}");
    assert_eq!(stack.problem(refused).await, (403, "forbidden".to_owned()));

    // Another replica has served the worker, and uses its cached record for a while.
    let beat = || json!({"leases": [{"job_id": lease["job_id"], "fence": lease["fence"]}], "status": {}}).to_string();
    let elsewhere = |verb: &str, body: String| {
        let url = format!("{}/worker/v1/{verb}", other_replica.url);
        other_replica.client.post(url).bearer_auth(worker.token()).body(body)
    };
    stack.json(elsewhere("extend", beat())).await;
    let evicted = stack.json(stack.post(&path, &json!({}))).await;
    assert_eq!((&evicted["requeued"], &evicted["join_token_revoked"]), (&json!(1), &json!(false)), "{evicted}");

    let job = stack.job(&id).await;
    assert_eq!((&job["state"], &job["attempts"][0]["state"]), (&json!("queued"), &json!("released")), "{job}");
    assert_eq!(stack.problem(worker.post("extend", &json!({"leases": [], "status": {}}))).await.0, 401);
    let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "succeeded", "result": "late"});
    assert_eq!(stack.problem(worker.post("finish", &json!({"finish": [report]}))).await.0, 401);
    until_status(401, || elsewhere("extend", beat())).await;
    assert_eq!(stack.json(stack.get("/v1/workers")).await["workers"], json!([]));
    assert_eq!(stack.problem(stack.post(&path, &json!({}))).await.0, 404, "it is no worker any more");

    let next = Worker::join(&stack).await;
    let again = next.lease().await;
    assert_eq!((&again["job_id"], &again["attempt"]), (&json!(id), &json!(2)));
    assert_eq!(next.succeed(&again, json!("done")).await, "ok");
    let log = stack.json(stack.get("/v1/audit")).await;
    let change = &log["changes"][0];
    assert_eq!((&change["action"], &change["object"]), (&json!("POST /v1/workers/{id}/evict"), &json!(worker.id)));
}

#[tokio::test]
async fn an_evicted_host_joins_again_with_another_token_only() {
    let stack = Stack::start().await;
    let token = stack.join_token(false).await;
    let join = |token: &str, name: &str, resume: &Value| {
        let mut request = joining(name);
        request["resume"] = resume.clone();
        post(&stack, "join", token, &request)
    };
    let first = stack.json(join(&token, "rack", &Value::Null)).await;
    stack.json(stack.post(&format!("/v1/workers/{}/evict", text(&first["worker_id"])), &json!({}))).await;
    assert_eq!(stack.problem(join(&token, "rack", &Value::Null)).await, (403, "forbidden".to_owned()));
    // Under another name the worker is recognized by the proof from its first life. Without that proof, only revoking
    // the token remains.
    assert_eq!(stack.problem(join(&token, "desk", &first["resume"])).await.0, 401);
    let second = stack.json(join(&token, "desk", &Value::Null)).await;
    let path = format!("/v1/workers/{}/evict", text(&second["worker_id"]));
    let evicted = stack.json(stack.post(&path, &json!({"revoke_join_token": true}))).await;
    assert_eq!(evicted["join_token_revoked"], true, "{evicted}");
    assert_eq!(stack.problem(join(&token, "third", &Value::Null)).await.0, 401);
    stack.json(join(&stack.join_token(false).await, "rack", &Value::Null)).await;
}

#[tokio::test]
async fn a_join_token_is_revoked_with_everything_that_joined() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    for single_use in [false, true] {
        let token = stack.join_token(single_use).await;
        let id = token.split('_').nth(1).unwrap();
        let joined = stack.json(post(&stack, "join", &token, &joining("rack"))).await;
        let (worker, kept) = (text(&joined["token"]), Worker::join(&stack).await);
        stack.submit("hi").await;
        let ask = json!({"want": 1, "reach_gib": 0, "wait_ms": 20_000});
        let lease = stack.json(post(&stack, "lease", worker, &ask)).await["leases"][0].clone();

        let admin = stack.token_of("acme", &Role::Admin.scopes(), None).await;
        let path = format!("/v1/tokens/{id}?with_workers=true");
        let refused = as_whom(&stack, &admin, Method::DELETE, &path);
        assert_eq!(stack.problem(refused).await.0, 403, "workers are operators' matter");
        let revoked = stack.request(Method::DELETE, &path).send().await.unwrap();
        assert_eq!(revoked.status(), 204);
        let beat = json!({"leases": [], "status": {}});
        assert_eq!(stack.problem(post(&stack, "extend", worker, &beat)).await.0, 401);
        stack.json(kept.post("extend", &beat)).await;
        let again = kept.lease().await;
        assert_eq!(again["job_id"], lease["job_id"]);
        assert_eq!(kept.succeed(&again, json!(1)).await, "ok");
    }
}
