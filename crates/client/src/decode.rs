//! Decoding of responses to models.

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object that the API returns.
pub trait Response: DeserializeOwned {
    /// Name of the object's schema in the OpenAPI document.
    const NAME: &'static str;
}

/// Decodes a response.
pub fn decode<T: Response>(response: &Value) -> Result<T> {
    T::deserialize(response).with_context(|| {
        format!(
            "the API's response is not a valid {}; check that this program and the API have the same version",
            T::NAME
        )
    })
}

/// Decodes a member of which null means the empty value, as if the member were missing.
pub(crate) fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(member: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(member)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::models::{Job, JobState, Priority, SubmitRequest};

    #[test]
    fn a_response_of_another_release_is_read() {
        let job: Job =
            decode(&json!({"id": "01", "state": "paused", "priority": "batch", "steps": null, "new": 1})).unwrap();
        assert_eq!((job.state, job.priority), (JobState::Other("paused".to_owned()), Priority::Batch));
        assert_eq!((job.version, job.steps.len(), job.error), (0, 0, None));
    }

    #[test]
    fn another_kind_of_response_is_an_error() {
        let error = decode::<Job>(&json!({"workers": []})).unwrap_err();
        assert!(error.to_string().contains("not a valid Job"), "{error}");
        assert!(format!("{error:#}").contains("`id`"), "{error:#}");
    }

    #[test]
    fn a_request_has_what_is_set() {
        let request = SubmitRequest {
            endpoint: "echo".to_owned(),
            input: json!({}),
            priority: Some(Priority::Standard),
            timeout_s: Some(7),
            ..SubmitRequest::default()
        };
        let body = json!({"endpoint": "echo", "input": {}, "priority": "standard", "timeout_s": 7});
        assert_eq!(serde_json::to_value(request).unwrap(), body);
    }
}
