//! The requests of a load: one job repeated, or the lines of a file in turn.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use stokehold_client::models::SubmitRequest;

use crate::failure::{Failure, require};
use crate::submit::{input, options};

/// Request bodies, used in turn.
#[derive(Debug)]
pub(super) struct Requests(Vec<Value>);

impl Requests {
    /// The same job every time; `given` is an input in the format of `stoke submit --input`.
    pub(super) fn same(endpoint: &str, given: Option<&str>) -> Result<Self> {
        let (endpoint, version) = options::endpoint(endpoint)?;
        let request = SubmitRequest { endpoint, version, input: input::read(given)?, ..SubmitRequest::default() };
        Ok(Self(vec![serde_json::to_value(request)?]))
    }

    /// Reads one job per line of a file; lines that name no endpoint use `endpoint`.
    pub(super) fn from_file(path: &Path, endpoint: &str) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| Failure::cannot_read(path.display()))?;
        Self::from_lines(&text, endpoint).with_context(|| path.display().to_string())
    }

    /// Like [`Self::from_file`], from the text of the file.
    pub(super) fn from_lines(text: &str, endpoint: &str) -> Result<Self> {
        let (name, version) = options::endpoint(endpoint)?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let bodies = lines.map(|(at, line)| {
            let mut body: Value = serde_json::from_str(line)
                .with_context(|| Failure::usage(format!("line {} is not valid JSON", at + 1)))?;
            let members = body.as_object_mut().filter(|members| members.contains_key("input"));
            let members =
                members.with_context(|| Failure::usage(format!("line {} is not an object with \"input\"", at + 1)))?;
            if !members.contains_key("endpoint") {
                members.insert("endpoint".to_owned(), name.as_str().into());
                members.extend(version.map(|version| ("version".to_owned(), version.into())));
            }
            Ok(body)
        });
        let bodies: Vec<Value> = bodies.collect::<Result<_>>()?;
        require!(!bodies.is_empty(), "the file has no lines");
        Ok(Self(bodies))
    }

    /// The body of the `number`th request.
    pub(super) fn body(&self, number: u64) -> &Value {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of bodies")]
        let at = (number % self.0.len() as u64) as usize;
        &self.0[at]
    }

    /// The first body for `endpoint`.
    pub(super) fn first_of(&self, endpoint: &str) -> Option<&Value> {
        self.0.iter().find(|body| body["endpoint"] == endpoint)
    }

    /// The names of all endpoints, without duplicates.
    pub(super) fn endpoints(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.iter().filter_map(|body| body["endpoint"].as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_taken_in_turn() {
        let text = "{\"input\": {\"a\": 1}}\n\n{\"endpoint\": \"embed\", \"input\": {}}\n";
        let requests = Requests::from_lines(text, "echo@2").unwrap();
        assert_eq!(requests.body(2), &json!({"endpoint": "echo", "version": 2, "input": {"a": 1}}));
        assert_eq!(requests.body(3), &json!({"endpoint": "embed", "input": {}}));
        assert_eq!(requests.endpoints(), ["echo", "embed"]);
    }

    #[test]
    fn a_line_that_is_no_submit_is_named() {
        for (text, said) in [("{\"input\": 1}\n{", "line 2 is not valid JSON"), ("[1]", "line 1"), ("", "no lines")] {
            let error = format!("{:#}", Requests::from_lines(text, "echo").unwrap_err());
            assert!(error.contains(said), "{error}");
        }
    }
}
