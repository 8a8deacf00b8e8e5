//! The transitions of a batch: one script each.

use redis::Cmd;

use super::record::BUDGET;
use super::{
    Batches, ERRORS_SHOWN, LISTED_MAX, LineError, NewBatch, OPEN_MAX, OPEN_OF_TENANT_MAX, OPEN_RESERVED, StopReason,
};
use crate::budgets::AtBudget;
use crate::error::Error;
use crate::keys::{self, IDEMPOTENCY_TTL_MS};
use crate::scripts::{self, Script, unexpected};

/// The outcome of a create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// The batch was created under its own id.
    New,
    /// The idempotency key was used before with the same request: this is the id of the first batch.
    Repeat(String),
}

/// Retention of a job's record once its line is collected, milliseconds: clients that watch the job can read its end.
const WRITTEN_KEEP_MS: u64 = 2_000;

/// The outcome of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The batch is stopping, from this or an earlier call.
    Stopping,
    /// All its lines have ended already.
    Ended,
    /// The tenant has no such batch.
    NotFound,
}

/// The outcome of a validation.
#[derive(Debug, Clone)]
pub struct Verdict<'a> {
    /// Whether the valid lines run.
    pub runs: bool,
    /// S3 key of the lines.
    pub input: &'a str,
    /// S3 key of the bitmap of invalid lines, if there are any.
    pub skip: Option<&'a str>,
    /// Name of the part with their errors, if there are any.
    pub part: Option<&'a str>,
    /// The endpoint versions that the lines were validated against.
    pub versions: &'a std::collections::BTreeMap<String, u32>,
}

impl Batches {
    /// Creates a batch. A repeat with the same id returns `New` again.
    ///
    /// # Errors
    /// [`Error::IdempotencyConflict`] if the key was used with another request; [`Error::Full`] if too many batches are
    /// open; [`Error::TooLarge`] if its tenant has too many open.
    pub async fn create(&self, new: &NewBatch) -> Result<Created, Error> {
        let script = &scripts::BATCH_CREATE;
        let mut call = self.call(script, &new.id);
        call.arg(&new.spec.tenant).arg(json(&new.spec)?).arg(new.input.as_deref().unwrap_or(""));
        call.arg(new.spec.deadline_ms.map_or(String::new(), |ms| ms.to_string()));
        call.arg(new.spec.hook.as_ref().map_or("", |hook| hook.url.as_str()));
        match &new.idempotency {
            Some(idempotency) => call.arg(keys::idempotency(&idempotency.key)).arg(&idempotency.request_hash),
            None => call.arg("").arg(""),
        };
        call.arg(new.idempotency_ttl_ms.unwrap_or(IDEMPOTENCY_TTL_MS))
            .arg(OPEN_MAX)
            .arg(LISTED_MAX)
            .arg(OPEN_OF_TENANT_MAX)
            .arg(OPEN_RESERVED);
        let reply = self.reply(script, &call).await?;
        let words: Vec<&str> = reply.iter().map(String::as_str).collect();
        match (words.as_slice(), &new.idempotency) {
            (["ok", _], _) => Ok(Created::New),
            (["repeat", id], _) => Ok(Created::Repeat((*id).to_owned())),
            (["full"], _) => Err(Error::Full),
            (["tenant_full"], _) => Err(Error::TooLarge(format!(
                "{OPEN_OF_TENANT_MAX} batches are already open; wait for some to end, or cancel some"
            ))),
            (["conflict"], Some(idempotency)) => Err(Error::IdempotencyConflict { key: idempotency.key.clone() }),
            (other, _) => Err(unexpected(script, &other)),
        }
    }

    /// Reports the progress of the validation, or ends it with a verdict. `None` if another replica has ended it;
    /// otherwise whether the batch should stop.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry. A repeated verdict returns `None`.
    pub async fn validated(
        &self,
        id: &str,
        (total, invalid): (u64, u64),
        errors: &[LineError],
        verdict: Option<&Verdict<'_>>,
    ) -> Result<Option<bool>, Error> {
        let script = &scripts::BATCH_VALIDATE;
        let mut call = self.call(script, id);
        call.arg(total).arg(invalid).arg(json(&errors[..errors.len().min(ERRORS_SHOWN)])?);
        match verdict {
            None => call.arg(""),
            Some(verdict) => {
                call.arg(if verdict.runs { "run" } else { "failed" }).arg(verdict.input);
                call.arg(verdict.skip.unwrap_or("")).arg(verdict.part.unwrap_or("")).arg(json(verdict.versions)?)
            }
        };
        let reply = self.reply(script, &call).await?;
        match reply.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["ok", stop] => Ok(Some(!stop.is_empty())),
            ["stale"] => Ok(None),
            other => Err(unexpected(script, &other)),
        }
    }

    /// Drops the lines that have not been fed. Safe to retry.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn stop(&self, tenant: &str, id: &str, why: StopReason) -> Result<Stopped, Error> {
        self.stop_for(tenant, id, why, None).await
    }

    /// Stops a batch like [`Batches::stop`], because its budget is exhausted. Lines that were dropped are cancelled.
    /// The caller cancels those that run, if `at` requires that.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn stop_at_budget(&self, tenant: &str, id: &str, at: AtBudget) -> Result<Stopped, Error> {
        self.stop_for(tenant, id, StopReason::Cancelled, Some(at)).await
    }

    async fn stop_for(
        &self,
        tenant: &str,
        id: &str,
        why: StopReason,
        budget: Option<AtBudget>,
    ) -> Result<Stopped, Error> {
        let script = &scripts::BATCH_STOP;
        let mut call = self.call(script, id);
        call.arg(tenant).arg(why.state().as_str());
        call.arg(budget.map_or("", |_| BUDGET)).arg(if budget == Some(AtBudget::Drain) { "1" } else { "" });
        let reply = self.reply(script, &call).await?;
        match reply.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["ok"] => Ok(Stopped::Stopping),
            ["ended", _] => Ok(Stopped::Ended),
            ["not_found"] => Ok(Stopped::NotFound),
            other => Err(unexpected(script, &other)),
        }
    }

    /// Records that the next `count` ended jobs after the first `collected` are in these parts. `false` if they are
    /// already in other parts; then these parts are not used.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: whether these parts are used is unknown until the batch is read again.
    pub async fn collect(&self, id: &str, collected: u64, count: usize, parts: &[String]) -> Result<bool, Error> {
        let script = &scripts::BATCH_COLLECT;
        let mut call = self.call(script, id);
        call.arg(collected).arg(count).arg(WRITTEN_KEEP_MS).arg(parts);
        self.yes(script, &call, "stale").await
    }

    /// Moves the batch to `finalizing` if no job is open or uncollected.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn finalize(&self, id: &str) -> Result<bool, Error> {
        let script = &scripts::BATCH_FINALIZE;
        let reply = self.reply(script, &self.call(script, id)).await?;
        Ok(reply.first().is_some_and(|word| word == "ok"))
    }

    /// Ends a batch whose results and errors are complete; `false` if it had ended already. The parts are kept for
    /// `parts_keep_ms`.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn end(&self, id: &str, parts_keep_ms: u64) -> Result<bool, Error> {
        let script = &scripts::BATCH_END;
        let mut call = self.call(script, id);
        call.arg(parts_keep_ms);
        self.yes(script, &call, "stale").await
    }

    pub(super) async fn note(&self, id: &str, field: &str, value: String) -> Result<(), Error> {
        let script = &scripts::BATCH_NOTE;
        let mut call = self.call(script, id);
        call.arg(field).arg(value);
        self.yes(script, &call, "stale").await.map(drop)
    }

    fn call(&self, script: &Script, id: &str) -> Cmd {
        let mut call = script.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(id);
        call
    }

    async fn reply(&self, script: &'static Script, call: &Cmd) -> Result<Vec<String>, Error> {
        self.connection.eval_durably(script, call).await
    }

    async fn yes(&self, script: &'static Script, call: &Cmd, no: &str) -> Result<bool, Error> {
        match self.reply(script, call).await?.first().map(String::as_str) {
            Some("ok") => Ok(true),
            Some(word) if word == no => Ok(false),
            other => Err(unexpected(script, &other)),
        }
    }
}

pub(super) fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Corrupt { key: "a batch".to_owned(), why: error.to_string() })
}
