//! The examples of the documentation, run as a reader would: the files and the commands are read from the pages.
//! Engines that cannot be installed here are replaced by stand-ins of the same name and version, from a package index
//! of the test.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use stokehold_nvml::{FakeGpu, StandIn};
use stokehold_tests::documented;
use stokehold_tests::stack::{Stack, stoke_binary};

use crate::api::{self, Api};
use crate::weights::Origin;

/// A stand-in that accepts the arguments of `vllm serve` that the pages use and no others, and answers as its OpenAI
/// server does.
const VLLM: &str = r#"
import argparse, json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_): pass

    def do_GET(self):
        metrics = b"vllm:num_requests_waiting 0.0\nvllm:num_preemptions_total 0.0\n"
        self.say(200 if self.path in ("/health", "/metrics") else 404, "text/plain", metrics)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/chat/completions" or "messages" not in body:
            return self.say(400, "application/json", b'{"error": {"message": "no messages"}}')
        if not body.get("stream"):
            answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"}}]}
            return self.say(200, "application/json", json.dumps(answer).encode())
        chunks = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in ("Hel", "lo", "!")]
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
        self.say(200, "text/event-stream", "".join(lines).encode())

    def say(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def main():
    arguments = argparse.ArgumentParser("vllm")
    serve = arguments.add_subparsers(required=True).add_parser("serve")
    serve.add_argument("model")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    serve.add_argument("--max-model-len", type=int)
    serve.add_argument("--max-num-seqs", type=int)
    serve.add_argument("--max-num-batched-tokens", type=int)
    serve.add_argument("--served-model-name")
    serve.add_argument("--disable-uvicorn-access-log", action="store_true")
    options = arguments.parse_args()
    if not os.path.exists(os.path.join(options.model, "config.json")):
        sys.exit(f"{options.model} holds no model")
    ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()
"#;

/// A stand-in for the page's transcriber, as far as its `stoke.toml` describes it.
const TRANSCRIBER: &str = r#"
import os
import faster_whisper

class Transcriber:
    def setup(self) -> None:
        self.weights = sorted(os.listdir(os.environ["STOKE_WEIGHTS"]))

    def predict(self, audio_s: int, prompt: str = "") -> dict:
        return {
            "weights": self.weights,
            "token": os.environ["HF_TOKEN"],
            "offline": os.environ["HF_HUB_OFFLINE"],
            "engine": faster_whisper.__name__,
        }
"#;

const SERVE: &str = r#"#!/usr/bin/env python3
import sys
sys.argv = ["vllm", "serve", ".", *sys.argv[1:]]
from vllm import main
main()
"#;

/// The fenced blocks of a page in this language, in order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(api::root().join("docs").join(page)).unwrap();
    let found = documented::fences(page, &text).into_iter().filter(|fence| fence.language == language);
    let found: Vec<String> = found.map(|fence| fence.text).collect();
    assert!(!found.is_empty(), "docs/{page} shows no {language}");
    found
}

/// Publishes a wheel of this package in the index of `origin`; the program of the same name is its `main`.
pub(crate) fn publish(origin: &Origin, name: &str, version: &str, source: &str) {
    let script = "import sys, zipfile
wheel, name, version, source = sys.argv[1:]
info = f'{name}-{version}.dist-info'
files = {
    f'{name}/__init__.py': source,
    f'{info}/METADATA': f'Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n',
    f'{info}/WHEEL': 'Wheel-Version: 1.0\\nGenerator: a test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',
    f'{info}/entry_points.txt': f'[console_scripts]\\n{name} = {name}:main\\n',
}
files[f'{info}/RECORD'] = ''.join(f'{path},,\\n' for path in [*files, f'{info}/RECORD'])
with zipfile.ZipFile(wheel, 'w') as archive:
    for path, text in files.items():
        archive.writestr(path, text)";
    let (dir, file) = (tempfile::tempdir().unwrap(), format!("{name}-{version}-py3-none-any.whl"));
    let wheel = dir.path().join(&file);
    let made = Command::new("python3").args(["-c", script]).arg(&wheel).args([name, version, source]).status();
    assert!(made.unwrap().success());
    let project = name.replace('_', "-");
    origin.put(&format!("/simple/{project}/"), format!("<a href=\"{file}\">{file}</a>").as_bytes());
    origin.put(&format!("/simple/{project}/{file}"), &fs::read(wheel).unwrap());
}

/// Environment variables with `origin` as the only package index and model hub.
pub(crate) fn sources(origin: &Origin) -> Vec<(&'static str, String)> {
    vec![("UV_DEFAULT_INDEX", format!("{}/simple/", origin.url)), ("HF_ENDPOINT", origin.url.clone())]
}

pub(crate) fn borrowed<'a>(variables: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// Runs these lines in a shell in `folder`. Returns their output.
pub(crate) fn type_in(stack: &Stack, folder: &Path, lines: &str, variables: &[(&'static str, String)]) -> String {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let _ = symlink(stoke_binary(), bin.join("stoke"));
    let path = std::env::join_paths(
        std::iter::once(bin).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let output = Command::new("sh")
        .args(["-e", "-c", lines])
        .current_dir(folder)
        .env("PATH", path.unwrap())
        .env("STOKE_URL", &stack.url)
        .env("STOKE_TOKEN", &stack.token)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{lines}\n{}\n{}", text(&output.stderr), stack.log_tail());
    text(&output.stdout)
}

/// The words of a streamed answer of the stand-in for vLLM.
fn streamed(result: &Value) -> String {
    let items = result.as_array().into_iter().flatten();
    items.filter_map(|item| item["choices"][0]["delta"]["content"].as_str()).collect()
}

/// Deploys the first `stoke.toml` of a page, for a worker with one GPU, and runs the first shell block of the page that
/// contains this text. Returns what the block printed.
fn with_vllm(page: &str, version: &str, part: &str) -> String {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let origin = Origin::start();
    origin.put("/Qwen/Qwen3-8B/resolve/c0ffee/config.json", b"{}");
    publish(&origin, "vllm", version, VLLM);
    let variables = sources(&origin);
    let cards = StandIn::new([FakeGpu::of_mib(24_564)]).unwrap();
    let library = cards.path().to_string_lossy().into_owned();
    let mut worker = borrowed(&variables);
    worker.push(("LD_LIBRARY_PATH", &library));
    let _worker = stack.start_worker("card", &worker);

    let chat = dir.path().join("chat");
    write(&chat, "stoke.toml", &blocks(page, "toml")[0]);
    let _ = type_in(&stack, dir.path(), "stoke deploy chat", &variables);
    let block = blocks(page, "sh").into_iter().find(|block| block.contains(part)).unwrap();
    type_in(&stack, dir.path(), &block, &variables)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_vllm_example_serves_the_job_that_the_page_submits() {
    let shown = with_vllm("how-to/servers.md", "0.11.0", "stoke submit chat");
    assert_eq!(streamed(&serde_json::from_str(&shown).unwrap()), "Hello!", "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_vllm_are_those_of_an_endpoint_that_runs() {
    let shown = with_vllm("how-to/vllm.md", "0.33.0", "/metrics");
    assert!(shown.contains("vllm:num_preemptions_total"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_model_runs_as_the_page_has_it() {
    let (stack, dir) = api::stack(&[]);
    let shown = type_in(&stack, dir.path(), &blocks("how-to/deploy-a-model.md", "sh")[0], &[]);
    assert_eq!(shown.matches("Hello, world!").count(), 2, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_stoke_toml_of_the_page_is_accepted_and_runs() {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let origin = Origin::start();
    origin.put("/org/model/resolve/c0ffee/model.bin.json", b"{}");
    publish(&origin, "vllm", "0.11.0", VLLM);
    publish(&origin, "faster_whisper", "1.2.0", "def main(): pass\n");
    let mut variables = sources(&origin);
    variables.push(("HF_TOKEN", "hf_canary".to_owned()));
    let card = FakeGpu { name: "NVIDIA GeForce RTX 4090".to_owned(), ..FakeGpu::of_mib(24_564) };
    let cards = StandIn::new([card]).unwrap();
    let library = cards.path().to_string_lossy().into_owned();
    let mut worker = borrowed(&variables);
    worker.extend([("LD_LIBRARY_PATH", library.as_str()), ("STOKE_SANDBOX", "auto"), ("STOKE_SLOTS", "4")]);
    let _worker = stack.start_worker("card", &worker);
    let check = api::root().join("sdk/examples/prompt-check");
    let _ = stack.stoke_ok(&["deploy", &check.to_string_lossy()]);
    let _ = type_in(&stack, dir.path(), "printf hf_canary | stoke secret set HF_TOKEN", &variables);

    let [model, server] = &blocks("how-to/deploy-a-model.md", "toml")[..] else { panic!("two files are shown") };
    let python = Command::new("python3").args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).output();
    let python = String::from_utf8(python.unwrap().stdout).unwrap();
    // Uses the installed Python: another version would be downloaded.
    let model = model.replace("python = \"3.11\"", &format!("python = \"{}\"", python.trim()));
    let folder = dir.path().join("transcribe");
    write(&folder, "main.py", TRANSCRIBER);
    write(&folder, "stoke.toml", &model);
    let _ = type_in(&stack, dir.path(), "stoke deploy transcribe", &variables);
    let api = Api::of(&stack);
    assert_eq!(api.get("/v1/endpoints/transcribe").await["demands"]["regions"], json!(["eu"]));
    // A worker on this machine has no region.
    let here: String =
        model.lines().filter(|line| !line.starts_with("regions")).flat_map(|line| [line, "\n"]).collect();
    write(&folder, "stoke.toml", &here);
    let _ = type_in(&stack, dir.path(), "stoke deploy transcribe", &variables);
    let job = api.submit("transcribe", json!({"audio_s": 3, "prompt": "a quiet harbour"})).await;
    let job = api.ended(&job).await;
    let expected = json!({
        "weights": ["model.bin.json"], "token": "hf_canary", "offline": "1", "engine": "faster_whisper",
    });
    assert_eq!(job["result"], expected, "{job}");
    assert_eq!(job["steps"][0]["name"], "prompt-check", "{job}");

    let folder = dir.path().join("served");
    write(&folder, "stoke.toml", &server.replace("kind =", "requirements = [\"vllm==0.11.0\"]\nkind ="));
    write(&folder, "config.json", "{}");
    write(&folder, "input.schema.json", r#"{"type": "object", "required": ["messages"]}"#);
    write(&folder, "output.schema.json", r#"{"type": "object"}"#);
    let program = write(&folder, "serve", SERVE);
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    let _ = type_in(&stack, dir.path(), "stoke deploy served", &variables);
    let job = api.ended(&api.submit("served", json!({"messages": []})).await).await;
    assert_eq!(job["result"]["choices"][0]["message"]["content"], "Hello!", "{job}");
}
