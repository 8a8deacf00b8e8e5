//! Job options that `stoke submit` and `stoke schedule create` share.

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

#[derive(Args, Debug, Default)]
pub(crate) struct JobOptions {
    /// Priority of the job [default: the endpoint's]
    #[arg(long, value_enum)]
    priority: Option<Priority>,
    /// Time limit of one attempt in seconds [default: the endpoint's]
    #[arg(long, value_name = "SECONDS")]
    timeout_s: Option<u64>,
    /// Maximum attempts [default: the endpoint's]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Time limit of the whole job in seconds, including retries; then it becomes `expired`
    #[arg(long, value_name = "SECONDS")]
    deadline_s: Option<u64>,
    /// Time limit of waiting for the first attempt in seconds; then it becomes `expired`
    #[arg(long, value_name = "SECONDS")]
    queue_timeout_s: Option<u64>,
    /// Seconds that the ended job stays in queue memory before it moves to history
    #[arg(long, value_name = "SECONDS")]
    retention_s: Option<u64>,
    /// Run at most MAX jobs with this key at the same time [default MAX: 1]
    #[arg(long, value_name = "KEY[:MAX]")]
    concurrency_key: Option<String>,
    /// https URL to notify when the job ends
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Event to send to the webhook; may be repeated [default: job.completed]
    #[arg(long, value_name = "EVENT", requires = "webhook",
        value_parser = ["job.started", "job.output", "job.progress", "job.completed"])]
    webhook_event: Vec<String>,
    /// Label of the job; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Priority {
    Interactive,
    Standard,
    Batch,
}

impl Priority {
    /// The API's name of the priority.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Standard => "standard",
            Self::Batch => "batch",
        }
    }
}

impl JobOptions {
    /// The given options as request members.
    pub(crate) fn members(&self) -> Result<Map<String, Value>> {
        let (key, max) = match self.concurrency_key.as_deref().map(concurrency) {
            Some(parsed) => parsed.map(|(key, max)| (Some(key), max))?,
            None => (None, None),
        };
        let events = Some(&self.webhook_event).filter(|events| !events.is_empty());
        let labels = if self.metadata.is_empty() { None } else { Some(metadata(&self.metadata)?) };
        let given = [
            ("priority", self.priority.map(|priority| priority.word().into())),
            ("timeout_s", self.timeout_s.map(Value::from)),
            ("max_attempts", self.max_attempts.map(Value::from)),
            ("deadline_s", self.deadline_s.map(Value::from)),
            ("queue_timeout_s", self.queue_timeout_s.map(Value::from)),
            ("retention_s", self.retention_s.map(Value::from)),
            ("concurrency_key", key.map(Value::from)),
            ("concurrency_max", max.map(Value::from)),
            ("webhook", self.webhook.clone().map(Value::from)),
            ("webhook_events", events.map(|events| json!(events))),
            ("metadata", labels.map(Value::from)),
        ];
        Ok(given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    }
}

/// Parses `KEY` or `KEY:MAX`. A key may contain colons: only a number after the last one is a MAX.
fn concurrency(text: &str) -> Result<(&str, Option<u32>)> {
    let (key, max) = match text.rsplit_once(':').map(|(key, max)| (key, max.parse::<u32>())) {
        Some((key, Ok(max))) => (key, Some(max)),
        _ => (text, None),
    };
    ensure!(!key.is_empty() && max != Some(0), "{text:?} is not KEY[:MAX]; use e.g. user-7 or user-7:3");
    Ok((key, max))
}

/// Parses `ID` or `ID:completion` to an item of `depends_on`.
pub(crate) fn dependency(text: &str) -> Result<Value> {
    let (job, on) = text.split_once(':').unwrap_or((text, "success"));
    ensure!(
        !job.is_empty() && matches!(on, "success" | "completion"),
        "{text:?} is not ID or ID:completion; ID waits until the other job succeeds, ID:completion until it ends in any state"
    );
    Ok(json!({"job": job, "on": on}))
}

/// Parses NAME or NAME@VERSION.
pub(crate) fn endpoint(text: &str) -> Result<Map<String, Value>> {
    let mut members = Map::new();
    let name = match text.split_once('@') {
        Some((name, version)) => {
            let number: u32 = version
                .parse()
                .with_context(|| format!("{version:?} is not a version; versions are numbers from 1"))?;
            members.insert("version".to_owned(), number.into());
            name
        }
        None => text,
    };
    members.insert("endpoint".to_owned(), name.into());
    Ok(members)
}

/// Parses labels to an object.
pub(crate) fn metadata(pairs: &[String]) -> Result<Map<String, Value>> {
    pairs.iter().map(|pair| pair_of(pair).map(|(key, value)| (key.to_owned(), value.into()))).collect()
}

/// Splits KEY=VALUE.
pub(crate) fn pair_of(text: &str) -> Result<(&str, &str)> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.with_context(|| format!("{text:?} is not KEY=VALUE"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_concurrency_key_may_have_a_maximum_and_colons() {
        let parsed = ["user-7", "user-7:3", "a:b", "a:b:2"].map(|text| concurrency(text).unwrap());
        assert_eq!(parsed, [("user-7", None), ("user-7", Some(3)), ("a:b", None), ("a:b", Some(2))]);
        assert!(concurrency(":3").is_err() && concurrency("a:0").is_err());
    }

    #[test]
    fn dependencies_say_after_what() {
        assert_eq!(dependency("0192").unwrap(), json!({"job": "0192", "on": "success"}));
        assert_eq!(dependency("0192:completion").unwrap(), json!({"job": "0192", "on": "completion"}));
        assert!(dependency("0192:failure").unwrap_err().to_string().contains("ID:completion"));
    }

    #[test]
    fn endpoints_may_have_a_version() {
        assert_eq!(Value::from(endpoint("echo@2").unwrap()), json!({"endpoint": "echo", "version": 2}));
        assert!(endpoint("echo@new").is_err());
    }
}
