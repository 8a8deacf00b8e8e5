//! The trace contexts that callers send with a submit and that others receive for a job: W3C Trace Context.

use axum::http::HeaderMap;
use stokehold_queue::JobId;
use stokehold_queue::job::{JobSpec, NewJob, SpanId, TraceContext, TraceId};

use super::attempt::run_of;
use super::job_trace::root_of;
use super::sampler::Sampler;

/// Header with the start of the call by the caller's clock, Unix milliseconds.
pub(crate) const CALLED: &str = "stokehold-called-ms";

/// Maximum age of a call's start, milliseconds. An earlier one is ignored, because the caller's clock must be wrong.
const CALLED_MAX_MS: u64 = 10 * 60 * 1000;

/// The trace context of a caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Called {
    trace: Option<TraceContext>,
    called_ms: Option<u64>,
}

impl Called {
    /// Reads the headers. Invalid ones are ignored.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            trace: text("traceparent").and_then(TraceContext::parse),
            called_ms: text(CALLED).and_then(|text| text.trim().parse().ok()),
        }
    }

    /// Writes the context into a job. Clocks differ: a start in the future counts as now.
    pub(crate) fn mark(&self, job: &mut NewJob) {
        job.spec.trace = self.trace;
        let so_far = |called_ms: u64| job.id.created_ms().saturating_sub(called_ms);
        job.spec.sdk_ms = self.called_ms.map(so_far).filter(|ms| *ms <= CALLED_MAX_MS);
    }
}

/// Trace context of a job as a whole: the parent of its steps.
pub(crate) fn of_job(sampler: &Sampler, id: JobId, spec: &JobSpec) -> TraceContext {
    at(sampler, id, spec, root_of(id))
}

/// Trace context of a run: the parent of a handler's own spans.
pub(crate) fn of_run(sampler: &Sampler, id: JobId, spec: &JobSpec, attempt: u32) -> TraceContext {
    at(sampler, id, spec, SpanId::of(id, &run_of(attempt)))
}

/// Trace context of a delivery: the parent of a receiver's own spans.
pub(crate) fn of_delivery(sampler: &Sampler, id: JobId, spec: &JobSpec, message: &str) -> TraceContext {
    at(sampler, id, spec, SpanId::of(id, message))
}

fn at(sampler: &Sampler, id: JobId, spec: &JobSpec, span_id: SpanId) -> TraceContext {
    let trace_id = spec.trace.map_or(TraceId::of(id), |trace| trace.trace_id);
    TraceContext { trace_id, span_id, is_sampled: sampler.samples(spec.trace, trace_id) }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn marked(headers: &[(&'static str, String)]) -> JobSpec {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let mut job = NewJob::new(JobId::new(0), JobSpec::default(), RawValue::NULL.to_owned());
        Called::of(&map).mark(&mut job);
        job.spec
    }

    #[test]
    fn a_call_that_says_nothing_leaves_the_spec_as_it_was() {
        assert_eq!(marked(&[]), JobSpec::default());
        assert_eq!(marked(&[("traceparent", "00-no".into()), (CALLED, "soon".into())]), JobSpec::default());
    }

    #[test]
    fn a_clock_that_is_wrong_is_not_believed() {
        let now_ms = stokehold_queue::now_ms();
        let sdk_ms = |called_ms: u64| marked(&[(CALLED, called_ms.to_string())]).sdk_ms;
        assert_eq!(sdk_ms(now_ms + 60_000), Some(0));
        assert_eq!(sdk_ms(0), None);
        assert!(sdk_ms(now_ms - 5_000).is_some_and(|ms| (5_000..CALLED_MAX_MS).contains(&ms)));
    }

    #[test]
    fn a_run_and_a_delivery_are_parts_of_the_callers_trace() {
        let spec = marked(&[("traceparent", GIVEN.into())]);
        let id = JobId::new(0);
        let told = of_run(&Sampler::default(), id, &spec, 2).to_string();
        assert!(told.starts_with(&GIVEN[..36]) && told.ends_with("-01"), "{told}");
        assert_ne!(told, of_delivery(&Sampler::default(), id, &spec, "msg_1").to_string());
        let own = of_job(&Sampler::default(), id, &JobSpec::default()).to_string();
        assert!(own.starts_with(&format!("00-{id}-")), "{own}");
    }
}
