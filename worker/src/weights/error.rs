//! Errors of weights.

use std::path::Path;

use reqwest::StatusCode;

use super::progress::Size;
use crate::environment;

/// Why weights are not available. No variant contains a URL or a header, which may be secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The list of weights is invalid, which our gateway never sends.
    #[error("invalid list of weights: {0}")]
    List(String),
    /// No new bytes arrived within the timeout. The bytes so far are kept; another call resumes the download.
    #[error("cannot fetch {path}: {why}")]
    Fetch { path: String, why: String },
    /// The server rejected the request permanently.
    #[error("cannot fetch {path}: the server responded with {status}")]
    Refused { path: String, status: StatusCode },
    /// New URLs and another call are needed; the received data is kept.
    #[error("cannot fetch {path}: its URL has expired")]
    Expired { path: String },
    #[error(
        "{path} does not match the pinned size: expected {expected} bytes, got {got}; deploy again to pin the current file"
    )]
    Size { path: String, expected: u64, got: u64 },
    #[error(
        "{path} does not match the pinned hash: expected {expected}, got {got}; deploy again to pin the current file"
    )]
    Differs { path: String, expected: String, got: String },
    /// Its file on this machine was changed and cannot be replaced while it is in use.
    #[error("{path} was changed on this machine after it was verified, and is in use; restart the worker")]
    Changed { path: String },
    #[error(
        "the weights need {need}, more than this worker's limit of {cap}; raise STOKE_WEIGHTS_BYTES",
        need = Size(*need),
        cap = Size(*cap)
    )]
    TooLarge { need: u64, cap: u64 },
    #[error(
        "the weights need {need} more, but {in_use} of this worker's limit of {cap} are in use; raise STOKE_WEIGHTS_BYTES",
        need = Size(*need),
        in_use = Size(*in_use),
        cap = Size(*cap)
    )]
    InUse { need: u64, in_use: u64, cap: u64 },
    #[error(
        "the weights need {need} more, but this worker's disk has {free} free; free disk space or lower STOKE_WEIGHTS_BYTES",
        need = Size(*need),
        free = Size(*free)
    )]
    Disk { need: u64, free: u64 },
    /// Contains the system's message, by which a full disk is detected elsewhere.
    #[error("cannot write {path}, this worker's disk is full: {source}")]
    NoSpace { path: String, source: std::io::Error },
    #[error("{path} is not a valid safetensors file: {why}")]
    Safetensors { path: String, why: String },
    #[error("{path} is a pickle file that would run code: it uses {globals}; use safetensors instead")]
    Dangerous { path: String, globals: String },
    /// A file that cannot be scanned counts as dangerous.
    #[error("{path} is a pickle file that cannot be scanned: {why}; use safetensors instead")]
    Unscanned { path: String, why: String },
    /// Errors of locks and helper programs.
    #[error(transparent)]
    Shared(#[from] environment::Error),
    #[error("cannot {what}")]
    Io {
        what: String,
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }

    /// An error while writing `path`.
    pub(super) fn write(path: &str) -> impl FnOnce(std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let path = path.to_owned();
        |source| match source.kind() {
            StorageFull | QuotaExceeded => Self::NoSpace { path, source },
            _ => Self::Io { what: format!("write {path}"), source },
        }
    }
}

/// An error with a file of the cache.
pub(super) fn at(verb: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    Error::io(format!("{verb} {}", path.display()))
}
