//! A complete stack in this process and its children, started in dependency order.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stokehold_api::Config;
use stokehold_api::token::{Scope, TokenKey};
use stokehold_metrics::Metrics;
use stokehold_objects::ObjectsConfig;
use stokehold_objects::store::{self, StoreConfig};
use stokehold_queue::{RedisConfig, Shards};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::lock::{DataLock, make_private};
use super::redis_server::RedisServer;
use super::secrets::{Secrets, TENANT};
use super::state::{State, host, listen};
use super::workers::{Begun, Workers};
use super::{Durability, WorkerRange, provision};
use crate::client::{Client, connect_to};
use crate::dashboard;

/// Readiness timeout; longer than the API's own start-up checks, which take up to a minute.
const READY_LIMIT: Duration = Duration::from_secs(90);

const PAUSE: Duration = Duration::from_millis(20);

const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Options of a stack.
pub(crate) struct StackOptions {
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    /// URL of an external Redis.
    pub(crate) redis: Option<String>,
    /// URL of an external S3 server.
    pub(crate) s3: Option<String>,
    pub(crate) durability: Durability,
    pub(crate) ephemeral: bool,
    pub(crate) workers: WorkerRange,
    /// Seed of a simulated Vast.ai to rent the workers from.
    pub(crate) fake_vast: Option<u64>,
    /// Concurrent jobs per worker; `None` lets the worker decide.
    pub(crate) slots: Option<u32>,
    pub(crate) child_log: ChildLog,
}

/// Destination of the workers' log lines.
pub(crate) enum ChildLog {
    /// Standard error of this process.
    Stderr,
    File(File),
}

/// Facts about a running stack, for display.
pub(crate) struct About {
    pub(crate) durability: String,
    pub(crate) redis: String,
    pub(crate) objects: String,
    pub(crate) workers: WorkerRange,
    /// URL of the simulated Vast.ai.
    pub(crate) fake_vast: Option<String>,
}

/// A running stack. Dropping it stops its parts; [`Stack::stop`] stops them in order.
pub(crate) struct Stack {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) data: PathBuf,
    pub(crate) about: About,
    queue: RedisConfig,
    key: TokenKey,
    workers: Workers,
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

impl Stack {
    pub(crate) async fn start(options: StackOptions) -> Result<Self> {
        ensure!(
            !options.listen.ip().is_unspecified(),
            "--listen {}: use the address of this machine that workers and clients can reach, because it is part of the URLs that they get",
            options.listen
        );
        let data = make_private(&options.data)?;
        let lock = DataLock::take(&data)?;
        let secrets = Secrets::load_or_make(&data)?;
        let last = State::load(&data)?.unwrap_or_default();

        let (redis, redis_url, about_redis) = redis(&options, &data, &secrets).await?;
        let listener = listen(options.listen, last.api_port).await?;
        let address = listener.local_addr()?;
        let mut config = config(&secrets, &options, address)?;
        config.redis.url.clone_from(&redis_url);
        let queue = config.redis.clone();
        let (store, store_port, about_objects) =
            objects(&options, &data, &secrets, last.store_port, &mut config).await?;
        let state =
            State { redis_url, redis_prefix: config.redis.prefix.clone(), api_port: address.port(), store_port };
        state.save(&data)?;
        let durability = admit(&config.redis, &secrets, options.ephemeral).await?;

        let url = config.public_url.clone();
        let shutdown = CancellationToken::new();
        // The API's metrics endpoint also has the autoscaler's metrics.
        let exposition = Metrics::default();
        let catalogues = [&stokehold_api::catalogues()[..], &[stokehold_autoscaler::metrics::METRICS]].concat();
        stokehold_metrics::install(&catalogues);
        let serving = stokehold_api::run_showing(config, exposition.clone(), listener, shutdown.clone());
        let mut api = Part { name: "the API", task: tokio::spawn(serving), shutdown };
        let client = connect_to(url.clone(), secrets.api.token.clone())?;
        tokio::select! {
            ready = until_ready(&client) => ready?,
            ended = api.ended() => return Err(ended),
        }
        let mut about =
            About { durability, redis: about_redis, objects: about_objects, workers: options.workers, fake_vast: None };
        let begun =
            Begun { url: &url, secrets: &secrets, data: &data, client: &client, queue: queue.clone(), exposition };
        let workers = Workers::start(options, begun).await?;
        about.fake_vast = workers.fake_vast().map(str::to_owned);
        let (key, token) = (secrets.token_key()?, secrets.api.token);
        Ok(Self { url, token, data, about, queue, key, workers, api, store, redis, _lock: lock })
    }

    /// Creates a single-use log-in link for the dashboard; `None` if this build has no dashboard.
    pub(crate) async fn dashboard(&self) -> Result<Option<String>> {
        if !stokehold_api::has_dashboard() {
            return Ok(None);
        }
        let queue = Shards::connect(self.queue.clone()).await.context("cannot reach Redis")?;
        dashboard::link(&self.url, &queue.registry(), &self.key, TENANT, &Scope::ALL).await.map(Some)
    }

    /// Supervises the parts, and restarts workers and the stack's Redis. Completes with an error when an essential part
    /// has ended.
    pub(crate) async fn supervise(&mut self) -> anyhow::Error {
        let Self { workers, api, store, redis, .. } = self;
        tokio::select! {
            error = workers.ended() => error,
            error = api.ended() => error,
            error = async { match store { Some(store) => store.ended().await, None => std::future::pending().await } } => error,
            error = async { match redis { Some(redis) => redis.supervise().await, None => std::future::pending().await } } => error,
        }
    }

    /// Stops all parts in reverse dependency order. Running jobs may finish until `now` completes.
    pub(crate) async fn stop(mut self, now: impl Future<Output = ()>) {
        let hurry = CancellationToken::new();
        let stopping = async {
            self.workers.stop(&hurry).await;
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
}

impl Part {
    /// Completes with an error when the part ends by itself.
    async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Ok(())) => anyhow::anyhow!("{} stopped unexpectedly", self.name),
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

async fn redis(
    options: &StackOptions,
    data: &Path,
    secrets: &Secrets,
) -> Result<(Option<RedisServer>, String, String)> {
    if let Some(url) = &options.redis {
        return Ok((None, url.clone(), "yours".to_owned()));
    }
    let binary = provision::redis_binary().await?;
    let server = RedisServer::start(&binary, &data.join("redis"), options.durability, &secrets.redis_password).await?;
    let url = server.url.clone();
    Ok((Some(server), url, format!("{} {}", binary.path.display(), binary.version)))
}

/// The API's settings, with those that the stack determines.
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

/// Checks that Redis meets the durability setting, and stores the stack's tokens in it.
async fn admit(redis: &RedisConfig, secrets: &Secrets, ephemeral: bool) -> Result<String> {
    let queue = Shards::connect(redis.clone()).await.context("cannot reach Redis")?;
    let fitness = queue.check_fitness(ephemeral).await.context("this Redis does not meet the requirements")?;
    let registry = queue.registry();
    for token in [&secrets.api, &secrets.join] {
        registry.put_token(&token.record).await.context("cannot store the tokens in Redis")?;
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
        ensure!(Instant::now() < deadline, "the API was not ready within {} s", READY_LIMIT.as_secs());
        sleep(PAUSE).await;
    }
}
