//! The secrets that a model is loaded with.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{LeaseRef, ModelRef};

/// `POST /worker/v1/secrets`: requests the secrets of a model's version. Only a worker that has leased one of its jobs,
/// or must keep it loaded, receives them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SecretsRequest {
    /// The model to load.
    pub model: ModelRef,
    /// The lease of one of its jobs on this worker; absent if the model must be kept loaded without jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseRef>,
}

/// The reply to `secrets`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SecretsReply {
    /// All secrets that the version names.
    pub secrets: Secrets,
}

/// Secret values by name; handlers receive them as environment variables. `Debug` does not print them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// Whether there are no secrets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The values without their names.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }
}

impl FromIterator<(String, String)> for Secrets {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(secrets: I) -> Self {
        Self(secrets.into_iter().collect())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_do_not_print() {
        let secrets: Secrets = [("HF_TOKEN".to_owned(), "hf_canary".to_owned())].into_iter().collect();
        let printed = format!("{:?}", SecretsReply { secrets });
        assert!(printed.contains("HF_TOKEN") && !printed.contains("canary"), "{printed}");
    }
}
