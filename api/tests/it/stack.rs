//! One API with all its dependencies for one test; it ends with the test.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use stokehold_api::config::{Costs, Limits, Traces, Webhooks};
use stokehold_api::secrets::Keyring;
use stokehold_api::token::{Scope, TokenKey, mint};
use stokehold_api::{Config, run_supervised};
use stokehold_metrics::Metrics;
use stokehold_objects::ObjectsConfig;
use stokehold_objects::store::{self, StoreConfig};
use stokehold_queue::{Clock, ManualClock, RedisConfig, RedisQueue, Shards, TokenKind, now_ms};
use stokehold_supervise::{Backoff, Supervisor};
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longer than any wait takes; a test that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Stack {
    replica: Replica,
    pub(crate) queue: RedisQueue,
    pub(crate) key: TokenKey,
    pub(crate) redis: RedisServer,
    pub(crate) config: Config,
    _dir: TempDir,
}

/// One running replica, and requests to it.
pub(crate) struct Replica {
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    /// A token of the tenant `acme` with every scope.
    pub(crate) token: String,
    /// Supervisor of the background duties, with a short backoff.
    pub(crate) supervisor: Supervisor,
    _ends: DropGuard,
}

impl Deref for Stack {
    type Target = Replica;

    fn deref(&self) -> &Replica {
        &self.replica
    }
}

impl DerefMut for Stack {
    fn deref_mut(&mut self) -> &mut Replica {
        &mut self.replica
    }
}

impl Replica {
    async fn start(config: Config, token: String, ends: CancellationToken) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let backoff = Backoff { first: Duration::from_millis(1), max: Duration::from_millis(10) };
        let (supervisor, exposition) = (Supervisor::new(backoff), Metrics::default());
        let serving = tokio::spawn(run_supervised(config, exposition, supervisor.clone(), listener, ends.clone()));
        let client =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(PATIENCE).build().unwrap();
        // The listener's backlog holds this request until the API serves; if the API refuses to start, its error is the
        // failure to show.
        let up = client.get(format!("{url}/readyz")).send();
        tokio::select! {
            up = up => assert_eq!(up.unwrap().status(), 200),
            end = serving => panic!("the API did not start: {end:?}"),
        }
        Self { url, client, token, supervisor, _ends: ends.drop_guard() }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token)
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).body(body.to_string())
    }

    /// The JSON of a response that must be a success.
    pub(crate) async fn json(&self, request: RequestBuilder) -> Value {
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{status}: {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// The status and code of a response that must be a problem.
    pub(crate) async fn problem(&self, request: RequestBuilder) -> (u16, String) {
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{status}");
        assert!(answer.headers().contains_key("x-request-id"));
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["status"], status);
        assert!(!body["detail"].as_str().unwrap().is_empty());
        (status, body["code"].as_str().unwrap().to_owned())
    }

    /// PUTs bytes to the URL of a response.
    pub(crate) async fn upload(&self, url: &Value, headers: &Value, bytes: &'static [u8]) {
        let mut put = self.client.put(url.as_str().unwrap()).body(bytes);
        for (name, value) in headers.as_object().unwrap() {
            put = put.header(name, value.as_str().unwrap());
        }
        let answer = put.send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
}

impl Stack {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// A stack with a clock that the test moves.
    pub(crate) async fn start_on_clock() -> (Self, ManualClock) {
        let clock = ManualClock::new(now_ms());
        let stack = Self::start_with(|config| config.redis.clock = Clock::Manual(clock.clone())).await;
        (stack, clock)
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let (dir, ends) = (TempDir::new().unwrap(), CancellationToken::new());
        let redis = redis(dir.path());
        let mut config = config(&redis, object_store(dir.path(), ends.clone()).await);
        change(&mut config);
        let (queue, key) = (RedisQueue::connect(config.redis.clone()).await.unwrap(), config.token_key.clone());
        let token = token_of(&queue, &key, "acme", &Scope::ALL, None).await;
        let replica = Replica::start(config.clone(), token, ends).await;
        Self { replica, queue, key, redis, config, _dir: dir }
    }

    /// Another replica of the same stack with a changed configuration.
    pub(crate) async fn replica(&self, change: impl FnOnce(&mut Config)) -> Replica {
        let mut config = self.config.clone();
        change(&mut config);
        Replica::start(config, self.token.clone(), CancellationToken::new()).await
    }

    /// Restarts Redis on the same data.
    pub(crate) fn restart_redis(&mut self) {
        // Redis exits before it can reply.
        let _ = self.redis.try_ask::<String>(&["SHUTDOWN", "NOSAVE"]);
        let again = RedisServer::start_on(self.redis.port(), &self._dir.path().join("redis"), &[]);
        self.redis = again.expect("Redis comes up again on its port");
    }

    /// Creates and stores an API token.
    pub(crate) async fn token_of(&self, tenant: &str, scopes: &[Scope], ttl: Option<Duration>) -> String {
        token_of(&self.queue, &self.key, tenant, scopes, ttl).await
    }

    /// Creates and stores a join token.
    pub(crate) async fn join_token(&self, single_use: bool) -> String {
        let (mut record, secret) = mint(TokenKind::Join, "acme", &[], "test", None, &self.key).unwrap();
        record.single_use = single_use;
        self.queue.registry().put_token(&record).await.unwrap();
        secret.expose().to_owned()
    }

    /// The queue as an API process uses it.
    pub(crate) async fn shards(&self) -> Shards {
        Shards::connect(self.config.redis.clone()).await.unwrap()
    }

    /// Deploys the endpoint `echo`, which takes `{"text": string}` and any file.
    pub(crate) async fn deploy_echo(&self) -> Value {
        self.deploy(echo()).await
    }

    pub(crate) async fn deploy(&self, endpoint: Value) -> Value {
        let package = self.post("/v1/packages", &json!({"sha256": sha256(PACKAGE), "size_bytes": PACKAGE.len()}));
        let package = self.json(package).await;
        if package["exists"] == false {
            self.upload(&package["upload_url"], &package["headers"], PACKAGE).await;
        }
        self.json(self.post("/v1/endpoints", &endpoint)).await
    }

    /// Submits `{"text": text}` to `echo`. Returns the job's id.
    pub(crate) async fn submit(&self, text: &str) -> String {
        let job = self.json(self.post("/v1/jobs", &json!({"endpoint": "echo", "input": {"text": text}}))).await;
        job["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.json(self.get(&format!("/v1/jobs/{id}"))).await
    }
}

async fn token_of(queue: &RedisQueue, key: &TokenKey, tenant: &str, scopes: &[Scope], ttl: Option<Duration>) -> String {
    let (record, secret) = mint(TokenKind::Api, tenant, scopes, "test", ttl, key).unwrap();
    queue.registry().put_token(&record).await.unwrap();
    secret.expose().to_owned()
}

pub(crate) const PACKAGE: &[u8] = b"not really a package";

pub(crate) fn echo() -> Value {
    json!({
        "name": "echo", "package_sha256": sha256(PACKAGE), "package_size_bytes": PACKAGE.len(), "entry": "echo.py:echo",
        "input_schema": {
            "type": "object", "properties": {"text": {"type": "string"}, "file": {"type": "object"}},
            "required": ["text"], "additionalProperties": false,
        },
    })
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

pub(crate) fn redis(dir: &Path) -> RedisServer {
    let dir = dir.join("redis");
    std::fs::create_dir(&dir).unwrap();
    RedisServer::start(&dir, &[])
}

pub(crate) async fn object_store(dir: &Path, ends: CancellationToken) -> ObjectsConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint_url = format!("http://{}", listener.local_addr().unwrap());
    let config = StoreConfig {
        dir: dir.join("objects"),
        access_key_id: "test".to_owned(),
        secret_access_key: "test-secret".into(),
    };
    tokio::spawn(async move { store::serve(listener, config, ends.cancelled_owned()).await });
    ObjectsConfig {
        endpoint_url: Some(endpoint_url),
        public_url: None,
        region: "us-east-1".to_owned(),
        bucket: "stokehold".to_owned(),
        access_key_id: Some("test".to_owned()),
        secret_access_key: Some("test-secret".into()),
        path_style: true,
    }
}

pub(crate) fn config(redis: &RedisServer, s3: ObjectsConfig) -> Config {
    let token_key = TokenKey::generate().unwrap();
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        public_url: "http://api.test".to_owned(),
        trusted_proxies: Vec::new(),
        redis: RedisConfig { url: redis.url(), ..RedisConfig::default() },
        s3,
        secret_keys: Keyring::parse("", &token_key).unwrap(),
        token_key,
        weight_buckets: Vec::new(),
        package_indexes: vec!["https://pypi.org/simple".to_owned(), "https://download.pytorch.org/whl".to_owned()],
        extend_every_ms: 3_000,
        ephemeral: false,
        worker_dist: None,
        limits: Limits::default(),
        webhooks: Webhooks::default(),
        costs: Costs::default(),
        traces: Traces::default(),
    }
}

/// A response for a snapshot: without the values that differ from run to run.
pub(crate) async fn shown(answer: Response) -> Value {
    let headers: Map<String, Value> =
        ["content-type", "allow", "location", "retry-after", "stokehold-durability", "www-authenticate"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), answer.headers().get(name)?.to_str().unwrap().into())))
            .collect();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    steady(json!({"status": status, "headers": headers, "body": body}))
}

/// Replaces ids, times, measured milliseconds and signed URLs with placeholders.
pub(crate) fn steady(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, value)| steady_member(name, value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(steady).collect()),
        Value::String(text) => Value::String(steady_text(&text)),
        plain => plain,
    }
}

fn steady_member(name: String, value: Value) -> (String, Value) {
    let measured = name.ends_with("_ms")
        && !matches!(name.as_str(), "lease_ms" | "extend_every_ms" | "token_ttl_ms" | "timeout_ms");
    let measured = measured || name == "memory_used_bytes";
    let value = match name.as_str() {
        _ if measured && value.is_number() => "[ms]".into(),
        "resume" if value.is_string() => "[resume]".into(),
        _ => steady(value),
    };
    (steady_text(&name), value)
}

fn steady_text(text: &str) -> String {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    if text.contains("X-Amz-Signature=") {
        return "[signed URL]".to_owned();
    }
    if ["sk_", "jt_", "wt_"].iter().any(|kind| text.starts_with(kind)) && text.len() > 80 {
        return "[token]".to_owned();
    }
    if text.len() == 24 && text.ends_with('Z') && text.as_bytes()[10] == b'T' {
        return "[time]".to_owned();
    }
    let fence =
        text.split_once('.').is_some_and(|(n, nonce)| n.parse::<u64>().is_ok() && nonce.len() == 16 && is_hex(nonce));
    if fence {
        return "[fence]".to_owned();
    }
    let cursor = text
        .split_once('-')
        .is_some_and(|(ms, n)| ms.len() == 13 && ms.parse::<u64>().is_ok() && n.parse::<u64>().is_ok());
    if cursor {
        return "[cursor]".to_owned();
    }
    // Ids occur inside texts as well: every long run of hex digits that is not a SHA-256 is an id.
    let mut shown = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let (word, rest) = match part.char_indices().last() {
            Some((at, last)) if !last.is_ascii_alphanumeric() => part.split_at(at),
            _ => (part, ""),
        };
        let id = matches!(word.len(), 16 | 32) && is_hex(word);
        shown.push_str(if id { "[id]" } else { word });
        shown.push_str(rest);
    }
    shown
}
