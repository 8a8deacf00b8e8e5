//! The work of each endpoint: jobs that arrived, wait, run and have run. It is the input for deciding how many
//! instances are needed. The counters only grow and are maintained by the scripts that move jobs; nothing here is
//! derived from the progress of a stream's readers.
//!
//! Fields of `:flow`: `a:`, `s:`, `l:` with a lane count jobs that became ready, that started, and that started late,
//! each job once. `e:`, `x:` with `<tenant>:<endpoint>` count jobs that ended, and that failed or expired. `n:`, `r:`
//! with `<tenant>:<endpoint>:<GPU model>` count runs that ended and their milliseconds. `cold:`, `cold_ms:`, `disk:`,
//! `disk_ms:` count loads of the model from elsewhere and from the host's own disk.

use std::collections::{BTreeMap, HashMap, HashSet};

use redis::streams::StreamRangeReply;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::gate::Gate;
use crate::gateway::{FinishOutcome, FinishReport};
use crate::job::Priority;
use crate::keys::{Keys, parse_lane};
use crate::limits::Limits;

/// Number of lanes whose streams are read, the fullest first; for others only the number of jobs is known.
const LANES_MAX: usize = 2_000;

/// Number of fields per read, so that Redis serves other clients in between.
const PAGE: usize = 2_000;

/// Fetch time from which a load counts as cold. If everything is on disk, fetching takes a few milliseconds.
const COLD_MS: u64 = 500;

/// The work of one endpoint.
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
    /// Number of further jobs that the limits of the endpoint and its tenant allow to run; `None` without limits.
    pub may_start: Option<u64>,
    /// Its lanes by priority and class, in order.
    pub lanes: Vec<LaneFlow>,
    /// Its runs by GPU model, in order.
    pub runs: Vec<CardRuns>,
}

/// The jobs of one endpoint, priority and class.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneFlow {
    /// The priority of the jobs.
    pub priority: Priority,
    /// The class, which decides where the jobs can run, see [`crate::reach`].
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
pub struct CardRuns {
    /// The GPU model, as named by [`crate::vram::kind_of_card`].
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

pub(crate) fn arrived(lane: &str) -> String {
    format!("a:{lane}")
}

pub(crate) fn started(lane: &str) -> String {
    format!("s:{lane}")
}

pub(crate) fn late(lane: &str) -> String {
    format!("l:{lane}")
}

pub(crate) fn ended(tenant: &str, endpoint: &str) -> String {
    format!("e:{tenant}:{endpoint}")
}

pub(crate) fn failed(tenant: &str, endpoint: &str) -> String {
    format!("x:{tenant}:{endpoint}")
}

/// The current content of a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) jobs: u64,
    pub(crate) oldest_ms: u64,
}

/// The source of a loaded model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Cold,
    Disk,
}

impl Load {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Disk => "disk",
        }
    }
}

/// The counters of an ended run.
#[derive(Debug)]
pub(crate) struct RunCount<'a> {
    pub(crate) kind: &'a str,
    /// Run time of the handler; `None` if it did not run.
    pub(crate) run_ms: Option<u64>,
    pub(crate) load: Option<Load>,
    pub(crate) load_ms: u64,
}

impl<'a> RunCount<'a> {
    pub(crate) fn of(report: &'a FinishReport) -> Self {
        let timing = &report.timing;
        let ran = timing.run_ms > 0 || !matches!(report.outcome, FinishOutcome::Failed { .. });
        let fetch_ms = timing.env_ms + timing.weights_ms;
        let load_ms = fetch_ms + timing.boot_ms + timing.load_ms + timing.warmup_ms;
        let load =
            (timing.boot_ms + timing.load_ms > 0).then_some(if fetch_ms >= COLD_MS { Load::Cold } else { Load::Disk });
        Self { kind: &report.card_kind, run_ms: ran.then_some(timing.run_ms), load, load_ms }
    }

    /// The fields that `finish.lua` increments.
    pub(crate) fn fields(&self, tenant: &str, endpoint: &str) -> Vec<(String, u64)> {
        let of = format!("{tenant}:{endpoint}:{}", self.kind);
        let mut fields = Vec::new();
        if let Some(run_ms) = self.run_ms {
            fields.extend([(format!("n:{of}"), 1), (format!("r:{of}"), run_ms)]);
        }
        if let Some(load) = self.load {
            let word = load.word();
            fields.extend([(format!("{word}:{of}"), 1), (format!("{word}_ms:{of}"), self.load_ms)]);
        }
        fields
    }
}

/// The data read from one shard.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The fields of `:flow`.
    pub(crate) counters: HashMap<String, u64>,
    /// Waiting jobs by lane.
    pub(crate) waiting: Vec<(String, Waiting)>,
    /// Running jobs by limit scope.
    pub(crate) running: HashMap<String, u64>,
    /// Limits by limit scope.
    pub(crate) limits: HashMap<String, Limits>,
    /// Limit scopes in which nothing starts: their budget is exhausted, or their tenant is disabled.
    pub(crate) paused: HashSet<String>,
}

/// Reads the counters and lanes of a shard. The reads are not atomic: counters may be slightly newer than the waiting
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
    let paused = pauses.filter(|(_, until)| is_paused(until)).map(|(gate, _)| gate).chain(disabled);
    let paused = paused.map(str::to_owned).collect();
    let limits = limits.into_iter().map(|(gate, text)| (gate, Limits::decode(&text))).collect();
    Ok(Seen { counters, waiting, running, limits, paused })
}

/// For each lane, the number of jobs that need nothing but a worker, and since when the first of them waits, Unix
/// milliseconds.
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

/// Groups the data by endpoint.
pub(crate) fn assemble(seen: Seen) -> Vec<Flow> {
    let mut lanes: BTreeMap<(String, String, u8, u32), LaneFlow> = BTreeMap::new();
    let mut runs: BTreeMap<(String, String, String), CardRuns> = BTreeMap::new();
    let mut of_lane = |lane: &str, set: &dyn Fn(&mut LaneFlow)| {
        let Some((priority, class, tenant, endpoint)) = parse_lane(lane) else { return };
        let new = LaneFlow { priority, class, arrived: 0, started: 0, late: 0, waiting: 0, oldest_ms: 0 };
        let key = (tenant.to_owned(), endpoint.to_owned(), priority.digit(), class);
        set(lanes.entry(key).or_insert(new));
    };
    let mut ends: BTreeMap<(&str, &str), [u64; 2]> = BTreeMap::new();
    for (field, number) in &seen.counters {
        let Some((word, of)) = field.split_once(':') else { continue };
        match word {
            "e" | "x" => {
                if let Some(whose) = of.split_once(':') {
                    ends.entry(whose).or_default()[usize::from(word == "x")] = *number;
                }
            }
            "a" => of_lane(of, &|lane| lane.arrived = *number),
            "s" => of_lane(of, &|lane| lane.started = *number),
            "l" => of_lane(of, &|lane| lane.late = *number),
            _ => {
                let mut parts = of.splitn(3, ':').map(str::to_owned);
                let (Some(tenant), Some(endpoint), Some(kind)) = (parts.next(), parts.next(), parts.next()) else {
                    continue;
                };
                let of = runs.entry((tenant, endpoint, kind)).or_default();
                match word {
                    "n" => of.ended = *number,
                    "r" => of.run_ms = *number,
                    "cold" => of.cold_loads = *number,
                    "cold_ms" => of.cold_load_ms = *number,
                    "disk" => of.disk_loads = *number,
                    "disk_ms" => of.disk_load_ms = *number,
                    // A field of a later release.
                    _ => {}
                }
            }
        }
    }
    for (name, Waiting { jobs, oldest_ms }) in &seen.waiting {
        of_lane(name, &|lane| (lane.waiting, lane.oldest_ms) = (*jobs, *oldest_ms));
    }
    let mut flows: BTreeMap<(String, String), Flow> = BTreeMap::new();
    let mut of = |tenant: String, endpoint: String, set: &mut dyn FnMut(&mut Flow)| {
        set(flows.entry((tenant, endpoint)).or_default());
    };
    for ((tenant, endpoint, ..), lane) in lanes {
        of(tenant, endpoint, &mut |flow| flow.lanes.push(lane.clone()));
    }
    for ((tenant, endpoint, kind), run) in runs {
        of(tenant, endpoint, &mut |flow| flow.runs.push(CardRuns { kind: kind.clone(), ..run.clone() }));
    }
    for ((tenant, endpoint), [ended, failed]) in ends {
        of(tenant.to_owned(), endpoint.to_owned(), &mut |flow| (flow.ended, flow.failed) = (ended, failed));
    }
    for (gate, running) in &seen.running {
        if let Some((tenant, endpoint)) = gate.strip_prefix("e:").and_then(|gate| gate.split_once(':')) {
            of(tenant.to_owned(), endpoint.to_owned(), &mut |flow| flow.running = *running);
        }
    }
    let left = |gate: Gate| {
        let gate = gate.to_string();
        if seen.paused.contains(&gate) {
            return Some(0);
        }
        let most = seen.limits.get(&gate)?.max_running?;
        Some(u64::from(most).saturating_sub(seen.running.get(&gate).copied().unwrap_or(0)))
    };
    let whole = |((tenant, endpoint), flow): ((String, String), Flow)| {
        let its = left(Gate::Endpoint { tenant: tenant.clone(), endpoint: endpoint.clone() });
        let may_start = [its, left(Gate::Tenant(tenant.clone()))].into_iter().flatten().min();
        Flow { tenant, endpoint, may_start, ..flow }
    };
    flows.into_iter().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_an_endpoint_comes_together() {
        let seen = Seen {
            counters: [
                ("a:0:24:acme:draw", 7),
                ("s:0:24:acme:draw", 5),
                ("l:0:24:acme:draw", 1),
                ("a:2:24:acme:draw", 3),
                ("n:acme:draw:RTX 4090", 4),
                ("r:acme:draw:RTX 4090", 8_000),
                ("cold:acme:draw:RTX 4090", 1),
                ("cold_ms:acme:draw:RTX 4090", 30_000),
                ("e:acme:draw", 4),
                ("x:acme:draw", 1),
                ("later:acme:draw:x", 1),
                ("nonsense", 1),
            ]
            .map(|(field, number)| (field.to_owned(), number))
            .into(),
            waiting: vec![("0:24:acme:draw".to_owned(), Waiting { jobs: 2, oldest_ms: 900 })],
            running: [("e:acme:draw".to_owned(), 1), ("t:acme".to_owned(), 4)].into(),
            limits: [
                ("e:acme:draw".to_owned(), Limits { max_running: Some(9), ..Limits::default() }),
                ("t:acme".to_owned(), Limits { max_running: Some(5), ..Limits::default() }),
            ]
            .into(),
            paused: ["e:acme:paint".to_owned()].into(),
        };
        let flows = assemble(seen);
        let [flow] = &flows[..] else { panic!("{flows:?}") };
        assert_eq!((flow.tenant.as_str(), flow.endpoint.as_str(), flow.running), ("acme", "draw", 1));
        assert_eq!((flow.ended, flow.failed), (4, 1));
        assert_eq!(flow.may_start, Some(1), "the tenant's limit is the closer one");
        let [urgent, batch] = &flow.lanes[..] else { panic!("{flow:?}") };
        assert_eq!((urgent.arrived, urgent.started, urgent.late), (7, 5, 1));
        assert_eq!((urgent.waiting, urgent.oldest_ms, batch.arrived), (2, 900, 3));
        let on_card = flow.runs.iter().find(|run| run.kind == "RTX 4090").unwrap();
        assert_eq!((on_card.ended, on_card.run_ms, on_card.cold_loads, on_card.cold_load_ms), (4, 8_000, 1, 30_000));
    }
}
