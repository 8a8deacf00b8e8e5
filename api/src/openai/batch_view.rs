//! A batch in OpenAI's form.

use std::collections::BTreeMap;

use serde::Serialize;
use stokehold_queue::batches::{Batch, BatchState, OpenAiBatch, StopReason};
use stokehold_queue::budgets::{AtBudget, Standing};

use super::outputs::{Kind, file_id};
use crate::batches::pace::pace;
use crate::batches::routes::view::{budget_state, stop_reason};

/// A batch.
#[derive(Serialize)]
pub(super) struct BatchView {
    id: String,
    object: &'static str,
    endpoint: String,
    /// The only endpoint that runs its lines.
    model: Option<String>,
    errors: Option<Errors>,
    input_file_id: String,
    completion_window: String,
    status: &'static str,
    output_file_id: Option<String>,
    error_file_id: Option<String>,
    created_at: u64,
    in_progress_at: Option<u64>,
    expires_at: Option<u64>,
    finalizing_at: Option<u64>,
    completed_at: Option<u64>,
    failed_at: Option<u64>,
    expired_at: Option<u64>,
    cancelling_at: Option<u64>,
    cancelled_at: Option<u64>,
    request_counts: Counts,
    usage: Option<Usage>,
    metadata: BTreeMap<String, String>,
    // Not in OpenAI's form. Its clients keep members that they do not know.
    spent_usd_micros: u64,
    eta_s: Option<u64>,
    budget: Option<Budget>,
    stop_reason: Option<&'static str>,
}

#[derive(Serialize)]
struct Errors {
    object: &'static str,
    data: Vec<LineError>,
}

#[derive(Serialize)]
struct LineError {
    code: &'static str,
    message: String,
    param: Option<String>,
    line: u64,
}

#[derive(Serialize)]
struct Counts {
    total: u64,
    completed: u64,
    failed: u64,
}

#[derive(Serialize)]
struct Budget {
    usd_micros: u64,
    at_budget: AtBudget,
    state: Option<Standing>,
}

/// The tokens of all ended lines together.
#[derive(Serialize)]
struct Usage {
    input_tokens: u64,
    input_tokens_details: InputTokens,
    output_tokens: u64,
    output_tokens_details: OutputTokens,
    total_tokens: u64,
}

#[derive(Serialize)]
struct InputTokens {
    cached_tokens: u64,
}

#[derive(Serialize)]
struct OutputTokens {
    reasoning_tokens: u64,
}

/// The tokens of the lines that have ended; `None` without tokens. Engines do not count the reasoning separately.
fn usage(batch: &Batch) -> Option<Usage> {
    let usage = batch.usage.known()?;
    Some(Usage {
        input_tokens: usage.prompt_tokens,
        input_tokens_details: InputTokens { cached_tokens: usage.cached_tokens },
        output_tokens: usage.completion_tokens,
        output_tokens_details: OutputTokens { reasoning_tokens: 0 },
        total_tokens: usage.total(),
    })
}

impl BatchView {
    /// The view of a batch that was created through this API.
    pub(super) fn new(batch: &Batch, openai: &OpenAiBatch, now_ms: u64) -> Self {
        let spec = &batch.spec;
        let ended_in = |state| batch.ended_ms.filter(|_| batch.state == state).map(seconds);
        let eta_ms = (batch.state == BatchState::Running)
            .then(|| pace(&batch.samples, batch.started_ms, (batch.succeeded + batch.failed, batch.open()), now_ms).1);
        let mut endpoints = batch.versions.keys();
        let is_over = batch.state == BatchState::Finalizing || batch.state.is_terminal();
        Self {
            id: batch.id.clone(),
            object: "batch",
            endpoint: openai.endpoint.clone(),
            model: endpoints.next().filter(|_| endpoints.next().is_none()).cloned(),
            errors: errors(batch),
            input_file_id: openai.input_file_id.clone(),
            completion_window: openai.completion_window.clone(),
            status: status(batch),
            output_file_id: file_id(batch, Kind::Output),
            error_file_id: file_id(batch, Kind::Errors),
            created_at: seconds(spec.created_ms),
            in_progress_at: batch.started_ms.map(seconds),
            expires_at: spec.deadline_ms.map(seconds),
            finalizing_at: batch.collected_ms.filter(|_| is_over).map(seconds),
            completed_at: ended_in(BatchState::Completed),
            failed_at: ended_in(BatchState::Failed),
            expired_at: ended_in(BatchState::Expired),
            cancelling_at: None,
            cancelled_at: ended_in(BatchState::Cancelled),
            request_counts: Counts {
                total: batch.total,
                completed: batch.succeeded,
                failed: batch.failed + batch.expired,
            },
            usage: usage(batch),
            metadata: spec.metadata.clone(),
            spent_usd_micros: batch.spent_usd_micros,
            eta_s: eta_ms.flatten().map(|ms| ms.saturating_sub(now_ms).div_ceil(1000)),
            budget: spec.budget.map(|budget| Budget {
                usd_micros: budget.usd_micros,
                at_budget: budget.at,
                state: budget_state(batch),
            }),
            stop_reason: stop_reason(batch),
        }
    }
}

fn seconds(ms: u64) -> u64 {
    ms / 1000
}

fn errors(batch: &Batch) -> Option<Errors> {
    let data: Vec<LineError> = batch
        .errors
        .iter()
        .map(|error| LineError { code: "invalid_line", message: error.message.clone(), param: None, line: error.line })
        .collect();
    (!data.is_empty()).then_some(Errors { object: "list", data })
}

fn status(batch: &Batch) -> &'static str {
    let is_cancelled = batch.stop == Some(StopReason::Cancelled) && !batch.is_over_budget;
    match batch.state {
        // A batch whose lines are invalid is stopped, too, but was never started.
        BatchState::Finalizing if batch.started_ms.is_none() => "validating",
        BatchState::Validating | BatchState::Running | BatchState::Finalizing if is_cancelled => "cancelling",
        BatchState::Validating => "validating",
        BatchState::Running => "in_progress",
        BatchState::Finalizing => "finalizing",
        BatchState::Completed => "completed",
        BatchState::Failed => "failed",
        BatchState::Cancelled => "cancelled",
        BatchState::Expired => "expired",
    }
}
