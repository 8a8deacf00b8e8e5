//! Decoding the job record: from the hash's fields to [`Job`].

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::id::{Fence, JobId};
use crate::job::{Attempt, AttemptOutcome, Job, JobError, JobResult, JobState, Timing};

/// A closed attempt as the scripts write it.
#[derive(Deserialize)]
struct ClosedAttempt {
    attempt: u32,
    worker_id: String,
    fence: Fence,
    leased_ms: u64,
    queued_ms: u64,
    ended_ms: u64,
    outcome: AttemptOutcome,
    #[serde(default)]
    timing: Timing,
    #[serde(default)]
    cost_usd_micros: Option<u64>,
    #[serde(default)]
    error: Option<JobError>,
}

/// Decodes a record; `None` when there is none.
pub(crate) fn decode(id: JobId, fields: &HashMap<String, String>) -> Result<Option<Job>, Error> {
    if fields.is_empty() {
        return Ok(None);
    }
    Decoder { id, fields }.job().map(Some)
}

struct Decoder<'a> {
    id: JobId,
    fields: &'a HashMap<String, String>,
}

impl Decoder<'_> {
    fn job(&self) -> Result<Job, Error> {
        let state = self.required("state", |word| JobState::from_word(word).ok_or("no state"))?;
        Ok(Job {
            id: self.id,
            spec: self.required("spec", json)?,
            input: self.required("input", raw)?,
            state,
            attempts: self.attempts(state)?,
            result: if state == JobState::Succeeded { self.result()? } else { None },
            held: if state == JobState::Blocked { self.result()? } else { None },
            error: self.optional("error", json)?,
            progress: self.optional("progress", json)?,
            run_after_ms: self.optional("run_after", number)?,
            ended_ms: self.optional("ended", number)?,
            steps: self.optional("steps", json)?.unwrap_or_default(),
            revision: format!("{}#{}", self.text("fence").unwrap_or(""), self.text("settled").unwrap_or("0")),
        })
    }

    fn attempts(&self, state: JobState) -> Result<Vec<Attempt>, Error> {
        let mut attempts = Vec::new();
        for name in self.fields.keys().filter(|name| name.strip_prefix('h').is_some_and(|n| n.parse::<u32>().is_ok())) {
            let closed: ClosedAttempt = self.required(name, json)?;
            attempts.push(Attempt {
                attempt: closed.attempt,
                worker_id: closed.worker_id,
                fence: closed.fence,
                leased_ms: closed.leased_ms,
                ended_ms: Some(closed.ended_ms),
                outcome: closed.outcome,
                timing: Timing { queued_ms: closed.queued_ms, ..closed.timing },
                cost_usd_micros: closed.cost_usd_micros,
                error: closed.error,
            });
        }
        attempts.sort_by_key(|attempt| attempt.attempt);
        if state == JobState::Running {
            attempts.push(Attempt {
                attempt: self.required("attempt", number)?,
                worker_id: self.required("worker", |text| Ok::<_, Error>(text.to_owned()))?,
                fence: self.required("fence", |text| Ok::<_, Error>(Fence(text.to_owned())))?,
                leased_ms: self.required("leased", number)?,
                ended_ms: None,
                outcome: AttemptOutcome::Running,
                timing: Timing { queued_ms: self.required("queued", number)?, ..Timing::default() },
                cost_usd_micros: None,
                error: None,
            });
        }
        Ok(attempts)
    }

    fn result(&self) -> Result<Option<JobResult>, Error> {
        if let Some(result) = self.optional("inline", raw)? {
            return Ok(Some(JobResult::Inline(result)));
        }
        let Some(size_bytes) = self.optional("stored", number)? else { return Ok(None) };
        let spec: crate::job::JobSpec = self.required("spec", json)?;
        let (attempt, fence) = self.winner()?;
        let key = format!("{}{}", Job::attempt_prefix(&spec.tenant, self.id, attempt, &fence), crate::job::OUTPUT_NAME);
        Ok(Some(JobResult::Object { key, size_bytes }))
    }

    /// The attempt that gave the result. One that steps had to allow was fenced off since, so it is written down apart.
    fn winner(&self) -> Result<(u32, Fence), Error> {
        let apart = self.text("won").and_then(|won| won.split_once(' '));
        let (attempt, fence) = match apart {
            Some(won) => won,
            None => (self.text("attempt").unwrap_or(""), self.text("fence").unwrap_or("")),
        };
        Ok((
            number(attempt).map_err(|error: std::num::ParseIntError| self.corrupt("attempt", error))?,
            Fence(fence.to_owned()),
        ))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    fn required<T, E: std::fmt::Display>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Error> {
        self.optional(name, read)?.ok_or_else(|| self.corrupt(name, "missing"))
    }

    fn optional<T, E: std::fmt::Display>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Error> {
        self.fields.get(name).map(|text| read(text).map_err(|error| self.corrupt(name, error))).transpose()
    }

    fn corrupt(&self, name: &str, why: impl std::fmt::Display) -> Error {
        Error::Corrupt { key: format!("job {} field {name}", self.id), why: why.to_string() }
    }
}

fn json<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text)
}

fn raw(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    RawValue::from_string(text.to_owned())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, T::Err> {
    text.parse()
}
