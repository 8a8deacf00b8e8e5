//! Invariants of the whole system: processes, Redis, times, waste, metrics. I14, I18, I21 to I27.

use std::collections::BTreeMap;

use super::view::{View, attempts};
use super::{Findings, measures};
use crate::history::{Event, Kind, tally};

/// Memory of a drained queue, relative to a fresh, empty one: at most a twentieth more, for some counters.
const MEMORY_SLACK: f64 = 1.05;
const MEMORY_SLACK_BYTES: u64 = 4 << 10;

/// Five seconds after a worker was killed, none of its runners is left.
pub(super) fn i14_runners_go_with_their_worker(view: &View<'_>, found: &mut Findings) {
    for check in view.of("runner_check") {
        let left = check.number("left");
        found.judge(left == 0, || format!("{left} runners of {} outlived it", check.text("worker")));
    }
}

/// A drained queue holds no keys except those that are kept by design; without these, it takes no more memory than a
/// fresh one.
pub(super) fn i18_drained_is_empty(view: &View<'_>, found: &mut Findings) {
    for event in view.of("final_redis") {
        let left = super::view::texts(&event.v, "left");
        found.judge(left.is_empty(), || format!("left behind: {}", left.join(", ")));
        let (baseline, after) = (event.number("baseline_bytes"), event.number("after_bytes"));
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 bytes")]
        let holds = after as f64 <= baseline as f64 * MEMORY_SLACK + MEMORY_SLACK_BYTES as f64;
        found.judge(holds, || {
            let heaviest = super::view::texts(&event.v, "heaviest").join(", ");
            format!("{after} bytes after the drain, {baseline} before; most of them {heaviest}")
        });
    }
}

/// A 202 and a refusal arrive within the plan's bounds at the 99th percentile, with or without faults.
pub(super) fn i21_answers_in_time(view: &View<'_>, found: &mut Findings) {
    let ms = |wanted: fn(&Event) -> bool| -> Vec<u64> {
        view.answers.iter().filter(|answer| wanted(answer)).map(|answer| answer.number("ms")).collect()
    };
    let accepted = ms(|answer| answer.kind == Kind::Ok);
    let refused = ms(|answer| matches!(answer.number("status"), 429 | 503));
    let percent = u32::try_from(view.planned("in_time_percent")).unwrap_or(u32::MAX);
    for (what, samples, most) in [("a 202", accepted, "accept_in_ms"), ("a refusal", refused, "refuse_in_ms")] {
        if samples.is_empty() {
            continue;
        }
        let (ms, most) = (measures::percentile(samples, f64::from(percent) / 100.0), view.planned(most));
        found.judge(ms <= most, || format!("{what} took {ms} ms at p{percent}, more than {most}"));
    }
}

/// No submit is tried more often than its plan allows: in a rolling upgrade, as often as the SDKs retry by themselves.
pub(super) fn i27_retries_suffice(view: &View<'_>, found: &mut Findings) {
    let most = view.planned("tries_max");
    let tried = tally(view.answers.iter().filter_map(|answer| answer.key.as_deref()));
    for (key, tries) in tried {
        found.judge(tries <= most, || format!("the submit {key} was tried {tries} times, more than {most}"));
    }
}

/// A run that was not committed was ended by its own handler, by a cancel, or by a fault. A restart of Redis causes no
/// mass requeue: no lease is reaped before its holder could extend it again.
pub(super) fn i22_waste_is_explained(view: &View<'_>, found: &mut Findings) {
    if view.runs.is_empty() {
        return;
    }
    let (wasted, explained) = (measures::wasted(view), explained(view));
    found.judge(wasted <= explained, || format!("{wasted} runs were wasted, faults explain {explained}"));
    // Redis reports only whole seconds of uptime: the grace may be shorter by that much.
    let grace_ms = view.planned("lease_ms").saturating_sub(1_000);
    let ups: Vec<u64> = view.faults.iter().map(|fault| fault.number("redis_up_wall_ms")).filter(|up| *up > 0).collect();
    for (id, _, last) in view.finals() {
        for attempt in attempts(last).iter().filter(|attempt| attempt.outcome == "lost") {
            let hasty = ups.iter().find(|up| (**up..**up + grace_ms).contains(&attempt.ended_ms));
            found.judge(hasty.is_none(), || {
                format!("job {id} was taken back {} ms after Redis came up", attempt.ended_ms - hasty.unwrap_or(&0))
            });
        }
    }
}

/// Maximum number of runs that the faults may have cost. Each fault records how many runs it can have hit.
fn explained(view: &View<'_>) -> u64 {
    view.faults.iter().filter(|fault| fault.kind == Kind::Ok).map(|fault| fault.number("runs_at_stake")).sum()
}

/// Each kind of fault occurred as often as planned.
pub(super) fn i23_faults_landed(view: &View<'_>, found: &mut Findings) {
    let landed = tally(view.faults.iter().filter(|fault| fault.kind == Kind::Ok).map(|fault| fault.text("kind")));
    let planned = view.plan.and_then(|plan| plan.v["faults"].as_object());
    for (kind, planned) in planned.into_iter().flatten() {
        let (planned, landed) = (planned.as_u64().unwrap_or(u64::MAX), landed.get(kind).copied().unwrap_or(0));
        found.judge(landed >= planned, || format!("{kind}: {landed} landed of {planned} planned"));
    }
}

/// After the faults had ended, every job ended within its time.
pub(super) fn i24_drained_in_time(view: &View<'_>, found: &mut Findings) {
    for drain in view.of("drain") {
        let (took, most) = (drain.number("ms"), drain.number("limit_ms"));
        found.judge(drain.kind == Kind::Ok && took <= most, || {
            format!("not drained {took} ms after healing, {most} allowed: {}", drain.err.as_deref().unwrap_or("late"))
        });
    }
}

/// No log or journal contains one of the planted secrets.
pub(super) fn i25_no_secrets(view: &View<'_>, found: &mut Findings) {
    for search in view.of("canaries") {
        let leaks = super::view::texts(&search.v, "leaks");
        found.judge(search.number("files") > 0 && search.number("secrets") > 0, || "nothing was searched".to_owned());
        found.judge(leaks.is_empty(), || format!("secrets were found: {}", leaks.join(", ")));
    }
}

/// The replicas' counters match the events. A killed replica loses its counts since the last scrape, and an operation
/// whose reply from Redis was lost is counted nowhere: with faults the sum may be smaller, never larger.
pub(super) fn i26_metrics_agree(view: &View<'_>, found: &mut Findings) {
    if view.of("scrape").is_empty() {
        return;
    }
    // A count that falls belongs to another process, which began at 0.
    let counted = |name: &str| {
        let (mut last, mut sum): (BTreeMap<&str, u64>, u64) = (BTreeMap::new(), 0);
        for scrape in view.of("scrape") {
            let (now, before) = (scrape.number(name), last.insert(&scrape.p, scrape.number(name)).unwrap_or(0));
            sum += if now >= before { now - before } else { now };
        }
        sum
    };
    let succeeded = view.finals().filter(|(_, _, last)| last.text("state") == "succeeded").count()
        + view.lines().filter(|(_, line)| line["state"] == "succeeded").count();
    let accepted = view.finals().count() + view.lines().count();
    for (what, counted, happened) in
        [("jobs accepted", counted("submitted"), accepted), ("commits", counted("committed"), succeeded)]
    {
        let happened = happened as u64;
        let agrees = if view.faults.is_empty() { counted == happened } else { (1..=happened).contains(&counted) };
        found.judge(agrees, || format!("{what}: {counted} counted, {happened} happened"));
    }
}
