//! What is measured, and how several rounds become one figure.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use stokehold_tests::process;

/// The payload of the peers' benchmark: about 200 bytes.
pub(crate) const PAYLOAD_TEXT_BYTES: usize = 170;

/// One system's figures. What was not measured is absent.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Figures {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) submit_single_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) submit_bulk_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain2_per_s: Option<f64>,
    /// During the drain with one worker, by part.
    pub(crate) cpu_s_per_1000: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtt_ms: Option<RoundTrip>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) redis_bytes_per_job: Option<f64>,
}

/// Submit to result in the client, one at a time on an idle system.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct RoundTrip {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
}

impl RoundTrip {
    pub(crate) fn of(mut samples_ms: Vec<f64>) -> Self {
        samples_ms.sort_by(f64::total_cmp);
        let at = |q: f64| samples_ms[((samples_ms.len() - 1) as f64 * q).round() as usize];
        Self { p50: at(0.50), p95: at(0.95), p99: at(0.99) }
    }
}

impl Figures {
    /// The median of each figure over the rounds.
    pub(crate) fn medians(rounds: Vec<Self>) -> Self {
        let of = |figure: &dyn Fn(&Self) -> Option<f64>| median(rounds.iter().filter_map(figure).collect());
        let rtt = |part: &dyn Fn(RoundTrip) -> f64| median(rounds.iter().filter_map(|f| f.rtt_ms.map(part)).collect());
        let parts: Vec<String> = rounds.iter().flat_map(|f| f.cpu_s_per_1000.keys().cloned()).collect();
        Self {
            submit_single_per_s: of(&|f| f.submit_single_per_s),
            submit_bulk_per_s: of(&|f| f.submit_bulk_per_s),
            drain_per_s: of(&|f| f.drain_per_s),
            drain2_per_s: of(&|f| f.drain2_per_s),
            cpu_s_per_1000: parts
                .into_iter()
                .filter_map(|part| Some((part.clone(), of(&|f| f.cpu_s_per_1000.get(&part).copied())?)))
                .collect(),
            rtt_ms: rtt(&|r| r.p50).map(|p50| RoundTrip {
                p50,
                p95: rtt(&|r| r.p95).unwrap_or_default(),
                p99: rtt(&|r| r.p99).unwrap_or_default(),
            }),
            redis_bytes_per_job: of(&|f| f.redis_bytes_per_job),
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

/// How many of `count` things a second since `start`.
pub(crate) fn rate(count: usize, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}

/// CPU seconds by part between two looks.
pub(crate) struct CpuWatch {
    parts: Vec<(String, u32, f64)>,
}

impl CpuWatch {
    /// Starts watching these processes, several of which may be the same part.
    pub(crate) fn start(processes: Vec<(String, u32)>) -> Self {
        let parts = processes.into_iter().map(|(part, pid)| (part, pid, process::cpu_s(pid))).collect();
        Self { parts }
    }

    /// CPU seconds per 1,000 of `count` jobs since the start.
    pub(crate) fn per_1000(&self, count: usize) -> BTreeMap<String, f64> {
        let mut spent = BTreeMap::new();
        for (part, pid, before) in &self.parts {
            *spent.entry(part.clone()).or_insert(0.0) += (process::cpu_s(*pid) - before) * 1_000.0 / count as f64;
        }
        spent
    }
}
