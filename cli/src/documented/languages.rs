//! Blocks of Python, JavaScript and JSON.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{fences, report};

/// Compiles each block on standard input, and looks for what it imports from `stokehold` and calls on a client.
const PYTHON: &str = include_str!("names.py");

#[test]
fn every_block_of_python_compiles_and_uses_names_that_exist() {
    let python = std::env::var("STOKE_TEST_PYTHON").expect("`make test` names a Python with the stokehold wheel");
    let blocks: Vec<Value> =
        fences("python").iter().map(|fence| json!({"place": fence.place(), "text": fence.text})).collect();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/python/src");
    let mut child = Command::new(python)
        .args(["-c", PYTHON])
        .arg(sources)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json!(blocks).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the check ended with {}", output.status);
    let faults: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
    report(&faults);
}

#[test]
fn every_block_of_javascript_is_a_module() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Vec::new();
    for (n, fence) in fences("js").iter().enumerate() {
        let path = folder.path().join(format!("{n}.mjs"));
        fs::write(&path, &fence.text).unwrap();
        let output = Command::new("node").arg("--check").arg(&path).output().unwrap();
        if !output.status.success() {
            faults.push(format!("{}: {}", fence.place(), String::from_utf8_lossy(&output.stderr)));
        }
    }
    report(&faults);
}

#[test]
fn every_block_of_json_is_json() {
    let faults: Vec<String> = fences("json")
        .iter()
        .filter_map(|fence| {
            let error = serde_json::from_str::<Value>(&fence.text).err()?;
            Some(format!("{}: {error}", fence.place()))
        })
        .collect();
    report(&faults);
}
