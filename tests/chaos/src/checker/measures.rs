//! Measurements of a run beside its verdicts; none of them passes or fails by itself.

use std::collections::BTreeMap;

use serde::Serialize;

use super::view::{View, attempts, is_terminal};
use crate::history::{Event, Kind, tally};

/// The measurements of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Measures {
    /// The seed.
    pub seed: u64,
    /// Jobs acknowledged, lines of batches included.
    pub jobs: u64,
    /// Jobs that ended, by state.
    pub ended: BTreeMap<String, u64>,
    /// Faults that landed, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Acknowledged jobs that are missing or open at the end.
    pub lost: u64,
    /// Handler runs.
    pub runs: u64,
    /// Runs that were neither committed nor ended by their own handler.
    pub wasted: u64,
    /// From the first submit to the last end, seconds.
    pub seconds: f64,
    /// Ended jobs a second over that time.
    pub jobs_per_s: f64,
    /// Time from a worker's death, or from Redis' return after it, until its jobs are ready again, p99, milliseconds.
    pub reclaim_p99_ms: Option<u64>,
    /// Number of jobs in that percentile.
    pub reclaimed: u64,
    /// Time of a 202, p99, milliseconds.
    pub accept_p99_ms: Option<u64>,
    /// Time of a refusal, p99, milliseconds.
    pub refuse_p99_ms: Option<u64>,
}

/// The measurements of a history.
#[must_use]
pub fn measure(events: &[Event]) -> Measures {
    let view = View::new(events);
    let landed = view.faults.iter().filter(|fault| fault.kind == Kind::Ok);
    let states = view.finals().map(|(_, _, last)| last.text("state").to_owned());
    let lines = view.lines().map(|(_, line)| line["state"].as_str().unwrap_or_default().to_owned());
    let states: Vec<String> = states.chain(lines).collect();
    let ended = tally(states.iter().map(String::as_str));
    let terminal: u64 = ended.iter().filter(|(state, _)| is_terminal(state)).map(|(_, count)| count).sum();
    let acknowledged = acknowledged(&view);
    let begun = view.submits.values().chain(view.batch_submits.values()).flat_map(|submit| &submit.begun).min();
    let over = view.of("drain").iter().map(|drain| drain.t).max();
    #[expect(clippy::cast_precision_loss, reason = "days in nanoseconds fit 2^52")]
    let seconds = begun.zip(over).map_or(0.0, |(from, to)| to.saturating_sub(*from) as f64 / 1e9);
    let reclaims = reclaims(&view);
    let ms = |wanted: fn(&Event) -> bool| {
        let samples: Vec<u64> =
            view.answers.iter().filter(|answer| wanted(answer)).map(|answer| answer.number("ms")).collect();
        (!samples.is_empty()).then(|| percentile(samples, 0.99))
    };
    Measures {
        seed: view.planned("seed"),
        jobs: acknowledged,
        ended,
        faults: tally(landed.map(|fault| fault.text("kind"))),
        lost: acknowledged.saturating_sub(terminal),
        runs: view.runs.len() as u64,
        wasted: wasted(&view),
        seconds,
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 jobs")]
        jobs_per_s: if seconds > 0.0 { terminal as f64 / seconds } else { 0.0 },
        reclaimed: reclaims.len() as u64,
        reclaim_p99_ms: (!reclaims.is_empty()).then(|| percentile(reclaims, 0.99)),
        accept_p99_ms: ms(|answer| answer.kind == Kind::Ok),
        refuse_p99_ms: ms(|answer| matches!(answer.number("status"), 429 | 503)),
    }
}

fn acknowledged(view: &View<'_>) -> u64 {
    let told = |submit: &super::view::Submit<'_>| if submit.acks.is_empty() { 0 } else { submit.jobs };
    view.submits.values().chain(view.batch_submits.values()).map(told).sum()
}

/// Runs without an outcome, although their handler did not end them and their job was not cancelled.
pub(super) fn wasted(view: &View<'_>) -> u64 {
    let mut committed: BTreeMap<&str, ()> = BTreeMap::new();
    committed.extend(view.finals().map(|(_, _, last)| (last.text("run"), ())));
    committed.extend(view.lines().filter_map(|(_, line)| Some((line["run"].as_str()?, ()))));
    let is_waste = |(name, run): &(&&str, &super::view::Run<'_>)| {
        let failed = run.end.is_some_and(|end| end.kind == Kind::Fail && end.text("why") == "told to");
        let cancelled = view.jobs.get(run.job).is_some_and(|job| job.cancel_asked);
        !failed && !cancelled && !committed.contains_key(**name)
    };
    view.runs.iter().filter(is_waste).count() as u64
}

/// Milliseconds from a worker's kill until each of its leases is reaped, or from Redis' return if Redis was away in
/// between: without Redis nothing is reaped, and after its return every lease begins anew.
fn reclaims(view: &View<'_>) -> Vec<u64> {
    let mut killed: BTreeMap<&str, u64> = BTreeMap::new();
    for fault in view.faults.iter().filter(|fault| fault.text("kind") == "kill_worker") {
        killed.insert(fault.text("worker_id"), fault.number("wall_ms"));
    }
    let outages: Vec<(u64, u64)> = view.faults.iter().filter_map(outage).collect();
    let mut took = Vec::new();
    for (_, _, last) in view.finals() {
        for attempt in attempts(last).iter().filter(|attempt| attempt.outcome == "lost") {
            if let Some(killed_ms) = killed.get(attempt.worker) {
                let within = outages.iter().filter(|(from, to)| *from < attempt.ended_ms && to > killed_ms);
                let since = within.map(|(_, to)| *to).fold(*killed_ms, u64::max);
                took.push(attempt.ended_ms.saturating_sub(since));
            }
        }
    }
    took
}

/// Start and end of Redis' outage, unix milliseconds.
fn outage(fault: &&Event) -> Option<(u64, u64)> {
    let from = fault.number("wall_ms");
    match fault.text("kind") {
        "kill_redis" | "long_redis_outage" => Some((from, fault.number("redis_up_wall_ms"))),
        "pause_redis" => Some((from, from + fault.number("ms"))),
        _ => None,
    }
}

/// The nearest-rank percentile; 0 if there are no samples.
pub(super) fn percentile(mut samples: Vec<u64>, part: f64) -> u64 {
    samples.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index of a list"
    )]
    let rank = (samples.len() as f64 * part).ceil() as usize;
    samples.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}
