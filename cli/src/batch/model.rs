//! Text forms of a batch.

use anyhow::Result;
use stokehold_client::models::{Batch, BatchCounts, BatchLineError, BatchState, BatchStopReason, BudgetState};

use super::estimate;
use crate::failure::Failure;
use crate::{money, output, tokens};

/// Returns an error with advice unless every accepted line succeeded.
pub(crate) fn succeeded(batch: &Batch) -> Result<()> {
    let Batch { id, state, counts: lines, .. } = batch;
    if *state == BatchState::Completed && lines.bad() == 0 {
        return Ok(());
    }
    let mut text = format!("batch {id} is {state}: {}", counts(*lines));
    if batch.stop_reason == Some(BatchStopReason::Budget) {
        text.push_str(&format!("; it reached its budget ({})", cost(batch)));
    }
    for BatchLineError { line, message } in batch.errors.iter().take(3) {
        text.push_str(&format!("\n  line {line}: {message}"));
    }
    let failure = Failure::batch(text);
    Err(if lines.failed + lines.expired > 0 {
        let retry = format!("or `stoke batch retry {id}` to retry these lines");
        failure.hint(format!("Run `stoke batch errors {id}` to see why, {retry}."))
    } else if lines.bad() > 0 {
        failure.hint(format!("Run `stoke batch errors {id}` to see why."))
    } else if lines.invalid > 0 {
        failure.hint("Fix these lines, or submit with --on-invalid skip to run the others.")
    } else {
        failure
    }
    .into())
}

/// The progress on one line.
pub(crate) fn progress(batch: &Batch, now_ms: u64) -> String {
    let lines = batch.counts;
    let mut text = match &batch.state {
        BatchState::Validating => {
            format!("validating, {} so far; {}", output::counted(lines.total, "line"), counts(lines))
        }
        state => format!(
            "{state}: {} of {} done; {}",
            output::count(lines.done()),
            output::count(lines.accepted),
            counts(lines)
        ),
    };
    if let Some(pace) = pace(batch, now_ms) {
        text.push_str(&format!("; {pace}"));
    }
    text
}

/// The cost so far, the budget and the estimate.
pub(crate) fn cost(batch: &Batch) -> String {
    let mut text = money::dollars(batch.spent_usd_micros);
    if let Some(budget) = batch.budget_usd_micros {
        text.push_str(&format!(" of {}", money::dollars(budget)));
    }
    if let Some(state @ (BudgetState::Warned | BudgetState::Reached)) = &batch.budget_state {
        text.push_str(&format!(", {state}"));
    }
    if let Some(price) = tokens::price(batch.usage, batch.spent_usd_micros) {
        text.push_str(&format!("; {price}"));
    }
    if let Some(estimate) = &batch.estimate {
        text.push_str(&format!("; estimated at {}", estimate::words(estimate)));
    }
    if let Some(error) = batch.estimate_error_pct {
        text.push_str(&format!(", actual cost {error:+.1} %"));
    }
    text
}

/// The rate and the remaining time, as far as the API reports them.
pub(crate) fn pace(batch: &Batch, now_ms: u64) -> Option<String> {
    if batch.state.has_ended() {
        return None;
    }
    let rate = batch.rate_per_s.filter(|rate| *rate > 0.0).map(|rate| match rate {
        // Slow batches are shown per minute.
        ..0.1 => format!("{:.1}/min", rate * 60.0),
        _ => format!("{rate:.1}/s"),
    });
    let eta_ms = output::millis_of(batch.eta_at.as_deref());
    let left = eta_ms.map(|eta_ms| format!("{} left", output::millis(eta_ms.saturating_sub(now_ms))));
    let parts: Vec<String> = [rate, left].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The number of lines by outcome.
pub(crate) fn counts(lines: BatchCounts) -> String {
    let mut text = format!(
        "{} succeeded, {} failed, {} open",
        output::count(lines.succeeded),
        output::count(lines.failed),
        output::count(lines.open)
    );
    for (count, word) in [(lines.cancelled, "cancelled"), (lines.expired, "expired"), (lines.invalid, "invalid")] {
        if count > 0 {
            text.push_str(&format!(", {} {word}", output::count(count)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;
    use crate::client::decode;

    fn batch(state: &str, counts: &Value) -> Batch {
        decode(&json!({"id": "batch_1", "endpoint": "echo", "state": state, "counts": counts})).unwrap()
    }

    #[test]
    fn progress_is_one_line() {
        let counts = json!({"total": 1_003, "invalid": 3, "accepted": 1_000, "succeeded": 810, "failed": 2, "open": 188, "running": 8});
        let mut running = batch("running", &counts);
        assert_eq!(progress(&running, 0), "running: 812 of 1,000 done; 810 succeeded, 2 failed, 188 open, 3 invalid");
        (running.rate_per_s, running.eta_at) = (Some(12.54), Some("1970-01-01T00:00:15Z".to_owned()));
        assert!(progress(&running, 0).ends_with("3 invalid; 12.5/s, 15.0 s left"), "{}", progress(&running, 0));
        running.rate_per_s = Some(0.05);
        assert_eq!(pace(&running, 20_000).unwrap(), "3.0/min, 0 ms left");
        let early = batch("validating", &json!({"total": 7, "accepted": 7, "open": 7}));
        assert_eq!(progress(&early, 0), "validating, 7 lines so far; 0 succeeded, 0 failed, 7 open");
    }

    #[test]
    fn a_batch_with_failed_lines_says_what_to_do() {
        succeeded(&batch("completed", &json!({"total": 2, "invalid": 1, "accepted": 1, "succeeded": 1}))).unwrap();
        let failed = batch("completed", &json!({"total": 2, "accepted": 2, "succeeded": 1, "failed": 1}));
        assert_eq!(
            succeeded(&failed).unwrap_err().to_string(),
            "batch batch_1 is completed: 1 succeeded, 1 failed, 0 open\n\
             Run `stoke batch errors batch_1` to see why, or `stoke batch retry batch_1` to retry these lines."
        );
        let cancelled =
            succeeded(&batch("cancelled", &json!({"total": 1, "accepted": 1, "cancelled": 1}))).unwrap_err();
        assert!(!cancelled.to_string().contains("batch retry"), "{cancelled}");
        let mut invalid = batch("failed", &json!({"total": 9, "invalid": 1, "accepted": 0}));
        invalid.errors = vec![BatchLineError { line: 4, message: "is not JSON".to_owned() }];
        let said = succeeded(&invalid).unwrap_err().to_string();
        assert!(said.contains("line 4: is not JSON") && said.contains("--on-invalid skip"), "{said}");
    }
}
