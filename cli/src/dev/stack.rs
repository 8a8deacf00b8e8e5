//! The whole stack in and below this process, in the order in which its parts need each other.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::join_all;
use serde_json::Value;
use stokehold_api::Config;
use stokehold_objects::ObjectsConfig;
use stokehold_objects::store::{self, StoreConfig};
use stokehold_queue::{RedisConfig, Shards};
use stokehold_worker::uv::ensure_uv;
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::lock::{DataLock, make_private};
use super::redis_server::RedisServer;
use super::secrets::Secrets;
use super::state::{State, host, listen};
use super::{Durability, children, provision};
use crate::client::Client;
use crate::paths;

/// The API's own boot checks give up after a minute.
const READY_LIMIT: Duration = Duration::from_secs(90);

/// A worker that has never run here installs what it needs first.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);

/// Longer than a worker lets its jobs go on by itself.
const DRAIN_LIMIT: Duration = Duration::from_secs(40);
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A worker that ends by itself is started again, no sooner than this.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// How to start it.
pub(crate) struct StackOptions {
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    /// Another Redis than our own.
    pub(crate) redis: Option<String>,
    /// Another S3 server than our own.
    pub(crate) s3: Option<String>,
    pub(crate) durability: Durability,
    pub(crate) ephemeral: bool,
    pub(crate) workers: u32,
    /// Jobs at once in each worker; else it decides.
    pub(crate) slots: Option<u32>,
    pub(crate) child_log: ChildLog,
}

/// Where the workers' log lines go.
pub(crate) enum ChildLog {
    /// Beside ours.
    Stderr,
    File(File),
}

/// What a person wants to know of a running stack.
pub(crate) struct About {
    pub(crate) durability: String,
    pub(crate) redis: String,
    pub(crate) objects: String,
    pub(crate) workers: u32,
}

/// A running stack. What it started ends when this is dropped; [`Stack::stop`] ends it in order.
pub(crate) struct Stack {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) data: PathBuf,
    pub(crate) about: About,
    workers: Vec<Worker>,
    api: Part,
    store: Option<Part>,
    redis: Option<RedisServer>,
    _lock: DataLock,
}

/// A part that runs in this process.
struct Part {
    name: &'static str,
    task: JoinHandle<Result<()>>,
    shutdown: CancellationToken,
}

struct Worker {
    child: Child,
    /// It stops when this closes: when we are gone, where the kernel cannot tell it so.
    tie: Option<ChildStdin>,
    name: String,
    launch: Launch,
}

/// What a worker is started with.
struct Launch {
    url: String,
    join_token: String,
    scratch: PathBuf,
    slots: Option<u32>,
    log: Option<File>,
}

impl Stack {
    pub(crate) async fn start(options: StackOptions) -> Result<Self> {
        ensure!(
            !options.listen.ip().is_unspecified(),
            "--listen {}: give the address by which workers and clients reach this machine; it stands in the URLs they are handed",
            options.listen
        );
        let data = make_private(&options.data)?;
        let lock = DataLock::take(&data)?;
        let secrets = Secrets::load_or_make(&data)?;
        let last = State::load(&data)?.unwrap_or_default();

        let (redis, redis_url, about_redis) = redis(&options, &data).await?;
        let listener = listen(options.listen, last.api_port).await?;
        let address = listener.local_addr()?;
        let mut config = config(&secrets, &options, address)?;
        config.redis.url.clone_from(&redis_url);
        let (store, store_port, about_objects) =
            objects(&options, &data, &secrets, last.store_port, &mut config).await?;
        let state =
            State { redis_url, redis_prefix: config.redis.prefix.clone(), api_port: address.port(), store_port };
        state.save(&data)?;
        let durability = admit(&config.redis, &secrets, options.ephemeral).await?;

        let url = config.public_url.clone();
        let shutdown = CancellationToken::new();
        let serving = stokehold_api::run(config, listener, shutdown.clone());
        let mut api = Part { name: "the API", task: tokio::spawn(serving), shutdown };
        let client = Client::new(url.clone(), secrets.api.token.clone())?;
        tokio::select! {
            ready = until_ready(&client) => ready?,
            ended = api.ended() => return Err(ended),
        }
        let about = About { durability, redis: about_redis, objects: about_objects, workers: options.workers };
        let mut stack =
            Self { url, token: secrets.api.token, data, about, workers: Vec::new(), api, store, redis, _lock: lock };
        stack.add_workers(&options, &secrets.join.token, &client).await?;
        Ok(stack)
    }

    /// Watches over the parts, and starts workers again that ended. Completes with why, when a part has ended that the rest cannot do
    /// without.
    pub(crate) async fn supervise(&mut self) -> anyhow::Error {
        let Self { workers, api, store, redis, .. } = self;
        let workers = async {
            if let Err(error) = futures::future::try_join_all(workers.iter_mut().map(Worker::keep_alive)).await {
                return error;
            }
            std::future::pending().await
        };
        tokio::select! {
            error = workers => error,
            error = api.ended() => error,
            error = async { match store { Some(store) => store.ended().await, None => std::future::pending().await } } => error,
            error = async { match redis { Some(redis) => redis.ended().await, None => std::future::pending().await } } => error,
        }
    }

    /// Ends everything, those first that need the others: jobs under way may end, until `now` completes.
    pub(crate) async fn stop(mut self, now: impl Future<Output = ()>) {
        let hurry = CancellationToken::new();
        let stopping = async {
            let workers = self.workers.iter_mut();
            join_all(workers.map(|worker| children::stop(&mut worker.child, DRAIN_LIMIT, hurry.cancelled()))).await;
        };
        tokio::pin!(stopping);
        tokio::select! {
            () = &mut stopping => (),
            () = now => {
                hurry.cancel();
                stopping.await;
            }
        }
        self.api.stop().await;
        if let Some(store) = self.store {
            store.stop().await;
        }
        if let Some(redis) = self.redis {
            redis.stop().await;
        }
    }

    async fn add_workers(&mut self, options: &StackOptions, join_token: &str, client: &Client) -> Result<()> {
        if options.workers == 0 {
            return Ok(());
        }
        // Here rather than in each of them, where nobody would see why it takes a while.
        ensure_uv(None, &paths::cache_dir()?).await?;
        let before = worker_ids(client).await?;
        for number in 1..=options.workers {
            let name = format!("worker-{number}");
            let log = match &options.child_log {
                ChildLog::Stderr => None,
                ChildLog::File(file) => Some(file.try_clone()?),
            };
            let launch = Launch {
                url: self.url.clone(),
                join_token: join_token.to_owned(),
                scratch: self.data.join(&name),
                slots: options.slots,
                log,
            };
            let mut child = launch.spawn(&name)?;
            // Waiting for a child closes what is still in it.
            let tie = child.stdin.take();
            self.workers.push(Worker { child, tie, name, launch });
        }
        let deadline = Instant::now() + JOIN_LIMIT;
        loop {
            let joined = worker_ids(client).await?.iter().filter(|id| !before.contains(id)).count();
            if joined >= options.workers as usize {
                return Ok(());
            }
            for worker in &mut self.workers {
                if let Some(status) = worker.child.try_wait()? {
                    bail!("{} ended before it had joined ({status}); see its lines above", worker.name);
                }
            }
            ensure!(Instant::now() < deadline, "the workers have not joined within {} s", JOIN_LIMIT.as_secs());
            sleep(PAUSE).await;
        }
    }
}

impl Part {
    /// Completes when the part has ended without having been asked to.
    async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Ok(())) => anyhow::anyhow!("{} ended", self.name),
            Ok(Err(error)) => error.context(format!("{} failed", self.name)),
            Err(error) => anyhow::Error::new(error).context(format!("{} panicked", self.name)),
        }
    }

    async fn stop(mut self) {
        self.shutdown.cancel();
        if !self.task.is_finished() && tokio::time::timeout(STOP_LIMIT, &mut self.task).await.is_err() {
            tracing::warn!("{} did not stop within {} s", self.name, STOP_LIMIT.as_secs());
            self.task.abort();
        }
    }
}

impl Worker {
    /// Starts the worker again whenever it ends; what it ran is run again as well.
    async fn keep_alive(&mut self) -> Result<()> {
        loop {
            let status = self.child.wait().await?;
            tracing::warn!("{} ended ({status}); starting it again", self.name);
            sleep(RESTART_PAUSE).await;
            self.child = self.launch.spawn(&self.name)?;
            self.tie = self.child.stdin.take();
        }
    }
}

impl Launch {
    fn spawn(&self, name: &str) -> Result<Child> {
        let stoke = std::env::current_exe().context("cannot find the path of this program")?;
        let log = self.log.as_ref().map(File::try_clone).transpose()?;
        children::spawn(&stoke, ["worker", "--name", name, "--exit-with-stdin"], |command| {
            command
                .stdin(Stdio::piped())
                .env("STOKE_GATEWAY_URL", &self.url)
                .env("STOKE_JOIN_TOKEN", &self.join_token)
                .env("STOKE_DATA_DIR", &self.scratch)
                .env_remove("STOKE_WORKER_NAME")
                .env_remove("STOKE_TOKEN")
                .env_remove("STOKE_REDIS_URL")
                .env_remove("STOKE_TOKEN_KEY");
            if let Some(slots) = self.slots {
                command.env("STOKE_SLOTS", slots.to_string());
            }
            if let Some(log) = log {
                command.stdout(Stdio::null()).stderr(log);
            }
        })
    }
}

async fn redis(options: &StackOptions, data: &Path) -> Result<(Option<RedisServer>, String, String)> {
    if let Some(url) = &options.redis {
        return Ok((None, url.clone(), "yours".to_owned()));
    }
    let binary = provision::redis_binary().await?;
    let server = RedisServer::start(&binary, &data.join("redis"), options.durability).await?;
    let url = server.url.clone();
    Ok((Some(server), url, format!("{} {}", binary.path.display(), binary.version)))
}

/// The API's own settings, with what this stack decides in their place.
fn config(secrets: &Secrets, options: &StackOptions, address: SocketAddr) -> Result<Config> {
    let ours = |name: &str| matches!(name, "STOKE_LISTEN" | "STOKE_PUBLIC_URL" | "STOKE_EPHEMERAL");
    let mut config = Config::load(None, |name| match name {
        "STOKE_TOKEN_KEY" => Some(secrets.token_key.clone()),
        name => std::env::var(name).ok().filter(|_| !ours(name)),
    })?;
    config.listen = address;
    config.public_url = format!("http://{}:{}", host(address.ip()), address.port());
    config.ephemeral = options.ephemeral;
    config.redis.durability = match options.durability {
        Durability::Strict => stokehold_queue::Durability::Strict,
        Durability::Standard => stokehold_queue::Durability::Standard,
    };
    Ok(config)
}

async fn objects(
    options: &StackOptions,
    data: &Path,
    secrets: &Secrets,
    last_port: u16,
    config: &mut Config,
) -> Result<(Option<Part>, u16, String)> {
    if let Some(url) = &options.s3 {
        config.s3.endpoint_url = Some(url.clone());
        return Ok((None, 0, format!("bucket {} on {url}", config.s3.bucket)));
    }
    let dir = data.join("objects");
    let listener: TcpListener = listen(SocketAddr::new(options.listen.ip(), 0), last_port).await?;
    let address = listener.local_addr()?;
    let endpoint = format!("http://{}:{}", host(address.ip()), address.port());
    config.s3 = ObjectsConfig {
        endpoint_url: Some(endpoint.clone()),
        public_url: None,
        region: "us-east-1".to_owned(),
        bucket: "stokehold".to_owned(),
        access_key_id: Some(secrets.s3_access_key_id.clone()),
        secret_access_key: Some(secrets.s3_secret_access_key.clone().into()),
        path_style: true,
    };
    let store = StoreConfig {
        dir: dir.clone(),
        access_key_id: secrets.s3_access_key_id.clone(),
        secret_access_key: secrets.s3_secret_access_key.clone().into(),
    };
    let shutdown = CancellationToken::new();
    let stopped = shutdown.clone();
    let serving = async move { Ok(store::serve(listener, store, stopped.cancelled_owned()).await?) };
    let part = Part { name: "the object store", task: tokio::spawn(serving), shutdown };
    Ok((Some(part), address.port(), format!("{} on {endpoint}", dir.display())))
}

/// Checks that Redis can keep what is promised, and puts our tokens where the API looks for them.
async fn admit(redis: &RedisConfig, secrets: &Secrets, ephemeral: bool) -> Result<String> {
    let queue = Shards::connect(redis.clone()).await.context("Redis cannot be reached")?;
    let fitness = queue.check_fitness(ephemeral).await.context("this Redis will not do")?;
    let registry = queue.registry();
    for token in [&secrets.api, &secrets.join] {
        registry.put_token(&token.record).await.context("Redis did not take our tokens")?;
    }
    Ok(fitness.durability.as_str().to_owned())
}

async fn until_ready(client: &Client) -> Result<()> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let asked = client.http().get(format!("{}/readyz", client.url())).timeout(Duration::from_secs(5)).send().await;
        if asked.is_ok_and(|answer| answer.status().is_success()) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the API is not ready after {} s", READY_LIMIT.as_secs());
        sleep(PAUSE).await;
    }
}

async fn worker_ids(client: &Client) -> Result<Vec<Value>> {
    let mut workers = client.get("/v1/workers").await?;
    let workers = workers["workers"].as_array_mut().map(std::mem::take).unwrap_or_default();
    Ok(workers.into_iter().map(|mut worker| worker["id"].take()).collect())
}
