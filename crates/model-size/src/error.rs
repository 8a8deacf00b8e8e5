//! Errors of reading a model.

/// Error of reading a model's configuration or header.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not valid JSON, or a member is missing or out of bounds. The text names it.
    #[error("{0}")]
    Invalid(String),
    /// The file ends early or cannot be read.
    #[error("cannot read the GGUF header")]
    Read(#[from] std::io::Error),
}

impl Error {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}
