//! Retry policy of an endpoint, and the endpoints that run before and after its jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stokehold_queue::endpoint::StepConfig;
use stokehold_queue::job::{ErrorCode, RetryPolicy};
use utoipa::ToSchema;

use crate::error::Problem;
use crate::jobs::submit::TIMEOUT_MAX_S;
use crate::names;

/// Longest pause before a retry, seconds: a day.
pub(super) const BACKOFF_MAX_S: f64 = 24.0 * 3600.0;

pub(super) const STEPS_MAX: usize = 8;
const THRESHOLDS_MAX: usize = 64;

/// When and after which errors a job is retried. `max_attempts` limits how often.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RetryPolicy)]
pub(super) struct RetryRequest {
    /// The longest wait before the first retry, seconds; it doubles with each retry. Default 1.
    #[schema(minimum = 0, maximum = 86_400)]
    backoff_s: Option<f64>,
    /// The longest wait before any retry, seconds. Default 60.
    #[schema(minimum = 0, maximum = 86_400)]
    backoff_max_s: Option<f64>,
    /// The random part of the wait, 0 to 1. Default 0.5.
    #[schema(minimum = 0, maximum = 1)]
    jitter: Option<f64>,
    /// The job error codes that are retried. Default: all that may be.
    #[schema(value_type = Option<Vec<String>>)]
    on: Option<Vec<ErrorCode>>,
}

impl RetryRequest {
    pub(super) fn checked(self, at: &str) -> Result<RetryPolicy, Problem> {
        let standard = RetryPolicy::default();
        let millis = |seconds: Option<f64>, name: &str, standard: u64| match seconds {
            None => Ok(standard),
            Some(seconds) if (0.0..=BACKOFF_MAX_S).contains(&seconds) => Ok(whole(seconds * 1000.0)),
            Some(_) => Err(Problem::field(format!("{at}/{name}"), format!("must be 0 to {BACKOFF_MAX_S} seconds"))),
        };
        let jitter = self.jitter.unwrap_or(standard.jitter);
        if !(0.0..=1.0).contains(&jitter) {
            return Err(Problem::field(format!("{at}/jitter"), "must be 0 to 1"));
        }
        Ok(RetryPolicy {
            backoff_ms: millis(self.backoff_s, "backoff_s", standard.backoff_ms)?,
            backoff_max_ms: millis(self.backoff_max_s, "backoff_max_s", standard.backoff_max_ms)?,
            jitter,
            on: self.on.unwrap_or_default(),
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 0 and at most one day")]
fn whole(millis: f64) -> u64 {
    millis.round() as u64
}

impl From<RetryPolicy> for RetryRequest {
    fn from(policy: RetryPolicy) -> Self {
        let seconds = |millis: u64| Some(millis as f64 / 1000.0);
        Self {
            backoff_s: seconds(policy.backoff_ms),
            backoff_max_s: seconds(policy.backoff_max_ms),
            jitter: Some(policy.jitter),
            on: (!policy.on.is_empty()).then_some(policy.on),
        }
    }
}

/// An endpoint that decides on a job.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Step)]
pub(super) struct StepRequest {
    /// The step's name in the job's record. Default: its endpoint's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The endpoint that decides.
    endpoint: String,
    /// The version; default: the version that is current at each submit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    /// The highest allowed score of each label, 0 to 1.
    #[serde(default)]
    thresholds: BTreeMap<String, f64>,
    /// The longest that one attempt of the step may run, seconds. Default: the deciding endpoint's.
    #[schema(minimum = 1, maximum = 604_800)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_s: Option<u64>,
}

/// Checks a list of steps. The endpoints themselves are resolved at each submit, because they may be deployed later.
pub(super) fn checked(steps: Vec<StepRequest>, at: &str) -> Result<Vec<StepConfig>, Problem> {
    if steps.len() > STEPS_MAX {
        return Err(Problem::field(at, format!("must be at most {STEPS_MAX} steps")));
    }
    steps.into_iter().enumerate().map(|(n, step)| step.checked(&format!("{at}/{n}"))).collect()
}

impl StepRequest {
    fn checked(self, at: &str) -> Result<StepConfig, Problem> {
        let wrong = |member: &str, message: String| Err(Problem::field(format!("{at}/{member}"), message));
        if !names::is_name(&self.endpoint) {
            return wrong("endpoint", "must be an endpoint's name".to_owned());
        }
        let name = self.name.unwrap_or_else(|| self.endpoint.clone());
        if !names::is_name(&name) {
            return wrong("name", "must be 1 to 63 of a-z, 0-9 and -, and must not start with -".to_owned());
        }
        let sound = self.thresholds.values().all(|most| (0.0..=1.0).contains(most));
        if self.thresholds.len() > THRESHOLDS_MAX || !sound {
            return wrong("thresholds", format!("must be at most {THRESHOLDS_MAX} labels with a number of 0 to 1"));
        }
        if self.timeout_s.is_some_and(|seconds| !(1..=TIMEOUT_MAX_S).contains(&seconds)) {
            return wrong("timeout_s", format!("must be 1 to {TIMEOUT_MAX_S}"));
        }
        let Self { endpoint, version, thresholds, timeout_s, .. } = self;
        Ok(StepConfig { name, endpoint, version, thresholds, timeout_s })
    }
}

impl From<StepConfig> for StepRequest {
    fn from(step: StepConfig) -> Self {
        let StepConfig { name, endpoint, version, thresholds, timeout_s } = step;
        Self { name: Some(name), endpoint, version, thresholds, timeout_s }
    }
}
