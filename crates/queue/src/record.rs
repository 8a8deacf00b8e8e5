//! Decodes the fields of a job's hash into [`Job`].

use std::collections::HashMap;

use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::Error;
use crate::id::{Fence, JobId};
use crate::job::{Attempt, AttemptOutcome, Job, JobError, JobResult, JobSpec, JobState, Timing, TokenUsage};
use crate::stored_spec;

/// The parts of an attempt that only some attempts have.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Rest {
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_size: Option<u32>,
    #[serde(rename = "sharers", skip_serializing_if = "Option::is_none")]
    sharers_milli: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd_micros: Option<u64>,
    #[serde(rename = "turn", skip_serializing_if = "Option::is_none")]
    turn_ms: Option<u64>,
    #[serde(rename = "inputs", skip_serializing_if = "Option::is_none")]
    inputs_ms: Option<u64>,
    /// Prompt, cached and completion tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<[u64; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JobError>,
}

impl Rest {
    fn is_empty(&self) -> bool {
        let Self { batch_size, sharers_milli, cost_usd_micros, turn_ms, inputs_ms, tokens, error } = self;
        let numbers = [*cost_usd_micros, *turn_ms, *inputs_ms];
        let is_plain = batch_size.is_none() && sharers_milli.is_none() && tokens.is_none() && error.is_none();
        is_plain && numbers.iter().all(Option::is_none)
    }
}

/// The last words of a closed attempt: its times in milliseconds, and as JSON the parts that only some attempts have.
pub(crate) fn attempt_tail(
    timing: &Timing,
    cost_usd_micros: Option<u64>,
    usage: Option<TokenUsage>,
    error: Option<&JobError>,
) -> Result<String, serde_json::Error> {
    let Timing { queued_ms: _, env_ms, weights_ms, boot_ms, load_ms, warmup_ms, run_ms, upload_ms, .. } = timing;
    let mut tail = format!("{env_ms},{boot_ms},{load_ms},{run_ms},{upload_ms}");
    // Only some attempts have these.
    if *warmup_ms > 0 || *weights_ms > 0 {
        tail.push_str(&format!(",{warmup_ms}"));
    }
    if *weights_ms > 0 {
        tail.push_str(&format!(",{weights_ms}"));
    }
    // These are in the JSON: as numbers in the text, they would make the record unreadable for a release without them.
    let [turn_ms, inputs_ms] = [timing.turn_ms, timing.inputs_ms].map(|ms| Some(ms).filter(|ms| *ms > 0));
    let batch_size = Some(timing.batch_size).filter(|size| *size > 0);
    // A run that has its process to itself reports no sharers.
    let sharers_milli = Some(timing.sharers_milli).filter(|sharers| *sharers > 1_000);
    let tokens = usage.map(|usage| usage.numbers());
    let rest = Rest { batch_size, sharers_milli, cost_usd_micros, turn_ms, inputs_ms, tokens, error: error.cloned() };
    if !rest.is_empty() {
        tail.push(' ');
        tail.push_str(&serde_json::to_string(&rest)?);
    }
    Ok(tail)
}

/// Decodes a closed attempt, as written by `closed_attempt` of the scripts: `<worker> <fence> <leased_ms> <queued_ms>
/// <took_ms> <outcome> [<tail>]`, where `=` means the record's fence.
fn closed_attempt(attempt: u32, text: &str, record_fence: Option<&str>) -> Option<Attempt> {
    let mut words = text.splitn(8, ' ');
    let mut next = || words.next();
    let (worker_id, fence) = (next()?.to_owned(), next()?);
    // An attempt without a fence has lost its lease in a power failure, see `WHOLE`.
    let fence = Fence(if fence == "=" { record_fence.unwrap_or("0") } else { fence }.to_owned());
    let (leased_ms, queued_ms): (u64, _) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let (took_ms, outcome): (u64, _) = (next()?.parse().ok()?, outcome(next()?)?);
    let times = next().filter(|times| !times.is_empty()).unwrap_or("0,0,0,0,0");
    let times: Vec<u64> = times.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
    let (&[env_ms, boot_ms, load_ms, run_ms, upload_ms], few) = times.split_first_chunk()?;
    let (warmup_ms, weights_ms) = match *few {
        [] => (0, 0),
        [warmup_ms] => (warmup_ms, 0),
        // A later release may append numbers, and words after the JSON.
        [warmup_ms, weights_ms, ..] => (warmup_ms, weights_ms),
    };
    let rest = match next() {
        Some(rest) => serde_json::Deserializer::from_str(rest).into_iter().next()?.ok()?,
        None => Rest::default(),
    };
    Some(Attempt {
        attempt,
        worker_id,
        fence,
        leased_ms,
        ended_ms: Some(leased_ms.saturating_add(took_ms)),
        outcome,
        timing: Timing {
            queued_ms,
            env_ms,
            weights_ms,
            boot_ms,
            load_ms,
            warmup_ms,
            turn_ms: rest.turn_ms.unwrap_or_default(),
            inputs_ms: rest.inputs_ms.unwrap_or_default(),
            run_ms,
            upload_ms,
            batch_size: rest.batch_size.unwrap_or_default(),
            sharers_milli: rest.sharers_milli.unwrap_or_default(),
        },
        cost_usd_micros: rest.cost_usd_micros,
        usage: rest.tokens.map(TokenUsage::from),
        error: rest.error,
    })
}

/// The run time of a closed attempt, milliseconds; `None` if it reported no times.
pub(crate) fn run_ms(closed: &str) -> Option<u64> {
    let times = closed.split(' ').nth(6).filter(|times| !times.is_empty())?;
    times.split(',').nth(3)?.parse().ok()
}

fn outcome(word: &str) -> Option<AttemptOutcome> {
    let word: StrDeserializer<'_, serde::de::value::Error> = word.into_deserializer();
    AttemptOutcome::deserialize(word).ok()
}

/// The fields that a submit writes. A power failure under `appendfsync everysec` can lose them and keep later ones: a
/// rewrite of the append-only file had started a new file before the end of the old one had reached the disk.
const WHOLE: [&str; 4] = ["state", "lane", "spec", "input"];

/// Decodes a record; `None` if there is none, or only the rest of a record whose submit was lost.
pub(crate) fn decode(id: JobId, fields: &HashMap<String, String>) -> Result<Option<Job>, Error> {
    if let (Some(was), None) = (fields.get(QUARANTINED), fields.get("state")) {
        return quarantined(id, was, fields);
    }
    if WHOLE.iter().any(|field| !fields.contains_key(*field)) {
        if !fields.is_empty() {
            tracing::warn!(job.id = %id, "a power failure lost part of this job's record");
        }
        return Ok(None);
    }
    Decoder { id, fields }.job().map(Some)
}

/// The value of `state` of a job in the quarantine (quarantine.rs).
const QUARANTINED: &str = "quarantined";

/// Decodes the readable parts of a job in the quarantine. Unless it had ended it is shown as blocked, because it stays
/// until an operator acts.
fn quarantined(id: JobId, was: &str, fields: &HashMap<String, String>) -> Result<Option<Job>, Error> {
    let state = JobState::from_word(was).filter(|state| state.is_terminal()).unwrap_or(JobState::Blocked);
    let mut fields = fields.clone();
    fields.insert("state".to_owned(), state.as_str().to_owned());
    if let Ok(job) = (Decoder { id, fields: &fields }).job() {
        return Ok(Some(job));
    }
    // Keep only the fields that every job has.
    fields.retain(|name, _| WHOLE.contains(&name.as_str()));
    decode(id, &fields)
}

/// Whether a record in the quarantine is readable once discard.lua has ended the job as failed.
pub(crate) fn is_readable_once_failed(id: JobId, mut fields: HashMap<String, String>) -> bool {
    for gone in [QUARANTINED, "run", "progress", "inline", "stored", "won", "steps", "error"] {
        fields.remove(gone);
    }
    fields.insert("state".to_owned(), JobState::Failed.as_str().to_owned());
    fields.insert("ended".to_owned(), "0".to_owned());
    matches!(decode(id, &fields), Ok(Some(_)))
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
            spec: self.spec()?,
            input: self.required("input", raw)?,
            state,
            attempts: self.attempts(state)?,
            result: if state == JobState::Succeeded { self.result()? } else { None },
            held: if state == JobState::Blocked { self.result()? } else { None },
            error: self.optional("error", json)?,
            progress: self.optional("progress", json)?,
            oom_events: self.optional("ooms", number)?.unwrap_or(0),
            run_after_ms: self.optional("run_after", number)?,
            ended_ms: self.optional("ended", number)?,
            steps: self.optional("steps", json)?.unwrap_or_default(),
            revision: format!("{}#{}", self.text("fence").unwrap_or(""), self.text("settled").unwrap_or("0")),
        })
    }

    fn spec(&self) -> Result<JobSpec, Error> {
        let lane = self.text("lane").ok_or_else(|| self.corrupt("lane", "missing"))?;
        self.required("spec", |text| stored_spec::decode(lane, text))
    }

    fn attempts(&self, state: JobState) -> Result<Vec<Attempt>, Error> {
        let mut attempts = Vec::new();
        for (name, text) in self.fields {
            let Some(number) = name.strip_prefix('h').and_then(|number| number.parse().ok()) else { continue };
            attempts.push(
                closed_attempt(number, text, self.text("fence")).ok_or_else(|| self.corrupt(name, "no attempt"))?,
            );
        }
        attempts.sort_by_key(|attempt| attempt.attempt);
        if state == JobState::Running {
            let corrupt = || self.corrupt("run", "no run");
            let mut words = self.text("run").ok_or_else(corrupt)?.split(' ');
            let mut next = || words.next().ok_or_else(corrupt);
            let (worker_id, leased, queued) = (next()?.to_owned(), next()?, next()?);
            attempts.push(Attempt {
                attempt: self.required("attempt", number)?,
                worker_id,
                fence: self.required("fence", |text| Ok::<_, Error>(Fence(text.to_owned())))?,
                leased_ms: leased.parse().map_err(|_| corrupt())?,
                ended_ms: None,
                outcome: AttemptOutcome::Running,
                timing: Timing { queued_ms: queued.parse().map_err(|_| corrupt())?, ..Timing::default() },
                cost_usd_micros: None,
                usage: None,
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
        let tenant = self.spec()?.tenant;
        let (attempt, fence) = self.winner()?;
        let key = format!("{}{}", Job::attempt_prefix(&tenant, self.id, attempt, &fence), crate::job::OUTPUT_NAME);
        Ok(Some(JobResult::Object { key, size_bytes }))
    }

    /// The attempt that produced the result. If steps had to allow it, the record's fence has changed since, so it is
    /// stored separately.
    fn winner(&self) -> Result<(u32, Fence), Error> {
        let apart = self.text("won").and_then(|won| {
            let mut words = won.split(' ');
            Some((words.next()?, words.next()?))
        });
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
