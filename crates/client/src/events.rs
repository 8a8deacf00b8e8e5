//! A job's event stream.

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::Deserialize;
use serde_json::Value;

use crate::models::{JobError, JobState, Progress};
use crate::{Client, segment};

/// Maximum size of an event: far above the largest valid one, a `done` with the whole input of the job.
const EVENT_BYTES_MAX: usize = 32 << 20;

/// One event.
#[derive(Debug, PartialEq)]
pub struct Event {
    /// `state`, `progress`, `log`, `output`, `gap` or `done`.
    pub kind: String,
    /// Id for `Last-Event-ID`; an event without an id keeps the previous one.
    pub id: String,
    /// The event's JSON.
    pub data: Value,
}

/// The data of an event, by its kind.
#[derive(Debug, PartialEq)]
pub enum EventData {
    /// The job has changed its state.
    State(StateEvent),
    /// The handler reports progress.
    Progress(Progress),
    /// The handler has written a line.
    Log(LogEvent),
    /// The handler has yielded a value.
    Output(Value),
    /// Outputs were skipped; the result contains them.
    Gap(GapEvent),
    /// The job has ended.
    Done(DoneEvent),
    /// A kind that this release does not know.
    Other,
}

/// The data of a `state` event.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StateEvent {
    /// The new state.
    pub state: JobState,
    /// The attempt that runs, from 1.
    pub attempt: Option<u32>,
}

/// The data of a `log` event.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LogEvent {
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The line.
    pub text: String,
}

/// The data of a `gap` event.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GapEvent {
    /// Number of the first output that was skipped.
    pub from: u64,
    /// Number of the first output after the gap.
    pub to: u64,
}

/// The data of a `done` event: the members of the job that describe its outcome.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DoneEvent {
    /// The final state.
    pub state: JobState,
    /// Why the job failed.
    pub error: Option<JobError>,
}

impl Event {
    /// Decodes the data.
    pub fn decode(&self) -> Result<EventData> {
        let data = &self.data;
        let decoded = match self.kind.as_str() {
            "state" => StateEvent::deserialize(data).map(EventData::State),
            "progress" => Progress::deserialize(data).map(EventData::Progress),
            "log" => LogEvent::deserialize(data).map(EventData::Log),
            "output" => return Ok(EventData::Output(data["value"].clone())),
            "gap" => GapEvent::deserialize(data).map(EventData::Gap),
            "done" => DoneEvent::deserialize(data).map(EventData::Done),
            _ => return Ok(EventData::Other),
        };
        decoded.with_context(|| format!("a {:?} event of the API is not valid", self.kind))
    }
}

/// An open stream.
pub struct Events {
    body: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    parser: Parser,
}

impl Events {
    /// Opens the event stream of a job after the event `last_id` (empty: from the start).
    pub async fn open(client: &Client, job: &str, last_id: &str) -> Result<Self> {
        let after = [("last-event-id", last_id)];
        let headers = if last_id.is_empty() { &[] } else { &after[..] };
        let answer = client.stream(&format!("/v1/jobs/{}/events", segment(job)), headers).await?;
        Ok(Self { body: answer.bytes_stream().boxed(), parser: Parser { id: last_id.to_owned(), ..Parser::default() } })
    }

    /// Returns the next event, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.parser.event()? {
                return Ok(Some(event));
            }
            match self.body.next().await {
                Some(piece) => {
                    self.parser.feed(&piece.context("the connection closed in the middle of the event stream")?)?
                }
                None => return Ok(None),
            }
        }
    }
}

/// A parser for server-sent events with one `data` line each.
#[derive(Default)]
struct Parser {
    buffer: Vec<u8>,
    kind: String,
    data: String,
    id: String,
}

impl Parser {
    fn feed(&mut self, piece: &[u8]) -> Result<()> {
        ensure!(self.buffer.len() + piece.len() <= EVENT_BYTES_MAX, "an event is larger than {EVENT_BYTES_MAX} bytes");
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    fn event(&mut self) -> Result<Option<Event>> {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                let (kind, data) = (std::mem::take(&mut self.kind), std::mem::take(&mut self.data));
                if data.is_empty() {
                    continue;
                }
                let data = serde_json::from_str(&data).context("an event is not valid JSON")?;
                return Ok(Some(Event { kind, id: self.id.clone(), data }));
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut self.kind),
                "data" => value.clone_into(&mut self.data),
                "id" => value.clone_into(&mut self.id),
                _ => (),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_data_of_an_event_is_decoded_by_its_kind() {
        let event = |kind: &str, data: Value| Event { kind: kind.to_owned(), id: String::new(), data };
        let log = event("log", json!({"stream": "stderr", "text": "hi"})).decode().unwrap();
        assert_eq!(log, EventData::Log(LogEvent { stream: "stderr".to_owned(), text: "hi".to_owned() }));
        let state = event("state", json!({"state": "running", "worker_id": "w_1"})).decode().unwrap();
        assert_eq!(state, EventData::State(StateEvent { state: JobState::Running, attempt: None }));
        assert_eq!(event("new", json!({})).decode().unwrap(), EventData::Other);
        assert!(event("gap", json!({"from": "the start"})).decode().is_err());
    }

    #[test]
    fn events_come_out_however_they_were_cut() {
        let stream = ": hello\n\nevent: state\ndata: {\"state\":\"queued\"}\n\nid: 7\r\nevent:log\r\ndata: {\"text\":\"é\"}\r\n\r\n";
        for size in 1..stream.len() {
            let (mut parser, mut events) = (Parser::default(), Vec::new());
            for piece in stream.as_bytes().chunks(size) {
                parser.feed(piece).unwrap();
                while let Some(event) = parser.event().unwrap() {
                    events.push((event.kind, event.id, event.data.to_string()));
                }
            }
            let expected = [("state", "", r#"{"state":"queued"}"#), ("log", "7", r#"{"text":"é"}"#)];
            assert_eq!(events, expected.map(|(kind, id, data)| (kind.into(), id.into(), data.into())), "{size}");
        }
    }
}
