//! Ends the process of a runner, and with it all of its runs.

use std::time::Duration;

use stokehold_protocol::gateway::LogStream;

use super::{Driver, Fatal};
use crate::runner::{RunEnd, STOP_GRACE, StartError, process};

/// Timeout of remaining output of an exited process: a grandchild may keep the pipes open forever.
const FINAL_READ_MAX: Duration = Duration::from_secs(1);

impl Driver {
    /// Ends the process if necessary, reads its remaining output, and ends all of its runs accordingly.
    pub(super) async fn end_runner(mut self, fatal: Option<Fatal>) {
        if fatal.is_some() {
            self.kill();
        }
        let by = tokio::time::Instant::now() + STOP_GRACE;
        let status = match tokio::time::timeout_at(by, self.process.child.wait()).await {
            Ok(status) => status,
            // It closed its socket but keeps running: kill it.
            Err(_) => {
                self.kill();
                self.process.child.wait().await
            }
        };
        let read_until = tokio::time::Instant::now() + FINAL_READ_MAX;
        while let Ok(Some(chunk)) = tokio::time::timeout_at(read_until, self.streams.next()).await {
            if let ((source, Some(bytes)), None) = (chunk, &fatal)
                && self.take(source, &bytes).is_err()
            {
                break;
            }
        }
        // Kill the processes that it started.
        process::kill_group(self.process.pid);
        // Release its memory before the ends are sent, so that their receivers can use it.
        self.reservation = None;
        let is_boxed = self.process.is_boxed;
        let ending = status.map_or_else(|error| Err(error.to_string()), |status| process::ending(status, is_boxed));
        let is_stopped = fatal.is_none() && self.is_killed && self.stopping.is_some();
        let is_oom = !self.is_killed && process::oom_kills() > self.oom_kills;
        let end = |stderr: String| match (&fatal, &ending) {
            (Some(Fatal::Broken(why)), _) => RunEnd::Broken { why: why.clone(), stderr },
            (Some(Fatal::Flooded(limit)), _) => RunEnd::Flooded { limit_bytes: *limit, stderr },
            (Some(Fatal::Overfull(limit)), _) => RunEnd::Overfull { limit_bytes: *limit, stderr },
            (None, Ok(code)) => RunEnd::Exited { code: *code, stderr },
            _ if is_stopped => RunEnd::Stopped,
            (None, Err(signal)) if signal == "SIGKILL" && is_oom => RunEnd::OutOfMemory { stderr },
            (None, Err(signal)) => RunEnd::Crashed { signal: signal.clone(), stderr },
        };
        self.stderr.push(&self.printed[LogStream::Stderr as usize].rest());
        for mut running in std::mem::take(&mut self.runs).into_values() {
            running.ends();
            let has_begun = running.begun.at().is_some();
            let _ = running.end.send(if has_begun { end(running.stderr.text()) } else { RunEnd::NotBegun });
        }
        if let Some(loaded) = self.loaded.take() {
            let _ = loaded.send(Err(StartError::Ended(end(self.stderr.text()))));
        }
        for stopped in self.stopping.into_iter().flat_map(|(_, waiting)| waiting) {
            let _ = stopped.send(());
        }
        // Dropping the inbox closes the receivers of runs that arrived too late.
    }
}
