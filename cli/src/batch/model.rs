//! The batch object of the API, and its text forms.

use std::fmt;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::estimate::Estimate;
use crate::{money, output};

/// A batch: the fields that the subcommands use.
#[derive(Debug, Deserialize)]
pub(crate) struct Batch {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) endpoint: Option<String>,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) priority: Value,
    #[serde(default)]
    pub(crate) on_invalid: Value,
    pub(crate) counts: Counts,
    #[serde(default)]
    pub(crate) created_at: Value,
    #[serde(default)]
    pub(crate) ended_at: Value,
    #[serde(default)]
    pub(crate) deadline_at: Value,
    #[serde(default)]
    pub(crate) eta_at: Value,
    #[serde(default)]
    pub(crate) rate_per_s: Option<f64>,
    /// The first few invalid lines.
    #[serde(default)]
    pub(crate) errors: Vec<Invalid>,
    #[serde(default)]
    pub(crate) retry_of: Option<String>,
    #[serde(default)]
    pub(crate) budget_usd_micros: Option<u64>,
    #[serde(default)]
    pub(crate) spent_usd_micros: u64,
    #[serde(default)]
    pub(crate) budget_state: Option<String>,
    #[serde(default)]
    pub(super) estimate: Option<Estimate>,
    #[serde(default)]
    pub(crate) estimate_error_pct: Option<f64>,
    #[serde(default)]
    pub(crate) stop_reason: Option<String>,
}

/// Number of lines per state. `open` includes `running`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Counts {
    pub(crate) total: u64,
    pub(crate) invalid: u64,
    pub(crate) accepted: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) expired: u64,
    pub(crate) open: u64,
    pub(crate) running: u64,
}

/// A line that is not a valid job.
#[derive(Debug, Deserialize)]
pub(crate) struct Invalid {
    #[serde(default)]
    pub(crate) line: Option<u64>,
    pub(crate) message: String,
}

impl Batch {
    /// Decodes the API's JSON.
    pub(crate) fn decode(batch: &Value) -> Result<Self> {
        Self::deserialize(batch)
            .context("the API's response is not a batch; check that `stoke` and the API have the same version")
    }

    /// Whether the batch has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "completed" | "failed" | "cancelled" | "expired")
    }

    /// Returns an error with advice unless every accepted line succeeded.
    pub(crate) fn succeeded(&self) -> Result<()> {
        let Self { id, state, counts, .. } = self;
        if state == "completed" && counts.bad() == 0 {
            return Ok(());
        }
        let mut said = format!("batch {id} is {state}: {counts}");
        if self.stop_reason.as_deref() == Some("budget") {
            said.push_str(&format!("; it reached its budget ({})", self.cost()));
        }
        for Invalid { line, message } in self.errors.iter().take(3) {
            said.push_str(&match line {
                Some(line) => format!("\n  line {line}: {message}"),
                None => format!("\n  {message}"),
            });
        }
        if counts.bad() > 0 {
            said.push_str(&format!("\nRun `stoke batch errors {id}` to see why"));
            if counts.failed + counts.expired > 0 {
                said.push_str(&format!(", or `stoke batch retry {id}` to retry these lines"));
            }
        } else if counts.invalid > 0 {
            said.push_str("\nFix these lines, or submit with --on-invalid skip to run the others.");
        }
        bail!(said)
    }

    /// The progress on one line.
    pub(crate) fn progress(&self, now_ms: u64) -> String {
        let counts = self.counts;
        let mut said = match self.state.as_str() {
            "validating" => format!("validating, {} lines so far; {counts}", output::count(counts.total)),
            state => format!(
                "{state}: {} of {} done; {counts}",
                output::count(counts.done()),
                output::count(counts.accepted)
            ),
        };
        if let Some(pace) = self.pace(now_ms) {
            said.push_str(&format!("; {pace}"));
        }
        said
    }

    /// The cost so far, the budget and the estimate.
    pub(crate) fn cost(&self) -> String {
        let mut said = money::dollars(self.spent_usd_micros);
        if let Some(budget) = self.budget_usd_micros {
            said.push_str(&format!(" of {}", money::dollars(budget)));
        }
        if let Some(state @ ("warned" | "reached")) = self.budget_state.as_deref() {
            said.push_str(&format!(", {state}"));
        }
        if let Some(estimate) = &self.estimate {
            said.push_str(&format!("; estimated at {}", estimate.words()));
        }
        if let Some(error) = self.estimate_error_pct {
            said.push_str(&format!(", actual cost {error:+.1} %"));
        }
        said
    }

    /// The rate and the remaining time, as far as the API reports them.
    pub(crate) fn pace(&self, now_ms: u64) -> Option<String> {
        if self.has_ended() {
            return None;
        }
        let rate = self.rate_per_s.filter(|rate| *rate > 0.0).map(|rate| match rate {
            // Slow batches are shown per minute.
            ..0.1 => format!("{:.1}/min", rate * 60.0),
            _ => format!("{rate:.1}/s"),
        });
        let left =
            output::millis_of(&self.eta_at).map(|eta| format!("{} left", output::millis(eta.saturating_sub(now_ms))));
        let parts: Vec<String> = [rate, left].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl Counts {
    /// Lines that have ended in any state.
    pub(crate) fn done(self) -> u64 {
        self.accepted.saturating_sub(self.open)
    }

    /// Accepted lines that ended without a result.
    pub(crate) fn bad(self) -> u64 {
        self.failed + self.cancelled + self.expired
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} succeeded, {} failed, {} open",
            output::count(self.succeeded),
            output::count(self.failed),
            output::count(self.open)
        )?;
        for (count, word) in [(self.cancelled, "cancelled"), (self.expired, "expired"), (self.invalid, "invalid")] {
            if count > 0 {
                write!(f, ", {} {word}", output::count(count))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn batch(state: &str, counts: Value) -> Batch {
        Batch::decode(&json!({"id": "batch_1", "endpoint": "echo", "state": state, "counts": counts})).unwrap()
    }

    #[test]
    fn progress_is_one_line() {
        let counts = json!({"total": 1_003, "invalid": 3, "accepted": 1_000, "succeeded": 810, "failed": 2, "open": 188, "running": 8});
        let mut running = batch("running", counts);
        assert_eq!(running.progress(0), "running: 812 of 1,000 done; 810 succeeded, 2 failed, 188 open, 3 invalid");
        (running.rate_per_s, running.eta_at) = (Some(12.54), "1970-01-01T00:00:15Z".into());
        assert!(running.progress(0).ends_with("3 invalid; 12.5/s, 15.0 s left"), "{}", running.progress(0));
        running.rate_per_s = Some(0.05);
        assert_eq!(running.pace(20_000).unwrap(), "3.0/min, 0 ms left");
        let early = batch("validating", json!({"total": 7, "accepted": 7, "open": 7}));
        assert_eq!(early.progress(0), "validating, 7 lines so far; 0 succeeded, 0 failed, 7 open");
    }

    #[test]
    fn a_batch_with_failed_lines_says_what_to_do() {
        batch("completed", json!({"total": 2, "invalid": 1, "accepted": 1, "succeeded": 1})).succeeded().unwrap();
        let failed = batch("completed", json!({"total": 2, "accepted": 2, "succeeded": 1, "failed": 1}));
        assert_eq!(
            failed.succeeded().unwrap_err().to_string(),
            "batch batch_1 is completed: 1 succeeded, 1 failed, 0 open\n\
             Run `stoke batch errors batch_1` to see why, or `stoke batch retry batch_1` to retry these lines"
        );
        let cancelled = batch("cancelled", json!({"total": 1, "accepted": 1, "cancelled": 1})).succeeded().unwrap_err();
        assert!(!cancelled.to_string().contains("batch retry"), "{cancelled}");
        let mut invalid = batch("failed", json!({"total": 9, "invalid": 1, "accepted": 0}));
        invalid.errors = vec![Invalid { line: Some(4), message: "is not JSON".to_owned() }];
        let said = invalid.succeeded().unwrap_err().to_string();
        assert!(said.contains("line 4: is not JSON") && said.contains("--on-invalid skip"), "{said}");
    }
}
