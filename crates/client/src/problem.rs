//! Problem responses of the API (RFC 9457).

use std::borrow::Cow;
use std::fmt;

use reqwest::Response;
use serde::Deserialize;
use serde_json::Value;

/// A problem response of the API.
#[derive(Debug, Default, Deserialize, thiserror::Error)]
#[serde(default)]
pub struct Problem {
    status: u16,
    /// The kind of problem.
    pub code: String,
    detail: String,
    errors: Vec<FieldProblem>,
    /// What depends on the object that the request wanted to delete (code `in_use`).
    pub dependents: Vec<Value>,
    /// What the program adds to the text, on a line of its own.
    #[serde(skip)]
    pub(crate) hint: Option<Cow<'static, str>>,
}

impl Problem {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// What the program adds to the text.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Sets what to add to the text.
    #[must_use]
    pub fn with_hint(self, hint: String) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// The API did not respond.
#[derive(Debug, thiserror::Error)]
#[error("{message}{hint}")]
pub struct Unreachable {
    pub(crate) message: String,
    /// What the program adds to the text.
    pub hint: &'static str,
}

#[derive(Debug, Deserialize)]
struct FieldProblem {
    path: String,
    message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.as_str() {
            "" => write!(f, "the API returned status {}", self.status)?,
            detail => f.write_str(detail)?,
        }
        // A single error is already part of the detail.
        for FieldProblem { path, message } in self.errors.iter().filter(|error| !self.detail.contains(&error.message)) {
            match path.as_str() {
                "" => write!(f, "\n  {message}")?,
                path => write!(f, "\n  {path}: {message}")?,
            }
        }
        match &self.hint {
            Some(hint) => write!(f, "\n{hint}"),
            None => Ok(()),
        }
    }
}

/// Whether the error is transient: the API was unreachable, or the cause is not the request.
#[must_use]
pub fn may_pass(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Problem>().is_none_or(|problem| problem.status == 429 || problem.status >= 500)
}

/// Reads a response with an error status.
pub(crate) async fn read(answer: Response, hint: fn(&str) -> Option<&'static str>) -> anyhow::Error {
    let status = answer.status();
    match answer.json::<Problem>().await {
        Ok(problem) => Problem { hint: hint(&problem.code).map(Cow::from), ..problem }.into(),
        Err(_) => {
            let detail =
                format!("the server returned {status} without an error message; check that the URL is a Stokehold API");
            Problem { status: status.as_u16(), detail, ..Problem::default() }.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_what_to_change() {
        let mut problem: Problem = serde_json::from_str(
            r#"{"type": "about:blank", "title": "x", "status": 422, "code": "invalid_input", "detail": "the input does not match",
                "errors": [{"path": "/text", "message": "is required"}]}"#,
        )
        .expect("is one");
        assert_eq!(problem.to_string(), "the input does not match\n  /text: is required");
        problem.hint = Some("Run it again.".into());
        assert_eq!(problem.to_string(), "the input does not match\n  /text: is required\nRun it again.");
        let problem: Problem = serde_json::from_str(
            r#"{"type": "about:blank", "title": "x", "status": 400, "code": "invalid_request", "detail": "the request does not match",
                "errors": [{"path": "", "message": "must be an object"}]}"#,
        )
        .expect("is one");
        assert_eq!(problem.to_string(), "the request does not match\n  must be an object");
    }
}
