use serde_json::value::RawValue;
use stokehold_queue::job::{
    Attempt, AttemptOutcome, ErrorCode, HookEvent, Job, JobError, JobSpec, JobState, SpanId, Timing, TraceContext,
    TraceId,
};
use stokehold_queue::outbox::{Delivery, DeliveryState, Try};
use stokehold_queue::{Fence, JobId};

use super::job_trace::{JobTrace, root_of, trace_of};
use super::span::Span;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A job and the time of its creation, from which all times are counted.
fn job(attempts: Vec<Attempt>, state: JobState, ended_after_ms: Option<u64>) -> (Job, u64) {
    let id = JobId::new(0);
    let from_ms = id.created_ms();
    let attempts = attempts.into_iter().map(|attempt| Attempt {
        leased_ms: from_ms + attempt.leased_ms,
        ended_ms: attempt.ended_ms.map(|ended_ms| from_ms + ended_ms),
        ..attempt
    });
    let job = Job {
        id,
        spec: JobSpec { tenant: "acme".into(), endpoint: "echo".into(), version: 1, ..JobSpec::default() },
        input: RawValue::NULL.to_owned(),
        state,
        attempts: attempts.collect(),
        result: None,
        held: None,
        error: None,
        progress: None,
        oom_events: 0,
        run_after_ms: None,
        ended_ms: ended_after_ms.map(|ended_ms| from_ms + ended_ms),
        steps: Vec::new(),
        revision: String::new(),
    };
    (job, from_ms)
}

fn attempt(number: u32, (leased_ms, ended_ms): (u64, u64), outcome: AttemptOutcome, timing: Timing) -> Attempt {
    Attempt {
        attempt: number,
        worker_id: "w_1".into(),
        fence: Fence("1.a".into()),
        leased_ms,
        ended_ms: Some(ended_ms),
        outcome,
        timing,
        cost_usd_micros: None,
        usage: None,
        error: None,
    }
}

fn error(code: ErrorCode) -> JobError {
    JobError { code, class: "Oops".into(), message: "the input was secret".into(), traceback: None, stderr: None }
}

/// Each span: its name, its start and end after the job's creation, and its error.
fn told(trace: &JobTrace, from_ms: u64) -> Vec<(&'static str, i64, i64, &'static str)> {
    let after = |ms: u64| i64::try_from(ms).unwrap() - i64::try_from(from_ms).unwrap();
    let row = |span: &Span| {
        (span.name, after(span.start_ms), after(span.end_ms), span.failure.as_ref().map_or("", |failure| failure.code))
    };
    trace.spans.iter().map(row).collect()
}

fn is_warm(trace: &JobTrace, name: &str) -> bool {
    trace.spans.iter().any(|span| span.name == name && span.attributes.contains(&("stokehold.warm", true.into())))
}

/// Invariants of every trace: one root, each other span inside an existing parent, and no span twice.
fn assert_is_sound(trace: &JobTrace) {
    let find = |id: SpanId| trace.spans.iter().find(|span| span.id == id).unwrap();
    for (number, span) in trace.spans.iter().enumerate() {
        assert_eq!(span.parent.is_none(), number == 0, "{span:?}");
        assert_eq!(trace.spans.iter().filter(|other| other.id == span.id).count(), 1, "{span:?}");
        if let Some(parent) = span.parent.map(find) {
            assert!(parent.start_ms <= span.start_ms && span.end_ms <= parent.end_ms, "{span:?} in {parent:?}");
        }
    }
}

#[test]
fn a_cold_job_shows_every_part_of_its_way() {
    let timing = Timing {
        queued_ms: 40,
        turn_ms: 5,
        env_ms: 300,
        weights_ms: 100,
        boot_ms: 50,
        load_ms: 400,
        warmup_ms: 20,
        inputs_ms: 10,
        run_ms: 90,
        upload_ms: 15,
        batch_size: 4,
        sharers_milli: 0,
    };
    let (mut job, from_ms) =
        job(vec![attempt(1, (42, 1_042), AttemptOutcome::Succeeded, timing)], JobState::Succeeded, Some(1_042));
    job.spec.sdk_ms = Some(7);
    job.spec.trace = TraceContext::parse(CALLER);
    let tried = |at_ms, status| Try { at_ms: from_ms + at_ms, status: Some(status), error: None, duration_ms: 30 };
    let delivery = Delivery {
        id: format!("msg_{}_completed", job.id),
        event: HookEvent::JobCompleted,
        subject: job.id.to_string(),
        tenant: "acme".into(),
        url: "https://example.com/hook?key=secret".into(),
        created_ms: from_ms + 1_042,
        state: DeliveryState::Delivered,
        next_try_ms: None,
        tried: 2,
        held_ms: 0,
        tries: vec![tried(1_050, 503), tried(1_200, 204)],
    };
    let trace = trace_of(&job, std::slice::from_ref(&delivery), from_ms + 99_999);
    assert_eq!(
        told(&trace, from_ms),
        [
            ("job", -7, 1_230, ""),
            ("sdk.submit", -7, 0, ""),
            ("api.submit", 0, 2, ""),
            ("queue.wait", 2, 42, ""),
            ("worker.attempt", 42, 1_042, ""),
            ("worker.lease", 42, 47, ""),
            ("worker.environment", 47, 347, ""),
            ("worker.weights", 347, 447, ""),
            ("runner.boot", 447, 497, ""),
            ("runner.load", 497, 897, ""),
            ("runner.warmup", 897, 917, ""),
            ("worker.inputs", 917, 927, ""),
            ("runner.run", 927, 1_017, ""),
            ("worker.upload", 1_017, 1_032, ""),
            ("worker.report", 1_032, 1_042, ""),
            ("webhook.deliver", 1_042, 1_230, ""),
            ("webhook.try", 1_050, 1_080, "no_2xx"),
            ("webhook.try", 1_200, 1_230, ""),
        ]
    );
    assert_is_sound(&trace);
    assert_eq!(
        (trace.trace_id.to_string().as_str(), trace.caller.unwrap().to_string().as_str()),
        (&CALLER[3..35], &CALLER[36..52])
    );
    assert!(!format!("{trace:?}").contains("secret"), "only the host of a URL");
    assert_eq!(trace_of(&job, &[delivery], from_ms + 999_999), trace, "the same at every call");
}

#[test]
fn a_warm_job_shows_what_took_no_time_and_that_it_was_warm() {
    let timing = Timing { queued_ms: 3, run_ms: 8, ..Timing::default() };
    let (job, from_ms) =
        job(vec![attempt(1, (3, 14), AttemptOutcome::Succeeded, timing)], JobState::Succeeded, Some(14));
    let trace = trace_of(&job, &[], from_ms + 99);
    assert_eq!(
        told(&trace, from_ms),
        [
            ("job", 0, 14, ""),
            ("api.submit", 0, 0, ""),
            ("queue.wait", 0, 3, ""),
            ("worker.attempt", 3, 14, ""),
            ("worker.lease", 3, 3, ""),
            ("worker.environment", 3, 3, ""),
            ("runner.boot", 3, 3, ""),
            ("runner.load", 3, 3, ""),
            ("runner.run", 3, 11, ""),
            ("worker.upload", 11, 11, ""),
            ("worker.report", 11, 14, ""),
        ]
    );
    for part in ["worker.environment", "runner.boot", "runner.load"] {
        assert!(is_warm(&trace, part), "{part}");
    }
    assert!(!is_warm(&trace, "worker.upload"));
    assert_is_sound(&trace);
    assert_eq!(trace.trace_id, TraceId::of(job.id));
}

#[test]
fn failed_attempts_say_in_which_part_and_backoffs_lie_between() {
    let failed = |number, times, code, timing| Attempt {
        error: Some(error(code)),
        ..attempt(number, times, AttemptOutcome::Failed, timing)
    };
    let ran = Timing { queued_ms: 5, run_ms: 20, ..Timing::default() };
    let attempts = vec![
        failed(1, (10, 110), ErrorCode::SetupFailed, Timing { queued_ms: 10, ..Timing::default() }),
        attempt(2, (1_115, 1_200), AttemptOutcome::Lost, Timing { queued_ms: 5, ..Timing::default() }),
        failed(3, (1_205, 1_230), ErrorCode::HandlerError, ran),
    ];
    let (mut job, from_ms) = job(attempts, JobState::Failed, Some(1_230));
    job.error = Some(error(ErrorCode::HandlerError));
    let trace = trace_of(&job, &[], from_ms + 5_000);
    assert_eq!(
        told(&trace, from_ms),
        [
            ("job", 0, 1_230, "handler_error"),
            ("api.submit", 0, 0, ""),
            ("queue.wait", 0, 10, ""),
            ("worker.attempt", 10, 110, "setup_failed"),
            ("worker.lease", 10, 10, ""),
            ("runner.load", 10, 110, "setup_failed"),
            ("queue.backoff", 110, 1_110, ""),
            ("worker.report", 110, 110, ""),
            ("queue.wait", 1_110, 1_115, ""),
            ("worker.attempt", 1_115, 1_200, "lost"),
            ("queue.wait", 1_200, 1_205, ""),
            ("worker.attempt", 1_205, 1_230, "handler_error"),
            ("worker.lease", 1_205, 1_205, ""),
            ("worker.environment", 1_205, 1_205, ""),
            ("runner.boot", 1_205, 1_205, ""),
            ("runner.load", 1_205, 1_205, ""),
            ("runner.run", 1_205, 1_225, "handler_error"),
            ("worker.report", 1_225, 1_230, ""),
        ]
    );
    assert!(!format!("{trace:?}").contains("the input was secret"), "messages are the job's, not its trace's");
    assert_is_sound(&trace);
}

#[test]
fn what_has_not_ended_is_told_up_to_now() {
    let (queued, from_ms) = job(Vec::new(), JobState::Queued, None);
    let trace = trace_of(&queued, &[], from_ms + 500);
    assert_eq!(told(&trace, from_ms), [("job", 0, 500, ""), ("api.submit", 0, 0, ""), ("queue.wait", 0, 500, "")]);
    assert_is_sound(&trace);

    let running = Attempt {
        ended_ms: None,
        ..attempt(1, (9_000, 0), AttemptOutcome::Running, Timing { queued_ms: 10, ..Timing::default() })
    };
    let (running, from_ms) = job(vec![running], JobState::Running, None);
    let trace = trace_of(&running, &[], from_ms + 9_400);
    assert_eq!(
        told(&trace, from_ms),
        [
            ("job", 0, 9_400, ""),
            ("api.submit", 0, 0, ""),
            ("queue.scheduled", 0, 8_990, ""),
            ("queue.wait", 8_990, 9_000, ""),
            ("worker.attempt", 9_000, 9_400, ""),
        ]
    );
    assert_is_sound(&trace);
}

#[test]
fn clocks_that_differ_lead_no_part_out_of_the_whole() {
    // The worker's parts are longer than the attempt, the queue's clock is behind the API's, and a receiver answered
    // before the end.
    let timing = Timing { queued_ms: 900, load_ms: 800, run_ms: u64::MAX, ..Timing::default() };
    let (mut job, from_ms) =
        job(vec![attempt(1, (0, 100), AttemptOutcome::Succeeded, timing)], JobState::Succeeded, Some(100));
    job.attempts[0].leased_ms -= 500;
    let tried = Try { at_ms: from_ms - 800, status: None, error: Some("no answer".into()), duration_ms: 5 };
    let delivery = Delivery {
        id: format!("msg_{}_started_1", job.id),
        event: HookEvent::JobStarted,
        subject: job.id.to_string(),
        tenant: "acme".into(),
        url: "not a url".into(),
        created_ms: from_ms,
        state: DeliveryState::Pending,
        next_try_ms: Some(from_ms + 5_000),
        tried: 1,
        held_ms: 0,
        tries: vec![tried],
    };
    assert_is_sound(&trace_of(&job, &[delivery], from_ms));
}

#[test]
fn a_retry_points_at_the_job_that_it_tries_again() {
    let (mut job, from_ms) = job(Vec::new(), JobState::Queued, None);
    let before = JobId::new(0);
    job.spec.retry_of = Some(before);
    assert_eq!(trace_of(&job, &[], from_ms).links, [root_of(before)]);
}
