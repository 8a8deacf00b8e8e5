//! Traces in OpenTelemetry's protocol. The protocol's own types write both of its formats.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyOf;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as ProtoSpan, Status};

use super::job_trace::JobTrace;
use super::span::{Attribute, Kind, Scope, Span, SpanError, Value};

const NANOS_PER_MS: u64 = 1_000_000;

/// Builds the request to a collector, which is also the response of `GET /v1/jobs/{id}/trace`: one resource, with its
/// spans grouped by component.
pub(crate) fn request(service: &str, traces: &[JobTrace]) -> ExportTraceServiceRequest {
    let mut by_scope: BTreeMap<Scope, Vec<ProtoSpan>> = BTreeMap::new();
    for trace in traces {
        for (number, span) in trace.spans.iter().enumerate() {
            by_scope.entry(span.scope).or_default().push(proto_span(trace, span, number == 0));
        }
    }
    let scope_spans = Scope::ALL.into_iter().filter_map(|scope| Some((scope, by_scope.remove(&scope)?)));
    let scope_spans = scope_spans.map(|(scope, spans)| {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let scope =
            InstrumentationScope { name: scope.as_str().to_owned(), version, ..InstrumentationScope::default() };
        ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }
    });
    let named = [("service.name", Value::from(service))];
    let resource = Resource { attributes: named.iter().map(attribute).collect(), ..Resource::default() };
    let spans =
        ResourceSpans { resource: Some(resource), scope_spans: scope_spans.collect(), ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }
}

fn proto_span(trace: &JobTrace, span: &Span, is_root: bool) -> ProtoSpan {
    let parent = if is_root { trace.caller } else { span.parent };
    let links = trace.links.iter().filter(|_| is_root).map(|job| Link {
        trace_id: trace.trace_id.bytes().to_vec(),
        span_id: job.bytes().to_vec(),
        ..Link::default()
    });
    ProtoSpan {
        trace_id: trace.trace_id.bytes().to_vec(),
        span_id: span.id.bytes().to_vec(),
        parent_span_id: parent.map(|parent| parent.bytes().to_vec()).unwrap_or_default(),
        name: span.name.to_owned(),
        kind: kind(span.kind).into(),
        start_time_unix_nano: span.start_ms * NANOS_PER_MS,
        end_time_unix_nano: span.end_ms * NANOS_PER_MS,
        attributes: span.attributes.iter().map(attribute).collect(),
        events: span.failure.iter().map(|failure| exception(failure, span.end_ms)).collect(),
        links: links.collect(),
        status: Some(status(span.failure.as_ref())),
        ..ProtoSpan::default()
    }
}

fn kind(kind: Kind) -> SpanKind {
    match kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Server => SpanKind::Server,
        Kind::Client => SpanKind::Client,
        Kind::Consumer => SpanKind::Consumer,
    }
}

fn status(failure: Option<&SpanError>) -> Status {
    match failure {
        Some(failure) => Status { message: failure.code.to_owned(), code: StatusCode::Error.into() },
        None => Status::default(),
    }
}

fn exception(failure: &SpanError, at_ms: u64) -> Event {
    let class = if failure.class.is_empty() { failure.code } else { failure.class.as_str() };
    let facts = [("exception.type", Value::from(class)), ("error.type", Value::from(failure.code))];
    Event {
        time_unix_nano: at_ms * NANOS_PER_MS,
        name: "exception".to_owned(),
        attributes: facts.iter().map(attribute).collect(),
        ..Event::default()
    }
}

fn attribute((name, value): &Attribute) -> KeyValue {
    let value = match value {
        Value::Text(text) => AnyOf::StringValue(text.clone()),
        Value::Number(number) => AnyOf::IntValue(i64::try_from(*number).unwrap_or(i64::MAX)),
        Value::Flag(flag) => AnyOf::BoolValue(*flag),
    };
    KeyValue { key: (*name).to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
