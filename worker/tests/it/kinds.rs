//! Endpoints that are not a Python function: a server and a command, and how a worker handles their exits.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stokehold_protocol::endpoint::{EndpointSpec, Runner, Server};
use stokehold_protocol::job::ErrorCode;

use crate::stage::{Stage, error, pack, result, spec};

fn program(runner: Runner) -> EndpointSpec {
    let env = BTreeMap::from([("GREETING".to_owned(), "Hello".to_owned())]);
    EndpointSpec { runner, entry: String::new(), env, ..spec("none") }
}

/// Answers with its process ID, its greeting and the input; exits on request.
const SERVER: &str = r#"
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("die"):
            print("out of order", file=sys.stderr, flush=True)
            os.abort()
        self.answer({"pid": os.getpid(), "greeting": os.environ["GREETING"], "asked": asked})

    def answer(self, value):
        body = json.dumps(value).encode()
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
    let server = Server { command, ready_path: "/health".to_owned(), path: Some("/infer".to_owned()), port: None };
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
