//! One job's trace from an application's own span to the receiver of its webhook, through the built binaries.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use stokehold_tests::stack::{Stack, StackOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::api::{self, Api};

/// Maximum number of polls, 20 ms each.
const LOOKS: usize = 3_000;

/// The `traceparent` headers of the received webhooks, by webhook.
type Got = Arc<Mutex<BTreeMap<String, String>>>;

async fn receiver() -> (u16, Got) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let got = Got::default();
    let app = Router::new().fallback(receive).with_state(Arc::clone(&got));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (port, got)
}

async fn receive(State(got): State<Got>, headers: HeaderMap) {
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    got.lock().unwrap().insert(text("webhook-id"), text("traceparent"));
}

fn stack(port: u16) -> (Stack, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let env = [
        ("STOKE_WEBHOOK_ALLOW_PRIVATE", "true"),
        ("STOKE_WEBHOOK_ALLOW_HTTP", "true"),
        ("STOKE_WEBHOOK_PORTS", &port.to_string()),
        ("STOKE_LOG_FORMAT", "json"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let stack = Stack::start(dir.path(), &StackOptions { args: Vec::new(), env });
    let _ = stack.stoke_ok(&["deploy", &api::handler("traced.py")]);
    (stack, dir)
}

/// A span in OTLP/JSON.
#[derive(Debug)]
struct Span {
    trace_id: String,
    id: String,
    parent: String,
    name: String,
    start: u64,
    end: u64,
    attributes: Value,
}

fn spans(trace: &Value) -> Vec<Span> {
    let scopes = trace["resourceSpans"][0]["scopeSpans"].as_array().unwrap();
    let spans = scopes.iter().flat_map(|scope| scope["spans"].as_array().unwrap());
    let read = |span: &Value| {
        let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
        Span {
            trace_id: text("traceId"),
            id: text("spanId"),
            parent: text("parentSpanId"),
            name: text("name"),
            start: text("startTimeUnixNano").parse().unwrap(),
            end: text("endTimeUnixNano").parse().unwrap(),
            attributes: span["attributes"].clone(),
        }
    };
    spans.map(read).collect()
}

/// The trace of a job, once its webhook is delivered.
async fn trace_of(stack: &Stack, job: &str) -> Vec<Span> {
    for _ in 0..LOOKS {
        let delivery = Api::of(stack).get(&format!("/v1/webhooks/deliveries?job={job}")).await;
        if delivery["deliveries"][0]["state"] == "delivered" {
            return spans(&serde_json::from_str(&stack.stoke_ok(&["get", job, "--trace", "--json"])).unwrap());
        }
        // No signal crosses processes for this.
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the webhook of {job} was not delivered\n{}", stack.log_tail());
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

fn is_warm(span: &Span) -> bool {
    span.attributes.as_array().unwrap().contains(&json!({"key": "stokehold.warm", "value": {"boolValue": true}}))
}

/// The trace and the span that a `traceparent` names.
fn place(traceparent: &str) -> (&str, &str) {
    let words: Vec<&str> = traceparent.split('-').collect();
    assert_eq!((words.len(), words[0], words[3]), (4, "00", "01"), "{traceparent}");
    (words[1], words[2])
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_an_applications_span_to_the_receiver_of_the_webhook() {
    let (port, got) = receiver().await;
    let (stack, _dir) = stack(port);
    let python = std::env::var("STOKE_TEST_OTEL_PYTHON").expect("`make test` names a Python with OpenTelemetry's SDK");
    let mut application = Command::new(python);
    application.arg(api::handler("../tracing.py")).arg(format!("http://127.0.0.1:{port}/hook"));
    let output = application.env("STOKE_URL", &stack.url).env("STOKE_TOKEN", &stack.token).output().unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), stack.log_tail());
    let told: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();

    for (number, told) in told.iter().enumerate() {
        let text = |name: &str| told[name].as_str().unwrap();
        let spans = trace_of(&stack, text("job")).await;
        for span in &spans {
            assert_eq!(span.trace_id, text("trace_id"), "{span:?}");
            if let Some(parent) = spans.iter().find(|parent| parent.id == span.parent) {
                assert!(parent.start <= span.start && span.end <= parent.end, "{span:?} in {parent:?}");
            } else {
                assert_eq!((span.name.as_str(), span.parent.as_str()), ("job", text("span_id")));
            }
        }
        let parts = [
            "sdk.submit",
            "api.submit",
            "queue.wait",
            "worker.attempt",
            "worker.lease",
            "worker.environment",
            "runner.boot",
            "runner.load",
            "runner.run",
            "worker.upload",
            "worker.report",
            "webhook.deliver",
            "webhook.try",
        ];
        for part in parts {
            let _ = named(&spans, part);
        }
        assert_eq!(is_warm(named(&spans, "runner.boot")), number > 0, "the second one found a runner");
        assert_eq!(place(text("handler")), (text("trace_id"), named(&spans, "runner.run").id.as_str()));
        let webhook = got.lock().unwrap()[&format!("msg_{}_completed", text("job"))].clone();
        assert_eq!(place(&webhook), (text("trace_id"), named(&spans, "webhook.deliver").id.as_str()));
    }

    let shown = stack.stoke_ok(&["get", "--trace", told[0]["job"].as_str().unwrap()]);
    assert!(shown.starts_with(&format!("trace {}", told[0]["trace_id"].as_str().unwrap())), "{shown}");
    assert!(shown.contains("    worker.environment"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_about_a_job_name_it_and_its_trace() {
    let (port, _got) = receiver().await;
    let (stack, _dir) = stack(port);
    let _ = stack.stoke(&["submit", "traced", "--input", r#"{"text":""}"#, "--wait"]);
    let jobs = Api::of(&stack).get("/v1/jobs?state=failed").await;
    let id = jobs["jobs"][0]["id"].as_str().unwrap();
    let log = stack.log();
    let line = log.lines().find(|line| line.contains("attempt failed")).expect("the worker tells of a failed attempt");
    let line: Value = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
    assert_eq!(line["fields"]["job.id"], id, "{line}");
    // A job without a caller's trace has the trace of its own id.
    assert_eq!((&line["span"]["job.id"], &line["span"]["trace.id"]), (&json!(id), &json!(id)), "{line}");
}
