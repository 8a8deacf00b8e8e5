//! The work of each endpoint: jobs that arrived, wait, run and have run. It is the input for deciding how many
//! instances are needed. The counters only grow and are maintained by the scripts that move jobs; nothing here is
//! derived from the progress of a stream's readers.
//!
//! Fields of `:flow`: `a:`, `s:`, `l:` with a lane count jobs that became ready, that started, and that started late,
//! each job once. `e:`, `x:` with `<tenant>:<endpoint>` count jobs that ended, and that failed or expired. `n:`, `r:`
//! with `<tenant>:<endpoint>:<GPU model>` count runs that ended and their milliseconds. `cold:`, `cold_ms:`, `disk:`,
//! `disk_ms:` count loads of the model from elsewhere and from the host's own disk. `prompt_tokens:`, `cached_tokens:`,
//! `completion_tokens:` with `<tenant>:<endpoint>` count the tokens of jobs that ended with a result.

pub(crate) mod counters;

use std::collections::HashMap;

use redis::streams::StreamRangeReply;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::job::{Priority, TokenUsage};
use crate::keys::Keys;
use crate::limits::Limits;
pub(crate) use counters::{RunCount, Seen, Waiting, assemble};

/// Number of lanes whose streams are read, the fullest first; for others only the number of jobs is known.
const LANES_MAX: usize = 2_000;

/// Number of fields per read, so that Redis serves other clients in between.
const PAGE: usize = 2_000;

/// An endpoint's jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flow {
    /// The tenant that owns the endpoint.
    pub tenant: String,
    /// Name of the endpoint.
    pub endpoint: String,
    /// Number of running jobs.
    pub running: u64,
    /// Number of jobs that have ended, with any outcome.
    pub ended: u64,
    /// Number of these that failed or expired.
    pub failed: u64,
    /// Tokens of the jobs that ended with a result.
    pub tokens: TokenUsage,
    /// Number of further jobs that the limits of the endpoint and its tenant allow to run; `None` without limits.
    pub may_start: Option<u64>,
    /// Lanes of the endpoint by priority and class, in order.
    pub lanes: Vec<LaneFlow>,
    /// Runs of the endpoint by GPU model, in order.
    pub runs: Vec<GpuRuns>,
}

/// The jobs of one endpoint, priority and class.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneFlow {
    /// The priority of the jobs.
    pub priority: Priority,
    /// The class, which decides where the jobs can run, see [`crate::capability`].
    pub class: u32,
    /// Number of jobs that became ready.
    pub arrived: u64,
    /// Number of jobs that started.
    pub started: u64,
    /// Number of these that waited for longer than [`late_ms`].
    pub late: u64,
    /// Number of jobs that need nothing but a worker. It excludes jobs that wait for their concurrency key.
    pub waiting: u64,
    /// Waiting time of the oldest of these, milliseconds.
    pub oldest_ms: u64,
}

/// Runs of one endpoint on one GPU model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuRuns {
    /// The GPU model, as named by [`crate::vram::kind_of_gpu`].
    pub kind: String,
    /// Number of ended runs.
    pub ended: u64,
    /// Run time of the handler in them, milliseconds, also for shared processes or calls.
    pub run_ms: u64,
    /// Number of loads for which an environment or weights were fetched.
    pub cold_loads: u64,
    /// Total duration of these loads, milliseconds.
    pub cold_load_ms: u64,
    /// Number of loads from the host's own disk.
    pub disk_loads: u64,
    /// Total duration of these loads, milliseconds.
    pub disk_load_ms: u64,
}

/// Waiting time before the first start from which a job is late, milliseconds.
#[must_use]
pub fn late_ms(priority: Priority) -> u64 {
    match priority {
        Priority::Interactive => 30_000,
        Priority::Standard => 300_000,
        Priority::Batch => 3_600_000,
    }
}

/// Reads the counters and the waiting jobs. The reads are not atomic: counters may be slightly newer than the waiting
/// jobs.
pub(crate) async fn read(connection: &Connection, keys: &Keys, clock: &Clock) -> Result<Seen, Error> {
    let (mut redis, step) = (connection.redis(), "read the waiting and expected jobs");
    type Hashes = (HashMap<String, u64>, HashMap<String, u64>, HashMap<String, String>, (u64, u64));
    let (ready, running, limits, time): Hashes = redis::pipe()
        .hgetall(keys.ready())
        .hgetall(keys.running())
        .hgetall(keys.limits())
        .cmd("TIME")
        .query_async(&mut redis)
        .await
        .map_err(Error::redis(step))?;
    let now_ms = match clock {
        Clock::Own => time.0 * 1000 + time.1 / 1000,
        Clock::Manual(clock) => clock.now_ms(),
    };
    let mut lanes: Vec<(String, u64)> = ready.into_iter().collect();
    lanes.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let mut waiting = Vec::with_capacity(lanes.len());
    let unseen = lanes.split_off(lanes.len().min(LANES_MAX));
    waiting.extend(unseen.into_iter().map(|(lane, jobs)| (lane, Waiting { jobs, oldest_ms: 0 })));
    if !lanes.is_empty() {
        let heads = heads(&mut redis, keys, lanes.iter().map(|(lane, _)| &**lane)).await.map_err(Error::redis(step))?;
        for ((lane, _), (jobs, since_ms)) in lanes.into_iter().zip(heads) {
            // All jobs of the lane wait for a concurrency key, so no instance would help.
            if jobs == 0 {
                continue;
            }
            let oldest_ms = since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
            waiting.push((lane, Waiting { jobs, oldest_ms }));
        }
    }
    let mut counters = HashMap::new();
    let mut cursor = 0_u64;
    loop {
        let (next, page): (u64, HashMap<String, u64>) = redis::cmd("HSCAN")
            .arg(keys.flow())
            .arg(cursor)
            .arg("COUNT")
            .arg(PAGE)
            .query_async(&mut redis)
            .await
            .map_err(Error::redis(step))?;
        counters.extend(page);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let is_paused = |until: &String| until.parse::<u64>().is_ok_and(|until_ms| until_ms > now_ms);
    let pauses = limits.iter().filter_map(|(field, until)| field.strip_prefix("p:").zip(Some(until)));
    let disabled = limits.keys().filter_map(|field| field.strip_prefix("d:"));
    let paused = pauses.filter(|(_, until)| is_paused(until)).map(|(scope, _)| scope).chain(disabled);
    let paused = paused.map(str::to_owned).collect();
    let limits = limits.into_iter().map(|(scope, text)| (scope, Limits::decode(&text))).collect();
    Ok(Seen { counters, waiting, running, limits, paused })
}

/// For each lane, the number of jobs that need nothing but a worker, and the time at which the first of them became
/// ready, Unix milliseconds.
pub(crate) async fn heads(
    redis: &mut impl redis::aio::ConnectionLike,
    keys: &Keys,
    lanes: impl Iterator<Item = &str>,
) -> redis::RedisResult<Vec<(u64, Option<u64>)>> {
    let mut pipe = redis::pipe();
    for stream in lanes.flat_map(|lane| keys.streams(lane)) {
        pipe.xlen(&stream).xrange_count(&stream, "-", "+", 1);
    }
    let looked: Vec<(u64, StreamRangeReply)> = pairs(&pipe, redis).await?;
    let of_lane = |streams: &[(u64, StreamRangeReply)]| {
        let since = |head: &StreamRangeReply| head.ids.first()?.id.split_once('-')?.0.parse::<u64>().ok();
        (streams.iter().map(|(jobs, _)| jobs).sum(), streams.iter().filter_map(|(_, head)| since(head)).min())
    };
    Ok(looked.chunks_exact(2).map(of_lane).collect())
}

/// The replies to a pipeline whose commands come in pairs.
async fn pairs<T: redis::FromRedisValue, U: redis::FromRedisValue>(
    pipe: &redis::Pipeline,
    redis: &mut impl redis::aio::ConnectionLike,
) -> Result<Vec<(T, U)>, redis::RedisError> {
    let answers: Vec<redis::Value> = pipe.query_async(redis).await?;
    let mut answers = answers.into_iter();
    let mut pairs = Vec::with_capacity(answers.len() / 2);
    while let (Some(first), Some(second)) = (answers.next(), answers.next()) {
        pairs.push((T::from_redis_value(first)?, U::from_redis_value(second)?));
    }
    Ok(pairs)
}
