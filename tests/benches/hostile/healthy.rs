//! A well-behaved client: a constant rate of requests; each latency is measured from the time at which its request was
//! due.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use stokehold_tests::stack::Stack;
use tokio::time::{Instant, sleep_until};

use crate::PATIENCE;

const RATE_PER_S: u32 = 200;
const REQUESTS: u32 = 1_000;

pub(crate) struct Healthy {
    /// A client that keeps its connections.
    kept: reqwest::Client,
    /// A client that opens a connection for each request.
    fresh: reqwest::Client,
    url: String,
    token: String,
    job: String,
}

/// The measurements of some seconds.
pub(crate) struct Slice {
    pub(crate) p99_ms: f64,
    pub(crate) failed: usize,
}

impl Healthy {
    pub(crate) async fn new(stack: &Stack) -> anyhow::Result<Self> {
        let client = || reqwest::Client::builder().timeout(PATIENCE);
        let (kept, fresh) = (client().build()?, client().pool_max_idle_per_host(0).build()?);
        let (url, token) = (stack.url.clone(), stack.token.clone());
        let mut healthy = Self { kept, fresh, url, token, job: String::new() };
        let job: Value = healthy.submit(&healthy.kept).send().await?.error_for_status()?.json().await?;
        healthy.job = job["id"].as_str().unwrap().to_owned();
        Ok(healthy)
    }

    /// A job that has not ended and never will.
    pub(crate) fn job(&self) -> String {
        self.job.clone()
    }

    /// Runs for some seconds. Every other request opens a connection, every fourth submits a job, the others read one.
    pub(crate) async fn slice(&self) -> anyhow::Result<Slice> {
        let start = Instant::now() + Duration::from_millis(10);
        let all: FuturesUnordered<_> = (0..REQUESTS)
            .map(|n| async move {
                let due = start + Duration::from_secs(1) * n / RATE_PER_S;
                sleep_until(due).await;
                let client = if n % 2 == 0 { &self.kept } else { &self.fresh };
                let request = if n / 2 % 2 == 0 { self.look(client) } else { self.submit(client) };
                let answer = async { request.send().await?.error_for_status()?.bytes().await };
                let outcome = answer.await.inspect_err(|error| eprintln!("  a healthy request failed: {error:?}"));
                (outcome.is_ok(), due.elapsed().as_secs_f64() * 1e3)
            })
            .collect();
        let answers: Vec<(bool, f64)> = all.collect().await;
        let failed = answers.iter().filter(|(well, _)| !well).count();
        let mut ms: Vec<f64> = answers.into_iter().map(|(_, ms)| ms).collect();
        ms.sort_by(f64::total_cmp);
        Ok(Slice { p99_ms: ms[ms.len() * 99 / 100], failed })
    }

    fn look(&self, client: &reqwest::Client) -> reqwest::RequestBuilder {
        client.get(format!("{}/v1/jobs/{}", self.url, self.job)).bearer_auth(&self.token)
    }

    fn submit(&self, client: &reqwest::Client) -> reqwest::RequestBuilder {
        let job = json!({"endpoint": "echo", "input": {"text": "hello"}});
        client.post(format!("{}/v1/jobs", self.url)).bearer_auth(&self.token).json(&job)
    }
}
