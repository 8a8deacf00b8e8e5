//! Log of all calls, with which tests check what a client sends.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::Value;

use crate::wire::{Answer, Delivery, Request};

/// A call.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// Time, seconds.
    pub at_s: f64,
    /// Method, e.g. `GET`.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Decoded query.
    pub query: Vec<(String, String)>,
    /// Headers without the values of keys.
    pub headers: Vec<(String, String)>,
    /// Body: JSON if it can be parsed, otherwise text.
    pub body: Value,
    /// Status of the response.
    pub status: u16,
    /// Delivery of the response.
    pub delivery: Delivery,
}

impl Call {
    /// The first header with this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// The last calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    calls: VecDeque<Call>,
    room: usize,
}

impl Log {
    pub(crate) fn of(room: usize) -> Self {
        Self { calls: VecDeque::new(), room }
    }

    pub(crate) fn write(&mut self, at_s: f64, request: &Request, answer: &Answer) {
        if self.room == 0 {
            return;
        }
        if self.calls.len() == self.room {
            self.calls.pop_front();
        }
        let body = match serde_json::from_slice(&request.body) {
            Ok(body) => body,
            Err(_) if request.body.is_empty() => Value::Null,
            Err(_) => String::from_utf8_lossy(&request.body).into(),
        };
        self.calls.push_back(Call {
            at_s,
            method: request.method.clone(),
            path: request.path.clone(),
            query: hidden(&request.query, "api_key"),
            headers: hidden(&request.headers, "authorization"),
            body,
            status: answer.status,
            delivery: answer.delivery,
        });
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter()
    }
}

/// Replaces the value of a secret by its scheme and dots.
fn hidden(pairs: &[(String, String)], secret: &str) -> Vec<(String, String)> {
    let hide = |(name, value): &(String, String)| {
        let is_secret = name.eq_ignore_ascii_case(secret);
        let scheme = value.split(' ').next().filter(|_| value.contains(' ')).unwrap_or_default();
        (name.clone(), if is_secret { format!("{scheme} ...").trim_start().to_owned() } else { value.clone() })
    };
    pairs.iter().map(hide).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_last_calls_are_kept_and_no_key() {
        let mut log = Log::of(2);
        for path in ["/a", "/b", "/c?api_key=secret"] {
            log.write(1.0, &Request::new("GET", path, "secret", &Value::Null), &Answer::done());
        }
        let paths: Vec<_> = log.calls().map(|call| call.path.clone()).collect();
        assert_eq!(paths, ["/b", "/c"]);
        assert_eq!(log.calls().next().unwrap().header("Authorization"), Some("Bearer ..."));
        assert!(!serde_json::to_string(&log.calls().collect::<Vec<_>>()).unwrap().contains("secret"));
    }
}
