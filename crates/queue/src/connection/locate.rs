//! Finds the primary: asks the Sentinels or the nodes of a cluster, and verifies every answer.

use std::time::Duration;

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, RedisResult, Value};
use tokio::time::timeout;

use super::location::{Location, at};
use super::long::LongCalls;
use super::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};

/// Timeout of a Sentinel or a node.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Maximum number of cluster nodes that are remembered.
const NODES_MAX: usize = 256;

/// The search for the primary of one root.
pub(super) struct Locator {
    root: String,
    place: Location,
    /// Number of connections for long calls; 0 for none.
    long_calls: usize,
    /// The Sentinels or the nodes, those named in the URL first.
    guides: Vec<Guide>,
    /// Index of the guide that answered last.
    asked: usize,
}

struct Guide {
    info: ConnectionInfo,
    connection: Option<MultiplexedConnection>,
    named: bool,
}

/// A primary and a connection to it.
pub(super) struct Found {
    pub(super) info: ConnectionInfo,
    pub(super) connection: MultiplexedConnection,
    pub(super) long: Option<LongCalls>,
}

impl Locator {
    pub(super) fn new(place: Location, root: String, long_calls: usize) -> Self {
        let infos = match &place {
            Location::Server(_) => Vec::new(),
            Location::Sentinel { sentinels, .. } => sentinels.clone(),
            Location::Cluster { nodes } => nodes.clone(),
        };
        let guides = infos.into_iter().map(|info| Guide { info, connection: None, named: true }).collect();
        Self { root, place, long_calls, guides, asked: 0 }
    }

    /// Whether the address of the primary can change.
    pub(super) fn moves(&self) -> bool {
        !matches!(self.place, Location::Server(_))
    }

    /// The reported address of the primary.
    pub(super) async fn primary(&mut self) -> RedisResult<ConnectionInfo> {
        let (host, port) = match &self.place {
            Location::Server(info) => return Ok(info.clone()),
            Location::Sentinel { service, .. } => ask_sentinels(&mut self.guides, &service.clone()).await?,
            Location::Cluster { .. } => self.ask_nodes().await?,
        };
        let pattern = match &self.place {
            Location::Server(info) | Location::Sentinel { node: info, .. } => info,
            Location::Cluster { nodes } => &nodes[0],
        };
        Ok(at(pattern, host, port))
    }

    /// Connects to the current primary.
    pub(super) async fn connect(&mut self) -> RedisResult<Found> {
        let info = self.primary().await?;
        self.connect_to(info).await
    }

    /// Connects to the reported primary and verifies it. The report may be outdated: the old primary may be up.
    pub(super) async fn connect_to(&self, info: ConnectionInfo) -> RedisResult<Found> {
        let mut connection = open(&info, RESPONSE_TIMEOUT).await?;
        if self.moves() {
            verify(&mut connection).await?;
        }
        let long = match self.long_calls {
            0 => None,
            size => Some(LongCalls::new(info.clone(), size, self.moves())?),
        };
        Ok(Found { info, connection, long })
    }

    /// Asks one node after the other; a cluster keeps every node informed.
    async fn ask_nodes(&mut self) -> RedisResult<(String, u16)> {
        let mut failure = refused("no node of the cluster answers");
        for turn in 1..=self.guides.len() {
            let number = (self.asked + turn) % self.guides.len();
            match self.guides[number].slots(&self.root).await {
                Ok((slot, map)) => {
                    self.asked = number;
                    let asked = self.guides[number].info.clone();
                    self.remember(&map, &asked);
                    let owner = map.into_iter().find(|range| range.covers(slot));
                    match owner {
                        Some(range) => return Ok(range.primary),
                        None => failure = refused("no node of the cluster serves the slot"),
                    }
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Remembers the nodes of the cluster, because those named in the URL may all be replaced over time.
    fn remember(&mut self, map: &[SlotRange], pattern: &ConnectionInfo) {
        let last = self.guides[self.asked].info.addr().clone();
        let known: Vec<ConnectionInfo> = map
            .iter()
            .flat_map(|range| &range.nodes)
            .take(NODES_MAX)
            .map(|(host, port)| at(pattern, host.clone(), *port))
            .collect();
        let is_known = |guide: &Guide| known.iter().any(|info| info.addr() == guide.info.addr());
        self.guides.retain(|guide| guide.named || is_known(guide));
        for info in known {
            if !self.guides.iter().any(|guide| guide.info.addr() == info.addr()) {
                self.guides.push(Guide { info, connection: None, named: false });
            }
        }
        self.asked = self.guides.iter().position(|guide| *guide.info.addr() == last).unwrap_or(0);
    }
}

impl Guide {
    /// Sends a query on a connection that is kept for the next one.
    async fn ask<T: redis::FromRedisValue>(&mut self, questions: &redis::Pipeline) -> RedisResult<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => within(open(&self.info, ANSWER_MAX)).await?,
        };
        let answer = within(questions.query_async(&mut connection)).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// The slot of the root, and the nodes that serve each slot range.
    async fn slots(&mut self, root: &str) -> RedisResult<(u16, Vec<SlotRange>)> {
        let mut questions = redis::pipe();
        questions.cmd("CLUSTER").arg("KEYSLOT").arg(root).cmd("CLUSTER").arg("SLOTS");
        let (slot, rows): (u16, Vec<(u16, u16, Vec<Value>)>) = match self.rows(&questions).await {
            Ok(answer) => answer,
            Err(error) => return Err(error),
        };
        // A node that does not report its own host has the address at which it was queried.
        let here = match self.info.addr() {
            redis::ConnectionAddr::Tcp(host, _) | redis::ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => String::new(),
        };
        let ranges = rows.into_iter().filter_map(|(first, last, nodes)| {
            let nodes: Vec<(String, u16)> = nodes.iter().filter_map(|node| address(node, &here)).collect();
            Some(SlotRange { first, last, primary: nodes.first()?.clone(), nodes })
        });
        Ok((slot, ranges.collect()))
    }

    async fn rows(&mut self, questions: &redis::Pipeline) -> RedisResult<(u16, Vec<(u16, u16, Vec<Value>)>)> {
        let (slot, rows): (u16, Vec<Vec<Value>>) = self.ask(questions).await?;
        let rows = rows.into_iter().filter_map(|row| {
            let mut row = row.into_iter();
            let (first, last) = (number(&row.next()?)?, number(&row.next()?)?);
            Some((first, last, row.collect()))
        });
        Ok((slot, rows.collect()))
    }
}

/// The nodes that serve a range of slots, the primary first.
struct SlotRange {
    first: u16,
    last: u16,
    primary: (String, u16),
    nodes: Vec<(String, u16)>,
}

impl SlotRange {
    fn covers(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

fn number(value: &Value) -> Option<u16> {
    redis::from_redis_value_ref(value).ok()
}

/// Parses `[host, port, id, ...]`.
fn address(node: &Value, here: &str) -> Option<(String, u16)> {
    let Value::Array(parts) = node else { return None };
    let host: Option<String> = redis::from_redis_value_ref(parts.first()?).ok()?;
    let host = host.filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| here.to_owned());
    Some((host, number(parts.get(1)?)?))
}

/// Queries all Sentinels at the same time and takes the majority's answer: one that is cut off, perhaps together with
/// the old primary, is outvoted.
async fn ask_sentinels(sentinels: &mut [Guide], service: &str) -> RedisResult<(String, u16)> {
    let mut question = redis::pipe();
    question.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let answers =
        join_all(sentinels.iter_mut().map(|sentinel| sentinel.ask::<(Option<(String, u16)>,)>(&question))).await;
    let mut votes: Vec<((String, u16), usize)> = Vec::new();
    let mut failure = refused("no Sentinel monitors a service of this name");
    for answer in answers {
        match answer {
            Ok((Some(address),)) => match votes.iter_mut().find(|(voted, _)| *voted == address) {
                Some((_, count)) => *count += 1,
                None => votes.push((address, 1)),
            },
            Ok((None,)) => {}
            Err(error) => failure = error,
        }
    }
    votes.into_iter().max_by_key(|(_, count)| *count).map(|(address, _)| address).ok_or(failure)
}

async fn open(info: &ConnectionInfo, response: Duration) -> RedisResult<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(Some(response));
    Client::open(info.clone())?.get_multiplexed_async_connection_with_config(&config).await
}

/// Verifies that the server is a primary and has loaded its data.
pub(super) async fn verify(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let role: Vec<Value> = within(redis::cmd("ROLE").query_async(connection)).await?;
    let role: String = redis::from_redis_value_ref(role.first().unwrap_or(&Value::Nil))?;
    if role != "master" {
        return Err(refused("the server is a replica"));
    }
    // A server that is still loading its data replies with an error here.
    within(redis::cmd("PING").query_async::<String>(connection)).await.map(drop)
}

async fn within<T>(answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    timeout(ANSWER_MAX, answer).await.unwrap_or_else(|_| Err(refused("the server did not answer in time")))
}

pub(super) fn refused(why: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Io, why))
}
