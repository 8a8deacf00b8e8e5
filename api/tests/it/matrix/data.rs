//! The data of a tenant in the matrix: one of every noun.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};

use super::rows::Row;
use crate::stack::{PACKAGE, PATIENCE, Stack, echo, sha256};
use crate::worker::Worker;

/// Requests that a tenant may make in its own right, except that they contain another tenant's data. `<own-word>` is
/// the asker's, `<word>` the other tenant's.
pub(super) const SMUGGLED: &[(&str, &str)] = &[
    ("/v1/jobs", r#"{"endpoint": "<own-endpoint>", "input": {"text": "a", "file": {"$file": "<file>"}}}"#),
    ("/v1/jobs", r#"{"endpoint": "<own-endpoint>", "input": {"text": "a"}, "depends_on": ["<done>"]}"#),
    ("/v1/batches", r#"{"endpoint": "<own-endpoint>", "input_file": "<file>"}"#),
    ("/v1/batches", r#"{"endpoint": "<own-endpoint>", "input_key": "inputs/<tenant>/<file>"}"#),
    ("/v1/schedules", r#"{"cron": "30 9 1 1 *", "job": {"endpoint": "<endpoint>", "input": {"text": "a"}}}"#),
    ("/v1/tokens", r#"{"name": "a", "roles": ["read"], "tenant": "<tenant>"}"#),
    ("/v1/tokens", r#"{"name": "a", "roles": ["operator"]}"#),
    ("/v1/tokens", r#"{"name": "a", "roles": ["worker"]}"#),
];

/// Filters by another tenant's data, which match nothing.
pub(super) const FILTERS: &[&str] = &[
    "/v1/jobs?batch=<batch>",
    "/v1/jobs?schedule=<schedule>",
    "/v1/jobs?endpoint=<endpoint>",
    "/v1/dead-letters?endpoint=<endpoint>",
    "/v1/webhooks/deliveries?job=<done>",
];

/// One tenant's data by the word that rows use for it.
pub(super) struct Data(BTreeMap<&'static str, String>);

/// The words whose values no other tenant may see.
const MARKS: [&str; 13] = [
    "done",
    "dead",
    "open",
    "batch",
    "open-batch",
    "schedule",
    "file",
    "delivery",
    "token-id",
    "endpoint",
    "secret",
    "canary",
    "webhook-secret",
];

/// The routes on which a tenant sees its own data.
const VIEWS: [&str; 29] = [
    "/v1/jobs?limit=100",
    "/v1/jobs/<done>",
    "/v1/jobs/<dead>",
    "/v1/jobs/<open>",
    "/v1/jobs/<done>/result",
    "/v1/dead-letters",
    "/v1/feedback",
    "/v1/batches",
    "/v1/batches/<batch>",
    "/v1/batches/<batch>/results",
    "/v1/batches/<batch>/errors",
    "/v1/batches/<open-batch>",
    "/v1/schedules",
    "/v1/schedules/<schedule>",
    "/v1/endpoints",
    "/v1/endpoints/<endpoint>",
    "/v1/endpoints/<endpoint>/versions",
    "/v1/endpoints/<endpoint>/traffic",
    "/v1/files/<file>",
    "/v1/secrets",
    "/v1/webhooks/secret",
    "/v1/webhooks/deliveries",
    "/v1/webhooks/deliveries/<delivery>",
    "/v1/limits",
    "/v1/limits/<tenant>",
    "/v1/limits/<tenant>/endpoints/<endpoint>",
    "/v1/requirement-sets",
    "/v1/tokens",
    "/v1/audit?limit=100",
];

/// Fields that change by themselves.
const VOLATILE: [&str; 7] = ["tries", "next_try_at", "last_used_at", "eta_at", "newest", "rate_per_s", "phase_s"];

impl Data {
    /// Creates a tenant's data with a token that may do so.
    pub(super) async fn seed(stack: &Stack, tenant: &str, token: &str) -> Self {
        let seeder = Seeder { stack, token };
        let canary = format!("canary of {tenant}");
        let endpoint = format!("{tenant}-echo");
        let mut data = BTreeMap::from([
            ("tenant", tenant.to_owned()),
            ("token", token.to_owned()),
            ("endpoint", endpoint.clone()),
            ("spare", format!("{tenant}-spare")),
            ("secret", format!("{}_ONLY", tenant.to_uppercase())),
            ("canary", canary.clone()),
            ("zeros", "0".repeat(64)),
            ("deploy", deployed("another").to_string()),
        ]);
        seeder.deploy(&deployed(&endpoint)).await;
        // Two versions of an endpoint that no job uses.
        for timeout_s in [10, 20] {
            let mut spare = deployed(&data["spare"]);
            spare["timeout_s"] = timeout_s.into();
            spare["demands"] = json!({"regions": [format!("region of {tenant}")]});
            seeder.post("/v1/endpoints", &spare).await;
        }
        let sets = seeder.get("/v1/requirement-sets").await;
        data.insert("requirements", text(&sets["requirement_sets"][0]["id"]));
        for name in ["SHARED", data["secret"].as_str()] {
            seeder.ask(Method::PUT, &format!("/v1/secrets/{name}"), &json!({"value": canary})).await;
        }
        let bytes: &'static [u8] = b"file";
        let file = json!({"name": canary, "size_bytes": bytes.len(), "sha256": sha256(bytes)});
        let file = seeder.post("/v1/files", &file).await;
        stack.upload(&file["upload_url"], &file["headers"], bytes).await;
        data.insert("file", text(&file["id"]));

        let worker = Worker::join(stack).await;
        data.insert("worker", worker.id.clone());
        let job = |text: &str| json!({"endpoint": endpoint, "input": {"text": text}, "max_attempts": 1});
        let mut hooked = job(&canary);
        hooked["webhook"] = "https://receiver.invalid/".into();
        data.insert("done", text(&seeder.post("/v1/jobs", &hooked).await["id"]));
        succeed_with_file(stack, &worker).await;
        data.insert("dead", text(&seeder.post("/v1/jobs", &job(&canary)).await["id"]));
        worker.fail(&worker.lease().await, "handler_error").await;
        let judged = format!("/v1/jobs/{}/feedback", data["done"]);
        seeder.post(&judged, &json!({"score": 5, "comment": canary})).await;

        let lines = json!([{"input": {"text": canary}}, {"input": {"text": "fail"}}]);
        let batch = json!({"endpoint": endpoint, "lines": lines, "max_attempts": 1, "metadata": {"of": canary}});
        data.insert("batch", text(&seeder.post("/v1/batches", &batch).await["id"]));
        for _ in 0..2 {
            let lease = worker.lease().await;
            match lease["input"]["text"] == "fail" {
                true => worker.fail(&lease, "handler_error").await,
                false => worker.succeed(&lease, json!(canary)).await,
            };
        }
        seeder.until(&format!("/v1/batches/{}", data["batch"]), |batch| !batch["ended_at"].is_null()).await;
        let schedule =
            json!({"name": canary, "cron": "30 9 1 1 *", "job": {"endpoint": endpoint, "input": {"text": canary}}});
        data.insert("schedule", text(&seeder.post("/v1/schedules", &schedule).await["id"]));
        let is_tried = |list: &Value| list["deliveries"][0]["tries"].as_array().is_some_and(|tries| !tries.is_empty());
        let deliveries = seeder.until("/v1/webhooks/deliveries", is_tried).await;
        data.insert("delivery", text(&deliveries["deliveries"][0]["id"]));
        data.insert("webhook-secret", text(&seeder.get("/v1/webhooks/secret").await["secret"]));
        let made = seeder.post("/v1/tokens", &json!({"name": canary, "roles": ["read"]})).await;
        data.insert("token-id", text(&made["record"]["id"]));
        Self(data)
    }

    /// Adds open jobs once no worker is there to run them: one worker serves every tenant.
    pub(super) async fn seed_open(&mut self, stack: &Stack) {
        let Self(data) = self;
        let (token, endpoint, canary) = (data["token"].clone(), &data["endpoint"], &data["canary"]);
        let seeder = Seeder { stack, token: &token };
        let line = json!({"input": {"text": canary}});
        let batch = seeder.post("/v1/batches", &json!({"endpoint": endpoint, "lines": [line]})).await;
        let job = seeder.post("/v1/jobs", &json!({"endpoint": endpoint, "input": {"text": canary}})).await;
        data.insert("open-batch", text(&batch["id"]));
        data.insert("open", text(&job["id"]));
        seeder.until(&format!("/v1/batches/{}", data["open-batch"]), |batch| batch["counts"]["open"] == 1).await;
    }

    /// Adds the data that only operators create.
    pub(super) async fn seed_for_operators(&mut self, stack: &Stack) {
        stack.json(stack.post("/v1/tenants", &json!({"name": "zoo"}))).await;
        self.0.insert("other-tenant", "zoo".to_owned());
    }

    /// Valid names of things that do not exist.
    pub(super) fn made_up() -> Self {
        let id = "0192f0c1a2b37cde8f00112233445500";
        Self(BTreeMap::from([
            ("tenant", "nobody".to_owned()),
            ("other-tenant", "nobody".to_owned()),
            ("token", "sk_nothing".to_owned()),
            ("endpoint", "nobody".to_owned()),
            ("spare", "nobody".to_owned()),
            ("requirements", "rs_none".to_owned()),
            ("secret", "NOBODYS".to_owned()),
            ("zeros", "0".repeat(64)),
            ("deploy", deployed("nobody").to_string()),
            ("done", id.to_owned()),
            ("dead", id.to_owned()),
            ("open", id.to_owned()),
            ("batch", format!("batch_{id}")),
            ("open-batch", format!("batch_{id}")),
            ("schedule", format!("sch_{id}")),
            ("file", format!("file_{id}")),
            ("delivery", format!("msg_{id}_completed")),
            ("token-id", "0011223344556677".to_owned()),
            ("worker", "w_nobody".to_owned()),
        ]))
    }

    /// Replaces words with this tenant's values; the words of another tenant remain.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (word, value) in &self.0 {
            filled = filled.replace(&format!("<{word}>"), value);
        }
        filled.replace("<other-tenant>", &self.0["tenant"])
    }

    pub(super) fn marks(&self) -> Vec<String> {
        MARKS.iter().map(|word| self.0[word].clone()).collect()
    }
}

/// The words that a row's asker sends itself.
pub(super) fn own_words(row: &Row, data: &Data) -> String {
    format!("{} {}", data.fill(row.path), data.fill(row.body))
}

/// Everything that a tenant sees of itself, by route, without the fields that change by themselves.
pub(super) async fn digest(stack: &Stack, data: &Data, token: &str) -> Value {
    let mut views = Map::new();
    for path in VIEWS {
        let answer = Seeder { stack, token }.request(Method::GET, &data.fill(path)).send().await.unwrap();
        let (status, said) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert!(status < 400, "{path}: {status} {said}");
        // Lines of JSON are treated as text.
        let said = serde_json::from_str(&said).unwrap_or(Value::String(said));
        views.insert(path.to_owned(), steady(said));
    }
    views.into()
}

fn steady(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_kept = |name: &str| !VOLATILE.contains(&name) && !name.ends_with("_ms");
            let kept = members.into_iter().filter(|(name, _)| is_kept(name));
            Value::Object(kept.map(|(name, value)| (name, steady(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(steady).collect()),
        Value::String(text) if text.contains("X-Amz-Signature=") => "[signed URL]".into(),
        plain => plain,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn deployed(name: &str) -> Value {
    let mut endpoint = echo();
    endpoint["name"] = name.into();
    endpoint
}

/// Leases a job, uploads a file beside its result, and ends it.
async fn succeed_with_file(stack: &Stack, worker: &Worker<'_>) {
    let lease = worker.lease().await;
    let bytes: &'static [u8] = b"png";
    let file =
        json!({"name": "a.png", "size_bytes": bytes.len(), "sha256": sha256(bytes), "content_type": "image/png"});
    let asked = json!({"job_id": lease["job_id"], "fence": lease["fence"], "files": [file]});
    let uploads = stack.json(worker.post("uploads", &asked)).await;
    stack.upload(&uploads["uploads"][0]["url"], &uploads["uploads"][0]["headers"], bytes).await;
    worker.succeed(&lease, lease["input"]["text"].clone()).await;
}

/// One tenant that requests its own data.
struct Seeder<'a> {
    stack: &'a Stack,
    token: &'a str,
}

impl Seeder<'_> {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.stack.client.request(method, format!("{}{path}", self.stack.url)).bearer_auth(self.token)
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Value {
        self.stack.json(self.request(method, path).body(body.to_string())).await
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        self.ask(Method::POST, path, body).await
    }

    async fn get(&self, path: &str) -> Value {
        self.stack.json(self.request(Method::GET, path)).await
    }

    async fn deploy(&self, endpoint: &Value) {
        let about = json!({"sha256": sha256(PACKAGE), "size_bytes": PACKAGE.len()});
        let package = self.post("/v1/packages", &about).await;
        self.stack.upload(&package["upload_url"], &package["headers"], PACKAGE).await;
        self.post("/v1/endpoints", endpoint).await;
    }

    async fn until(&self, path: &str, is: impl Fn(&Value) -> bool) -> Value {
        let look = async {
            loop {
                let seen = self.get(path).await;
                if is(&seen) {
                    return seen;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, look).await.expect("it gets there")
    }
}
