//! A real Redis or Valkey on a free port, durable as in production, for one test.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

/// A running server; killed when dropped.
pub struct RedisServer {
    child: Child,
    port: u16,
}

impl RedisServer {
    /// Starts one with its data in `dir`, with `extra` settings after the production-like ones. The binary is
    /// `STOKE_TEST_REDIS`, else `redis-server`, else `valkey-server` on PATH.
    ///
    /// # Panics
    /// If there is none, or it does not come up.
    #[must_use]
    pub fn start(dir: &Path, extra: &[&str]) -> Self {
        // Another process may take a port between the check and the bind; another port is tried then.
        let started = (0..10).find_map(|_| Self::start_on(free_port(), dir, extra));
        started.expect("Redis comes up on one of ten ports")
    }

    /// Starts one on the given port; `None` if it does not come up there.
    ///
    /// # Panics
    /// If there is no binary.
    #[must_use]
    pub fn start_on(port: u16, dir: &Path, extra: &[&str]) -> Option<Self> {
        let mut child = spawn(|command| {
            command
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
                .arg(dir)
                .args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
                .args(["--maxmemory", "256mb", "--maxmemory-policy", "noeviction"])
                .args(extra)
                .stdout(Stdio::piped());
        });
        if ready(&mut child) {
            return Some(Self { child, port });
        }
        let _ = child.wait();
        None
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Its port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its reply to one command.
    ///
    /// # Panics
    /// If there is no reply.
    pub fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_ask(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Its reply to one command, or the error.
    ///
    /// # Errors
    /// The error of the server or of the connection.
    pub fn try_ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> redis::RedisResult<T> {
        ask(self.port, command)
    }

    /// A connection that waits as long as a busy machine needs.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("its own address is one");
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(30)))
            .set_response_timeout(Some(Duration::from_secs(30)));
        client.get_multiplexed_async_connection_with_config(&patient).await.expect("it takes a connection")
    }

    /// Its process id, for tests that kill or pause it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports that no system gives to outgoing connections by default: Linux begins at 32,768, other systems at 49,152. One of
/// those could be taken before a server listens on it, or while the server is restarted.
const PORTS: Range<u16> = 10_000..32_768;

/// A port without a listener at this moment.
///
/// # Panics
/// If a hundred are in use.
#[must_use]
pub fn free_port() -> u16 {
    let mut ports = (0..100).map(|_| rand::random_range(PORTS));
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("one of a hundred ports is free")
}

/// Sends one command on a separate connection.
pub(crate) fn ask<T: redis::FromRedisValue>(port: u16, command: &[&str]) -> redis::RedisResult<T> {
    let patience = std::time::Duration::from_secs(5);
    let mut connection =
        redis::Client::open(format!("redis://127.0.0.1:{port}"))?.get_connection_with_timeout(patience)?;
    connection.set_read_timeout(Some(patience))?;
    let mut question = redis::cmd(command[0]);
    question.arg(&command[1..]);
    question.query(&mut connection)
}

/// Starts the server's binary.
pub(crate) fn spawn(set_up: impl Fn(&mut Command)) -> Child {
    let named = std::env::var("STOKE_TEST_REDIS").ok();
    let candidates = named.as_deref().map_or(vec!["redis-server", "valkey-server"], |named| vec![named]);
    let start = |binary: &&str| {
        let mut command = Command::new(binary);
        set_up(&mut command);
        command.stdin(Stdio::null()).spawn().ok()
    };
    candidates.iter().find_map(start).unwrap_or_else(|| {
        panic!("none of {candidates:?} starts: install redis-server (7.0 or newer) or set STOKE_TEST_REDIS")
    })
}

/// Reads the log until the server is ready, then keeps draining it, so that the server never blocks on a full pipe.
fn ready(child: &mut Child) -> bool {
    let Some(stdout) = child.stdout.take() else { return false };
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let up = lines.any(|line| line.contains("Ready to accept connections"));
    std::thread::spawn(move || lines.for_each(drop));
    up
}
