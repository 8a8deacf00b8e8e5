//! The way to Redis: one multiplexed connection, and the one place where scripts are called.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Cmd, ErrorKind, FromRedisValue, ServerErrorKind};

use crate::commit::Commits;
use crate::error::Error;
use crate::scripts::{self, Script};

/// Redis's own default of 500 ms has killed worker pools elsewhere; a slow fsync alone can take longer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One multiplexed connection that reconnects by itself, for ever, with backoff and jitter. Calls on it are pipelined.
#[derive(Clone)]
pub(crate) struct Connection {
    redis: ConnectionManager,
    commits: Commits,
}

/// A connection of its own.
pub(crate) async fn connect(client: redis::Client) -> Result<ConnectionManager, Error> {
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_secs(5))
        .set_number_of_retries(10);
    ConnectionManager::new_with_config(client, config).await.map_err(Error::redis("connect"))
}

impl Connection {
    pub(crate) async fn open(client: redis::Client) -> Result<Self, Error> {
        Ok(Self { redis: connect(client.clone()).await?, commits: Commits::new(client) })
    }

    /// The calls that wait for replicas.
    pub(crate) fn commits(&self) -> &Commits {
        &self.commits
    }

    /// For plain commands.
    pub(crate) fn redis(&self) -> ConnectionManager {
        self.redis.clone()
    }

    /// Hands Redis every script, so that the first call of each is no slower than the next.
    pub(crate) async fn load_scripts(&self) -> Result<(), Error> {
        let mut pipe = redis::pipe();
        for script in scripts::ALL {
            pipe.cmd("SCRIPT").arg("LOAD").arg(&script.source).ignore();
        }
        pipe.query_async(&mut self.redis()).await.map_err(Error::redis("load the scripts"))
    }

    /// Runs a script's call whose outcome is promised to somebody: a submit, an end. Where replicas are waited for, it is not known
    /// before they have it.
    pub(crate) async fn eval_durably<T: FromRedisValue>(
        &self,
        script: &'static Script,
        call: &Cmd,
    ) -> Result<T, Error> {
        match self.commits.replicas() {
            0 => self.eval(script, call).await,
            _ => self.commits.run(script, call.clone()).await,
        }
    }

    /// Runs a script's call. A Redis that has restarted does not know the script any more: then it is loaded and called again,
    /// which is safe because NOSCRIPT says that nothing ran.
    pub(crate) async fn eval<T: FromRedisValue>(&self, script: &Script, call: &Cmd) -> Result<T, Error> {
        let mut redis = self.redis();
        match call.query_async(&mut redis).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(&script.source);
                let _: String = load.query_async(&mut redis).await.map_err(Error::redis(script.name))?;
                call.query_async(&mut redis).await.map_err(Error::redis(script.name))
            }
            outcome => outcome.map_err(Error::redis(script.name)),
        }
    }
}
