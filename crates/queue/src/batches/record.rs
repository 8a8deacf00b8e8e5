//! Decodes hash fields into [`Batch`] and [`EndedLine`].

use std::collections::HashMap;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Batch, BatchState, EndedLine, FeedPosition, StopReason};
use crate::error::Error;
use crate::id::{Fence, JobId};
use crate::job::{Job, JobResult, JobState, OUTPUT_NAME, TokenUsage};
use crate::record::run_ms;
use crate::stored_spec;

/// The stored reason of a batch that was stopped by its budget.
pub(super) const BUDGET: &str = "budget";

/// Decodes a batch; `None` when there is none.
pub(super) fn decode(id: &str, fields: &HashMap<String, String>) -> Result<Option<Batch>, Error> {
    if !fields.contains_key("spec") {
        return Ok(None);
    }
    let fields = Fields { id, fields };
    let state = fields.text("state").unwrap_or_default();
    Ok(Some(Batch {
        id: id.to_owned(),
        spec: fields.json("spec")?.ok_or_else(|| fields.corrupt("spec", "missing"))?,
        state: BatchState::from_word(state).ok_or_else(|| fields.corrupt("state", state))?,
        total: fields.number("total")?.unwrap_or(0),
        invalid: fields.number("invalid")?.unwrap_or(0),
        fed: fields.number("fed")?.unwrap_or(0),
        handed: fields.number("handed")?,
        collected: fields.number("collected")?.unwrap_or(0),
        collected_ms: fields.number("collected_at")?,
        succeeded: fields.number("succeeded")?.unwrap_or(0),
        failed: fields.number("failed")?.unwrap_or(0),
        cancelled: fields.number("cancelled")?.unwrap_or(0),
        expired: fields.number("expired")?.unwrap_or(0),
        running: fields.number("running")?.unwrap_or(0),
        stop: match fields.text("stop") {
            Some("cancelled") => Some(StopReason::Cancelled),
            Some("expired") => Some(StopReason::Expired),
            None => None,
            Some(other) => return Err(fields.corrupt("stop", other)),
        },
        is_over_budget: fields.text("stop_reason") == Some(BUDGET),
        drains: fields.text("drains").is_some(),
        spent_usd_micros: fields.number("spent")?.unwrap_or(0),
        usage: TokenUsage {
            prompt_tokens: fields.number("prompt_tokens")?.unwrap_or(0),
            cached_tokens: fields.number("cached_tokens")?.unwrap_or(0),
            completion_tokens: fields.number("completion_tokens")?.unwrap_or(0),
        },
        forecast: fields.json("forecast")?,
        input: fields.text("input").map(str::to_owned),
        skip: fields.text("skip").filter(|key| !key.is_empty()).map(str::to_owned),
        versions: fields.json("versions")?.unwrap_or_default(),
        errors: fields.json("errors")?.unwrap_or_default(),
        started_ms: fields.number("started")?,
        ended_ms: fields.number("ended")?,
        place: place(fields.text("place").unwrap_or_default()).unwrap_or_default(),
        samples: fields.text("samples").unwrap_or_default().split(' ').filter_map(sample).collect(),
        tidied: fields.text("tidied").is_some(),
    }))
}

fn place(text: &str) -> Option<FeedPosition> {
    let mut parts = text.split(' ').map(str::parse);
    let mut next = || parts.next()?.ok();
    Some(FeedPosition { jobs: next()?, lines: next()?, bytes: next()? })
}

fn sample(text: &str) -> Option<(u64, u64)> {
    let (ms, ended) = text.split_once(':')?;
    Some((ms.parse().ok()?, ended.parse().ok()?))
}

struct Fields<'a> {
    id: &'a str,
    fields: &'a HashMap<String, String>,
}

impl Fields<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    fn number<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>, Error> {
        self.text(name).map(|text| text.parse().map_err(|error| self.corrupt(name, error))).transpose()
    }

    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        self.text(name).map(|text| serde_json::from_str(text).map_err(|error| self.corrupt(name, error))).transpose()
    }

    fn corrupt(&self, name: &str, why: impl std::fmt::Display) -> Error {
        Error::Corrupt { key: format!("batch {} field {name}", self.id), why: why.to_string() }
    }
}

/// The fields of a job that [`ended_line`] needs, in this order.
pub(super) const LINE_FIELDS: [&str; 9] =
    ["state", "lane", "spec", "inline", "stored", "error", "attempt", "fence", FIRST_ATTEMPT];

/// The field of the first attempt. Most lines have one attempt, so it is read with the other fields; later attempts are
/// read separately.
const FIRST_ATTEMPT: &str = "h1";

/// The field of the last attempt, if [`LINE_FIELDS`] does not contain it.
pub(super) fn later_attempt(row: &[Option<String>]) -> Option<String> {
    let number: u32 = row.get(6)?.as_deref()?.parse().ok()?;
    (number > 1).then(|| format!("h{number}"))
}

/// Decodes an ended job; `None` if the record is deleted or does not belong to a batch. `later` is the content of the
/// field that [`later_attempt`] names.
pub(super) fn ended_line(
    id: JobId,
    row: Vec<Option<String>>,
    later: Option<String>,
) -> Result<Option<EndedLine>, Error> {
    let corrupt = |why: String| Error::Corrupt { key: format!("job {id}"), why };
    let mut row = row.into_iter();
    let mut next = || row.next().flatten();
    let (Some(state), Some(lane), Some(spec)) = (next(), next(), next()) else {
        return Ok(None);
    };
    let state = JobState::from_word(&state).ok_or_else(|| corrupt(state))?;
    let spec = stored_spec::decode(&lane, &spec).map_err(corrupt)?;
    let (inline, stored, error, attempt, fence, first) = (next(), next(), next(), next(), next(), next());
    let run_ms = later.or(first).as_deref().and_then(run_ms);
    let result = match (inline, stored) {
        (Some(inline), _) => {
            Some(JobResult::Inline(RawValue::from_string(inline).map_err(|error| corrupt(error.to_string()))?))
        }
        (None, Some(size)) => {
            let attempt = attempt.and_then(|text| text.parse().ok()).unwrap_or(0);
            let prefix = Job::attempt_prefix(&spec.tenant, id, attempt, &Fence(fence.unwrap_or_default()));
            let size_bytes = size.parse().map_err(|_| corrupt(size))?;
            Some(JobResult::Object { key: format!("{prefix}{OUTPUT_NAME}"), size_bytes })
        }
        (None, None) => None,
    };
    let error = match error.filter(|_| state != JobState::Succeeded) {
        Some(error) => Some(serde_json::from_str(&error).map_err(|error| corrupt(error.to_string()))?),
        None => None,
    };
    Ok(spec.batch.map(|line| EndedLine { id, state, line, result, error, run_ms }))
}
