//! What an answer of the cluster's means for what was asked. Pure.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use super::call::Call;
use crate::provider::Failure;

/// What the cluster says of a refusal is told so far, bytes.
const SAID_MAX: usize = 300;

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// No answer, or one that does not say: what was asked may have been done, now or later.
    #[error("{0}")]
    Silent(String),
    /// Not now.
    #[error("the cluster is busy")]
    Busy {
        /// When it may be asked again, where it says.
        after: Option<Duration>,
    },
    /// It will not.
    #[error("{0}")]
    Denied(String),
    /// There is no such thing.
    #[error("{0}")]
    Missing(String),
    /// There is one of that name.
    #[error("{0}")]
    Exists(String),
    /// It has changed since it was read.
    #[error("{0}")]
    Conflict(String),
    /// What was read so far of a list is too old to go on with.
    #[error("the list has expired")]
    Expired,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let why = fault.to_string();
        match fault {
            Fault::Silent(_) => Self::Unknown(why),
            Fault::Missing(_) => Self::Vanished(why),
            Fault::Busy { .. } | Fault::Denied(_) | Fault::Exists(_) | Fault::Conflict(_) | Fault::Expired => {
                Self::Refused(why)
            }
        }
    }
}

/// `Status` of `meta/v1`, what matters of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
}

/// What an answer says that is no success.
pub(super) fn fault(
    call: &Call<'_>,
    namespace: &str,
    status: StatusCode,
    after: Option<Duration>,
    body: &[u8],
) -> Fault {
    let Status { message, reason } = serde_json::from_slice(body).unwrap_or_default();
    let what = call.words(namespace);
    // What it says of a Secret may repeat what is in it.
    let said = if call.is_secret() { reason.as_str() } else { cut(&message) };
    let why = if said.is_empty() { format!("{what}: {status}") } else { format!("{what}: {said}") };
    match status {
        StatusCode::UNAUTHORIZED => Fault::Denied(format!("{what}: the cluster rejected the credentials")),
        StatusCode::FORBIDDEN if message.contains("exceeded quota") => {
            Fault::Denied(format!("{what}: a quota of the namespace is exhausted: {said}"))
        }
        // Admission refuses with the same number as access control does, which alone says who may not.
        StatusCode::FORBIDDEN if message.contains(" cannot ") || message.is_empty() => {
            let verb = call.verb.word();
            let (resource, group) = (call.resource.full(), call.resource.group_word());
            Fault::Denied(format!("{what}: the Role lacks the verb {verb} on {resource} of {group}: {said}"))
        }
        StatusCode::NOT_FOUND => Fault::Missing(why),
        StatusCode::CONFLICT if reason == "AlreadyExists" => Fault::Exists(why),
        StatusCode::CONFLICT => Fault::Conflict(why),
        StatusCode::GONE => Fault::Expired,
        StatusCode::TOO_MANY_REQUESTS => Fault::Busy { after },
        status if status.is_client_error() => Fault::Denied(why),
        _ => Fault::Silent(why),
    }
}

/// The start of a text.
fn cut(text: &str) -> &str {
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= SAID_MAX).last().unwrap_or(0);
    if text.len() <= SAID_MAX { text } else { &text[..end] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::kubernetes::call::{JOBS, SECRETS, Verb};

    fn of(call: &Call<'_>, status: u16, message: &str, reason: &str) -> Fault {
        let body = serde_json::json!({"kind": "Status", "message": message, "reason": reason}).to_string();
        fault(call, "ml", StatusCode::from_u16(status).unwrap_or_default(), None, body.as_bytes())
    }

    #[test]
    fn a_refusal_says_which_verb_is_missing() {
        let call = Call::new(Verb::Create, JOBS);
        let message = "jobs.batch is forbidden: User \"x\" cannot create resource \"jobs\"";
        let Fault::Denied(why) = of(&call, 403, message, "Forbidden") else { panic!() };
        assert!(why.contains("the Role lacks the verb create on jobs of batch"), "{why}");
        let message = "pods \"m-1\" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1";
        let Fault::Denied(why) = of(&call, 403, message, "Forbidden") else { panic!() };
        assert!(why.contains("quota of the namespace is exhausted"), "{why}");
    }

    #[test]
    fn what_may_have_been_done_is_never_called_refused() {
        let call = Call::new(Verb::Create, JOBS);
        for status in [500, 502, 503, 504] {
            assert!(matches!(Failure::from(of(&call, status, "", "")), Failure::Unknown(_)), "{status}");
        }
        for status in [400, 401, 403, 409, 410, 422, 429] {
            assert!(matches!(Failure::from(of(&call, status, "", "")), Failure::Refused(_)), "{status}");
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
