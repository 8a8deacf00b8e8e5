//! Packages whose builds explore their environment, and what they find of the worker that builds them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stokehold_tests::stack::Stack;
use tempfile::TempDir;

use crate::api::{self, Api};

/// Creates a source distribution. Its build records what it can reach in the module that it builds.
const CURIOUS: &str = r#"
import io, sys, tarfile
BACKEND = '''
import os, zipfile
def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError as error:
        return type(error).__name__
def write(path):
    try:
        with open(path, "a") as file:
            file.write("x")
        return "written"
    except OSError as error:
        return type(error).__name__
FOUND = {
    "uid": os.getuid(),
    "read": read("@CANARY@"),
    "write": write("@CANARY@"),
    "environments": [read("/proc/" + name + "/environ") for name in os.listdir("/proc") if name.isdigit()],
    "variables": sorted(os.environ),
}
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, info = "curious-1.0-py3-none-any.whl", "curious-1.0.dist-info/"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("curious.py", "FOUND = " + repr(FOUND))
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: curious\\nVersion: 1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
'''
PROJECT = '''
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "curious"
version = "1.0"
'''
INFO = "Metadata-Version: 2.1\nName: curious\nVersion: 1.0\n"
with tarfile.open(sys.argv[1], "w:gz") as sdist:
    for name, text in [("pyproject.toml", PROJECT), ("backend.py", BACKEND), ("PKG-INFO", INFO)]:
        member = tarfile.TarInfo("curious-1.0/" + name)
        member.size = len(text)
        sdist.addfile(member, io.BytesIO(text.encode()))
"#;

const HANDLER: &str = "
import curious
from stokehold import endpoint

@endpoint(name='curious')
def found() -> dict:
    return curious.FOUND
";

/// Serves one file at every path for as long as the test runs.
fn serve(file: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", file.len());
            let _ = stream.write_all(head.as_bytes());
            if !request[..length].starts_with(b"HEAD") {
                let _ = stream.write_all(&file);
            }
        }
    });
    url
}

struct Site {
    stack: Stack,
    dir: TempDir,
    /// URL of the package.
    url: String,
}

impl Site {
    fn new(sandbox: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sdist = dir.path().join("curious-1.0.tar.gz");
        let script = CURIOUS.replace("@CANARY@", dir.path().join("canary").to_str().unwrap());
        assert!(Command::new("python3").args(["-c", &script]).arg(&sdist).status().unwrap().success());
        let url = serve(std::fs::read(&sdist).unwrap());
        // A separate cache: `stoke deploy` has built the package in its own.
        let cache = dir.path().join("cache");
        let mut env = vec![
            ("STOKE_ALLOW_SOURCE_BUILDS", "true"),
            ("STOKE_CACHE_DIR", cache.to_str().unwrap()),
            ("STOKE_PACKAGE_INDEXES", &url),
        ];
        env.extend(sandbox);
        let stack = api::start_with(&dir.path().join("data"), &["--slots", "1"], &env);
        Self { stack, dir, url }
    }

    /// A prison, or `None` where this machine has no bubblewrap.
    #[expect(clippy::print_stderr, reason = "whoever reads the log is to know what was not tested")]
    fn at_l2() -> Option<Self> {
        let bwrap = std::env::var("STOKE_TEST_BWRAP").expect("`make test` says where a bubblewrap is, if there is one");
        if !Path::new(&bwrap).exists() {
            eprintln!("SKIPPED: there is no bubblewrap at {bwrap}");
            return None;
        }
        Some(Self::new(&[("STOKE_SANDBOX", "L2"), ("STOKE_BWRAP", &bwrap)]))
    }

    fn canary(&self) -> PathBuf {
        self.dir.path().join("canary")
    }

    /// The findings of a build on the worker, or the job that ended without a build.
    async fn found(&self) -> Result<Value, Value> {
        std::fs::write(self.canary(), "of the worker").unwrap();
        let folder = self.dir.path().join("curious");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("main.py"), HANDLER).unwrap();
        std::fs::write(folder.join("requirements.txt"), format!("curious @ {}/curious-1.0.tar.gz\n", self.url))
            .unwrap();
        let _ = self.stack.stoke_ok(&["deploy", folder.to_str().unwrap()]);
        // The build of `stoke deploy` may have changed the canary.
        std::fs::write(self.canary(), "of the worker").unwrap();
        let api = Api::of(&self.stack);
        let job = api.submit("curious", json!({})).await;
        let ended = api.ended(&job).await;
        assert_eq!(std::fs::read_to_string(self.canary()).unwrap(), "of the worker");
        if ended["state"] == "succeeded" { Ok(ended["result"].clone()) } else { Err(ended) }
    }
}

fn assert_shut_in(found: &Value) {
    for attempt in ["read", "write"] {
        assert!(found[attempt].as_str().unwrap().ends_with("Error"), "{attempt}: {found}");
    }
    let seen = found.to_string();
    assert!(!seen.contains("of the worker") && !seen.contains("jt_") && !seen.contains("STOKE_JOIN_TOKEN"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_l2_a_build_finds_nothing_of_the_worker() {
    let Some(site) = Site::at_l2() else { return };
    let found = site.found().await.unwrap_or_else(|ended| panic!("{ended}\n{}", site.stack.log_tail()));
    assert_shut_in(&found);
    let uid = found["uid"].as_u64().unwrap();
    // A root worker builds as a user that no handler has.
    assert_eq!((59_000..60_000).contains(&uid), nix::unistd::Uid::effective().is_root(), "{uid}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_l1_a_build_finds_nothing_of_the_worker() {
    let site = Site::new(&[("STOKE_SANDBOX", "L1")]);
    match site.found().await {
        Ok(found) => assert_shut_in(&found),
        // Without a separate user nothing is built there.
        Err(ended) => assert_eq!(ended["error"]["code"], "environment_failed", "{ended}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_environment_shows_no_token() {
    let site = Site::new(&[("STOKE_SANDBOX", "L0")]);
    let worker = site.stack.workers()[0];
    let shown = std::fs::read(format!("/proc/{worker}/environ")).unwrap();
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("STOKE_JOIN_TOKEN=") && !shown.contains("jt_"), "{shown}");
    let _ = site.stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&site.stack);
    let job = api.submit("slow", json!({"n": 1})).await;
    assert_eq!(api.ended(&job).await["state"], "succeeded");
}
