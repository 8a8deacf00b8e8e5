//! The Redis below the stacks of the end-to-end tests: one of each stack's own, or, as `STOKE_TEST_TOPOLOGY` says, one cluster or one
//! service under Sentinels for all of them, each stack under a key prefix of its own.

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

/// What the stacks share.
struct Shared {
    servers: Servers,
    /// The prefix of each data directory: started again, a stack finds its own.
    prefixes: Mutex<HashMap<PathBuf, String>>,
    _tie: Tie,
}

/// How a stack reaches its Redis.
pub(crate) struct Redis {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) shards: u8,
}

/// The Redis of the stack whose data lie under `data`; `None` when it starts its own.
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
