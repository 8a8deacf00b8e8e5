//! What can go wrong with objects, one variant per thing a caller would do differently.

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};

use crate::metrics;

/// The error of the client and of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A wrong argument or setting: nothing was asked of the server, and asking again will not help.
    #[error("{0}")]
    Invalid(String),
    /// The server refused the call, and would refuse it again: credentials, rights, a missing bucket. An operator has
    /// to act.
    #[error("the object store refused to {step}: {code}")]
    Refused {
        /// What was being done.
        step: &'static str,
        /// The server's S3 error code, or its HTTP status where it gave none.
        code: String,
        /// Its whole answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No useful answer, after retries. Whether a write happened is unknown; every call of the client is safe to repeat.
    #[error("the object store is unavailable: failed to {step}")]
    Unavailable {
        /// What was being done.
        step: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The object is bigger than the caller is ready to hold.
    #[error("object {key:?} has more than {max_bytes} bytes")]
    TooLarge {
        /// Which.
        key: String,
        /// The caller's bound.
        max_bytes: u64,
    },
    /// The store cannot use its folder.
    #[error("failed to {step} {}", path.display())]
    Folder {
        /// What was being done.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
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
    /// How an answer of the server reads here. `step` completes "failed to ...".
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

    /// How trouble with the store's folder reads here. `step` completes "failed to ...".
    pub(crate) fn folder(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Folder { step, path, source }
    }
}

/// The code of an answer that will not change by asking again: any 4xx, but for those that only mean "not now".
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

/// A store accepts signatures that are some minutes old or early, and reports others only as invalid.
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
