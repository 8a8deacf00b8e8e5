//! One attempt in a trace: from the lease to the report. Pure.
//!
//! The worker measures the parts by its own clock, but the attempt's begin and end are by the queue's clock. Therefore
//! the parts follow one another from the lease on, and the remainder at the end, which includes the transport of the
//! lease and of the report, counts as the report.

use stokehold_queue::JobId;
use stokehold_queue::job::{Attempt, AttemptOutcome, ErrorCode, Timing};

use super::span::{Kind, Scope, Span, SpanError};

/// The parts of an attempt, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Lease,
    Environment,
    Weights,
    Boot,
    Load,
    Warmup,
    Inputs,
    Run,
    Upload,
}

impl Part {
    const ALL: [Self; 9] = [
        Self::Lease,
        Self::Environment,
        Self::Weights,
        Self::Boot,
        Self::Load,
        Self::Warmup,
        Self::Inputs,
        Self::Run,
        Self::Upload,
    ];

    /// Scope and name of a part, and its ID within the attempt.
    fn words(self) -> (Scope, &'static str, &'static str) {
        match self {
            Self::Lease => (Scope::Worker, "worker.lease", "lease"),
            Self::Environment => (Scope::Worker, "worker.environment", "environment"),
            Self::Weights => (Scope::Worker, "worker.weights", "weights"),
            Self::Boot => (Scope::Runner, "runner.boot", "boot"),
            Self::Load => (Scope::Runner, "runner.load", "load"),
            Self::Warmup => (Scope::Runner, "runner.warmup", "warmup"),
            Self::Inputs => (Scope::Worker, "worker.inputs", "inputs"),
            Self::Run => (Scope::Runner, "runner.run", RUN),
            Self::Upload => (Scope::Worker, "worker.upload", "upload"),
        }
    }

    fn took_ms(self, timing: &Timing) -> u64 {
        match self {
            Self::Lease => timing.turn_ms,
            Self::Environment => timing.env_ms,
            Self::Weights => timing.weights_ms,
            Self::Boot => timing.boot_ms,
            Self::Load => timing.load_ms,
            Self::Warmup => timing.warmup_ms,
            Self::Inputs => timing.inputs_ms,
            Self::Run => timing.run_ms,
            Self::Upload => timing.upload_ms,
        }
    }

    /// Returns whether the part is included although it took no time: other parts are not needed by every endpoint and
    /// every job.
    fn is_always_told(self) -> bool {
        !matches!(self, Self::Weights | Self::Warmup | Self::Inputs)
    }

    /// Returns whether a duration of zero means that the work had been done before, by an earlier job or ahead of any.
    fn can_be_warm(self) -> bool {
        matches!(self, Self::Environment | Self::Boot | Self::Load)
    }

    /// The part in which an attempt fails with this code; `None` if that is not known.
    fn failing_with(code: ErrorCode) -> Option<Self> {
        Some(match code {
            ErrorCode::EnvironmentFailed => Self::Environment,
            ErrorCode::WeightsFailed => Self::Weights,
            ErrorCode::SetupFailed => Self::Load,
            ErrorCode::HandlerError
            | ErrorCode::Rejected
            | ErrorCode::RunnerExited
            | ErrorCode::RunnerCrashed
            | ErrorCode::Timeout
            | ErrorCode::BadOutput
            | ErrorCode::LogFlood
            | ErrorCode::Protocol
            | ErrorCode::OomGpu
            | ErrorCode::OomHost => Self::Run,
            ErrorCode::ResultTooLarge => Self::Upload,
            ErrorCode::Poison
            | ErrorCode::DependencyFailed
            | ErrorCode::QueueTimeout
            | ErrorCode::Deadline
            | ErrorCode::WorkerLost
            | ErrorCode::Infra => return None,
        })
    }
}

/// ID of the span of an attempt's run.
const RUN: &str = "run";

/// ID of a part of an attempt, unique within the job.
fn named(attempt: u32, part: &str) -> String {
    format!("{attempt}/{part}")
}

/// ID of an attempt's run, unique within the job: a handler's own spans are its children.
pub(super) fn run_of(attempt: u32) -> String {
    named(attempt, RUN)
}

/// Spans of an attempt and its parts, the attempt first. `until_ms` is the end of an attempt that still runs.
pub(super) fn spans(job: JobId, attempt: &Attempt, root: &Span, until_ms: u64) -> Vec<Span> {
    let number = attempt.attempt;
    let error = attempt.error.as_ref();
    let failure = error.map(|error| SpanError { code: error.code.as_str(), class: error.class.clone() });
    let (is_failed, timing) = (is_failed(attempt.outcome), &attempt.timing);
    let times = (attempt.leased_ms, attempt.ended_ms.unwrap_or(until_ms));
    let whole = Span::new(job, &named(number, "attempt"), Scope::Worker, "worker.attempt", times)
        .inside(root)
        .kind(Kind::Consumer)
        .with("stokehold.attempt", number)
        .with("stokehold.attempt.outcome", outcome(attempt.outcome))
        .with("stokehold.worker.id", attempt.worker_id.as_str())
        .maybe("stokehold.attempt.cost_usd_micros", attempt.cost_usd_micros);
    let whole_failure =
        || failure.clone().unwrap_or(SpanError { code: outcome(attempt.outcome), class: String::new() });
    let whole = Span { failure: is_failed.then(whole_failure), ..whole };
    // Timings are known only from a report; for other outcomes, not even the last part is known.
    if !matches!(attempt.outcome, AttemptOutcome::Succeeded | AttemptOutcome::Failed) {
        return vec![whole];
    }

    let failing = error.and_then(|error| Part::failing_with(error.code));
    // An attempt whose runner was never ready reports no duration of any part: the part that failed takes all of the
    // time.
    let has_begun = attempt.outcome == AttemptOutcome::Succeeded || timing.run_ms > 0 || timing.loading_ms() > 0;
    let mut spans = vec![whole.clone()];
    let mut at_ms = whole.start_ms;
    for part in Part::ALL {
        let is_failing = failing == Some(part);
        let took_ms = match (is_failing, has_begun) {
            (true, false) => whole.end_ms - at_ms,
            _ => part.took_ms(timing),
        };
        let is_told = took_ms > 0 || is_failing || part == Part::Lease || has_begun && part.is_always_told();
        if !is_told {
            continue;
        }
        let (scope, name, word) = part.words();
        let end_ms = at_ms.saturating_add(took_ms);
        let span = Span::new(job, &named(number, word), scope, name, (at_ms, end_ms)).inside(&whole);
        let batch_size = Some(timing.batch_size).filter(|size| part == Part::Run && *size > 1);
        let span = span
            .maybe("stokehold.warm", (part.can_be_warm() && took_ms == 0).then_some(true))
            .maybe("stokehold.batch.size", batch_size);
        at_ms = span.end_ms;
        spans.push(Span { failure: failure.clone().filter(|_| is_failing), ..span });
        if is_failing {
            break;
        }
    }
    let report = Span::new(job, &named(number, "report"), Scope::Worker, "worker.report", (at_ms, whole.end_ms));
    spans.push(report.inside(&whole));
    spans
}

fn is_failed(outcome: AttemptOutcome) -> bool {
    match outcome {
        AttemptOutcome::Failed | AttemptOutcome::Lost | AttemptOutcome::Expired => true,
        AttemptOutcome::Running | AttemptOutcome::Succeeded | AttemptOutcome::Released | AttemptOutcome::Cancelled => {
            false
        }
    }
}

fn outcome(outcome: AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Running => "running",
        AttemptOutcome::Succeeded => "succeeded",
        AttemptOutcome::Failed => "failed",
        AttemptOutcome::Released => "released",
        AttemptOutcome::Lost => "lost",
        AttemptOutcome::Cancelled => "cancelled",
        AttemptOutcome::Expired => "expired",
    }
}
