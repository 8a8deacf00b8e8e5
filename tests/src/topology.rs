//! The Redis of the stacks of the end-to-end tests: a separate one for each stack, or, as set by `STOKE_TEST_TOPOLOGY`,
//! one cluster or one service under Sentinels for all of them, with a key prefix for each stack.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use crate::redis_cluster::RedisCluster;
use crate::redis_sentinel::RedisService;
use crate::redis_server::RedisServer;
use crate::tie::Tie;

/// Shards on a cluster of three primaries.
const SHARDS: u8 = 3;

enum Servers {
    Cluster(RedisCluster),
    Failover(RedisService),
}

/// Servers that the stacks share.
struct Shared {
    servers: Servers,
    /// The prefix of each data directory: a restarted stack finds its own.
    prefixes: Mutex<HashMap<PathBuf, String>>,
    _tie: Tie,
}

/// The connection of a stack to its Redis.
pub(crate) struct Redis {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) shards: u8,
}

/// The Redis of the stack with its data under `data`; `None` if it starts its own.
pub(crate) fn redis(data: &Path) -> Option<Redis> {
    static SHARED: OnceLock<Option<Shared>> = OnceLock::new();
    let shared = SHARED.get_or_init(start).as_ref()?;
    let mut prefixes = shared.prefixes.lock().expect("no panic holds it");
    let name = format!("e2e{}", prefixes.len());
    let prefix = prefixes.entry(data.to_owned()).or_insert_with(|| match &shared.servers {
        Servers::Cluster(cluster) => cluster.spread_prefix(&name),
        Servers::Failover(_) => name,
    });
    let (url, shards) = match &shared.servers {
        Servers::Cluster(cluster) => (cluster.url(), SHARDS),
        Servers::Failover(service) => (service.url(), 1),
    };
    Some(Redis { url, prefix: prefix.clone(), shards })
}

fn start() -> Option<Shared> {
    let topology = std::env::var("STOKE_TEST_TOPOLOGY").unwrap_or_default();
    let dir = std::env::temp_dir().join(format!("stoke-e2e-redis-{}", std::process::id()));
    let (servers, pids) = match topology.as_str() {
        "" | "single" => return None,
        "cluster" => {
            let cluster = RedisCluster::start(&dir, &[]);
            let pids = cluster.nodes().iter().map(RedisServer::pid).collect();
            (Servers::Cluster(cluster), pids)
        }
        "failover" => {
            let service = RedisService::start(&dir);
            let pids = service.pids();
            (Servers::Failover(service), pids)
        }
        other => panic!("STOKE_TEST_TOPOLOGY={other}: it is single, cluster or failover"),
    };
    Some(Shared { servers, prefixes: Mutex::default(), _tie: Tie::new(&dir, pids) })
}
