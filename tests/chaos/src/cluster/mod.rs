//! The system under test: real processes, and a proxy on every connection between them.

pub(crate) mod process;
pub(crate) mod redis;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stokehold_tests::meeting;
use stokehold_tests::redis_server::free_port;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use self::process::{Process, log_path};
use self::redis::Redis;
use crate::history::{Event, Journal, Kind};
use crate::proxy::Proxy;

const READY_LIMIT: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(10);

/// Size of the system.
#[derive(Debug, Clone)]
pub(crate) struct Size {
    pub(crate) apis: usize,
    pub(crate) workers: usize,
    pub(crate) slots: u32,
    pub(crate) lease_ms: u64,
    pub(crate) max_attempts: u32,
    /// Time that a replica waits for Redis before it answers 503.
    pub(crate) queue_timeout_ms: u64,
}

/// A replica of the API.
pub(crate) struct Api {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) process: Process,
    /// Number of starts.
    pub(crate) incarnation: u32,
    /// Number of rolls; its parity selects the release.
    pub(crate) rolls: u32,
    /// Its connection to Redis.
    pub(crate) redis: Proxy,
    /// Its connection to S3.
    pub(crate) s3: Proxy,
}

/// A worker.
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) process: Process,
    pub(crate) incarnation: u32,
    /// Number of rolls, as in [`Api`].
    pub(crate) rolls: u32,
    /// Its connection to the gateway, whichever replica answers.
    pub(crate) gateway: Proxy,
}

/// The two releases in use: the previous one, and the one under test.
struct Releases([PathBuf; 2]);

impl Releases {
    /// The program of a process after this number of rolls.
    fn after(&self, rolls: u32) -> &Path {
        &self.0[(rolls % 2) as usize]
    }
}

/// A tenant's token, and the signing secret of its webhooks.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) name: &'static str,
    pub(crate) token: String,
    pub(crate) hook_secret: String,
}

/// The whole system.
pub(crate) struct Cluster {
    pub(crate) dir: PathBuf,
    pub(crate) size: Size,
    pub(crate) redis: Redis,
    pub(crate) apis: Vec<Api>,
    pub(crate) workers: Vec<Worker>,
    /// The connection of all clients to the API.
    pub(crate) front: Proxy,
    /// The connection of workers and clients to S3.
    pub(crate) public_s3: Proxy,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) secrets: Secrets,
    pub(crate) journal: Arc<Journal>,
    pub(crate) hook_port: u16,
    releases: Releases,
    _store: Process,
}

/// Secrets that no log may contain.
#[derive(Debug, Clone)]
pub(crate) struct Secrets {
    pub(crate) token_key: String,
    pub(crate) s3_access_key_id: String,
    pub(crate) s3_secret_access_key: String,
    pub(crate) join_token: String,
}

impl Cluster {
    /// Starts everything and deploys the endpoint. `dir` is the directory of the run.
    pub(crate) async fn start(
        dir: &Path,
        size: Size,
        before: Option<&Path>,
        hook_port: u16,
        journal: Arc<Journal>,
    ) -> Result<Self> {
        std::fs::create_dir_all(dir.join("logs"))?;
        std::fs::create_dir_all(dir.join("history/runs"))?;
        // Handlers write there, those of each endpoint as a separate user.
        meeting::enter(dir)?;
        meeting::open(&dir.join("history/runs"))?;
        let tested = stoke_binary()?;
        let releases = Releases([before.map_or_else(|| tested.clone(), Path::to_owned), tested]);
        let stoke = releases.after(0).to_owned();
        let mut secrets = Secrets {
            token_key: hex(32),
            s3_access_key_id: format!("chaos{}", hex(8)),
            s3_secret_access_key: hex(32),
            join_token: String::new(),
        };
        let redis = Redis::start(dir, &stoke).await?;
        let store_port = free_port();
        let store = store(dir, &stoke, store_port, &secrets)?;
        let store_address = local(store_port);
        wait_for_port(store_address).await.context("the store does not come up")?;
        secrets.join_token = token(&stoke, &redis, &secrets, "join", "default").await?;
        let mut tenants = Vec::new();
        for name in ["default", "other"] {
            let token = token(&stoke, &redis, &secrets, "api", name).await?;
            tenants.push(Tenant { name, token, hook_secret: String::new() });
        }

        let public_s3 = Proxy::start(vec![store_address]).await?;
        let mut ports = Vec::new();
        for _ in 0..size.apis {
            ports.push(free_port());
        }
        let front = Proxy::start(ports.iter().map(|port| local(*port)).collect()).await?;
        let mut cluster = Self {
            dir: dir.to_owned(),
            redis,
            apis: Vec::new(),
            workers: Vec::new(),
            front,
            public_s3,
            tenants,
            secrets,
            journal,
            hook_port,
            releases,
            _store: store,
            size,
        };
        for (n, port) in ports.iter().enumerate() {
            let name = format!("api-{n}");
            let redis = Proxy::start(vec![local(cluster.redis.port)]).await?;
            let s3 = Proxy::start(vec![store_address]).await?;
            let process = cluster.launch_api(&name, *port, (&redis, &s3), (1, 0), None)?;
            cluster.apis.push(Api { name, port: *port, process, incarnation: 1, rolls: 0, redis, s3 });
        }
        for n in 0..cluster.apis.len() {
            cluster.until_api_ready(n).await?;
        }
        cluster.deploy().await?;
        for n in 0..cluster.tenants.len() {
            let answer = cluster.get(n, "/v1/webhooks/secret").await?;
            cluster.tenants[n].hook_secret = answer["secret"].as_str().context("no webhook secret")?.to_owned();
        }
        for n in 0..cluster.size.workers {
            let name = format!("worker-{n}");
            let gateway = Proxy::start(ports.iter().map(|port| local(*port)).collect()).await?;
            let process = cluster.launch_worker(&name, &gateway, (1, 0), None)?;
            cluster.workers.push(Worker { name, process, incarnation: 1, rolls: 0, gateway });
        }
        for n in 0..cluster.workers.len() {
            cluster.until_joined(n).await?;
        }
        Ok(cluster)
    }

    /// URL of the API for clients.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.front.address())
    }

    /// Starts a replica that is down, optionally with a failpoint.
    pub(crate) fn restart_api(&mut self, n: usize, failpoints: Option<&str>) -> Result<()> {
        let api = &self.apis[n];
        let incarnation = api.incarnation + 1;
        let lines = (&api.redis, &api.s3);
        let process = self.launch_api(&api.name, api.port, lines, (incarnation, api.rolls), failpoints)?;
        let api = &mut self.apis[n];
        (api.process, api.incarnation) = (process, incarnation);
        Ok(())
    }

    /// Starts a worker that is down.
    pub(crate) fn restart_worker(&mut self, n: usize, failpoints: Option<&str>) -> Result<()> {
        let worker = &self.workers[n];
        let incarnation = worker.incarnation + 1;
        let process = self.launch_worker(&worker.name, &worker.gateway, (incarnation, worker.rolls), failpoints)?;
        let worker = &mut self.workers[n];
        (worker.process, worker.incarnation) = (process, incarnation);
        Ok(())
    }

    /// The id that the worker got when it joined; empty before.
    pub(crate) fn worker_id(&self, n: usize) -> String {
        let worker = &self.workers[n];
        let log = std::fs::read_to_string(log_path(&self.dir, &worker_log(&worker.name, worker.incarnation)));
        let log = log.unwrap_or_default();
        let id = log.lines().find(|line| line.contains(" joined ")).and_then(|line| line.split("worker.id=").nth(1));
        id.and_then(|id| id.split_whitespace().next()).unwrap_or_default().to_owned()
    }

    /// Process ids of a worker's runners.
    pub(crate) fn runners(&self, n: usize) -> Vec<u32> {
        let below = stokehold_tests::process::descendants(self.workers[n].process.pid());
        below.into_iter().filter(|(_, line)| line.contains("stokehold.runner serve")).map(|(pid, _)| pid).collect()
    }

    pub(crate) async fn until_api_ready(&mut self, n: usize) -> Result<()> {
        let url = format!("http://127.0.0.1:{}/readyz", self.apis[n].port);
        let http = reqwest::Client::new();
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let asked = http.get(&url).timeout(Duration::from_secs(2)).send().await;
            if asked.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            let Api { name, process, .. } = &mut self.apis[n];
            process.ensure_running().with_context(|| format!("{name} does not start"))?;
            ensure!(Instant::now() < deadline, "{} is not ready", self.apis[n].name);
            sleep(PAUSE).await;
        }
    }

    /// Whether a replica answers yet.
    pub(crate) async fn serves(&self, n: usize) -> bool {
        let url = format!("http://127.0.0.1:{}/readyz", self.apis[n].port);
        let asked = reqwest::Client::new().get(url).timeout(Duration::from_millis(500)).send().await;
        asked.is_ok_and(|answer| answer.status().is_success())
    }

    pub(crate) async fn until_joined(&mut self, n: usize) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        while self.worker_id(n).is_empty() {
            let Worker { name, process, .. } = &mut self.workers[n];
            process.ensure_running().with_context(|| format!("{name} does not join"))?;
            ensure!(Instant::now() < deadline, "{} has not joined", self.workers[n].name);
            // Its log is a file: nothing signals a new line.
            sleep(PAUSE * 5).await;
        }
        Ok(())
    }

    /// Sends a tenant's GET to the first replica, bypassing the proxies.
    pub(crate) async fn get(&self, tenant: usize, path: &str) -> Result<Value> {
        let url = format!("http://127.0.0.1:{}{path}", self.apis[0].port);
        let request = reqwest::Client::new().get(url).bearer_auth(&self.tenants[tenant].token);
        Ok(request.timeout(Duration::from_secs(30)).send().await?.error_for_status()?.json().await?)
    }

    fn launch_api(
        &self,
        name: &str,
        port: u16,
        (redis, s3): (&Proxy, &Proxy),
        (incarnation, rolls): (u32, u32),
        failpoints: Option<&str>,
    ) -> Result<Process> {
        let Size { lease_ms, queue_timeout_ms, .. } = self.size;
        let mut env = vec![
            ("STOKE_PUBLIC_URL", self.url()),
            ("STOKE_TOKEN_KEY", self.secrets.token_key.clone()),
            ("STOKE_REDIS_URL", format!("redis://{}/0", redis.address())),
            ("STOKE_S3_ENDPOINT_URL", format!("http://{}", s3.address())),
            ("STOKE_S3_PUBLIC_URL", format!("http://{}", self.public_s3.address())),
            ("STOKE_S3_ACCESS_KEY_ID", self.secrets.s3_access_key_id.clone()),
            ("STOKE_S3_SECRET_ACCESS_KEY", self.secrets.s3_secret_access_key.clone()),
            ("STOKE_S3_PATH_STYLE", "true".to_owned()),
            ("STOKE_LEASE_MS", lease_ms.to_string()),
            ("STOKE_EXTEND_EVERY_MS", (lease_ms / 5).to_string()),
            ("STOKE_LIMIT_QUEUE_TIMEOUT_MS", queue_timeout_ms.to_string()),
            ("STOKE_WEBHOOK_ALLOW_PRIVATE", "true".to_owned()),
            ("STOKE_WEBHOOK_ALLOW_HTTP", "true".to_owned()),
            ("STOKE_WEBHOOK_PORTS", self.hook_port.to_string()),
            ("STOKE_WEBHOOK_WAITS_S", "0.3,0.5,1,2,3,3,3,3,3".to_owned()),
        ];
        env.extend(failpoints.map(|points| ("STOKE_FAILPOINTS", points.to_owned())));
        let event = Event::new(&format!("{name}.{incarnation}"), Kind::Ok, "process");
        self.journal.write(event.v(json!({"is": "started", "failpoints": failpoints})));
        let arguments = ["api".to_owned(), "--listen".to_owned(), format!("127.0.0.1:{port}")];
        let stoke = self.releases.after(rolls);
        Process::start(stoke, &log_path(&self.dir, name), stoke, arguments, &env)
    }

    fn launch_worker(
        &self,
        name: &str,
        gateway: &Proxy,
        (incarnation, rolls): (u32, u32),
        failpoints: Option<&str>,
    ) -> Result<Process> {
        let full = worker_log(name, incarnation);
        let mut env = vec![
            ("STOKE_GATEWAY_URL", format!("http://{}", gateway.address())),
            ("STOKE_JOIN_TOKEN", self.secrets.join_token.clone()),
            ("STOKE_DATA_DIR", self.dir.join("workers").join(&full).to_string_lossy().into_owned()),
            ("STOKE_SLOTS", self.size.slots.to_string()),
            // Its handlers write journals, which are the evidence.
            ("STOKE_SANDBOX", "L0".to_owned()),
        ];
        env.extend(failpoints.map(|points| ("STOKE_FAILPOINTS", points.to_owned())));
        let event = Event::new(&full, Kind::Ok, "process");
        self.journal.write(event.v(json!({"is": "started", "failpoints": failpoints})));
        let stoke = self.releases.after(rolls);
        Process::start(stoke, &log_path(&self.dir, &full), stoke, ["worker", "--name", &full], &env)
    }

    async fn deploy(&self) -> Result<()> {
        let folder = self.dir.join("package");
        std::fs::create_dir_all(&folder)?;
        let runs = std::path::absolute(self.dir.join("history/runs"))?;
        let source = include_str!("../endpoint.py")
            .replace("@FOLDER@", &runs.to_string_lossy())
            .replace("@SLOTS@", &self.size.slots.to_string())
            .replace("@ATTEMPTS@", &self.size.max_attempts.to_string());
        std::fs::write(folder.join("main.py"), source)?;
        for tenant in &self.tenants {
            let mut command = Command::new(self.releases.after(0));
            command.arg("deploy").arg(&folder).env("STOKE_URL", self.url()).env("STOKE_TOKEN", &tenant.token);
            output(command).await.context("cannot deploy the endpoint")?;
        }
        Ok(())
    }
}

/// The built `stoke`: `STOKE_BIN`, else the one beside this program.
fn stoke_binary() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("STOKE_BIN") {
        return Ok(named.into());
    }
    let beside = std::env::current_exe()?.with_file_name("stoke");
    ensure!(beside.is_file(), "no `stoke` beside this program: build it first, or name one with STOKE_BIN");
    Ok(beside)
}

fn worker_log(name: &str, incarnation: u32) -> String {
    format!("{name}.{incarnation}")
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn hex(bytes: usize) -> String {
    (0..bytes).map(|_| format!("{:02x}", rand::random::<u8>())).collect()
}

/// The object store in a separate process: this program again.
fn store(dir: &Path, stoke: &Path, port: u16, secrets: &Secrets) -> Result<Process> {
    let us = std::env::current_exe().context("cannot find the path of this program")?;
    let (data, port) = (dir.join("objects").to_string_lossy().into_owned(), port.to_string());
    let env = [
        ("CHAOS_S3_ACCESS_KEY_ID", secrets.s3_access_key_id.clone()),
        ("CHAOS_S3_SECRET_ACCESS_KEY", secrets.s3_secret_access_key.clone()),
    ];
    Process::start(stoke, &log_path(dir, "store"), &us, ["store", "--dir", &data, "--port", &port], &env)
}

async fn wait_for_port(address: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + READY_LIMIT;
    while tokio::net::TcpStream::connect(address).await.is_err() {
        ensure!(Instant::now() < deadline, "nothing listens on {address}");
        sleep(PAUSE).await;
    }
    Ok(())
}

async fn token(stoke: &Path, redis: &Redis, secrets: &Secrets, kind: &str, tenant: &str) -> Result<String> {
    let mut command = Command::new(stoke);
    command
        .args([
            "token",
            "create",
            "--kind",
            kind,
            "--name",
            "chaos",
            "--tenant",
            tenant,
            "--json",
            "--redis",
            &redis.url(),
        ])
        .env("STOKE_TOKEN_KEY", &secrets.token_key);
    let made: Value = serde_json::from_slice(&output(command).await?)?;
    Ok(made["token"].as_str().context("no token was made")?.to_owned())
}

async fn output(mut command: Command) -> Result<Vec<u8>> {
    let done = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let done = tokio::time::timeout(READY_LIMIT * 2, done).await.context("stoke does not end")??;
    ensure!(done.status.success(), "stoke: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr));
    Ok(done.stdout)
}
