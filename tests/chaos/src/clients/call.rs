//! The calls of one client. Each is recorded before it is made and after its reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::{Cluster, Tenant};
use crate::history::{Event, Journal, Kind, now_ns};

/// Longer than a replica waits for Redis; after it the outcome is unknown.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Maximum number of attempts of a submit, which is repeated until its outcome is known: minutes.
pub(crate) const TRIES: u32 = 400;
const PAUSE: std::ops::Range<f64> = 0.05..0.4;

/// Outcome of a call.
pub(crate) enum Answer {
    Done(Value),
    /// The call was refused for good.
    Refused(StatusCode, Value),
    /// The outcome is unknown.
    Unknown(Option<StatusCode>, String),
}

/// A client that calls the API as a tenant.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) tenant: &'static str,
    pub(crate) token: String,
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
    pub(crate) journal: Arc<Journal>,
}

impl Caller {
    /// A client of the first tenant, apart from the load.
    pub(crate) fn apart(name: &str, cluster: &Cluster, journal: Arc<Journal>) -> Self {
        let Tenant { name: tenant, token, .. } = &cluster.tenants[0];
        Self {
            name: name.to_owned(),
            tenant,
            token: token.clone(),
            url: cluster.url(),
            http: reqwest::Client::new(),
            journal,
        }
    }

    pub(crate) fn event(&self, kind: Kind, f: &str) -> Event {
        Event::new(&self.name, kind, f)
    }

    /// One call.
    pub(crate) async fn call(&self, method: Method, path: &str, key: Option<&str>, body: Option<Body>) -> Answer {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        request = match body {
            Some(Body::Json(body)) => request.json(&body),
            Some(Body::Lines(lines)) => request.header("content-type", "application/jsonl").body(lines),
            None => request,
        };
        let answered = async {
            let answer = request.timeout(TIMEOUT).send().await?;
            Ok::<_, reqwest::Error>((answer.status(), answer.bytes().await?))
        };
        match answered.await {
            Ok((status, bytes)) => {
                let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                if status.is_success() {
                    Answer::Done(value)
                } else if status.is_server_error() || matches!(status.as_u16(), 408 | 429) {
                    Answer::Unknown(Some(status), value["code"].as_str().unwrap_or_default().to_owned())
                } else {
                    Answer::Refused(status, value)
                }
            }
            Err(error) => Answer::Unknown(None, error.without_url().to_string()),
        }
    }

    /// Submits under a key until the outcome is known. Returns the ids, or `None` if the submit was refused or had no
    /// reply for minutes.
    pub(crate) async fn submit(&self, f: &str, path: &str, key: &str, jobs: u64, body: Body) -> Option<Vec<String>> {
        for _ in 0..TRIES {
            self.journal.write(self.event(Kind::Invoke, f).key(key).v(json!({"tenant": self.tenant, "jobs": jobs})));
            let begun = Instant::now();
            let answer = self.call(Method::POST, path, Some(key), Some(body.clone())).await;
            let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            match answer {
                Answer::Done(value) => {
                    let many =
                        value["ids"].as_array().map(|ids| ids.iter().filter_map(Value::as_str).collect::<Vec<_>>());
                    let ids = many.unwrap_or_else(|| value["id"].as_str().into_iter().collect());
                    self.journal.write(self.event(Kind::Ok, f).key(key).v(json!({"ids": ids, "ms": ms})));
                    return Some(ids.into_iter().map(str::to_owned).collect());
                }
                Answer::Refused(status, problem) => {
                    let v = json!({"ms": ms, "status": status.as_u16()});
                    self.journal.write(self.event(Kind::Fail, f).key(key).v(v).err(problem));
                    return None;
                }
                Answer::Unknown(status, why) => {
                    let v = json!({"ms": ms, "status": status.map(|status| status.as_u16())});
                    self.journal.write(self.event(Kind::Info, f).key(key).v(v).err(why));
                }
            }
            sleep(Duration::from_secs_f64(rand::random_range(PAUSE))).await;
        }
        None
    }

    /// Reads a job and records the reply.
    pub(crate) async fn read(&self, id: &str, wait_s: u64) {
        let begun = now_ns();
        let path = if wait_s > 0 { format!("/v1/jobs/{id}?wait_s={wait_s}") } else { format!("/v1/jobs/{id}") };
        match self.call(Method::GET, &path, None, None).await {
            Answer::Done(job) => self.journal.write(self.event(Kind::Ok, "poll").job(id).v(seen(&job, begun))),
            Answer::Refused(status, _) => {
                self.journal
                    .write(self.event(Kind::Fail, "poll").job(id).v(json!({"status": status.as_u16(), "t0": begun})));
            }
            // A failed read yields nothing.
            Answer::Unknown(..) => {}
        }
    }

    /// Cancels a job and records the outcome.
    pub(crate) async fn cancel(&self, id: &str) {
        self.journal.write(self.event(Kind::Invoke, "cancel").job(id));
        let (kind, why) = match self.call(Method::POST, &format!("/v1/jobs/{id}/cancel"), None, None).await {
            Answer::Done(_) => (Kind::Ok, String::new()),
            Answer::Refused(status, _) => (Kind::Fail, status.to_string()),
            Answer::Unknown(_, why) => (Kind::Info, why),
        };
        let event = self.event(kind, "cancel").job(id);
        self.journal.write(if why.is_empty() { event } else { event.err(why) });
    }
}

/// A request's body.
#[derive(Clone)]
pub(crate) enum Body {
    Json(Value),
    Lines(String),
}

/// The recorded part of a reply about a job.
fn seen(job: &Value, begun: u64) -> Value {
    json!({
        "state": job["state"], "run": job["result"]["run"], "attempts": job["attempts"].as_array().map(Vec::len), "t0": begun,
    })
}
