//! The view of a job, which every route shares.

mod attempt;
mod cost;
mod usage;
mod waiting;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use stokehold_queue::costs::JobCost;
use stokehold_queue::job::{
    Decision, DependencyOn, HookEvent, Job, JobResult, JobState, Priority, Stage, StepRun, StepSpec, Timing,
};
use utoipa::ToSchema;

use self::attempt::{AttemptView, ErrorView, TimingView};
use self::cost::JobCostView;
pub(crate) use self::usage::TokenUsageView;
pub(crate) use self::waiting::WaitingView;
use crate::config::Config;
use crate::jobs::waiting::Explanation;
use crate::jobs::words::{DecisionWord, DependencyOnWord, JobHookEventWord, PriorityWord, StageWord, StateWord};
use crate::time_format::rfc3339;

/// A job.
#[derive(Serialize, ToSchema)]
#[schema(as = Job)]
pub(crate) struct JobView<'a> {
    /// 32 lower-case hex digits; ids sort by creation time.
    id: String,
    /// The endpoint it runs on.
    endpoint: &'a str,
    /// The endpoint's version, fixed at submit.
    version: u32,
    /// The state of the job.
    #[schema(value_type = StateWord)]
    state: JobState,
    /// Why a queued or blocked job has not started, or why the handler of a running job has not; only when a single job
    /// is requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<WaitingView>,
    /// The job's priority.
    #[schema(value_type = PriorityWord)]
    priority: Priority,
    /// When it was submitted, RFC 3339.
    created_at: String,
    /// When a scheduled job becomes ready, RFC 3339.
    run_after: Option<String>,
    /// When the job expires if it has not ended, RFC 3339.
    deadline_at: Option<String>,
    /// When it ended, RFC 3339; null until then.
    ended_at: Option<String>,
    /// The input as submitted; an input over 64 KiB is `{"$file": "<id>", "as": "input"}`, and GET /v1/files/<id>
    /// returns its address.
    #[schema(value_type = serde_json::Value)]
    input: &'a RawValue,
    /// Your own labels.
    metadata: &'a BTreeMap<String, String>,
    /// The jobs that it waits for or has waited for.
    depends_on: Vec<DependencyView>,
    /// The batch that it is a line of.
    batch_id: Option<&'a str>,
    /// The line of that batch's input, from 1.
    line: Option<u64>,
    /// The line's `custom_id`.
    custom_id: Option<&'a str>,
    /// The job that this job retries.
    retry_of: Option<String>,
    /// The schedule that created it.
    schedule_id: Option<&'a str>,
    /// The job that it is a step of.
    step_of: Option<String>,
    /// The key that limits how many of your jobs run concurrently.
    concurrency_key: Option<&'a str>,
    /// The URL that receives its events.
    webhook: Option<&'a str>,
    /// The events to send.
    #[schema(value_type = Vec<JobHookEventWord>)]
    webhook_events: &'a [HookEvent],
    /// The steps before and after, so far.
    steps: Vec<StepView<'a>>,
    /// The cost so far, including its steps; null if the workers' prices are not known.
    cost_usd_micros: Option<u64>,
    /// The cost including its part of boot, idle and disk, for an ended job; only when a single job is requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<JobCostView>,
    /// The tokens that its result reports; absent without tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<TokenUsageView>,
    /// How often it ran out of GPU or host memory. This does not count towards `max_attempts`.
    oom_events: u32,
    /// The latest progress of the running job.
    progress: Option<ProgressView<'a>>,
    /// Every attempt so far, oldest first.
    attempts: Vec<AttemptView<'a>>,
    /// The last attempt's timing, with `queued_ms` counted from submit to that lease.
    timing: Option<TimingView>,
    /// The result, if it is small; otherwise see `result_url`.
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<&'a RawValue>,
    /// The address of the result, once succeeded. Requires the same bearer token.
    result_url: Option<String>,
    /// Why it failed.
    error: Option<ErrorView<'a>>,
}

/// A job that this job waits for.
#[derive(Serialize, ToSchema)]
#[schema(as = Dependency)]
pub(crate) struct DependencyView {
    /// The job's id.
    job: String,
    /// `success`, or `completion` if any end will do.
    #[schema(value_type = DependencyOnWord)]
    on: DependencyOn,
}

/// An endpoint that decides whether a job may run or its output may be returned.
#[derive(Serialize, ToSchema)]
#[schema(as = StepRun)]
pub(crate) struct StepView<'a> {
    /// The step's name.
    name: &'a str,
    /// `before` or `after`.
    #[schema(value_type = StageWord)]
    stage: Stage,
    /// The endpoint that decides.
    endpoint: &'a str,
    /// The job that runs the step; null before its turn.
    job_id: Option<String>,
    /// The state of that job, as last seen.
    #[schema(value_type = Option<StateWord>)]
    state: Option<JobState>,
    /// `allow`, `reject` or `rewrite`; null until it has decided.
    #[schema(value_type = Option<DecisionWord>)]
    decision: Option<Decision>,
    /// Why it rejected.
    reason: Option<&'a str>,
    /// The score of each label, 0 to 1.
    scores: &'a BTreeMap<String, f64>,
    /// Where its time went.
    timing: Option<TimingView>,
    /// The cost; null if the worker's price is not known.
    cost_usd_micros: Option<u64>,
}

/// The progress of a running job.
#[derive(Serialize, ToSchema)]
#[schema(as = Progress)]
pub(crate) struct ProgressView<'a> {
    /// 0 to 1.
    fraction: f64,
    /// What the job is doing.
    message: &'a str,
}

impl<'a> JobView<'a> {
    /// Adds the reason for which the job waits, if it does.
    pub(crate) fn waiting(mut self, why: Option<Explanation>) -> Self {
        self.waiting = why.map(WaitingView::from);
        self
    }

    /// Adds the cost of the job.
    pub(crate) fn costing(mut self, cost: Option<JobCost>) -> Self {
        // A total of zero is not a price unless some price is known.
        let is_known = |cost: &JobCost| cost.total > 0 || self.cost_usd_micros.is_some();
        self.cost = cost.filter(is_known).map(JobCostView::from);
        self
    }

    /// Converts the record to the view.
    pub(crate) fn new(job: &'a Job, config: &Config) -> Self {
        let spec = &job.spec;
        Self {
            id: job.id.to_string(),
            endpoint: &spec.endpoint,
            version: spec.version,
            state: job.state,
            waiting: None,
            priority: spec.priority,
            created_at: rfc3339(job.created_ms()),
            run_after: job.run_after_ms.map(rfc3339),
            deadline_at: spec.deadline_ms.map(rfc3339),
            ended_at: job.ended_ms.map(rfc3339),
            input: &job.input,
            metadata: &spec.metadata,
            depends_on: spec
                .depends_on
                .iter()
                .map(|dependency| DependencyView { job: dependency.job.to_string(), on: dependency.on })
                .collect(),
            batch_id: spec.batch.as_ref().map(|batch| batch.id.as_str()),
            line: spec.batch.as_ref().map(|batch| batch.line),
            custom_id: spec.batch.as_ref().and_then(|batch| batch.custom_id.as_deref()),
            retry_of: spec.retry_of.map(|id| id.to_string()),
            schedule_id: spec.schedule.as_deref(),
            step_of: spec.step_of.map(|id| id.to_string()),
            concurrency_key: spec.concurrency.as_ref().map(|concurrency| concurrency.key.as_str()),
            webhook: spec.hook.as_ref().map(|hook| hook.url.as_str()),
            webhook_events: spec.hook.as_ref().map_or(&[], |hook| &hook.events),
            steps: steps(&spec.steps, &job.steps),
            cost_usd_micros: cost_usd_micros(job),
            cost: None,
            usage: job.usage().and_then(TokenUsageView::of),
            oom_events: job.oom_events,
            progress: job
                .progress
                .as_ref()
                .map(|progress| ProgressView { fraction: progress.fraction, message: &progress.message }),
            attempts: job.attempts.iter().map(AttemptView::new).collect(),
            timing: job.attempts.last().map(|last| {
                let queued_ms = last.leased_ms.saturating_sub(job.created_ms());
                TimingView::new(&Timing { queued_ms, ..last.timing })
            }),
            result: match &job.result {
                Some(JobResult::Inline(result)) => Some(result),
                Some(JobResult::Object { .. }) | None => None,
            },
            result_url: (job.state == JobState::Succeeded)
                .then(|| format!("{}/v1/jobs/{}/result", config.public_url, job.id)),
            error: job.error.as_ref().map(ErrorView::new),
        }
    }
}

fn steps<'a>(specs: &'a [StepSpec], runs: &'a [StepRun]) -> Vec<StepView<'a>> {
    static NONE: BTreeMap<String, f64> = BTreeMap::new();
    let view = |(n, spec): (usize, &'a StepSpec)| {
        let run = runs.get(n);
        StepView {
            name: &spec.name,
            stage: spec.stage,
            endpoint: &spec.endpoint,
            job_id: run.map(|run| run.job.to_string()),
            state: run.map(|run| run.state),
            decision: run.and_then(|run| run.decision),
            reason: run.and_then(|run| run.reason.as_deref()),
            scores: run.map_or(&NONE, |run| &run.scores),
            timing: run.filter(|run| run.state.is_terminal()).map(|run| TimingView::new(&run.timing)),
            cost_usd_micros: run.and_then(|run| run.cost_usd_micros),
        }
    };
    specs.iter().enumerate().map(view).collect()
}

/// Cost of attempts and steps together, micro-dollars; `None` when no part's price is known.
fn cost_usd_micros(job: &Job) -> Option<u64> {
    let attempts = job.attempts.iter().filter_map(|attempt| attempt.cost_usd_micros);
    let steps = job.steps.iter().filter_map(|run| run.cost_usd_micros);
    attempts.chain(steps).reduce(|sum, cost| sum + cost)
}
