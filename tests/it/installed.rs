//! The published wheels in an environment with only Python: nothing else is on PATH, and the home folder is empty. The
//! tests make the wheels from the debug build; `make test-wheels` names those of `make wheels` in `STOKE_TEST_WHEELS`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use stokehold_tests::process;
use stokehold_tests::stack::stoke_binary;
use tempfile::TempDir;

use crate::api::root;

const GREET: &str = r#"
from stokehold import endpoint, progress


@endpoint(name="greet", vram_gib=0)
class Greet:
    def setup(self) -> None:
        self.greeting = "Hello"

    def predict(self, name: str, times: int = 1) -> list[str]:
        progress(0.5, "half way")
        return [f"{self.greeting}, {name}!"] * times
"#;

/// A program of a user, which finds the stack through the credentials that `stoke dev` wrote.
const PROGRAM: &str = r#"
from stokehold import Client

with Client() as client:
    job = client.submit("greet", {"name": "world", "times": 2})
    print(job.result(timeout=60))
"#;

/// The same in the wheel without compiled code, which cannot deploy.
const PURE: &str = r#"
import importlib.util
import sys

import stokehold
from stokehold import Client, DeployError

assert stokehold.__file__.startswith(sys.argv[1]), stokehold.__file__
assert importlib.util.find_spec("stokehold._wire") is None
with Client() as client:
    print(client.submit("greet", {"name": "world", "times": 2}).result(timeout=60))
    try:
        client.deploy("greet")
    except DeployError as error:
        assert "stoke deploy" in str(error), error
    else:
        raise AssertionError("deployed without the compiled part")
"#;

/// The npm package in a folder of its own, with the address and the token in the environment.
const MODULE: &str = r#"
import { Stokehold } from "stokehold";

const job = await new Stokehold().submit("greet", { name: "world" });
console.log(JSON.stringify(await job.result({ timeoutS: 60 })));
"#;

/// Variables of the network and of package indexes, which a user's machine has too.
const KEPT: [&str; 14] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "PIP_CERT",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
];

/// An environment of Python, a home folder, and the wheels.
struct Machine {
    folder: TempDir,
    wheels: PathBuf,
}

/// A started program. Dropping it kills it and everything that it started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let children = process::descendants(self.0.id());
        let _ = self.0.kill();
        for (pid, _) in children {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

impl Machine {
    /// Installs the wheel, as a user does.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("home")).unwrap();
        let wheels = match std::env::var_os("STOKE_TEST_WHEELS") {
            Some(wheels) => wheels.into(),
            None => published(&folder.path().join("wheels")),
        };
        let machine = Self { folder, wheels };
        let uv = std::env::var("STOKE_UV").expect("`make test` names a uv");
        run(Command::new(uv).args(["venv", "--quiet", "--seed", "--python", "python3"]).arg(machine.environment()));
        let wheel = machine.package(&format!("{}.whl", std::env::consts::ARCH));
        run(machine.python().args(["-m", "pip", "install", "--quiet"]).arg(wheel));
        machine
    }

    fn environment(&self) -> PathBuf {
        self.folder.path().join("environment")
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The package whose name ends so.
    fn package(&self, end: &str) -> PathBuf {
        let mut files = fs::read_dir(&self.wheels).unwrap().map(|entry| entry.unwrap().path());
        let found = files.find(|path| path.to_string_lossy().ends_with(end));
        found.unwrap_or_else(|| panic!("{} has no {end}", self.wheels.display()))
    }

    /// A program of the environment.
    fn program(&self, name: &str) -> Command {
        let bin = self.environment().join("bin");
        let mut command = Command::new(bin.join(name));
        command.env_clear().envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env("PATH", &bin).env("HOME", self.home()).current_dir(self.home()).stdin(Stdio::null());
        command
    }

    fn stoke(&self, arguments: &[&str]) -> Command {
        let mut command = self.program("stoke");
        command.args(arguments);
        command
    }

    fn python(&self) -> Command {
        self.program("python")
    }

    fn deploy_greet(&self) {
        fs::create_dir(self.home().join("greet")).unwrap();
        fs::write(self.home().join("greet/main.py"), GREET).unwrap();
        let deployed = run(&mut self.stoke(&["deploy", "greet"]));
        assert!(deployed.contains("deployed greet@1"), "{deployed}");
    }

    /// Starts `stoke dev` and waits until it is ready.
    fn dev(&self) -> Running {
        let log = self.folder.path().join("dev.log");
        let mut dev = self.stoke(&["dev", "--listen", "127.0.0.1:0"]);
        let mut child = dev.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let running = Running(child);
        assert!(lines.any(|line| line.trim() == "ready"), "{}", fs::read_to_string(&log).unwrap());
        std::thread::spawn(move || lines.for_each(drop));
        running
    }
}

/// Makes the published wheels of the debug build.
fn published(out: &Path) -> PathBuf {
    let built = root().join("target/wheels");
    let mut files = fs::read_dir(&built).unwrap().map(|entry| entry.unwrap().path());
    let runner = files.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    let mut publish = Command::new("python3");
    publish.arg(root().join("sdk/python/tools/wheels.py")).args(["publish", "--strip", "--level", "0", "--runner"]);
    publish.arg(runner.unwrap_or_else(|| panic!("no wheel in {}: run `make wheel`", built.display())));
    run(publish.arg("--stoke").arg(stoke_binary()).arg("--out").arg(out));
    out.to_owned()
}

/// Runs a command to success and returns its standard output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout
}

#[test]
fn the_wheel_alone_serves_the_first_example() {
    let machine = Machine::new();
    let _dev = machine.dev();
    machine.deploy_greet();
    let submitted = run(&mut machine.stoke(&["submit", "greet", "--input", r#"{"name": "world"}"#, "--wait"]));
    let result: Value = serde_json::from_str(&submitted).unwrap();
    assert_eq!(result, serde_json::json!(["Hello, world!"]));
    let greeted = "['Hello, world!', 'Hello, world!']";
    assert_eq!(run(machine.python().args(["-c", PROGRAM])).trim(), greeted);

    // An environment of handlers contains: the runner, not another `stoke`.
    let environments = machine.home().join(".cache/stokehold/envs");
    let stray = fs::read_dir(environments).unwrap().map(|entry| entry.unwrap().path().join("bin/stoke"));
    assert_eq!(stray.filter(|path| path.exists()).count(), 0);

    let pure = machine.folder.path().join("pure");
    let mut install = machine.python();
    install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&pure);
    run(install.arg(machine.package("none-any.whl")));
    let mut program = machine.python();
    program.env("PYTHONPATH", &pure).args(["-c", PURE]).arg(&pure);
    assert_eq!(run(&mut program).trim(), greeted);
}

#[test]
#[ignore = "the release build's wheels: `make test-wheels`"]
fn the_wheel_alone_runs_the_demo() {
    let machine = Machine::new();
    let demo: Value = serde_json::from_str(&run(&mut machine.stoke(&["demo", "--json"]))).unwrap();
    let jobs = demo["jobs"].as_array().unwrap();
    assert!(jobs.len() == 12 && jobs.iter().all(|job| job["state"] == "succeeded"), "{demo}");
}

#[test]
#[ignore = "the npm package of a release: `make test-wheels`"]
fn the_npm_package_alone_submits_a_job() {
    let machine = Machine::new();
    let _dev = machine.dev();
    machine.deploy_greet();
    let credentials = fs::read(machine.home().join(".config/stokehold/credentials.json")).unwrap();
    let credentials: Value = serde_json::from_slice(&credentials).unwrap();
    let folder = machine.folder.path().join("module");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("main.mjs"), MODULE).unwrap();
    let mut npm = Command::new("npm");
    run(npm.args(["install", "--silent", "--no-audit", "--no-fund"]).arg(machine.package(".tgz")).current_dir(&folder));
    let mut node = Command::new("node");
    node.arg("main.mjs").current_dir(&folder);
    for (variable, name) in [("STOKE_URL", "url"), ("STOKE_TOKEN", "token")] {
        node.env(variable, credentials[name].as_str().unwrap());
    }
    assert_eq!(run(&mut node).trim(), r#"["Hello, world!"]"#);
}
