//! The Lua scripts: one per verb, called by their SHA-1. One module per verb builds its call and decodes its reply.

mod abandon;
mod cancel;
mod event;
mod extend;
mod feedback;
mod finish;
mod forget;
mod lease;
mod packed;
mod quarantine;
mod recover;
mod release;
mod settle;
mod source;
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

/// A script: its text in Redis, and the SHA-1 of that text.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) source: String,
    sha: String,
}

impl Script {
    fn new(name: &'static str, text: &str) -> Self {
        let source = source::build(text);
        #[cfg(feature = "mutants")]
        let source = crate::mutants::plant(name, source);
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { name, source, sha }
    }

    /// A call with these keys; its arguments are added in the script's order.
    pub(crate) fn call(&self, keys: &[&str]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha).arg(keys.len()).arg(keys);
        call
    }
}

macro_rules! scripts {
    ($($constant:ident $name:literal;)*) => {
        $(pub(crate) static $constant: LazyLock<Script> = LazyLock::new(|| {
            Script::new($name, include_str!(concat!("../lua/", $name, ".lua")))
        });)*
        /// Every script.
        pub(crate) static ALL: &[&LazyLock<Script>] = &[$(&$constant),*];
    };
}

scripts! {
    SUBMIT "submit";
    LEASE "lease";
    EXTEND "extend";
    ABANDON "abandon";
    FINISH "finish";
    RELEASE "release";
    CANCEL "cancel";
    PROMOTE "promote";
    REAP "reap";
    EVENT "event";
    WATCH "watch";
    WAKE "wake";
    HOLD "hold";
    HOOK_CLAIM "hook_claim";
    HOOK_BODY "hook_body";
    HOOK_REPORT "hook_report";
    HOOK_REPLAY "hook_replay";
    TRACE_CLAIM "trace_claim";
    FORGET "forget";
    EXPIRE "expire";
    DUE "due";
    UNBLOCK "unblock";
    SETTLE "settle";
    LIMIT "limit";
    PAUSE "pause";
    DISABLE "disable";
    CHANGE_BEGIN "change_begin";
    CHANGE_END "change_end";
    DEPLOY "deploy";
    UNDEPLOY "undeploy";
    SWEEP_CLAIM "sweep_claim";
    SWEEP_END "sweep_end";
    SWEEP_KEEP "sweep_keep";
    TRAFFIC "traffic";
    SECRET_SWAP "secret_swap";
    LEARN "learn";
    DEMAND "demand";
    DEMAND_IDLE "demand_idle";
    DEMAND_KEEP "demand_keep";
    DEMAND_FREE "demand_free";
    LEAD "lead";
    LEAD_WRITE "lead_write";
    RENT "rent";
    TOKEN_SWAP "token_swap";
    FEEDBACK "feedback";
    SCHEDULE_PUT "schedule_put";
    SCHEDULE_HOLD "schedule_hold";
    SCHEDULE_DROP "schedule_drop";
    SCHEDULE_DUE "schedule_due";
    SCHEDULE_TICK "schedule_tick";
    BATCH_CREATE "batch_create";
    BATCH_VALIDATE "batch_validate";
    BATCH_STOP "batch_stop";
    BATCH_COLLECT "batch_collect";
    BATCH_FINALIZE "batch_finalize";
    BATCH_END "batch_end";
    BATCH_NOTE "batch_note";
    ROLE "role";
    MARK "mark";
    RECOVER "recover";
    QUARANTINE "quarantine";
    READMIT "readmit";
    DISCARD "discard";
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

/// The error for a reply that no script of this version gives.
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
