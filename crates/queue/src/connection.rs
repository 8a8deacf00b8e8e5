//! The connection to Redis: a multiplexed connection to a primary that may move, and the only place that calls scripts.
//!
//! A root is on one primary at a time, so it has one connection, whether Redis is one server, a service under
//! Sentinels, or a cluster. One task maintains it: it reconnects without limit and follows the primary to its next
//! address. Long calls go to the same primary over a pool of their own ([`long`]). Redirections are not followed call
//! by call: while a slot is being moved its node replies ASK, and a script that followed it would see half of the data.
//! Such a call waits until the slot has moved.

mod keep;
mod locate;
mod location;
mod long;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    Cmd, ConnectionInfo, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisFuture, RedisResult, ServerErrorKind,
    Value,
};
use stokehold_supervise::Supervisor;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use crate::clock::Clock;
use crate::commit::Commits;
use crate::error::{Error, WRONG_TYPE};
use crate::scripts::{self, Script};
use keep::keep;
use locate::{Found, Locator, refused};
pub(crate) use location::Location;
use long::{Channel, LongCalls};

/// Timeout of a reply. Redis's default of 500 ms has taken down worker pools elsewhere; a slow fsync alone can take
/// longer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Minimum delay between two attempts to connect, times 0.5 to 1.
const RECONNECT_MIN: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// Timeout of a call that waits for a connection, or while Redis refuses commands for now.
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Timeout of the first connection.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// A connection to the primary of one root. Calls on it are pipelined; clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    commits: Commits,
    route: Route,
}

/// The connections that calls use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    /// The shared connection.
    Shared,
    /// A connection of the pool, alone for the time of the call.
    Pool,
    /// The shared connection, for as long as it is the one with this number.
    Only(u64),
}

struct Shared {
    link: watch::Receiver<Link>,
    /// Reports the number of a broken link to the task that reconnects.
    broken: mpsc::Sender<u64>,
}

/// The current connection.
#[derive(Clone)]
struct Link {
    number: u64,
    /// The current or last known address of the primary.
    info: ConnectionInfo,
    connection: Option<MultiplexedConnection>,
    /// The connections for long calls to the same server; `None` if they use the shared one.
    long: Option<LongCalls>,
}

impl Connection {
    /// Connects to the primary of `root`, with at most `long_calls` connections for long calls in addition to the
    /// shared one.
    pub(crate) async fn open(place: &Location, root: &str, long_calls: usize) -> Result<Self, Error> {
        let mut locator = Locator::new(place.clone(), root.to_owned(), long_calls);
        let deadline = Instant::now() + OPEN_MAX;
        let mut wait = RECONNECT_MIN;
        let found = loop {
            let failure = match timeout_at(deadline, locator.connect()).await {
                Ok(Ok(found)) => break found,
                Ok(Err(error)) => error,
                Err(_) => refused("Redis does not answer"),
            };
            if Instant::now() + wait >= deadline || failure.kind() == ErrorKind::AuthenticationFailed {
                return Err(Error::redis("connect")(failure));
            }
            sleep(jittered(wait)).await;
            wait = (wait * 2).min(RECONNECT_MAX);
        };
        let link = Link::new(0, found);
        let (sender, link) = watch::channel(link);
        let (broken, mut reports) = mpsc::channel(16);
        let rounds = Supervisor::default().rounds("redis_connection", Duration::MAX);
        tokio::spawn(async move {
            while rounds.run_task(Box::pin(keep(&mut locator, &sender, &mut reports))).await.is_none() {}
        });
        let commits = Commits::new(place.clone(), root.to_owned());
        Ok(Self { shared: Arc::new(Shared { link, broken }), commits, route: Route::Shared })
    }

    /// The same primary over the pool for long calls: those with large replies, or many in a row. `long.rs` lists them.
    pub(crate) fn long(&self) -> Self {
        Self { route: Route::Pool, ..self.clone() }
    }

    /// The shared connection as it is now. Calls on it fail once it has been replaced, so that all of them reach the same
    /// run of the same server.
    pub(crate) fn pinned(&self) -> Self {
        Self { route: Route::Only(self.shared.link.borrow().number), ..self.clone() }
    }

    /// The calls that wait for replicas.
    pub(crate) fn commits(&self) -> &Commits {
        &self.commits
    }

    /// A handle for plain commands.
    pub(crate) fn redis(&self) -> Self {
        self.clone()
    }

    /// Whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.link.borrow().connection.is_some()
    }

    /// The address of the primary, with notifications of new connections.
    pub(crate) fn primary(&self) -> Primary {
        Primary(self.shared.link.clone())
    }

    /// Loads every script, so that the first call of each is as fast as the next.
    pub(crate) async fn load_scripts(&self) -> Result<(), Error> {
        let mut pipe = redis::pipe();
        for script in scripts::ALL {
            pipe.cmd("SCRIPT").arg("LOAD").arg(&script.source).ignore();
        }
        pipe.query_async(&mut self.redis()).await.map_err(Error::redis("load the scripts"))
    }

    /// The current time in Unix milliseconds, by the clock that the scripts read: Redis's, or a test's.
    pub(crate) async fn now_ms(&self, clock: &Clock) -> Result<u64, Error> {
        if let Clock::Manual(clock) = clock {
            return Ok(clock.now_ms());
        }
        let time = redis::cmd("TIME").query_async(&mut self.redis()).await;
        let (seconds, micros): (u64, u64) = time.map_err(Error::redis("read the clock"))?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    /// The replies to a pipeline of reads, in order. `None` for a key of another type than the read expects, or for a
    /// reply that is not a `T`; it does not affect the others.
    pub(crate) async fn read_each<T: FromRedisValue>(&self, reads: &mut Pipeline) -> RedisResult<Vec<Option<T>>> {
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        let answers: Vec<RedisResult<Value>> = reads.ignore_errors().query_async(&mut self.redis()).await?;
        let read = |answer: RedisResult<Value>| match answer {
            Ok(value) => Ok(T::from_redis_value(value)
                .inspect_err(|error| tracing::error!(%error, "a stored value cannot be read; leaving it out"))
                .ok()),
            Err(error) if error.code() == Some(WRONG_TYPE) => {
                tracing::error!(%error, "a stored value cannot be read; leaving it out");
                Ok(None)
            }
            Err(error) => Err(error),
        };
        answers.into_iter().map(read).collect()
    }

    /// Runs a script whose outcome a client relies on: a submit, an end. If writes wait for replicas, it returns only
    /// once they have acknowledged.
    pub(crate) async fn eval_durably<T: FromRedisValue>(
        &self,
        script: &'static Script,
        call: &Cmd,
    ) -> Result<T, Error> {
        match self.commits.replicas() {
            0 => self.eval(script, call).await,
            _ => {
                let value = self.commits.run(script, call.clone()).await?;
                T::from_redis_value(value).map_err(|error| Error::redis(script.name)(error.into()))
            }
        }
    }

    /// Runs a script. After a restart Redis does not have the script; then it is loaded and called again, which is safe
    /// because NOSCRIPT means that nothing ran.
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

    /// A connection for the next call. If the pool fails to connect, it waits and follows the primary.
    async fn channel(&self, deadline: &mut Option<Instant>) -> RedisResult<(u64, Channel)> {
        loop {
            let (number, connection, long) = self.current(deadline).await?;
            let Some(long) = long.filter(|_| self.route == Route::Pool) else {
                return Ok((number, Channel::Shared(connection)));
            };
            let error = match long.get().await {
                Ok(pooled) => return Ok((number, Channel::Pooled(pooled))),
                Err(error) => error,
            };
            let until = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            if Instant::now() + AGAIN_AFTER >= until || long::is_exhausted(&error) {
                return Err(long::unsent(error));
            }
            sleep(jittered(AGAIN_AFTER * 2)).await;
        }
    }

    /// The current link, or the next one if it is established before the deadline.
    async fn current(
        &self,
        deadline: &mut Option<Instant>,
    ) -> RedisResult<(u64, MultiplexedConnection, Option<LongCalls>)> {
        let usable = |link: &Link| Some((link.number, link.connection.clone()?, link.long.clone()));
        if let Route::Only(number) = self.route {
            let link = self.shared.link.borrow();
            return usable(&link)
                .filter(|(current, ..)| *current == number)
                .ok_or_else(|| refused("the connection to Redis was replaced"));
        }
        if let Some(link) = usable(&self.shared.link.borrow()) {
            return Ok(link);
        }
        let until = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        let mut link = self.shared.link.clone();
        match timeout_at(until, link.wait_for(|link| link.connection.is_some())).await {
            Ok(Ok(link)) => usable(&link).ok_or_else(|| refused("there is no connection to Redis")),
            Ok(Err(_)) => Err(refused("the connection to Redis is closed")),
            Err(_) => Err(refused("there is no connection to Redis")),
        }
    }

    /// Handles an error that makes a connection unusable. A pooled connection is dropped. The shared one is replaced if
    /// it is affected too: by an error on itself, or if the server is not the primary.
    async fn give_up(&self, number: u64, channel: Channel, advice: &Advice) {
        if matches!(channel, Channel::Shared(_)) || *advice == Advice::Elsewhere {
            self.replace(number).await;
        }
        channel.discard();
    }

    /// Requests the replacement of the link with this number, if it is still in use.
    async fn replace(&self, number: u64) {
        // If the channel is full, the task is about to check anyway.
        let _ = self.shared.broken.try_send(number);
        // A broken link fails immediately. Without a yield, a caller that retries in a loop would starve the task on
        // this thread.
        tokio::task::yield_now().await;
    }
}

impl ConnectionLike for Connection {
    /// Sends a command. If an error means that nothing ran, it waits and follows the primary.
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let mut deadline = None;
            loop {
                let (number, mut channel) = self.channel(&mut deadline).await?;
                let error = match channel.send_packed_command(cmd).await {
                    Ok(Value::ServerError(error)) => error.into(),
                    Err(error) => error,
                    answer => return answer,
                };
                let advice = advice(&error);
                match advice {
                    Advice::Elsewhere | Advice::Lost => self.give_up(number, channel, &advice).await,
                    Advice::Later | Advice::Answer => drop(channel),
                }
                let until = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                let repeat = matches!(advice, Advice::Elsewhere | Advice::Later);
                if !repeat || Instant::now() + AGAIN_AFTER >= until {
                    return Err(error);
                }
                sleep(jittered(AGAIN_AFTER * 2)).await;
            }
        })
    }

    /// Sends a pipeline. It is not retried: some of the commands may have run.
    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let (number, mut channel) = self.channel(&mut None).await?;
            let outcome = channel.send_packed_commands(pipeline, offset, count).await;
            let failed = match &outcome {
                Err(error) => useless(error),
                Ok(answers) => answers.iter().find_map(|answer| match answer {
                    Value::ServerError(error) => useless(&error.clone().into()),
                    _ => None,
                }),
            };
            if let Some(advice) = failed {
                self.give_up(number, channel, &advice).await;
            }
            outcome
        })
    }

    /// The database of the URL, selected when connecting.
    fn get_db(&self) -> i64 {
        self.shared.link.borrow().info.redis_settings().db()
    }
}

impl Link {
    fn new(number: u64, found: Found) -> Self {
        Self { number, info: found.info, connection: Some(found.connection), long: found.long }
    }
}

/// Watches the address of the primary.
pub(crate) struct Primary(watch::Receiver<Link>);

impl Primary {
    /// Address and connection settings of the primary.
    pub(crate) fn info(&mut self) -> ConnectionInfo {
        self.0.borrow_and_update().info.clone()
    }

    /// Waits until there is another connection, perhaps to another server. Never returns once the connection is closed
    /// for good.
    pub(crate) async fn renewed(&mut self) {
        let number = self.0.borrow_and_update().number;
        if self.0.wait_for(|link| link.number != number && link.connection.is_some()).await.is_err() {
            std::future::pending().await
        }
    }
}

/// The reaction to an error.
#[derive(Debug, PartialEq, Eq)]
enum Advice {
    /// Nothing ran: the primary is, or will be, at another address.
    Elsewhere,
    /// Nothing ran, and a retry may succeed soon.
    Later,
    /// The connection is lost or unusable; the outcome of the call is unknown.
    Lost,
    /// The error is the reply to the command.
    Answer,
}

fn advice(error: &RedisError) -> Advice {
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    match error.kind() {
        ErrorKind::Server(ReadOnly | MasterDown | Moved) => Advice::Elsewhere,
        // A slot that is being moved: only a part of its keys has arrived at the target. A primary that is loading, or
        // has lost contact with its cluster, stays the primary until another one is reported.
        ErrorKind::Server(Ask | TryAgain | BusyLoading | ClusterDown) => Advice::Later,
        _ if error.code() == Some("UNBLOCKED") => Advice::Elsewhere,
        _ if error.code() == Some("BUSY") => Advice::Later,
        ErrorKind::Server(_) => Advice::Answer,
        // A server that does not answer within the timeout may be gone without having closed the connection.
        _ if error.is_timeout() || error.is_unrecoverable_error() || error.is_io_error() => Advice::Lost,
        _ => Advice::Answer,
    }
}

/// Whether the error is the server's reply to the command. Otherwise the command did not run, or its outcome is unknown.
pub(crate) fn is_reply(error: &RedisError) -> bool {
    advice(error) == Advice::Answer
}

/// The advice for an error after which the connection cannot be used.
fn useless(error: &RedisError) -> Option<Advice> {
    Some(advice(error)).filter(|advice| matches!(advice, Advice::Elsewhere | Advice::Lost))
}

fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}
