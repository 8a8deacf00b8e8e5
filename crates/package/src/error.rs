//! Errors of packaging a folder.

use std::path::Path;

/// The cause of a failure outside this crate.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Error of packaging a folder.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the folder or an option is wrong; the text names it and what to change.
    #[error("{0}")]
    Invalid(String),
    /// A file cannot be read or written, or a server cannot be reached.
    #[error("{step}")]
    Failed {
        /// The failed step, e.g. `cannot read stoke.toml`.
        step: String,
        /// The cause.
        source: BoxError,
    },
    /// The caller stopped pinning; see [`crate::Host::hashing`].
    #[error("interrupted")]
    Stopped,
    /// The server of a weights file refused a request.
    #[error("weights: {path}: the server returned {status}{advice}")]
    Refused {
        /// The file.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The advice to the user; may be empty.
        advice: &'static str,
    },
}

impl Error {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }

    /// The message with the messages of its causes.
    #[must_use]
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

/// Adds the failed step to an error.
pub(crate) trait Step<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, Error>;

    fn reading(self, path: &Path) -> Result<T, Error>
    where
        Self: Sized,
    {
        self.step(|| format!("cannot read {}", path.display()))
    }
}

impl<T, E: Into<BoxError>> Step<T> for Result<T, E> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::Failed { step: step(), source: error.into() })
    }
}

/// Returns [`Error::Invalid`] with this text.
macro_rules! invalid {
    ($($text:tt)*) => {
        return Err($crate::Error::invalid(format!($($text)*)))
    };
}

/// Returns [`Error::Invalid`] unless the condition holds.
macro_rules! require {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            $crate::error::invalid!($($text)*);
        }
    };
}

pub(crate) use {invalid, require};
