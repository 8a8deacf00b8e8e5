//! `make test-gpu`: the worker on a real GPU. Models fill its memory through CUDA's driver library, and NVML's readings
//! decide. The tests run one after the other, because they share the GPU; nothing else should run on it. They print
//! what they measure.
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
    dir: TempDir,
}

impl Bench {
    async fn start() -> Self {
        Self::at("L0").await
    }

    /// A stack with one worker, which isolates handlers at this level of the sandbox.
    async fn at(level: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args = ["--workers", "0"].map(str::to_owned).to_vec();
        let stack = Stack::start(&dir.path().join("stack"), &StackOptions { args, env: vec![] });
        let worker = stack.start_worker("real", &[("STOKE_SLOTS", "2"), ("STOKE_SANDBOX", level)]);
        let bench = Self { stack, _worker: worker, http: reqwest::Client::new(), dir };
        let first = bench.worker("to join", |_| true).await;
        assert!(
            !first["gpus"].as_array().unwrap().is_empty(),
            "NVML reports no GPU on this machine; `make test` runs these cases on stand-ins"
        );
        bench.worker("its first readings", |worker| !gpu(worker)["vram_used_mib"].is_null()).await;
        bench
    }

    /// Deploys models of `filler.py`.
    fn deploy(&self, models: &[&str]) {
        for model in models {
            let filler = concat!(env!("CARGO_MANIFEST_DIR"), "/gpu/filler.py");
            let _ = self.stack.stoke_ok(&["deploy", &format!("{filler}:{model}")]);
        }
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
            if start.elapsed() > PATIENCE {
                let logs = self.stack.stoke(&["logs", &id]);
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                panic!("{job}\n{}{}", text(&logs.stdout), text(&logs.stderr));
            }
        }
    }
}

/// The largest GPU of a worker.
fn gpu(worker: &Value) -> &Value {
    worker["gpus"].as_array().unwrap().iter().max_by_key(|gpu| gpu["vram_mib"].as_u64()).unwrap()
}

/// The memory of a loaded model on its GPU.
fn model<'a>(worker: &'a Value, name: &str) -> Option<&'a Value> {
    worker["models"].as_array()?.iter().find(|model| model["name"] == name)?["cards"].get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_a_model_is_measured_reserved_and_freed() {
    let bench = Bench::start().await;
    bench.deploy(&["One", "Two"]);
    let before = bench.worker("the worker", |_| true).await;
    let (name, total_mib) = (gpu(&before)["name"].clone(), gpu(&before)["vram_mib"].as_u64().unwrap());
    println!("GPU: {name}, {total_mib} MiB, driver {}, CUDA {}", before["driver"], before["cuda"]);
    println!(
        "idle: {} MiB used, {} C, {} W",
        gpu(&before)["vram_used_mib"],
        gpu(&before)["temperature_c"],
        gpu(&before)["power_w"]
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
                && gpu(worker)["vram_used_mib"].as_u64() > Some(3_072)
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
            model(worker, "one@1").is_none() && gpu(worker)["vram_used_mib"].as_u64() < Some(3_072)
        })
        .await;
    println!("killed, and its memory seen free, {:.1} s after the cancel", cancelled.elapsed().as_secs_f64());
    assert_eq!(gpu(&after)["health"], "healthy");
    assert_eq!(bench.run("one", json!({"mib": 1_024})).await["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_needs_more_than_the_gpu_has_fails_with_oom_gpu_and_the_next_one_runs() {
    let bench = Bench::start().await;
    bench.deploy(&["One"]);
    let total_mib = gpu(&bench.worker("the worker", |_| true).await)["vram_mib"].as_u64().unwrap();
    let job = bench.run("one", json!({"mib": total_mib + 1_024})).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("oom_gpu")), "{job}");
    println!("{} MiB asked for: {}", total_mib + 1_024, job["error"]["message"]);
    assert_eq!(bench.run("one", json!({"mib": 1_024})).await["state"], "succeeded");
    let worker = bench.worker("the worker", |_| true).await;
    assert_eq!(gpu(&worker)["health"], "healthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_takes_its_share_of_the_gpu_alternates_with_another_model() {
    let bench = Bench::start().await;
    bench.deploy(&["One", "Engine"]);
    for n in 0..4 {
        let started = Instant::now();
        let engine = bench.run("engine", json!({})).await;
        assert_eq!((&engine["state"], &engine["oom_events"]), (&json!("succeeded"), &json!(0)), "{n}: {engine}");
        println!("engine {n}: {} in {:.1} s", engine["result"], started.elapsed().as_secs_f64());
        let started = Instant::now();
        let other = bench.run("one", json!({"mib": 2_048})).await;
        assert_eq!((&other["state"], &other["oom_events"]), (&json!("succeeded"), &json!(0)), "{n}: {other}");
        println!("other {n}: in {:.1} s", started.elapsed().as_secs_f64());
        for job in [engine, other] {
            assert_eq!(job["attempts"].as_array().unwrap().len(), 1, "{job}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_reach_the_gpu_at_every_level_of_the_sandbox_that_this_machine_supports() {
    let reached = Bench::at("auto").await.worker("the worker", |_| true).await["sandbox"].as_str().unwrap().to_owned();
    println!("the highest level here is {reached}");
    for level in ["L0", "L1", "L2"].into_iter().filter(|level| *level <= reached.as_str()) {
        let bench = Bench::at(level).await;
        bench.deploy(&["One"]);
        let job = bench.run("one", json!({"mib": 2_048})).await;
        assert_eq!(job["state"], "succeeded", "{level}: {job}");
        let worker = bench.worker("the model", |worker| model(worker, "one@1").is_some()).await;
        println!("{level}: filled 2048, seen {} MiB", model(&worker, "one@1").unwrap()["seen_mib"]);
        if deploy_torch(&bench, &["features"], 1) {
            let job = bench.run("features", json!({})).await;
            assert_eq!(job["state"], "succeeded", "{level}: {job}");
            println!("{level}: {}", job["result"]);
        }
    }
}

/// Deploys models of PyTorch, with this declaration for the large ones. Returns false, and says why, without PyTorch.
fn deploy_torch(bench: &Bench, models: &[&str], large_gib: u64) -> bool {
    let Ok(site) = std::env::var("STOKE_TEST_TORCH") else {
        println!("SKIPPED: STOKE_TEST_TORCH does not name the site-packages of a PyTorch");
        return false;
    };
    let code = include_str!("torch_models.py").replace("@SITE@", &site).replace("@GIB@", &large_gib.to_string());
    let path = bench.dir.path().join("torch_models.py");
    std::fs::write(&path, code).unwrap();
    for model in models {
        let _ = bench.stack.stoke_ok(&["deploy", &format!("{}:{model}", path.display())]);
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn what_torch_reserves_is_measured_and_its_own_error_is_oom_gpu() {
    let bench = Bench::start().await;
    if !deploy_torch(&bench, &["Small"], 1) {
        return;
    }
    let total_mib = gpu(&bench.worker("the worker", |_| true).await)["vram_mib"].as_u64().unwrap();
    let job = bench.run("small", json!({"gib": 8})).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    println!("{}, load {} ms", job["result"], job["timing"]["load_ms"]);
    let reserved_mib = job["result"]["reserved_mib"].as_u64().unwrap();
    let worker = bench
        .worker("the model's memory", |worker| {
            model(worker, "small@1").is_some_and(|model| model["held_mib"].as_u64() >= Some(reserved_mib))
        })
        .await;
    let small = model(&worker, "small@1").unwrap();
    println!("declared 4096, reserved {reserved_mib}, seen {}, held {} MiB", small["seen_mib"], small["held_mib"]);

    let too_large = bench.run("small", json!({"gib": total_mib / 1024 + 1})).await;
    let error = &too_large["error"];
    assert_eq!((&error["code"], &error["class"]), (&json!("oom_gpu"), &json!("torch.OutOfMemoryError")), "{too_large}");
    println!("{} GiB asked for: {}", total_mib / 1024 + 1, error["message"]);
    assert_eq!(bench.run("small", json!({"gib": 2})).await["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_models_of_torch_that_fit_only_one_at_a_time_take_turns() {
    let bench = Bench::start().await;
    let total_gib = gpu(&bench.worker("the worker", |_| true).await)["vram_mib"].as_u64().unwrap() / 1024;
    let large_gib = total_gib * 6 / 10;
    if !deploy_torch(&bench, &["Left", "Right"], large_gib) {
        return;
    }
    for (n, name) in ["left", "right", "left", "right"].into_iter().enumerate() {
        let started = Instant::now();
        let job = bench.run(name, json!({"gib": large_gib - 2})).await;
        assert_eq!((&job["state"], &job["oom_events"]), (&json!("succeeded"), &json!(0)), "{n}: {job}");
        println!(
            "{name} with {} GiB after {:.1} s, load {} ms",
            large_gib - 2,
            started.elapsed().as_secs_f64(),
            job["timing"]["load_ms"]
        );
    }
}
