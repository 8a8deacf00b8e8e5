//! The README and the tutorials, done as a reader would: their files are written under the titles of their blocks, and
//! their commands run in order. The stack of the test runs in place of `stoke dev`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use stokehold_nvml::{FakeGpu, StandIn};
use stokehold_tests::documented::{self, Fence};
use stokehold_tests::stack::Stack;

use crate::api;
use crate::documents::{borrowed, publish, sources, type_in, write};
use crate::weights::Origin;

/// A stand-in for jq where there is none, for the filters of the quickstart.
const JQ: &str = r#"#!/usr/bin/env python3
import json, sys
arguments = [word for word in sys.argv[1:] if word != "-r"]
data = json.load(open(arguments[1]) if len(arguments) > 1 else sys.stdin)
if arguments[0].startswith(".headers | to_entries"):
    print("\n".join(f"{key}: {value}" for key, value in data["headers"].items()))
else:
    value = data[arguments[0][1:]]
    print(value if "-r" in sys.argv else json.dumps(value))
"#;

/// A stand-in for the library of the tutorial, as far as its model uses it.
const TRANSFORMERS: &str = "
import os

class SentenceTransformer:
    def __init__(self, folder):
        assert os.listdir(folder) == ['config.json'], os.listdir(folder)

    def encode(self, texts):
        return Vectors([[float(len(text))] for text in texts])

class Vectors(list):
    def tolist(self):
        return list(self)

def main(): pass
";

/// Someone who reads a page.
pub(crate) struct Reader<'a> {
    stack: &'a Stack,
    page: &'static str,
    pub(crate) folder: PathBuf,
    fences: Vec<Fence>,
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl<'a> Reader<'a> {
    /// Writes the files of the page into `folder`.
    pub(crate) fn of(stack: &'a Stack, folder: &Path, page: &'static str) -> Self {
        let text = fs::read_to_string(api::root().join(page)).unwrap();
        let fences = documented::fences(page, &text);
        for fence in &fences {
            if let Some(title) = fence.title() {
                write(folder, title, &fence.text);
            }
        }
        Self { stack, page, folder: folder.to_owned(), fences, variables: Vec::new() }
    }

    /// The block of shell that contains this text.
    fn block(&self, part: &str) -> String {
        let found = self.fences.iter().find(|fence| fence.language == "sh" && fence.text.contains(part));
        found.unwrap_or_else(|| panic!("{} has no block with {part:?}", self.page)).text.clone()
    }

    /// The blocks of Python that contain this text.
    pub(crate) fn programs(&self, part: &str) -> Vec<String> {
        let is_found = |fence: &&Fence| fence.language == "python" && fence.text.contains(part);
        self.fences.iter().filter(is_found).map(|fence| fence.text.clone()).collect()
    }

    /// Runs the block of shell that contains this text. Returns its output.
    pub(crate) fn run(&self, part: &str) -> String {
        self.shell(&self.block(part))
    }

    /// Runs these lines in a shell. Returns their output.
    pub(crate) fn shell(&self, lines: &str) -> String {
        type_in(self.stack, &self.folder, lines, &self.variables)
    }

    /// Runs a file with this program. Returns its output.
    fn file(&self, program: &str, name: &str) -> String {
        let mut command = Command::new(program);
        command.arg(name).current_dir(&self.folder).env("STOKE_URL", &self.stack.url);
        let output = command.env("STOKE_TOKEN", &self.stack.token).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}: {name}: {}", self.page, text(&output.stderr));
        text(&output.stdout)
    }

    fn python(&self, name: &str) -> String {
        let python = std::env::var("STOKE_TEST_PYTHON").expect("`make test` names a Python with the stokehold wheel");
        self.file(&python, name)
    }

    /// Runs a module of JavaScript with the client of this checkout.
    fn node(&self, name: &str) -> String {
        let modules = self.folder.join("node_modules");
        fs::create_dir_all(&modules).unwrap();
        symlink(api::root().join("sdk/js"), modules.join("stokehold")).unwrap();
        self.file("node", name)
    }

    /// Puts the stand-in for jq on PATH if there is no jq.
    fn with_jq(&self) {
        if Command::new("jq").arg("--version").output().is_err() {
            let path = write(&self.folder, "bin/jq", JQ);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_runs_as_typed() {
    let (stack, dir) = api::stack(&[]);
    let reader = Reader::of(&stack, &dir.path().join("readme"), "README.md");
    let shown = reader.run("stoke deploy greet");
    assert_eq!(shown.matches("Hello, world!").count(), 1, "{shown}");
    let shown = reader.python("call.py");
    assert_eq!(shown.matches("Hello, world!").count(), 2, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_runs_as_typed() {
    let (stack, dir) = api::stack(&[]);
    let reader = Reader::of(&stack, &dir.path().join("quickstart"), "docs/tutorials/quickstart.md");
    reader.with_jq();
    let _ = reader.run("stoke deploy words");
    let expected = ["the", "and", "cat"];
    let shown: Vec<String> = serde_json::from_str(&reader.run("stoke submit words")).unwrap();
    assert_eq!(shown, expected);
    assert_eq!(reader.python("call.py").trim(), "['the', 'and']");
    assert_eq!(reader.node("call.mjs").trim(), "[ 'the', 'and', 'cat' ]");
    // The token that the page creates, instead of that of the stack.
    let typed = reader.block("stoke token create").replace("http://127.0.0.1:7070", &stack.url);
    let typed = format!("{typed}\n{}", reader.block("upload_url"));
    let shown: Vec<String> = serde_json::from_str(&type_in(&stack, &reader.folder, &typed, &reader.variables)).unwrap();
    assert_eq!(shown, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_gpu_model_runs_as_typed() {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let origin = Origin::start();
    origin.put("/org/model/resolve/c0ffee/config.json", b"{}");
    publish(&origin, "sentence_transformers", "5.1.2", TRANSFORMERS);
    let variables = sources(&origin);
    let cards = StandIn::new([FakeGpu::of_mib(24_564)]).unwrap();
    let library = cards.path().to_string_lossy().into_owned();
    let mut worker = borrowed(&variables);
    worker.push(("LD_LIBRARY_PATH", &library));
    let _worker = stack.start_worker("card", &worker);

    let mut reader = Reader::of(&stack, &dir.path().join("gpu"), "docs/tutorials/first-gpu-model.md");
    reader.variables.extend(variables);
    let manifest = fs::read_to_string(reader.folder.join("stoke.toml")).unwrap();
    let manifest = manifest.replace("hf://sentence-transformers/all-MiniLM-L6-v2@main", "hf://org/model@main");
    write(&reader.folder, "embed/stoke.toml", &manifest);
    let shown = reader.run("stoke deploy embed");
    let result = shown.find("\n[").map_or("", |at| &shown[at..]);
    let vectors: Vec<Vec<f64>> = serde_json::from_str(result).unwrap_or_else(|error| panic!("{error}: {shown}"));
    assert_eq!(vectors, [[13.0], [14.0]]);
    let shown = reader.run("A dog barks.");
    assert!(shown.contains("12.0"), "{shown}");
    // The worker reports its models with its next heartbeat.
    let started = Instant::now();
    while !stack.stoke_ok(&["top", "--once"]).contains("embed") {
        assert!(started.elapsed() < Duration::from_secs(60), "{shown}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rented_machine_is_rented_as_typed() {
    let (stack, dir) = api::stack(&["--fake-vast"]);
    let reader = Reader::of(&stack, &dir.path().join("rented"), "docs/tutorials/first-rented-machine.md");
    let shown = reader.run("stoke init greet");
    assert!(shown.contains("\"Hello, world!\""), "{shown}");
    let shown = reader.run("stoke cost --by machine");
    assert!(shown.contains("vast") && shown.contains("ready"), "{shown}");
}
