//! The format of a batch's lines, and the errors of invalid ones.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use stokehold_queue::batches::LineFormat;

use crate::error::FieldError;
use crate::jobs::submit::check_metadata;
use crate::server::json;

/// Maximum length of a line, including its line end, bytes.
pub(crate) const LINE_MAX: usize = 1 << 20;

/// Maximum number of lines of a batch.
pub(crate) const LINES_MAX: u64 = 10_000_000;

/// Maximum size of a batch's input, bytes.
pub(crate) const INPUT_BYTES_MAX: u64 = 5 << 30;

const CUSTOM_ID_MAX: usize = 64;

/// Maximum length of a message about a line.
const MESSAGE_MAX: usize = 300;

/// A valid line.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) custom_id: Option<String>,
    pub(crate) input: Box<RawValue>,
    /// JSON pointer to the input within the line.
    pub(crate) at: &'static str,
    /// Endpoint of the line, instead of the batch's.
    pub(crate) endpoint: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Set when its `custom_id` must differ from all others.
    pub(crate) unique: bool,
}

/// An invalid line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The custom ID, if it could be read.
    pub(crate) custom_id: Option<String>,
    pub(crate) message: String,
}

impl Wrong {
    pub(crate) fn new(custom_id: Option<String>, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self { custom_id, message: message.chars().take(MESSAGE_MAX).collect() }
    }

    pub(crate) fn too_long() -> Self {
        Self::new(
            None,
            format!("the line is over {LINE_MAX} bytes; upload large values as files and reference them in the input"),
        )
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnLine {
    custom_id: Option<String>,
    input: Box<RawValue>,
    endpoint: Option<String>,
    metadata: Option<BTreeMap<String, String>>,
}

/// A line in OpenAI's format.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenaiLine {
    pub(crate) custom_id: String,
    method: String,
    pub(crate) url: String,
    pub(crate) body: Box<RawValue>,
}

/// The members that distinguish the formats.
#[derive(Deserialize)]
struct Glance {
    custom_id: Option<serde_json::Value>,
    input: Option<IgnoredAny>,
    url: Option<IgnoredAny>,
    body: Option<IgnoredAny>,
}

/// Parses a line.
pub(crate) fn parse(text: &[u8], format: LineFormat) -> Result<Item, Wrong> {
    if text.trim_ascii().is_empty() {
        return Err(Wrong::new(None, "the line is empty"));
    }
    let openai = match format {
        LineFormat::Stokehold => false,
        LineFormat::Openai => true,
        LineFormat::Auto => serde_json::from_slice::<Glance>(text)
            .is_ok_and(|glance| glance.input.is_none() && (glance.url.is_some() || glance.body.is_some())),
    };
    let item = if openai { parse_openai(text) } else { parse_own(text) };
    item.map_err(|error| Wrong::new(custom_id_of(text), error.to_string()))
}

/// Extracts the custom ID of a line, if that much of it can be parsed.
pub(crate) fn custom_id_of(text: &[u8]) -> Option<String> {
    let glance: Glance = serde_json::from_slice(text).ok()?;
    glance.custom_id?.as_str().filter(|id| check_custom_id(id).is_ok()).map(str::to_owned)
}

fn parse_own(text: &[u8]) -> Result<Item, json::Error> {
    let line: OwnLine = json::parse(text)?;
    if let Some(id) = &line.custom_id {
        check_custom_id(id)?;
    }
    let metadata = line.metadata.unwrap_or_default();
    check_metadata(&metadata, "")?;
    Ok(Item {
        custom_id: line.custom_id,
        input: line.input,
        at: "/input",
        endpoint: line.endpoint,
        metadata,
        unique: false,
    })
}

fn parse_openai(text: &[u8]) -> Result<Item, json::Error> {
    let line = openai_line(text)?;
    Ok(Item {
        custom_id: Some(line.custom_id),
        input: line.body,
        at: "/body",
        endpoint: None,
        metadata: BTreeMap::new(),
        unique: true,
    })
}

/// Parses a line in OpenAI's format.
pub(crate) fn openai_line(text: &[u8]) -> Result<OpenaiLine, json::Error> {
    let line: OpenaiLine = json::parse(text)?;
    check_custom_id(&line.custom_id)?;
    if line.method != "POST" {
        return Err(FieldError::new("/method", "must be POST").into());
    }
    if !line.url.starts_with("/v1/") {
        return Err(FieldError::new("/url", "must be a path below /v1/").into());
    }
    Ok(line)
}

fn check_custom_id(id: &str) -> Result<(), FieldError> {
    if matches!(id.chars().count(), 1..=CUSTOM_ID_MAX) && !id.chars().any(char::is_control) {
        return Ok(());
    }
    Err(FieldError::new("/custom_id", format!("must be 1 to {CUSTOM_ID_MAX} printable characters")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: LineFormat) -> Result<Item, Wrong> {
        parse(text.as_bytes(), format)
    }

    #[test]
    fn both_formats_are_read_and_told_apart() {
        let own = r#"{"custom_id": "a", "input": {"text": "x"}, "endpoint": "echo", "metadata": {"k": "v"}}"#;
        let openai = r#"{"custom_id": "b", "method": "POST", "url": "/v1/embeddings", "body": {"text": "y"}}"#;
        for format in [LineFormat::Auto, LineFormat::Stokehold] {
            let item = read(own, format).unwrap();
            assert_eq!(
                (item.custom_id.as_deref(), item.input.get(), item.at),
                (Some("a"), r#"{"text": "x"}"#, "/input")
            );
            assert_eq!(
                (item.endpoint.as_deref(), item.metadata["k"].as_str(), item.unique),
                (Some("echo"), "v", false)
            );
        }
        for format in [LineFormat::Auto, LineFormat::Openai] {
            let item = read(openai, format).unwrap();
            assert_eq!(
                (item.custom_id.as_deref(), item.input.get(), item.at),
                (Some("b"), r#"{"text": "y"}"#, "/body")
            );
            assert!(item.unique && item.endpoint.is_none());
        }
        assert_eq!(read(r#"{"input": null}"#, LineFormat::Auto).unwrap().custom_id, None);
        assert!(read(own, LineFormat::Openai).is_err() && read(openai, LineFormat::Stokehold).is_err());
    }

    #[test]
    fn every_mistake_says_where_it_is() {
        let long = format!(r#"{{"custom_id": "{}", "input": 1}}"#, "x".repeat(65));
        let deep = format!(r#"{{"input": {}1{}}}"#, "[".repeat(70), "]".repeat(70));
        for (text, wanted) in [
            ("", "empty"),
            ("  ", "empty"),
            ("{", "not valid JSON"),
            ("[1]", "must be a string, not 1"),
            (r#"{"custom_id": "a"}"#, "input"),
            (r#"{"input": 1, "inputs": 2}"#, "inputs"),
            (r#"{"input": 1, "input": 2}"#, "input"),
            (r#"{"input": 1, "custom_id": 5}"#, "/custom_id"),
            (r#"{"input": 1, "custom_id": ""}"#, "/custom_id"),
            (r#"{"input": 1, "metadata": {"": "x"}}"#, "/metadata"),
            (&long, "/custom_id"),
            (&deep, "deeper"),
            (r#"{"custom_id": "a", "method": "GET", "url": "/v1/x", "body": {}}"#, "/method"),
            (r#"{"custom_id": "a", "method": "POST", "url": "https://x", "body": {}}"#, "/url"),
            (r#"{"method": "POST", "url": "/v1/x", "body": {}}"#, "custom_id"),
        ] {
            let wrong = read(text, LineFormat::Auto).unwrap_err();
            assert!(wrong.message.contains(wanted), "{text}: {}", wrong.message);
        }
        assert!(parse(b"{\"input\": \"\xff\"}", LineFormat::Auto).is_err());
        let named = read(r#"{"custom_id": "a", "input": 1, "more": 2}"#, LineFormat::Auto).unwrap_err();
        assert_eq!(named.custom_id.as_deref(), Some("a"), "a wrong line is called by its name where it has one");
    }
}
