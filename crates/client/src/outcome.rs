//! Outcomes of jobs and batches.

use std::fmt;

use anyhow::Result;

use crate::models::{BatchCounts, BatchState, Job, JobError, JobState};

/// A job that ended without a result, or has not ended.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JobFailed(String);

impl JobState {
    /// Whether the job has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired)
    }
}

impl BatchState {
    /// Whether the batch has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Expired)
    }
}

impl BatchCounts {
    /// Lines that have ended in any state.
    #[must_use]
    pub fn done(self) -> u64 {
        self.accepted.saturating_sub(self.open)
    }

    /// Accepted lines that ended without a result.
    #[must_use]
    pub fn bad(self) -> u64 {
        self.failed + self.cancelled + self.expired
    }
}

impl Job {
    /// Endpoint with version, `NAME@VERSION`.
    #[must_use]
    pub fn endpoint_version(&self) -> String {
        format!("{}@{}", self.endpoint, self.version)
    }

    /// Returns an error with the outcome unless the job succeeded.
    pub fn succeeded(&self) -> Result<()> {
        match (&self.state, &self.error) {
            (JobState::Succeeded, _) => Ok(()),
            (state, Some(error)) => {
                let attempts = match self.attempts.len() {
                    1 => "1 attempt".to_owned(),
                    attempts => format!("{attempts} attempts"),
                };
                Err(JobFailed(format!("job {} {state} after {attempts}: {error}", self.id)).into())
            }
            (state, None) => Err(JobFailed(format!("job {} is {state}", self.id)).into()),
        }
    }
}

impl JobError {
    /// The first line of the error, for tables.
    #[must_use]
    pub fn in_short(&self) -> String {
        let parts = [Some(self.class.as_str()), self.message.lines().next()];
        parts
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .fold(self.code.to_string(), |text, part| format!("{text}: {part}"))
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = |text: &str| Some(text.trim_end().to_owned()).filter(|text| !text.is_empty());
        write!(f, "{}", self.code)?;
        for part in [given(&self.class), given(&self.message)].into_iter().flatten() {
            write!(f, ": {part}")?;
        }
        if let Some(traceback) = self.traceback.as_deref().and_then(given) {
            write!(f, "\n{traceback}")?;
        }
        if let Some(stderr) = self.stderr.as_deref().and_then(given) {
            write!(f, "\nlast lines on stderr:\n{stderr}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    #[test]
    fn a_failed_job_is_an_error_with_its_cause() {
        let job = serde_json::json!({"id": "1", "endpoint": "e", "state": "failed",
            "error": {"code": "handler_error", "class": "LookupError", "message": "no such thing", "traceback": "at line 1\n", "stderr": null}});
        let error = decode::<Job>(&job).and_then(|job| job.succeeded()).expect_err("it failed").to_string();
        assert_eq!(error, "job 1 failed after 0 attempts: handler_error: LookupError: no such thing\nat line 1");
    }
}
