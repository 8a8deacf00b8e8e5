//! Traces of jobs: as the API shows them, and as a collector receives them. The exported data is decoded with
//! OpenTelemetry's own types.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use redis::AsyncCommands;
use serde_json::{Value, json};
use stokehold_api::Config;
use stokehold_api::config::{Exporter, Headers, Protocol, Sampler, Traces};
use stokehold_api::token::Scope;
use stokehold_queue::{Clock, ManualClock, now_ms};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::stack::{PATIENCE, Stack, echo};
use crate::worker::Worker;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// Time from a job's end to the export of its trace.
const AFTER_MS: u64 = 2_000;

/// A collector that reports what it received, and answers with the given statuses: the last status is repeated.
struct Collector {
    url: String,
    got: mpsc::UnboundedReceiver<(HeaderMap, Bytes)>,
}

#[derive(Clone)]
struct Answers {
    tell: mpsc::UnboundedSender<(HeaderMap, Bytes)>,
    statuses: std::sync::Arc<std::sync::Mutex<Vec<u16>>>,
}

impl Collector {
    async fn start(statuses: &[u16]) -> Self {
        let (tell, got) = mpsc::unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let mut statuses = statuses.to_vec();
        statuses.reverse();
        let answers = Answers { tell, statuses: std::sync::Arc::new(statuses.into()) };
        let app = Router::new().route("/v1/traces", axum::routing::post(take)).with_state(answers);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, got }
    }

    fn exporter(&self, protocol: Protocol) -> Exporter {
        Exporter {
            url: self.url.parse().unwrap(),
            headers: Headers::default(),
            protocol,
            timeout: Duration::from_secs(5),
            service_name: "under-test".to_owned(),
        }
    }

    /// The spans of the next request, decoded according to its content type.
    async fn next(&mut self) -> Vec<Span> {
        let (headers, body) = timeout(PATIENCE, self.got.recv()).await.expect("a trace comes").unwrap();
        let request = match headers["content-type"].to_str().unwrap() {
            "application/x-protobuf" => ExportTraceServiceRequest::decode(body).unwrap(),
            "application/json" => serde_json::from_slice(&body).unwrap(),
            other => panic!("{other}"),
        };
        spans(request)
    }
}

async fn take(State(answers): State<Answers>, headers: HeaderMap, body: Bytes) -> StatusCode {
    answers.tell.send((headers, body)).unwrap();
    let mut statuses = answers.statuses.lock().unwrap();
    let status = if statuses.len() > 1 { statuses.pop().unwrap() } else { statuses[0] };
    StatusCode::from_u16(status).unwrap()
}

fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn trace_ids(spans: &[Span]) -> BTreeSet<String> {
    spans.iter().map(|span| hex::encode(&span.trace_id)).collect()
}

/// Checks that each span is inside its parent, in time as well. Returns the number of spans by name.
fn sound(spans: &[Span], caller: &str) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for span in spans {
        *names.entry(span.name.clone()).or_default() += 1;
        match spans.iter().find(|other| other.span_id == span.parent_span_id) {
            Some(parent) => assert!(
                parent.start_time_unix_nano <= span.start_time_unix_nano
                    && span.end_time_unix_nano <= parent.end_time_unix_nano,
                "{span:?} in {parent:?}"
            ),
            None => assert_eq!((span.name.as_str(), hex::encode(&span.parent_span_id).as_str()), ("job", caller)),
        }
    }
    names
}

/// An API that exports to this collector, on a clock that the test moves.
struct Rig {
    stack: Stack,
    clock: ManualClock,
    collector: Collector,
}

impl Rig {
    async fn start(collector: Collector, protocol: Protocol) -> Self {
        let clock = ManualClock::new(now_ms());
        let exporter = Some(collector.exporter(protocol));
        let stack = Stack::start_with(|config: &mut Config| {
            config.redis.clock = Clock::Manual(clock.clone());
            config.traces = Traces { exporter, sampler: Sampler::default() };
        })
        .await;
        stack.deploy(echo()).await;
        let rig = Self { stack, clock, collector };
        // From then on the scripts record ended jobs.
        rig.until_claimed().await;
        rig
    }

    async fn until_claimed(&self) {
        let mut redis = self.redis().await;
        let claimed = async {
            while !redis.exists::<_, bool>("{stoke:0}:tracing").await.unwrap() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, claimed).await.expect("the exporter looks for traces");
    }

    async fn redis(&self) -> redis::aio::MultiplexedConnection {
        self.stack.redis.connection().await
    }

    /// Runs a job to its end.
    async fn end_one(&self, traceparent: &str) -> String {
        let job = self.submit(traceparent).await;
        let worker = Worker::join(&self.stack).await;
        let lease = worker.lease().await;
        assert_eq!(lease["job_id"], job.as_str());
        assert_eq!(worker.succeed(&lease, json!("done")).await, "ok");
        job
    }

    async fn submit(&self, traceparent: &str) -> String {
        let body = json!({"endpoint": "echo", "input": {"text": "hi"}});
        let request = self.stack.post("/v1/jobs", &body).header("traceparent", traceparent);
        let job = self.stack.json(request.header("stokehold-called-ms", now_ms() - 25)).await;
        job["id"].as_str().unwrap().to_owned()
    }

    async fn trace(&self, job: &str) -> Vec<Span> {
        let answer = self.stack.json(self.stack.get(&format!("/v1/jobs/{job}/trace"))).await;
        spans(serde_json::from_value(answer).unwrap())
    }

    /// Waits until this number of traces wait in Redis for export.
    async fn until_waiting(&self, wanted: u64) {
        let mut redis = self.redis().await;
        let settled = async {
            while redis.zcard::<_, u64>("{stoke:0}:traces").await.unwrap() != wanted {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, settled).await.expect("as many wait as wanted");
    }
}

#[tokio::test]
async fn a_job_has_its_trace_without_any_collector_and_only_for_its_owner() {
    let stack = Stack::start().await;
    stack.deploy(echo()).await;
    let id = stack.submit("hi").await;
    let path = format!("/v1/jobs/{id}/trace");
    let waiting: ExportTraceServiceRequest = serde_json::from_value(stack.json(stack.get(&path)).await).unwrap();
    assert_eq!(sound(&spans(waiting), ""), [("api.submit", 1), ("job", 1), ("queue.wait", 1)].map(owned).into());

    let worker = Worker::join(&stack).await;
    let lease = worker.lease().await;
    let place: Vec<&str> = lease["traceparent"].as_str().unwrap().split('-').collect();
    assert_eq!((place[0], place[1], place[3]), ("00", id.as_str(), "01"), "a job's own trace has its id");
    assert_eq!(worker.succeed(&lease, json!("done")).await, "ok");

    let shown = stack.json(stack.get(&path)).await;
    let spans = spans(serde_json::from_value(shown.clone()).unwrap());
    assert_eq!(trace_ids(&spans), [id.clone()].into());
    let names = sound(&spans, "");
    for name in ["worker.attempt", "worker.lease", "worker.environment", "runner.load", "runner.run", "worker.upload"] {
        assert_eq!(names.get(name), Some(&1), "{name}");
    }
    let run = spans.iter().find(|span| span.name == "runner.run").unwrap();
    assert_eq!(hex::encode(&run.span_id), place[2], "what the handler was told");
    assert_eq!(stack.json(stack.get(&path)).await, shown, "the same whenever it is asked for");

    let other = stack.token_of("globex", &[Scope::JobsRead], None).await;
    let asked = stack.client.get(format!("{}{path}", stack.url)).bearer_auth(other);
    assert_eq!(stack.problem(asked).await, (404, "not_found".to_owned()));
}

fn owned((name, count): (&str, usize)) -> (String, usize) {
    (name.to_owned(), count)
}

#[tokio::test]
async fn each_trace_reaches_the_collector_once_however_many_replicas_export() {
    let collector = Collector::start(&[503, 200]).await;
    let mut rig = Rig::start(collector, Protocol::Protobuf).await;
    let exporter = rig.collector.exporter(Protocol::Protobuf);
    let _second = rig.stack.replica(|config| config.traces.exporter = Some(exporter)).await;
    let job = rig.end_one(CALLER).await;
    let unsampled = rig.end_one(UNSAMPLED).await;
    rig.clock.advance_ms(AFTER_MS);
    let refused_for_now = rig.collector.next().await;
    let exported = rig.collector.next().await;
    assert_eq!(refused_for_now, exported, "tried again with the very same spans");
    assert_eq!(trace_ids(&exported), [CALLER[3..35].to_owned()].into(), "{unsampled} is not to be recorded");
    let names = sound(&exported, &CALLER[36..52]);
    assert_eq!((names["sdk.submit"], names["runner.run"]), (1, 1));
    assert_eq!(exported, rig.trace(&job).await, "the same as the API shows");
    rig.until_waiting(0).await;
    assert!(rig.collector.got.try_recv().is_err(), "nothing was sent that was not looked at");
}

#[tokio::test]
async fn a_collector_that_refuses_costs_the_trace_and_nothing_else() {
    let collector = Collector::start(&[400, 200]).await;
    let mut rig = Rig::start(collector, Protocol::Json).await;
    rig.end_one(CALLER).await;
    rig.clock.advance_ms(AFTER_MS);
    rig.collector.next().await;
    rig.until_waiting(0).await;
    let second = rig.end_one(CALLER).await;
    rig.clock.advance_ms(AFTER_MS);
    let exported = rig.collector.next().await;
    assert_eq!(exported, rig.trace(&second).await, "the first one is gone, and the second one went as JSON");
    let metrics = rig.stack.get("/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("stokehold_traces_dropped_total{reason=\"refused\"}"), "{metrics}");
}

#[tokio::test]
async fn a_collector_that_is_away_holds_up_no_job_and_gets_nothing_that_is_too_old() {
    let collector = Collector { url: "http://127.0.0.1:9/v1/traces".to_owned(), got: mpsc::unbounded_channel().1 };
    let rig = Rig::start(collector, Protocol::Protobuf).await;
    rig.end_one(CALLER).await;
    rig.clock.advance_ms(AFTER_MS);
    let job = rig.end_one(CALLER).await;
    let shown: Value = rig.stack.job(&job).await;
    assert_eq!(shown["state"], "succeeded");
    // Longer than a claim, and than the limit of attempts: it is claimed once more, and given up.
    rig.clock.advance_ms(11 * 60 * 1000);
    rig.until_waiting(0).await;
}
