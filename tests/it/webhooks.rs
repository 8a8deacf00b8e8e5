//! Webhooks from the real stack, checked by independent implementations: the official verifiers of Standard Webhooks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use stokehold_tests::stack::{Stack, StackOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::api::{self, Api, root};

/// Response time of a slow receiver.
const SLOW: Duration = Duration::from_secs(2);

/// Maximum number of polls for a delivery, 20 ms each.
const LOOKS: usize = 3_000;

/// A receiver's response. The last plan is repeated.
#[derive(Clone)]
enum Plan {
    Answer(u16),
    SlowAnswer(u16),
    Redirect(String),
}

/// A webhook as received.
#[derive(Clone)]
struct Got {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Got {
    fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    fn event(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        body["type"].as_str().unwrap().to_owned()
    }
}

struct Receiver {
    port: u16,
    plans: Mutex<VecDeque<Plan>>,
    got: Mutex<Vec<Got>>,
}

impl Receiver {
    async fn start(plans: impl IntoIterator<Item = Plan>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plans = Mutex::new(plans.into_iter().collect());
        let receiver = Arc::new(Self { port, plans, got: Mutex::default() });
        let app = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        receiver
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: String) -> Response {
    let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    receiver.got.lock().unwrap().push(Got { headers, body });
    let plan = {
        let mut plans = receiver.plans.lock().unwrap();
        if plans.len() > 1 { plans.pop_front().unwrap() } else { plans[0].clone() }
    };
    let answer = |status| StatusCode::from_u16(status).unwrap().into_response();
    match plan {
        Plan::Answer(status) => answer(status),
        Plan::SlowAnswer(status) => {
            sleep(SLOW).await;
            answer(status)
        }
        Plan::Redirect(to) => (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response(),
    }
}

/// A stack that may send webhooks to these receivers, with short pauses between attempts.
fn stack(receivers: &[&Receiver]) -> (Stack, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let ports: Vec<String> = receivers.iter().map(|receiver| receiver.port.to_string()).collect();
    let env = [
        ("STOKE_WEBHOOK_ALLOW_PRIVATE", "true"),
        ("STOKE_WEBHOOK_ALLOW_HTTP", "true"),
        ("STOKE_WEBHOOK_PORTS", &ports.join(",")),
        ("STOKE_WEBHOOK_WAITS_S", "0.2,0.2,0.2"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let stack = Stack::start(dir.path(), &StackOptions { args: Vec::new(), env });
    let _ = stack.stoke_ok(&["deploy", &api::handler("count.py")]);
    (stack, dir)
}

async fn submit(api: &Api, receiver: &Receiver, events: &[&str]) -> String {
    let body = json!({
        "endpoint": "count", "input": {"to": 1}, "metadata": {"für": "日本 \"\\ </script>"},
        "webhook": receiver.url(), "webhook_events": events,
    });
    let answer = api.request("POST", "/v1/jobs").json(&body).send().await.unwrap();
    let (status, job): (_, Value) = (answer.status(), answer.json().await.unwrap());
    assert_eq!(status, 202, "{job}");
    job["id"].as_str().unwrap().to_owned()
}

fn stoke_json(stack: &Stack, args: &[&str]) -> Value {
    serde_json::from_str(&stack.stoke_ok(&[args, &["--json"]].concat())).unwrap()
}

fn secret(stack: &Stack) -> String {
    stoke_json(stack, &["webhook", "secret"])["secret"].as_str().unwrap().to_owned()
}

/// A job's deliveries, once their number is `wanted` and each has ended.
async fn deliveries(stack: &Stack, api: &Api, job: &str, wanted: usize) -> Vec<Value> {
    let path = format!("/v1/webhooks/deliveries?job={job}");
    for _ in 0..LOOKS {
        let page = api.get(&path).await;
        let found = page["deliveries"].as_array().unwrap();
        if found.len() == wanted && found.iter().all(|one| one["state"] != "pending") {
            return found.clone();
        }
        // No signal crosses processes for this.
        sleep(Duration::from_millis(20)).await;
    }
    panic!("{:#}\n{}", api.get(&path).await, stack.log_tail());
}

/// A delivery's attempts according to its log.
fn story(delivery: &Value) -> Value {
    delivery["tries"].as_array().unwrap().iter().map(|tried| json!([tried["status"], tried["error"]])).collect()
}

/// A webhook and a secret, and whether a verifier must accept it.
fn case(got: &Got, secret: &str, good: bool) -> Value {
    json!({"headers": got.headers, "body": got.body, "type": got.event(), "secret": secret, "good": good})
}

/// The received webhooks, which must be accepted, and forged variants, which must not.
fn cases(got: &[Got], secret: &str) -> Vec<Value> {
    let other = format!("whsec_{}", "A".repeat(43) + "=");
    let mut cases: Vec<Value> = Vec::new();
    for one in got {
        cases.push(case(one, secret, true));
        cases.push(case(one, &other, false));
        let body = one.body.replacen("count", "court", 1);
        assert_ne!(body, one.body);
        cases.push(case(&Got { body, ..one.clone() }, secret, false));
        cases.push(case(&Got { body: format!("{} ", one.body), ..one.clone() }, secret, false));
        let signature = &one.headers["webhook-signature"];
        let timestamp: u64 = one.headers["webhook-timestamp"].parse().unwrap();
        for (name, value) in [
            ("webhook-signature", String::new()),
            ("webhook-signature", "v1,".to_owned()),
            ("webhook-signature", signature.replacen("v1,", "v2,", 2)),
            ("webhook-id", format!("{}x", one.id())),
            ("webhook-timestamp", (timestamp + 1).to_string()),
        ] {
            let mut altered = one.clone();
            altered.headers.insert(name.to_owned(), value);
            cases.push(case(&altered, secret, false));
        }
    }
    cases
}

/// Runs a verifier on the cases. It prints the number of cases that it has checked.
fn judge(cases: &[Value], dir: &Path, command: impl FnOnce(&Path) -> Command) {
    let file = dir.join("cases.json");
    std::fs::write(&file, json!(cases).to_string()).unwrap();
    let output = command(&file).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout), cases.len().to_string());
}

/// Runs the official verifiers for Python and JavaScript, and the JavaScript SDK's own.
fn judge_all(cases: &[Value], dir: &Path) {
    let python = std::env::var("STOKE_TEST_HOOKS_PYTHON").expect("`make it` names a Python with standardwebhooks");
    judge(cases, dir, |file| {
        let mut command = Command::new(&python);
        command.arg(api::handler("../webhooks.py")).arg(file);
        command
    });
    let sdk = root().join("sdk/js/dist/esm/index.js");
    assert!(sdk.exists(), "{} is missing: run `npm run build` in sdk/js", sdk.display());
    judge(cases, dir, |file| {
        let mut command = Command::new("node");
        command.arg(api::handler("../webhooks.mjs")).arg(file).arg(&sdk);
        command
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_receiver_gets_it_in_the_end_and_every_verifier_takes_it() {
    let inside = Receiver::start([Plan::Answer(200)]).await;
    let plans = [Plan::SlowAnswer(503), Plan::Answer(500), Plan::Redirect(inside.url()), Plan::Answer(204)];
    let receiver = Receiver::start(plans).await;
    let (stack, dir) = stack(&[&receiver, &inside]);
    let api = Api::of(&stack);
    let job = submit(&api, &receiver, &["job.completed"]).await;
    let delivery = deliveries(&stack, &api, &job, 1).await.remove(0);
    assert_eq!(delivery["state"], "delivered");
    assert_eq!(story(&delivery), json!([[503, null], [500, null], [307, "redirects are not followed"], [204, null]]));
    let slow_ms = delivery["tries"][0]["duration_ms"].as_u64().unwrap();
    assert!(u128::from(slow_ms) >= SLOW.as_millis(), "{slow_ms} ms");
    assert_eq!(inside.got().len(), 0, "the redirect was not followed");
    let straight = submit(&api, &inside, &["job.completed"]).await;
    let straight = deliveries(&stack, &api, &straight, 1).await.remove(0);
    assert_eq!((&straight["state"], inside.got().len()), (&json!("delivered"), 1), "it could have been");

    let got = receiver.got();
    let id = delivery["id"].as_str().unwrap();
    assert_eq!(got.len(), 4);
    assert!(got.iter().all(|one| one.id() == id && one.body == got[0].body), "one id, one body");
    let said: Value = serde_json::from_str(&got[0].body).unwrap();
    let ended = api.get(&format!("/v1/jobs/{job}")).await;
    assert_eq!((&said["type"], &said["data"]), (&json!("job.completed"), &ended));

    let listed = stoke_json(&stack, &["webhook", "list", "--job", &job]);
    assert_eq!(listed, json!({"deliveries": [delivery]}));
    assert_eq!(stoke_json(&stack, &["webhook", "get", id]), delivery);
    let shown = stack.stoke_ok(&["webhook", "get", id]);
    assert!(shown.contains("delivered") && shown.contains("redirects are not followed"), "{shown}");

    // Every event, of a job that reports progress.
    let all = ["job.started", "job.output", "job.progress", "job.completed"];
    let job = submit(&api, &receiver, &all).await;
    let told = deliveries(&stack, &api, &job, 4).await;
    assert!(told.iter().all(|one| one["state"] == "delivered"), "{told:#?}");
    let got = receiver.got();
    let events: BTreeSet<String> = got.iter().map(Got::event).collect();
    assert_eq!(events, all.map(str::to_owned).into());
    judge_all(&cases(&got, &secret(&stack)), dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_a_replay_and_a_receiver_that_is_gone() {
    let receiver = Receiver::start([Plan::Answer(200), Plan::Answer(200), Plan::Answer(410), Plan::Answer(200)]).await;
    let (stack, dir) = stack(&[&receiver]);
    let api = Api::of(&stack);
    let old = secret(&stack);
    let job = submit(&api, &receiver, &["job.completed"]).await;
    let first = deliveries(&stack, &api, &job, 1).await.remove(0);
    let rotated = stoke_json(&stack, &["webhook", "secret", "--rotate"]);
    let new = rotated["secret"].as_str().unwrap();
    assert!(new != old && rotated["previous"] == old && rotated["previous_until"].is_string(), "{rotated}");

    // The same message again, now signed with both secrets.
    let id = first["id"].as_str().unwrap();
    let replayed = stoke_json(&stack, &["webhook", "replay", id]);
    assert_eq!((&replayed["id"], &replayed["state"]), (&first["id"], &json!("pending")));
    let again = deliveries(&stack, &api, &job, 1).await.remove(0);
    assert_eq!(story(&again), json!([[200, null], [200, null]]));
    let got = receiver.got();
    assert!(got.len() == 2 && got.iter().all(|one| one.id() == id && one.body == got[0].body));
    let mut judged = cases(&got[1..], &old);
    judged.extend(cases(&got[1..], new));
    judged.extend([case(&got[0], &old, true), case(&got[0], new, false)]);

    // This receiver answers that it is gone.
    let job = submit(&api, &receiver, &["job.completed"]).await;
    let disabled = deliveries(&stack, &api, &job, 1).await.remove(0);
    assert_eq!((&disabled["state"], &disabled["next_try_at"]), (&json!("disabled"), &Value::Null));
    assert_eq!(story(&disabled), json!([[410, null]]));
    assert_eq!(stoke_json(&stack, &["webhook", "list", "--state", "disabled"]), json!({"deliveries": [disabled]}));
    let _ = stack.stoke_ok(&["webhook", "replay", disabled["id"].as_str().unwrap()]);
    let back = deliveries(&stack, &api, &job, 1).await.remove(0);
    assert_eq!((&back["state"], story(&back)), (&json!("delivered"), json!([[410, null], [200, null]])));
    judged.extend(receiver.got()[2..].iter().flat_map(|one| [case(one, &old, true), case(one, new, true)]));
    judge_all(&judged, dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_wants_it_is_given_up_after_the_last_try() {
    let receiver = Receiver::start([Plan::Answer(404)]).await;
    let (stack, _dir) = stack(&[&receiver]);
    let api = Api::of(&stack);
    let job = submit(&api, &receiver, &["job.completed"]).await;
    let exhausted = deliveries(&stack, &api, &job, 1).await.remove(0);
    assert_eq!((&exhausted["state"], &exhausted["next_try_at"]), (&json!("exhausted"), &Value::Null));
    assert_eq!(story(&exhausted), json!([[404, null], [404, null], [404, null], [404, null]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_to_the_inside_is_refused_on_submit() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("count.py")]);
    let api = Api::of(&stack);
    for (url, why) in [
        ("http://169.254.169.254/", "must start with https://"),
        ("https://169.254.169.254/", "must resolve to a public address"),
        ("https://[::ffff:10.0.0.1]/", "must resolve to a public address"),
        ("https://2130706433/", "must resolve to a public address"),
        ("https://localhost/", "must resolve to a public address"),
        ("https://example.com:6379/", "must use a port that is allowed for webhooks"),
    ] {
        let body = json!({"endpoint": "count", "input": {"to": 1}, "webhook": url});
        let answer = api.request("POST", "/v1/jobs").json(&body).send().await.unwrap();
        let (status, problem): (_, Value) = (answer.status(), answer.json().await.unwrap());
        assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("invalid_request")), "{url}: {problem}");
        assert_eq!(problem["errors"], json!([{"path": "/webhook", "message": why}]), "{url}");
        let said = stack.stoke(&["submit", "count", "--input", r#"{"to": 1}"#, "--webhook", url]);
        let stderr = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && stderr.contains(why), "{url}: {stderr}");
    }
    // Even in a stack that may send to private addresses, a cloud's link-local metadata address stays out of reach.
    let (stack, _dir) = self::stack(&[&*Receiver::start([Plan::Answer(200)]).await]);
    let url = "http://169.254.169.254/";
    let said = stack.stoke(&["submit", "count", "--input", r#"{"to": 1}"#, "--webhook", url]);
    assert!(!said.status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdk_takes_what_the_official_verifiers_take() {
    let receiver = Receiver::start([Plan::Answer(200)]).await;
    let (stack, dir) = stack(&[&receiver]);
    let api = Api::of(&stack);
    let job = submit(&api, &receiver, &["job.started", "job.output", "job.completed"]).await;
    let _ = deliveries(&stack, &api, &job, 3).await;
    let python = std::env::var("STOKE_TEST_PYTHON").expect("`make it` names a Python with the stokehold wheel");
    judge(&cases(&receiver.got(), &secret(&stack)), dir.path(), |file| {
        let mut command = Command::new(&python);
        command.arg(api::handler("../webhooks_sdk.py")).arg(file);
        command
    });
}
