//! `stream: true`: the outputs of a job as server-sent events, each as the engine sent it.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use serde::Deserialize;
use serde_json::value::RawValue;
use stokehold_queue::Queue;
use stokehold_queue::job::{Job, Stage};
use stokehold_queue::queue::{KeptOutputs, OutputsPosition};
use tokio::time::{Instant, timeout};

use super::answer::{self, JOB_ID};
use super::error::Error;
use super::job::{Open, STREAM_MAX, Wake, succeeded};
use super::route::Call;
use super::stream_usage;
use crate::jobs::events::OUTPUTS_PAGE;
use crate::server::json;

/// Time for which the head of the answer waits for the first chunk, so that an early error has a status of its own.
const EARLY: Duration = Duration::from_secs(2);

const DONE: &[u8] = b"data: [DONE]\n\n";

/// A part of the stream.
#[derive(Debug, PartialEq)]
enum Piece {
    Comment(Bytes),
    Chunks(Bytes),
}

/// Answers with the stream of a job.
pub(super) async fn answer(open: Open, chunks: Chunks) -> Result<Response, Error> {
    let id = open.id;
    let mut pieces = Box::pin(pieces(open, chunks));
    let (mut first, mut early) = (Vec::new(), None);
    let until_chunk = async {
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(Piece::Comment(text)) => first.push(text),
                other => {
                    early = Some(other);
                    return;
                }
            }
        }
    };
    // The stream itself goes on after the time is over.
    let _ = timeout(EARLY, until_chunk).await;
    match early {
        Some(Err(error)) => return Err(error),
        Some(Ok(Piece::Comment(bytes) | Piece::Chunks(bytes))) => first.push(bytes),
        None => {}
    }
    let rest = pieces.map(|piece| match piece {
        Ok(Piece::Comment(bytes) | Piece::Chunks(bytes)) => bytes,
        Err(error) => Bytes::from(format!("data: {}\n\n", error.json())),
    });
    let body = futures::stream::iter(first).chain(rest).map(Ok::<_, std::convert::Infallible>);
    let head = [
        (CONTENT_TYPE, "text/event-stream".to_owned()),
        (CACHE_CONTROL, "no-cache".to_owned()),
        (JOB_ID, id.to_string()),
    ];
    Ok((head, Body::from_stream(body)).into_response())
}

/// The stream of a job. It ends after its first error.
fn pieces(mut open: Open, form: Chunks) -> impl Stream<Item = Result<Piece, Error>> {
    async_stream::try_stream! {
        let (app, id, deadline) = (open.app.clone(), open.id, Instant::now() + STREAM_MAX);
        let mut follow = app.job_watchers.follow_outputs(id);
        let (mut sent, mut state) = (Sent::default(), None);
        loop {
            // The job is read before its outputs, which are then at least as new.
            let job = open.look(&mut follow).await?;
            // What a step after the job may withhold is not sent before the step's decision.
            let is_open = job.spec.steps.iter().all(|step| step.stage == Stage::Before);
            loop {
                let page = if is_open {
                    app.db.ask("read outputs", app.db.queue.read_outputs(id, sent.position, OUTPUTS_PAGE)).await?
                } else {
                    Vec::new()
                };
                let mut chunks = Vec::new();
                for kept in &page {
                    let new = sent.take(kept).map_err(|error| error.of(id))?;
                    new.iter().for_each(|value| form.write(value, &mut chunks));
                }
                if !chunks.is_empty() {
                    yield Piece::Chunks(chunks.into());
                }
                if page.len() < OUTPUTS_PAGE as usize {
                    break;
                }
            }
            if job.state.is_terminal() {
                succeeded(&job)?;
                sent.check(&job).map_err(|error| error.of(id))?;
                let mut last = Vec::new();
                if sent.is_none() {
                    // The outputs are gone, or were withheld: the result has all of them.
                    let result = answer::result(&app, &job, answer::RESULT_MAX).await?;
                    form.whole(&job, &result, &mut last)?;
                }
                if form.call != Call::Responses {
                    last.extend_from_slice(DONE);
                }
                yield Piece::Chunks(last.into());
                return;
            }
            sent.check(&job).map_err(|error| error.of(id))?;
            let word = job.state.as_str();
            if state.replace(word) != Some(word) && sent.is_none() {
                yield comment(word, None);
            }
            loop {
                // Relayed outputs are not read while a step may still withhold them.
                let reads = is_open.then_some(sent.position);
                match open.wait(&mut follow, &job, reads, deadline).await? {
                    Wake::Outputs(outputs) => {
                        let mut chunks = Vec::new();
                        let new = sent.take(&outputs).map_err(|error| error.of(id))?;
                        new.iter().for_each(|value| form.write(value, &mut chunks));
                        yield Piece::Chunks(chunks.into());
                    }
                    Wake::Changed => break,
                    Wake::Quiet(why) => {
                        yield comment(word, why.as_deref());
                        break;
                    }
                }
            }
        }
    }
}

/// A comment, which keeps proxies from closing the connection and which clients skip.
fn comment(state: &str, why: Option<&str>) -> Piece {
    let why = why.map_or_else(String::new, |why| format!(", {}", why.replace(['\r', '\n'], " ")));
    Piece::Comment(format!(": {state}{why}\n\n").into())
}

/// How outputs become chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunks {
    pub(super) call: Call,
    /// Whether the client gets no chunk of usage, see [`stream_usage`].
    pub(super) hides_usage: bool,
}

impl Chunks {
    /// Writes an output as an event. The Responses API names its events; an engine writes the same name into the data.
    fn write(self, value: &RawValue, chunks: &mut Vec<u8>) {
        #[derive(Deserialize)]
        struct Typed {
            r#type: String,
        }
        if self.hides_usage && stream_usage::is_usage(value) {
            return;
        }
        if self.call == Call::Responses
            && let Ok(Typed { r#type }) = serde_json::from_str(value.get())
            && !r#type.contains(['\r', '\n'])
        {
            chunks.extend_from_slice(format!("event: {}\n", r#type).as_bytes());
        }
        chunks.extend_from_slice(b"data: ");
        chunks.extend_from_slice(json::write_line(&value).as_bytes());
        chunks.extend_from_slice(b"\n\n");
    }

    /// Writes the outputs of a result, which is the list of them.
    fn whole(self, job: &Job, result: &[u8], chunks: &mut Vec<u8>) -> Result<(), Error> {
        let values: Vec<&RawValue> = serde_json::from_slice(result)
            .map_err(|_| Error::failed("the endpoint did not stream its answer; leave stream out").of(job.id))?;
        values.into_iter().for_each(|value| self.write(value, chunks));
        Ok(())
    }
}

/// The outputs that were sent.
#[derive(Debug, Default)]
struct Sent {
    position: OutputsPosition,
}

impl Sent {
    fn is_none(&self) -> bool {
        self.position.next == 0
    }

    /// The values that follow those that were sent.
    fn take<'a>(&mut self, kept: &'a KeptOutputs) -> Result<&'a [Box<RawValue>], Error> {
        let KeptOutputs { attempt, index, values, .. } = kept;
        if *attempt < self.position.attempt {
            return Ok(&[]);
        }
        if *attempt > self.position.attempt {
            self.begins(*attempt)?;
            self.position = OutputsPosition { attempt: *attempt, next: 0 };
        }
        let (next, end) = (self.position.next, index + values.len() as u64);
        if *index > next {
            return Err(Error::failed("parts of the stream were lost before they could be sent; repeat the request"));
        }
        self.position.next = next.max(end);
        let known = usize::try_from(next - index).unwrap_or(usize::MAX).min(values.len());
        Ok(&values[known..])
    }

    /// Checks that the job has not started again after parts of it were sent.
    fn check(&self, job: &Job) -> Result<(), Error> {
        job.attempts.last().map_or(Ok(()), |last| self.begins(last.attempt))
    }

    fn begins(&self, attempt: u32) -> Result<(), Error> {
        if self.is_none() || attempt <= self.position.attempt {
            return Ok(());
        }
        Err(Error::failed("the run failed after parts of it were sent, and started again; repeat the request"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(attempt: u32, index: u64, count: usize) -> KeptOutputs {
        let value = |n| RawValue::from_string(format!("{n}")).unwrap();
        let values = (index..).take(count).map(value).collect();
        KeptOutputs { attempt, index, values, at_ms: 0 }
    }

    fn taken(sent: &mut Sent, kept: &KeptOutputs) -> Option<String> {
        let values = sent.take(kept).ok()?;
        Some(values.iter().map(|value| value.get()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_output_is_sent_once_and_a_lost_one_is_an_error() {
        let mut sent = Sent::default();
        assert!(sent.is_none());
        let mut next = |kept: &KeptOutputs| taken(&mut sent, kept);
        assert_eq!(next(&kept(1, 0, 2)).as_deref(), Some("0 1"));
        assert_eq!(next(&kept(1, 1, 3)).as_deref(), Some("2 3"));
        assert_eq!(next(&kept(1, 0, 3)).as_deref(), Some(""));
        assert_eq!(next(&kept(1, 4, 0)).as_deref(), Some(""), "the end of the attempt");
        assert_eq!(next(&kept(1, 5, 0)), None, "the end shows that one is missing");
        assert_eq!(next(&kept(1, 7, 1)), None);
        assert_eq!(next(&kept(2, 0, 1)), None, "started again");
    }

    #[test]
    fn a_retry_before_the_first_output_is_not_seen() {
        let mut sent = Sent::default();
        assert_eq!(taken(&mut sent, &kept(1, 0, 0)).as_deref(), Some(""));
        assert_eq!(taken(&mut sent, &kept(2, 0, 1)).as_deref(), Some("0"));
        assert_eq!(taken(&mut sent, &kept(1, 0, 5)).as_deref(), Some(""), "late ones of the first attempt");
        assert_eq!(taken(&mut Sent::default(), &kept(1, 3, 1)), None);
    }

    #[test]
    fn chunks_are_what_the_engine_sent() {
        let form = |call| Chunks { call, hides_usage: false };
        let written = |form: Chunks, text: &str| {
            let mut chunks = Vec::new();
            form.write(&RawValue::from_string(text.to_owned()).unwrap(), &mut chunks);
            String::from_utf8(chunks).unwrap()
        };
        let chunk = r#"{"z": 1.50, "type": "a", "content": "\n"}"#;
        assert_eq!(written(form(Call::Chat), chunk), format!("data: {chunk}\n\n"));
        assert_eq!(written(form(Call::Responses), chunk), format!("event: a\ndata: {chunk}\n\n"));
        assert_eq!(written(form(Call::Chat), "[1,\n2]"), "data: [1, 2]\n\n");
        let usage = r#"{"choices": [], "usage": {"prompt_tokens": 1}}"#;
        assert_eq!(written(form(Call::Chat), usage), format!("data: {usage}\n\n"));
        let hides_usage = Chunks { hides_usage: true, ..form(Call::Chat) };
        assert_eq!((written(hides_usage, usage), written(hides_usage, "1")), (String::new(), "data: 1\n\n".to_owned()));
        let Piece::Comment(text) = comment("queued", Some("no\nmachine")) else { panic!() };
        assert_eq!(text, ": queued, no machine\n\n");
    }
}
