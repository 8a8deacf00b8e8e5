//! Builds a job's trace from its stored records. Pure: the same records give the same spans.

use stokehold_queue::JobId;
use stokehold_queue::job::{Attempt, AttemptOutcome, Job, JobState, SpanId, Stage, TraceId};
use stokehold_queue::outbox::{Delivery, DeliveryState, Try};
use url::Url;

use super::attempt;
use super::span::{Attribute, Kind, Scope, Span, SpanError, Value};

/// Longest time between a job's creation and its place in the queue that counts as part of the submit, milliseconds. It
/// takes one script; longer is a wait.
const SUBMIT_MAX_MS: u64 = 3_000;

/// The trace of a job in its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobTrace {
    pub(crate) trace_id: TraceId,
    /// The caller's span, which contains the job.
    pub(crate) caller: Option<SpanId>,
    /// The span of the whole job first, then its parts in the order of their start.
    pub(crate) spans: Vec<Span>,
    /// The jobs of its steps, and the job that it retries: other parts of the same trace.
    pub(crate) links: Vec<SpanId>,
}

/// ID of the root span of a job's trace.
pub(crate) fn root_of(job: JobId) -> SpanId {
    SpanId::of(job, ROOT)
}

const ROOT: &str = "job";

/// Builds the spans as of `now_ms`.
pub(crate) fn trace_of(job: &Job, deliveries: &[Delivery], now_ms: u64) -> JobTrace {
    let root = root(job, deliveries, now_ms);
    let until_ms = job.ended_ms.unwrap_or(now_ms);
    let mut parts = waits(job, &root, until_ms);
    parts.extend(job.attempts.iter().flat_map(|attempt| attempt::spans(job.id, attempt, &root, until_ms)));
    parts.extend(deliveries.iter().flat_map(|delivery| webhook(job.id, delivery, &root)));
    // The sort is stable: a part stays before its own parts when both start at once.
    parts.sort_by_key(|part| part.start_ms);
    let steps = job.steps.iter().map(|step| root_of(step.job));
    JobTrace {
        trace_id: job.trace_id(),
        caller: job.spec.trace.map(|caller| caller.span_id),
        links: steps.chain(job.spec.retry_of.map(root_of)).collect(),
        spans: std::iter::once(root).chain(parts).collect(),
    }
}

/// Span of the whole job: from its caller's call to its last known event.
fn root(job: &Job, deliveries: &[Delivery], now_ms: u64) -> Span {
    let spec = &job.spec;
    let tries = deliveries.iter().flat_map(|delivery| &delivery.tries);
    let start_ms = job.created_ms().saturating_sub(spec.sdk_ms.unwrap_or_default());
    let end_ms = tries.map(end_of).chain([job.ended_ms.unwrap_or(now_ms)]).max().unwrap_or(now_ms);
    let failure = match job.state {
        JobState::Failed | JobState::Expired => job.error.as_ref(),
        JobState::Scheduled
        | JobState::Blocked
        | JobState::Queued
        | JobState::Running
        | JobState::Succeeded
        | JobState::Cancelled => None,
    };
    let words = [
        ("stokehold.job.id", Some(job.id.to_string())),
        ("stokehold.job.state", Some(job.state.as_str().to_owned())),
        ("stokehold.tenant", Some(spec.tenant.clone())),
        ("stokehold.endpoint", Some(spec.endpoint.clone())),
        ("stokehold.batch.id", spec.batch.as_ref().map(|line| line.id.clone())),
        ("stokehold.schedule.id", spec.schedule.clone()),
        ("stokehold.retry_of", spec.retry_of.map(|job| job.to_string())),
        ("stokehold.step_of", spec.step_of.map(|job| job.to_string())),
    ];
    let words = words.into_iter().filter_map(|(name, word)| Some((name, Value::Text(word?))));
    let numbers = [
        ("stokehold.endpoint.version", Value::from(spec.version)),
        ("stokehold.attempts", Value::from(job.attempts.len() as u64)),
    ];
    let attributes: Vec<Attribute> = words.chain(numbers).collect();
    Span {
        id: root_of(job.id),
        attributes,
        failure: failure.map(|error| SpanError { code: error.code.as_str(), class: error.class.clone() }),
        ..Span::new(job.id, ROOT, Scope::Job, "job", (start_ms, end_ms))
    }
}

/// Spans of everything but attempts: the call, and the waits before, between and after attempts.
fn waits(job: &Job, root: &Span, until_ms: u64) -> Vec<Span> {
    let created_ms = job.created_ms();
    let span = |part: &str, scope, name, times| Span::new(job.id, part, scope, name, times).inside(root);
    let mut spans = Vec::new();
    if job.spec.sdk_ms.is_some() {
        spans.push(span("sdk", Scope::Sdk, "sdk.submit", (root.start_ms, created_ms)).kind(Kind::Client));
    }
    // The time at which the job entered the queue, if it has.
    let ready_ms = job.attempts.first().map(ready_at).map_or(until_ms, |ready_ms| ready_ms.max(created_ms));
    let is_direct = !job.attempts.is_empty() && ready_ms - created_ms <= SUBMIT_MAX_MS && !has_waited(job);
    let submitted_ms = if is_direct { ready_ms } else { created_ms };
    spans.push(span("api", Scope::Api, "api.submit", (created_ms, submitted_ms)).kind(Kind::Server));
    if !is_direct && ready_ms > created_ms {
        spans.push(span("wait", Scope::Queue, first_wait(job), (created_ms, ready_ms)));
    }
    let mut before: Option<&Attempt> = None;
    for attempt in &job.attempts {
        let (number, ready_ms) = (attempt.attempt, ready_at(attempt));
        if let Some(ended_ms) = before.and_then(|before| before.ended_ms).filter(|ended_ms| ready_ms > *ended_ms) {
            spans.push(span(&format!("{number}/backoff"), Scope::Queue, "queue.backoff", (ended_ms, ready_ms)));
        }
        let queued = span(&format!("{number}/queue"), Scope::Queue, "queue.wait", (ready_ms, attempt.leased_ms));
        spans.push(queued.with("stokehold.attempt", number));
        before = Some(attempt);
    }
    // The time after the last attempt: the wait for the next attempt, or steps.
    if let Some((last, ended_ms)) = before.and_then(|last| Some((last, last.ended_ms?)))
        && until_ms > ended_ms
    {
        let name = if last.outcome == AttemptOutcome::Succeeded { "queue.steps" } else { standing(job.state) };
        spans.push(span("after", Scope::Queue, name, (ended_ms, until_ms)));
    }
    spans
}

/// Time at which an attempt's job entered the queue for that attempt, Unix milliseconds.
fn ready_at(attempt: &Attempt) -> u64 {
    attempt.leased_ms.saturating_sub(attempt.timing.queued_ms)
}

/// Returns whether the options of the submit delayed the job.
fn has_waited(job: &Job) -> bool {
    let is_guarded = job.spec.steps.iter().any(|step| step.stage == Stage::Before);
    !job.spec.depends_on.is_empty() || is_guarded || job.spec.batch.is_some()
}

/// Name of the wait before a job first entered the queue; for a job that has not, its current wait.
fn first_wait(job: &Job) -> &'static str {
    match job.attempts.first() {
        Some(first) if first.attempt > 1 => "queue.earlier_attempts",
        Some(_) if job.spec.batch.is_some() => "queue.feed",
        Some(_) if has_waited(job) => "queue.blocked",
        Some(_) => "queue.scheduled",
        None if has_waited(job) && job.spec.batch.is_none() => "queue.blocked",
        None => standing(job.state),
    }
}

/// Name of the current or last wait of a job in this state.
fn standing(state: JobState) -> &'static str {
    match state {
        JobState::Scheduled => "queue.scheduled",
        JobState::Blocked => "queue.blocked",
        JobState::Queued
        | JobState::Running
        | JobState::Succeeded
        | JobState::Failed
        | JobState::Cancelled
        | JobState::Expired => "queue.wait",
    }
}

/// Spans of a delivery and its attempts.
fn webhook(job: JobId, delivery: &Delivery, root: &Span) -> Vec<Span> {
    let first_ms = delivery.tries.first().map_or(delivery.created_ms, |tried| tried.at_ms);
    let end_ms = match (delivery.state, delivery.tries.last()) {
        (DeliveryState::Pending, _) => root.end_ms,
        (DeliveryState::Delivered | DeliveryState::Exhausted | DeliveryState::Disabled, last) => {
            last.map_or(delivery.created_ms, end_of)
        }
    };
    let has_failed = matches!(delivery.state, DeliveryState::Exhausted | DeliveryState::Disabled);
    let whole = Span {
        failure: has_failed.then(|| SpanError { code: delivery.state.as_str(), class: String::new() }),
        ..Span::new(job, &delivery.id, Scope::Webhook, "webhook.deliver", (delivery.created_ms.min(first_ms), end_ms))
    };
    let whole = whole
        .inside(root)
        .with("stokehold.webhook.event", delivery.event.as_str())
        .with("stokehold.webhook.state", delivery.state.as_str())
        .maybe("server.address", host(&delivery.url));
    let tries = delivery.tries.iter().map(|tried| {
        // The number of an attempt changes when older ones are dropped, but its time does not.
        let part = format!("{}/{}", delivery.id, tried.at_ms);
        let failed = tried.error.is_some() || tried.status.is_none_or(|status| !(200..300).contains(&status));
        let span = Span::new(job, &part, Scope::Webhook, "webhook.try", (tried.at_ms, end_of(tried)));
        let span = Span { failure: failed.then(|| SpanError { code: "no_2xx", class: String::new() }), ..span };
        span.inside(&whole)
            .kind(Kind::Client)
            .maybe("http.response.status_code", tried.status.map(u32::from))
            .maybe("server.address", host(&delivery.url))
    });
    let tries: Vec<Span> = tries.collect();
    std::iter::once(whole).chain(tries).collect()
}

fn end_of(tried: &Try) -> u64 {
    tried.at_ms.saturating_add(tried.duration_ms)
}

/// Host of a URL only: the rest may be a secret.
fn host(url: &str) -> Option<String> {
    Url::parse(url).ok()?.host_str().map(str::to_owned)
}
