//! A real Prometheus, for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use stokehold_tests::redis_server::free_port;

/// Maximum number of polls for a query: metrics are read every ten seconds, and a rate needs two samples.
const TRIES: u32 = 400;
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Prometheus {
    child: Child,
    url: String,
    http: reqwest::Client,
}

/// Path of one of its programs.
pub(crate) fn program(name: &str) -> PathBuf {
    let prometheus = std::env::var_os("STOKE_TEST_PROMETHEUS")
        .expect("STOKE_TEST_PROMETHEUS names no prometheus: `make monitoring` gets one");
    Path::new(&prometheus).with_file_name(name)
}

/// Runs `promtool`, which must succeed.
pub(crate) fn promtool(args: &[&str], folder: &Path) {
    run_promtool(args, folder).unwrap_or_else(|error| panic!("{error}"));
}

/// Runs `promtool`. The error is what it printed.
pub(crate) fn run_promtool(args: &[&str], folder: &Path) -> Result<(), String> {
    let done = Command::new(program("promtool")).args(args).current_dir(folder).stdin(Stdio::null()).output();
    let done = done.expect("promtool lies beside prometheus");
    let printed = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("promtool {args:?}\n{printed}")) }
}

impl Prometheus {
    /// Starts it with this configuration and its data below `folder`.
    pub(crate) async fn start(folder: &Path, config: &str) -> Self {
        let file = folder.join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let child = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("prometheus.log")).unwrap())
            .spawn()
            .unwrap();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap();
        let prometheus = Self { child, url: format!("http://{address}"), http };
        for _ in 0..TRIES {
            let ready = prometheus.http.get(format!("{}/-/ready", prometheus.url)).send().await;
            if ready.is_ok_and(|ready| ready.status().is_success()) {
                return prometheus;
            }
            // Its start cannot be awaited otherwise.
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{}", fs::read_to_string(folder.join("prometheus.log")).unwrap());
    }

    /// The series that a query finds now.
    async fn series(&self, query: &str) -> Vec<Value> {
        let url = reqwest::Url::parse_with_params(&format!("{}/api/v1/query", self.url), &[("query", query)]).unwrap();
        let answer = self.http.get(url).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Whether a query finds something within the limit.
    pub(crate) async fn finds(&self, query: &str) -> bool {
        for _ in 0..TRIES {
            if !self.series(query).await.is_empty() {
                return true;
            }
            // Scrapes cannot be awaited.
            tokio::time::sleep(PAUSE).await;
        }
        false
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
