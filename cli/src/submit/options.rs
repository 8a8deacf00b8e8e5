//! Short forms of the flags of a job, e.g. `KEY=VALUE` and `NAME@VERSION`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use stokehold_client::Word;

use crate::failure::{Failure, require};

/// Parses a value of the API's enums. The help lists the values.
pub(crate) fn words<T: Word>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::WORDS).map(T::from)
}

/// A list as a request member: none if the flag is not given.
pub(super) fn list(given: &[String]) -> Option<Vec<String>> {
    Some(given.to_vec()).filter(|list| !list.is_empty())
}

/// Parses labels, each KEY=VALUE: none if the flag is not given.
pub(crate) fn labels(pairs: &[String]) -> Result<Option<BTreeMap<String, String>>> {
    let labels: Result<BTreeMap<String, String>> =
        pairs.iter().map(|pair| pair_of(pair).map(|(key, value)| (key.to_owned(), value.to_owned()))).collect();
    Ok(Some(labels?).filter(|labels| !labels.is_empty()))
}

/// Parses `KEY` or `KEY:MAX`. A key may contain colons: only a number after the last one is a MAX.
pub(super) fn concurrency(text: Option<&str>) -> Result<(Option<String>, Option<u32>)> {
    let Some(text) = text else { return Ok((None, None)) };
    let (key, max) = match text.rsplit_once(':').map(|(key, max)| (key, max.parse::<u32>())) {
        Some((key, Ok(max))) => (key, Some(max)),
        _ => (text, None),
    };
    require!(!key.is_empty() && max != Some(0), "{text:?} is not KEY[:MAX]; use e.g. user-7 or user-7:3");
    Ok((Some(key.to_owned()), max))
}

/// Parses dependencies, each `ID` or `ID:completion`: none if the flag is not given.
pub(super) fn dependencies(given: &[String]) -> Result<Option<Vec<Value>>> {
    let jobs: Result<Vec<Value>> = given.iter().map(|job| dependency(job)).collect();
    Ok(Some(jobs?).filter(|jobs| !jobs.is_empty()))
}

fn dependency(text: &str) -> Result<Value> {
    let (job, on) = text.split_once(':').unwrap_or((text, "success"));
    require!(
        !job.is_empty() && matches!(on, "success" | "completion"),
        "{text:?} is not ID or ID:completion; ID waits until the other job succeeds, ID:completion until it ends in any state"
    );
    Ok(json!({"job": job, "on": on}))
}

/// Parses NAME or NAME@VERSION.
pub(crate) fn endpoint(text: &str) -> Result<(String, Option<u32>)> {
    let Some((name, version)) = text.split_once('@') else { return Ok((text.to_owned(), None)) };
    let number = version
        .parse()
        .with_context(|| Failure::usage(format!("{version:?} is not a version; versions are numbers from 1")))?;
    Ok((name.to_owned(), Some(number)))
}

/// Splits KEY=VALUE.
pub(crate) fn pair_of(text: &str) -> Result<(&str, &str)> {
    pair_as(text, "KEY=VALUE")
}

/// Splits a pair whose form is shown as `form`, e.g. `KEY=PATH`.
pub(crate) fn pair_as<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str)> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.with_context(|| Failure::usage(format!("{text:?} is not {form}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_concurrency_key_may_have_a_maximum_and_colons() {
        let parsed = ["user-7", "user-7:3", "a:b", "a:b:2"].map(|text| concurrency(Some(text)).unwrap());
        let expected = [("user-7", None), ("user-7", Some(3)), ("a:b", None), ("a:b", Some(2))];
        assert_eq!(parsed, expected.map(|(key, max)| (Some(key.to_owned()), max)));
        assert!(concurrency(Some(":3")).is_err() && concurrency(Some("a:0")).is_err());
    }

    #[test]
    fn dependencies_say_after_what() {
        assert_eq!(dependency("0192").unwrap(), json!({"job": "0192", "on": "success"}));
        assert_eq!(dependency("0192:completion").unwrap(), json!({"job": "0192", "on": "completion"}));
        assert!(dependency("0192:failure").unwrap_err().to_string().contains("ID:completion"));
    }

    #[test]
    fn endpoints_may_have_a_version() {
        assert_eq!(endpoint("echo@2").unwrap(), ("echo".to_owned(), Some(2)));
        assert_eq!(endpoint("echo").unwrap(), ("echo".to_owned(), None));
        assert!(endpoint("echo@new").is_err());
    }
}
