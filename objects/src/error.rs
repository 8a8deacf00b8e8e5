//! What can go wrong with objects, one variant per thing a caller would do differently.

use std::io;
use std::path::PathBuf;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

/// The error of the client and of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A wrong argument or setting: nothing was asked of the server, and asking again will not help.
    #[error("{0}")]
    Invalid(String),
    /// The server said no, and will say it again: credentials, rights, a missing bucket. An operator has to act.
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
    #[error("{} is served by another process; stop that one, or name another folder", path.display())]
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
            Some(code) => Self::Refused { step, code, source: Box::new(error) },
            None => Self::Unavailable { step, source: Box::new(error) },
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
    let status = error.raw_response()?.status().as_u16();
    let final_answer = (400..500).contains(&status) && !NOT_NOW.contains(&status);
    final_answer.then(|| error.code().map_or_else(|| format!("HTTP {status}"), str::to_owned))
}
