//! The log of changes. A change is written down before it is made, and again when it has ended, with its outcome: what a replica did not live
//! to end is ended by another, outcome unknown. So nothing is changed that leaves no trace.

use std::collections::HashMap;

use redis::AsyncCommands;
use redis::streams::{StreamId, StreamRangeReply};
use serde::{Deserialize, Serialize};

use super::{Registry, readable, to_json};
use crate::error::Error;
use crate::scripts;

/// Changes that may be open at the same time.
const OPEN_MAX: usize = 10_000;

/// Changes that a tenant's log keeps, about: Redis drops them by the hundred.
const OF_TENANT_MAX: usize = 10_000;

/// Changes that the log of all tenants keeps, about. One is some 400 bytes: 20 MB.
const OF_ALL_MAX: usize = 50_000;

/// A change is kept for as long at most.
const MAX_AGE_MS: u64 = 400 * 24 * 3600 * 1000;

/// A change, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its own, and no other's.
    pub id: String,
    /// Whose things are changed.
    pub tenant: String,
    /// When it began, unix milliseconds.
    pub at_ms: u64,
    /// Who changes them.
    pub actor: Actor,
    /// What they ask for: method and route, as `PUT /v1/secrets/{name}`.
    pub action: String,
    /// What of it is changed, as `HF_TOKEN`; empty where the route has but one thing, or it is not known.
    pub object: String,
    /// Where they ask from; empty when that is not known.
    pub address: String,
    /// The response's `x-request-id`; empty for a change without a request.
    pub request_id: String,
    /// How it ended; `None` while it is open.
    pub end: Option<ChangeEnd>,
}

/// Who changes something.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Actor {
    /// Whose token it was.
    pub tenant: String,
    /// The token's public part; empty of an operator who reached Redis itself.
    pub token_id: String,
    /// What the token is called.
    pub token_name: String,
    /// The user that the token names, if any.
    pub user: String,
}

/// How a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeEnd {
    /// It was made.
    Done,
    /// It was not: who asked may not.
    Refused,
    /// It may have been made in part, or wholly: something behind the API failed.
    Failed,
    /// It may have been made: the replica died before it could record the outcome.
    Unknown,
}

impl ChangeEnd {
    /// The word for it.
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
    /// Its place in the log that was read.
    pub cursor: String,
    /// The change.
    pub change: Change,
}

/// Which changes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which<'a> {
    /// The newest first, those before this cursor.
    Before(Option<&'a str>),
    /// The oldest first, those after this cursor.
    After(&'a str),
}

/// One page of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// As many as were asked for, or fewer at the end.
    pub changes: Vec<KeptChange>,
    /// Where the next page starts, in the same direction; `None` at the end.
    pub next: Option<String>,
}

impl Registry {
    /// Writes down that a change is about to be made. `false`: too many are open, and this one must not be made.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, and the change must not be made.
    pub async fn begin_change(&self, change: &Change) -> Result<bool, Error> {
        let mut call = scripts::CHANGE_BEGIN.call(&[&self.keys.changes()]);
        call.arg(&change.id).arg(to_json("record a change in the audit log", change)?).arg(OPEN_MAX);
        self.connection.eval(&scripts::CHANGE_BEGIN, &call).await
    }

    /// Writes a change that has ended into the logs.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown; it is ended by [`Self::abandoned_changes`] where this was not done.
    pub async fn end_change(&self, change: &Change) -> Result<(), Error> {
        self.keep(change, "").await.map(|_| ())
    }

    /// Strikes out a change that was not made and is not worth a line: what was asked for was wrong.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: as of [`Self::end_change`].
    pub async fn drop_change(&self, id: &str) -> Result<(), Error> {
        let mut redis = self.connection.redis();
        redis.hdel(self.keys.changes(), id).await.map_err(Error::redis("remove a change from the audit log"))
    }

    /// Ends what began before `before_ms` and is open still, its outcome unknown. How many that were.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: repeat.
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

    /// One page of a tenant's log; without one of that of all tenants, whose cursors are others.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn audit(&self, tenant: Option<&str>, which: Which<'_>, limit: u32) -> Result<AuditPage, Error> {
        let (key, step, mut redis) = (self.keys.audit(tenant), "read the audit log", self.connection.redis());
        // One more tells whether there is another page.
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
