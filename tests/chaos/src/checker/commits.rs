//! Leases, fences and the results committed under them: I4, I5, I7, I8, I9, I10, I19.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Findings;
use super::view::{View, attempts, counter};

/// A run may begin this long after its job's cancel: the worker learns of the cancel with the next heartbeat.
const CANCEL_GRACE_NS: u64 = 5_000_000_000;

/// Maximum time that urgent work may wait while other work starts.
const URGENT_MS: u64 = 1_000;

/// A job has at most one success, and no attempt after it.
pub(super) fn i4_one_commit(view: &View<'_>, found: &mut Findings) {
    for (id, job, last) in view.finals() {
        let attempts = attempts(last);
        let won: Vec<_> = attempts.iter().filter(|attempt| attempt.outcome == "succeeded").collect();
        found.judge(won.len() <= 1, || format!("job {id} was committed {} times", won.len()));
        if let Some(won) = won.first() {
            let highest = attempts.iter().map(|attempt| counter(attempt.fence)).max().unwrap_or_default();
            found.judge(counter(won.fence) == highest, || {
                format!("job {id} was committed under fence {}, and {highest} was given out", won.fence)
            });
        }
        let hooks = job.hooks.iter().filter(|hook| hook.text("type") == "job.completed");
        let told: BTreeSet<&str> =
            job.reads.iter().chain(hooks).map(|told| told.text("run")).filter(|run| !run.is_empty()).collect();
        found.judge(told.len() <= 1, || format!("job {id} showed the results of several runs: {told:?}"));
    }
}

/// Every committed result was run by that job, in that attempt, to its end, and is stored at its recorded place.
pub(super) fn i5_commit_has_its_run(view: &View<'_>, found: &mut Findings) {
    view.broken_runs.iter().for_each(|broken| found.accuse(|| broken.clone()));
    for (id, _, last) in view.finals().filter(|(_, _, last)| last.text("state") == "succeeded") {
        let won = attempts(last).iter().find(|attempt| attempt.outcome == "succeeded").map(|attempt| attempt.attempt);
        let name = last.text("run");
        let run = view.runs.get(name);
        let matches = run.is_some_and(|run| {
            run.job == id && Some(run.attempt) == won && run.tag == last.text("tag") && ended_well(run.end)
        });
        found.judge(matches, || match run {
            None => format!("job {id} has the result of a run that was never seen: {name:?}"),
            Some(run) => format!(
                "job {id}, tag {}, committed attempt {won:?} with the result of run {name} of job {}, tag {}, attempt {}, ended: {}",
                last.text("tag"), run.job, run.tag, run.attempt, run.end.is_some()
            ),
        });
        let object = last.text("object");
        found.judge(object.is_empty() || object == "right", || format!("the object of job {id} is {object}"));
    }
    for (batch, line) in view.lines().filter(|(_, line)| line["state"] == "succeeded") {
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        let run = view.runs.get(text("run"));
        let matches = run.is_some_and(|run| run.job == text("job") && run.tag == text("tag") && ended_well(run.end));
        found.judge(matches, || format!("the line {} of {batch} has a result that none of its runs gave", text("tag")));
    }
}

fn ended_well(end: Option<&crate::history::Event>) -> bool {
    end.is_some_and(|end| end.kind == crate::history::Kind::Ok)
}

/// No job exceeded its budgets, and each job that did not succeed has a reason: its own nature, or a budget that faults
/// used up.
pub(super) fn i7_attempts_within_budget(view: &View<'_>, found: &mut Findings) {
    let (most_failures, most_lost) = (view.planned("max_attempts"), view.planned("max_infra_attempts"));
    for (id, job, last) in view.finals() {
        let spent = |name: &str| last.number(name);
        let (failures, lost, crashes) = (spent("failures"), spent("lost"), spent("crashes"));
        found.judge(failures <= most_failures && lost <= most_lost, || {
            format!("job {id} used {failures} of {most_failures} attempts and {lost} of {most_lost} for lost workers")
        });
        let started = attempts(last).len() as u64;
        // Attempts that a release gave back cost nothing, so that only the journal bounds them.
        let most = last.number("attempt");
        found.judge(started <= most && job.runs.len() as u64 <= most, || {
            format!(
                "job {id} counts {most} attempts, its record tells {started}, and its handler began {} times",
                job.runs.len()
            )
        });
        let used_up = failures >= most_failures || lost >= most_lost || crashes >= view.planned("poison_crashes");
        let expected = match last.text("state") {
            "succeeded" => !last.flag("fails"),
            "failed" => used_up,
            "cancelled" => job.cancel_asked,
            _ => false,
        };
        found.judge(expected, || {
            format!(
                "job {id} is {}: it {} fail by itself, used {failures} failures, {lost} lost, {crashes} crashes; cancel asked: {}",
                last.text("state"), if last.flag("fails") { "must" } else { "need not" }, job.cancel_asked
            )
        });
    }
}

/// An attempt begins after the previous one has ended; at the end, no job is left in any index.
pub(super) fn i8_leases_do_not_overlap(view: &View<'_>, found: &mut Findings) {
    for (id, _, last) in view.finals() {
        for pair in attempts(last).windows(2) {
            let [before, after] = pair else { continue };
            found.judge(after.leased_ms >= before.ended_ms, || {
                let (first, second) = (before.attempt, after.attempt);
                format!(
                    "job {id}: attempt {second} was leased at {} before attempt {first} ended at {}",
                    after.leased_ms, before.ended_ms
                )
            });
        }
    }
    for event in view.of("final_redis") {
        for place in ["leases", "scheduled", "ready", "streams", "deadlines"] {
            let left = event.number(place);
            found.judge(left == 0, || format!("{left} jobs stand in {place} though all have ended"));
        }
    }
}

/// Every lease has its own fence, with a counter above the last; every attempt is started once.
pub(super) fn i9_fences_grow(view: &View<'_>, found: &mut Findings) {
    for (id, _, last) in view.finals() {
        for pair in attempts(last).windows(2) {
            let [before, after] = pair else { continue };
            found.judge(counter(after.fence) > counter(before.fence) && after.attempt > before.attempt, || {
                format!("job {id}: fence {} came after {}", after.fence, before.fence)
            });
        }
    }
    let mut started: HashMap<(&str, u32), u32> = HashMap::new();
    for run in view.runs.values() {
        *started.entry((run.job, run.attempt)).or_default() += 1;
    }
    for ((id, attempt), times) in started {
        found.judge(times == 1, || format!("attempt {attempt} of job {id} was started {times} times"));
    }
}

/// After an acknowledged cancel no attempt of the job begins, and the job stays cancelled.
pub(super) fn i10_cancelled_stays_cancelled(view: &View<'_>, found: &mut Findings) {
    for (id, job) in &view.jobs {
        let Some(cancelled) = job.cancelled else { continue };
        let state = job.last.map_or("gone", |last| last.text("state"));
        found.judge(state == "cancelled", || format!("job {id} is {state} after its cancel was acknowledged"));
        let late =
            job.runs.iter().filter_map(|run| view.runs.get(run)).find(|run| run.start > cancelled + CANCEL_GRACE_NS);
        found.judge(late.is_none(), || {
            let late_ms = late.map_or(0, |run| (run.start - cancelled) / 1_000_000);
            format!("job {id} was started {late_ms} ms after its cancel was acknowledged")
        });
        for read in job.reads.iter().filter(|read| read.number("t0") > cancelled) {
            let state = read.text("state");
            found.judge(state == "cancelled", || format!("job {id} was read as {state} after its cancel"));
        }
    }
}

/// While an urgent job has been ready for longer than a second, no other work is leased. Times are Redis' own.
pub(super) fn i19_priority(view: &View<'_>, found: &mut Findings) {
    let mut starts: BTreeMap<u64, (&str, &str)> = BTreeMap::new();
    let mut waits = Vec::new();
    for (id, _, last) in view.finals() {
        for attempt in attempts(last) {
            match last.text("priority") {
                "interactive" => {
                    waits.push((id, attempt.leased_ms.saturating_sub(attempt.queued_ms), attempt.leased_ms))
                }
                priority => {
                    starts.insert(attempt.leased_ms, (id, priority));
                }
            }
        }
    }
    for (id, ready_ms, leased_ms) in waits {
        // A retry's time in the queue includes its pause and its reap: only the first wait is a plain one.
        let overtaken = starts.range(ready_ms + URGENT_MS + 1..leased_ms.max(ready_ms + URGENT_MS + 1)).next();
        found.judge(overtaken.is_none(), || {
            let (at_ms, (other, priority)) = overtaken.map_or((0, ("", "")), |(at_ms, other)| (*at_ms, *other));
            format!("job {id} was ready at {ready_ms} and leased at {leased_ms}; {priority} job {other} was leased at {at_ms}")
        });
    }
}
