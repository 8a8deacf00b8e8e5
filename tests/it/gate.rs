//! A version is judged before it gets jobs, by the script that pipelines call.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use stokehold_tests::stack::Stack;

use crate::api::{self, Api};

/// A handler that multiplies by `factor` (0: raises), in a separate file.
fn handler(folder: &Path, factor: u32) -> String {
    let text = include_str!("gate/double.py");
    let changed = text.replace("FACTOR = 2", &format!("FACTOR = {factor}"));
    assert!(factor == 2 || changed != text);
    let path = folder.join("double.py");
    std::fs::write(&path, changed).unwrap();
    path.to_string_lossy().into_owned()
}

/// Runs `deploy/ci/release.sh` as a pipeline does.
fn release(stack: &Stack, folder: &Path, token: &str, factor: u32, options: &[&str]) -> Output {
    let stoke = stack.command(&[]);
    let mut script = std::process::Command::new(api::root().join("deploy/ci/release.sh"));
    let path = std::env::join_paths(
        std::iter::once(Path::new(stoke.get_program()).parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    for (name, value) in stoke.get_envs() {
        value.map(|value| script.env(name, value));
    }
    script
        .env("PATH", path.unwrap())
        .env("STOKE_TOKEN", token)
        .arg(handler(folder, factor))
        .arg(folder.join("cases.jsonl"))
        .args(options);
    script.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_gets_jobs_only_when_it_is_good_enough() {
    let (stack, dir) = api::stack(&[]);
    let token = stack.stoke_ok(&["token", "create", "--name", "ci", "--role", "deploy,submit,cancel"]);
    let cases: String = (1..=20).map(|n| json!({"input": {"n": n}}).to_string() + "\n").collect();
    std::fs::write(dir.path().join("cases.jsonl"), cases).unwrap();
    let api = Api::of(&stack);
    let traffic = async || api.get("/v1/endpoints/double/traffic").await["versions"].clone();
    let judge = format!("python3 {}", api::root().join("tests/it/gate/judge.py").display());

    // The first version of an endpoint has no predecessor that could keep the jobs, and is promoted like any other.
    let release = |factor, options: &[&str]| release(&stack, dir.path(), token.trim(), factor, options);
    let first = release(2, &["--check", &judge, "--max-p95", "60s", "--json"]);
    assert!(first.status.success(), "{}", said(&first));
    let verdict: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(
        (&verdict["passed"], &verdict["lines"], &verdict["checks"][0]["measured"]),
        (&json!(true), &json!(20), &json!(1.0))
    );
    assert!(verdict["checks"][1]["measured"].is_number(), "{verdict}");
    assert_eq!(traffic().await, json!([{"version": 1, "percent": 100}]));
    let rated = api.get("/v1/feedback?endpoint=double").await;
    assert_eq!((&rated["versions"][0]["rated"], &rated["versions"][0]["accepted"]), (&json!(20), &json!(20)));

    // The version answers with wrong results: only the check detects it.
    let junit = dir.path().join("gate.xml");
    let wrong = release(3, &["--check", &judge, "--junit", junit.to_str().unwrap()]);
    assert!(!wrong.status.success(), "{}", said(&wrong));
    assert!(said(&wrong).contains("line 1: not accepted: wants 2"), "{}", said(&wrong));
    assert!(
        said(&wrong).contains("double@2 failed the gate: lines passed 0.0 %, at least 100.0 %"),
        "{}",
        said(&wrong)
    );
    assert!(std::fs::read_to_string(&junit).unwrap().contains("failures=\"1\""));
    assert_eq!(traffic().await, json!([{"version": 1, "percent": 100}]), "the version before keeps the jobs");

    // A canary that raises loses its traffic.
    let _ = stack.stoke_ok(&["deploy", &handler(dir.path(), 0), "--traffic", "25"]);
    assert_eq!(traffic().await.as_array().unwrap().len(), 2);
    let broken = release(0, &["--min-success", "0.5"]);
    assert!(said(&broken).contains("handler_error: this version is broken"), "{}", said(&broken));
    assert_eq!(traffic().await, json!([{"version": 1, "percent": 100}]));

    // Only the judge has changed: the current version stays current, and does not give way to a version that was found
    // wrong.
    let _ = stack.stoke_ok(&["endpoint", "traffic", "double@3"]);
    let again = release(0, &[]);
    assert!(!again.status.success() && said(&again).contains("double@3 failed the gate"), "{}", said(&again));
    assert_eq!(traffic().await, json!([{"version": 3, "percent": 100}]));
    // A rollback requested by name returns to the previously current version, not to the previous number.
    let cases = dir.path().join("cases.jsonl");
    let back = ["gate", "--endpoint", "double", "--version", "3", "--batch", cases.to_str().unwrap(), "--roll-back"];
    assert!(!stack.stoke(&back).status.success());
    assert_eq!(traffic().await, json!([{"version": 1, "percent": 100}]));

    // Invalid lines and a missing version are no verdict on a version.
    std::fs::write(dir.path().join("wrong.jsonl"), "{\"input\": {\"n\": \"one\"}}\n").unwrap();
    let gate = |version: &str, cases: &str| {
        let cases = dir.path().join(cases);
        stack.stoke(&[
            "gate",
            "--endpoint",
            "double",
            "--version",
            version,
            "--batch",
            cases.to_str().unwrap(),
            "--roll-back",
        ])
    };
    let wrong = gate("1", "wrong.jsonl");
    assert!(!wrong.status.success() && said(&wrong).contains("line 1: "), "{}", said(&wrong));
    let none = gate("99", "cases.jsonl");
    assert!(!none.status.success() && said(&none).contains("99"), "{}", said(&none));
    assert_eq!(traffic().await, json!([{"version": 1, "percent": 100}]));
}

#[test]
fn the_samples_of_pipelines_call_the_script_with_options_that_there_are() {
    let root = api::root().join("deploy/ci");
    let jenkins = std::fs::read_to_string(root.join("Jenkinsfile")).unwrap();
    let github = std::fs::read_to_string(root.join("github-workflow.yml")).unwrap();
    let call = |text: &str| {
        let from = text.find("deploy/ci/release.sh ./greet").unwrap();
        text[from..].split(['\'', '\n']).next().unwrap().to_owned()
    };
    assert_eq!(call(&jenkins), call(&github));
    let options = call(&github).replace("deploy/ci/release.sh ./greet cases.jsonl", "");
    let gate = ["gate", "--endpoint", "greet", "--version", "1", "--batch", "/nowhere/cases.jsonl"];
    let asked = std::process::Command::new(stokehold_tests::stack::stoke_binary())
        .args(gate)
        .args(options.split_whitespace())
        .env("STOKE_TOKEN", "none")
        .output()
        .unwrap();
    // The options were accepted: only the file is missing.
    assert!(said(&asked).contains("/nowhere/cases.jsonl"), "{}", said(&asked));
}
