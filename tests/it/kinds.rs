//! Endpoints of every kind, from a folder to a result: the templates of `stoke init`, unmodified Cog and RunPod code, a
//! real Triton.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use stokehold_tests::stack::Stack;
use stokehold_tests::{meeting, process};

use crate::api::{self, Api, attempts};

fn write(folder: &Path, files: &[(&str, &str)]) -> String {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder.to_string_lossy().into_owned()
}

/// Runs a job to its end with `stoke submit --wait`.
fn result(stack: &Stack, endpoint: &str, input: &Value) -> Value {
    let shown = stack.stoke_ok(&["submit", endpoint, "--input", &input.to_string(), "--wait"]);
    serde_json::from_str(&shown).unwrap()
}

/// The error of `stoke`.
fn refusal(stack: &Stack, arguments: &[&str]) -> String {
    let output = stack.stoke(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_init_writes_runs_on_this_machine_and_deployed() {
    let dir = tempfile::tempdir().unwrap();
    let stack = api::start_with(dir.path(), &[], &[("STOKE_SANDBOX", "auto")]);
    let input = json!({"name": "world"});
    for (kind, expected) in [
        ("python", json!(["Hello, world!"])),
        ("cog", json!("Hello, world!")),
        ("runpod", json!("Hello, world!")),
        ("server", json!("Hello, world!")),
        ("command", json!({"output": "Hello, world!", "files": [{"$file": "name.txt"}]})),
    ] {
        let folder = dir.path().join(kind);
        let folder = folder.to_str().unwrap();
        let _ = stack.stoke_ok(&["init", folder, "--kind", kind]);
        assert!(refusal(&stack, &["init", folder, "--kind", kind]).contains("already exists"));
        let here: Value =
            serde_json::from_str(&stack.stoke_ok(&["run", folder, "--input", &input.to_string()])).unwrap();
        assert_eq!(here, expected, "{kind}");
        let _ = stack.stoke_ok(&["deploy", folder]);
        let there = result(&stack, kind, &input);
        assert_eq!(there["output"], expected["output"], "{kind}");
        if kind != "command" {
            assert_eq!(there, expected, "{kind}");
        }
    }
}

/// Deploys each folder with the Python SDK. Returns the names and versions.
fn deployed_by_the_sdk(stack: &Stack, packages: &Path, folders: &[String]) -> Vec<String> {
    const SCRIPT: &str = "import sys, stokehold
with stokehold.Client() as client:
    for folder in sys.argv[1:]:
        endpoint = client.deploy(folder)
        print(f'{endpoint.name}@{endpoint.version}')";
    let python = std::env::var("STOKE_TEST_PYTHON").expect("`make test` names a Python with the stokehold wheel");
    // The SDK imports handlers in the calling Python.
    let uv = std::env::var("STOKE_UV").expect("`make test` names a uv");
    let install = ["pip", "install", "--quiet", "--python", &python, "cog", "runpod", "--target"];
    assert!(Command::new(uv).args(install).arg(packages).status().unwrap().success());
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).args(folders).env("STOKE_URL", &stack.url).env("STOKE_TOKEN", &stack.token);
    let output = command.env("PYTHONPATH", packages).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cli_and_the_python_sdk_deploy_the_same_version() {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let (mut folders, mut names) = (Vec::new(), Vec::new());
    for kind in ["python", "cog", "runpod", "server", "command"] {
        let folder = dir.path().join(kind).to_string_lossy().into_owned();
        let _ = stack.stoke_ok(&["init", &folder, "--kind", kind]);
        folders.push(folder);
        names.push(format!("{kind}@1"));
    }
    let handler = ("src/main.py", "def f(n: int) -> int:\n    return n\n");
    let toml = "name = \"all\"\nhandler = \"src/main.py:f\"\nvram_gib = 2\ngpus = 2\nrequirements = [\"six\"]\n\
                [env]\nMODE = \"fast\"\n[[weights]]\nsource = \"file:models\"\n";
    let files = [handler, ("stoke.toml", toml), ("models/a.safetensors", "weights"), ("models/b.json", "{}")];
    folders.push(write(&dir.path().join("all"), &files));
    names.push("all@1".to_owned());
    for (folder, name) in folders.iter().zip(&names) {
        let version: Value = serde_json::from_str(&stack.stoke_ok(&["deploy", folder, "--json"])).unwrap();
        assert_eq!(&format!("{}@{}", version["name"].as_str().unwrap(), version["version"]), name);
    }
    assert_eq!(deployed_by_the_sdk(&stack, &dir.path().join("packages"), &folders), names, "no version is new");
    for (folder, name) in folders.iter().zip(&names) {
        let shown = stack.stoke_ok(&["deploy", folder]);
        assert!(shown.contains(&format!("deployed {name} (unchanged)")), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_the_file_is_shown_where_it_is() {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let handler = ("main.py", "from stokehold import endpoint\n\n@endpoint\ndef f(n: int) -> int: return n\n");
    let folder = write(dir.path().join("wrong").as_path(), &[handler, ("stoke.toml", "name = \"f\"\nvram_gb = 3\n")]);
    let said = refusal(&stack, &["deploy", &folder]);
    assert!(said.contains("stoke.toml") && said.contains("line 2, column 1"), "{said}");
    assert!(said.contains("did you mean `vram_gib`?"), "{said}");
    // The client checks only what the file alone decides; the API checks the rest.
    let _ = write(Path::new(&folder), &[("stoke.toml", "name = \"F\"\n")]);
    assert!(refusal(&stack, &["deploy", &folder]).contains("/name"), "{said}");
    let said = refusal(&stack, &["run", &folder, "--input", "{\"n\": \"one\"}"]);
    assert!(said.contains("input.n"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_with_clashing_libraries_run_side_by_side_in_one_worker() {
    let (stack, dir) = api::stack(&["--slots", "2"]);
    let meeting = meeting::folder().unwrap();
    let gate = meeting.path().join("gate");
    meeting::pipe(&gate).unwrap();
    // Each job can open the pipe only while the other does.
    let source = |mode: &str| {
        format!(
            "import numpy\nfrom stokehold import endpoint\n\n@endpoint\ndef f(gate: str) -> str:\n    open(gate, {mode:?}).close()\n    return numpy.__version__\n"
        )
    };
    for (name, numpy, mode) in [("old", "numpy==1.26.4", "r"), ("new", "numpy==2.4.0", "w")] {
        let folder = write(&dir.path().join(name), &[("main.py", &source(mode)), ("requirements.txt", numpy)]);
        let _ = stack.stoke_ok(&["deploy", &folder, "--name", name]);
    }
    let api = Api::of(&stack);
    let mut jobs = Vec::new();
    for name in ["old", "new"] {
        jobs.push(api.submit(name, json!({"gate": gate})).await);
    }
    let (old, new) = (api.ended(&jobs[0]).await, api.ended(&jobs[1]).await);
    assert_eq!((&old["result"], &new["result"]), (&json!("1.26.4"), &json!("2.4.0")), "{old}\n{new}");
}

/// Returns the number of its jobs that ran at once, or reports progress ten times per second.
const RUNPOD: &str = r#"
import asyncio
import runpod

running = most = 0
all_four = asyncio.Event()

async def handler(job):
    global running, most
    steps = job["input"].get("steps", 0)
    for step in range(1, steps + 1):
        runpod.serverless.progress_update(job, f"step {step}/{steps}")
        await asyncio.sleep(0.1 if step < steps else 0)
    if steps:
        return steps
    running += 1
    most = max(most, running)
    if running == 4:
        all_four.set()
    try:
        await asyncio.wait_for(all_four.wait(), 20)
    except asyncio.TimeoutError:
        pass
    running -= 1
    return most

runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: 4})
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_runpod_script_needs_no_setting_to_run_jobs_at_once_and_all_of_its_progress_arrives() {
    let (stack, dir) = api::stack(&["--slots", "4"]);
    let folder = write(&dir.path().join("burst"), &[("handler.py", RUNPOD)]);
    let _ = stack.stoke_ok(&["deploy", &folder, "--kind", "runpod", "--handler", "handler.py"]);
    let api = Api::of(&stack);
    let long = api.submit("burst", json!({"steps": 15})).await;
    let story = api.request("GET", &format!("/v1/jobs/{long}/events")).send().await.unwrap().text().await.unwrap();
    let told: Vec<&str> =
        story.lines().filter_map(|line| line.split_once("\"message\":\"step ")?.1.split('/').next()).collect();
    let steps: Vec<String> = (1..=15).map(|step| step.to_string()).collect();
    assert_eq!(told, steps, "{story}");

    let jobs = api.submit_many("burst", (0..4).map(|_| json!({"steps": 0}))).await;
    for job in &jobs {
        assert_eq!(api.ended(job).await["result"], 4);
    }
}

/// The first attempt waits until it is killed; the second finds the first one's mark.
const SLOW_ONCE: &str = r#"
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        gate = os.environ["GATE"]
        if not os.path.exists(gate + ".begun"):
            open(gate + ".begun", "w").close()
            with open(gate, "w") as file:
                file.write("here")
            while True:
                open(gate, "r").read()
        tensor = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SUM", tensor + 1)])]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_real_triton_answers_and_when_it_dies_it_is_started_again_and_the_job_with_it() {
    let (stack, dir) = api::stack(&[]);
    let tensor = |name: &str, data: [f32; 2]| json!({"name": name, "shape": [2], "datatype": "FP32", "data": data});
    let input = json!({"inputs": [tensor("A", [1.0, 2.0]), tensor("B", [10.0, 20.0])]});
    let example = api::root().join("sdk/examples/triton");
    let _ = stack.stoke_ok(&["deploy", example.to_str().unwrap()]);
    assert_eq!(result(&stack, "triton-add", &input)["outputs"][0]["data"], json!([11.0, 22.0]));

    let meeting = meeting::folder().unwrap();
    let gate = meeting.path().join("gate");
    meeting::pipe(&gate).unwrap();
    let read = |name: &str| fs::read_to_string(example.join(name)).unwrap();
    let toml = format!("{}\n[env]\nGATE = {gate:?}\n", read("stoke.toml").replace("triton-add", "slow-once"));
    let files = [
        ("stoke.toml", toml.as_str()),
        ("serve.py", &read("serve.py")),
        ("models/add/config.pbtxt", &read("models/add/config.pbtxt")),
        ("models/add/1/model.py", SLOW_ONCE),
    ];
    let _ = stack.stoke_ok(&["deploy", &write(&dir.path().join("slow-once"), &files)]);
    let api = Api::of(&stack);
    let job = api.submit("slow-once", input).await;
    let waiting = gate.clone();
    assert_eq!(tokio::task::spawn_blocking(move || fs::read_to_string(waiting)).await.unwrap().unwrap(), "here");
    // Both Tritons have the same process name; the backend of this one has its own folder.
    let tritons = stack.children("/bin/tritonserver");
    assert!(!tritons.is_empty());
    for triton in tritons {
        process::signal(triton, nix::sys::signal::Signal::SIGKILL);
    }
    let ended = api.ended(&job).await;
    assert_eq!(ended["result"]["outputs"][0]["data"], json!([2.0, 3.0]), "{ended}");
    assert_eq!(attempts(&ended)[0]["error"]["code"], "runner_crashed", "{ended}");
    assert_eq!(attempts(&ended).len(), 2, "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_tried_on_a_part_of_the_jobs_and_taken_back() {
    let (stack, dir) = api::stack(&[]);
    let source = |says: &str| format!("def f() -> str:\n    return {says:?}\n");
    let folder = |says: &str| {
        let files = [("main.py", source(says)), ("stoke.toml", "name = \"say\"\nhandler = \"main.py:f\"\n".to_owned())];
        write(&dir.path().join(says), &files.each_ref().map(|(name, text)| (*name, text.as_str())))
    };
    let _ = stack.stoke_ok(&["deploy", &folder("first")]);
    let _ = stack.stoke_ok(&["deploy", &folder("second"), "--traffic", "0"]);
    let says = || result(&stack, "say", &json!({}));
    assert_eq!(says(), "first");
    assert_eq!(result(&stack, "say@2", &json!({})), "second");
    let _ = stack.stoke_ok(&["endpoint", "traffic", "say@2"]);
    assert_eq!(says(), "second");
    let diff = stack.stoke_ok(&["endpoint", "diff", "say"]);
    assert!(diff.contains("say@1 -> @2") && diff.contains("package_sha256"), "{diff}");
    let _ = stack.stoke_ok(&["endpoint", "rollback", "say"]);
    assert_eq!(says(), "first");
    assert!(refusal(&stack, &["endpoint", "rollback", "say"]).contains("current before say@1"));
}

/// Returns its process id; with a gate, opens the gate and never answers.
const PATIENT_SERVER: &str = r#"
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"{}")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "gate" in asked:
            # The beginning of a stream: HTTP/1.0, so that its end is the connection's.
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            with open(asked["gate"], "w") as gate:
                gate.write("here")
            self.connection.recv(1)
        else:
            self.answer(json.dumps(os.getpid()).encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_does_not_cost_the_server() {
    let (stack, dir) = api::stack(&[]);
    let meeting = meeting::folder().unwrap();
    let gate = meeting.path().join("gate");
    meeting::pipe(&gate).unwrap();
    let toml = "name = \"patient\"\nkind = \"server\"\ncommand = [\"python\", \"serve.py\", \"{port}\"]\n[server]\npath = \"/\"\n";
    let files = [("stoke.toml", toml), ("serve.py", PATIENT_SERVER)];
    let _ = stack.stoke_ok(&["deploy", &write(&dir.path().join("patient"), &files)]);
    let process = result(&stack, "patient", &json!({}));
    let api = Api::of(&stack);
    let job = api.submit("patient", json!({"gate": gate})).await;
    let waiting = gate.clone();
    assert_eq!(tokio::task::spawn_blocking(move || fs::read_to_string(waiting)).await.unwrap().unwrap(), "here");
    let _ = stack.stoke_ok(&["cancel", &job]);
    assert_eq!(result(&stack, "patient", &json!({})), process);
}

#[tokio::test(flavor = "multi_thread")]
async fn stoke_run_shows_what_setup_prints() {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let handler = "from stokehold import endpoint\n\n@endpoint\nclass F:\n    def setup(self) -> None:\n        print('loading the model')\n    def predict(self) -> int:\n        print('at work')\n        return 1\n";
    let folder = write(dir.path().join("loud").as_path(), &[("main.py", handler)]);
    let output = stack.stoke(&["run", &folder, "--input", "{}"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("loading the model") && said.contains("at work"), "{said}");
}
