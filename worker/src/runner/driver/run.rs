//! A run in the runner: its logs and messages, with secrets masked and within limits.

use std::sync::Arc;

use stokehold_protocol::gateway::{JobMessage, LogStream};
use tokio::sync::oneshot;

use super::Fatal;
use crate::mask::Masked;
use crate::messages::Messages;
use crate::runner::tail::Tail;
use crate::runner::{Begun, RunEnd};

/// Maximum size of a job's logs; a job that writes more is stopped.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Size of the logs that are forwarded; the rest is replaced by one line.
const LOG_BYTES_FORWARDED: u64 = 1024 * 1024;

/// A running run, or one that waits for its batched call.
pub(super) struct Running {
    pub(super) end: oneshot::Sender<RunEnd>,
    pub(super) messages: Arc<Messages>,
    pub(super) begun: Arc<Begun>,
    pub(super) log_bytes: u64,
    pub(super) cut: bool,
    /// Number of dropped messages.
    pub(super) dropped: u64,
    pub(super) stderr: Tail,
    /// Its masked output, by [`LogStream`].
    pub(super) printed: [Masked; 2],
}

impl Running {
    /// Forwards its output with secrets masked.
    pub(super) fn log(&mut self, stream: LogStream, bytes: &[u8]) -> Result<(), Fatal> {
        let bytes = self.printed[stream as usize].push(bytes);
        self.take(stream, &bytes)
    }

    /// Forwards output that was held back because it might have been the start of a secret.
    pub(super) fn ends(&mut self) {
        for stream in [LogStream::Stdout, LogStream::Stderr] {
            let rest = self.printed[stream as usize].rest();
            if !rest.is_empty() {
                // Exceeding the limit now has no effect: the run has ended.
                let _ = self.take(stream, &rest);
            }
        }
    }

    fn take(&mut self, stream: LogStream, bytes: &[u8]) -> Result<(), Fatal> {
        if bytes.is_empty() {
            return Ok(());
        }
        if stream == LogStream::Stderr {
            self.stderr.push(bytes);
        }
        self.log_bytes += bytes.len() as u64;
        if self.log_bytes > LOG_BYTES_MAX {
            return Err(Fatal::Flooded(LOG_BYTES_MAX));
        }
        let text = if self.log_bytes <= LOG_BYTES_FORWARDED {
            String::from_utf8_lossy(bytes).into_owned()
        } else if self.cut {
            return Ok(());
        } else {
            self.cut = true;
            format!("(more than {LOG_BYTES_FORWARDED} bytes of logs: the rest is dropped)\n")
        };
        self.publish(JobMessage::Log { stream, text });
        Ok(())
    }

    /// Sends a message. A slow gateway may cause dropped messages, which a line reports, but never delays the run.
    pub(super) fn publish(&mut self, message: JobMessage) {
        if self.dropped > 0 {
            let text = format!(
                "({} messages of the job were dropped here: they arrived faster than they could be sent)\n",
                self.dropped
            );
            if self.messages.take(JobMessage::Log { stream: LogStream::Stderr, text }) {
                self.dropped = 0;
            }
        }
        if !self.messages.take(message) {
            self.dropped += 1;
        }
    }
}
