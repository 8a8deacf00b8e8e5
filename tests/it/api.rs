//! Test client of the public API, over plain HTTP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_tests::stack::{Stack, StackOptions};
use tempfile::TempDir;

/// A stack with short leases, so that a lost worker is noticed within seconds.
pub(crate) fn stack(args: &[&str]) -> (Stack, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (start(dir.path(), args), dir)
}

pub(crate) fn start(data: &Path, args: &[&str]) -> Stack {
    start_with(data, args, &[])
}

/// A stack with additional environment variables.
pub(crate) fn start_with(data: &Path, args: &[&str], env: &[(&str, &str)]) -> Stack {
    start_as(&[], data, args, env)
}

/// A stack started through a program that becomes it.
pub(crate) fn start_as(prefix: &[String], data: &Path, args: &[&str], env: &[(&str, &str)]) -> Stack {
    let env = [&[("STOKE_LEASE_MS", "3000"), ("STOKE_EXTEND_EVERY_MS", "500")], env].concat();
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Stack::start_as(prefix, data, &StackOptions { args: args.iter().map(|arg| (*arg).to_owned()).collect(), env })
}

/// A handler from `tests/it/handlers`.
pub(crate) fn handler(file: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("it/handlers").join(file).to_string_lossy().into_owned()
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub(crate) struct Api {
    http: reqwest::Client,
    pub(crate) url: String,
    token: String,
}

impl Api {
    pub(crate) fn of(stack: &Stack) -> Self {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(90)).build().unwrap();
        Self { http, url: stack.url.clone(), token: stack.token.clone() }
    }

    /// The same client with another token.
    pub(crate) fn with_token(self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self }
    }

    /// The same client for another replica.
    pub(crate) fn at(self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method.parse().unwrap(), format!("{}{path}", self.url)).bearer_auth(&self.token)
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.request("GET", path).send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }

    pub(crate) async fn submit(&self, endpoint: &str, input: Value) -> String {
        let body = json!({"endpoint": endpoint, "input": input});
        let answer = self.request("POST", "/v1/jobs").json(&body).send().await.unwrap();
        let status = answer.status();
        let job: Value = answer.json().await.unwrap();
        assert_eq!(status, 202, "{job}");
        job["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn submit_many(&self, endpoint: &str, inputs: impl IntoIterator<Item = Value>) -> Vec<String> {
        let jobs: Vec<Value> = inputs.into_iter().map(|input| json!({"endpoint": endpoint, "input": input})).collect();
        let answer = self.request("POST", "/v1/jobs/bulk").json(&json!({"jobs": jobs})).send().await.unwrap();
        let answer: Value = answer.error_for_status().unwrap().json().await.unwrap();
        answer["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    }

    /// The job, once it has ended.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        for _ in 0..10 {
            let job = self.get(&format!("/v1/jobs/{id}?wait_s=15")).await;
            if !job["ended_at"].is_null() {
                return job;
            }
        }
        panic!("job {id} does not end: {}", self.get(&format!("/v1/jobs/{id}")).await);
    }

    /// The job, once it is running under an attempt of this number or a later one.
    pub(crate) async fn running(&self, id: &str, attempt: u64) -> Value {
        for _ in 0..2_000 {
            let job = self.get(&format!("/v1/jobs/{id}")).await;
            if job["state"] == "running" && attempts(&job).len() as u64 >= attempt {
                return job;
            }
            // No signal crosses processes for this; an event stream would race with the awaited state.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("job {id} does not start: {}", self.get(&format!("/v1/jobs/{id}")).await);
    }
}

pub(crate) fn attempts(job: &Value) -> &Vec<Value> {
    job["attempts"].as_array().unwrap()
}

/// Outcome of each attempt.
pub(crate) fn outcomes(job: &Value) -> Vec<&str> {
    attempts(job).iter().map(|attempt| attempt["state"].as_str().unwrap()).collect()
}
