//! `/openai/v1` with a real engine: llama.cpp's HTTP server on the CPU, and the official client of OpenAI.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::api;

/// A Python with the engine and the client.
fn python() -> String {
    std::env::var("STOKE_TEST_OPENAI_PYTHON").expect("`make test` names a Python with llama.cpp and OpenAI's client")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Writes the folder of an endpoint whose server is the engine. Returns its path.
fn engine(dir: &Path, name: &str, options: &str, arguments: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/engine");
    let folder = dir.join(name);
    fs::create_dir(&folder).unwrap();
    fs::copy(source.join("server.py"), folder.join("server.py")).unwrap();
    run(Command::new(python()).arg(source.join("model.py")).arg(folder.join("model.gguf")));
    let python = python();
    let toml = format!(
        "name = \"{name}\"\nkind = \"server\"\ncommand = [\"{python}\", \"server.py\", \"{{port}}\"{arguments}]\n\
         max_concurrency = 8\nmax_attempts = 1\n{options}\n"
    );
    fs::write(folder.join("stoke.toml"), toml).unwrap();
    folder.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_client_works_with_a_real_engine_behind_the_queue() {
    let (stack, dir) = api::stack(&["--slots", "2"]);
    let chat = engine(dir.path(), "chat", "openai = \"chat\"\nopenai_models = [\"gpt-4o-mini\"]", "");
    let vectors = engine(dir.path(), "vectors", "openai = \"embeddings\"", ", \"embeddings\"");
    for folder in [chat, vectors, api::handler("../engine/embed.py")] {
        let _ = stack.stoke_ok(&["deploy", &folder]);
    }
    let mut client = Command::new(python());
    client.arg(api::handler("../openai_client.py")).env("STOKE_URL", &stack.url);
    client.env("OPENAI_BASE_URL", format!("{}/openai/v1", stack.url)).env("OPENAI_API_KEY", &stack.token);
    let output = client.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}\n{}", text(&output.stdout), text(&output.stderr), stack.log_tail());
}
