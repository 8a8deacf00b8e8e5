//! Effects that others can see or pay for: batches, webhooks, tenants. I11, I12, I13, I15.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Findings;
use super::view::{View, attempts, is_terminal};

/// accepted = succeeded + failed + cancelled + expired + open at every poll; at the end the files have as many lines as
/// the counts, and the batch's end is reported once.
pub(super) fn i11_batch_sums(view: &View<'_>, found: &mut Findings) {
    for (id, batch) in &view.batches {
        for poll in batch.polls.iter().chain(&batch.last) {
            let count = |name: &str| poll.v["counts"][name].as_u64().unwrap_or(u64::MAX / 8);
            let parts: u64 = ["succeeded", "failed", "cancelled", "expired", "open"].map(count).iter().sum();
            found.judge(count("accepted") == parts, || format!("batch {id} told {}", poll.v["counts"]));
            let (counted, seen) = (count("succeeded"), poll.number("seen"));
            found.judge(counted >= seen, || format!("batch {id} counted {counted} after {seen} were seen to succeed"));
        }
        let Some(last) = batch.last else { continue };
        let mut told: BTreeMap<&str, u64> = BTreeMap::new();
        for line in last.v["lines"].as_array().into_iter().flatten() {
            *told.entry(line["state"].as_str().unwrap_or_default()).or_default() += 1;
        }
        for state in ["succeeded", "failed", "cancelled", "expired"] {
            let (counted, lines) = (last.v["counts"][state].as_u64(), told.get(state).copied().unwrap_or(0));
            found.judge(counted == Some(lines), || {
                format!("batch {id} counts {counted:?} {state}, its files have {lines}")
            });
        }
        let messages: BTreeSet<&str> = batch.hooks.iter().filter_map(|hook| hook.key.as_deref()).collect();
        found
            .judge(messages.len() <= 1, || format!("the end of batch {id} was told by several messages: {messages:?}"));
    }
}

/// Every end with a webhook was delivered, or given up after all attempts; every delivery verifies; each event has one
/// id.
pub(super) fn i12_hooks_delivered(view: &View<'_>, found: &mut Findings) {
    for hook in &view.hooks {
        let id = hook.key.as_deref().unwrap_or_default();
        found.judge(hook.flag("verified"), || {
            format!("the delivery {id} does not verify: {}", hook.err.as_deref().unwrap_or(""))
        });
    }
    let given_up: BTreeSet<&str> = view
        .of("final_hook")
        .iter()
        .filter(|hook| hook.text("state") == "exhausted")
        .map(|hook| hook.text("subject"))
        .collect();
    let taken = |hooks: &[&crate::history::Event], event: &str| {
        hooks.iter().any(|hook| hook.text("type") == event && matches!(hook.number("answered"), 200..300))
    };
    for (id, job, last) in view.finals() {
        if last.flag("hook") && is_terminal(last.text("state")) {
            let told = taken(&job.hooks, "job.completed") || given_up.contains(id);
            found.judge(told, || format!("nobody was told that job {id} is {}", last.text("state")));
        }
        let mut ids: BTreeMap<(&str, u64), BTreeSet<&str>> = BTreeMap::new();
        for hook in &job.hooks {
            let attempt = if hook.text("type") == "job.started" { hook.number("attempt") } else { 0 };
            ids.entry((hook.text("type"), attempt)).or_default().extend(hook.key.as_deref());
        }
        for ((event, _), ids) in ids.iter().filter(|((event, _), _)| *event == "job.completed") {
            found.judge(ids.len() == 1, || format!("{event} of job {id} was told under {ids:?}"));
        }
    }
    for (id, batch) in &view.batches {
        if batch.last.is_some_and(|last| last.flag("hook")) {
            let told = taken(&batch.hooks, "batch.completed") || given_up.contains(id);
            found.judge(told, || format!("nobody was told that batch {id} is over"));
        }
    }
}

/// A message about a job's end matches its actual end; an attempt that is reported as started did start.
pub(super) fn i13_hooks_are_true(view: &View<'_>, found: &mut Findings) {
    for hook in &view.hooks {
        let (subject, told) = (hook.text("subject"), hook.text("state"));
        let last = match hook.text("type") {
            "job.completed" => view.jobs.get(subject).and_then(|job| job.last),
            "batch.completed" => view.batches.get(subject).and_then(|batch| batch.last),
            "job.started" => {
                let last = view.jobs.get(subject).and_then(|job| job.last);
                let started = last.is_some_and(|last| !attempts(last).is_empty());
                found.judge(started, || format!("job {subject} was told to have started, and has no attempt"));
                continue;
            }
            other => {
                found.accuse(|| format!("an unknown event: {other}"));
                continue;
            }
        };
        let state = last.map_or("unknown", |last| last.text("state"));
        found.judge(told == state, || format!("{subject} was told to be {told}, and is {state}"));
    }
}

/// A request for another tenant's data returned that there is none; lists and messages contain only the tenant's own
/// data.
pub(super) fn i15_tenants_are_apart(view: &View<'_>, found: &mut Findings) {
    for cross in view.of("cross") {
        let status = cross.number("status");
        let job = cross.job.as_deref().unwrap_or_default();
        found.judge(status == 404, || {
            format!("{} asked for job {job} of another tenant and was answered {status}", cross.p)
        });
    }
    let mut owner: BTreeMap<&str, &str> = BTreeMap::new();
    for submit in view.submits.values() {
        for (_, ids) in &submit.acks {
            owner.extend(ids.iter().map(|id| (*id, submit.tenant)));
        }
    }
    for list in view.of("list") {
        for id in list.v["ids"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let tenant = owner.get(id).copied();
            found.judge(tenant.is_none_or(|tenant| tenant == list.text("tenant")), || {
                format!("a list of tenant {} holds job {id} of {}", list.text("tenant"), tenant.unwrap_or_default())
            });
        }
    }
}
