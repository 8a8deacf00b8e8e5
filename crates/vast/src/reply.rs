//! Bodies of responses.

use serde::Deserialize;

#[derive(Deserialize)]
struct Reply {
    success: Option<bool>,
}

/// Whether the body of a response reports a failure. The status of such a response may be 200.
#[must_use]
pub fn reports_failure(body: &[u8]) -> bool {
    serde_json::from_slice(body).is_ok_and(|reply: Reply| reply.success == Some(false))
}
