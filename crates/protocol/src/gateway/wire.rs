//! Flat structs through which tagged messages are parsed. Serde's own implementation buffers until the tag is known. It
//! cannot carry a [`RawValue`], and results must pass through unchanged.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{FinishOutcome, FinishReport, JobEventReport, JobMessage, LogStream};
use crate::id::{Fence, JobId};
use crate::job::{JobError, Timing, TokenUsage};

#[derive(Deserialize)]
pub(super) struct Report {
    job_id: JobId,
    fence: Fence,
    #[serde(default)]
    timing: Timing,
    outcome: Outcome,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    size_bytes: Option<u64>,
    error: Option<JobError>,
    usage: Option<TokenUsage>,
    vram_need_mib: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Succeeded,
    Stored,
    Failed,
}

impl TryFrom<Report> for FinishReport {
    type Error = &'static str;

    fn try_from(report: Report) -> Result<Self, Self::Error> {
        let outcome = match report.outcome {
            Outcome::Succeeded => FinishOutcome::Succeeded { result: report.result.ok_or("missing field `result`")? },
            Outcome::Stored => {
                FinishOutcome::Stored { size_bytes: report.size_bytes.ok_or("missing field `size_bytes`")? }
            }
            Outcome::Failed => FinishOutcome::Failed { error: report.error.ok_or("missing field `error`")? },
        };
        Ok(Self {
            job_id: report.job_id,
            fence: report.fence,
            timing: report.timing,
            cost_usd_micros: None,
            usage: report.usage,
            vram_need_mib: report.vram_need_mib,
            outgrown: None,
            card_kind: String::new(),
            machine: String::new(),
            outcome,
        })
    }
}

#[derive(Deserialize)]
pub(super) struct Message {
    event: Kind,
    fraction: Option<f64>,
    #[serde(default)]
    message: String,
    stream: Option<LogStream>,
    text: Option<String>,
    index: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Box<RawValue>>,
    values: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Progress,
    Log,
    Output,
    Outputs,
}

impl TryFrom<Message> for JobMessage {
    type Error = &'static str;

    fn try_from(message: Message) -> Result<Self, Self::Error> {
        Ok(match message.event {
            Kind::Progress => Self::Progress {
                fraction: message.fraction.ok_or("missing field `fraction`")?,
                message: message.message,
            },
            Kind::Log => Self::Log {
                stream: message.stream.ok_or("missing field `stream`")?,
                text: message.text.ok_or("missing field `text`")?,
            },
            Kind::Output => Self::Output {
                index: message.index.ok_or("missing field `index`")?,
                value: message.value.ok_or("missing field `value`")?,
            },
            Kind::Outputs => Self::Outputs {
                index: message.index.ok_or("missing field `index`")?,
                values: message.values.ok_or("missing field `values`")?,
            },
        })
    }
}

/// [`Message`] with its job, without `flatten`, which buffers as well.
#[derive(Deserialize)]
pub(super) struct Event {
    job_id: JobId,
    fence: Fence,
    event: Kind,
    fraction: Option<f64>,
    #[serde(default)]
    message: String,
    stream: Option<LogStream>,
    text: Option<String>,
    index: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Box<RawValue>>,
    values: Option<Vec<Box<RawValue>>>,
}

impl TryFrom<Event> for JobEventReport {
    type Error = &'static str;

    fn try_from(event: Event) -> Result<Self, Self::Error> {
        let Event { job_id, fence, event, fraction, message, stream, text, index, value, values } = event;
        let event = Message { event, fraction, message, stream, text, index, value, values }.try_into()?;
        Ok(Self { job_id, fence, event })
    }
}

/// Parses a present member. `null` is an ordinary value: only an absent member is `None`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}
