//! Packages that run code of their own: their permissions while their environment is built, and afterwards.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::json;
use sha2::{Digest, Sha256};
use stokehold_nvml::{FakeGpu, StandIn};
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::FinishReport;
use stokehold_protocol::job::ErrorCode;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::stage::{Setup, Stage, error, pack, result, spec};

/// A package source: a wheel and a source distribution of `wicked`, at unique URLs.
struct Shelf {
    folder: TempDir,
    url: String,
    server: JoinHandle<()>,
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.server.abort();
    }
}

const WHEEL: &str = "wicked-1.0-py3-none-any.whl";
const SDIST: &str = "wicked-1.0.tar.gz";

impl Shelf {
    /// `script` creates these packages in its working directory. [`Self::said`] reads what it writes to `LOG`.
    async fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = script.replace("@LOG@", folder.path().join("log").to_str().unwrap());
        let made = Command::new("python3").args(["-c", &script]).current_dir(folder.path()).status().unwrap();
        assert!(made.success());
        let file = |name: &str| Bytes::from(std::fs::read(folder.path().join(name)).unwrap_or_default());
        let (wheel, sdist) = (file(WHEEL), file(SDIST));
        let router = Router::new()
            .route(&format!("/{WHEEL}"), get(move || async move { wheel }))
            .route(&format!("/{SDIST}"), get(move || async move { sdist }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { folder, url, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The setting that allows workers to fetch from it.
    fn listed(&self) -> (&'static str, &str) {
        ("STOKE_PACKAGE_INDEXES", &self.url)
    }

    fn requirement(&self, file: &str) -> String {
        let sha256 = hex::encode(Sha256::digest(std::fs::read(self.path(file)).unwrap()));
        format!("wicked @ {}/{file} --hash=sha256:{sha256}\n", self.url)
    }

    /// Deploys an endpoint that requires it and runs a job of it.
    async fn job(&self, stage: &Stage, file: &str) -> FinishReport {
        let requirements_lock = self.requirement(file);
        stage.gateway.deploy("wicked", pack(HANDLER), EndpointSpec { requirements_lock, ..spec("report") });
        stage.gateway.end(&stage.submit_to("wicked", json!({}))).await
    }

    /// Command lines of the Python processes that ran its code.
    fn command_lines(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

const HANDLER: &str = "
import wicked
from stokehold import endpoint

@endpoint(name='wicked')
def report() -> str:
    return wicked.NAME
";

/// A wheel that runs code at each start of a Python that has it, in two ways.
const AT_EACH_START: &str = r#"
import zipfile
line = "import sys; open('@LOG@', 'a').write(' '.join(sys.orig_argv).replace('\\n', ';') + '\\n')"
info = "wicked-1.0.dist-info/"
with zipfile.ZipFile("wicked-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("wicked.py", "NAME = 'wicked'\n")
    wheel.writestr("wicked.pth", line + "\n")
    wheel.writestr("sitecustomize.py", line + "\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: wicked\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "")
"#;

/// A wheel that reports the location of its Python, and so what its sandbox can read.
const NAMES_ITS_PYTHON: &str = r#"
import zipfile
info = "wicked-1.0.dist-info/"
with zipfile.ZipFile("wicked-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("wicked.py", "NAME = 'wicked'\n")
    wheel.writestr("wicked-1.0.data/data/pyvenv.cfg", "home = /root/bin\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: wicked\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "")
"#;

/// A source distribution: building it runs its own code, which records the run.
const IS_BUILT: &str = r#"
import io, tarfile
BACKEND = '''
import zipfile
open("@LOG@", "a").write("built\\n")
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, info = "wicked-1.0-py3-none-any.whl", "wicked-1.0.dist-info/"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("wicked.py", "NAME = 'built'\\n")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: wicked\\nVersion: 1.0\\n")
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
name = "wicked"
version = "1.0"
'''
INFO = "Metadata-Version: 2.1\nName: wicked\nVersion: 1.0\n"
with tarfile.open("wicked-1.0.tar.gz", "w:gz") as sdist:
    for name, text in [("pyproject.toml", PROJECT), ("backend.py", BACKEND), ("PKG-INFO", INFO)]:
        member = tarfile.TarInfo("wicked-1.0/" + name)
        member.size = len(text)
        sdist.addfile(member, io.BytesIO(text.encode()))
"#;

async fn stage(variables: &[(&'static str, &str)]) -> Stage {
    let mut all = vec![("STOKE_SLOTS", "1".to_owned())];
    all.extend(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
    Stage::with(Setup { variables: all, ..Setup::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_package_runs_at_a_start_the_runner_alone_runs() {
    let shelf = Shelf::new(AT_EACH_START).await;
    let stage = stage(&[shelf.listed()]).await;
    assert_eq!(result(&shelf.job(&stage, WHEEL).await), "wicked");
    let said = shelf.command_lines();
    assert!(said.iter().any(|start| start.ends_with("-m stokehold.runner serve")), "{said:?}");
    assert!(said.iter().all(|start| start.ends_with("-m stokehold.runner serve")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tries_a_gpu_out_has_no_package_of_anybody() {
    let shelf = Shelf::new(AT_EACH_START).await;
    let gpus = StandIn::new([FakeGpu::of_mib(24_576)]).unwrap();
    let stage = stage(&[("STOKE_NVML_LIBRARY", gpus.library().to_str().unwrap()), shelf.listed()]).await;
    let source = include_str!("handlers/gpu.py").replace("@CLAIMS@", gpus.claims().to_str().unwrap());
    let on_gpu = EndpointSpec { vram_gib: 4.0, requirements_lock: shelf.requirement(WHEEL), ..spec("Model") };
    stage.gateway.deploy("gpu", pack(&source), on_gpu);
    let crashed = stage.gateway.end(&stage.submit_to("gpu", json!({"mib": 100, "how": "crash"}))).await;
    error(&crashed, ErrorCode::RunnerExited);
    // Starts after the GPU test.
    result(&stage.gateway.end(&stage.submit_to("gpu", json!({"mib": 100}))).await);
    let said = shelf.command_lines();
    assert!(said.len() >= 2 && said.iter().all(|start| start.ends_with("-m stokehold.runner serve")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_does_not_determine_where_python_is() {
    let shelf = Shelf::new(NAMES_ITS_PYTHON).await;
    let stage = stage(&[shelf.listed()]).await;
    let report = shelf.job(&stage, WHEEL).await;
    let refused = error(&report, ErrorCode::EnvironmentFailed);
    assert!(refused.message.contains("\"pyvenv.cfg\""), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_are_built_only_where_the_operator_allows_it() {
    let shelf = Shelf::new(IS_BUILT).await;
    let report = shelf.job(&stage(&[shelf.listed()]).await, SDIST).await;
    let refused = error(&report, ErrorCode::EnvironmentFailed);
    assert!(refused.message.contains("STOKE_ALLOW_SOURCE_BUILDS"), "{refused:?}");
    assert_eq!(shelf.command_lines(), [""; 0]);
    let built = shelf.job(&stage(&[("STOKE_ALLOW_SOURCE_BUILDS", "true"), shelf.listed()]).await, SDIST).await;
    assert_eq!(result(&built), "built");
    assert!(!shelf.command_lines().is_empty());
}

/// The API may accept more than this worker's operator allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_asks_no_server_for_packages_that_its_own_list_has_not() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let router = Router::new().fallback(move || async move {
        count.fetch_add(1, Ordering::SeqCst);
        StatusCode::NOT_FOUND
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    for (listed, is_asked) in [(None, false), (Some(url.as_str()), true)] {
        let listed: Vec<_> = listed.map(|url| ("STOKE_PACKAGE_INDEXES", url)).into_iter().collect();
        let stage = stage(&listed).await;
        for option in ["--index-url", "--extra-index-url"] {
            let requirements_lock = format!("{option} {url}/simple\nno-such-package-of-ours==1.17.0\n");
            let elsewhere = EndpointSpec { requirements_lock, ..spec("report") };
            stage.gateway.deploy(&format!("elsewhere{option}"), pack(HANDLER), elsewhere);
            let report = stage.gateway.end(&stage.submit_to(&format!("elsewhere{option}"), json!({}))).await;
            // Final: another attempt would fail in the same way.
            let refused = &error(&report, ErrorCode::EnvironmentFailed).message;
            assert_eq!(refused.contains("STOKE_PACKAGE_INDEXES") && refused.contains(&url), !is_asked, "{refused}");
        }
        assert_eq!(asked.load(Ordering::SeqCst) > 0, is_asked);
    }
    let stage = stage(&[]).await;
    let requirements_lock = format!("x @ {url}/x-1-py3-none-any.whl --hash=sha256:{}\n", "0".repeat(64));
    stage.gateway.deploy("direct", pack(HANDLER), EndpointSpec { requirements_lock, ..spec("report") });
    let before = asked.load(Ordering::SeqCst);
    let report = stage.gateway.end(&stage.submit_to("direct", json!({}))).await;
    let refused = &error(&report, ErrorCode::EnvironmentFailed).message;
    assert!(refused.contains("STOKE_PACKAGE_INDEXES"), "{refused}");
    assert_eq!(asked.load(Ordering::SeqCst), before);
    server.abort();
}

/// uv quotes the text that it cannot parse.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_shows_its_author_no_file_of_the_worker() {
    let stage = stage(&[]).await;
    let canary = stage.dir.path().join("canary");
    std::fs::write(&canary, "CANARY=verysecret").unwrap();
    for lock in [format!("-r {}\n", canary.display()), format!("-c {}\nsix==1.17.0\n", canary.display())] {
        let name = format!("lock-{}", lock.len());
        let wicked = EndpointSpec { requirements_lock: lock, ..spec("report") };
        stage.gateway.deploy(&name, pack(HANDLER), wicked);
        let report = stage.gateway.end(&stage.submit_to(&name, json!({}))).await;
        let refused = error(&report, ErrorCode::EnvironmentFailed);
        assert!(!refused.message.contains("verysecret") && !refused.message.contains("CANARY"), "{refused:?}");
    }
}
