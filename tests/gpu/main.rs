//! `make test-gpu`: the worker on a real GPU. Models fill its memory through CUDA's driver library, and NVML's readings
//! decide. The tests run one after the other, because they share the GPU; nothing else should run on it. Prints
//! measurements for docs/gpu/RESULTS.md.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "tests that print figures")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stokehold_tests::stack::{Stack, StackOptions, Worker};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

struct Bench {
    stack: Stack,
    _worker: Worker,
    http: reqwest::Client,
    _dir: TempDir,
}

impl Bench {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args = ["--workers", "0"].map(str::to_owned).to_vec();
        let stack = Stack::start(&dir.path().join("stack"), &StackOptions { args, env: vec![] });
        for model in ["One", "Two"] {
            let filler = concat!(env!("CARGO_MANIFEST_DIR"), "/gpu/filler.py");
            let _ = stack.stoke_ok(&["deploy", &format!("{filler}:{model}")]);
        }
        let worker = stack.start_worker("real", &[("STOKE_SLOTS", "2")]);
        let bench = Self { stack, _worker: worker, http: reqwest::Client::new(), _dir: dir };
        let first = bench.worker("to join", |_| true).await;
        assert!(
            !first["gpus"].as_array().unwrap().is_empty(),
            "this machine has no NVIDIA card that NVML tells of; `make test` runs the same on stand-in cards"
        );
        bench
            .worker("its first readings", |worker| !card(worker)["vram_used_mib"].is_null())
            .await
            .as_object()
            .unwrap();
        bench
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let method = method.parse().unwrap();
        let request = self.http.request(method, format!("{}{path}", self.stack.url)).bearer_auth(&self.stack.token);
        let request = if let Some(body) = body { request.json(&body) } else { request };
        request.send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }

    /// The worker, once it satisfies `is_so`.
    async fn worker(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let workers = self.call("GET", "/v1/workers", None).await;
            if let Some(worker) = workers["workers"].as_array().unwrap().iter().find(|worker| is_so(worker)) {
                return worker.clone();
            }
            assert!(start.elapsed() < PATIENCE, "waited too long for {what}: {workers}");
            // Heartbeats cannot be awaited from here.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn submit(&self, endpoint: &str, input: Value) -> String {
        let body = json!({"endpoint": endpoint, "input": input, "max_attempts": 1});
        self.call("POST", "/v1/jobs", Some(body)).await["id"].as_str().unwrap().to_owned()
    }

    async fn run(&self, endpoint: &str, input: Value) -> Value {
        let id = self.submit(endpoint, input).await;
        let start = Instant::now();
        loop {
            let job = self.call("GET", &format!("/v1/jobs/{id}?wait_s=15"), None).await;
            if !job["ended_at"].is_null() {
                return job;
            }
            assert!(start.elapsed() < PATIENCE, "{job}");
        }
    }
}

/// The largest GPU of a worker.
fn card(worker: &Value) -> &Value {
    worker["gpus"].as_array().unwrap().iter().max_by_key(|card| card["vram_mib"].as_u64()).unwrap()
}

fn model<'a>(worker: &'a Value, name: &str) -> Option<&'a Value> {
    worker["models"].as_array()?.iter().find(|model| model["name"] == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_takes_is_seen_held_and_given_back() {
    let bench = Bench::start().await;
    let before = bench.worker("the worker", |_| true).await;
    let (name, total_mib) = (card(&before)["name"].clone(), card(&before)["vram_mib"].as_u64().unwrap());
    println!("card: {name}, {total_mib} MiB, driver {}, CUDA {}", before["driver"], before["cuda"]);
    println!(
        "idle: {} MiB used, {} C, {} W",
        card(&before)["vram_used_mib"],
        card(&before)["temperature_c"],
        card(&before)["power_w"]
    );

    let first = bench.run("one", json!({"mib": 2_048})).await;
    assert_eq!(first["state"], "succeeded", "{first}");
    println!(
        "load {} ms, warm-up {} ms, 2048 MiB filled in {} s",
        first["timing"]["load_ms"], first["timing"]["warmup_ms"], first["result"]["fill_s"]
    );
    let second = bench.run("two", json!({"mib": 1_024})).await;
    assert_eq!(second["state"], "succeeded", "{second}");
    let both = bench
        .worker("both models", |worker| {
            model(worker, "one@1").is_some()
                && model(worker, "two@1").is_some()
                && card(worker)["vram_used_mib"].as_u64() > Some(3_072)
        })
        .await;
    for (name, filled_mib) in [("one@1", 2_048), ("two@1", 1_024)] {
        let model = model(&both, name).unwrap();
        println!("{name}: filled {filled_mib}, seen {}, held {} MiB", model["seen_mib"], model["held_mib"]);
        match model["seen_mib"].as_u64() {
            Some(seen_mib) => {
                assert!((filled_mib..filled_mib + 1_536).contains(&seen_mib), "a context takes less than 1.5 GiB");
                assert!(model["held_mib"].as_u64() >= Some(seen_mib), "{model}");
            }
            // In a container the driver reports no processes: the declaration applies.
            None => assert_eq!(model["held_mib"], 4_096),
        }
    }

    let deaf = bench.submit("one", json!({"mib": 2_048, "deaf": true})).await;
    bench.worker("the deaf job to run", |worker| worker["running"] == 1).await;
    let cancelled = Instant::now();
    let _ = bench.call("POST", &format!("/v1/jobs/{deaf}/cancel"), None).await;
    let after = bench
        .worker("the killed model's memory", |worker| {
            model(worker, "one@1").is_none() && card(worker)["vram_used_mib"].as_u64() < Some(3_072)
        })
        .await;
    println!("killed, and its memory seen free, {:.1} s after the cancel", cancelled.elapsed().as_secs_f64());
    assert_eq!(card(&after)["health"], "well");
    assert_eq!(bench.run("one", json!({"mib": 1_024})).await["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_gpu_has_is_told_as_such_and_harms_nothing() {
    let bench = Bench::start().await;
    let total_mib = card(&bench.worker("the worker", |_| true).await)["vram_mib"].as_u64().unwrap();
    let job = bench.run("one", json!({"mib": total_mib + 1_024})).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("oom_gpu")), "{job}");
    println!("{} MiB asked for: {}", total_mib + 1_024, job["error"]["message"]);
    assert_eq!(bench.run("one", json!({"mib": 1_024})).await["state"], "succeeded");
    let worker = bench.worker("the worker", |_| true).await;
    assert_eq!(card(&worker)["health"], "well");
}
