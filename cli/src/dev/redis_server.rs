//! The Redis server of a stack: its settings, start, recovery and stop.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::{SysconfVar, sysconf};
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use super::provision::RedisBinary;
use super::{Durability, children};

/// Minimum `maxmemory`, bytes.
const MEMORY_MIN: u64 = 256 << 20;

/// Maximum length of a socket path. The kernel's limit is 104 bytes on macOS and 108 on Linux, including the final NUL.
const SOCKET_PATH_MAX: usize = 103;

/// Start timeout: loading an append-only file of 10 GB takes about this long.
const START_LIMIT: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(10);

/// Timeout of one call to a server that may hang or be another program.
const CALL_LIMIT: Duration = Duration::from_secs(5);
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A server that ran this long counts as started. One that exits sooner is restarted at most [`RESTARTS_MAX`] times in
/// a row.
const STEADY: Duration = Duration::from_secs(60);
const RESTARTS_MAX: u32 = 5;
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// A running server. It exits with this process.
pub(crate) struct RedisServer {
    binary: RedisBinary,
    dir: PathBuf,
    durability: Durability,
    password: String,
    child: Child,
    log: PathBuf,
    /// URL of the server, with its password.
    pub(crate) url: String,
}

impl RedisServer {
    /// Starts `binary` on the data in `dir`. The caller must hold the lock of the data directory. A server that still
    /// runs there was left by a killed `stoke dev` and is stopped first.
    pub(crate) async fn start(
        binary: &RedisBinary,
        dir: &Path,
        durability: Durability,
        password: &str,
    ) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let socket = dir.join("redis.sock");
        let length = socket.as_os_str().len();
        ensure!(
            length <= SOCKET_PATH_MAX,
            "{} is too long for a socket path ({length} bytes, maximum {SOCKET_PATH_MAX}): use a shorter --data path",
            socket.display()
        );
        let bare = socket_url(&socket)?;
        let url = format!("{bare}?pass={password}");
        stop_stale(&socket, [&url, &bare])
            .await
            .context("cannot stop an earlier Redis that still uses this data directory")?;
        let (config, log) = (dir.join("redis.conf"), dir.join("redis.log"));
        write_private(&config, &settings(dir, &socket, durability, password)?)?;
        let child = children::spawn(&binary.path, [&config], |command| {
            command.current_dir(dir);
        })?;
        let (binary, dir, password) = (binary.clone(), dir.to_owned(), password.to_owned());
        let mut server = Self { binary, dir, durability, password, child, log, url };
        server.until_ready().await?;
        Ok(server)
    }

    /// Restarts the server whenever it exits. Completes with an error when restarts do not help.
    pub(super) async fn supervise(&mut self) -> anyhow::Error {
        let (mut restarts, mut started) = (0, Instant::now());
        loop {
            let why = self.ended().await;
            if started.elapsed() >= STEADY {
                restarts = 0;
            }
            restarts += 1;
            if restarts > RESTARTS_MAX {
                return why.context(format!("Redis keeps exiting ({RESTARTS_MAX} restarts)"));
            }
            tracing::warn!("{why:#}; restarting Redis");
            sleep(RESTART_PAUSE * (restarts - 1)).await;
            match Self::start(&self.binary, &self.dir, self.durability, &self.password).await {
                Ok(server) => *self = server,
                Err(error) => return error.context("cannot restart Redis"),
            }
            started = Instant::now();
            tracing::info!("Redis restarted");
        }
    }

    /// Completes with an error when the server exits by itself.
    async fn ended(&mut self) -> anyhow::Error {
        match self.child.wait().await {
            Ok(status) => anyhow::anyhow!("Redis exited ({status}); last log lines:\n{}", self.last_lines()),
            Err(error) => anyhow::Error::new(error).context("cannot monitor Redis"),
        }
    }

    /// Stops the server. All its data is on disk when this returns.
    pub(crate) async fn stop(mut self) {
        children::stop(&mut self.child, STOP_LIMIT, std::future::pending()).await;
    }

    async fn until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("Redis failed to start ({status}); last log lines:\n{}", self.last_lines());
            }
            // Not listening yet, or still loading.
            if ping(&self.url).await.is_ok() {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "Redis was not ready within {} s; see {}",
                START_LIMIT.as_secs(),
                self.log.display()
            );
            sleep(PAUSE).await;
        }
    }

    fn last_lines(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

/// URL of a unix socket, with its path percent-encoded.
fn socket_url(socket: &Path) -> Result<String> {
    let url =
        reqwest::Url::from_file_path(socket).map_err(|()| anyhow::anyhow!("{} is not absolute", socket.display()))?;
    Ok(format!("redis+unix://{}", url.path()))
}

fn settings(dir: &Path, socket: &Path, durability: Durability, password: &str) -> Result<String> {
    let (dir, socket) = (quoted(dir)?, quoted(socket)?);
    let fsync = match durability {
        Durability::Strict => "always",
        Durability::Standard => "everysec",
    };
    let memory = memory();
    Ok(format!(
        "# Written by `stoke dev` at every start.
# Only a socket, only for this user, and a password: Landlock does not refuse a socket's path to handlers that are shut in.
port 0
requirepass {password}
unixsocket {socket}
unixsocketperm 700
dir {dir}
daemonize no
logfile redis.log
# Jobs live in the append-only file; snapshots would only cost.
appendonly yes
appendfsync {fsync}
save \"\"
# It must refuse work before it is killed for its memory, and never forget a job.
maxmemory {memory}
maxmemory-policy noeviction
# Job records and lanes are small: in these forms they take about half the memory.
hash-max-listpack-value 1024
stream-node-max-entries 16
"
    ))
}

/// Quotes a path for the configuration file.
fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    ensure!(!text.contains('\n'), "{} contains a line break", path.display());
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// A quarter of this machine's memory, bytes.
pub(super) fn memory() -> u64 {
    let ask = |name| sysconf(name).ok().flatten().and_then(|value| u64::try_from(value).ok()).unwrap_or_default();
    (ask(SysconfVar::_PHYS_PAGES) * ask(SysconfVar::PAGE_SIZE) / 4).max(MEMORY_MIN)
}

async fn ping(url: &str) -> Result<()> {
    call(url, "PING").await
}

/// Stops a server that listens on `socket`, after it has saved its data. Servers of earlier releases have no password.
async fn stop_stale(socket: &Path, urls: [&str; 2]) -> Result<()> {
    if !answers(socket).await {
        return Ok(());
    }
    tracing::warn!("stopping an earlier Redis that still uses this data directory");
    for url in urls {
        // SHUTDOWN closes the connection without a reply.
        let _ = call(url, "SHUTDOWN").await;
    }
    let deadline = Instant::now() + STOP_LIMIT;
    while answers(socket).await {
        ensure!(Instant::now() < deadline, "it is still running after {} s", STOP_LIMIT.as_secs());
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Returns whether a server accepts connections on the socket.
async fn answers(socket: &Path) -> bool {
    match tokio::time::timeout(CALL_LIMIT, tokio::net::UnixStream::connect(socket)).await {
        Ok(connected) => connected.is_ok(),
        // The backlog is full.
        Err(_) => true,
    }
}

async fn call(url: &str, command: &str) -> Result<()> {
    let client = redis::Client::open(url)?;
    let asked = async {
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd(command).query_async::<redis::Value>(&mut connection).await
    };
    tokio::time::timeout(CALL_LIMIT, asked).await??;
    Ok(())
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn paths_survive_the_configuration_file_and_the_url() {
        assert_eq!(quoted(Path::new(r#"/a b/"c"\d"#)).unwrap(), r#""/a b/\"c\"\\d""#);
        assert_eq!(socket_url(Path::new("/a b/redis.sock")).unwrap(), "redis+unix:///a%20b/redis.sock");
        assert!(quoted(Path::new("/a\nport 1")).is_err());
    }

    #[test]
    fn durability_is_the_fsync_setting() {
        let text = |durability| settings(Path::new("/d"), Path::new("/d/s"), durability, "secret").unwrap();
        assert!(text(Durability::Strict).contains("appendfsync always\n"));
        assert!(text(Durability::Standard).contains("appendfsync everysec\n"));
        assert!(text(Durability::Standard).contains("requirepass secret\n"));
    }
}
