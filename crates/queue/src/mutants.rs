//! Planted bugs that the chaos checker must catch. `STOKE_MUTANT` selects one of them. Compiled only with the feature
//! `mutants`, which no release enables.

use std::sync::LazyLock;

/// The place of a planted bug.
enum Bug {
    /// A change of the text of a script, or of every script that contains it (`""`): script, text, replacement.
    Lua(&'static [(&'static str, &'static str, &'static str)]),
    /// A change in Rust, where [`is`] is called.
    Rust,
}

/// All mutants. The comment of each describes the bug.
const MUTANTS: [(&str, Bug); 20] = [
    // A report ends the attempt even if its sender does not hold the lease.
    ("no-fence-check", Bug::Lua(&[("finish", "if job.fence ~= fence then", "if false then")])),
    // A report after the end of a job replaces the job's result.
    (
        "late-result-shown",
        Bug::Lua(&[
            ("finish", "if job.fence ~= fence then", "if false then"),
            (
                "finish",
                "if TERMINAL[job.state] then return 'already_ended' end",
                "if TERMINAL[job.state] then redis.call('HSET', job_key(id), kind, value) return 'ok' end",
            ),
        ]),
    ),
    // A job leaves its lane before its lease is stored, so it is lost with its worker.
    ("ack-before-commit", Bug::Lua(&[("lease", "redis.call('ZADD', ROOT .. ':leases', unpack(leases))", "")])),
    // The counters of a batch are not updated in the script that ends the job.
    ("count-outside-script", Bug::Lua(&[("", "count(batch_key(job.batch), state, 1)", "")])),
    // A webhook is notified of the end before the script has decided whether the job ends.
    (
        "hook-before-commit",
        Bug::Lua(&[(
            "finish",
            "if not job then return 'not_found' end",
            "if not job then return 'not_found' end\n  notify_webhook(job, 'job.completed', nil, now)",
        )]),
    ),
    // Leases are taken back as soon as Redis is up, without a grace period.
    ("reaper-without-grace", Bug::Rust),
    // A repeated submit creates a second job.
    (
        "key-not-stored",
        Bug::Lua(&[(
            "submit",
            "submit.ids[new.part], submit.is_new = known[n] or new.id, true",
            "submit.ids[new.part] = known[n] or new.id",
        )]),
    ),
    // A running job is marked as cancelled but keeps its lease, so its report ends it again.
    (
        "cancel-does-not-fence",
        Bug::Lua(&[
            (
                "cancel",
                "elseif not OPEN[job.state] then",
                "elseif job.state == 'running' then
    redis.call('HSET', job_key(job.id), 'state', 'cancelled', 'ended', text(now))
    return 'cancelled'
  elseif not OPEN[job.state] then",
            ),
            ("finish", "if TERMINAL[job.state] then", "if TERMINAL[job.state] and job.state ~= 'cancelled' then"),
            ("finish", "if job.state ~= 'running' then", "if job.state ~= 'running' and job.state ~= 'cancelled' then"),
        ]),
    ),
    // All leases of a job count as its first attempt.
    (
        "attempt-not-counted",
        Bug::Lua(&[("lease", "(tonumber(job[5]) or 0) + 1", "math.max(tonumber(job[5]) or 0, 1)")]),
    ),
    // An ended job keeps its entry among the leases.
    ("lease-left-behind", Bug::Lua(&[("", "stopped[#stopped + 1] = job.id", "")])),
    // A lost job is put into its lane twice.
    (
        "requeued-twice",
        Bug::Lua(&[(
            "",
            "'entry', enqueue(raw_of(job.id), job.lane, true)",
            "'entry', enqueue(raw_of(job.id), job.lane, true) and enqueue(raw_of(job.id), job.lane, true)",
        )]),
    ),
    // The API answers 202 before it has written to Redis.
    ("submit-before-script", Bug::Rust),
    // A delivery is removed when an attempt starts, so it is lost with its sender.
    (
        "hook-forgotten-at-claim",
        Bug::Lua(&[("hook_claim", "redis.call('ZADD', hooks, until_ms, id)", "redis.call('ZREM', hooks, id)")]),
    ),
    // A job that always fails is retried without end.
    (
        "budget-not-spent",
        Bug::Lua(&[("finish", "local used = redis.call('HINCRBY', job_key(job.id), budget, 1)", "local used = 1")]),
    ),
    // A batch does not count its failed lines.
    (
        "failures-not-counted",
        Bug::Lua(&[(
            "",
            "count(batch_key(job.batch), state, 1)",
            "if state ~= 'failed' then count(batch_key(job.batch), state, 1) end",
        )]),
    ),
    // The least urgent jobs go first.
    ("priority-upside-down", Bug::Lua(&[("lease", "for priority = 0, 2 do", "for priority = 2, 0, -1 do")])),
    // One unreadable record ends the script for all jobs of the call.
    (
        "poisoned-record",
        Bug::Lua(&[(
            "",
            "return conclude(id, state, #journal, #stopped, #ended, pcall(body, ...))",
            "return true, body(...)",
        )]),
    ),
    // A lease call takes as many jobs as requested, regardless of their size.
    (
        "reply-without-bound",
        Bug::Lua(&[("lease", "bytes >= bytes_max", "false"), ("lease", "bytes < bytes_max", "true")]),
    ),
    // A tenant can cancel the job of another tenant by its ID.
    ("cancel-by-anybody", Bug::Lua(&[("cancel", "elseif job.tenant ~= tenant then", "elseif false then")])),
    // The duty that takes leases back panics and is not restarted.
    ("duty-not-restarted", Bug::Rust),
];

static CHOSEN: LazyLock<Option<String>> =
    LazyLock::new(|| std::env::var("STOKE_MUTANT").ok().filter(|name| !name.is_empty()));

/// The names of all mutants.
pub fn names() -> impl Iterator<Item = &'static str> {
    MUTANTS.iter().map(|(name, _)| *name)
}

/// Whether this mutant is selected.
pub fn is(name: &str) -> bool {
    CHOSEN.as_deref() == Some(name)
}

/// The source of a script with the selected bug.
///
/// # Panics
/// If there is no such mutant, or its text is missing: without a planted bug, the checker would prove nothing.
pub(crate) fn plant(script: &str, source: String) -> String {
    let Some(chosen) = CHOSEN.as_deref() else { return source };
    let found = MUTANTS.iter().find(|(name, _)| *name == chosen);
    let Some((_, bug)) = found else { panic!("there is no mutant {chosen}") };
    planted(bug, script, &source).unwrap_or(source)
}

/// The source with the bug, `None` if the bug does not apply to this script.
fn planted(bug: &Bug, script: &str, source: &str) -> Option<String> {
    let Bug::Lua(words) = bug else { return None };
    let here = |of: &str, from: &str| if of.is_empty() { source.contains(from) } else { of == script };
    let mut words = words.iter().filter(|(of, from, _)| here(of, from)).peekable();
    words.peek()?;
    Some(words.fold(source.to_owned(), |source, (_, from, to)| {
        assert!(source.contains(from), "{script} has no {from:?} any more");
        source.replace(from, to)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts;

    #[test]
    fn every_mutant_finds_its_place() {
        for (name, bug) in &MUTANTS {
            let planted = scripts::sources().filter(|(script, source)| planted(bug, script, source).is_some()).count();
            assert!(matches!(bug, Bug::Rust) || planted > 0, "{name}");
        }
    }
}
