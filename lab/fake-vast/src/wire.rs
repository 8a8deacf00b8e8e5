//! Calls and responses, without a socket.

use serde::Serialize;
use serde_json::{Value, json};

/// A call.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Method, e.g. `GET`.
    pub method: String,
    /// Path from the first slash on, without the query.
    pub path: String,
    /// Decoded query.
    pub query: Vec<(String, String)>,
    /// Headers; names are case-insensitive.
    pub headers: Vec<(String, String)>,
    /// Body as sent.
    pub body: Vec<u8>,
}

impl Request {
    /// Creates a call with a key and a JSON body; null sends no body.
    #[must_use]
    pub fn new(method: &str, path: &str, key: &str, body: &Value) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self {
            method: method.into(),
            path: path.into(),
            query: pairs.map(|(name, value)| (name.into(), value.into())).collect(),
            headers: vec![("authorization".into(), format!("Bearer {key}"))],
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
        }
    }

    /// The first parameter with this name.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// The first header with this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn bearer(&self) -> Option<&str> {
        self.header("authorization")?.strip_prefix("Bearer ").or_else(|| self.query("api_key"))
    }
}

/// How a response is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It is sent.
    #[default]
    Sent,
    /// The connection is closed instead.
    Closed,
    /// The connection stays open without a response, until the caller times out.
    Held,
}

/// A response.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers, including the content type.
    pub headers: Vec<(String, String)>,
    /// Body as sent.
    pub body: Vec<u8>,
    /// How it is delivered.
    pub delivery: Delivery,
}

impl Answer {
    /// A JSON document. Its content type has no character set, because the official client accepts no other.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::typed(status, "application/json", body.to_string().into_bytes())
    }

    /// Plain text.
    #[must_use]
    pub fn text(status: u16, text: &str) -> Self {
        Self::typed(status, "text/plain; charset=utf-8", text.as_bytes().to_vec())
    }

    pub(crate) fn typed(status: u16, kind: &str, body: Vec<u8>) -> Self {
        Self { status, headers: vec![("content-type".into(), kind.into())], body, delivery: Delivery::Sent }
    }

    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        Self::json(status, &json!({"success": false, "error": code, "msg": message}))
    }

    pub(crate) fn done() -> Self {
        Self::json(200, &json!({"success": true}))
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The body, if it is JSON; otherwise null.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}
