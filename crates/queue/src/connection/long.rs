//! Connections for long calls: a small pool in addition to the shared connection, so that a large reply does not delay
//! the replies of leases and heartbeats behind it.
//!
//! [`Connection::long`](super::Connection::long) returns a handle that uses the pool. These callers use it:
//!
//! - backups: `backup::Source::read`
//! - history: `History`
//! - the recovery sweep and the walk over the requirement sets of jobs: `RedisQueue::recover`, `free_requirements`
//! - lists: `list` and `dead` of jobs, `Batches::list`, `Schedules::list`, `Registry::workers` and `audit`
//! - results of batches: `Batches::parts` and `ended_lines`
//! - figures: `flow`, `depth`, `spent`, `running`, `timings`, `Series`, `Registry::readings`
//!
//! All others use the shared connection, except the calls that wait for replicas, which have two connections of their
//! own (`commit.rs`).

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use deadpool_redis::{Hook, HookError, Manager, Pool, PoolError, Runtime, TimeoutType, Timeouts};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo, ErrorKind, RedisError, RedisResult};
use tokio::time::timeout;

use super::locate::{refused, verify};
use super::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};

/// Timeout of a call that waits for a connection. It equals the timeout of a reply, because the call waits for replies
/// to others.
const WAIT_MAX: Duration = RESPONSE_TIMEOUT;

/// Timeout of the check of an idle connection. A connection that fails the check is replaced.
const RECYCLE_MAX: Duration = Duration::from_secs(2);

/// Timeout of getting a connection: a wait, one check and one new connection.
const GET_MAX: Duration = WAIT_MAX.saturating_add(RECYCLE_MAX).saturating_add(CONNECT_TIMEOUT);

/// The connections for long calls to one primary. They are opened when needed; clones share them.
#[derive(Clone)]
pub(super) struct LongCalls(Pool);

impl LongCalls {
    /// At most `size` connections to this server. If `moves` is set, a new one is used only if the server is a primary.
    pub(super) fn new(info: ConnectionInfo, size: usize, moves: bool) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let timeouts = Timeouts { wait: Some(WAIT_MAX), create: Some(CONNECT_TIMEOUT), recycle: Some(RECYCLE_MAX) };
        let mut pool = Pool::builder(Manager::new_with_config(info, config)?)
            .max_size(size)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1);
        if moves {
            let is_primary = Hook::async_fn(|connection, _| {
                Box::pin(async move { verify(connection).await.map_err(HookError::Backend) })
            });
            pool = pool.post_create(is_primary);
        }
        let unusable = |error| RedisError::from((ErrorKind::InvalidClientConfig, "the pool", format!("{error}")));
        Ok(Self(pool.build().map_err(unusable)?))
    }

    /// A connection of its own for one call. Idle connections are checked one after the other; all of them together
    /// take at most [`GET_MAX`].
    pub(super) async fn get(&self) -> Result<deadpool_redis::Connection, PoolError> {
        timeout(GET_MAX, self.0.get()).await.unwrap_or(Err(PoolError::Timeout(TimeoutType::Recycle)))
    }

    /// Closes idle connections now, and the others once their call has ended.
    pub(super) fn close(&self) {
        self.0.close();
    }
}

/// Whether a call has waited in vain for another call's connection.
pub(super) fn is_exhausted(error: &PoolError) -> bool {
    matches!(error, PoolError::Timeout(TimeoutType::Wait))
}

/// Converts an error of the pool. None of them means that a command was sent.
pub(super) fn unsent(error: PoolError) -> RedisError {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => error,
        PoolError::Timeout(TimeoutType::Wait) => refused("every connection for long calls is in use"),
        PoolError::Timeout(_) => refused("Redis does not answer"),
        PoolError::Closed => refused("Redis has another primary"),
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(HookError::Message(_)) => {
            refused("the connections for long calls are unusable")
        }
    }
}

/// The connection of one call.
pub(super) enum Channel {
    Shared(MultiplexedConnection),
    Pooled(deadpool_redis::Connection),
}

impl Channel {
    /// Drops the connection of a call that failed, so that no later call gets it from the pool.
    pub(super) fn discard(self) {
        if let Self::Pooled(connection) = self {
            drop(deadpool_redis::Connection::take(connection));
        }
    }
}

impl Deref for Channel {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        match self {
            Self::Shared(connection) => connection,
            Self::Pooled(connection) => connection,
        }
    }
}

impl DerefMut for Channel {
    fn deref_mut(&mut self) -> &mut MultiplexedConnection {
        match self {
            Self::Shared(connection) => connection,
            Self::Pooled(connection) => connection,
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;
    use redis::aio::ConnectionLike;
    use stokehold_tests::redis_server::RedisServer;
    use tokio::time::timeout;

    use super::super::{Connection, Location};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    async fn open(size: usize) -> (Connection, RedisServer, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let server = RedisServer::start(dir.path(), &[]);
        let connection = Connection::open(&Location::parse(&server.url()).unwrap(), "{t}", size).await.unwrap();
        (connection, server, dir)
    }

    async fn query<T: redis::FromRedisValue>(mut on: impl ConnectionLike, words: &[&str]) -> T {
        let mut call = redis::Cmd::new();
        call.arg(words);
        timeout(PATIENCE, call.query_async(&mut on)).await.expect("an answer").unwrap()
    }

    /// Waits until this number of calls blocks.
    async fn blocked(connection: &Connection, number: &str) {
        let wanted = format!("blocked_clients:{number}\r\n");
        while !query::<String>(connection.clone(), &["INFO", "clients"]).await.contains(&wanted) {}
    }

    #[tokio::test]
    async fn a_long_call_does_not_delay_the_shared_connection_and_the_pool_is_bounded() {
        let (connection, _server, _dir) = open(2).await;
        let blocking = || {
            let connection = connection.long();
            tokio::spawn(async move { query::<Vec<String>>(connection, &["BLPOP", "list", "0"]).await })
        };
        let long = [blocking(), blocking(), blocking()];
        blocked(&connection, "2").await;
        assert_eq!(query::<u32>(connection.clone(), &["RPUSH", "list", "a", "b", "c"]).await, 3);
        for call in long {
            assert_eq!(
                timeout(PATIENCE, call).await.unwrap().unwrap()[0],
                "list",
                "the third call has waited for another one"
            );
        }
        let clients: String = query(connection.clone(), &["CLIENT", "LIST", "TYPE", "normal"]).await;
        assert_eq!(clients.lines().count(), 3, "{clients}");
    }

    #[tokio::test]
    async fn a_broken_connection_of_the_pool_is_replaced_and_the_shared_one_stays() {
        let (connection, server, _dir) = open(2).await;
        let id: u64 = query(connection.long(), &["CLIENT", "ID"]).await;
        let shared: u64 = query(connection.clone(), &["CLIENT", "ID"]).await;
        assert_eq!(query::<u64>(connection.long(), &["CLIENT", "ID"]).await, id, "it is used again");
        let _: u64 = query(server.connection().await, &["CLIENT", "KILL", "ID", &id.to_string()]).await;
        assert_ne!(query::<u64>(connection.long(), &["CLIENT", "ID"]).await, id);
        assert_eq!(query::<u64>(connection.clone(), &["CLIENT", "ID"]).await, shared);
    }

    #[tokio::test]
    async fn a_pinned_connection_does_not_follow_to_another_run_of_the_server() {
        let (connection, server, dir) = open(0).await;
        let mut pinned = connection.pinned();
        assert_eq!(query::<String>(pinned.clone(), &["PING"]).await, "PONG");
        let port = server.port();
        drop(server);
        let _restarted = RedisServer::start_on(port, dir.path(), &[]).expect("its port is still free");
        let mut call = redis::Cmd::new();
        call.arg("PING");
        assert!(call.query_async::<String>(&mut pinned).await.is_err());
        while call.query_async::<String>(&mut connection.clone()).await.is_err() {}
        assert!(call.query_async::<String>(&mut pinned).await.is_err(), "not on the new connection either");
    }

    #[tokio::test]
    async fn a_lost_call_is_unknown_to_its_caller_alone() {
        let (connection, server, _dir) = open(1).await;
        let shared: u64 = query(connection.clone(), &["CLIENT", "ID"]).await;
        let id: u64 = query(connection.long(), &["CLIENT", "ID"]).await;
        let mut long = connection.long();
        let lost = tokio::spawn(async move { redis::cmd("BLPOP").arg("x").arg(0).query_async::<()>(&mut long).await });
        blocked(&connection, "1").await;
        let _: u64 = query(server.connection().await, &["CLIENT", "KILL", "ID", &id.to_string()]).await;
        let error = timeout(PATIENCE, lost).await.unwrap().unwrap().unwrap_err();
        assert!(error.is_connection_dropped(), "it is not repeated: {error}");
        assert_ne!(query::<u64>(connection.long(), &["CLIENT", "ID"]).await, id);
        assert_eq!(query::<u64>(connection.clone(), &["CLIENT", "ID"]).await, shared);
    }

    #[tokio::test]
    async fn a_replica_is_not_used_where_the_primary_can_move() {
        let (_connection, server, _dir) = open(0).await;
        let pool = |moves| LongCalls::new(server.url().into_connection_info().unwrap(), 1, moves).unwrap();
        assert!(pool(true).get().await.is_ok());
        let _: String = query(server.connection().await, &["REPLICAOF", "127.0.0.1", "1"]).await;
        let error = unsent(pool(true).get().await.map(drop).unwrap_err());
        assert!(error.to_string().contains("the server is a replica"), "{error}");
        assert!(pool(false).get().await.is_ok());
    }

    #[tokio::test]
    async fn without_a_pool_long_calls_share_the_connection() {
        let (connection, _server, _dir) = open(0).await;
        let shared: u64 = query(connection.clone(), &["CLIENT", "ID"]).await;
        assert_eq!(query::<u64>(connection.long(), &["CLIENT", "ID"]).await, shared);
    }

    #[tokio::test]
    async fn a_new_link_drops_the_connections_of_the_old_one() {
        let (connection, server, _dir) = open(2).await;
        let id: u64 = query(connection.long(), &["CLIENT", "ID"]).await;
        let (number, ..) = connection.current(&mut None).await.unwrap();
        connection.replace(number).await;
        let mut link = connection.shared.link.clone();
        timeout(PATIENCE, link.wait_for(|link| link.number > number)).await.unwrap().unwrap();
        assert_ne!(query::<u64>(connection.long(), &["CLIENT", "ID"]).await, id);
        let gone = format!("id={id} ");
        while query::<String>(server.connection().await, &["CLIENT", "LIST"]).await.contains(&gone) {}
    }
}
