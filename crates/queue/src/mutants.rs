//! Planted bugs, one at a time, chosen by `STOKE_MUTANT`: what the chaos checker must catch. Compiled in only with the feature
//! `mutants`, which no release has.

use std::sync::LazyLock;

/// Where a bug is planted.
enum Bug {
    /// In the text of a script, or of every script that has them (`""`): these words become those.
    Lua(&'static [(&'static str, &'static str, &'static str)]),
    /// In Rust, where [`is`] is asked.
    Rust,
}

/// Every mutant, and what is wrong with it.
const MUTANTS: [(&str, Bug); 20] = [
    // Whoever reports ends the attempt, whether it holds the lease or not.
    ("no-fence-check", Bug::Lua(&[("finish", "if job.fence ~= fence then", "if false then")])),
    // A report that comes after the end puts its result in the place of the one that is there.
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
    // A job leaves its lane before anything says who has it: it is lost with its worker.
    ("ack-before-commit", Bug::Lua(&[("lease", "redis.call('ZADD', ROOT .. ':leases', unpack(leases))", "")])),
    // The batch's count follows the script by and by, in calls of its own.
    ("count-outside-script", Bug::Lua(&[("", "count(batch_key(job.batch), state, 1)", "")])),
    // The end is told before it is known whether it is one.
    (
        "hook-before-commit",
        Bug::Lua(&[(
            "finish",
            "if not job then return 'not_found' end",
            "if not job then return 'not_found' end\n  notify_webhook(job, 'job.completed', nil, now)",
        )]),
    ),
    // Leases are taken back as soon as Redis is up.
    ("reaper-without-grace", Bug::Rust),
    // A repeated submit is a second job.
    (
        "key-not-stored",
        Bug::Lua(&[(
            "submit",
            "submit.ids[new.part], submit.is_new = known[n] or new.id, true",
            "submit.ids[new.part] = known[n] or new.id",
        )]),
    ),
    // A running job is shown as cancelled, and goes on under its lease: its report makes it another end.
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
    // All leases of a job are its first attempt.
    (
        "attempt-not-counted",
        Bug::Lua(&[("lease", "(tonumber(job[5]) or 0) + 1", "math.max(tonumber(job[5]) or 0, 1)")]),
    ),
    // What has ended keeps its place among the leases.
    ("lease-left-behind", Bug::Lua(&[("", "stopped[#stopped + 1] = job.id", "")])),
    // A lost job stands in its lane twice.
    (
        "requeued-twice",
        Bug::Lua(&[(
            "",
            "'entry', enqueue(raw_of(job.id), job.lane, true)",
            "'entry', enqueue(raw_of(job.id), job.lane, true) and enqueue(raw_of(job.id), job.lane, true)",
        )]),
    ),
    // 202 first, Redis afterwards.
    ("submit-before-script", Bug::Rust),
    // A delivery is forgotten when it is begun: with its sender it is lost.
    (
        "hook-forgotten-at-claim",
        Bug::Lua(&[("hook_claim", "redis.call('ZADD', hooks, until_ms, id)", "redis.call('ZREM', hooks, id)")]),
    ),
    // A job that always fails is tried for ever.
    (
        "budget-not-spent",
        Bug::Lua(&[("finish", "local used = redis.call('HINCRBY', job_key(job.id), budget, 1)", "local used = 1")]),
    ),
    // A batch forgets those of its lines that failed.
    (
        "failures-not-counted",
        Bug::Lua(&[(
            "",
            "count(batch_key(job.batch), state, 1)",
            "if state ~= 'failed' then count(batch_key(job.batch), state, 1) end",
        )]),
    ),
    // What is least urgent goes first.
    ("priority-upside-down", Bug::Lua(&[("lease", "for priority = 0, 2 do", "for priority = 2, 0, -1 do")])),
    // One record that cannot be read ends the script for all jobs of the call.
    (
        "poisoned-record",
        Bug::Lua(&[(
            "",
            "return conclude(id, state, #journal, #stopped, #ended, pcall(body, ...))",
            "return true, body(...)",
        )]),
    ),
    // A lease takes as many jobs as were asked for, however large they are.
    (
        "reply-without-bound",
        Bug::Lua(&[("lease", "bytes >= bytes_max", "false"), ("lease", "bytes < bytes_max", "true")]),
    ),
    // Whoever knows an id may cancel it.
    ("cancel-by-anybody", Bug::Lua(&[("cancel", "elseif job.tenant ~= tenant then", "elseif false then")])),
    // The duty that takes leases back panics, and nothing starts it again.
    ("duty-not-restarted", Bug::Rust),
];

static CHOSEN: LazyLock<Option<String>> =
    LazyLock::new(|| std::env::var("STOKE_MUTANT").ok().filter(|name| !name.is_empty()));

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    MUTANTS.iter().map(|(name, _)| *name)
}

/// Whether this is the one that was chosen.
pub fn is(name: &str) -> bool {
    CHOSEN.as_deref() == Some(name)
}

/// The source of a script with the chosen bug in it.
///
/// # Panics
/// When there is no such mutant, or its words are not there: a bug that is not planted would prove nothing.
pub(crate) fn plant(script: &str, source: String) -> String {
    let Some(chosen) = CHOSEN.as_deref() else { return source };
    let found = MUTANTS.iter().find(|(name, _)| *name == chosen);
    let Some((_, bug)) = found else { panic!("there is no mutant {chosen}") };
    planted(bug, script, &source).unwrap_or(source)
}

/// `None` when the bug is not this script's.
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
