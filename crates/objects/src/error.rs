//! The errors of the crate: one variant for each distinct reaction of a caller.

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};

use crate::metrics;

/// The error of the client and of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument or setting is invalid. No request was sent, and a retry does not help.
    #[error("{0}")]
    Invalid(String),
    /// The server rejected the request and would reject it again: credentials, permissions, a missing bucket. An
    /// operator has to act.
    #[error("the object store refused to {step}: {code}")]
    Refused {
        /// What was attempted; completes "refused to ...".
        step: &'static str,
        /// The server's S3 error code, or the HTTP status if there is none.
        code: String,
        /// The whole response.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There was no usable response after all attempts. The outcome of a write is unknown; every call of the client is
    /// safe to retry.
    #[error("the object store is unavailable: failed to {step}")]
    Unavailable {
        /// What was attempted; completes "failed to ...".
        step: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The object is larger than the caller accepts.
    #[error("object {key:?} has more than {max_bytes} bytes")]
    TooLarge {
        /// Key of the object.
        key: String,
        /// The caller's limit, bytes.
        max_bytes: u64,
    },
    /// The store cannot use its folder.
    #[error("failed to {step} {}", path.display())]
    Folder {
        /// What was attempted; completes "failed to ...".
        step: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process serves this folder.
    #[error("another process serves {}; stop it, or use another folder", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
    },
}

impl Error {
    /// Converts an error of the SDK. `step` completes "failed to ...".
    pub(crate) fn sdk<E>(step: &'static str) -> impl Fn(SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        move |error| match refusal(&error) {
            Some(code) => {
                metrics::failed("refused", step);
                Self::Refused { step, code, source: Box::new(error) }
            }
            None => {
                metrics::failed("unavailable", step);
                Self::Unavailable { step, source: Box::new(error) }
            }
        }
    }

    /// Converts an I/O error in the store's folder. `step` completes "failed to ...".
    pub(crate) fn folder(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Folder { step, path, source }
    }
}

/// The code of a permanent error: any 4xx, except those that only mean "not now".
fn refusal<E: ProvideErrorMetadata>(error: &SdkError<E>) -> Option<String> {
    /// Request timeout and too many requests.
    const NOT_NOW: [u16; 2] = [408, 429];
    let response = error.raw_response()?;
    let status = response.status().as_u16();
    let final_answer = (400..500).contains(&status) && !NOT_NOW.contains(&status);
    final_answer.then(|| {
        let code = error.code().map_or_else(|| format!("HTTP {status}"), str::to_owned);
        let date =
            response.headers().get("date").and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        let hint = date.filter(|_| status == 403).and_then(|date| clock_hint(date.secs(), now_s()));
        hint.map_or(code.clone(), |hint| format!("{code}; {hint}"))
    })
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// A hint about a wrong clock. A store accepts signatures that are a few minutes early or late, and reports others only
/// as invalid.
fn clock_hint(store_s: i64, here_s: i64) -> Option<String> {
    const NOTICED_S: i64 = 4 * 60;
    let ahead_s = here_s - store_s;
    (ahead_s.abs() > NOTICED_S).then(|| {
        let side = if ahead_s > 0 { "ahead of" } else { "behind" };
        format!("this machine's clock is {} minutes {side} the store's; correct it", ahead_s.abs() / 60)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_blamed_when_it_is_far_off() {
        assert_eq!(clock_hint(1_000, 1_240), None);
        assert!(clock_hint(1_000, 4_600).is_some_and(|hint| hint.contains("60 minutes ahead of")));
        assert!(clock_hint(4_600, 1_000).is_some_and(|hint| hint.contains("60 minutes behind")));
    }
}
