//! The work of each endpoint that arrived, waits, runs and has run: the input for deciding how many machines are
//! needed. These are counters that only grow, kept by the scripts that move jobs; nothing here is derived from the
//! progress of a stream's readers.
//!
//! Fields of `:flow`: `a:`, `s:`, `l:` and a lane count jobs that became ready, that started, and that started late, each job once;
//! `e:`, `x:` and `<tenant>:<endpoint>` jobs that ended, and that failed or expired;
//! `n:`, `r:` and `<tenant>:<endpoint>:<kind of card>` runs that ended and their milliseconds; `cold:`, `cold_ms:`, `disk:`, `disk_ms:`
//! loads of the model from elsewhere and from the machine's own disk.

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

/// Lanes whose streams are looked at, the fullest first; of the others only the number of jobs is known.
const LANES_MAX: usize = 2_000;

/// Fields asked for at a time, so that Redis serves others in between.
const PAGE: usize = 2_000;

/// A load that fetched for this long came from elsewhere: finding everything on disk takes some milliseconds.
const COLD_MS: u64 = 500;

/// An endpoint's jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flow {
    /// Whose it is.
    pub tenant: String,
    /// Its name.
    pub endpoint: String,
    /// Jobs that run now.
    pub running: u64,
    /// Jobs that ever ended, whatever came of them.
    pub ended: u64,
    /// Of those, how many failed or expired.
    pub failed: u64,
    /// How many more its limits and its tenant's let run; `None` where there are none.
    pub may_start: Option<u64>,
    /// By priority and class, in order.
    pub lanes: Vec<LaneFlow>,
    /// By kind of card, in order.
    pub runs: Vec<CardRuns>,
}

/// The jobs of one endpoint, priority and class.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneFlow {
    /// How urgent they are.
    pub priority: Priority,
    /// What decides where they may run, see [`crate::reach`].
    pub class: u32,
    /// Jobs that ever became ready.
    pub arrived: u64,
    /// Jobs that ever started.
    pub started: u64,
    /// Of those, how many had waited for longer than [`late_ms`].
    pub late: u64,
    /// Jobs that wait now and lack nothing but a worker: those that wait for their concurrency key are not among them.
    pub waiting: u64,
    /// How long the oldest of those has waited.
    pub oldest_ms: u64,
}

/// Runs of one endpoint on one kind of card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardRuns {
    /// The kind, as [`crate::vram::kind_of_card`] names it.
    pub kind: String,
    /// Runs that have ended.
    pub ended: u64,
    /// The run time of the handler in them, also for shared processes or calls.
    pub run_ms: u64,
    /// Loads for which an environment or weights were fetched.
    pub cold_loads: u64,
    /// How long they took, all in all.
    pub cold_load_ms: u64,
    /// Loads from the machine's own disk.
    pub disk_loads: u64,
    /// How long they took.
    pub disk_load_ms: u64,
}

/// A job that has waited for longer than this before its first start is late, milliseconds.
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

/// What a lane holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) jobs: u64,
    pub(crate) oldest_ms: u64,
}

/// Where a model was loaded from.
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

/// What is counted of a run that has ended.
#[derive(Debug)]
pub(crate) struct RunCount<'a> {
    pub(crate) kind: &'a str,
    /// `None` when its handler did not run.
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

    /// As `finish.lua` counts it.
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

/// What was found of one shard.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// `:flow`.
    pub(crate) counters: HashMap<String, u64>,
    /// By lane.
    pub(crate) waiting: Vec<(String, Waiting)>,
    /// By gate.
    pub(crate) running: HashMap<String, u64>,
    /// By gate.
    pub(crate) limits: HashMap<String, Limits>,
    /// Gates at which nothing starts: their budget is spent, or their tenant disabled.
    pub(crate) paused: HashSet<String>,
}

/// Reads what the scripts keep. Not one moment: counters that only grow may be a little newer than what waits.
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
            // All of them stand at a concurrency key: no machine would help.
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

/// Of each lane how many jobs lack nothing but a worker, and since when the first of them does, unix milliseconds.
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

/// The answers of a pipeline whose commands come in pairs.
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

/// Puts together what belongs to each endpoint.
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
                    // Of a later release.
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
