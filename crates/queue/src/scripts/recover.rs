use stokehold_protocol::job::QUEUE_TIMEOUT_DEFAULT_S;

use super::{RECOVER, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::keys::Keys;

/// Number of records that one call checks: about 150 commands, a millisecond of Redis.
const STEP_MAX: usize = 50;

/// The position at which a sweep over all records continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) tenant: String,
    pub(crate) entry: String,
}

/// The result of one step of a recovery sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The position at which to continue; `None` once every record has been checked.
    pub next: Option<Cursor>,
    /// Number of records checked.
    pub looked: u32,
    /// Entries that were restored, by kind. Empty in a healthy queue.
    pub repairs: Vec<(String, u32)>,
}

/// Call of `recover.lua`.
pub(crate) struct Recover<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) lease_ms: u64,
    pub(crate) retention_ms: u64,
    pub(crate) cursor: Option<&'a Cursor>,
}

impl Recover<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Recovered, Error> {
        let mut call = RECOVER.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(STEP_MAX).arg(self.lease_ms).arg(self.retention_ms);
        call.arg(QUEUE_TIMEOUT_DEFAULT_S * 1_000);
        match self.cursor {
            Some(cursor) => call.arg(&cursor.tenant).arg(&cursor.entry),
            None => call.arg("").arg(""),
        };
        let reply: Vec<String> = connection.eval(&RECOVER, &call).await?;
        decode(&reply).ok_or_else(|| unexpected(&RECOVER, &reply))
    }
}

fn decode(reply: &[String]) -> Option<Recovered> {
    let [tenant, entry, looked, repairs @ ..] = reply else { return None };
    let next = (!tenant.is_empty()).then(|| Cursor { tenant: tenant.clone(), entry: entry.clone() });
    let repairs = repairs.chunks(2).map(|pair| Some((pair[0].clone(), pair.get(1)?.parse().ok()?)));
    Some(Recovered { next, looked: looked.parse().ok()?, repairs: repairs.collect::<Option<_>>()? })
}
