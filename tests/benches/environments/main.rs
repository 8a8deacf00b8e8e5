//! `make bench-environments`: the time until the first result on a worker that has an endpoint's environment, and the
//! cost of an endpoint that shares most requirements with another. `--json` prints one document.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a benchmark prints and may stop at any error"
)]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::{Value, json};
use stokehold_tests::goals::{Goal, median, report};
use stokehold_tests::stack::{Stack, StackOptions, Worker};

const ROUNDS: usize = 3;

/// The example of this repository with weights: 3 packages, 170 MB.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/examples/embed");

/// One additional package.
const MORE: &str =
    "\nsix==1.17.0 \\\n    --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274\n";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = tempfile::tempdir()?;
    let args = ["--workers", "0"].map(str::to_owned).to_vec();
    let stack = Stack::start(&dir.path().join("stack"), &StackOptions { args, env: vec![] });
    let bench = Bench { stack, http: reqwest::Client::new() };
    let _ = bench.stack.stoke_ok(&["deploy", EXAMPLE]);
    let (mut starts_s, mut builds_s, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        let cache = dir.path().join(format!("cache-{round}"));
        let worker = bench.worker(&format!("first-{round}"), &cache);
        let first = bench.job("embed").await?;
        eprintln!(
            "  first start, nothing there: {:.2} s, of it {:.2} s for the environment",
            first.took_s,
            first.of("env_ms")
        );
        drop(worker);
        let worker = bench.worker(&format!("second-{round}"), &cache);
        let second = bench.job("embed").await?;
        eprintln!(
            "  second start: {:.2} s, of it {:.2} s for the model's own load",
            second.took_s,
            second.of("load_ms")
        );
        starts_s.push(second.took_s - second.of("load_ms"));
        let before = bytes(&cache);
        let name = format!("more-{round}");
        let _ = bench.stack.stoke_ok(&["deploy", &more(&dir.path().join(&name), round)?, "--name", &name]);
        let third = bench.job(&name).await?;
        builds_s.push(third.of("env_ms"));
        added.push((bytes(&cache) - before) as f64 / before as f64);
        drop(worker);
    }
    let goal = |name, limit, reached| Goal { name, limit, is_floor: false, reached };
    let goals = [
        goal("second start: first result, less the model's load, s", 1.0, median(starts_s)),
        goal("one package more: its environment, s", 3.0, median(builds_s)),
        goal("one package more: disk, of what was there", 0.05, median(added)),
    ];
    report(&goals, arguments.iter().any(|one| one == "--json")).map_err(anyhow::Error::msg)
}

struct Bench {
    stack: Stack,
    http: reqwest::Client,
}

struct Job {
    /// Time from the submit to the result.
    took_s: f64,
    timing: Value,
}

impl Job {
    /// A phase of its timing, seconds.
    fn of(&self, part: &str) -> f64 {
        self.timing[part].as_f64().unwrap_or_default() / 1e3
    }
}

impl Bench {
    /// A worker that sandboxes its handlers, as by default.
    fn worker(&self, name: &str, cache: &Path) -> Worker {
        self.stack.start_worker(name, &[("STOKE_CACHE_DIR", &cache.to_string_lossy()), ("STOKE_SANDBOX", "auto")])
    }

    async fn job(&self, endpoint: &str) -> anyhow::Result<Job> {
        self.joined().await?;
        let started = Instant::now();
        let request = self.http.post(format!("{}/v1/jobs", self.stack.url)).bearer_auth(&self.stack.token);
        let body = json!({"endpoint": endpoint, "input": {"texts": ["a stoker feeds the boilers"]}});
        let mut job: Value =
            request.header("prefer", "wait=60").json(&body).send().await?.error_for_status()?.json().await?;
        while job["ended_at"].is_null() {
            job = self.get(&format!("/v1/jobs/{}?wait_s=60", job["id"].as_str().context("an id")?)).await?;
        }
        anyhow::ensure!(job["state"] == "succeeded", "{job}");
        Ok(Job { took_s: started.elapsed().as_secs_f64(), timing: job["timing"].take() })
    }

    /// Waits for a worker: its start is not part of the measurement.
    async fn joined(&self) -> anyhow::Result<()> {
        loop {
            let workers = self.get("/v1/workers").await?;
            if workers["workers"].as_array().into_iter().flatten().any(|worker| worker["state"] == "ready") {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.http.get(format!("{}{path}", self.stack.url)).bearer_auth(&self.stack.token);
        Ok(request.send().await?.error_for_status()?.json().await?)
    }
}

/// The example with one more requirement; the number makes each round's environment unique.
fn more(folder: &Path, number: usize) -> anyhow::Result<String> {
    fs::create_dir_all(folder)?;
    fs::copy(Path::new(EXAMPLE).join("main.py"), folder.join("main.py"))?;
    let lock = fs::read_to_string(Path::new(EXAMPLE).join("requirements.lock"))?;
    let marker = format!("six==1.17.0 ; python_version >= '3.{number}'");
    fs::write(folder.join("requirements.lock"), format!("{lock}{}", MORE.replacen("six==1.17.0", &marker, 1)))?;
    Ok(folder.to_string_lossy().into_owned())
}

/// Disk usage of a folder; a file with several names counts once.
fn bytes(folder: &Path) -> u64 {
    let (mut files, mut folders) = (HashMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            files.insert(metadata.ino(), metadata.blocks() * 512);
        }
    }
    files.values().sum()
}
