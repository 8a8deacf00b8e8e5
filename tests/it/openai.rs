//! `/openai/v1` with a real engine: llama.cpp's HTTP server on the CPU, and the official client of OpenAI.

use std::fs;
use std::path::Path;
use std::process::Command;

use stokehold_tests::stack::Stack;
use tempfile::TempDir;

use crate::api;

/// A Python with the engine and the client.
pub(crate) fn python() -> String {
    std::env::var("STOKE_TEST_OPENAI_PYTHON").expect("`make test` names a Python with llama.cpp and OpenAI's client")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Writes the folder of an endpoint whose server is the engine, with 8 slots. One more job may run, which reads the
/// engine's state. Returns its path.
pub(crate) fn engine(dir: &Path, name: &str, options: &str, arguments: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/engine");
    let folder = dir.join(name);
    fs::create_dir(&folder).unwrap();
    fs::copy(source.join("server.py"), folder.join("server.py")).unwrap();
    run(Command::new(python()).arg(source.join("model.py")).arg(folder.join("model.gguf")));
    let python = python();
    let toml = format!(
        "name = \"{name}\"\nkind = \"server\"\ncommand = [\"{python}\", \"server.py\", \"{{port}}\"{arguments}]\n\
         max_concurrency = 9\n{options}\n"
    );
    fs::write(folder.join("stoke.toml"), toml).unwrap();
    folder.to_string_lossy().into_owned()
}

/// A stack with two slots and the endpoints that the clients call: `chat`, `vectors`, `embed` and `draw`.
fn stack_with_engines() -> (Stack, TempDir) {
    let (stack, dir) = api::stack(&["--slots", "2"]);
    let chat = engine(dir.path(), "chat", "max_attempts = 1\nopenai = \"chat\"\nopenai_models = [\"gpt-4o-mini\"]", "");
    let vectors = engine(dir.path(), "vectors", "max_attempts = 1\nopenai = \"embeddings\"", ", \"embeddings\"");
    for folder in [chat, vectors, api::handler("../engine/embed.py"), api::handler("../engine/draw.py")] {
        let _ = stack.stoke_ok(&["deploy", &folder]);
    }
    (stack, dir)
}

/// Runs a program that has OpenAI's client, configured by the environment as its documentation describes.
fn run_client(stack: &Stack, program: &str, script: &str) {
    let mut client = Command::new(program);
    client.arg(api::handler(script)).env("STOKE_URL", &stack.url);
    client.env("OPENAI_BASE_URL", format!("{}/openai/v1", stack.url)).env("OPENAI_API_KEY", &stack.token);
    // LiteLLM otherwise fetches prices from the internet when it is imported.
    client.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    let output = client.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}\n{}", text(&output.stdout), text(&output.stderr), stack.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_python_client_works_with_a_real_engine_behind_the_queue() {
    let (stack, _dir) = stack_with_engines();
    run_client(&stack, &python(), "../openai_client.py");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_javascript_client_litellm_and_langchain_work() {
    let (stack, _dir) = stack_with_engines();
    run_client(&stack, "node", "../openai-js/client.mjs");
    run_client(&stack, &python(), "../openai_frameworks.py");
}
