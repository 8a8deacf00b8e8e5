//! The measurements, and how several rounds become one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stokehold_tests::process;

/// Measurements of one system. Missing measurements are absent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Figures {
    /// Description: language, package, version.
    pub(crate) about: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) submit_single_per_s: Option<f64>,
    /// With 64 submits in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) submit_concurrent_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) submit_bulk_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain2_per_s: Option<f64>,
    /// During the drain with one worker, by process.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) cpu_s_per_1000: BTreeMap<String, f64>,
    /// During the submits one by one, by process, including the client.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) submit_cpu_s_per_1000: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtt_ms: Option<RoundTrip>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) redis_bytes_per_job: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) redis_bytes_per_finished_job: Option<f64>,
    /// By number of queued jobs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) depth_drain_per_s: BTreeMap<usize, f64>,
    /// By number of queued jobs, all processes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) depth_cpu_s_per_1000: BTreeMap<usize, f64>,
    /// The queue alone, 60,000 jobs in as many lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) width_drain_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) width_cpu_s_per_1000: Option<f64>,
    /// The queue alone, as many jobs in one lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) narrow_drain_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) narrow_cpu_s_per_1000: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) crash: Option<Crash>,
    /// Failed measurements with their reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed: Vec<String>,
}

/// Submit to result in the client, one at a time on an idle system.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct RoundTrip {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
}

/// Three kill -9 of the whole worker during 1,000 jobs of 5 ms.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Crash {
    /// Jobs that ran at the three kills.
    pub(crate) hit: usize,
    pub(crate) unfinished: usize,
    pub(crate) started_twice: usize,
    pub(crate) effects_twice: usize,
    /// Time from the last restart to the last job's effect; absent if that did not occur within the watch.
    pub(crate) done_s: Option<f64>,
    pub(crate) watched_s: f64,
}

impl RoundTrip {
    pub(crate) fn of(mut samples_ms: Vec<f64>) -> Option<Self> {
        samples_ms.sort_by(f64::total_cmp);
        let last = samples_ms.len().checked_sub(1)?;
        let at = |q: f64| samples_ms[(last as f64 * q).round() as usize];
        Some(Self { p50: at(0.50), p95: at(0.95), p99: at(0.99) })
    }
}

impl Figures {
    pub(crate) fn cpu_all(&self) -> Option<f64> {
        (!self.cpu_s_per_1000.is_empty()).then(|| self.cpu_s_per_1000.values().sum())
    }

    /// The median of each measurement over the rounds. Measurements that are taken once are left to the caller.
    pub(crate) fn medians(rounds: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> Option<f64>| median(rounds.iter().filter_map(figure).collect());
        let rtt = |part: &dyn Fn(RoundTrip) -> f64| median(rounds.iter().filter_map(|f| f.rtt_ms.map(part)).collect());
        let parts = |map: &dyn Fn(&Self) -> BTreeMap<String, f64>| {
            let names: Vec<String> = rounds.iter().flat_map(|round| map(round).into_keys()).collect();
            let median = |part: &String| of(&|round| map(round).get(part).copied());
            names.into_iter().filter_map(|part| Some((part.clone(), median(&part)?))).collect()
        };
        let mut failed: Vec<String> = rounds.iter().flat_map(|round| round.failed.clone()).collect();
        failed.sort();
        failed.dedup();
        Self {
            submit_single_per_s: of(&|f| f.submit_single_per_s),
            submit_concurrent_per_s: of(&|f| f.submit_concurrent_per_s),
            submit_bulk_per_s: of(&|f| f.submit_bulk_per_s),
            drain_per_s: of(&|f| f.drain_per_s),
            drain2_per_s: of(&|f| f.drain2_per_s),
            cpu_s_per_1000: parts(&|f| f.cpu_s_per_1000.clone()),
            submit_cpu_s_per_1000: parts(&|f| f.submit_cpu_s_per_1000.clone()),
            rtt_ms: rtt(&|r| r.p50).map(|p50| RoundTrip {
                p50,
                p95: rtt(&|r| r.p95).unwrap_or_default(),
                p99: rtt(&|r| r.p99).unwrap_or_default(),
            }),
            redis_bytes_per_job: of(&|f| f.redis_bytes_per_job),
            redis_bytes_per_finished_job: of(&|f| f.redis_bytes_per_finished_job),
            failed,
            ..Self::default()
        }
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Rate per second of `count` things.
pub(crate) fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// CPU seconds by process group between two readings.
pub(crate) struct CpuWatch {
    parts: Vec<(&'static str, u32, f64)>,
}

impl CpuWatch {
    /// Starts counting for these processes, several of which may belong to the same group.
    pub(crate) fn start(processes: Vec<(&'static str, u32)>) -> Self {
        let parts = processes.into_iter().map(|(part, pid)| (part, pid, process::cpu_s(pid))).collect();
        Self { parts }
    }

    /// CPU seconds per 1,000 of `count` jobs since the start.
    pub(crate) fn per_1000(&self, count: usize) -> BTreeMap<String, f64> {
        let mut spent = BTreeMap::new();
        for (part, pid, before) in &self.parts {
            *spent.entry((*part).to_owned()).or_insert(0.0) += (process::cpu_s(*pid) - before) * 1_000.0 / count as f64;
        }
        spent
    }

    pub(crate) fn pids(&self, part: &str) -> Vec<u32> {
        self.parts.iter().filter(|(of, ..)| *of == part).map(|(_, pid, _)| *pid).collect()
    }
}
