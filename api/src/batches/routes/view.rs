//! The view of a batch, which every route shares.

use std::collections::BTreeMap;

use serde::Serialize;
use stokehold_queue::batches::{Batch, BatchState, LineFormat, OnInvalid};
use stokehold_queue::budgets::{AtBudget, Standing, standing};
use stokehold_queue::costs::{Estimate, Forecast, Unknown};
use stokehold_queue::job::Priority;
use utoipa::ToSchema;

use crate::batches::pace::pace;
use crate::jobs::view::TokenUsageView;
use crate::jobs::words::PriorityWord;
use crate::tenants::limits::{AtBudgetWord, BudgetStateWord};
use crate::time_format::rfc3339;

/// A batch.
#[derive(Serialize, ToSchema)]
#[schema(as = Batch)]
pub(crate) struct BatchView {
    /// `batch_` and 32 lower-case hex digits; ids sort by creation time.
    id: String,
    /// The endpoint of lines that name none.
    endpoint: Option<String>,
    /// The version of that endpoint; null: the version that was current while the batch validated.
    version: Option<u32>,
    /// The state of the batch.
    #[schema(value_type = BatchStateWord)]
    state: BatchState,
    /// The priority of its jobs.
    #[schema(value_type = PriorityWord)]
    priority: Priority,
    /// What happens with invalid lines.
    #[schema(value_type = OnInvalidWord)]
    on_invalid: OnInvalid,
    /// The format of its lines.
    #[schema(value_type = LineFormatWord)]
    format: LineFormat,
    /// The caller's own labels.
    metadata: BTreeMap<String, String>,
    /// The number of lines in each state.
    counts: BatchCounts,
    /// When it was created, RFC 3339.
    created_at: String,
    /// When the first line could start, RFC 3339.
    started_at: Option<String>,
    /// When it ended, RFC 3339; null until then.
    ended_at: Option<String>,
    /// When lines that have not ended expire, RFC 3339.
    deadline_at: Option<String>,
    /// When the batch is expected to end at its current rate, RFC 3339; null if not known.
    eta_at: Option<String>,
    /// Lines that ended per second over the last two minutes; null if not known.
    rate_per_s: Option<f64>,
    /// The budget of all lines together, micro-dollars.
    budget_usd_micros: Option<u64>,
    /// What happens when the budget is reached.
    #[schema(value_type = Option<AtBudgetWord>)]
    at_budget: Option<AtBudget>,
    /// The cost of running and loading of all ended attempts so far, micro-dollars.
    spent_usd_micros: u64,
    /// The tokens of all ended lines; absent without tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<TokenUsageView>,
    /// The state of the budget; null without a budget.
    #[schema(value_type = Option<BudgetStateWord>)]
    budget_state: Option<Standing>,
    /// The estimated cost at the start; null before the start and if no estimate was possible.
    estimate: Option<EstimateView>,
    /// Why there is no estimate.
    #[schema(value_type = Option<UnknownWord>)]
    estimate_unknown: Option<Unknown>,
    /// By how many percent the cost of the lines that ran differs from the estimate, once the batch has ended.
    estimate_error_pct: Option<f64>,
    /// Why the batch stopped early: `cancelled`, `expired` or `budget`.
    #[schema(value_type = Option<StopReasonWord>)]
    stop_reason: Option<&'static str>,
    /// The first 20 invalid lines.
    errors: Vec<BatchLineError>,
    /// The batch whose failed lines this batch retries.
    retry_of: Option<String>,
    /// The lines that have succeeded so far. Requires the same bearer token.
    results_url: String,
    /// The lines that have ended without success so far. Requires the same bearer token.
    errors_url: String,
    /// The URL that receives an event when the batch ends.
    webhook: Option<String>,
}

/// The estimated cost of lines, based on running and loading of jobs in the last seven days.
#[derive(Serialize, ToSchema)]
#[schema(as = Estimate)]
pub(crate) struct EstimateView {
    /// The cost of all lines, micro-dollars.
    usd_micros: u64,
    /// The low end of the likely range.
    low_usd_micros: u64,
    /// The high end of the likely range.
    high_usd_micros: u64,
    /// The average cost of one line.
    per_line_usd_micros: f64,
    /// The number of jobs behind the estimate; below 50, the range is half the estimate to each side.
    basis_jobs: u64,
}

impl EstimateView {
    pub(super) fn new(estimate: &Estimate) -> Self {
        let Estimate { usd_micros, low_usd_micros, high_usd_micros, per_line_usd_micros, basis_jobs } = *estimate;
        Self { usd_micros, low_usd_micros, high_usd_micros, per_line_usd_micros, basis_jobs }
    }
}

/// The estimate, or the reason for which there is none.
pub(super) fn told(forecast: Option<&Forecast>) -> (Option<EstimateView>, Option<Unknown>) {
    match forecast {
        None => (None, None),
        Some(Forecast::Known(estimate)) => (Some(EstimateView::new(estimate)), None),
        Some(Forecast::Unknown(why)) => (None, Some(*why)),
    }
}

/// Why no estimate is possible: no job of the endpoint ended in the last seven days, its workers have no price, or the
/// lines are for several endpoints.
#[derive(ToSchema)]
#[schema(as = EstimateUnknown, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum UnknownWord {
    NoJobs,
    NoPrice,
    Mixed,
}

/// Why a batch stopped early.
#[derive(ToSchema)]
#[schema(as = BatchStopReason, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum StopReasonWord {
    Cancelled,
    Expired,
    Budget,
}

/// Reason for which a batch does not run to its end. An event that came too late to have an effect does not count.
pub(crate) fn stop_reason(batch: &Batch) -> Option<&'static str> {
    match (batch.state, batch.stop) {
        (BatchState::Completed | BatchState::Failed, _) | (_, None) => None,
        (_, Some(_)) if batch.is_over_budget => Some("budget"),
        (_, Some(stop)) => Some(stop.state().as_str()),
    }
}

pub(crate) fn budget_state(batch: &Batch) -> Option<Standing> {
    let budget = batch.spec.budget?;
    let reached = batch.is_over_budget.then_some(Standing::Reached);
    Some(reached.unwrap_or_else(|| standing(batch.spent_usd_micros, budget.usd_micros)))
}

fn estimate_error_pct(batch: &Batch) -> Option<f64> {
    let estimate = batch.forecast.as_ref()?.estimate()?;
    let ran = batch.succeeded + batch.failed;
    (batch.state.is_terminal() && ran > 0).then(|| estimate.error_pct(batch.spent_usd_micros, ran))?
}

/// The number of lines in each state. At any moment: `accepted` = `total` - `invalid` = `succeeded` + `failed` +
/// `cancelled` + `expired` + `open`.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchCounts {
    /// Lines read so far; grows while the batch validates.
    total: u64,
    /// Invalid lines.
    invalid: u64,
    /// Valid lines.
    accepted: u64,
    /// Lines whose job succeeded.
    succeeded: u64,
    /// Lines whose job failed.
    failed: u64,
    /// Lines whose job was cancelled.
    cancelled: u64,
    /// Lines whose job expired.
    expired: u64,
    /// Valid lines that have not ended.
    open: u64,
    /// Open lines that are running now.
    running: u64,
}

/// An invalid line.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchLineError {
    /// From 1.
    line: u64,
    /// What is wrong with the line.
    message: String,
}

impl BatchView {
    pub(super) fn new(batch: &Batch, public_url: &str, now_ms: u64) -> Self {
        let spec = &batch.spec;
        let running = batch.state == BatchState::Running;
        let done = batch.succeeded + batch.failed;
        let (rate_per_s, eta_ms) =
            if running { pace(&batch.samples, batch.started_ms, (done, batch.open()), now_ms) } else { (None, None) };
        let (estimate, estimate_unknown) = told(batch.forecast.as_ref());
        Self {
            endpoint: Some(spec.endpoint.clone()).filter(|endpoint| !endpoint.is_empty()),
            version: spec.version,
            state: batch.state,
            priority: spec.priority,
            on_invalid: spec.on_invalid,
            format: spec.format,
            metadata: spec.metadata.clone(),
            counts: BatchCounts {
                total: batch.total,
                invalid: batch.invalid,
                accepted: batch.accepted(),
                succeeded: batch.succeeded,
                failed: batch.failed,
                cancelled: batch.cancelled,
                expired: batch.expired,
                open: batch.open(),
                running: batch.running,
            },
            created_at: rfc3339(spec.created_ms),
            started_at: batch.started_ms.map(rfc3339),
            ended_at: batch.ended_ms.map(rfc3339),
            deadline_at: spec.deadline_ms.map(rfc3339),
            eta_at: eta_ms.map(rfc3339),
            rate_per_s,
            budget_usd_micros: spec.budget.map(|budget| budget.usd_micros),
            at_budget: spec.budget.map(|budget| budget.at),
            spent_usd_micros: batch.spent_usd_micros,
            usage: TokenUsageView::of(batch.usage),
            budget_state: budget_state(batch),
            estimate,
            estimate_unknown,
            estimate_error_pct: estimate_error_pct(batch),
            stop_reason: stop_reason(batch),
            errors: batch
                .errors
                .iter()
                .map(|error| BatchLineError { line: error.line, message: error.message.clone() })
                .collect(),
            retry_of: spec.retry_of.clone(),
            results_url: format!("{public_url}/v1/batches/{}/results", batch.id),
            errors_url: format!("{public_url}/v1/batches/{}/errors", batch.id),
            webhook: spec.hook.as_ref().map(|hook| hook.url.clone()),
            id: batch.id.clone(),
        }
    }
}

/// The state of a batch.
#[derive(ToSchema)]
#[schema(as = BatchState, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum BatchStateWord {
    Validating,
    Running,
    Finalizing,
    Completed,
    Failed,
    Cancelled,
    Expired,
}

/// What happens with invalid lines: none of the batch runs, or the others do.
#[derive(ToSchema)]
#[schema(as = OnInvalid, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum OnInvalidWord {
    Fail,
    Skip,
}

/// The format of the lines of a batch; `auto` is detected per line.
#[derive(ToSchema)]
#[schema(as = LineFormat, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum LineFormatWord {
    Auto,
    Stokehold,
    Openai,
}
