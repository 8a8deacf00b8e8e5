//! Replies to clients about jobs, compared with the queue's final records: I1, I2, I3, I6, I20.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;

use super::Findings;
use super::view::{View, is_terminal};
use crate::history::Event;

/// Every acknowledged job exists at the end, and has ended.
pub(super) fn i1_nothing_lost(view: &View<'_>, found: &mut Findings) {
    for (key, id) in view.acknowledged() {
        let state = view.jobs.get(id).and_then(|job| job.last).map(|last| last.text("state"));
        found.judge(state.is_some_and(is_terminal), || match state {
            None => format!("job {id} of {key} was acknowledged and is gone"),
            Some(state) => format!("job {id} of {key} was acknowledged and is {state} in the end"),
        });
    }
    for (key, submit) in &view.batch_submits {
        for (_, ids) in &submit.acks {
            for id in ids {
                let last = view.batches.get(id).and_then(|batch| batch.last);
                let ended = last.is_some_and(|last| last.text("state") == "completed");
                let lines: HashSet<&str> = view
                    .lines()
                    .filter(|(batch, _)| batch == id)
                    .filter_map(|(_, line)| line["tag"].as_str())
                    .collect();
                found.judge(ended && lines.len() as u64 == submit.jobs, || {
                    let state = last.map_or("gone", |last| last.text("state"));
                    format!("batch {id} of {key} is {state} with {} of {} lines told", lines.len(), submit.jobs)
                });
            }
        }
    }
}

/// Every job at the end was submitted by a client of that tenant.
pub(super) fn i2_nothing_from_nowhere(view: &View<'_>, found: &mut Findings) {
    for (id, _, last) in view.finals() {
        let (tag, tenant) = (last.text("tag"), last.text("tenant"));
        let known = asked(&view.submits, tag, tenant);
        found.judge(known, || format!("nobody of tenant {tenant:?} asked for job {id}, tag {tag:?}"));
    }
    for (batch, line) in view.lines() {
        let tag = line["tag"].as_str().unwrap_or_default();
        let known = tag.rsplit_once('#').is_some_and(|(key, n)| {
            view.batch_submits.get(key).is_some_and(|submit| n.parse::<u64>().is_ok_and(|n| n < submit.jobs))
        });
        found.judge(known, || format!("nobody asked for the line {tag:?} of {batch}"));
    }
}

fn asked(submits: &BTreeMap<&str, super::view::Submit<'_>>, tag: &str, tenant: &str) -> bool {
    let Some((key, n)) = tag.rsplit_once('#') else { return false };
    let within = |jobs: u64| n.parse::<u64>().is_ok_and(|n| n < jobs);
    submits.get(key).is_some_and(|submit| within(submit.jobs) && submit.tenant == tenant)
}

/// Once a job's end has been read, every later read returns the same state and result.
pub(super) fn i3_one_end(view: &View<'_>, found: &mut Findings) {
    let lines: BTreeMap<&str, &Value> =
        view.lines().filter_map(|(_, line)| Some((line["job"].as_str()?, line))).collect();
    for (id, job) in &view.jobs {
        let Some(first) = job.reads.iter().find(|read| is_terminal(read.text("state"))) else { continue };
        let end = |event: &Event| (event.text("state").to_owned(), event.text("run").to_owned());
        let expected = end(first);
        let mut agrees = |who: &str, told: (String, String)| {
            // A large result is stored in S3, and a reply that only links to it does not identify its run.
            let same_run = told.1 == expected.1 || told.1.is_empty() || expected.1.is_empty();
            found.judge(told.0 == expected.0 && same_run, || {
                format!("job {id} was read as {expected:?}, and later by {who} as {told:?}")
            });
        };
        for read in job.reads.iter().filter(|read| read.number("t0") > first.t) {
            agrees(&read.p, end(read));
        }
        if let Some(last) = job.last {
            agrees("the dump", end(last));
        }
        if let Some(line) = lines.get(id) {
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            agrees("the batch's files", (text("state"), text("run")));
        }
        let told = job.hooks.iter().filter(|hook| hook.text("type") == "job.completed");
        told.for_each(|hook| agrees("a webhook", end(hook)));
    }
    let mut seen = HashSet::new();
    for (batch, line) in view.lines() {
        let tag = line["tag"].as_str().unwrap_or_default();
        found.judge(seen.insert((batch, tag)), || format!("the line {tag} of {batch} ended twice"));
    }
}

/// All replies to one key name the same jobs, and a key created no job twice.
pub(super) fn i6_one_key_one_set_of_ids(view: &View<'_>, found: &mut Findings) {
    for (key, submit) in view.submits.iter().chain(&view.batch_submits) {
        let sets: BTreeSet<&Vec<&str>> = submit.acks.iter().map(|(_, ids)| ids).collect();
        found.judge(sets.len() <= 1, || format!("{key} was answered with {sets:?}"));
    }
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for (id, _, last) in view.finals() {
        let tag = last.text("tag");
        let other = owners.insert(tag, id);
        found.judge(other.is_none(), || format!("{tag} became two jobs: {id} and {}", other.unwrap_or_default()));
    }
}

/// No read that began after another one returned shows an earlier state: fewer attempts, or an open job that had ended.
pub(super) fn i20_views_are_monotonic(view: &View<'_>, found: &mut Findings) {
    for (id, job) in &view.jobs {
        for pair in job.reads.windows(2) {
            let [before, after] = pair else { continue };
            if after.number("t0") <= before.t {
                continue;
            }
            let (attempts, later) = (before.number("attempts"), after.number("attempts"));
            found.judge(later >= attempts, || format!("job {id} had {attempts} attempts, and then {later}"));
            let (state, next) = (before.text("state"), after.text("state"));
            found.judge(!is_terminal(state) || is_terminal(next), || format!("job {id} was {state}, and then {next}"));
        }
    }
}
