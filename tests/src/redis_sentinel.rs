//! A primary, two replicas and three Sentinels on loopback.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::redis_server::{RedisServer, ask, free_port, spawn};

const SENTINELS: usize = 3;
const REPLICAS: usize = 2;
const READY_MAX: Duration = Duration::from_secs(30);

/// The name of the service in the Sentinels' configuration.
pub const SERVICE: &str = "stoke";

/// Time of silence after which the Sentinels consider another primary.
const DOWN_AFTER_MS: u32 = 1_000;

/// A service that fails over; everything ends when this is dropped.
pub struct RedisService {
    servers: Vec<Option<RedisServer>>,
    dirs: Vec<PathBuf>,
    ports: Vec<u16>,
    sentinels: Vec<Sentinel>,
}

struct Sentinel {
    child: Child,
    port: u16,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RedisService {
    /// Starts all of it, and waits until every Sentinel knows all others and every replica is in sync.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start(dir: &Path) -> Self {
        let dirs: Vec<PathBuf> = (0..=REPLICAS).map(|number| dir.join(format!("redis-{number}"))).collect();
        for dir in &dirs {
            fs::create_dir_all(dir).expect("the directory can be made");
        }
        let primary = RedisServer::start(&dirs[0], &[]);
        let primary_port = primary.port();
        let mut servers = vec![Some(primary)];
        for dir in &dirs[1..] {
            servers.push(Some(RedisServer::start(dir, &["--replicaof", "127.0.0.1", &primary_port.to_string()])));
        }
        let ports = servers.iter().flatten().map(RedisServer::port).collect();
        let sentinels = (0..SENTINELS).map(|n| sentinel(&dir.join(format!("sentinel-{n}")), primary_port)).collect();
        let service = Self { servers, dirs, ports, sentinels };
        until("the service is whole", || service.is_whole());
        service
    }

    /// `redis+sentinel://` of all Sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{SERVICE}/0", hosts.join(","))
    }

    /// The primary's address according to the Sentinels.
    ///
    /// # Panics
    /// If the first Sentinel does not answer.
    #[must_use]
    pub fn primary_port(&self) -> u16 {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
        let (_, port): (String, u16) = ask(self.sentinels[0].port, &question).expect("a Sentinel answers");
        port
    }

    /// Process ids of the servers and the Sentinels.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let servers = self.servers.iter().flatten().map(RedisServer::pid);
        servers.chain(self.sentinels.iter().map(|sentinel| sentinel.child.id())).collect()
    }

    /// kill -9 of the primary. Returns its number, for [`RedisService::restart`], and its port.
    ///
    /// # Panics
    /// If the Sentinels name a server that does not run.
    pub fn kill_primary(&mut self) -> (usize, u16) {
        let port = self.primary_port();
        let number = self.ports.iter().position(|known| *known == port).expect("it is one of ours");
        drop(self.servers[number].take().expect("it runs"));
        (number, port)
    }

    /// Waits until a server on another port than `port` is the primary and reports that role itself.
    ///
    /// # Panics
    /// If there is none after a while.
    pub fn wait_for_promotion(&self, port: u16) -> u16 {
        until("another primary", || {
            let now = self.primary_port();
            now != port && ask::<Vec<redis::Value>>(now, &["ROLE"]).is_ok_and(|role| is_primary(&role))
        });
        self.primary_port()
    }

    /// Restarts a killed server on its old port and as a primary; the Sentinels make a replica of it.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart(&mut self, number: usize) {
        let server = RedisServer::start_on(self.ports[number], &self.dirs[number], &[]);
        self.servers[number] = Some(server.expect("it comes up again"));
    }

    /// Whether every Sentinel sees every replica in sync and every other Sentinel.
    fn is_whole(&self) -> bool {
        let in_step = self.servers.iter().flatten().any(|server| {
            server
                .try_ask::<String>(&["INFO", "replication"])
                .is_ok_and(|info| info.matches("state=online").count() == REPLICAS)
        });
        in_step
            && self.sentinels.iter().all(|sentinel| {
                let fields: Vec<String> = ask(sentinel.port, &["SENTINEL", "MASTER", SERVICE]).unwrap_or_default();
                let field = |name: &str| {
                    let place = fields.iter().position(|field| field == name)?;
                    fields.get(place + 1)?.parse::<usize>().ok()
                };
                field("num-slaves") == Some(REPLICAS) && field("num-other-sentinels") == Some(SENTINELS - 1)
            })
    }
}

fn is_primary(role: &[redis::Value]) -> bool {
    role.first().is_some_and(|word| redis::from_redis_value_ref::<String>(word).is_ok_and(|word| word == "master"))
}

fn sentinel(dir: &Path, primary_port: u16) -> Sentinel {
    fs::create_dir_all(dir).expect("the directory can be made");
    let config = dir.join("sentinel.conf");
    for _ in 0..10 {
        let port = free_port();
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {SERVICE} 127.0.0.1 {primary_port} 2\n\
             sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\nsentinel failover-timeout {SERVICE} 3000\n\
             sentinel parallel-syncs {SERVICE} {REPLICAS}\n",
            dir.display()
        );
        fs::write(&config, text).expect("the directory can be written");
        let mut child = spawn(|command| {
            command.arg(&config).arg("--sentinel").stdout(Stdio::null());
        });
        let started = Instant::now();
        while child.try_wait().is_ok_and(|ended| ended.is_none()) && started.elapsed() < READY_MAX {
            if ask::<String>(port, &["PING"]).is_ok() {
                return Sentinel { child, port };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    panic!("no Sentinel came up on ten ports");
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < READY_MAX, "{what}: not within {} s", READY_MAX.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
