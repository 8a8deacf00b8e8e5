//! The API of the dashboard: sessions, live events, time series and statistics.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use futures::{Stream, StreamExt};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use stokehold_api::token::{Scope, mint};
use stokehold_queue::series::{Point, STEP_MS};
use stokehold_queue::{TokenKind, now_ms};
use tokio::time::{sleep, timeout};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::stack::{PATIENCE, Replica, Stack};
use crate::worker::Worker;

fn forbidden() -> (u16, String) {
    (403, "forbidden".to_owned())
}

fn unauthorized() -> (u16, String) {
    (401, "unauthorized".to_owned())
}

/// The token with a different last digit.
fn mistyped(token: &str) -> String {
    let (rest, last) = token.split_at(token.len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" })
}

async fn log_in(replica: &Replica, token: &str) -> Response {
    let body = json!({"token": token}).to_string();
    replica.client.post(format!("{}/v1/session", replica.url)).body(body).send().await.unwrap()
}

fn set_cookie(answer: &Response) -> String {
    answer.headers()["set-cookie"].to_str().unwrap().to_owned()
}

/// A request with only a session cookie.
fn asks(replica: &Replica, method: Method, path: &str, cookie: &str) -> RequestBuilder {
    let cookie = cookie.split(';').next().unwrap();
    replica.client.request(method, format!("{}{path}", replica.url)).header("cookie", format!("a=b; {cookie}"))
}

#[tokio::test]
async fn a_session_stands_for_its_token_and_no_foreign_page_can_use_it() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let token = stack.token_of("acme", &[Scope::JobsRead, Scope::JobsWrite], None).await;
    let answer = log_in(&stack, &token).await;
    assert_eq!(answer.status(), 200);
    let cookie = set_cookie(&answer);
    assert!(cookie.starts_with("stoke_session="), "{cookie}");
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200"), "{cookie}");
    let secret = token.split('_').nth(2).unwrap();
    assert!(!cookie.contains(secret));
    let who: Value = answer.json().await.unwrap();
    assert_eq!((&who["tenant"], &who["scopes"]), (&json!("acme"), &json!(["jobs:read", "jobs:write"])));
    assert!(who["expires_ms"].as_u64().unwrap() > now_ms());
    assert_eq!(stack.json(asks(&stack, Method::GET, "/v1/session", &cookie)).await, who);

    // A session has the permissions of its token and no others.
    stack.json(asks(&stack, Method::GET, "/v1/jobs", &cookie)).await;
    assert_eq!(stack.problem(asks(&stack, Method::GET, "/v1/workers", &cookie)).await, forbidden());
    let body = json!({"endpoint": "echo", "input": {"text": "hi"}}).to_string();
    let submit = || asks(&stack, Method::POST, "/v1/jobs", &cookie).body(body.clone());
    assert_eq!(stack.problem(submit()).await, forbidden(), "without the header");
    let ours = || submit().header("stokehold-request", "dashboard");
    stack.json(ours()).await;
    stack.json(ours().header("origin", &stack.url)).await;
    stack.json(ours().header("origin", "http://api.test")).await;
    assert_eq!(stack.problem(ours().header("origin", "https://evil.example")).await, forbidden());
    let foreign = asks(&stack, Method::GET, "/v1/jobs", &cookie).header("origin", "https://evil.example");
    assert_eq!(stack.problem(foreign).await, forbidden());

    // A bearer token needs none of that, and a cookie does not interfere with it.
    let bearer = stack.post("/v1/jobs", &json!({"endpoint": "echo", "input": {"text": "hi"}}));
    stack.json(bearer.header("cookie", "stoke_session=x").header("origin", "https://evil.example")).await;

    for path in ["lease", "extend", "finish", "join"] {
        let worker = asks(&stack, Method::POST, &format!("/worker/v1/{path}"), &cookie).body("{}");
        let worker = worker.header("stokehold-request", "dashboard");
        assert_eq!(stack.problem(worker).await, unauthorized(), "{path}");
    }

    // A page of another host cannot end a session.
    let leave = || asks(&stack, Method::DELETE, "/v1/session", &cookie);
    assert_eq!(stack.problem(leave()).await, forbidden());
    let left = leave().header("stokehold-request", "dashboard").send().await.unwrap();
    assert_eq!(left.status(), 204);
    assert!(set_cookie(&left).starts_with("stoke_session=; ") && set_cookie(&left).contains("Max-Age=0"));
}

#[tokio::test]
async fn a_link_logs_in_once_and_is_good_for_nothing_else() {
    let stack = Stack::start().await;
    let ttl = Some(std::time::Duration::from_secs(600));
    let (mut record, token) = mint(TokenKind::Api, "acme", &[Scope::JobsRead], "link", ttl, &stack.key).unwrap();
    record.single_use = true;
    stack.queue.registry().put_token(&record).await.unwrap();

    let bearer = stack.client.get(format!("{}/v1/jobs", stack.url)).bearer_auth(token.expose());
    assert_eq!(stack.problem(bearer).await, unauthorized(), "it is no bearer token");

    // Of many concurrent logins with one link, one succeeds.
    let other = stack.replica(|_| {}).await;
    let tries = (0..8).map(|n| log_in(if n % 2 == 0 { &stack } else { &other }, token.expose()));
    let answers = futures::future::join_all(tries).await;
    let (entered, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status() == 200);
    assert_eq!((entered.len(), refused.len()), (1, 7));
    assert!(refused.iter().all(|answer| answer.status() == 401));

    let cookie = set_cookie(&entered[0]);
    let who = stack.json(asks(&other, Method::GET, "/v1/session", &cookie)).await;
    assert_eq!((&who["tenant"], &who["scopes"]), (&json!("acme"), &json!(["jobs:read"])));
    stack.json(asks(&stack, Method::GET, "/v1/jobs", &cookie)).await;
    // The session is a token like any other: it expires and can be revoked.
    let tokens = stack.queue.registry().tokens().await.unwrap();
    let own = tokens.iter().find(|token| token.name == "link").unwrap();
    assert!(own.id != record.id && !own.single_use && own.expires_ms.is_some());
}

#[tokio::test]
async fn a_session_is_secure_over_https_and_good_at_every_replica() {
    let stack = Stack::start().await;
    let other = stack.replica(|config| config.public_url = "https://stoke.example".to_owned()).await;
    let cookie = set_cookie(&log_in(&other, &stack.token).await);
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    stack.json(asks(&stack, Method::GET, "/v1/jobs", &cookie)).await;
}

#[tokio::test]
async fn what_is_no_session_is_refused() {
    let stack = Stack::start().await;
    let join = stack.join_token(false).await;
    let changed = mistyped(&stack.token);
    for wrong in ["", "sk_nothing", &join, &changed] {
        assert_eq!(log_in(&stack, wrong).await.status(), 401, "{wrong}");
    }
    let none = stack.client.get(format!("{}/v1/session", stack.url)).bearer_auth(&stack.token);
    assert_eq!(stack.problem(none).await, unauthorized(), "a token is no session");
    let token = format!("stoke_session={}", stack.token);
    for cookie in ["stoke_session=", "stoke_session=AAAA", &token] {
        for path in ["/v1/session", "/v1/jobs"] {
            assert_eq!(stack.problem(asks(&stack, Method::GET, path, cookie)).await, unauthorized(), "{cookie}");
        }
    }
    let foreign = stack.client.post(format!("{}/v1/session", stack.url)).header("origin", "https://evil.example");
    let foreign = foreign.body(json!({"token": stack.token}).to_string());
    assert_eq!(stack.problem(foreign).await, forbidden(), "nobody is logged in by another's page");
}

#[tokio::test]
async fn a_revoked_token_ends_its_session_and_its_streams() {
    let stack = Stack::start().await;
    let token = stack.token_of("acme", &[Scope::JobsRead], None).await;
    let cookie = set_cookie(&log_in(&stack, &token).await);
    let mut live = events(asks(&stack, Method::GET, "/v1/live?topics=batches", &cookie)).await;
    assert_eq!(next(&mut live).await.0, "batches");
    assert!(stack.queue.registry().delete_token(token.split('_').nth(1).unwrap()).await.unwrap());
    timeout(PATIENCE, async { while live.next().await.is_some() {} }).await.expect("the stream ends");
    let refused = async {
        while asks(&stack, Method::GET, "/v1/session", &cookie).send().await.unwrap().status() != 401 {
            sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, refused).await.expect("the session ends");
}

/// Everything that is logged, at any level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push_str(&format!("{field}={value:?}\n"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn no_log_has_a_token_or_a_session() {
    let log = Log::default();
    // A test runs on one thread, including the API.
    let _logging = tracing::subscriber::set_default(log.clone());
    let stack = Stack::start().await;
    let cookie = set_cookie(&log_in(&stack, &stack.token).await);
    // The thread of another test may have registered a log statement at the moment when this subscriber was set.
    tracing::callsite::rebuild_interest_cache();
    stack.json(asks(&stack, Method::GET, "/v1/session", &cookie)).await;
    stack.json(asks(&stack, Method::GET, "/v1/jobs", &cookie)).await;
    let wrong = mistyped(&stack.token);
    assert_eq!(log_in(&stack, &wrong).await.status(), 401);
    let strange = json!(stack.token).to_string();
    let strange = stack.client.post(format!("{}/v1/session", stack.url)).body(strange).send().await.unwrap();
    assert_eq!(strange.status(), 400);
    let log = log.0.lock().unwrap();
    assert!(log.contains("/v1/session"), "requests are logged");
    let secret = stack.token.split('_').nth(2).unwrap();
    let sealed = cookie.split([';', '=']).nth(1).unwrap();
    assert!(!log.contains(secret) && !log.contains(sealed));
}

/// The events of a stream, by name and data.
async fn events(request: RequestBuilder) -> impl Stream<Item = (String, Value)> + Unpin {
    let answer = request.send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream", "{}", answer.status());
    let blocks = futures::stream::unfold((answer.bytes_stream(), String::new()), |(mut bytes, mut text)| async move {
        loop {
            if let Some((block, rest)) = text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                return Some((block, (bytes, rest)));
            }
            text.push_str(std::str::from_utf8(&bytes.next().await?.ok()?).unwrap());
        }
    });
    let event = |block: String| async move {
        let field =
            |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned());
        Some((field("event:")?, serde_json::from_str(&field("data:")?).unwrap()))
    };
    Box::pin(blocks.filter_map(event))
}

async fn next(live: &mut (impl Stream<Item = (String, Value)> + Unpin)) -> (String, Value) {
    timeout(PATIENCE, live.next()).await.expect("something is told").expect("the stream goes on")
}

#[tokio::test]
async fn each_topic_is_told_as_its_route_answers_it_and_again_when_it_changes() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let mut live = events(stack.get("/v1/live")).await;
    let mut told = BTreeMap::new();
    while told.len() < 5 {
        let (topic, data) = next(&mut live).await;
        told.insert(topic, data);
    }
    for topic in ["queue", "fleet", "batches"] {
        assert_eq!(told[topic], stack.json(stack.get(&format!("/v1/{topic}"))).await, "{topic}");
    }
    let today = told["costs"]["to"].as_str().unwrap();
    assert_eq!(told["costs"], stack.json(stack.get(&format!("/v1/costs?by=endpoint&from={today}"))).await);
    assert!(told["jobs"]["changed_ms"].as_u64().unwrap() <= now_ms());

    let id = stack.submit("hi").await;
    let (mut has_jobs, mut has_queue) = (false, false);
    while !(has_jobs && has_queue) {
        match next(&mut live).await {
            (topic, data) if topic == "jobs" => {
                has_jobs = data["changed_ms"].as_u64() > told["jobs"]["changed_ms"].as_u64()
            }
            (topic, data) if topic == "queue" => has_queue = data["lanes"][0]["jobs"] == 1,
            _ => {}
        }
    }
    // A change of an existing job's state is an event, too.
    stack.json(stack.post(&format!("/v1/jobs/{id}/cancel"), &json!({}))).await;
    while next(&mut live).await.0 != "jobs" {}
}

#[tokio::test]
async fn who_may_not_see_a_topic_does_not_follow_it_and_nobody_follows_without_end() {
    let stack = Stack::start().await;
    let token = stack.token_of("acme", &[Scope::JobsRead], None).await;
    let at = |topics: &str| stack.client.get(format!("{}/v1/live{topics}", stack.url)).bearer_auth(&token);
    for topics in ["?topics=queue", "?topics=jobs,fleet"] {
        assert_eq!(stack.problem(at(topics)).await, forbidden(), "{topics}");
    }
    for topics in ["?topics=", "?topics=secrets", "?topics=jobs,", "?topic=jobs"] {
        assert_eq!(stack.problem(at(topics)).await, (400, "invalid_query".to_owned()), "{topics}");
    }
    let mut own = events(at("")).await;
    let seen = [next(&mut own).await.0, next(&mut own).await.0, next(&mut own).await.0];
    assert!(!seen.iter().any(|topic| topic == "queue" || topic == "fleet"), "{seen:?}");

    let mut open = vec![own];
    for _ in 1..32 {
        open.push(events(at("?topics=jobs")).await);
    }
    assert_eq!(stack.problem(at("?topics=jobs")).await, (429, "rate_limited".to_owned()));
    drop(open);
    let room = async {
        while at("?topics=jobs").send().await.unwrap().status() != 200 {
            sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, room).await.expect("who leaves makes room");
}

#[tokio::test]
async fn an_end_of_the_api_ends_its_streams_at_once() {
    let stack = Stack::start().await;
    let other = stack.replica(|_| {}).await;
    let mut live = events(other.get("/v1/live")).await;
    next(&mut live).await;
    drop(other);
    timeout(PATIENCE, async { while live.next().await.is_some() {} }).await.expect("the stream ends");
}

#[tokio::test]
async fn the_series_tell_each_tenant_its_own_and_operators_everything() {
    let stack = Stack::start().await;
    let token = stack.token_of("acme", &[Scope::JobsRead], None).await;
    let own = |query: &str| stack.client.get(format!("{}/v1/series{query}", stack.url)).bearer_auth(&token);
    let at_ms = (now_ms() / STEP_MS - 6) * STEP_MS;
    let series = stack.queue.registry().series();
    let acme =
        Point { arrived: 4, started: 3, ended: 2, failed: 1, waiting: [1, 0, 2], running: 5, ..Point::default() };
    let all = Point { arrived: 9, machines: 3, usd_micros_per_hour: 5_000_000_000, ..acme };
    series.write(at_ms, all, &[("acme".to_owned(), acme), ("zoo".to_owned(), Point::default())].into()).await.unwrap();
    // The step in between is missing, and the next one is empty.
    series.write(at_ms + 2 * STEP_MS, Point::default(), &BTreeMap::new()).await.unwrap();

    let told = stack.json(own("?minutes=5")).await;
    assert_eq!(told["step_s"], 10);
    let empty = json!({"interactive": 0, "standard": 0, "batch": 0});
    let first = json!({"at_ms": at_ms, "arrived": 4, "started": 3, "ended": 2, "failed": 1, "running": 5,
        "waiting": {"interactive": 1, "standard": 0, "batch": 2}, "machines": null, "usd_micros_per_hour": null});
    assert_eq!(told["points"][0], first);
    assert_eq!((&told["points"][1]["at_ms"], &told["points"][1]["waiting"]), (&json!(at_ms + 2 * STEP_MS), &empty));

    let whole = stack.json(stack.get("/v1/series?minutes=5")).await;
    let point = &whole["points"][0];
    assert_eq!((&point["arrived"], &point["machines"]), (&json!(9), &json!(3)));
    assert_eq!(point["usd_micros_per_hour"], 5_000_000_000_u64);
    let zoo = stack.json(stack.get("/v1/series?minutes=5&tenant=zoo")).await;
    assert_eq!(zoo["points"][0]["arrived"], 0);
    assert_eq!(stack.problem(own("?tenant=zoo")).await, forbidden());
    for wrong in ["?minutes=0", "?minutes=1441", "?tenant=*"] {
        assert_eq!(stack.problem(own(wrong)).await, (400, "invalid_query".to_owned()), "{wrong}");
    }
}

#[tokio::test]
async fn what_comes_and_goes_is_written_down_step_by_step() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    // Two steps are observed from their start, so that the second one counts everything that arrives in it.
    let until = async |enough: &dyn Fn(&Value) -> bool| loop {
        let points = stack.json(stack.get("/v1/series?minutes=5")).await["points"].clone();
        if enough(&points) {
            return points;
        }
        sleep(std::time::Duration::from_millis(200)).await;
    };
    let none = timeout(PATIENCE, until(&|points| points != &json!([]))).await.expect("a step is written");
    assert_eq!(none[0]["arrived"], 0);
    assert!(none[0]["machines"].is_u64());
    stack.submit("one").await;
    stack.submit("two").await;
    let lease = worker.lease().await;
    worker.succeed(&lease, json!("done")).await;
    let sum = |points: &Value, what: &str| {
        points.as_array().unwrap().iter().filter_map(|point| point[what].as_u64()).sum::<u64>()
    };
    let points = timeout(PATIENCE, until(&|points| sum(points, "ended") > 0)).await.expect("the end is counted");
    assert_eq!((sum(&points, "arrived"), sum(&points, "started"), sum(&points, "failed")), (2, 1, 0));
    assert_eq!(points.as_array().unwrap().last().unwrap()["waiting"]["standard"], 1);
}

#[tokio::test]
async fn an_endpoint_s_figures_are_told_by_version() {
    let (stack, clock) = Stack::start_on_clock().await;
    // The attempts end in an hour that the machine's own clock has not reached.
    clock.advance_ms(3_600_000);
    stack.deploy_echo().await;
    assert_eq!(stack.json(stack.get("/v1/endpoints/echo/stats")).await, json!({"versions": []}));
    let worker = Worker::join(&stack).await;
    let mut last = String::new();
    for n in 0..10 {
        last = stack.submit("hi").await;
        let lease = worker.lease().await;
        let timing = json!({"load_ms": if n == 0 { 20_000 } else { 0 }, "run_ms": 1_000, "upload_ms": 3});
        clock.advance_ms(21_003);
        let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "succeeded", "result": 1, "timing": timing});
        stack.json(worker.post("finish", &json!({"finish": [report]}))).await;
    }
    stack.json(stack.post(&format!("/v1/jobs/{last}/feedback"), &json!({"accepted": true}))).await;
    stack.submit("hi").await;
    let lease = worker.lease().await;
    worker.fail(&lease, "rejected").await;

    let told = stack.json(stack.get("/v1/endpoints/echo/stats?hours=2")).await;
    let version = &told["versions"][0];
    let counts =
        ["version", "runs", "succeeded", "failed", "task_succeeded", "task_failed"].map(|name| version[name].clone());
    assert_eq!(counts, [1, 11, 10, 1, 1, 0].map(Value::from));
    let timing = &version["timing"];
    let near = |value: &Value, wanted: f64| (value.as_f64().unwrap() / wanted - 1.0).abs() < 0.05;
    assert!(near(&timing["run_ms"]["p50"], 1_000.0) && near(&timing["run_ms"]["p95"], 1_000.0), "{timing}");
    assert_eq!(timing["load_ms"]["p50"], 0, "most found it loaded");
    assert!(near(&timing["load_ms"]["p95"], 20_000.0), "{timing}");
    assert_eq!(timing["weights_ms"], Value::Null);
    assert_eq!(version["usd_micros_per_1000"], 0, "nobody says what the machine costs");

    let unknown = (404, "unknown_endpoint".to_owned());
    assert_eq!(stack.problem(stack.get("/v1/endpoints/other/stats")).await, unknown);
    assert_eq!(stack.problem(stack.get("/v1/endpoints/echo/stats?hours=49")).await.0, 400);
}
