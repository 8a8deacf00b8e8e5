use super::finish::json;
use super::submit::pack;
use super::{DUE, SETTLE, UNBLOCK, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::keys::Keys;
use crate::queue::{Due, Settlement, Verdict};

/// Number of jobs per call, so that the script does not block Redis for long.
const SETTLE_MAX: u32 = 100;

/// Call of `due.lua`.
pub(crate) struct TakeDue<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) claim_ms: u64,
    /// Claims to extend; if empty, due work is claimed.
    pub(crate) keep: &'a [Due],
}

impl TakeDue<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Vec<Due>, Error> {
        let mut call = DUE.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(SETTLE_MAX).arg(self.claim_ms);
        for due in self.keep {
            call.arg(match due {
                Due::Ended(id) => format!("ended {id}"),
                Due::Ready(id) => format!("ready {id}"),
            });
        }
        let reply: Vec<String> = connection.eval(&DUE, &call).await?;
        let due = |member: &String| match member.split_once(' ') {
            Some(("ended", id)) => id.parse().ok().map(Due::Ended),
            Some(("ready", id)) => id.parse().ok().map(Due::Ready),
            _ => None,
        };
        let known = |member: &String| {
            due(member).or_else(|| {
                // Every claim returns it again; the others proceed.
                tracing::error!(member, "a waiting job cannot be read; skipping it");
                None
            })
        };
        Ok(reply.iter().filter_map(known).collect())
    }
}

/// Call of `unblock.lua`.
pub(crate) struct Unblock<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) id: JobId,
}

impl Unblock<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<bool, Error> {
        let mut call = UNBLOCK.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(SETTLE_MAX).arg(self.id.to_string());
        let reply: Vec<String> = connection.eval(&UNBLOCK, &call).await?;
        match reply.first().map(String::as_str) {
            Some("done") => Ok(true),
            Some("more") => Ok(false),
            word => Err(unexpected(&UNBLOCK, &word)),
        }
    }
}

/// Call of `settle.lua`.
pub(crate) struct Settle<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) retention_ms: u64,
    pub(crate) settlement: &'a Settlement,
}

impl Settle<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<bool, Error> {
        let Settlement { id, revision, steps, verdict } = self.settlement;
        let steps = if steps.is_empty() { String::new() } else { json(steps)? };
        let mut call = SETTLE.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(self.retention_ms).arg(id.to_string()).arg(revision).arg(steps);
        match verdict {
            Verdict::Queue { input } => call.arg("queue").arg(input.as_ref().map_or("", |input| input.get())).arg(""),
            Verdict::Step { input, job } => {
                call.arg("step").arg(input.as_ref().map_or("", |input| input.get())).arg("");
                call.arg(pack(job)?.into_bytes())
            }
            Verdict::Succeed { result } => {
                call.arg("succeed").arg("").arg(result.as_ref().map_or("", |result| result.get()))
            }
            Verdict::Fail { error } => call.arg("fail").arg("").arg(json(error)?),
        };
        let reply: Vec<String> = connection.eval_durably(&SETTLE, &call).await?;
        match reply.first().map(String::as_str) {
            Some("ok") => Ok(true),
            Some("stale") => Ok(false),
            word => Err(unexpected(&SETTLE, &word)),
        }
    }
}
