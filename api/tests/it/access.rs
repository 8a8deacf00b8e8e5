//! Tokens that a tenant makes itself, tenants that are disabled, quotas, and the log of changes.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use stokehold_api::token::{Role, Scope};
use stokehold_queue::now_ms;
use stokehold_queue::registry::{Actor, Change, Which};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::stack::{PATIENCE, Replica, Stack, sha256};
use crate::worker::{Worker, joining, post};

fn as_whom(replica: &Replica, token: &str, method: Method, path: &str) -> RequestBuilder {
    replica.client.request(method, format!("{}{path}", replica.url)).bearer_auth(token)
}

async fn make(replica: &Replica, token: &str, wanted: &Value) -> Value {
    replica.json(as_whom(replica, token, Method::POST, "/v1/tokens").body(wanted.to_string())).await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Asks until the answer is this one.
async fn until_status(status: u16, asks: impl Fn() -> RequestBuilder) {
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
    // Nor by rotating one that can do more, and an operator's is not theirs to revoke.
    let stronger = format!("/v1/tokens/{}", text(&record["id"]));
    let rotate = as_whom(&stack, &weak, Method::POST, &format!("{stronger}/rotate")).body("{}");
    assert_eq!(stack.problem(rotate).await.0, 403);
    let operators = format!("/v1/tokens/{}", stack.token.split('_').nth(1).unwrap());
    assert_eq!(stack.problem(as_whom(&stack, &admin, Method::DELETE, &operators)).await.0, 403);
    // What leaked goes, whoever is there to do it.
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
    let joined = stack.json(post(&stack, "join", text(&joins["token"]), &joining("rack"))).await;
    assert!(joined["worker_id"].is_string());
}

#[tokio::test]
async fn a_rotated_token_and_the_one_before_are_good_at_every_replica_until_the_overlap_ends() {
    let stack = Stack::start().await;
    let other = stack.replica(|_| {}).await;
    let made = make(&stack, &stack.token, &json!({"name": "ci", "roles": ["read"]})).await;
    let (old, path) = (text(&made["token"]), format!("/v1/tokens/{}/rotate", text(&made["record"]["id"])));
    // The other replica has it in mind as it was.
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
    // Nobody locks themselves out, and there is nothing to disable of nobody.
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
    // Two replicas at once give out no more than there is room for, and what was refused takes none.
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

#[tokio::test]
async fn a_change_that_cannot_be_written_down_is_not_made() {
    let mut stack = Stack::start().await;
    let set = |stack: &Stack| stack.request(Method::PUT, "/v1/secrets/KEY").body(r#"{"value": "a"}"#);
    // Something else stands where open changes are written.
    stack.redis.ask::<String>(&["SET", "{stoke:registry}:changes", "in the way"]);
    assert_eq!(stack.problem(set(&stack)).await, (503, "unavailable".to_owned()));
    let listed = stack.json(stack.get("/v1/secrets")).await;
    assert_eq!(listed["secrets"], json!([]), "nothing was changed");
    stack.redis.ask::<u32>(&["DEL", "{stoke:registry}:changes"]);
    stack.json(set(&stack)).await;

    // Where only the end of one cannot be written, it is made, and the log says at last that nobody knows.
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
    // It outlives a replica, as all else does.
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
    // What was merely wrong is no change.
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
    // Half of a body: its handler waits for the rest.
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

    // Another replica has spoken with it, and believes what it knows for a while.
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
    // Under another name it is known by what it has of its first life; without that the token is what is left to take away.
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
