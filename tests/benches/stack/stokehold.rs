//! Stokehold in its usual form: `stoke dev` without a worker, workers beside it, and a client over HTTP.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::{Value, json};
use stokehold_tests::stack::Stack;

use crate::protocol::{self, How, Job, Request};

/// Maximum number of jobs in a bulk call.
const BULK_CALL: usize = 1_000;

const NOOP: &str = r#"from stokehold import endpoint


@endpoint(name="noop")
def noop(text: str) -> dict:
    return {"ok": True, "note": "y" * 34}
"#;

/// Writes one whole line or nothing: a write this small to a file opened for appending is atomic.
const NOTE: &str = r#"import os
import time

from stokehold import endpoint


def journal(line: str) -> None:
    file = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


@endpoint(name="note")
def note(number: int) -> None:
    journal(f"start {number}")
    time.sleep(0.005)
    journal(f"end {number}")
"#;

/// Deploys the two handlers. The journal's path is in the code, because a runner does not inherit the environment.
pub(crate) fn deploy(stack: &Stack, dir: &Path, journal: &Path) -> anyhow::Result<()> {
    let note = NOTE.replace("JOURNAL", &format!("{journal:?}"));
    for (name, code) in [("noop", NOOP), ("note", note.as_str())] {
        let folder = dir.join(name);
        fs::create_dir(&folder)?;
        fs::write(folder.join("main.py"), code)?;
        let _ = stack.stoke_ok(&["deploy", &folder.to_string_lossy()]);
    }
    Ok(())
}

struct Http {
    client: reqwest::Client,
    url: String,
    token: String,
}

impl Http {
    fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body)
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        let answer = self.request(path, body).send().await?;
        if answer.status().is_success() {
            answer.bytes().await?;
            return Ok(());
        }
        anyhow::bail!("{}: {}", answer.status(), answer.text().await?)
    }

    /// Runs one job from submit to its result, in one request.
    async fn wait_for_job(&self, body: &Value) -> anyhow::Result<()> {
        let answer = self.request("/v1/jobs", body).header("prefer", "wait=60").send().await?;
        let job: Value = answer.error_for_status()?.json().await?;
        anyhow::ensure!(job["state"] == "succeeded", "{job}");
        Ok(())
    }
}

pub(crate) async fn client() -> anyhow::Result<()> {
    let http = Http {
        client: reqwest::Client::builder().timeout(Duration::from_secs(60)).build()?,
        url: std::env::var("BENCH_URL")?,
        token: std::env::var("BENCH_TOKEN")?,
    };
    let noop = json!({"endpoint": "noop", "input": protocol::payload()});
    let body = |job: Job, number: usize| match job {
        Job::Noop => noop.clone(),
        Job::Note => json!({"endpoint": "note", "input": {"number": number}}),
    };
    protocol::serve(async |request| match request {
        Request::Submit { how: How::One, job, count } => {
            for number in 0..count {
                http.post("/v1/jobs", &body(job, number)).await?;
            }
            Ok(vec![])
        }
        Request::Submit { how: How::Many, job, count } => {
            let (http, body) = (&http, &body);
            let submits = (0..count).map(|number| async move { http.post("/v1/jobs", &body(job, number)).await });
            let mut submits = futures::stream::iter(submits).buffer_unordered(protocol::SUBMITTERS);
            while let Some(done) = submits.next().await {
                done?;
            }
            Ok(vec![])
        }
        Request::Submit { how: How::Bulk, job, count } => {
            for at in (0..count).step_by(BULK_CALL) {
                let jobs: Vec<Value> = (at..count.min(at + BULK_CALL)).map(|number| body(job, number)).collect();
                http.post("/v1/jobs/bulk", &json!({"jobs": jobs})).await?;
            }
            Ok(vec![])
        }
        Request::RoundTrips { count } => {
            let mut samples_ms = Vec::with_capacity(count);
            for _ in 0..count {
                let start = Instant::now();
                http.wait_for_job(&noop).await?;
                samples_ms.push(start.elapsed().as_secs_f64() * 1_000.0);
            }
            Ok(samples_ms)
        }
    })
    .await
}
