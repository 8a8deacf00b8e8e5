//! JSON of requests and responses: bounded, strict, and with errors that name the place.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use serde_path_to_error::{Path, Segment};
use stokehold_queue::json_in_words;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{Code, FieldError, INTERNAL, Problem};
use crate::tenants::turns::Turn;

/// Maximum nesting of arrays and objects.
pub(crate) const DEPTH_MAX: usize = 64;

/// Maximum body size of most routes, bytes.
pub(crate) const BODY_MAX: usize = 1 << 20;

/// Longest pause within a body, and longest time for all of it.
pub(crate) const BODY_IDLE: Duration = Duration::from_secs(15);
const BODY_TOTAL: Duration = Duration::from_secs(60);

/// Maximum number of bytes over the limit that are read and dropped, so that a client that is still sending receives
/// the response.
const DRAIN_MAX: usize = 16 << 20;
const DRAIN_FOR: Duration = Duration::from_secs(2);

/// A JSON body of at most `LIMIT` bytes. The content type is not checked, because no other is possible.
pub(crate) struct Json<T, const LIMIT: usize = BODY_MAX>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned, const LIMIT: usize> FromRequest<S> for Json<T, LIMIT> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let turn = request.extensions().get::<Turn>().cloned();
        let body = read(request, LIMIT).await?;
        if let Some(turn) = turn {
            turn.begin(body.len()).await?;
        }
        Ok(Self(parse(&body)?))
    }
}

/// Reads a body of at most `limit` bytes.
async fn read(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse::<u64>().ok());
    let announced = request.headers().contains_key(EXPECT);
    let mut body = request.into_body();
    let too_large = || {
        let upload =
            "upload large values with POST /v1/files and reference them in the input as {\"$file\": \"<file id>\"}";
        Problem::new(Code::BodyTooLarge, format!("the body is over this route's limit of {limit} bytes; {upload}"))
    };
    if declared.is_some_and(|bytes| bytes > limit as u64) {
        if !announced {
            drain(body).await;
        }
        return Err(too_large());
    }
    let deadline = Instant::now() + BODY_TOTAL;
    let slow = |_| Problem::new(Code::BodyTimeout, "the body stopped arriving; send it without pauses");
    let mut whole = BytesMut::new();
    while let Some(frame) =
        timeout_at(deadline, timeout(BODY_IDLE, body.frame())).await.and_then(|frame| frame).map_err(slow)?
    {
        let frame = frame.map_err(|_| Problem::new(Code::InvalidRequest, "the body ended early"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > limit {
            drain(body).await;
            return Err(too_large());
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Reads and drops the rest of a body that is refused.
pub(crate) async fn drain(mut body: Body) {
    let discard = async {
        let mut dropped = 0;
        while let Some(Ok(frame)) = body.frame().await {
            dropped += frame.data_ref().map_or(0, Bytes::len);
            if dropped > DRAIN_MAX {
                break;
            }
        }
    };
    let _ = timeout(DRAIN_FOR, discard).await;
}

/// Serialises a response. A value that cannot be serialised indicates a bug, and never becomes an empty response.
pub(crate) fn write(answer: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(answer).map_err(|error| Problem::new(Code::Internal, INTERNAL).caused_by(error))
}

/// Like [`write`], on one line, for a stream that has begun: a value that cannot be serialised becomes an error line.
pub(crate) fn write_line(data: &impl Serialize) -> String {
    match serde_json::to_string(data) {
        // Submitted JSON may contain line breaks between its tokens, where they have no meaning.
        Ok(text) => text.replace(['\r', '\n'], " "),
        Err(error) => {
            tracing::error!(%error, "a line cannot be serialised as JSON");
            r#"{"error":"internal"}"#.to_owned()
        }
    }
}

/// Reasons for which a JSON text is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The text is nested too deeply.
    #[error("the JSON is nested deeper than {DEPTH_MAX} levels; flatten it")]
    TooDeep,
    /// The text is not JSON.
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    /// A member is invalid.
    #[error(transparent)]
    Field(#[from] FieldError),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::TooDeep => Self::new(Code::TooDeep, error.to_string()),
            Error::Syntax(_) => Self::new(Code::InvalidJson, error.to_string()),
            Error::Field(error) => error.into(),
        }
    }
}

/// Parses a request's body.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    if depth(body) > DEPTH_MAX {
        return Err(Error::TooDeep);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = pointer(error.path());
        refusal(&path, error.inner())
    })?;
    deserializer.end().map_err(|error| refusal("", &error))?;
    Ok(parsed)
}

fn refusal(path: &str, error: &serde_json::Error) -> Error {
    if error.is_data() {
        return FieldError::new(path, json_in_words(error)).into();
    }
    Error::Syntax(error.to_string())
}

/// Deepest nesting of a text, counted without parsing it.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn pointer(path: &Path) -> String {
    path.iter().fold(String::new(), |pointer, segment| match segment {
        Segment::Seq { index } => format!("{pointer}/{index}"),
        Segment::Map { key } => {
            format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
        }
        Segment::Enum { .. } | Segment::Unknown => pointer,
    })
}

/// Parses free-form JSON and refuses an object with a duplicate member, because its meaning is ambiguous. `at` is its
/// JSON pointer.
pub(crate) fn strict_value(text: &str, at: &str) -> Result<Value, FieldError> {
    if let Ok(Strict(value)) = serde_json::from_str(text) {
        return Ok(value);
    }
    // Parsed again with the path, which is needed only for refused text.
    let mut deserializer = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, Strict>(&mut deserializer) {
        Ok(Strict(value)) => Ok(value),
        Err(error) => {
            Err(FieldError { path: format!("{at}{}", pointer(error.path())), message: json_in_words(error.inner()) })
        }
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(de::Error::custom(format_args!("duplicate member `{name}`")));
            }
            let Strict(value) = members.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// Checks that a text is JSON, without parsing it to a value.
pub(crate) fn raw_text(text: String) -> Result<Box<RawValue>, Problem> {
    RawValue::from_string(text).map_err(|error| Error::Syntax(error.to_string()).into())
}

/// Serialises a value to raw JSON.
pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    // Serialising a value cannot fail: its members' names are strings and its numbers finite.
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use stokehold_queue::in_words;

    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        assert_eq!(depth(br#"{"a": [1, {"b": 2}]}"#), 3);
        assert_eq!(depth(br#"["[[[", "\"[[["]"#), 1);
        assert_eq!(depth(b"[]]]][["), 2);
    }

    #[test]
    fn messages_name_no_types_of_rust() {
        for (serde, ours) in [
            (
                r#"invalid type: string "soon", expected u32"#,
                r#"must be a whole number from 0 to 4294967295, not "soon""#,
            ),
            ("invalid value: integer `-1`, expected u64", "must be a whole number of at least 0, not -1"),
            ("invalid type: floating point `1.5`, expected i64", "must be a whole number, not 1.5"),
            ("invalid type: null, expected struct OwnLine", "must be an object, not null"),
            ("invalid length 1, expected struct OwnLine with 4 elements", "must be an object, not length 1"),
            ("invalid type: map, expected a sequence", "must be an array, not an object"),
            ("invalid type: sequence, expected a map", "must be an object, not an array"),
            ("invalid type: boolean `true`, expected f64", "must be a number, not true"),
            ("data did not match any variant of untagged enum Either", "does not have any of the allowed forms"),
            ("unknown field `a`, expected one of `b`, `c`", "unknown field `a`, expected one of `b`, `c`"),
            ("unknown variant `a`, expected `b` or `c`", "unknown variant `a`, expected `b` or `c`"),
            ("missing field `input`", "missing field `input`"),
        ] {
            assert_eq!(in_words(serde), ours);
        }
        #[derive(Debug, serde::Deserialize)]
        struct OwnLine {
            #[expect(dead_code, reason = "it is only read into")]
            n: Option<u32>,
        }
        let said = |body: &str| parse::<OwnLine>(body.as_bytes()).unwrap_err().to_string();
        assert_eq!(said("7"), "the JSON must be an object, not 7");
        assert_eq!(said(r#"{"n": "x"}"#), "/n: must be a whole number from 0 to 4294967295, not \"x\"");
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_no_empty_answer() {
        let keys_are_no_strings = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!(write(&keys_are_no_strings).unwrap_err().code(), Code::Internal);
        assert_eq!(write_line(&keys_are_no_strings), r#"{"error":"internal"}"#);
        assert_eq!((write(&[1]).unwrap(), write_line(&"a")), (b"[1]".to_vec(), "\"a\"".to_owned()));
    }

    #[test]
    fn a_member_given_twice_is_refused_where_it_stands() {
        assert_eq!(strict_value(r#"{"a": [1, null, "x", 2.5, {"b": -1}]}"#, "/input").unwrap()["a"][4]["b"], -1);
        let error = strict_value(r#"{"a": [{"b": 1, "b": 2}]}"#, "/input").unwrap_err();
        assert_eq!((error.path.as_str(), error.message.as_str()), ("/input/a/0", "duplicate member `b`"));
    }

    #[test]
    fn refusals_tell_broken_json_from_wrong_fields() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wanted {
            #[expect(dead_code, reason = "only its parsing is of interest")]
            n: u32,
        }
        let code = |text: &str| Problem::from(parse::<Wanted>(text.as_bytes()).unwrap_err()).code();
        assert_eq!(code("{"), Code::InvalidJson);
        assert_eq!(code(r#"{"n": 1} x"#), Code::InvalidJson);
        assert_eq!(code(r#"{"n": "1"}"#), Code::InvalidRequest);
        assert_eq!(code(r#"{"n": 1, "m": 2}"#), Code::InvalidRequest);
        assert_eq!(code(r#"{"n": 1, "n": 2}"#), Code::InvalidRequest);
        assert_eq!(code(&"[".repeat(10_000)), Code::TooDeep);
    }
}
