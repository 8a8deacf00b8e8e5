//! The counters of an endpoint's jobs: the names of their fields, the amounts that a run adds, and their totals by
//! endpoint. The scripts count in the same way, in `lua/lib/flow.lua` and `lua/finish.lua`.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Flow, GpuRuns, LaneFlow};
use crate::gateway::{FinishOutcome, FinishReport};
use crate::job::TokenUsage;
use crate::keys::parse_lane;
use crate::limit_scope::LimitScope;
use crate::limits::Limits;

/// Fetch time from which a load counts as cold, milliseconds. Finding everything on the disk takes some milliseconds.
const COLD_MS: u64 = 500;

/// The field that counts jobs of a lane that became ready.
#[must_use]
pub fn arrived(lane: &str) -> String {
    format!("a:{lane}")
}

/// The field that counts jobs of a lane that started.
#[must_use]
pub fn started(lane: &str) -> String {
    format!("s:{lane}")
}

/// The field that counts jobs of a lane that started late.
#[must_use]
pub fn late(lane: &str) -> String {
    format!("l:{lane}")
}

/// The field that counts jobs of an endpoint that ended.
#[must_use]
pub fn ended(tenant: &str, endpoint: &str) -> String {
    format!("e:{tenant}:{endpoint}")
}

/// The field that counts jobs of an endpoint that failed or expired.
#[must_use]
pub fn failed(tenant: &str, endpoint: &str) -> String {
    format!("x:{tenant}:{endpoint}")
}

/// The waiting jobs of a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Number of jobs that need nothing but a worker.
    pub jobs: u64,
    /// Waiting time of the oldest of them, milliseconds.
    pub oldest_ms: u64,
}

/// The source that a model was loaded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// A server: environment or weights were fetched.
    Cold,
    /// The host's own disk.
    Disk,
}

impl Load {
    /// The word that names of fields contain.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Disk => "disk",
        }
    }
}

/// The counted part of a run that has ended.
#[derive(Debug)]
pub struct RunCount<'a> {
    /// The GPU model that the run used.
    pub kind: &'a str,
    /// Run time of the handler, milliseconds; `None` if the handler did not run.
    pub run_ms: Option<u64>,
    /// Source of the model's load; `None` if the model was already loaded.
    pub load: Option<Load>,
    /// Duration of the load, milliseconds.
    pub load_ms: u64,
    /// The tokens, if the run ended with a result that has them.
    pub tokens: Option<TokenUsage>,
}

/// The words of the fields that count tokens, in the order of [`TokenUsage::numbers`].
const TOKENS: [&str; 3] = ["prompt_tokens", "cached_tokens", "completion_tokens"];

impl<'a> RunCount<'a> {
    /// The count for a report.
    #[must_use]
    pub fn of(report: &'a FinishReport) -> Self {
        let timing = &report.timing;
        let ran = timing.run_ms > 0 || !matches!(report.outcome, FinishOutcome::Failed { .. });
        let fetch_ms = timing.env_ms + timing.weights_ms;
        let load_ms = fetch_ms + timing.boot_ms + timing.load_ms + timing.warmup_ms;
        let load =
            (timing.boot_ms + timing.load_ms > 0).then_some(if fetch_ms >= COLD_MS { Load::Cold } else { Load::Disk });
        Self { kind: &report.card_kind, run_ms: ran.then_some(timing.run_ms), load, load_ms, tokens: report.tokens() }
    }

    /// The fields to increase, and their increments, like in `finish.lua`.
    #[must_use]
    pub fn fields(&self, tenant: &str, endpoint: &str) -> Vec<(String, u64)> {
        let of = format!("{tenant}:{endpoint}:{}", self.kind);
        let mut fields = Vec::new();
        if let Some(run_ms) = self.run_ms {
            fields.extend([(format!("n:{of}"), 1), (format!("r:{of}"), run_ms)]);
        }
        if let Some(load) = self.load {
            let word = load.word();
            fields.extend([(format!("{word}:{of}"), 1), (format!("{word}_ms:{of}"), self.load_ms)]);
        }
        for (word, tokens) in TOKENS.into_iter().zip(self.tokens.unwrap_or_default().numbers()) {
            if tokens > 0 {
                fields.push((format!("{word}:{tenant}:{endpoint}"), tokens));
            }
        }
        fields
    }
}

/// The raw figures of one shard.
#[derive(Debug, Default)]
pub struct Seen {
    /// The counters of the key `:flow`.
    pub counters: HashMap<String, u64>,
    /// The waiting jobs of each lane.
    pub waiting: Vec<(String, Waiting)>,
    /// The number of running jobs by limit scope.
    pub running: HashMap<String, u64>,
    /// The limits by limit scope.
    pub limits: HashMap<String, Limits>,
    /// Limit scopes in which nothing starts: the budget is exhausted, or the tenant is disabled.
    pub paused: HashSet<String>,
}

/// Combines the figures of each endpoint.
#[must_use]
pub fn assemble(seen: Seen) -> Vec<Flow> {
    let mut lanes: BTreeMap<(String, String, u8, u32), LaneFlow> = BTreeMap::new();
    let mut runs: BTreeMap<(String, String, String), GpuRuns> = BTreeMap::new();
    let mut of_lane = |lane: &str, set: &dyn Fn(&mut LaneFlow)| {
        let Some((priority, class, tenant, endpoint)) = parse_lane(lane) else { return };
        let new = LaneFlow { priority, class, arrived: 0, started: 0, late: 0, waiting: 0, oldest_ms: 0 };
        let key = (tenant.to_owned(), endpoint.to_owned(), priority.digit(), class);
        set(lanes.entry(key).or_insert(new));
    };
    let mut ends: BTreeMap<(&str, &str), [u64; 2]> = BTreeMap::new();
    let mut tokens: BTreeMap<(&str, &str), [u64; 3]> = BTreeMap::new();
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
            _ if TOKENS.contains(&word) => {
                if let (Some(whose), Some(n)) = (of.split_once(':'), TOKENS.iter().position(|known| *known == word)) {
                    tokens.entry(whose).or_default()[n] = *number;
                }
            }
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
        of(tenant, endpoint, &mut |flow| flow.runs.push(GpuRuns { kind: kind.clone(), ..run.clone() }));
    }
    for ((tenant, endpoint), [ended, failed]) in ends {
        of(tenant.to_owned(), endpoint.to_owned(), &mut |flow| (flow.ended, flow.failed) = (ended, failed));
    }
    for ((tenant, endpoint), numbers) in tokens {
        of(tenant.to_owned(), endpoint.to_owned(), &mut |flow| flow.tokens = numbers.into());
    }
    for (scope, running) in &seen.running {
        if let Some((tenant, endpoint)) = scope.strip_prefix("e:").and_then(|scope| scope.split_once(':')) {
            of(tenant.to_owned(), endpoint.to_owned(), &mut |flow| flow.running = *running);
        }
    }
    let left = |scope: LimitScope| {
        let scope = scope.to_string();
        if seen.paused.contains(&scope) {
            return Some(0);
        }
        let most = seen.limits.get(&scope)?.max_running?;
        Some(u64::from(most).saturating_sub(seen.running.get(&scope).copied().unwrap_or(0)))
    };
    let whole = |((tenant, endpoint), flow): ((String, String), Flow)| {
        let its = left(LimitScope::Endpoint { tenant: tenant.clone(), endpoint: endpoint.clone() });
        let may_start = [its, left(LimitScope::Tenant(tenant.clone()))].into_iter().flatten().min();
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
                ("prompt_tokens:acme:draw", 30),
                ("completion_tokens:acme:draw", 9),
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
        assert_eq!((flow.ended, flow.failed, flow.tokens.numbers()), (4, 1, [30, 0, 9]));
        assert_eq!(flow.may_start, Some(1), "the tenant's limit is the closer one");
        let [urgent, batch] = &flow.lanes[..] else { panic!("{flow:?}") };
        assert_eq!((urgent.arrived, urgent.started, urgent.late), (7, 5, 1));
        assert_eq!((urgent.waiting, urgent.oldest_ms, batch.arrived), (2, 900, 3));
        let on_gpu = flow.runs.iter().find(|run| run.kind == "RTX 4090").unwrap();
        assert_eq!((on_gpu.ended, on_gpu.run_ms, on_gpu.cold_loads, on_gpu.cold_load_ms), (4, 8_000, 1, 30_000));
    }
}
