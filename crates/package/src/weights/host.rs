//! The interface that pinning weights needs from its caller: HTTP requests and a display of progress.

use std::io::Read;

use crate::error::{BoxError, Error};

/// Sends requests and shows progress.
pub trait Host: Sync {
    /// Sends a request and returns its response, of any status.
    ///
    /// # Errors
    /// If there is no response. The message has no URL, which may contain a signature.
    fn send(&self, request: &Request<'_>) -> Result<Response, BoxError>;

    /// Shows a note for the author.
    fn note(&self, text: &str);

    /// Shows how much of a file has been hashed. `size_bytes` is 0 if unknown. Called before each request of a download
    /// and after each piece.
    ///
    /// # Errors
    /// [`Error::Stopped`] stops the pinning.
    fn hashing(&self, file: &str, done_bytes: u64, size_bytes: u64) -> Result<(), Error>;
}

/// A request without a body.
#[derive(Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: &'a str,
    /// Header names in lower case, and values.
    pub headers: &'a [(&'static str, String)],
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Redirects are followed.
    Get,
    /// Redirects are not followed.
    Head,
}

/// A response, whose body is read as it arrives.
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Header names, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Box<dyn Read>,
}

impl Response {
    /// The first header of this name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
pub(super) struct NoHost;

#[cfg(test)]
impl Host for NoHost {
    fn send(&self, request: &Request<'_>) -> Result<Response, BoxError> {
        Err(format!("no connection to {}", request.url).into())
    }

    fn note(&self, _: &str) {}

    fn hashing(&self, _: &str, _: u64, _: u64) -> Result<(), Error> {
        Ok(())
    }
}
