//! Endpoints that are not a Python function: a server and a command, and how a worker handles their exits.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_protocol::endpoint::{EndpointSpec, Runner, Server};
use stokehold_protocol::job::ErrorCode;

use crate::stage::{Setup, Stage, error, pack, result, spec};

fn program(runner: Runner) -> EndpointSpec {
    let env = BTreeMap::from([("GREETING".to_owned(), "Hello".to_owned())]);
    EndpointSpec { runner, entry: String::new(), env, ..spec("none") }
}

/// Answers with its process ID, its greeting and the input; exits on request.
const SERVER: &str = r#"
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        metrics = os.environ.get("METRICS")
        self.answer(open(metrics).read() if metrics and self.path == "/metrics" else "{}")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        while "gate" in asked and not os.path.exists(asked["gate"]):
            time.sleep(0.005)
        if asked.get("die"):
            print("out of order", file=sys.stderr, flush=True)
            os.abort()
        self.answer(json.dumps({"pid": os.getpid(), "greeting": os.environ["GREETING"], "asked": asked}))

    def answer(self, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_started_once_and_again_when_it_has_died() {
    let stage = Stage::single().await;
    let command = ["python", "endpoint.py", "{port}"].map(str::to_owned).into();
    let server =
        Server { command, ready_path: "/health".to_owned(), path: Some("/infer".to_owned()), port: None, busy: None };
    stage.gateway.deploy("serve", pack(SERVER), program(Runner::Server(server)));
    let ask = async |input: Value| stage.gateway.end(&stage.submit_to("serve", input)).await;
    let first = result(&ask(json!({"n": 1})).await);
    assert_eq!((&first["greeting"], &first["asked"]), (&json!("Hello"), &json!({"n": 1})));
    assert_eq!(result(&ask(json!({})).await)["pid"], first["pid"]);
    let died = ask(json!({"die": true})).await;
    let died = error(&died, ErrorCode::RunnerCrashed);
    assert_eq!(died.class, "SIGABRT");
    assert!(died.stderr.as_ref().unwrap().contains("out of order"), "{died:?}");
    assert_ne!(result(&ask(json!({})).await)["pid"], first["pid"]);
}

/// Runs jobs of another endpoint, each of which is followed by a lease call, until the last call did or did not offer
/// the server for one more job.
async fn until_offered(stage: &Stage, is_offered: bool) {
    while stage.gateway.seen().warm.contains(&"serve@1".to_owned()) != is_offered {
        result(&stage.end_of("fine").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_metrics_say_that_it_is_full_is_offered_for_no_more_jobs() {
    let stage = Stage::with(Setup { variables: vec![("STOKE_SLOTS", "2".to_owned())], ..Setup::default() }).await;
    let (metrics, gate) = (stage.dir.path().join("metrics"), stage.signal_file());
    std::fs::write(&metrics, "waiting 1\n").unwrap();
    let command = ["python", "endpoint.py", "{port}"].map(str::to_owned).into();
    let busy = Some("waiting > 0".to_owned());
    let server =
        Server { command, ready_path: "/health".to_owned(), path: Some("/infer".to_owned()), port: None, busy };
    let mut spec = EndpointSpec { max_concurrency: 2, ..program(Runner::Server(server)) };
    spec.env.insert("METRICS".to_owned(), metrics.to_string_lossy().into_owned());
    stage.gateway.deploy("serve", pack(SERVER), spec);
    // Two at once are declared, and one runs.
    let runs = stage.submit_to("serve", json!({"gate": gate}));
    let in_time = |offered| tokio::time::timeout(Duration::from_secs(60), until_offered(&stage, offered));
    in_time(true).await.unwrap();
    in_time(false).await.expect("it is full");
    std::fs::write(&metrics, "waiting 0\n").unwrap();
    in_time(true).await.expect("it has room again, while the job runs");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(result(&stage.gateway.end(&runs).await)["greeting"], "Hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_run_for_each_job_and_its_files_are_stored() {
    let stage = Stage::single().await;
    let script = "import json, os, sys\nasked = json.load(sys.stdin)\nopen(os.environ['STOKE_OUTPUT_DIR'] + '/a.txt', 'w').write(asked['text'])\nprint(os.environ['GREETING'])";
    let command = ["python", "endpoint.py"].map(str::to_owned).into();
    stage.gateway.deploy("write", pack(script), program(Runner::Command { command }));
    let report = stage.gateway.end(&stage.submit_to("write", json!({"text": "words"}))).await;
    let result = result(&report);
    assert_eq!((&result["output"], &result["files"][0]["$file"]), (&json!("Hello\n"), &json!("a.txt")));
    let refused = stage.gateway.end(&stage.submit_to("write", json!({}))).await;
    assert!(error(&refused, ErrorCode::HandlerError).message.contains("KeyError"));
}
