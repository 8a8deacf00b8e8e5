//! Interpretation of the cluster's responses. Pure.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use super::call::Call;
use crate::provider::ProviderError;

/// Maximum length of a cluster's message that is quoted in an error, bytes.
const QUOTE_MAX: usize = 300;

/// Reason why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// No response, or an inconclusive one: the request may have been carried out, or may still be.
    #[error("{0}")]
    Silent(String),
    /// The cluster is overloaded.
    #[error("the cluster is busy")]
    Busy {
        /// Time after which a retry is allowed, if the response has one.
        after: Option<Duration>,
    },
    /// The cluster refused the request.
    #[error("{0}")]
    Denied(String),
    /// The object does not exist.
    #[error("{0}")]
    Missing(String),
    /// An object of that name exists.
    #[error("{0}")]
    Exists(String),
    /// The object has changed since it was read.
    #[error("{0}")]
    Conflict(String),
    /// The continuation token of a list has expired.
    #[error("the list has expired")]
    Expired,
}

impl From<CallError> for ProviderError {
    fn from(fault: CallError) -> Self {
        let why = fault.to_string();
        match fault {
            CallError::Silent(_) => Self::Unknown(why),
            CallError::Missing(_) => Self::Vanished(why),
            CallError::Busy { .. }
            | CallError::Denied(_)
            | CallError::Exists(_)
            | CallError::Conflict(_)
            | CallError::Expired => Self::Refused(why),
        }
    }
}

/// The used fields of `Status` of `meta/v1`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
}

/// The error of a response.
pub(super) fn call_error(
    call: &Call<'_>,
    namespace: &str,
    status: StatusCode,
    after: Option<Duration>,
    body: &[u8],
) -> CallError {
    let Status { message, reason } = serde_json::from_slice(body).unwrap_or_default();
    let what = call.words(namespace);
    // The message about a Secret may repeat its contents.
    let text = if call.is_secret() { reason.as_str() } else { cut(&message) };
    let why = if text.is_empty() { format!("{what}: {status}") } else { format!("{what}: {text}") };
    match status {
        StatusCode::UNAUTHORIZED => CallError::Denied(format!("{what}: the cluster rejected the credentials")),
        StatusCode::FORBIDDEN if message.contains("exceeded quota") => {
            CallError::Denied(format!("{what}: a quota of the namespace is exhausted: {text}"))
        }
        // Admission and access control both refuse with 403. Only the message of access control names the denied user.
        StatusCode::FORBIDDEN if message.contains(" cannot ") || message.is_empty() => {
            let verb = call.verb.word();
            let (resource, group) = (call.resource.full(), call.resource.group_word());
            CallError::Denied(format!("{what}: the Role lacks the verb {verb} on {resource} of {group}: {text}"))
        }
        StatusCode::NOT_FOUND => CallError::Missing(why),
        StatusCode::CONFLICT if reason == "AlreadyExists" => CallError::Exists(why),
        StatusCode::CONFLICT => CallError::Conflict(why),
        StatusCode::GONE => CallError::Expired,
        StatusCode::TOO_MANY_REQUESTS => CallError::Busy { after },
        status if status.is_client_error() => CallError::Denied(why),
        _ => CallError::Silent(why),
    }
}

/// The start of a text.
fn cut(text: &str) -> &str {
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= QUOTE_MAX).last().unwrap_or(0);
    if text.len() <= QUOTE_MAX { text } else { &text[..end] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::kubernetes::call::{JOBS, SECRETS, Verb};

    fn of(call: &Call<'_>, status: u16, message: &str, reason: &str) -> CallError {
        let body = serde_json::json!({"kind": "Status", "message": message, "reason": reason}).to_string();
        call_error(call, "ml", StatusCode::from_u16(status).unwrap_or_default(), None, body.as_bytes())
    }

    #[test]
    fn a_refusal_says_which_verb_is_missing() {
        let call = Call::new(Verb::Create, JOBS);
        let message = "jobs.batch is forbidden: User \"x\" cannot create resource \"jobs\"";
        let CallError::Denied(why) = of(&call, 403, message, "Forbidden") else { panic!() };
        assert!(why.contains("the Role lacks the verb create on jobs of batch"), "{why}");
        let message = "pods \"m-1\" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1";
        let CallError::Denied(why) = of(&call, 403, message, "Forbidden") else { panic!() };
        assert!(why.contains("quota of the namespace is exhausted"), "{why}");
    }

    #[test]
    fn what_may_have_been_done_is_never_called_refused() {
        let call = Call::new(Verb::Create, JOBS);
        for status in [500, 502, 503, 504] {
            assert!(matches!(ProviderError::from(of(&call, status, "", "")), ProviderError::Unknown(_)), "{status}");
        }
        for status in [400, 401, 403, 409, 410, 422, 429] {
            assert!(matches!(ProviderError::from(of(&call, status, "", "")), ProviderError::Refused(_)), "{status}");
        }
    }

    #[test]
    fn what_is_said_of_a_secret_is_not_told() {
        let call = Call::new(Verb::Create, SECRETS);
        let fault = of(&call, 422, "Secret \"m-1\" is invalid: stringData: \"jt_verysecret\"", "Invalid");
        assert!(!fault.to_string().contains("verysecret"), "{fault}");
        assert!(of(&Call::new(Verb::Create, JOBS), 422, &"ä".repeat(1_000), "").to_string().len() < 400);
    }
}
