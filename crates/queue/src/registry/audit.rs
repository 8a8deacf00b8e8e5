//! The audit log. A change is recorded before it is made, and again with its outcome when it has ended. If the replica
//! dies in between, another one records the end with an unknown outcome, so that every change leaves a trace.

use std::collections::HashMap;

use redis::AsyncCommands;
use redis::streams::{StreamId, StreamRangeReply};
use serde::{Deserialize, Serialize};

use super::{Registry, readable, to_json};
use crate::error::Error;
use crate::scripts;

/// Maximum number of open changes.
const OPEN_MAX: usize = 10_000;

/// Approximate number of changes that a tenant's log keeps: Redis trims them by the hundred.
const OF_TENANT_MAX: usize = 10_000;

/// Approximate number of changes that the log of all tenants keeps: 20 MB, because a change has about 400 bytes.
const OF_ALL_MAX: usize = 50_000;

/// Maximum age of a change in the log.
const MAX_AGE_MS: u64 = 400 * 24 * 3600 * 1000;

/// A change, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Unique id of the change.
    pub id: String,
    /// The tenant whose resources are changed.
    pub tenant: String,
    /// Time at which the change began, Unix milliseconds.
    pub at_ms: u64,
    /// The caller that makes the change.
    pub actor: Actor,
    /// The request's method and route, e.g. `PUT /v1/secrets/{name}`.
    pub action: String,
    /// The object that is changed, e.g. `HF_TOKEN`; empty if the route has only one, or if it is unknown.
    pub object: String,
    /// The client's address; empty if unknown.
    pub address: String,
    /// The response's `x-request-id`; empty for a change without a request.
    pub request_id: String,
    /// The outcome; `None` while the change is open.
    pub end: Option<ChangeEnd>,
}

/// The caller that makes a change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Actor {
    /// The tenant that owns the token.
    pub tenant: String,
    /// The public part of the token; empty for an operator with direct access to Redis.
    pub token_id: String,
    /// The name of the token.
    pub token_name: String,
    /// The user of the token, if set.
    pub user: String,
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeEnd {
    /// The change was made.
    Done,
    /// The change was not made: the caller is not allowed to.
    Refused,
    /// The change may have been made partly or completely: a backend of the API failed.
    Failed,
    /// The change may have been made: the replica died before it could record the outcome.
    Unknown,
}

impl ChangeEnd {
    /// The name of the outcome.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// A change in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptChange {
    /// Position of the change in the log that was read.
    pub cursor: String,
    /// The change.
    pub change: Change,
}

/// The range of changes to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which<'a> {
    /// Changes before this cursor, newest first.
    Before(Option<&'a str>),
    /// Changes after this cursor, oldest first.
    After(&'a str),
}

/// One page of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// The changes, as many as requested unless the log ends.
    pub changes: Vec<KeptChange>,
    /// The cursor of the next page in the same direction; `None` at the end.
    pub next: Option<String>,
}

impl Registry {
    /// Records that a change is about to be made. `false`: too many are open, and the change must not be made.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown, and the change must not be made.
    pub async fn begin_change(&self, change: &Change) -> Result<bool, Error> {
        let mut call = scripts::CHANGE_BEGIN.call(&[&self.keys.changes()]);
        call.arg(&change.id).arg(to_json("record a change in the audit log", change)?).arg(OPEN_MAX);
        self.connection.eval(&scripts::CHANGE_BEGIN, &call).await
    }

    /// Writes a change that has ended to the logs.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; [`Self::abandoned_changes`] ends the change if this was not
    /// done.
    pub async fn end_change(&self, change: &Change) -> Result<(), Error> {
        self.keep(change, "").await.map(|_| ())
    }

    /// Deletes the record of a change that was not made and is not worth an entry, because the request was invalid.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: like [`Self::end_change`].
    pub async fn drop_change(&self, id: &str) -> Result<(), Error> {
        let mut redis = self.connection.redis();
        redis.hdel(self.keys.changes(), id).await.map_err(Error::redis("remove a change from the audit log"))
    }

    /// Ends the changes that began before `before_ms` and are still open, with an unknown outcome. Returns their
    /// number.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: retry.
    pub async fn abandoned_changes(&self, before_ms: u64) -> Result<u32, Error> {
        let step = "read the open changes";
        let open: HashMap<String, String> =
            self.connection.redis().hgetall(self.keys.changes()).await.map_err(Error::redis(step))?;
        let mut ended = 0;
        for text in open.values() {
            let Some(change) = readable::<Change>(step, text) else { continue };
            if change.at_ms < before_ms {
                let change = Change { end: Some(ChangeEnd::Unknown), ..change };
                ended += u32::from(self.keep(&change, "open").await?);
            }
        }
        Ok(ended)
    }

    async fn keep(&self, change: &Change, only: &str) -> Result<bool, Error> {
        let logs = [self.keys.audit(Some(&change.tenant)), self.keys.audit(None)];
        let mut call = scripts::CHANGE_END.call(&[&self.keys.changes(), &logs[0], &logs[1]]);
        call.arg(&change.id).arg(to_json("record the outcome of a change", change)?).arg(only);
        call.arg(OF_TENANT_MAX).arg(OF_ALL_MAX).arg(MAX_AGE_MS);
        self.connection.eval(&scripts::CHANGE_END, &call).await
    }

    /// One page of a tenant's log, or without a tenant of the log of all tenants. Cursors of one log are not valid in
    /// another.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn audit(&self, tenant: Option<&str>, which: Which<'_>, limit: u32) -> Result<AuditPage, Error> {
        let (key, step, mut redis) = (self.keys.audit(tenant), "read the audit log", self.connection.long());
        // One more entry than requested shows whether there is another page.
        let count = limit as usize + 1;
        let read: Result<StreamRangeReply, _> = match which {
            Which::Before(before) => {
                let before = before.map_or_else(|| "+".to_owned(), |cursor| format!("({cursor}"));
                redis.xrevrange_count(key, before, "-", count).await
            }
            Which::After(after) => redis.xrange_count(key, format!("({after}"), "+", count).await,
        };
        let mut entries = read.map_err(Error::redis(step))?.ids;
        let is_more = entries.len() == count;
        entries.truncate(limit as usize);
        let next = entries.last().filter(|_| is_more).map(|entry| entry.id.clone());
        let kept = |entry: StreamId| {
            let text: String = entry.get("c").unwrap_or_default();
            Some(KeptChange { change: readable(step, &text)?, cursor: entry.id })
        };
        Ok(AuditPage { changes: entries.into_iter().filter_map(kept).collect(), next })
    }
}
