//! Every route, requested without the right to it: by another tenant with every scope of its own, without a token,
//! without the required scope, and by a worker. A route that is in the document and not in `rows.rs` fails here, and so
//! does a row without a route.

mod data;
mod rows;

use std::collections::BTreeSet;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use stokehold_api::audit::UNRECORDED;
use stokehold_api::token::{Role, Scope};

use self::data::{Data, digest};
pub(crate) use self::rows::OPENAI_ROUTES;
use self::rows::{Foreign, ROWS, Row};
use crate::stack::Stack;
use crate::worker::{Worker, joining};

/// The gateway's routes, which are not in the document.
const GATEWAY: [(&str, &str); 9] = [
    ("POST", "/worker/v1/join"),
    ("POST", "/worker/v1/lease"),
    ("POST", "/worker/v1/extend"),
    ("POST", "/worker/v1/finish"),
    ("POST", "/worker/v1/release"),
    ("POST", "/worker/v1/events"),
    ("POST", "/worker/v1/uploads"),
    ("POST", "/worker/v1/secrets"),
    ("GET", "/worker/v1/endpoints/{tenant}/{name}/{version}"),
];

/// Starts a stack behind a trusted proxy, so that each request can come from a separate address: failed authentications
/// are counted by address.
async fn start() -> Stack {
    Stack::start_with(|config| {
        config.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
        config.weight_buckets = vec!["shared".to_owned()];
        config.webhooks.waits = vec![std::time::Duration::from_secs(24 * 3600)];
    })
    .await
}

/// Authentication of a request.
enum Asker<'a> {
    Nobody,
    Bearer(&'a str),
    Cookie(&'a str),
}

fn request(stack: &Stack, row: &Row, data: &Data, asker: &Asker<'_>) -> RequestBuilder {
    let method: Method = row.method().parse().unwrap();
    let path = data.fill(row.path);
    let from: [u8; 3] = rand::random();
    let request = stack.client.request(method, format!("{}{path}", stack.url));
    let request = request.header("x-forwarded-for", format!("10.{}.{}.{}", from[0], from[1], from[2]));
    let request = if row.body.is_empty() { request } else { request.body(data.fill(row.body)) };
    match asker {
        Asker::Nobody => request,
        Asker::Bearer(token) => request.bearer_auth(token),
        Asker::Cookie(cookie) => request.header("cookie", *cookie).header("stokehold-request", "dashboard"),
    }
}

/// The status and the body; of a stream, its beginning.
async fn asked(request: RequestBuilder) -> (u16, String) {
    let mut answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    if answer.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream") {
        let first = answer.chunk().await.unwrap().unwrap_or_default();
        return (status, String::from_utf8_lossy(&first).into_owned());
    }
    (status, answer.text().await.unwrap())
}

async fn cookie_of(stack: &Stack, token: &str) -> String {
    let log_in = stack.client.post(format!("{}/v1/session", stack.url)).body(json!({"token": token}).to_string());
    let answer = log_in.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
}

#[test]
fn every_route_is_in_the_matrix_and_every_row_is_a_route() {
    let document: Value = serde_json::from_str(stokehold_api::openapi::json()).unwrap();
    let operations = document["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    let documented: BTreeSet<String> = operations.collect();
    let rows: BTreeSet<String> = ROWS.iter().map(|row| row.operation.to_owned()).collect();
    assert_eq!(rows, documented);
    assert_eq!(rows.len(), ROWS.len(), "each route once");

    // A route that is served without being in the document would not be in a row either.
    let served = |source: &str| -> BTreeSet<String> {
        source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    let mut public: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
    public.insert("/openapi.json".to_owned());
    assert_eq!(served(include_str!("../../src/routes.rs")), public);
    let gateway: BTreeSet<String> = GATEWAY.iter().map(|(_, path)| (*path).to_owned()).collect();
    assert_eq!(served(include_str!("../../src/workers/gateway.rs")), gateway);
    // The API of OpenAI is called by its own clients, so it is not in the document from which the SDKs are generated.
    let openai: BTreeSet<String> = OPENAI_ROUTES.iter().map(|(_, path, _)| (*path).to_owned()).collect();
    assert_eq!(served(include_str!("../../src/openai.rs")), openai);
}

#[test]
fn what_leaves_no_line_in_the_log_is_a_route_that_is_no_reading_and_says_why() {
    for (method, path, why) in UNRECORDED {
        let operation = format!("{method} {path}");
        assert!(ROWS.iter().any(|row| row.operation == operation && row.changes()), "{operation}");
        assert!(!why.is_empty());
    }
}

#[tokio::test]
async fn no_tenant_reaches_what_is_anothers() {
    let stack = start().await;
    let mut acme = Data::seed(&stack, "acme", &stack.token).await;
    let admin = stack.token_of("rival", &Role::Admin.scopes(), None).await;
    let mut rival = Data::seed(&stack, "rival", &admin).await;
    acme.seed_open(&stack).await;
    rival.seed_open(&stack).await;
    let marks = acme.marks();
    assert!(marks.len() > 12 && rival.marks().iter().all(|mark| !marks.contains(mark)));
    let before = digest(&stack, &acme, &stack.token).await;
    for mark in &marks {
        assert!(before.to_string().contains(mark), "acme itself sees {mark}");
    }

    let cookie = cookie_of(&stack, &admin).await;
    // A tenant's own audit log may contain the words that it has sent itself.
    let spoken: String = ROWS.iter().map(|row| data::own_words(row, &acme)).collect();
    for row in ROWS {
        let own_words = if row.path == "/v1/audit" { spoken.clone() } else { data::own_words(row, &acme) };
        for asker in [Asker::Bearer(&admin), Asker::Cookie(&cookie)] {
            let (status, said) = asked(request(&stack, row, &acme, &asker)).await;
            let about = format!(
                "{} by {}: {status} {said}",
                row.operation,
                if matches!(asker, Asker::Cookie(_)) { "session" } else { "bearer" }
            );
            match row.foreign {
                Foreign::Hidden => assert_eq!(status, 404, "{about}"),
                Foreign::Operators => assert_eq!(status, 403, "{about}"),
                Foreign::Apart => assert!(status < 400, "{about}"),
                // A bearer token is no session; a cookie is one.
                Foreign::Session => assert!(matches!(status, 200 | 401), "{about}"),
                Foreign::Open => assert!(!matches!(status, 401 | 403), "{about}"),
                Foreign::Figures if matches!(asker, Asker::Bearer(_)) => assert_eq!(status, 403, "{about}"),
                Foreign::Figures => assert_eq!(status, 200, "{about}"),
            }
            // The response may contain the words that the asker has sent itself.
            let is_told = |mark: &&String| said.contains(*mark) && !own_words.contains(*mark);
            assert_eq!(marks.iter().find(is_told), None, "{about}");
        }
    }
    for (path, body) in data::SMUGGLED {
        let body = rival.fill(&acme.fill(body).replace("<own-", "<"));
        let request = stack.client.post(format!("{}{path}", stack.url)).bearer_auth(&admin).body(body.clone());
        let (status, said) = asked(request).await;
        assert!((400..500).contains(&status), "{path} {body}: {status} {said}");
    }
    for query in data::FILTERS {
        let said = stack.json(stack.client.get(format!("{}{}", stack.url, acme.fill(query))).bearer_auth(&admin)).await;
        let lists: Vec<&Vec<Value>> = said.as_object().unwrap().values().filter_map(Value::as_array).collect();
        assert!(!lists.is_empty() && lists.iter().all(|list| list.is_empty()), "{query}: {said}");
    }
    let after = digest(&stack, &acme, &stack.token).await;
    assert_eq!(before, after, "nothing of acme's has changed");
    assert!(!after["/v1/audit?limit=100"].to_string().contains("rival"), "nobody writes into another's log");
}

#[tokio::test]
async fn what_its_owner_asks_is_done_and_every_change_is_in_the_log() {
    let stack = start().await;
    let mut acme = Data::seed(&stack, "acme", &stack.token).await;
    acme.seed_open(&stack).await;
    acme.seed_for_operators(&stack).await;
    for row in ROWS.iter().filter(|row| !matches!(row.foreign, Foreign::Open | Foreign::Figures | Foreign::Session)) {
        let (status, said) = asked(request(&stack, row, &acme, &Asker::Bearer(&stack.token))).await;
        assert!(status < 400, "{}: {status} {said}", row.operation);
        if !row.changes() {
            continue;
        }
        let log = stack.json(stack.get("/v1/audit?tenant=*&limit=100")).await;
        let lines = log["changes"].as_array().unwrap();
        // The seeding requests came through no proxy.
        let is_it = |line: &&Value| line["action"] == row.operation && line["address"] != "127.0.0.1";
        let lines: Vec<&Value> = lines.iter().filter(is_it).collect();
        let is_listed = UNRECORDED.iter().any(|(method, path, _)| row.operation == format!("{method} {path}"));
        assert_eq!(lines.len(), usize::from(!is_listed), "{}: {lines:?}", row.operation);
        if let [line] = lines[..] {
            assert_eq!((&line["outcome"], &line["actor"]["token_name"]), (&json!("done"), &json!("test")), "{line}");
            assert!(line["address"].as_str().unwrap().starts_with("10."), "{line}");
            assert!(!line["request_id"].as_str().unwrap().is_empty());
            assert!(!line.to_string().contains("canary value"), "no body is kept");
        }
    }
}

#[tokio::test]
async fn each_route_asks_for_its_scope_and_no_more() {
    let stack = start().await;
    let nobody = Data::made_up();
    for row in ROWS.iter().filter(|row| !matches!(row.foreign, Foreign::Open | Foreign::Figures)) {
        let (status, said) = asked(request(&stack, row, &nobody, &Asker::Nobody)).await;
        assert_eq!(status, 401, "{} without a token: {said}", row.operation);
        let Some(scope) = row.scope else { continue };
        let others: Vec<Scope> = Scope::ALL.into_iter().filter(|other| !other.covers(scope)).collect();
        let token = stack.token_of("third", &others, None).await;
        for asker in [Asker::Bearer(&token), Asker::Cookie(&cookie_of(&stack, &token).await)] {
            let (status, said) = asked(request(&stack, row, &nobody, &asker)).await;
            assert!(
                status == 403 && said.contains("\"forbidden\""),
                "{} without {scope:?}: {status} {said}",
                row.operation
            );
        }
        let token = stack.token_of("third", &[scope], None).await;
        let (status, said) = asked(request(&stack, row, &nobody, &Asker::Bearer(&token))).await;
        assert!(!matches!(status, 401 | 403), "{} with {scope:?} alone: {status} {said}", row.operation);
    }
}

#[tokio::test]
async fn a_workers_token_opens_no_public_route_and_no_other_token_the_gateway() {
    let stack = start().await;
    let join = stack.join_token(false).await;
    let worker = Worker::join(&stack).await;
    let nobody = Data::made_up();
    for row in ROWS.iter().filter(|row| !matches!(row.foreign, Foreign::Open | Foreign::Figures)) {
        for token in [worker.token(), &join] {
            let (status, said) = asked(request(&stack, row, &nobody, &Asker::Bearer(token))).await;
            assert_eq!(status, 401, "{}: {said}", row.operation);
        }
    }
    let cookie = cookie_of(&stack, &stack.token).await;
    for (method, path) in GATEWAY {
        let path = path.replace("{tenant}", "acme").replace("{name}", "echo").replace("{version}", "1");
        let at = || {
            let request = stack.client.request(method.parse().unwrap(), format!("{}{path}", stack.url));
            request.body(joining("rack").to_string())
        };
        let unauthorized = (401, "unauthorized".to_owned());
        let with_cookie = at().header("cookie", &cookie).header("stokehold-request", "dashboard");
        assert_eq!(stack.problem(with_cookie).await, unauthorized, "{path}");
        assert_eq!(stack.problem(at()).await, unauthorized, "{path}");
        assert_eq!(stack.problem(at().bearer_auth(&stack.token)).await, unauthorized, "{path}");
        let other = if path.ends_with("/join") { worker.token() } else { &join };
        assert_eq!(stack.problem(at().bearer_auth(other)).await, unauthorized, "{path}");
    }
}
