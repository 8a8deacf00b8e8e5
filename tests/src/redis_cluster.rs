//! A real Redis Cluster of three primaries on loopback.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::redis_server::{RedisServer, free_port};

/// Slots of the primaries.
const SLOTS: [RangeInclusive<u16>; 3] = [0..=5460, 5461..=10_922, 10_923..=16_383];

/// Timeout until gossip has reached the last node, which takes seconds.
const FORMED_MAX: Duration = Duration::from_secs(30);

/// Three primaries without replicas; they end when this is dropped.
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts three servers with their data below `dir`, and makes a cluster of them.
    ///
    /// # Panics
    /// If the cluster does not come up.
    #[must_use]
    pub fn start(dir: &Path, extra: &[&str]) -> Self {
        let nodes: Vec<RedisServer> =
            (0..SLOTS.len()).map(|number| node(&dir.join(number.to_string()), extra)).collect();
        for (node, slots) in nodes.iter().zip(SLOTS) {
            let (first, last) = (slots.start().to_string(), slots.end().to_string());
            let _: String = node.ask(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        for node in &nodes[1..] {
            let bus = node.ask::<Vec<String>>(&["CONFIG", "GET", "cluster-port"]).remove(1);
            let _: String = nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), &bus]);
        }
        let started = Instant::now();
        while !nodes.iter().all(is_formed) {
            assert!(started.elapsed() < FORMED_MAX, "the cluster does not form");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { nodes }
    }

    /// `redis+cluster://` of all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The primaries.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The node with the slot of `key`, and the slot.
    ///
    /// # Panics
    /// If a node does not answer.
    #[must_use]
    pub fn owner(&self, key: &str) -> (usize, u16) {
        let slot = self.nodes[0].ask(&["CLUSTER", "KEYSLOT", key]);
        (SLOTS.iter().position(|slots| slots.contains(&slot)).expect("the slots cover all"), slot)
    }

    /// A key prefix like `name` under which the roots of three shards are on three primaries: a script that leaves its
    /// slot would go unnoticed if both slots were on one node.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn spread_prefix(&self, name: &str) -> String {
        let is_spread = |prefix: &String| {
            let mut owners: Vec<usize> = (0..3).map(|shard| self.owner(&format!("{{{prefix}:{shard}}}")).0).collect();
            owners.sort_unstable();
            owners == [0, 1, 2]
        };
        (0..100).map(|n| format!("{name}-{n}")).find(is_spread).expect("one of a hundred prefixes is spread")
    }
}

fn node(dir: &Path, extra: &[&str]) -> RedisServer {
    std::fs::create_dir_all(dir).expect("the directory can be made");
    let started = (0..10).find_map(|_| {
        let bus = free_port().to_string();
        // No replica takes over here, and a paused node must not be declared dead during a test.
        let mut settings = vec!["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "15000"];
        settings.extend(extra);
        RedisServer::start_on(free_port(), dir, &settings)
    });
    started.expect("a node comes up on one of ten ports")
}

/// Whether this node knows the server of each slot.
fn is_formed(node: &RedisServer) -> bool {
    let info: String = node.ask(&["CLUSTER", "INFO"]);
    ["cluster_state:ok", "cluster_known_nodes:3", "cluster_size:3"].iter().all(|fact| info.contains(fact))
}
