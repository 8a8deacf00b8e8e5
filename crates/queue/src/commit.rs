//! Group commit: calls that are answered only once replicas have acknowledged their writes.
//!
//! WAIT blocks its connection, so these calls have connections of their own. Calls that arrive during a WAIT are sent
//! together as the next group, so they share the cost of one round trip to the replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value};
use stokehold_supervise::Supervisor;
use tokio::sync::{Mutex, OnceCell, mpsc, oneshot};

use crate::connection::{Connection, Location};
use crate::error::Error;
use crate::id::nonce;
use crate::scripts::{MARK, Script};

/// Number of concurrent groups.
const LANES: usize = 2;

/// Maximum number of calls in a group. Each is a script of one or two milliseconds at most.
const GROUP_MAX: usize = 64;

/// Maximum number of calls in the queue of a group. Further callers wait to enter it.
const WAITING_MAX: usize = 1_024;

/// Timeout of WAIT. A replica acknowledges within one or two milliseconds. If it takes this long it is unreachable, and
/// the caller should get an error within a second.
const WAIT_MS: u64 = 800;

const STEP: &str = "wait for the replicas' acknowledgement";

/// Calls that wait for replicas. Clones share the connections, which are opened with the first call.
#[derive(Clone)]
pub(crate) struct Commits {
    place: Location,
    root: String,
    replicas: Arc<AtomicU32>,
    calls: Arc<OnceCell<mpsc::Sender<Call>>>,
}

struct Call {
    script: &'static Script,
    command: Cmd,
    answer: oneshot::Sender<Result<Value, Error>>,
}

impl Commits {
    pub(crate) fn new(place: Location, root: String) -> Self {
        Self { place, root, replicas: Arc::default(), calls: Arc::default() }
    }

    /// The number of replicas to wait for; 0 disables waiting.
    pub(crate) fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    pub(crate) fn wait_for(&self, replicas: u32) {
        self.replicas.store(replicas, Ordering::Relaxed);
    }

    /// Runs a script, and waits until enough replicas have its writes and all earlier ones.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the replicas do not acknowledge in time: the call may have happened, and may still be
    /// lost.
    pub(crate) fn run(&self, script: &'static Script, command: Cmd) -> BoxFuture<'_, Result<Value, Error>> {
        self.join(script, command).boxed()
    }

    async fn join(&self, script: &'static Script, command: Cmd) -> Result<Value, Error> {
        let calls = self.calls.get_or_try_init(|| self.open().boxed()).await?;
        let (answer, answered) = oneshot::channel();
        let unknown = |_| Error::Unavailable { step: script.name, source: "the connection was closed".into() };
        calls.send(Call { script, command, answer }).await.map_err(|_| unknown(()))?;
        answered.await.map_err(|_| unknown(()))?
    }

    async fn open(&self) -> Result<mpsc::Sender<Call>, Error> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..LANES {
            let redis = Connection::open(&self.place, &self.root, 0).await?;
            let mut lane = Lane { redis, calls: receiver.clone(), replicas: self.replicas.clone() };
            let rounds = Supervisor::default().rounds("redis_commits", Duration::MAX);
            tokio::spawn(async move {
                // The callers of a group that panicked get an unknown outcome.
                while rounds.run_task(lane.run()).await.is_none() {}
            });
        }
        Ok(sender)
    }
}

/// One connection, and the groups that are sent on it one after the other.
struct Lane {
    redis: Connection,
    calls: Arc<Mutex<mpsc::Receiver<Call>>>,
    replicas: Arc<AtomicU32>,
}

impl Lane {
    /// Sends groups until every handle is dropped.
    async fn run(&mut self) {
        loop {
            let mut group = Vec::new();
            if self.calls.lock().await.recv_many(&mut group, GROUP_MAX).await == 0 {
                return;
            }
            let again = self.commit(group).await;
            if !again.is_empty() && self.load(&again).await {
                // If Redis reports a script as unknown twice in a row, the call is dropped and its caller gets an
                // unknown outcome.
                drop(self.commit(again).await);
            }
        }
    }

    /// Sends the calls of a group and returns those whose script was unknown to Redis.
    async fn commit(&mut self, group: Vec<Call>) -> Vec<Call> {
        let replicas = self.replicas.load(Ordering::Relaxed);
        let mut pipe = redis::pipe();
        for call in &group {
            pipe.add_command(call.command.clone());
        }
        pipe.add_command(mark(&group)).cmd("WAIT").arg(replicas).arg(WAIT_MS).ignore_errors();
        let replies: RedisResult<Vec<RedisResult<Value>>> = pipe.query_async(&mut self.redis).await;
        let (mut replies, waited) = match replies {
            Ok(mut replies) => {
                let waited =
                    replies.pop().unwrap_or_else(|| Ok(Value::Nil)).and_then(|n| Ok(u32::from_redis_value(n)?));
                let marked = replies.pop().unwrap_or_else(|| Ok(Value::Nil));
                (replies, marked.and(waited))
            }
            Err(error) => (Vec::new(), Err(error)),
        };
        let short = match waited {
            Ok(there) if there >= replicas => None,
            Ok(there) => Some(format!("only {there} of {replicas} replicas acknowledged the write")),
            Err(error) => Some(error.to_string()),
        };
        replies.truncate(group.len());
        let mut replies = replies.into_iter();
        let mut again = Vec::new();
        for call in group {
            let outcome = match (replies.next(), &short) {
                (Some(Err(error)), _) if is_unknown_script(&error) => {
                    again.push(call);
                    continue;
                }
                (Some(Err(error)), _) => Err(Error::redis(call.script.name)(error)),
                (Some(Ok(value)), None) => Ok(value),
                (_, Some(why)) => Err(Error::Unavailable { step: STEP, source: why.clone().into() }),
                (None, None) => Err(Error::Unavailable { step: STEP, source: "there was no reply".into() }),
            };
            // The caller may have been dropped. Then it retries or needs no answer.
            let _ = call.answer.send(outcome);
        }
        again
    }

    /// Loads the scripts of these calls into Redis.
    async fn load(&mut self, calls: &[Call]) -> bool {
        let mut pipe = redis::pipe();
        for call in calls {
            pipe.cmd("SCRIPT").arg("LOAD").arg(&call.script.source).ignore();
        }
        pipe.query_async::<()>(&mut self.redis).await.is_ok()
    }
}

/// The command that writes the mark, on the shard of the group's first call; any shard works.
fn mark(group: &[Call]) -> Cmd {
    let root = group.first().and_then(|call| call.command.args_iter().nth(3));
    let mut mark = redis::cmd("EVAL");
    mark.arg(&MARK.source).arg(1);
    if let Some(redis::Arg::Simple(root)) = root {
        mark.arg(root);
    }
    mark.arg(nonce());
    mark
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
