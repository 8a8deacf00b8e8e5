//! Results of a batch's lines: how they are written, and how they are read at any time.

use std::collections::HashSet;

use async_stream::try_stream;
use bytes::Bytes;
use futures::Stream;
use serde::Serialize;
use serde_json::value::RawValue;
use stokehold_queue::batches::{Batch, EndedLine, StopReason};
use stokehold_queue::job::{JobResult, JobState};
use stokehold_queue::{Error as QueueError, JobId, Queue};

use super::Error;
use crate::database::Database;
use crate::history::Jobs;
use crate::server::json;
use crate::state::App;

/// Error code of lines that were cancelled because their batch's budget was reached.
pub(crate) const BUDGET_REACHED: &str = "budget_reached";

/// Bytes that are read from S3 at a time.
pub(super) const PIECE: u64 = 1 << 20;

/// Ended jobs that are read from the queue at a time.
const TAIL: usize = 200;

/// The two files of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The lines that succeeded.
    Output,
    /// All other lines.
    Errors,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Output, Self::Errors];

    /// The name of the file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Errors => "errors",
        }
    }

    /// Name of a part, below the batch's prefix.
    pub(super) fn part(self, collected: u64, nonce: &str) -> String {
        format!("parts/{collected:010}-{nonce}-{}.jsonl", self.word())
    }

    pub(super) fn has(self, part: &str) -> bool {
        part.strip_suffix(".jsonl").is_some_and(|name| name.ends_with(self.word()))
    }
}

/// Key of a file once the batch has ended.
pub(crate) fn whole_key(batch: &Batch, kind: Kind) -> String {
    format!("{}{}.jsonl", batch.prefix(), kind.word())
}

/// A line of the results.
#[derive(Serialize)]
struct ResultLine<'a> {
    line: u64,
    custom_id: Option<&'a str>,
    job_id: JobId,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_url: Option<String>,
    run_ms: Option<u64>,
}

/// A line of the errors.
#[derive(Serialize)]
pub(crate) struct ErrorLine<'a> {
    line: u64,
    custom_id: Option<&'a str>,
    job_id: Option<JobId>,
    state: &'a str,
    error: LineError<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_ms: Option<u64>,
}

/// The error of a line.
#[derive(Serialize)]
struct LineError<'a> {
    code: &'a str,
    message: &'a str,
}

impl<'a> ErrorLine<'a> {
    /// The error of an invalid line.
    pub(crate) fn invalid(line: u64, custom_id: Option<&'a str>, message: &'a str) -> Self {
        Self {
            line,
            custom_id,
            job_id: None,
            state: "invalid",
            error: LineError { code: "invalid_line", message },
            run_ms: None,
        }
    }

    /// The error of a line that was stopped before it became a job.
    pub(super) fn unfed(line: u64, custom_id: Option<&'a str>, batch: &Batch) -> Self {
        let state = batch.stop.unwrap_or(StopReason::Cancelled).state();
        let error = match state {
            _ if batch.is_over_budget => {
                LineError { code: BUDGET_REACHED, message: "the batch reached its budget before this line started" }
            }
            JobState::Expired => {
                LineError { code: state.as_str(), message: "the batch's deadline passed before this line started" }
            }
            _ => LineError { code: state.as_str(), message: "the batch ended before this line started" },
        };
        Self { line, custom_id, job_id: None, state: state.as_str(), error, run_ms: None }
    }

    pub(crate) fn text(&self) -> Vec<u8> {
        jsonl(self)
    }
}

fn jsonl(line: &impl Serialize) -> Vec<u8> {
    let mut text = json::write_line(line).into_bytes();
    text.push(b'\n');
    text
}

/// Formats one ended job for its file. A job that was cancelled in a batch whose budget is reached was cancelled for
/// that reason.
pub(super) fn written(ended: &EndedLine, is_over_budget: bool, public_url: &str) -> (Kind, Vec<u8>) {
    let (line, custom_id) = (ended.line.line, ended.line.custom_id.as_deref());
    if ended.state == JobState::Succeeded {
        let (result, result_url) = match &ended.result {
            Some(JobResult::Inline(result)) => (Some(&**result), None),
            Some(JobResult::Object { .. }) | None => (None, Some(format!("{public_url}/v1/jobs/{}/result", ended.id))),
        };
        return (
            Kind::Output,
            jsonl(&ResultLine { line, custom_id, job_id: ended.id, result, result_url, run_ms: ended.run_ms }),
        );
    }
    let state = ended.state.as_str();
    let code = ended.error.as_ref().and_then(|error| serde_json::to_value(error.code).ok());
    let error = match (&ended.error, code.as_ref().and_then(|code| code.as_str())) {
        (Some(error), Some(code)) => LineError { code, message: &error.message },
        _ if ended.state == JobState::Cancelled && is_over_budget => {
            LineError { code: BUDGET_REACHED, message: "the batch reached its budget before this job ended" }
        }
        _ if ended.state == JobState::Cancelled => LineError { code: state, message: "the job was cancelled" },
        _ => LineError { code: state, message: "the job ended without a reason" },
    };
    (Kind::Errors, jsonl(&ErrorLine { line, custom_id, job_id: Some(ended.id), state, error, run_ms: ended.run_ms }))
}

/// Outcomes of these jobs, wherever their records are now.
pub(super) async fn ended_lines(
    db: &Database,
    jobs: &Jobs,
    tenant: &str,
    ids: &[JobId],
) -> Result<Vec<EndedLine>, Error> {
    let mut lines = db.home(tenant).await?.batches().ended_lines(ids).await?;
    if lines.len() < ids.len() {
        let here: HashSet<JobId> = lines.iter().map(|line| line.id).collect();
        for id in ids.iter().filter(|id| !here.contains(id)) {
            let job = match db.queue.get(*id).await {
                // The queue has logged the unreadable record and omits it from its own list.
                Err(QueueError::Corrupt { .. }) => continue,
                Ok(Some(job)) => Some(job),
                Ok(None) => jobs.find(tenant, *id).await?,
                Err(error) => return Err(error.into()),
            };
            let found = job.and_then(|job| {
                let run_ms = job.attempts.last().and_then(|attempt| attempt.ended_ms.and(Some(attempt.timing.run_ms)));
                let line = job.spec.batch?;
                Some(EndedLine { id: job.id, state: job.state, line, result: job.result, error: job.error, run_ms })
            });
            lines.push(
                found.ok_or_else(|| Error::Broken(format!("job {id} is neither in the queue nor in the archive")))?,
            );
        }
    }
    Ok(lines)
}

/// Streams a file of a batch in its current state: each line that has ended by now, once.
pub(crate) fn stream(app: App, batch: Batch, kind: Kind) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    try_stream! {
        let batches = app.db.home(&batch.spec.tenant).await?.batches();
        if batch.state.is_terminal() {
            let key = whole_key(&batch, kind);
            for await piece in pieces(app.clone(), key) {
                yield piece?;
            }
            return;
        }
        let mut next = 0;
        loop {
            let (parts, tail) = batches.parts(&batch.id, next).await?;
            if parts.is_empty() {
                let now = batches.get(&batch.id).await?;
                // The list of parts is deleted an hour after the batch's end: then the sent part may be incomplete.
                if now.as_ref().is_none_or(|now| now.tidied) {
                    Err(Error::Missing { key: batch.prefix() })?;
                }
                let is_over_budget = now.is_some_and(|now| now.is_over_budget);
                for ids in tail.chunks(TAIL) {
                    let mut text = Vec::new();
                    for ended in ended_lines(&app.db, &app.jobs, &batch.spec.tenant, ids).await? {
                        let (of, line) = written(&ended, is_over_budget, &app.config.public_url);
                        if of == kind {
                            text.extend_from_slice(&line);
                        }
                    }
                    if !text.is_empty() {
                        yield Bytes::from(text);
                    }
                }
                return;
            }
            next += parts.len();
            for part in parts.iter().filter(|part| kind.has(part)) {
                let key = format!("{}{part}", batch.prefix());
                for await piece in pieces(app.clone(), key) {
                    yield piece?;
                }
            }
        }
    }
}

/// Streams an object, piece by piece.
pub(super) fn pieces(app: App, key: String) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    try_stream! {
        let mut at = 0;
        loop {
            let piece = app.objects.get_range(&key, at, PIECE).await?;
            let piece = piece.ok_or_else(|| Error::Missing { key: key.clone() })?;
            let length = piece.len() as u64;
            at += length;
            if length > 0 {
                yield piece;
            }
            if length < PIECE {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stokehold_queue::job::{BatchLine, ErrorCode, JobError};

    use super::*;

    fn ended(state: JobState, result: Option<JobResult>, error: Option<JobError>) -> EndedLine {
        let id = JobId::of_line("batch_a", 1_795_240_200_123, 7, 0);
        let line = BatchLine { id: "batch_a".to_owned(), line: 7, custom_id: Some("x".to_owned()) };
        EndedLine { id, state, line, result, error, run_ms: Some(40) }
    }

    #[test]
    fn a_line_is_written_where_and_as_it_ended() {
        let (id, url) = (JobId::of_line("batch_a", 1_795_240_200_123, 7, 0), "http://api.test");
        let text = |(kind, text): (Kind, Vec<u8>)| (kind, String::from_utf8(text).unwrap());
        let inline = JobResult::Inline(RawValue::from_string(r#"{"b":1, "a":2.50}"#.to_owned()).unwrap());
        assert_eq!(
            text(written(&ended(JobState::Succeeded, Some(inline), None), false, url)),
            (
                Kind::Output,
                format!(r#"{{"line":7,"custom_id":"x","job_id":"{id}","result":{{"b":1, "a":2.50}},"run_ms":40}}"#)
                    + "\n"
            )
        );
        let object = JobResult::Object { key: "k".to_owned(), size_bytes: 1 };
        let (_, large) = text(written(&ended(JobState::Succeeded, Some(object), None), false, url));
        assert!(large.contains(&format!(r#""result_url":"http://api.test/v1/jobs/{id}/result""#)), "{large}");
        let error = JobError {
            code: ErrorCode::Timeout,
            class: String::new(),
            message: "too slow".to_owned(),
            traceback: Some("kept out".to_owned()),
            stderr: None,
        };
        assert_eq!(
            text(written(&ended(JobState::Failed, None, Some(error)), false, url)),
            (
                Kind::Errors,
                format!(
                    r#"{{"line":7,"custom_id":"x","job_id":"{id}","state":"failed","error":{{"code":"timeout","message":"too slow"}},"run_ms":40}}"#
                ) + "\n"
            )
        );
        let (kind, cancelled) = text(written(&ended(JobState::Cancelled, None, None), false, url));
        assert!(kind == Kind::Errors && cancelled.contains(r#""state":"cancelled","error":{"code":"cancelled""#));
        let (kind, stopped) = text(written(&ended(JobState::Cancelled, None, None), true, url));
        assert!(kind == Kind::Errors && stopped.contains(r#""state":"cancelled","error":{"code":"budget_reached""#));
    }

    #[test]
    fn parts_tell_which_file_they_are_of() {
        let part = Kind::Output.part(1_000, "ab");
        assert_eq!(part, "parts/0000001000-ab-output.jsonl");
        assert!(Kind::Output.has(&part) && !Kind::Errors.has(&part));
        assert!(Kind::Errors.has("parts/invalid-ab-errors.jsonl"));
    }
}
