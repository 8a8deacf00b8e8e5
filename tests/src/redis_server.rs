//! A real Redis or Valkey on a free port, durable as in production, for one test.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server; killed when dropped.
pub struct RedisServer {
    child: Child,
    port: u16,
}

impl RedisServer {
    /// Starts one whose data lie in `dir`, with `extra` settings after the production-like ones. The binary is `STOKE_TEST_REDIS`,
    /// else `redis-server`, else `valkey-server` on PATH.
    ///
    /// # Panics
    /// When there is none, or it does not come up.
    #[must_use]
    pub fn start(dir: &Path, extra: &[&str]) -> Self {
        let named = std::env::var("STOKE_TEST_REDIS").ok();
        let candidates = named.as_deref().map_or(vec!["redis-server", "valkey-server"], |named| vec![named]);
        for _ in 0..10 {
            let port = free_port();
            let child = candidates.iter().find_map(|binary| spawn(binary, dir, port, extra));
            let mut child = child.unwrap_or_else(|| {
                panic!("none of {candidates:?} starts: install redis-server (7.0 or newer) or set STOKE_TEST_REDIS")
            });
            if ready(&mut child) {
                return Self { child, port };
            }
            // Somebody took the port between our look and its bind: its own exit told us, another port will do.
            let _ = child.wait();
        }
        panic!("Redis did not come up on ten ports");
    }

    /// Where it answers.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Its process id, for those who want to kill or pause it.
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

/// A port nobody listens on at this moment.
///
/// # Panics
/// When loopback has none left.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

fn spawn(binary: &str, dir: &Path, port: u16, extra: &[&str]) -> Option<Child> {
    Command::new(binary)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(dir)
        .args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
        .args(["--maxmemory", "256mb", "--maxmemory-policy", "noeviction"])
        .args(extra)
        .stdout(Stdio::piped())
        .spawn()
        .ok()
}

/// Reads the log until the server says that it is ready, then keeps draining it, so that it never blocks on a full pipe.
fn ready(child: &mut Child) -> bool {
    let Some(stdout) = child.stdout.take() else { return false };
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let up = lines.any(|line| line.contains("Ready to accept connections"));
    std::thread::spawn(move || lines.for_each(drop));
    up
}
