//! Tokens that a tenant creates itself, disabled tenants, and quotas.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use stokehold_api::token::{Role, Scope};
use tokio::time::{sleep, timeout};

use crate::stack::{PATIENCE, Replica, Stack, sha256};
use crate::worker::{Worker, joining, post};

pub(super) fn as_whom(replica: &Replica, token: &str, method: Method, path: &str) -> RequestBuilder {
    replica.client.request(method, format!("{}{path}", replica.url)).bearer_auth(token)
}

pub(super) async fn make(replica: &Replica, token: &str, wanted: &Value) -> Value {
    replica.json(as_whom(replica, token, Method::POST, "/v1/tokens").body(wanted.to_string())).await
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Repeats a request until its response has this status.
pub(super) async fn until_status(status: u16, asks: impl Fn() -> RequestBuilder) {
    let look = async {
        while asks().send().await.unwrap().status() != status {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, look).await.expect("it gets there");
}

#[tokio::test]
async fn a_tenants_admin_makes_tokens_and_gives_nobody_what_it_has_not() {
    let stack = Stack::start().await;
    let admin = stack.token_of("acme", &Role::Admin.scopes(), None).await;
    let wanted = json!({"name": "app", "user": "ana", "roles": ["submit"], "ttl_s": 3600});
    let made = make(&stack, &admin, &wanted).await;
    let token = text(&made["token"]);
    stack.json(as_whom(&stack, token, Method::GET, "/v1/jobs")).await;
    let cancel = as_whom(&stack, token, Method::POST, "/v1/jobs/cancel").body(r#"{"filter": {"endpoint": "a"}}"#);
    assert_eq!(stack.problem(cancel).await.0, 403);
    let record = &made["record"];
    assert_eq!((&record["tenant"], &record["user"], &record["kind"]), (&json!("acme"), &json!("ana"), &json!("api")));
    assert!(record["expires_at"].is_string() && record["last_used_at"].is_null());
    assert_eq!(
        (&record["trust"], &record["region"], &record["single_use"]),
        (&json!(null), &json!(null), &json!(false))
    );

    let listed = stack.json(as_whom(&stack, &admin, Method::GET, "/v1/tokens")).await;
    assert!(listed["tokens"].as_array().unwrap().iter().any(|listed| listed["id"] == record["id"]));
    assert!(!listed.to_string().contains(token), "no secret is shown again");

    let weak = stack.token_of("acme", &[Scope::TokensWrite, Scope::JobsRead], None).await;
    let refused = [
        (&weak, json!({"name": "a", "roles": ["submit"]}), 403),
        (&admin, json!({"name": "a", "scopes": ["workers:read"]}), 403),
        (&admin, json!({"name": "a", "roles": ["worker"]}), 403),
        (&admin, json!({"name": "a", "roles": ["read"], "tenant": "zoo"}), 403),
        (&admin, json!({"name": "", "roles": ["read"]}), 400),
        (&admin, json!({"name": "a"}), 400),
        (&admin, json!({"name": "a", "roles": ["king"]}), 400),
        (&admin, json!({"name": "a", "roles": ["read"], "ttl_s": 1}), 400),
        (&admin, json!({"name": "a", "roles": ["worker", "read"]}), 400),
        (&admin, json!({"name": "a", "roles": ["read"], "single_use": true}), 400),
    ];
    for (token, wanted, status) in refused {
        let request = as_whom(&stack, token, Method::POST, "/v1/tokens").body(wanted.to_string());
        assert_eq!(stack.problem(request).await.0, status, "{wanted}");
    }
    // Rotating a token with more scopes does not help, and a tenant cannot revoke an operator's token.
    let stronger = format!("/v1/tokens/{}", text(&record["id"]));
    let rotate = as_whom(&stack, &weak, Method::POST, &format!("{stronger}/rotate")).body("{}");
    assert_eq!(stack.problem(rotate).await.0, 403);
    let operators = format!("/v1/tokens/{}", stack.token.split('_').nth(1).unwrap());
    assert_eq!(stack.problem(as_whom(&stack, &admin, Method::DELETE, &operators)).await.0, 403);
    // A leaked token can be revoked by any token that may manage tokens.
    let revoked = as_whom(&stack, &weak, Method::DELETE, &stronger).send().await.unwrap();
    assert_eq!(revoked.status(), 204);
    assert_eq!(stack.problem(as_whom(&stack, token, Method::GET, "/v1/jobs")).await.0, 401);
}

#[tokio::test]
async fn an_operator_makes_a_tenant_its_first_token_and_what_workers_join_with() {
    let stack = Stack::start().await;
    let first = json!({"name": "first", "roles": ["admin"], "tenant": "zoo"});
    assert_eq!(stack.problem(stack.post("/v1/tokens", &first)).await, (400, "invalid_request".to_owned()));
    let made = stack.post("/v1/tenants", &json!({"name": "zoo"})).send().await.unwrap();
    assert_eq!(made.status(), 201);
    assert_eq!(stack.post("/v1/tenants", &json!({"name": "zoo"})).send().await.unwrap().status(), 200);
    assert_eq!(stack.problem(stack.post("/v1/tenants", &json!({"name": "Zoo"}))).await.0, 400);
    let made = make(&stack, &stack.token, &first).await;
    let own = stack.json(as_whom(&stack, text(&made["token"]), Method::GET, "/v1/tokens")).await;
    assert_eq!((&own["tokens"][0]["tenant"], own["tokens"].as_array().unwrap().len()), (&json!("zoo"), 1));
    let log = stack.json(as_whom(&stack, text(&made["token"]), Method::GET, "/v1/audit")).await;
    assert_eq!(log["changes"][0]["action"], "POST /v1/tokens", "the tenant sees what was done for it");
    assert_eq!(
        (&log["changes"][0]["actor"]["token_name"], &log["changes"][0]["address"]),
        (&json!("operator"), &Value::Null)
    );

    let joins = make(&stack, &stack.token, &json!({"name": "rack", "roles": ["worker"], "trust": "datacenter"})).await;
    let record = &joins["record"];
    assert_eq!((&record["kind"], &record["trust"]), (&json!("join"), &json!("datacenter")));
    assert_eq!((&record["region"], &record["single_use"]), (&json!(null), &json!(false)));
    let joined = stack.json(post(&stack, "join", text(&joins["token"]), &joining("rack"))).await;
    assert!(joined["worker_id"].is_string());
}

#[tokio::test]
async fn a_rotated_token_and_the_one_before_are_good_at_every_replica_until_the_overlap_ends() {
    let stack = Stack::start().await;
    let other = stack.replica(|_| {}).await;
    let made = make(&stack, &stack.token, &json!({"name": "ci", "roles": ["read"]})).await;
    let (old, path) = (text(&made["token"]), format!("/v1/tokens/{}/rotate", text(&made["record"]["id"])));
    // The other replica has cached the old tenant record.
    other.json(as_whom(&other, old, Method::GET, "/v1/jobs")).await;
    let too_long = stack.post(&path, &json!({"overlap_s": 604_801}));
    assert_eq!(stack.problem(too_long).await.0, 400);
    let rotated = stack.json(stack.post(&path, &json!({}))).await;
    let until = text(&rotated["record"]["previous_until"]);
    assert!(until > text(&rotated["record"]["created_at"]));
    for replica in [&*stack, &other] {
        for token in [text(&rotated["token"]), old] {
            replica.json(as_whom(replica, token, Method::GET, "/v1/jobs")).await;
        }
    }
    let at_once = stack.json(stack.post(&path, &json!({"overlap_s": 0}))).await;
    assert!(at_once["record"]["previous_until"].is_null());
    for replica in [&*stack, &other] {
        replica.json(as_whom(replica, text(&at_once["token"]), Method::GET, "/v1/jobs")).await;
        until_status(401, || as_whom(replica, text(&rotated["token"]), Method::GET, "/v1/jobs")).await;
        until_status(401, || as_whom(replica, old, Method::GET, "/v1/jobs")).await;
    }
}

#[tokio::test]
async fn a_revoked_token_is_refused_by_every_replica_within_five_seconds() {
    let stack = Stack::start().await;
    let other = stack.replica(|_| {}).await;
    let made = make(&stack, &stack.token, &json!({"name": "leaked", "roles": ["read"]})).await;
    let token = text(&made["token"]);
    other.json(as_whom(&other, token, Method::GET, "/v1/jobs")).await;
    let path = format!("/v1/tokens/{}", text(&made["record"]["id"]));
    assert_eq!(stack.request(Method::DELETE, &path).send().await.unwrap().status(), 204);
    assert_eq!(
        stack.problem(as_whom(&stack, token, Method::GET, "/v1/jobs")).await.0,
        401,
        "at once where it was done"
    );
    let promised = until_status(401, || as_whom(&other, token, Method::GET, "/v1/jobs"));
    timeout(Duration::from_secs(5), promised).await.expect("that is what is promised");
    assert_eq!(stack.problem(stack.request(Method::DELETE, &path)).await.0, 404);
}

#[tokio::test]
async fn the_last_use_of_a_token_is_written_when_its_replica_goes() {
    let stack = Stack::start().await;
    let other = stack.replica(|_| {}).await;
    let token = stack.token_of("acme", &[Scope::JobsRead], None).await;
    other.json(as_whom(&other, &token, Method::GET, "/v1/jobs")).await;
    drop(other);
    let id = token.split('_').nth(1).unwrap();
    let listed = async {
        loop {
            let tokens = stack.json(stack.get("/v1/tokens")).await;
            let listed = tokens["tokens"].as_array().unwrap().iter().find(|token| token["id"] == id).unwrap().clone();
            if listed["last_used_at"].is_string() {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, listed).await.expect("it is written down");
}

#[tokio::test]
async fn a_disabled_tenant_is_refused_its_jobs_wait_and_nothing_is_lost() {
    let mut stack = Stack::start().await;
    let operator = stack.token.clone();
    stack.token = stack.token_of("zoo", &Role::Admin.scopes(), None).await;
    stack.deploy_echo().await;
    let id = stack.submit("waits").await;
    let zoo = std::mem::replace(&mut stack.token, operator);
    let disable = || stack.post("/v1/tenants/zoo/disable", &Value::Null);
    let disabled = stack.json(disable()).await;
    assert!(disabled["disabled_at"].is_string() && disabled["open_jobs"] == 1, "{disabled}");
    assert_eq!(stack.json(disable()).await["disabled_at"], disabled["disabled_at"], "again changes nothing");

    let asks = || as_whom(&stack, &zoo, Method::GET, &format!("/v1/jobs/{id}"));
    assert_eq!(stack.problem(asks()).await, (403, "tenant_disabled".to_owned()));
    let log_in = stack.client.post(format!("{}/v1/session", stack.url)).body(json!({"token": zoo}).to_string());
    assert_eq!(stack.problem(log_in).await, (403, "tenant_disabled".to_owned()));
    let worker = Worker::join(&stack).await;
    let nothing = json!({"want": 1, "reach_gib": 0, "wait_ms": 0});
    assert!(stack.json(worker.post("lease", &nothing)).await["leases"][0].is_null());
    let listed = stack.json(stack.get("/v1/tenants")).await;
    let zoo_listed = listed["tenants"].as_array().unwrap().iter().find(|tenant| tenant["name"] == "zoo").unwrap();
    assert_eq!((&zoo_listed["open_jobs"], zoo_listed["disabled_at"].is_string()), (&json!(1), true));

    stack.json(stack.post("/v1/tenants/zoo/enable", &Value::Null)).await;
    assert_eq!(stack.json(asks()).await["state"], "queued");
    assert_eq!(worker.lease().await["job_id"], id);
    // Operators cannot disable their own tenant, and there is nothing to disable of an unknown one.
    assert_eq!(stack.problem(stack.post("/v1/tenants/acme/disable", &Value::Null)).await.0, 400);
    assert_eq!(stack.problem(stack.post("/v1/tenants/nobody/disable", &Value::Null)).await.0, 404);
}

#[tokio::test]
async fn a_tenant_that_asks_too_often_is_told_when_to_come_back_and_no_other() {
    let stack = Stack::start().await;
    let zoo = stack.token_of("zoo", &Role::Admin.scopes(), None).await;
    stack.json(stack.request(Method::PUT, "/v1/limits/zoo").body(r#"{"requests_per_minute": 12}"#)).await;
    let mut refused = Vec::new();
    for _ in 0..4 {
        let answer = as_whom(&stack, &zoo, Method::GET, "/v1/jobs").send().await.unwrap();
        if answer.status() == 429 {
            refused.push(answer);
        }
    }
    assert!(!refused.is_empty(), "a burst of two, and one each five seconds");
    for answer in refused {
        let after: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=5).contains(&after), "{after}");
        let body: Value = answer.json().await.unwrap();
        assert!(body["code"] == "rate_limited" && text(&body["detail"]).contains("12 requests per minute"), "{body}");
    }
    for _ in 0..20 {
        stack.json(stack.get("/v1/jobs")).await;
    }
    let shown = stack.json(stack.get("/v1/limits/zoo")).await;
    assert_eq!(shown["requests_per_minute"], 12);
    for (path, wrong) in [("zoo", r#"{"requests_per_minute": 0}"#), ("zoo/endpoints/a", r#"{"max_storage_bytes": 5}"#)]
    {
        let put = stack.request(Method::PUT, &format!("/v1/limits/{path}")).body(wrong);
        assert_eq!(stack.problem(put).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn what_would_be_too_much_to_store_is_refused_before_it_is_uploaded() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let put = stack.request(Method::PUT, "/v1/limits/acme").body(r#"{"max_storage_bytes": 1000}"#);
    stack.json(put).await;
    let about = |bytes: u64| json!({"name": "a", "size_bytes": bytes, "sha256": sha256(b"a")});
    let refused = stack.post("/v1/files", &about(990)).send().await.unwrap();
    assert_eq!(refused.status(), 409);
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["code"], "storage_exceeded", "the package is there already: {body}");
    assert!(text(&body["detail"]).contains("may store 1000"));
    // Two replicas together grant no more than there is room for, and a refused request uses none of it.
    let other = stack.replica(|_| {}).await;
    let ask = |replica: &Replica| replica.post("/v1/files", &about(600)).send();
    let (one, two) = tokio::join!(ask(&stack), ask(&other));
    let mut statuses = [one.unwrap().status().as_u16(), two.unwrap().status().as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses[1], 409, "{statuses:?}");
    if statuses[0] == 409 {
        stack.json(stack.post("/v1/files", &about(600))).await;
    }
    for path in ["/v1/packages", "/v1/weights"] {
        let more = stack.post(path, &json!({"size_bytes": 600, "sha256": sha256(b"b")}));
        assert_eq!(stack.problem(more).await, (409, "storage_exceeded".to_owned()), "{path}");
    }
    let own = stack.json(stack.get("/v1/limits")).await;
    assert!(own["usage"]["storage_bytes"].as_u64().unwrap() > 0 && own["limits"]["max_storage_bytes"] == 1000, "{own}");
    stack.json(stack.request(Method::PUT, "/v1/limits/acme").body("{}")).await;
    stack.json(stack.post("/v1/files", &about(5_000))).await;
}

#[tokio::test]
async fn failed_log_ins_are_slowed_down_by_address_and_lock_nobody_out() {
    let stack = Stack::start_with(|config| config.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()]).await;
    let wrong = format!("sk_{}", "0".repeat(90));
    let guess = |from: &str| as_whom(&stack, &wrong, Method::GET, "/v1/jobs").header("x-forwarded-for", from);
    let mut codes = Vec::new();
    for _ in 0..12 {
        codes.push(stack.problem(guess("203.0.113.7")).await.0);
    }
    assert!(codes.iter().filter(|code| **code == 401).count() >= 10 && codes.contains(&429), "{codes:?}");
    let answer = guess("203.0.113.7").send().await.unwrap();
    assert!(answer.headers().contains_key("retry-after"));
    let log_in = |token: &str| {
        let request = stack.client.post(format!("{}/v1/session", stack.url)).header("x-forwarded-for", "203.0.113.7");
        request.body(json!({"token": token}).to_string())
    };
    assert_eq!(stack.problem(log_in(&wrong)).await.0, 429);
    assert_eq!(log_in(&stack.token).send().await.unwrap().status(), 200);
    stack.json(stack.get("/v1/jobs").header("x-forwarded-for", "203.0.113.7")).await;
    assert_eq!(stack.problem(guess("203.0.113.8")).await.0, 401, "another address has its own count");
}
