//! A batch as every route shows it.

use std::collections::BTreeMap;

use serde::Serialize;
use stokehold_queue::batches::{Batch, BatchState, LineFormat, OnInvalid};
use stokehold_queue::budgets::{AtBudget, Standing, standing};
use stokehold_queue::costs::{Estimate, Forecast, Unknown};
use stokehold_queue::job::Priority;
use utoipa::ToSchema;

use super::super::limits::{AtBudgetWord, BudgetStateWord};
use super::super::view::PriorityWord;
use crate::batches::pace::pace;
use crate::stamp::rfc3339;

/// A batch.
#[derive(Serialize, ToSchema)]
#[schema(as = Batch)]
pub(crate) struct BatchView {
    /// `batch_` and 32 lower-case hex digits; ids sort by creation time.
    id: String,
    /// What its lines run on, unless they say otherwise.
    endpoint: Option<String>,
    /// In which version of it they run; null: the one that was current while the batch validated.
    version: Option<u32>,
    /// Where it stands.
    #[schema(value_type = BatchStateWord)]
    state: BatchState,
    /// How urgent its jobs are.
    #[schema(value_type = PriorityWord)]
    priority: Priority,
    /// What wrong lines mean for it.
    #[schema(value_type = OnInvalidWord)]
    on_invalid: OnInvalid,
    /// How its lines are written.
    #[schema(value_type = LineFormatWord)]
    format: LineFormat,
    /// The caller's own labels.
    metadata: BTreeMap<String, String>,
    /// How many lines stand where.
    counts: BatchCounts,
    /// RFC 3339.
    created_at: String,
    /// When its first line could run, RFC 3339.
    started_at: Option<String>,
    /// RFC 3339, once it has ended.
    ended_at: Option<String>,
    /// When what is left of it expires, RFC 3339.
    deadline_at: Option<String>,
    /// When it will be through at its present pace, RFC 3339; null while that is not known.
    eta_at: Option<String>,
    /// Lines that ended a second, over the last two minutes; null while that is not known.
    rate_per_s: Option<f64>,
    /// What its lines may cost together, micro-dollars.
    budget_usd_micros: Option<u64>,
    /// What happens then.
    #[schema(value_type = Option<AtBudgetWord>)]
    at_budget: Option<AtBudget>,
    /// What its attempts have taken that ended by now, micro-dollars: running and loading.
    spent_usd_micros: u64,
    /// How that stands to the budget; null without one.
    #[schema(value_type = Option<BudgetStateWord>)]
    budget_state: Option<Standing>,
    /// What it was thought to cost when it started; null before, and where nothing was known.
    estimate: Option<EstimateView>,
    /// Why there is no estimate.
    #[schema(value_type = Option<UnknownWord>)]
    estimate_unknown: Option<Unknown>,
    /// By how many percent the lines that ran cost more than was thought, or less, once it has ended.
    estimate_error_pct: Option<f64>,
    /// Why it did not run to its end, once that is so: `cancelled`, `expired` or `budget`.
    #[schema(value_type = Option<StopReasonWord>)]
    stop_reason: Option<&'static str>,
    /// The first 20 wrong lines.
    errors: Vec<BatchLineError>,
    /// The batch whose failed lines these are.
    retry_of: Option<String>,
    /// The lines that have succeeded by now. Wants the same bearer token.
    results_url: String,
    /// The lines that have ended otherwise by now. Wants the same bearer token.
    errors_url: String,
    /// Whom to tell of its end.
    webhook: Option<String>,
}

/// What lines are thought to cost, by what jobs of the last seven days took: running and loading.
#[derive(Serialize, ToSchema)]
#[schema(as = Estimate)]
pub(crate) struct EstimateView {
    /// All together, micro-dollars.
    usd_micros: u64,
    /// Hardly less.
    low_usd_micros: u64,
    /// Hardly more.
    high_usd_micros: u64,
    /// One line on average.
    per_line_usd_micros: f64,
    /// How many jobs say so; below 50 the range is half as much to both sides.
    basis_jobs: u64,
}

impl EstimateView {
    pub(super) fn new(estimate: &Estimate) -> Self {
        let Estimate { usd_micros, low_usd_micros, high_usd_micros, per_line_usd_micros, basis_jobs } = *estimate;
        Self { usd_micros, low_usd_micros, high_usd_micros, per_line_usd_micros, basis_jobs }
    }
}

/// What is thought, and why if nothing is.
pub(super) fn told(forecast: Option<&Forecast>) -> (Option<EstimateView>, Option<Unknown>) {
    match forecast {
        None => (None, None),
        Some(Forecast::Known(estimate)) => (Some(EstimateView::new(estimate)), None),
        Some(Forecast::Unknown(why)) => (None, Some(*why)),
    }
}

/// Why nothing is known of what lines will cost: no job of the endpoint ended in the last seven days, its workers name no price, or the lines
/// are for several endpoints.
#[derive(ToSchema)]
#[schema(as = EstimateUnknown, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum UnknownWord {
    NoJobs,
    NoPrice,
    Mixed,
}

/// Why a batch did not run to its end.
#[derive(ToSchema)]
#[schema(as = BatchStopReason, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum StopReasonWord {
    Cancelled,
    Expired,
    Budget,
}

/// Why it does not run to its end. What came too late to change anything is not why.
fn stop_reason(batch: &Batch) -> Option<&'static str> {
    match (batch.state, batch.stop) {
        (BatchState::Completed | BatchState::Failed, _) | (_, None) => None,
        (_, Some(_)) if batch.is_over_budget => Some("budget"),
        (_, Some(stop)) => Some(stop.state().as_str()),
    }
}

fn budget_state(batch: &Batch) -> Option<Standing> {
    let budget = batch.spec.budget?;
    let reached = batch.is_over_budget.then_some(Standing::Reached);
    Some(reached.unwrap_or_else(|| standing(batch.spent_usd_micros, budget.usd_micros)))
}

fn estimate_error_pct(batch: &Batch) -> Option<f64> {
    let estimate = batch.forecast.as_ref()?.estimate()?;
    let ran = batch.succeeded + batch.failed;
    (batch.state.is_terminal() && ran > 0).then(|| estimate.error_pct(batch.spent_usd_micros, ran))?
}

/// How many lines of a batch stand where: `accepted` = `total` - `invalid` = `succeeded` + `failed` + `cancelled` + `expired` +
/// `open`, whenever it is looked at.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchCounts {
    /// Lines seen; grows while the batch validates.
    total: u64,
    /// Wrong ones.
    invalid: u64,
    /// Good ones.
    accepted: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    expired: u64,
    /// Good ones that have not ended.
    open: u64,
    /// Those of the open ones that run at this moment.
    running: u64,
}

/// A wrong line.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchLineError {
    /// From 1.
    line: u64,
    /// What is wrong with it.
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

/// Where a batch stands.
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

/// What wrong lines mean for their batch: none of it runs, or the others do.
#[derive(ToSchema)]
#[schema(as = OnInvalid, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum OnInvalidWord {
    Fail,
    Skip,
}

/// How the lines of a batch are written; `auto` is as each line shows.
#[derive(ToSchema)]
#[schema(as = LineFormat, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum LineFormatWord {
    Auto,
    Stokehold,
    Openai,
}
