//! Attacks of stored files on the browser of a logged-in user: opened, framed and embedded. None of their scripts may
//! run at the origin of the store or the dashboard.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, Stage, Who};

const SURFACE: &str = "browser";

/// A page created by `browser/pages.py`.
#[derive(Deserialize)]
struct Page {
    name: String,
    content_type: String,
    text: String,
    sha256: String,
}

/// The attacker's server: it counts requests, and serves pages that lead to others.
#[derive(Clone, Default)]
struct Beacon {
    asked: Arc<AtomicUsize>,
    page: Arc<std::sync::Mutex<String>>,
}

struct Target {
    /// Keeps the stack running as long as the target.
    _stage: Stage,
    chromium: String,
    beacon: Beacon,
    beacon_url: String,
    /// Address and kind of each page that the store accepted.
    stored: Vec<(String, String)>,
    html: String,
}

pub(crate) async fn run(report: &mut Report) {
    let chromium = std::env::var("STOKE_TEST_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
    if !std::process::Command::new(&chromium).arg("--version").output().is_ok_and(|output| output.status.success()) {
        report.skip(SURFACE, "-", &format!("there is no Chromium at {chromium}"));
        return;
    }
    let target = Target::start(chromium).await;
    attacks!(report, SURFACE, "elsewhere", Promise::Open, &target, [runs_where_nothing_stops_it]);
    attacks!(report, SURFACE, "-", Promise::Holds, &target, [answers_are_inert, runs_when_opened, runs_when_framed]);
}

async fn asked(State(beacon): State<Beacon>, uri: Uri) -> impl IntoResponse {
    if uri.path() == "/ran" {
        beacon.asked.fetch_add(1, Ordering::SeqCst);
    }
    let page = beacon.page.lock().expect("no panic holds it").clone();
    ([(CONTENT_TYPE, "text/html")], page)
}

impl Target {
    async fn start(chromium: String) -> Self {
        let beacon = Beacon::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let beacon_url = format!("http://{}/", listener.local_addr().unwrap());
        let router = Router::new().fallback(asked).with_state(beacon.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });

        let stage = Stage::start(Who::Root, &["--workers", "0"], &[]);
        let attacker = stage.tenant("attacker", &["submit"]).await;
        let pages: Vec<Page> = serde_json::from_value(stage::python("browser/pages.py", &[&beacon_url])).unwrap();
        let html = pages[0].text.clone();
        let step = stage::size(9, 1);
        let mut stored = Vec::new();
        for page in pages.iter().step_by(step) {
            let request = json!({"name": page.name, "size_bytes": page.text.len(), "sha256": page.sha256, "content_type": page.content_type});
            let answer = attacker.request("POST", "/v1/files").json(&request).send().await.unwrap();
            if !answer.status().is_success() {
                // The store refuses such a type.
                continue;
            }
            let answer: Value = answer.json().await.unwrap();
            let mut put = reqwest::Client::new().put(answer["upload_url"].as_str().unwrap()).body(page.text.clone());
            for (name, value) in answer["headers"].as_object().unwrap() {
                put = put.header(name, value.as_str().unwrap());
            }
            put.send().await.unwrap().error_for_status().unwrap();
            let file = attacker.get(&format!("/v1/files/{}", answer["id"].as_str().unwrap())).await;
            stored
                .push((file["url"].as_str().unwrap().to_owned(), format!("{} as {:?}", page.name, page.content_type)));
        }
        assert!(stored.len() > 3, "the store takes most types");
        Self { _stage: stage, chromium, beacon, beacon_url, stored, html }
    }

    /// Number of script runs while a browser had this address open.
    async fn runs(&self, url: &str) -> usize {
        let before = self.beacon.asked.load(Ordering::SeqCst);
        let profile = tempfile::tempdir().unwrap();
        let mut browser = tokio::process::Command::new(&self.chromium);
        browser.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--dump-dom",
            "--virtual-time-budget=2000",
        ]);
        browser.arg(format!("--user-data-dir={}", profile.path().display())).arg(url).current_dir(profile.path());
        browser
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let mut browser = browser.kill_on_drop(true).spawn().unwrap();
        // A page that is downloaded instead of shown may leave the browser waiting for another.
        let _ = tokio::time::timeout(Duration::from_secs(15), browser.wait()).await;
        self.beacon.asked.load(Ordering::SeqCst) - before
    }

    fn serve(&self, page: String) {
        *self.beacon.page.lock().expect("no panic holds it") = page;
    }
}

/// The same page from a server without protection.
async fn runs_where_nothing_stops_it(target: &Target) -> Outcome {
    target.serve(target.html.clone());
    let ran = target.runs(&target.beacon_url).await;
    let mut outcome = Outcome::default();
    outcome.open_if(ran > 0, || format!("it ran {ran} times"));
    outcome
}

/// Checks the headers: active content is downloaded, no type is guessed, and everything is sandboxed.
async fn answers_are_inert(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    for (url, what) in &target.stored {
        for method in ["GET", "HEAD"] {
            for range in [None, Some("bytes=0-"), Some("bytes=1-2"), Some("bytes=999999-")] {
                for add in [
                    "",
                    "&response-content-type=text/html",
                    "&response-content-disposition=inline",
                    "&versionId=null",
                    "&x-id=GetObject",
                ] {
                    let mut request = reqwest::Client::new().request(method.parse().unwrap(), format!("{url}{add}"));
                    if let Some(range) = range {
                        request = request.header("range", range);
                    }
                    let answer = request.send().await.unwrap();
                    let header = |name: &str| {
                        answer
                            .headers()
                            .get(name)
                            .map(|value| value.to_str().unwrap_or_default().to_owned())
                            .unwrap_or_default()
                    };
                    let is_sandboxed = header("content-security-policy").starts_with("sandbox;")
                        && header("x-content-type-options") == "nosniff";
                    let kind = header("content-type").to_ascii_lowercase();
                    let is_active = ["html", "xml", "svg", "pdf", "multipart", "message", "css", "script"]
                        .iter()
                        .any(|word| kind.contains(word));
                    let is_shown = !header("content-disposition").starts_with("attachment");
                    let is_open = !is_sandboxed || (is_active && is_shown && answer.status().is_success());
                    outcome.open_if(is_open, || format!("{method} {what} {range:?} {add}: {:?}", answer.headers()));
                }
            }
        }
    }
    outcome
}

async fn runs_when_opened(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    for some in target.stored.chunks(6) {
        let before = target.beacon.asked.load(Ordering::SeqCst);
        let _ = futures::future::join_all(some.iter().map(|(url, _)| target.runs(url))).await;
        let ran = target.beacon.asked.load(Ordering::SeqCst) - before;
        for (_, what) in some {
            outcome.open_if(ran > 0, || format!("one of these ran, {ran} times: {what}"));
        }
    }
    outcome
}

/// Several at once in a page of the attacker's: as frames, objects and embeds.
async fn runs_when_framed(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    for some in target.stored.chunks(8) {
        let mut page = "<!doctype html>".to_owned();
        for (url, _) in some {
            let url = url.replace('&', "&amp;").replace('"', "&quot;");
            page += &format!(
                "<iframe src=\"{url}\"></iframe><object data=\"{url}\"></object><embed src=\"{url}\"><iframe sandbox=\"allow-scripts allow-same-origin\" src=\"{url}\"></iframe>"
            );
        }
        target.serve(page);
        let ran = target.runs(&target.beacon_url).await;
        for (_, what) in some {
            outcome.open_if(ran > 0, || format!("one of these ran, {ran} times: {what}"));
        }
    }
    outcome
}
