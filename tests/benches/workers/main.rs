//! `make bench-workers`: whether two workers do twice the work of one, and evenly; the gain of batched calls; a
//! worker's own overhead; and whether a backlog keeps every slot of a newly started worker busy. Jobs sleep, so that
//! the machine's own speed matters little. `--json` prints one document.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a benchmark prints and may stop at any error"
)]

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::{Value, json};
use stokehold_tests::goals::{Goal, median, report};
use stokehold_tests::stack::{Stack, StackOptions, Worker};

const ROUNDS: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments.iter().find_map(|one| one.strip_prefix("--rounds=")?.parse().ok()).unwrap_or(ROUNDS);
    let dir = tempfile::tempdir()?;
    let args = ["--workers", "0"].map(str::to_owned).to_vec();
    let bench = Bench::new(Stack::start(&dir.path().join("stack"), &StackOptions { args, env: vec![] }));
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/workers/models.py");
    for model in ["half-second", "second", "one-by-one", "together", "tenth", "slow-load"] {
        let object = if model == "slow-load" { "SlowLoad".to_owned() } else { model.replace('-', "_") };
        let _ = bench.stack.stoke_ok(&["deploy", &format!("{models}:{object}")]);
    }
    let goals = [
        bench.two_workers(rounds).await?,
        bench.batched(rounds).await?,
        bench.overhead(rounds).await?,
        bench.slots(rounds).await?,
    ];
    let goals: Vec<Goal> = goals.into_iter().flatten().collect();
    report(&goals, arguments.iter().any(|one| one == "--json")).map_err(anyhow::Error::msg)
}

struct Bench {
    stack: Stack,
    http: reqwest::Client,
}

/// A run of many jobs: the time from the first submit to the last end, and the number of jobs of each worker.
struct Run {
    took_s: f64,
    by_worker: BTreeMap<String, usize>,
    batch_sizes: Vec<u64>,
    /// Start and end of each run, unix seconds, if the model returns them.
    spans: Vec<(f64, f64)>,
}

impl Run {
    /// The fraction of the time from the first run's start to the last one's end for which this number of slots were
    /// busy.
    fn busy(&self, slots: usize) -> f64 {
        let runs_s: f64 = self.spans.iter().map(|(began, ended)| ended - began).sum();
        let first = self.spans.iter().map(|(began, _)| *began).fold(f64::INFINITY, f64::min);
        let last = self.spans.iter().map(|(_, ended)| *ended).fold(0.0, f64::max);
        runs_s / (slots as f64 * (last - first))
    }
}

impl Bench {
    fn new(stack: Stack) -> Self {
        Self { stack, http: reqwest::Client::new() }
    }

    async fn two_workers(&self, rounds: usize) -> anyhow::Result<Vec<Goal>> {
        let (mut speedups, mut spreads) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            eprintln!("two workers: round {round} of {rounds}");
            let first = self.worker(&format!("first-{round}"), 1, "half-second").await?;
            let alone = self.run("half-second", 200).await?;
            let second = self.worker(&format!("second-{round}"), 1, "half-second").await?;
            let both = self.run("half-second", 200).await?;
            speedups.push(alone.took_s / both.took_s);
            let counts: Vec<usize> = both.by_worker.values().copied().collect();
            let (most, least) = (counts.iter().max().context("jobs ran")?, counts.iter().min().context("jobs ran")?);
            anyhow::ensure!(counts.len() == 2, "both work: {:?}", both.by_worker);
            // The deviation of each from an equal share.
            spreads.push((most - least) as f64 / 200.0);
            drop((first, second));
        }
        Ok(vec![
            Goal {
                name: "200 jobs of 0.5 s, 4 at once: two workers, of one's speed",
                limit: 1.95,
                is_floor: true,
                reached: median(speedups),
            },
            Goal {
                name: "of these: distance from an equal share, of the share",
                limit: 0.05,
                is_floor: false,
                reached: median(spreads),
            },
        ])
    }

    async fn batched(&self, rounds: usize) -> anyhow::Result<Vec<Goal>> {
        let mut ratios = Vec::new();
        for round in 1..=rounds {
            eprintln!("batches: round {round} of {rounds}");
            let worker = self.worker(&format!("batches-{round}"), 1, "one-by-one").await?;
            self.run("together", 32).await?;
            let single = self.run("one-by-one", 100).await?;
            let batched = self.run("together", 100).await?;
            eprintln!(
                "  one by one {:.0} ms, together {:.0} ms, sizes {:?}",
                single.took_s * 1e3,
                batched.took_s * 1e3,
                batched.batch_sizes
            );
            ratios.push(single.took_s / batched.took_s);
            drop(worker);
        }
        let name = "100 jobs of 10 ms, 16 in a call: of the speed one by one";
        Ok(vec![Goal { name, limit: 5.0, is_floor: true, reached: median(ratios) }])
    }

    async fn overhead(&self, rounds: usize) -> anyhow::Result<Vec<Goal>> {
        // Number of concurrent jobs in one process of `second`.
        const AT_ONCE: usize = 8;
        const JOBS: usize = 80;
        let mut overheads = Vec::new();
        for round in 1..=rounds {
            eprintln!("overhead: round {round} of {rounds}");
            let worker = self.worker(&format!("overhead-{round}"), 1, "second").await?;
            let run = self.run("second", JOBS).await?;
            overheads.push(run.took_s / (JOBS / AT_ONCE) as f64 - 1.0);
            drop(worker);
        }
        let name = "80 jobs of 1 s, 8 at once: what the worker takes beside them";
        Ok(vec![Goal { name, limit: 0.01, is_floor: false, reached: median(overheads) }])
    }

    /// A backlog of an endpoint that takes one job per process, on a worker without a loaded model.
    async fn slots(&self, rounds: usize) -> anyhow::Result<Vec<Goal>> {
        const SLOTS: usize = 8;
        let mut busy = [Vec::new(), Vec::new()];
        for round in 1..=rounds {
            for (n, (model, jobs)) in [("tenth", 400), ("slow-load", 240)].into_iter().enumerate() {
                eprintln!("slots, {model}: round {round} of {rounds}");
                let slots = SLOTS.to_string();
                let worker = self.stack.start_worker(&format!("slots-{n}-{round}"), &[("STOKE_SLOTS", &slots)]);
                let run = self.run(model, jobs).await?;
                eprintln!("  {:.2} s in all, {:.3} busy", run.took_s, run.busy(SLOTS));
                busy[n].push(run.busy(SLOTS));
                drop(worker);
            }
        }
        let names = [
            "400 jobs of 0.1 s on 8 slots: busy from the first start",
            "240 jobs of 0.3 s, load 3 s, on 8 slots: the same",
        ];
        let goal = |(name, busy)| Goal { name, limit: 0.9, is_floor: true, reached: median(busy) };
        Ok(names.into_iter().zip(busy).map(goal).collect())
    }

    /// A worker with the model loaded.
    async fn worker(&self, name: &str, slots: usize, model: &str) -> anyhow::Result<Worker> {
        let worker = self.stack.start_worker(name, &[("STOKE_SLOTS", &slots.to_string())]);
        loop {
            // More jobs than one worker runs at once: a single job would go to the worker that has the model already.
            self.run(model, 16).await?;
            let workers: Value = self.get("/v1/workers").await?;
            let loaded = workers["workers"].as_array().into_iter().flatten().any(|worker| {
                let models = worker["loaded"].as_array();
                worker["name"] == name
                    && worker["state"] == "ready"
                    && models.is_some_and(|names| {
                        names.iter().any(|loaded| loaded.as_str().is_some_and(|loaded| loaded.starts_with(model)))
                    })
            });
            if loaded {
                return Ok(worker);
            }
        }
    }

    async fn run(&self, model: &str, jobs: usize) -> anyhow::Result<Run> {
        let input = |n| if model == "one-by-one" || model == "together" { json!({"n": n}) } else { json!({}) };
        let body: Vec<Value> = (0..jobs).map(|n| json!({"endpoint": model, "input": input(n)})).collect();
        let request = self.http.post(format!("{}/v1/jobs/bulk", self.stack.url)).bearer_auth(&self.stack.token);
        let answer: Value = request.json(&json!({"jobs": body})).send().await?.error_for_status()?.json().await?;
        let (mut first, mut last) = (u64::MAX, 0);
        let (mut by_worker, mut batch_sizes, mut spans) = (BTreeMap::new(), Vec::new(), Vec::new());
        for id in answer["ids"].as_array().context("ids")? {
            let path = format!("/v1/jobs/{}", id.as_str().context("an id")?);
            let mut job = self.get(&format!("{path}?wait_s=15")).await?;
            while job["ended_at"].is_null() {
                job = self.get(&format!("{path}?wait_s=15")).await?;
            }
            anyhow::ensure!(job["state"] == "succeeded", "{job}");
            first = first.min(ms_of_day(&job["created_at"])?);
            last = last.max(ms_of_day(&job["ended_at"])?);
            let attempt = &job["attempts"][0];
            *by_worker.entry(attempt["worker_id"].to_string()).or_default() += 1;
            batch_sizes.extend(attempt["timing"]["batch_size"].as_u64());
            if let (Some(began), Some(ended)) = (job["result"][0].as_f64(), job["result"][1].as_f64()) {
                spans.push((began, ended));
            }
        }
        const DAY_MS: u64 = 24 * 3_600 * 1_000;
        let took_ms = (last + DAY_MS - first) % DAY_MS;
        Ok(Run { took_s: took_ms as f64 / 1e3, by_worker, batch_sizes, spans })
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.http.get(format!("{}{path}", self.stack.url)).bearer_auth(&self.stack.token);
        Ok(request.send().await?.error_for_status()?.json().await?)
    }
}

/// Milliseconds since midnight of a time such as `2026-01-02T03:04:05.678Z`.
fn ms_of_day(stamp: &Value) -> anyhow::Result<u64> {
    let text = stamp.as_str().context("a time")?;
    let (_, clock) = text.trim_end_matches('Z').split_once('T').context("a time of day")?;
    let mut parts = clock.splitn(3, ':');
    let (hours, minutes): (u64, u64) =
        (parts.next().context("hours")?.parse()?, parts.next().context("minutes")?.parse()?);
    let seconds: f64 = parts.next().context("seconds")?.parse()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than a minute")]
    let ms = (seconds * 1_000.0).round() as u64;
    Ok((hours * 60 + minutes) * 60_000 + ms)
}
