//! Handles what the runner sends: its reports, and the output of the process.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use stokehold_protocol::gateway::{JobMessage, LogStream};
use stokehold_wire::{Failure, Report, Stream};

use super::{Driver, Fatal};
use crate::mask::Mask;
use crate::runner::streams::Source;
use crate::runner::{RunEnd, StartError, strays};

/// Maximum size of an output that is sent as an event; larger ones appear only in the result.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

impl Driver {
    pub(super) fn take(&mut self, source: Source, bytes: &[u8]) -> Result<(), Fatal> {
        match source {
            Source::Wire => {
                self.last_message_at = tokio::time::Instant::now();
                self.decoder.push(bytes);
                while let Some((report, body)) =
                    self.decoder.next_frame().map_err(|error| Fatal::Broken(error.to_string()))?
                {
                    self.report(report, body)?;
                }
                Ok(())
            }
            // Output of C code and of a crashing interpreter belongs to all started runs.
            Source::Stdout | Source::Stderr => {
                let stream = if source == Source::Stdout { LogStream::Stdout } else { LogStream::Stderr };
                if self.runs.is_empty() {
                    self.take_stray_output(stream, bytes);
                }
                let mut begun = self.runs.values_mut().filter(|run| run.begun.at().is_some());
                begun.try_for_each(|run| run.log(stream, bytes))
            }
        }
    }

    fn report(&mut self, report: Report, body: Vec<u8>) -> Result<(), Fatal> {
        match report {
            Report::Ready { load_ms } => {
                if let Some(loaded) = self.loaded.take() {
                    if self.is_tidied {
                        self.spared = Arc::new(strays::of(self.process.pid, self.process.is_boxed));
                    }
                    let _ = loaded.send(Ok(Duration::from_millis(load_ms)));
                }
            }
            Report::Failed { error } => {
                if let Some(loaded) = self.loaded.take() {
                    self.stderr.push(&self.printed[LogStream::Stderr as usize].rest());
                    let _ = loaded.send(Err(StartError::Setup(masked(&self.mask, error), self.stderr.text())));
                }
            }
            Report::Heartbeat { .. } => {}
            Report::Capacity { runs } => {
                if let Some(turns) = &self.turns {
                    turns.limit(Some(runs));
                }
            }
            Report::Log { run, stream } => {
                let stream = match stream {
                    Stream::Stdout => LogStream::Stdout,
                    Stream::Stderr => LogStream::Stderr,
                };
                match self.runs.get_mut(&run) {
                    Some(running) => running.log(stream, &body)?,
                    None => self.take_stray_output(stream, &body),
                }
            }
            Report::Progress { run, fraction, message } => {
                let message = self.mask.text(message);
                self.publish(run, JobMessage::Progress { fraction, message });
            }
            Report::Output { run, index } => {
                if body.len() > OUTPUT_BYTES_MAX {
                    let text = format!(
                        "output {index} is larger than {OUTPUT_BYTES_MAX} bytes and appears only in the result\n"
                    );
                    self.publish(run, JobMessage::Log { stream: LogStream::Stderr, text });
                    if let Some(running) = self.runs.get(&run) {
                        running.messages.leave_out(index);
                    }
                } else {
                    let value = json(body).map_err(|why| Fatal::Broken(format!("an output is {why}")))?;
                    self.publish(run, JobMessage::Output { index, value });
                }
            }
            Report::Done { run, run_ms, files } => {
                if let Some(running) = self.ended(run) {
                    let _ = running.end.send(RunEnd::Done { result: body, files, run_ms });
                }
            }
            Report::Error { run, run_ms, error } => {
                if let Some(running) = self.ended(run) {
                    let stderr = running.stderr.text();
                    let failure = masked(&self.mask, error);
                    let _ = running.end.send(RunEnd::Failed { failure, run_ms, stderr });
                }
            }
            Report::Fatal { message } => return Err(Fatal::Broken(self.mask.text(message))),
        }
        Ok(())
    }

    /// Forwards output outside any run.
    fn take_stray_output(&mut self, stream: LogStream, bytes: &[u8]) {
        if stream == LogStream::Stdout && self.output_to.is_none() {
            return;
        }
        let text = self.printed[stream as usize].push(bytes);
        if stream == LogStream::Stderr {
            self.stderr.push(&text);
        }
        if let Some(output_to) = &self.output_to
            && !text.is_empty()
        {
            // The receiver may be gone.
            let _ = output_to.send(JobMessage::Log { stream, text: String::from_utf8_lossy(&text).into_owned() });
        }
    }

    fn publish(&mut self, run: u64, message: JobMessage) {
        if let Some(running) = self.runs.get_mut(&run) {
            running.publish(message);
        }
    }
}

/// Masks secrets in an exception of the handler.
fn masked(mask: &Mask, failure: Failure) -> Failure {
    let (message, traceback) = (mask.text(failure.message), mask.text(failure.traceback));
    Failure { message, traceback, ..failure }
}

fn json(body: Vec<u8>) -> Result<Box<RawValue>, &'static str> {
    let text = String::from_utf8(body).map_err(|_| "not UTF-8")?;
    RawValue::from_string(text).map_err(|_| "not JSON")
}
