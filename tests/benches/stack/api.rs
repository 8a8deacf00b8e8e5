//! Stokehold through its public API, with a real Python handler that does nothing.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use stokehold_tests::process::signal;
use stokehold_tests::redis_server::RedisServer;
use stokehold_tests::stack::Stack;

use crate::measure::{CpuWatch, Figures, PAYLOAD_TEXT_BYTES, RoundTrip, rate};
use crate::raw::used_memory;

const SINGLE: usize = 1_000;
const BULK: usize = 20_000;
const BULK_CALL: usize = 1_000;
const ROUND_TRIPS: usize = 300;

pub(crate) fn deploy_noop(stack: &Stack, dir: &Path) -> anyhow::Result<()> {
    let folder = dir.join("noop");
    fs::create_dir(&folder)?;
    fs::write(
        folder.join("main.py"),
        "from stokehold import endpoint\n\n\n@endpoint(name=\"noop\")\ndef noop(text: str) -> dict:\n    return {\"ok\": True}\n",
    )?;
    let _ = stack.stoke_ok(&["deploy", &folder.to_string_lossy()]);
    Ok(())
}

pub(crate) async fn measure(stack: &Stack, server: &RedisServer) -> anyhow::Result<Figures> {
    let bench = Bench::new(stack, server).await?;
    bench.wait_for_job().await?;

    let start = Instant::now();
    for _ in 0..SINGLE {
        bench.post("/v1/jobs", &bench.job()).await?;
    }
    let submit_single_per_s = rate(SINGLE, start);
    bench.drained().await?;

    let mut samples_ms = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        bench.wait_for_job().await?;
        samples_ms.push(start.elapsed().as_secs_f64() * 1_000.0);
    }

    // The worker and its runners stand still while the queue is filled, so that the drain starts from a full queue.
    bench.signal_workers(Signal::SIGSTOP);
    let (bytes, submit_bulk_per_s) = bench.fill().await?;
    let (cpu, start) = (CpuWatch::start(bench.processes()), Instant::now());
    bench.signal_workers(Signal::SIGCONT);
    bench.drained().await?;
    let (drain_per_s, cpu_s_per_1000) = (rate(BULK, start), cpu.per_1000(BULK));

    let second = stack.start_worker("second", &[]);
    bench.joined(2).await?;
    bench.signal_workers(Signal::SIGSTOP);
    second.signal_all(Signal::SIGSTOP);
    bench.fill().await?;
    let start = Instant::now();
    bench.signal_workers(Signal::SIGCONT);
    second.signal_all(Signal::SIGCONT);
    bench.drained().await?;
    let drain2_per_s = rate(BULK, start);
    drop(second);

    Ok(Figures {
        submit_single_per_s: Some(submit_single_per_s),
        submit_bulk_per_s: Some(submit_bulk_per_s),
        drain_per_s: Some(drain_per_s),
        drain2_per_s: Some(drain2_per_s),
        cpu_s_per_1000,
        rtt_ms: Some(RoundTrip::of(samples_ms)),
        redis_bytes_per_job: Some(bytes),
    })
}

struct Bench<'a> {
    stack: &'a Stack,
    server: &'a RedisServer,
    http: reqwest::Client,
    redis: MultiplexedConnection,
    input: Value,
}

impl<'a> Bench<'a> {
    async fn new(stack: &'a Stack, server: &'a RedisServer) -> anyhow::Result<Self> {
        Ok(Self {
            stack,
            server,
            http: reqwest::Client::builder().timeout(Duration::from_secs(60)).build()?,
            redis: redis::Client::open(server.url())?.get_multiplexed_async_connection().await?,
            input: json!({"text": "x".repeat(PAYLOAD_TEXT_BYTES)}),
        })
    }

    fn job(&self) -> Value {
        json!({"endpoint": "noop", "input": self.input})
    }

    fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.http.post(format!("{}{path}", self.stack.url)).bearer_auth(&self.stack.token).json(body)
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        self.request(path, body).send().await?.error_for_status()?.bytes().await?;
        Ok(())
    }

    /// One job from submit to its result, over one request.
    async fn wait_for_job(&self) -> anyhow::Result<()> {
        let request = self.request("/v1/jobs", &self.job()).header("prefer", "wait=60");
        let job: Value = request.send().await?.error_for_status()?.json().await?;
        anyhow::ensure!(job["state"] == "succeeded", "{job}");
        Ok(())
    }

    /// Submits `BULK` jobs; Redis bytes per job, and the rate.
    async fn fill(&self) -> anyhow::Result<(f64, f64)> {
        let mut redis = self.redis.clone();
        let before = used_memory(&mut redis).await?;
        let jobs = json!({"jobs": vec![self.job(); BULK_CALL]});
        let start = Instant::now();
        for _ in 0..BULK / BULK_CALL {
            self.post("/v1/jobs/bulk", &jobs).await?;
        }
        let per_s = rate(BULK, start);
        Ok(((used_memory(&mut redis).await? - before) / BULK as f64, per_s))
    }

    /// Waits until no job is ready or running, by looking at Redis itself, 100 times a second: too rarely to be a load.
    async fn drained(&self) -> anyhow::Result<()> {
        let mut redis = self.redis.clone();
        loop {
            let open: (u64, u64) = redis::pipe()
                .cmd("EXISTS")
                .arg("{stoke:0}:q:1:0:default:noop")
                .cmd("EXISTS")
                .arg("{stoke:0}:leases")
                .query_async(&mut redis)
                .await?;
            if open == (0, 0) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until this many workers have joined and the last of them has run a job, so that its runner is loaded.
    async fn joined(&self, count: usize) -> anyhow::Result<()> {
        loop {
            let request = self.http.get(format!("{}/v1/workers", self.stack.url)).bearer_auth(&self.stack.token);
            let workers: Value = request.send().await?.error_for_status()?.json().await?;
            let loaded = |worker: &Value| worker["loaded"].as_array().is_some_and(|loaded| !loaded.is_empty());
            if workers["workers"]
                .as_array()
                .is_some_and(|all| all.len() >= count && all.iter().filter(|w| loaded(w)).count() >= count)
            {
                return Ok(());
            }
            // Enough at once that both workers have to take some.
            self.post("/v1/jobs/bulk", &json!({"jobs": vec![self.job(); 200]})).await?;
            self.drained().await?;
        }
    }

    fn signal_workers(&self, what: Signal) {
        for pid in [self.stack.workers(), self.stack.runners()].concat() {
            signal(pid, what);
        }
    }

    fn processes(&self) -> Vec<(String, u32)> {
        let parts = [
            ("api", vec![self.stack.pid()]),
            ("worker", self.stack.workers()),
            ("runner", self.stack.runners()),
            ("redis", vec![self.server.pid()]),
        ];
        parts.into_iter().flat_map(|(part, pids)| pids.into_iter().map(move |pid| (part.to_owned(), pid))).collect()
    }
}
