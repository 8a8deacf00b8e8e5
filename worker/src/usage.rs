//! The tokens in a result: its `usage`, in the form of OpenAI's API.
//!
//! ```text
//! {"usage": {…}, …}                              an answer
//! [{…}, …, {"usage": {…}, "choices": []}]        the chunks of a stream; the last one with a usage counts
//! [{…}, …, {"response": {"usage": {…}, …}, …}]   the events of a stream of the Responses API
//! ```
//!
//! A usage is `{"prompt_tokens": …, "completion_tokens": …, "prompt_tokens_details": {"cached_tokens": …}}`; the
//! Responses API says `input` for `prompt`, and `output` for `completion`. A number that is none counts as 0.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use stokehold_protocol::job::TokenUsage;

/// Maximum size of a usage, bytes. Engines write some hundred.
const USAGE_BYTES_MAX: usize = 16 << 10;

/// The tokens in a result.
///
/// # Errors
/// When the text is not JSON, as far as it has to be read.
pub(crate) fn in_result(text: &str) -> Result<Option<TokenUsage>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let usage = Place::Result.deserialize(&mut reader)?;
    reader.end()?;
    Ok(usage.and_then(|usage| read(usage.get())))
}

/// Whether a result may have a usage. Most results have none, and need no parser.
pub(crate) fn may_be_in(text: &str) -> bool {
    text.contains("\"usage\"")
}

fn read(text: &str) -> Option<TokenUsage> {
    if text.len() > USAGE_BYTES_MAX {
        return None;
    }
    let usage: Value = serde_json::from_str(text).ok()?;
    let number = |names: [&str; 2], of: &Value| names.iter().find_map(|name| of.get(name)?.as_u64()).unwrap_or(0);
    let details = ["prompt_tokens_details", "input_tokens_details"].iter().find_map(|name| usage.get(name));
    TokenUsage {
        prompt_tokens: number(["prompt_tokens", "input_tokens"], &usage),
        cached_tokens: details.map_or(0, |details| number(["cached_tokens"; 2], details)),
        completion_tokens: number(["completion_tokens", "output_tokens"], &usage),
    }
    .checked()
}

/// A place in a result where a usage may be. Everything else is skipped, and values of other types have none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Result,
    Chunk,
    Response,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Member {
    Usage,
    Response,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Place {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut usage = None;
        while let Some(member) = members.next_key()? {
            match member {
                Member::Usage => {
                    usage = Some(members.next_value::<&RawValue>()?).filter(|usage| usage.get() != "null").or(usage);
                }
                Member::Response if self == Self::Chunk => {
                    usage = members.next_value_seed(Self::Response)?.or(usage);
                }
                Member::Response | Member::Other => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(usage)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        if self != Self::Result {
            return IgnoredAny.visit_seq(items).map(|_| None);
        }
        let mut last = None;
        while let Some(usage) = items.next_element_seed(Self::Chunk)? {
            last = usage.or(last);
        }
        Ok(last)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(result: &str) -> Option<[u64; 3]> {
        in_result(result).unwrap().map(|usage| usage.numbers())
    }

    #[test]
    fn each_form_of_a_result_has_its_tokens() {
        for (result, expected) in [
            // Chat completions, completions and embeddings.
            (
                r#"{"choices": [{"usage": 1}], "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17,
                    "prompt_tokens_details": {"cached_tokens": 8}}}"#,
                Some([12, 8, 5]),
            ),
            (r#"{"data": [], "usage": {"prompt_tokens": 9, "total_tokens": 9}}"#, Some([9, 0, 0])),
            (
                r#"{"usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": null}}"#,
                Some([9, 0, 1]),
            ),
            // Responses.
            (
                r#"{"object": "response", "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 2},
                    "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 1}}}"#,
                Some([7, 2, 3]),
            ),
            // Streams: the last chunk with a usage, and `usage` in each chunk with what has been written so far.
            (
                r#"[{"choices": [{}], "usage": null}, {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 6}},
                    {"usage": null}, "[DONE]"]"#,
                Some([4, 0, 6]),
            ),
            (
                r#"[{"usage": {"prompt_tokens": 4, "completion_tokens": 1}},
                    {"usage": {"prompt_tokens": 4, "completion_tokens": 2}}]"#,
                Some([4, 0, 2]),
            ),
            (
                r#"[{"type": "response.created", "response": {"usage": null, "output": []}}, {"type": "delta", "response": "x"},
                    {"type": "response.completed", "response": {"output": [{"usage": 3}], "usage": {"input_tokens": 7, "output_tokens": 3}}}]"#,
                Some([7, 0, 3]),
            ),
            // Nothing to count.
            (r#"{"usage": null}"#, None),
            (r#"{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}"#, None),
            (r#"{"response": {"usage": {"prompt_tokens": 1}}}"#, None),
            (r#"[[{"usage": {"prompt_tokens": 1}}], {"choices": [{"usage": {"prompt_tokens": 1}}]}]"#, None),
            (r#"["usage", 1, -1, 0.5, true, null, [], {}]"#, None),
            (r#""usage""#, None),
            ("null", None),
            // Wrong types and impossible numbers.
            (r#"{"usage": "many"}"#, None),
            (r#"{"usage": [{"prompt_tokens": 3}]}"#, None),
            (r#"{"usage": {"prompt_tokens": "3", "completion_tokens": 4}}"#, Some([0, 0, 4])),
            (r#"{"usage": {"prompt_tokens": -3, "completion_tokens": 4.5}}"#, None),
            (r#"{"usage": {"prompt_tokens": 1e3, "completion_tokens": [4], "prompt_tokens_details": 5}}"#, None),
            (
                r#"{"usage": {"prompt_tokens": 1099511627776, "completion_tokens": 1099511627777}}"#,
                Some([1 << 40, 0, 0]),
            ),
            (
                r#"{"usage": {"prompt_tokens": 123456789012345678901234567890, "completion_tokens": 1}}"#,
                Some([0, 0, 1]),
            ),
            (r#"{"usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}}"#, Some([3, 3, 0])),
        ] {
            assert_eq!(tokens(result), expected, "{result}");
        }
    }

    #[test]
    fn a_usage_is_bounded_and_what_is_not_json_is_an_error() {
        let padded = format!(r#"{{"usage": {{"prompt_tokens": 3, "x": "{}"}}}}"#, "x".repeat(USAGE_BYTES_MAX));
        assert_eq!(tokens(&padded), None);
        for text in [r#"{"usage": {}"#, r#"{"usage": {}} 1"#, "[1,", ""] {
            assert!(in_result(text).is_err(), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(tokens(&format!(r#"{{"x": {deep}, "usage": {{"prompt_tokens": 3}}}}"#)), Some([3, 0, 0]));
        assert!(may_be_in(r#"{"usage":{}}"#) && !may_be_in(r#"{"use":"age"}"#));
    }
}
