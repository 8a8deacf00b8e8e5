//! The status that the leading autoscaler publishes.

use std::collections::BTreeMap;

use redis::AsyncCommands;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Registry, Term, readable, to_json};
use crate::error::Error;

/// A condition that an operator should act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Kind of the condition, followed by its subject if there can be several, e.g. `provider_unreachable vast`.
    #[serde(deserialize_with = "notice_kind")]
    pub kind: String,
    /// Description of the condition and what to do about it.
    pub text: String,
    /// Time since which the condition holds, Unix milliseconds.
    pub since_ms: u64,
}

/// Reads the kind of a notice. Autoscalers of the previous release wrote `blind`, `offers` and `deaf`.
fn notice_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let kind = String::deserialize(deserializer)?;
    Ok(match kind.split_once(' ') {
        Some(("blind", provider)) => format!("provider_unreachable {provider}"),
        Some(("offers", provider)) => format!("no_offers {provider}"),
        None if kind == "deaf" => "gateway_unreachable".to_owned(),
        _ => kind,
    })
}

/// Estimated time until the jobs that wait now have finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eta {
    /// The endpoint, `<tenant>/<name>`.
    pub endpoint: String,
    /// The priority: 0 is interactive, 2 is batch.
    pub priority: u8,
    /// Seconds until the jobs have finished; `None` if no instance that could run them exists or is coming.
    pub seconds: Option<u64>,
}

/// The status of the leading autoscaler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoscalerStatus {
    /// Time at which the status was written, Unix milliseconds.
    pub at_ms: u64,
    /// Conditions that an operator should act on.
    pub notices: Vec<Notice>,
    /// Estimates for endpoints whose jobs wait.
    pub etas: Vec<Eta>,
    /// The latest decisions, newest first; at most [`DECISIONS_MAX`].
    #[serde(default)]
    pub decisions: Vec<Decision>,
    /// Expected time from a rental to the join of its worker by GPU model, seconds: the mean of the latest boots, or
    /// the provider's value until there were some.
    #[serde(default)]
    pub boots_s: BTreeMap<String, u64>,
    /// Expected time from the start of a stopped instance to the join of its worker, seconds.
    #[serde(default)]
    pub resume_s: Option<u64>,
}

impl AutoscalerStatus {
    /// Returns whether an autoscaler runs: a leader writes its status every few seconds.
    #[must_use]
    pub fn is_current(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) < STATUS_TTL_MS
    }
}

/// Age at which a status no longer counts, milliseconds: the autoscaler has stopped.
const STATUS_TTL_MS: u64 = 60_000;

/// Number of decisions that are kept in the status.
pub const DECISIONS_MAX: usize = 20;

/// A decision about an instance, and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Time of the decision, Unix milliseconds.
    pub at_ms: u64,
    /// The action: `rent`, `resume`, `drain`, `undrain`, `stop` or `release`.
    pub action: String,
    /// The reason, in words.
    pub reason: String,
    /// The instance, once it exists.
    pub machine: Option<String>,
    /// The reason of a failure; `None` if the action did not fail.
    pub failure: Option<String>,
}

impl Registry {
    /// Stores the autoscaler's status.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn put_autoscaler(&self, term: Term, status: &AutoscalerStatus) -> Result<bool, Error> {
        let text = to_json("store the autoscaler's status", status)?;
        self.lead_write(term, &self.keys.autoscaler(), "status", &text).await
    }

    /// The autoscaler's last status; `None` if there never was one, or if it cannot be read, which is logged.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn autoscaler(&self) -> Result<Option<AutoscalerStatus>, Error> {
        let step = "read the autoscaler's status";
        let text: Option<String> =
            self.connection.redis().hget(self.keys.autoscaler(), "status").await.map_err(Error::redis(step))?;
        Ok(text.and_then(|text| readable(step, &text)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn notices_of_the_release_before_are_read_with_their_new_kinds() {
        let kinds = [
            ("blind vast", "provider_unreachable vast"),
            ("offers vast", "no_offers vast"),
            ("deaf", "gateway_unreachable"),
            ("credit vast", "credit vast"),
            ("no_offers vast", "no_offers vast"),
        ];
        for (written, read) in kinds {
            let notice = serde_json::json!({"kind": written, "text": "", "since_ms": 1});
            assert_eq!(serde_json::from_value::<Notice>(notice).unwrap().kind, read);
        }
    }
}
