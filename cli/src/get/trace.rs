//! `stoke get --trace`: a job's trace as a waterfall.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, segment};
use crate::output;

/// Minimum width of a bar, columns.
const BAR_MIN: usize = 20;
const BAR_MAX: usize = 100;

/// Width if the terminal's width is unknown.
const WIDTH: usize = 100;

/// Width of a duration such as `59 min 59 s`.
const TIME: usize = 11;

const NANOS_PER_MS: u64 = 1_000_000;

/// The members of OTLP/JSON that are shown.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trace {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
struct ScopeSpans {
    spans: Vec<Span>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    trace_id: String,
    span_id: String,
    #[serde(default)]
    parent_span_id: String,
    name: String,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    #[serde(default)]
    attributes: Vec<Attribute>,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Attribute {
    key: String,
    value: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
}

impl Span {
    fn start_ms(&self) -> u64 {
        millis(&self.start_time_unix_nano)
    }

    fn end_ms(&self) -> u64 {
        millis(&self.end_time_unix_nano)
    }

    fn took_ms(&self) -> u64 {
        self.end_ms().saturating_sub(self.start_ms())
    }

    /// An attribute as text. OTLP/JSON encodes integers as strings.
    fn attribute(&self, key: &str) -> Option<String> {
        let value = self.attributes.iter().find(|attribute| attribute.key == key)?.value.as_object()?;
        let value = value.values().next()?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// The note beside the bar.
    fn note(&self) -> String {
        let warm = self.attribute("stokehold.warm").map(|_| "warm".to_owned());
        let status = self.attribute("http.response.status_code").map(|status| format!("HTTP {status}"));
        let error = Some(&self.status.message).filter(|message| !message.is_empty());
        let error = error.map(|message| format!("failed: {message}"));
        let batch = self.attribute("stokehold.batch.size").map(|size| format!("one call for {size} jobs"));
        [warm, status, batch, error].into_iter().flatten().collect::<Vec<String>>().join(", ")
    }
}

fn millis(nanos: &str) -> u64 {
    nanos.parse::<u64>().unwrap_or_default() / NANOS_PER_MS
}

/// Prints a job's trace.
pub(super) async fn show(client: &Client, id: &str, json: bool) -> Result<()> {
    let trace = client.get(&format!("/v1/jobs/{}/trace", segment(id))).await?;
    if json {
        return output::json(&trace);
    }
    let width = console::Term::stdout().size_checked().map_or(WIDTH, |(_, columns)| usize::from(columns));
    output::line(waterfall(&trace, width)?.join("\n"))
}

/// Lines of the waterfall: one per span, children below their parent.
fn waterfall(trace: &Value, width: usize) -> Result<Vec<String>> {
    let trace = Trace::deserialize(trace).context("the API's response is not a trace")?;
    let scopes = trace.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    let mut spans: Vec<Span> = scopes.flat_map(|scope| scope.spans).collect();
    // A span of length 0 comes before others with the same start.
    spans.sort_by_key(|span| (span.start_ms(), span.end_ms()));
    let is_root = |span: &&Span| !spans.iter().any(|other| other.span_id == span.parent_span_id);
    let root = spans.iter().find(is_root).context("the trace has no root span")?;
    let mut rows = Vec::with_capacity(spans.len());
    rows_below(&spans, root, 0, &mut rows);

    let names = rows.iter().map(|(depth, span)| 2 * depth + span.name.len()).max().unwrap_or_default();
    let notes = rows.iter().map(|(_, span)| span.note().len()).max().unwrap_or_default();
    let bar = width.saturating_sub(names + TIME + notes + 6).clamp(BAR_MIN, BAR_MAX);
    let facts = ["stokehold.job.id", "stokehold.endpoint", "stokehold.job.state"].map(|key| root.attribute(key));
    let [job, endpoint, state] = facts.map(Option::unwrap_or_default);
    let mut lines = vec![format!("trace {} of job {job}: {endpoint}, {state}", root.trace_id)];
    lines.extend(rows.into_iter().map(|(depth, span)| {
        let name = format!("{:indent$}{}", "", span.name, indent = 2 * depth);
        let took = output::millis(span.took_ms());
        format!("{name:<names$}  {took:>TIME$}  {:<bar$}  {}", drawn(span, root, bar), span.note())
            .trim_end()
            .to_owned()
    }));
    Ok(lines)
}

fn rows_below<'a>(spans: &'a [Span], whole: &'a Span, depth: usize, rows: &mut Vec<(usize, &'a Span)>) {
    rows.push((depth, whole));
    // Guards against cycles of spans.
    if rows.len() > spans.len() {
        return;
    }
    for part in spans.iter().filter(|part| part.parent_span_id == whole.span_id && part.span_id != whole.span_id) {
        rows_below(spans, part, depth + 1, rows);
    }
}

/// Draws a span's bar: one block per column, or a thin line if it is shorter than a column.
fn drawn(span: &Span, root: &Span, columns: usize) -> String {
    let whole_ms = root.took_ms().max(1);
    let column = |ms: u64| usize::try_from(ms.min(whole_ms) * columns as u64 / whole_ms).unwrap_or(columns);
    let start = column(span.start_ms().saturating_sub(root.start_ms()));
    let end = column(span.end_ms().saturating_sub(root.start_ms()));
    let mark = if end > start { "█".repeat(end - start) } else { "▏".to_owned() };
    format!("{:indent$}{mark}", "", indent = start.min(columns - 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn span(id: &str, parent: &str, name: &str, (start_ms, end_ms): (u64, u64), attributes: &Value) -> Value {
        let nanos = |ms: u64| (1_700_000_000_000 + ms).to_string() + "000000";
        let status = if name == "runner.run" { json!({"code": 2, "message": "timeout"}) } else { json!({}) };
        json!({
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": id, "parentSpanId": parent, "name": name, "kind": 1,
            "startTimeUnixNano": nanos(start_ms), "endTimeUnixNano": nanos(end_ms), "attributes": attributes, "status": status,
        })
    }

    #[test]
    fn a_trace_is_drawn_part_below_whole_and_to_scale() {
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let facts = json!([
            text("stokehold.job.id", "02"),
            text("stokehold.endpoint", "echo"),
            text("stokehold.job.state", "failed")
        ]);
        let warm = json!([{"key": "stokehold.warm", "value": {"boolValue": true}}]);
        let shown = waterfall(
            &json!({"resourceSpans": [{"scopeSpans": [
                {"spans": [span("c", "b", "runner.load", (40, 40), &warm), span("d", "b", "runner.run", (40, 90), &json!([]))]},
                {"spans": [span("a", "outside", "job", (0, 100), &facts)]},
                {"spans": [span("b", "a", "worker.attempt", (20, 100), &json!([]))]},
            ]}]}),
            68,
        )
        .unwrap();
        assert_eq!(
            shown,
            [
                "trace 4bf92f3577b34da6a3ce929d0e0e4736 of job 02: echo, failed",
                "job                    100 ms  ████████████████████",
                "  worker.attempt        80 ms      ████████████████",
                "    runner.load          0 ms          ▏             warm",
                "    runner.run          50 ms          ██████████    failed: timeout",
            ]
        );
    }

    #[test]
    fn what_is_no_trace_is_an_error_and_no_panic() {
        assert!(waterfall(&json!({"resourceSpans": []}), 80).is_err());
        assert!(waterfall(&json!([1]), 80).is_err());
        let round = json!({"resourceSpans": [{"scopeSpans": [{"spans": [
            span("a", "", "job", (0, 0), &json!([])), span("b", "b", "self", (0, 0), &json!([])),
        ]}]}]});
        assert_eq!(waterfall(&round, 80).unwrap().len(), 2);
    }
}
