//! The usage of a stream. An engine reports it only if `stream_options.include_usage` is set, in one more chunk. A
//! server is always asked for it, and a client that has not asked does not get the chunk. Pure.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use stokehold_queue::endpoint::{EndpointSpec, Runner};

use super::route::{Call, Form};

const MEMBER: &str = "stream_options";
const OPTION: &str = "include_usage";

/// The body of a stream that asks for the usage; `None` if it does already, or must not: a handler's function may not
/// take the member. `options` is the text of the body's `stream_options`, inside of `body`.
pub(super) fn asking(
    spec: &EndpointSpec,
    (form, call): (Form, Call),
    body: &str,
    options: Option<&RawValue>,
) -> Option<String> {
    let is_asked_for_it = matches!(call, Call::Chat | Call::Completions);
    if !is_asked_for_it || !matches!(spec.runner, Runner::Server(_)) || !permits(&spec.input_schema, form) {
        return None;
    }
    let Some(options) = options else {
        // A streamed body has further members.
        let rest = body.trim_start().strip_prefix('{')?;
        return Some(format!("{{\"{MEMBER}\":{{\"{OPTION}\":true}},{rest}"));
    };
    // The engine rejects options of another type.
    let mut new: Map<String, Value> = serde_json::from_str::<Option<_>>(options.get()).ok()?.unwrap_or_default();
    if new.insert(OPTION.to_owned(), true.into()) == Some(true.into()) {
        return None;
    }
    let from = (options.get().as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let (before, after) = (body.get(..from)?, body.get(from + options.get().len()..)?);
    Some(format!("{before}{}{after}", Value::from(new)))
}

/// Whether the schema of an endpoint permits the member.
fn permits(schema: &Value, form: Form) -> bool {
    let schema = match form {
        Form::Request => schema.pointer("/properties/body"),
        Form::Body | Form::Handler => Some(schema),
    };
    schema.is_none_or(|schema| {
        schema.get("additionalProperties") != Some(&false.into())
            || schema.get("properties").is_some_and(|known| known.get(MEMBER).is_some())
    })
}

/// Whether a chunk has nothing but the usage.
pub(super) fn is_usage(chunk: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Chunk {
        choices: Vec<IgnoredAny>,
        usage: Option<IgnoredAny>,
    }
    let text = chunk.get();
    text.contains("\"usage\"")
        && serde_json::from_str(text).is_ok_and(|chunk: Chunk| chunk.choices.is_empty() && chunk.usage.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(runner: Value, input_schema: Value) -> EndpointSpec {
        let spec = json!({
            "package_sha256": "", "package_size_bytes": 1, "entry": "", "input_schema": input_schema, "runner": runner,
        });
        serde_json::from_value(spec).unwrap()
    }

    fn server(input_schema: Value) -> EndpointSpec {
        spec(json!({"kind": "server", "command": ["serve"], "ready_path": "/health"}), input_schema)
    }

    fn asked(spec: &EndpointSpec, call: Call, body: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Head<'a> {
            #[serde(borrow)]
            stream_options: Option<&'a RawValue>,
        }
        let head: Head<'_> = serde_json::from_str(body).unwrap();
        asking(spec, (Form::Body, call), body, head.stream_options)
    }

    #[test]
    fn a_server_is_asked_for_the_usage_and_other_bytes_stay() {
        let server = server(json!({"type": "object"}));
        for (body, expected) in [
            (r#" {"seed": 1.50}"#, Some(r#"{"stream_options":{"include_usage":true},"seed": 1.50}"#)),
            (
                r#"{"stream_options": {"a": 1}, "x": 1.0}"#,
                Some(r#"{"stream_options": {"a":1,"include_usage":true}, "x": 1.0}"#),
            ),
            (r#"{"stream_options":{"include_usage":false}}"#, Some(r#"{"stream_options":{"include_usage":true}}"#)),
            (r#"{"stream_options": {"include_usage": true}}"#, None),
            (r#"{"stream_options": "all"}"#, None),
        ] {
            for call in [Call::Chat, Call::Completions] {
                assert_eq!(asked(&server, call, body).as_deref(), expected, "{body}");
            }
            assert_eq!(asked(&server, Call::Responses, body), None, "its last event has the usage");
        }
        let null = asked(&server, Call::Chat, r#"{"stream_options": null, "x": 1}"#);
        assert!(null.is_some_and(|body| body.starts_with(r#"{"stream_options""#) && body.contains("true")));
    }

    #[test]
    fn who_may_not_take_the_member_is_not_asked() {
        let body = r#"{"seed": 1}"#;
        assert_eq!(asked(&spec(json!({"kind": "python"}), json!({})), Call::Chat, body), None);
        let closed = json!({"properties": {"seed": {}}, "additionalProperties": false});
        let open = json!({"properties": {"seed": {}, "stream_options": {}}, "additionalProperties": false});
        assert_eq!(asked(&server(closed.clone()), Call::Chat, body), None);
        assert!(asked(&server(open), Call::Chat, body).is_some());
        let nested = json!({"properties": {"body": closed}});
        assert!(!permits(&nested, Form::Request) && permits(&nested, Form::Body));
        assert!(permits(&json!({"additionalProperties": false}), Form::Request));
    }

    #[test]
    fn only_a_chunk_without_choices_is_the_usage() {
        for (chunk, expected) in [
            (r#"{"choices": [], "usage": {"prompt_tokens": 1}}"#, true),
            (r#"{"choices": [{"index": 0}], "usage": {"prompt_tokens": 1}}"#, false),
            (r#"{"choices": [], "usage": null}"#, false),
            (r#"{"choices": []}"#, false),
            (r#"{"usage": {"prompt_tokens": 1}}"#, false),
            (r#""usage""#, false),
        ] {
            assert_eq!(is_usage(&RawValue::from_string(chunk.to_owned()).unwrap()), expected, "{chunk}");
        }
    }
}
