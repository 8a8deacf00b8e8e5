//! The way to Redis: a multiplexed connection to a primary that may move, and the one place where scripts are called.
//!
//! A root lives on one primary at a time, so a root has one connection, whether Redis is one server, a service under Sentinels or
//! a cluster. One task keeps it: it connects, for ever, and follows the primary to where it is next. Redirections are not
//! followed call by call: while a slot is being moved its node answers ASK, and a script that went after it would see half of
//! the data. Such a call waits until the slot has arrived.

mod locate;
mod place;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    Cmd, ConnectionInfo, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisFuture, RedisResult, ServerErrorKind,
    Value,
};
use stokehold_supervise::Supervisor;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::clock::Clock;
use crate::commit::Commits;
use crate::error::{Error, WRONG_TYPE};
use crate::scripts::{self, Script};
use locate::{Found, Locator, refused};
pub(crate) use place::Place;

/// Redis's own default of 500 ms has killed worker pools elsewhere; a slow fsync alone can take longer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The pauses between two tries to connect, times 0.5 to 1.
const RECONNECT_MIN: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// The longest pause between two searches for a primary, which must be found within 5 s of its promotion.
const SEEK_MAX: Duration = Duration::from_secs(1);

/// How often it is asked whether the primary has moved.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// How long a call waits for a connection, or for a Redis that answers "not now", before it fails.
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// How long the first connection may take.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// A connection to the primary of one root. Calls on it are pipelined; clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    commits: Commits,
}

struct Shared {
    link: watch::Receiver<Link>,
    /// Reports the number of a broken link to the task that reconnects.
    broken: mpsc::Sender<u64>,
}

/// The connection at present.
#[derive(Clone)]
struct Link {
    number: u64,
    /// Where the primary is, or was last.
    info: ConnectionInfo,
    connection: Option<MultiplexedConnection>,
}

impl Connection {
    /// Connects to the primary of `root`.
    pub(crate) async fn open(place: &Place, root: &str) -> Result<Self, Error> {
        let mut locator = Locator::new(place.clone(), root.to_owned());
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
        let link = Link { number: 0, info: found.info, connection: Some(found.connection) };
        let (sender, link) = watch::channel(link);
        let (broken, mut reports) = mpsc::channel(16);
        let rounds = Supervisor::default().rounds("redis_connection", Duration::MAX);
        tokio::spawn(async move {
            while rounds.run_task(Box::pin(keep(&mut locator, &sender, &mut reports))).await.is_none() {}
        });
        let commits = Commits::new(place.clone(), root.to_owned());
        Ok(Self { shared: Arc::new(Shared { link, broken }), commits })
    }

    /// The calls that wait for replicas.
    pub(crate) fn commits(&self) -> &Commits {
        &self.commits
    }

    /// For plain commands.
    pub(crate) fn redis(&self) -> Self {
        self.clone()
    }

    /// Whether there is a connection at present.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.link.borrow().connection.is_some()
    }

    /// Where the primary is, and word of it when there is another connection.
    pub(crate) fn primary(&self) -> Primary {
        Primary(self.shared.link.clone())
    }

    /// Hands Redis every script, so that the first call of each is no slower than the next.
    pub(crate) async fn load_scripts(&self) -> Result<(), Error> {
        let mut pipe = redis::pipe();
        for script in scripts::ALL {
            pipe.cmd("SCRIPT").arg("LOAD").arg(&script.source).ignore();
        }
        pipe.query_async(&mut self.redis()).await.map_err(Error::redis("load the scripts"))
    }

    /// Now, unix milliseconds, by the clock that the scripts read: that of Redis, or a test's.
    pub(crate) async fn now_ms(&self, clock: &Clock) -> Result<u64, Error> {
        if let Clock::Manual(clock) = clock {
            return Ok(clock.now_ms());
        }
        let time = redis::cmd("TIME").query_async(&mut self.redis()).await;
        let (seconds, micros): (u64, u64) = time.map_err(Error::redis("read the clock"))?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    /// The answers of a pipeline of reads, in order. A key that holds another type than is read, or an answer that is no `T`, is `None`: it
    /// keeps no other from being read.
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

    /// Runs a script's call whose outcome is promised to a client: a submit, an end. If replicas are waited for, the
    /// outcome is not known before they have it.
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

    /// Runs a script's call. A restarted Redis does not have the script: then it is loaded and called again, which is
    /// safe because NOSCRIPT means that nothing ran.
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

    /// The connection at present, or the next one if it comes soon enough.
    async fn current(&self, deadline: &mut Option<Instant>) -> RedisResult<(u64, MultiplexedConnection)> {
        if let Link { number, connection: Some(connection), .. } = &*self.shared.link.borrow() {
            return Ok((*number, connection.clone()));
        }
        let until = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        let mut link = self.shared.link.clone();
        match timeout_at(until, link.wait_for(|link| link.connection.is_some())).await {
            Ok(Ok(link)) => match &link.connection {
                Some(connection) => Ok((link.number, connection.clone())),
                None => Err(refused("there is no connection to Redis")),
            },
            Ok(Err(_)) => Err(refused("the connection to Redis was given up")),
            Err(_) => Err(refused("there is no connection to Redis")),
        }
    }

    /// Has the link of this number replaced, if it still is the one in use.
    async fn replace(&self, number: u64) {
        // When the queue is full, the keeper is about to look anyway.
        let _ = self.shared.broken.try_send(number);
        // A broken link fails at once: whoever repeats in a loop would never let the keeper have this thread.
        tokio::task::yield_now().await;
    }
}

impl ConnectionLike for Connection {
    /// Refusals which mean that nothing ran are waited out, and followed to the current primary.
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let mut deadline = None;
            loop {
                let (number, mut connection) = self.current(&mut deadline).await?;
                let error = match connection.send_packed_command(cmd).await {
                    Ok(Value::ServerError(error)) => error.into(),
                    Err(error) => error,
                    answer => return answer,
                };
                let advice = advice(&error);
                if matches!(advice, Advice::Elsewhere | Advice::Lost) {
                    self.replace(number).await;
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

    /// Not repeated: some of the commands may have run.
    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let (number, mut connection) = self.current(&mut None).await?;
            let outcome = connection.send_packed_commands(pipeline, offset, count).await;
            let failed = match &outcome {
                Err(error) => is_useless(error),
                Ok(answers) => answers
                    .iter()
                    .any(|answer| matches!(answer, Value::ServerError(error) if is_useless(&error.clone().into()))),
            };
            if failed {
                self.replace(number).await;
            }
            outcome
        })
    }

    /// The database of the URL, which is selected on connecting.
    fn get_db(&self) -> i64 {
        self.shared.link.borrow().info.redis_settings().db()
    }
}

/// Where the primary is now.
pub(crate) struct Primary(watch::Receiver<Link>);

impl Primary {
    /// Its address, and how to talk to it.
    pub(crate) fn info(&mut self) -> ConnectionInfo {
        self.0.borrow_and_update().info.clone()
    }

    /// Waits until there is another connection, perhaps to another server. Never returns once the connection is given
    /// up.
    pub(crate) async fn renewed(&mut self) {
        let number = self.0.borrow_and_update().number;
        if self.0.wait_for(|link| link.number != number && link.connection.is_some()).await.is_err() {
            std::future::pending().await
        }
    }
}

/// What to do about an error.
#[derive(Debug, PartialEq, Eq)]
enum Advice {
    /// Nothing ran: the primary is elsewhere, or will be.
    Elsewhere,
    /// Nothing ran, and soon it may.
    Later,
    /// The connection is gone, or as good as gone; what became of the call is unknown.
    Lost,
    /// An answer.
    Answer,
}

fn advice(error: &RedisError) -> Advice {
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    match error.kind() {
        ErrorKind::Server(ReadOnly | MasterDown | Moved) => Advice::Elsewhere,
        // A slot on its way: where it goes, only a part of its keys has arrived. And a primary that loads, or has lost sight of its
        // cluster, stays the primary unless another one is named meanwhile.
        ErrorKind::Server(Ask | TryAgain | BusyLoading | ClusterDown) => Advice::Later,
        _ if error.code() == Some("UNBLOCKED") => Advice::Elsewhere,
        _ if error.code() == Some("BUSY") => Advice::Later,
        ErrorKind::Server(_) => Advice::Answer,
        // A server that says nothing for so long may be gone without a word.
        _ if error.is_timeout() || error.is_unrecoverable_error() || error.is_io_error() => Advice::Lost,
        _ => Advice::Answer,
    }
}

fn is_useless(error: &RedisError) -> bool {
    matches!(advice(error), Advice::Elsewhere | Advice::Lost)
}

/// The one reconnect loop: it ends when the last [`Connection`] is dropped.
async fn keep(locator: &mut Locator, link: &watch::Sender<Link>, reports: &mut mpsc::Receiver<u64>) {
    loop {
        // Also where this was interrupted by a panic while there was none.
        if link.borrow().connection.is_none() {
            let found = tokio::select! {
                found = seek(locator) => found,
                () = link.closed() => return,
            };
            renew(link, found);
        }
        tokio::select! {
            report = reports.recv() => match report {
                None => return,
                Some(number) if number == link.borrow().number => link.send_modify(|link| link.connection = None),
                Some(_) => {}
            },
            () = sleep(jittered(FOLLOW_EVERY)), if locator.moves() => {
                if let Some(found) = moved(locator, link).await {
                    renew(link, found);
                }
            }
        }
    }
}

fn renew(link: &watch::Sender<Link>, found: Found) {
    link.send_modify(|link| {
        *link = Link { number: link.number + 1, info: found.info, connection: Some(found.connection) };
    });
}

/// Tries to connect until it works.
async fn seek(locator: &mut Locator) -> Found {
    let most = if locator.moves() { SEEK_MAX } else { RECONNECT_MAX };
    let mut wait = RECONNECT_MIN;
    loop {
        match timeout(RECONNECT_MAX, locator.connect()).await {
            Ok(Ok(found)) => {
                tracing::info!(address = %found.info.addr(), "connected to Redis again");
                return found;
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot connect to Redis, trying again"),
            Err(_) => tracing::warn!("connecting to Redis timed out, trying again"),
        }
        sleep(jittered(wait)).await;
        wait = (wait * 2).min(most);
    }
}

/// The new primary, if there is another one than that in use, and it is one.
async fn moved(locator: &mut Locator, link: &watch::Sender<Link>) -> Option<Found> {
    let said = locator.primary().await.ok()?;
    if said.addr() == link.borrow().info.addr() {
        return None;
    }
    let found = timeout(RECONNECT_MAX, locator.connect_to(said)).await.ok()?.ok()?;
    tracing::info!(address = %found.info.addr(), "Redis has a new primary");
    Some(found)
}

fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}
