//! A secret from `stoke secret set` to the handler that names it, and nowhere else: a canary that is searched for
//! everywhere.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use stokehold_tests::stack::Stack;

use crate::api::{self, Api};

const CANARY: &str = "canary-7d41e0b96c";

fn set(stack: &Stack, name: &str, value: &str) -> String {
    let mut command = stack.command(&["secret", "set", name]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("stoke starts");
    writeln!(child.stdin.take().unwrap(), "{value}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// A folder with this handler, which names these secrets.
fn folder(at: &Path, handler: &str, manifest: &str) -> String {
    fs::create_dir_all(at).unwrap();
    fs::copy(api::handler(handler), at.join("main.py")).unwrap();
    fs::write(at.join("stoke.toml"), manifest).unwrap();
    at.to_string_lossy().into_owned()
}

fn refusal(stack: &Stack, args: &[&str]) -> String {
    let output = stack.stoke(args);
    assert!(!output.status.success(), "{args:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

/// The files below `folder` that contain the canary.
fn holders(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let bytes = fs::read(entry.path()).unwrap_or_default();
                if bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()) {
                    found.push(entry.path().display().to_string());
                }
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_reaches_the_handler_that_names_it_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let stack = api::start_with(&data, &[], &[("STOKE_SANDBOX", "auto"), ("RUST_LOG", "debug,hyper=info,h2=info")]);
    let package = folder(&dir.path().join("secretive"), "secretive.py", "secrets = [\"API_TOKEN\"]\n");
    let said = refusal(&stack, &["deploy", &package]);
    assert!(said.contains("stoke secret set API_TOKEN"), "{said}");
    assert!(set(&stack, "API_TOKEN", CANARY).starts_with("set API_TOKEN"));
    let _ = set(&stack, "OTHER_TOKEN", CANARY);
    let _ = stack.stoke_ok(&["deploy", &package]);
    assert!(stack.stoke_ok(&["secret", "list"]).contains("secretive"));

    let api = Api::of(&stack);
    let end = async |how: &str| api.ended(&api.submit("secretive", json!({"how": how})).await).await;
    let looked = end("look").await;
    let backwards: String = CANARY.chars().rev().collect();
    assert_eq!(looked["result"], json!({"backwards": backwards, "others": [], "is_in_proc": false}));

    let printed = end("print").await;
    let id = printed["id"].as_str().unwrap();
    let log = stack.stoke(&["logs", id]);
    let log = String::from_utf8([log.stdout, log.stderr].concat()).unwrap();
    assert!(log.matches("***").count() >= 3 && !log.contains(&CANARY[..6]), "{log}");
    assert!(log.contains("it is ***"), "{log}");
    let raised = end("raise").await;
    assert_eq!(raised["error"]["message"], "*** was refused", "{raised}");
    assert!(raised["error"]["traceback"].as_str().unwrap().contains("*** was refused"), "{raised}");
    let died = end("exit").await;
    assert!(died["error"]["stderr"].as_str().unwrap().contains("dying with ***"), "{died}");

    // Redis' files, the object store, the worker's scratch space, its environments, and the output of all of them.
    assert_eq!(holders(&data), Vec::<String>::new());
    let said = stack.log();
    assert!(said.contains("secret set") && !said.contains(CANARY));
    for answer in ["/v1/secrets", "/v1/endpoints/secretive", "/v1/jobs?limit=100", "/metrics"] {
        let text = api.request("GET", answer).send().await.unwrap().text().await.unwrap();
        assert!(!text.contains(CANARY), "{answer}");
    }
    assert_eq!(holders(&data), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_stays_loaded_gets_them_and_one_that_is_gone_is_said_to_be() {
    let (stack, dir) = api::stack(&[]);
    let _ = set(&stack, "API_TOKEN", CANARY);
    let package = folder(&dir.path().join("a"), "secretive.py", "secrets = [\"API_TOKEN\"]\nmin_warm = 1\n");
    let _ = stack.stoke_ok(&["deploy", &package]);
    let api = Api::of(&stack);
    let loaded = async || {
        let workers = api.get("/v1/workers").await;
        workers["workers"].to_string().contains("secretive@1")
    };
    while !loaded().await {
        // No signal crosses processes for this.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let _ = stack.stoke_ok(&["secret", "delete", "API_TOKEN"]);
    let package = folder(&dir.path().join("b"), "secretive.py", "name = \"other\"\nsecrets = [\"API_TOKEN\"]\n");
    assert!(refusal(&stack, &["deploy", &package]).contains("stoke secret set API_TOKEN"));
    let _ = set(&stack, "API_TOKEN", CANARY);
    let _ = stack.stoke_ok(&["deploy", &package]);
    let _ = stack.stoke_ok(&["secret", "delete", "API_TOKEN"]);
    let end = api.ended(&api.submit("other", json!({"how": "look"})).await).await;
    assert_eq!(end["error"]["code"], "setup_failed", "{end}");
    assert!(end["error"]["message"].as_str().unwrap().contains("stoke secret set API_TOKEN"), "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_have_them_as_variables_and_stoke_run_takes_them_from_its_own() {
    let (stack, dir) = api::stack(&[]);
    let _ = set(&stack, "API_TOKEN", CANARY);
    let folder = dir.path().join("count");
    fs::create_dir(&folder).unwrap();
    let manifest = "name = \"count\"\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo ${#API_TOKEN}; echo $API_TOKEN >&2\"]\nsecrets = [\"API_TOKEN\"]\n";
    fs::write(folder.join("stoke.toml"), manifest).unwrap();
    let folder = folder.to_str().unwrap();
    let _ = stack.stoke_ok(&["deploy", folder]);
    let shown: Value = serde_json::from_str(&stack.stoke_ok(&["submit", "count", "--input", "{}", "--wait"])).unwrap();
    assert_eq!(shown["output"], CANARY.len());
    let said = refusal(&stack, &["run", folder, "--input", "{}"]);
    assert!(said.contains("set the variable API_TOKEN"), "{said}");
    let run = stack.command(&["run", folder, "--input", "{}"]).env("API_TOKEN", "four").output().unwrap();
    let shown: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(shown["output"], 4, "{}", String::from_utf8_lossy(&run.stderr));
}
