//! The Lua scripts: one per verb, called by their SHA-1. One module per verb builds its call and decodes its reply.

mod abandon;
mod cancel;
mod event;
mod extend;
mod feedback;
mod finish;
mod forget;
mod lease;
mod quarantine;
mod recover;
mod release;
mod settle;
mod submit;
mod sweep;

use std::sync::LazyLock;

use redis::Cmd;

use crate::error::Error;

pub(crate) use abandon::Abandon;
pub(crate) use cancel::Cancel;
pub(crate) use event::AppendEvents;
pub(crate) use extend::Extend;
pub(crate) use feedback::Judge;
pub(crate) use finish::Finish;
pub(crate) use forget::Forget;
pub(crate) use lease::TakeLeases;
pub(crate) use quarantine::{Discard, Put, Readmit};
pub(crate) use recover::Recover;
pub use recover::{Cursor, Recovered};
pub(crate) use release::Release;
pub(crate) use settle::{Settle, TakeDue, Unblock};
pub(crate) use submit::Submit;
pub(crate) use sweep::{Expire, Promote, Reap, SWEEP_MAX};

/// A script and its SHA-1. After its first line comes the shared prelude; what follows becomes a function, so that whatever way it
/// returns, the prelude's `flush` runs last, also when it raises: what was counted up to there is written.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) source: String,
    sha: String,
}

impl Script {
    fn new(name: &'static str, text: &str, prelude: &str) -> Self {
        let source = match text.split_once('\n') {
            Some((shebang, body)) if !prelude.is_empty() => {
                let prelude = without_comments(prelude);
                format!("{shebang}\n{prelude}local function main()\n{body}end\n{RUN_MAIN}")
            }
            _ => text.to_owned(),
        };
        #[cfg(feature = "mutants")]
        let source = crate::mutants::plant(name, source);
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { name, source, sha }
    }

    /// A call with these keys; arguments are added to it in the script's order.
    pub(crate) fn call(&self, keys: &[&str]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha).arg(keys.len()).arg(keys);
        call
    }
}

/// A command that failed is raised as a table, which Redis replies as that error; anything else is a mistake of the script.
const RUN_MAIN: &str = "local done, answer = pcall(main)
flush()
if done or type(answer) == 'table' then return answer end
return {err = 'ERR ' .. tostring(answer)}
";

/// Redis keeps the text of every script: what is spliced into each goes there without what only people read.
fn without_comments(prelude: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("--") && !line.is_empty();
    prelude.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect()
}

macro_rules! scripts {
    ($($constant:ident $name:literal $prelude:expr;)*) => {
        $(pub(crate) static $constant: LazyLock<Script> = LazyLock::new(|| {
            Script::new($name, include_str!(concat!("../lua/", $name, ".lua")), $prelude)
        });)*
        /// Every script.
        pub(crate) static ALL: &[&LazyLock<Script>] = &[$(&$constant),*];
    };
}

/// Spliced into each script, in this order: a part uses those before it.
const PRELUDE: &str = concat!(
    include_str!("../lua/lib/keys.lua"),
    include_str!("../lua/lib/tally.lua"),
    include_str!("../lua/lib/signals.lua"),
    include_str!("../lua/lib/gates.lua"),
    include_str!("../lua/lib/jobs.lua"),
    include_str!("../lua/lib/lanes.lua"),
    include_str!("../lua/lib/outbox.lua"),
    include_str!("../lua/lib/traces.lua"),
    include_str!("../lua/lib/ends.lua"),
    include_str!("../lua/lib/create.lua"),
    include_str!("../lua/lib/timings.lua"),
    include_str!("../lua/lib/flush.lua"),
);

scripts! {
    SUBMIT "submit" PRELUDE;
    LEASE "lease" PRELUDE;
    EXTEND "extend" PRELUDE;
    ABANDON "abandon" PRELUDE;
    FINISH "finish" PRELUDE;
    RELEASE "release" PRELUDE;
    CANCEL "cancel" PRELUDE;
    PROMOTE "promote" PRELUDE;
    REAP "reap" PRELUDE;
    EVENT "event" PRELUDE;
    WATCH "watch" PRELUDE;
    WAKE "wake" PRELUDE;
    HOLD "hold" PRELUDE;
    HOOK_CLAIM "hook_claim" PRELUDE;
    HOOK_BODY "hook_body" PRELUDE;
    HOOK_REPORT "hook_report" PRELUDE;
    HOOK_REPLAY "hook_replay" PRELUDE;
    TRACE_CLAIM "trace_claim" PRELUDE;
    FORGET "forget" PRELUDE;
    EXPIRE "expire" PRELUDE;
    DUE "due" PRELUDE;
    UNBLOCK "unblock" PRELUDE;
    SETTLE "settle" PRELUDE;
    LIMIT "limit" PRELUDE;
    PAUSE "pause" PRELUDE;
    DISABLE "disable" PRELUDE;
    CHANGE_BEGIN "change_begin" "";
    CHANGE_END "change_end" "";
    DEPLOY "deploy" "";
    UNDEPLOY "undeploy" "";
    TRAFFIC "traffic" "";
    SECRET_SWAP "secret_swap" "";
    LEARN "learn" "";
    DEMAND "demand" "";
    DEMAND_IDLE "demand_idle" "";
    DEMAND_KEEP "demand_keep" "";
    DEMAND_FREE "demand_free" "";
    LEAD "lead" "";
    LEAD_WRITE "lead_write" "";
    RENT "rent" "";
    TOKEN_SWAP "token_swap" "";
    FEEDBACK "feedback" "";
    SCHEDULE_PUT "schedule_put" PRELUDE;
    SCHEDULE_HOLD "schedule_hold" PRELUDE;
    SCHEDULE_DROP "schedule_drop" PRELUDE;
    SCHEDULE_DUE "schedule_due" PRELUDE;
    SCHEDULE_TICK "schedule_tick" PRELUDE;
    BATCH_CREATE "batch_create" PRELUDE;
    BATCH_VALIDATE "batch_validate" PRELUDE;
    BATCH_STOP "batch_stop" PRELUDE;
    BATCH_COLLECT "batch_collect" PRELUDE;
    BATCH_FINALIZE "batch_finalize" PRELUDE;
    BATCH_END "batch_end" PRELUDE;
    BATCH_NOTE "batch_note" PRELUDE;
    ROLE "role" PRELUDE;
    MARK "mark" "";
    RECOVER "recover" PRELUDE;
    QUARANTINE "quarantine" PRELUDE;
    READMIT "readmit" PRELUDE;
    DISCARD "discard" PRELUDE;
}

/// The name and the SHA-1 of every script. SLOWLOG and MONITOR name scripts by their SHA-1.
pub fn scripts() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|script| (script.name, script.sha.as_str()))
}

/// Every script's name and text.
#[cfg(all(test, feature = "mutants"))]
pub(crate) fn sources() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|script| (script.name, script.source.as_str()))
}

/// A reply that no script of this version gives.
pub(crate) fn unexpected(script: &Script, reply: &impl std::fmt::Debug) -> Error {
    Error::Corrupt { key: format!("the reply of {}", script.name), why: format!("{reply:?}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_lua_file_has_its_wrapper_and_says_its_contract_first() {
        let files: BTreeSet<String> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua"))
            .expect("lua/ is there")
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .filter(|name| name != "lib")
            .collect();
        let wrapped: BTreeSet<String> = ALL.iter().map(|script| format!("{}.lua", script.name)).collect();
        assert_eq!(files, wrapped);
        for script in ALL {
            let contract: Vec<&str> = script.source.lines().filter(|line| line.starts_with("-- ")).collect();
            assert!(script.source.starts_with("#!lua"), "{} declares its flags", script.name);
            for word in [&format!("-- {}:", script.name), "-- KEYS ", "-- ARGV ", "-- Reply "] {
                assert!(contract.iter().any(|line| line.starts_with(word)), "{}: {word}", script.name);
            }
        }
    }

    #[test]
    fn no_script_uses_a_command_that_could_lose_work_or_block() {
        for script in ALL {
            for banned in ["'KEYS'", "'SMEMBERS'", "MAXLEN', ARGV", "NOACK", "BLOCK", "'MAXLEN', '='"] {
                assert!(!script.source.contains(banned), "{} uses {banned}", script.name);
            }
        }
    }
}
