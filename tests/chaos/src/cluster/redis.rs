//! The Redis of a run: it is killed, paused, and restarted on its data.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use stokehold_tests::redis_server::free_port;
use tokio::time::{Instant, sleep};

use super::process::{Process, log_path};

/// Maximum time to load the data of a run.
const START_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// The server, and the arguments to restart it.
pub(crate) struct Redis {
    dir: PathBuf,
    stoke: PathBuf,
    pub(crate) port: u16,
    pub(crate) process: Process,
}

impl Redis {
    pub(crate) async fn start(dir: &Path, stoke: &Path) -> Result<Self> {
        let port = free_port();
        std::fs::create_dir_all(dir.join("redis"))?;
        let process = launch(dir, stoke, port)?;
        let mut redis = Self { dir: dir.to_owned(), stoke: stoke.to_owned(), port, process };
        redis.until_ready().await?;
        Ok(redis)
    }

    /// Restarts it after a kill, on the same port and data.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.process = launch(&self.dir, &self.stoke, self.port)?;
        self.until_ready().await
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    async fn until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Ok(mut connection) = connect(&self.url()).await
                && redis::cmd("PING").query_async::<String>(&mut connection).await.is_ok()
            {
                return Ok(());
            }
            self.process.ensure_running().context("Redis does not start")?;
            ensure!(Instant::now() < deadline, "Redis is not ready after {} s", START_LIMIT.as_secs());
            sleep(PAUSE).await;
        }
    }
}

/// A direct connection, which bypasses every proxy.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(5)))
        .set_response_timeout(Some(Duration::from_secs(30)));
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}

fn launch(dir: &Path, stoke: &Path, port: u16) -> Result<Process> {
    let binary = std::env::var("STOKE_TEST_REDIS").unwrap_or_else(|_| "redis-server".to_owned());
    let (port, data) = (port.to_string(), dir.join("redis").to_string_lossy().into_owned());
    // The settings of `stoke dev` with `--durability strict`.
    let arguments = [
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--dir",
        &data,
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--maxmemory",
        "2gb",
        "--maxmemory-policy",
        "noeviction",
        "--hash-max-listpack-value",
        "1024",
        "--stream-node-max-entries",
        "16",
    ];
    Process::start(stoke, &log_path(dir, "redis"), Path::new(&binary), arguments, &[])
}
