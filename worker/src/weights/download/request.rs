//! Requests for a range of a file, or the whole file, and checks of the responses.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_RANGE, LOCATION, RANGE,
};
use reqwest::{Response, StatusCode, Url};
use tokio::time::timeout;

use super::Downloads;
use crate::weights::WeightFile;
use crate::weights::error::Error;
use crate::weights::partial::Partial;

const REDIRECTS_MAX: usize = 10;

/// Maximum number of bytes to read of an error response.
const REFUSAL_BYTES_MAX: usize = 8 * 1024;

/// Source of a file.
pub(super) struct Source<'a> {
    pub(super) path: &'a str,
    pub(super) size_bytes: u64,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
}

/// Why a range was not downloaded.
pub(super) enum RangeError {
    /// A transient error.
    Transient(String),
    /// The file's version differs from that of the first ranges.
    Changed,
    /// The response contains the whole file.
    Whole(Box<Response>),
    Final(Error),
}

impl From<Error> for RangeError {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// Converts an error without its URL, which may be secret.
pub(super) fn transient(error: reqwest::Error) -> RangeError {
    let error = error.without_url();
    let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    RangeError::Transient(causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")))
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a WeightFile) -> Result<Self, Error> {
        let bad = |what: &str| Error::List(format!("{what} for {}", file.path));
        let url = Url::parse(&file.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let mut headers = HeaderMap::new();
        for (name, value) in &file.headers {
            let name: HeaderName = name.parse().map_err(|_| bad("invalid headers"))?;
            let mut value = HeaderValue::from_str(value).map_err(|_| bad("invalid headers"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self { path: &file.path, size_bytes: file.size_bytes, url: url.ok_or_else(|| bad("invalid URL"))?, headers })
    }

    pub(super) fn size_differs(&self, got: u64) -> RangeError {
        RangeError::Final(Error::Size { path: self.path.to_owned(), expected: self.size_bytes, got })
    }

    pub(super) fn write(&self, error: std::io::Error) -> RangeError {
        RangeError::Final(Error::write(self.path)(error))
    }
}

impl Downloads {
    /// Requests a range, or the whole file, and checks the headers of the response.
    pub(super) async fn open(
        &self,
        source: &Source<'_>,
        partial: &Arc<Partial>,
        range: Option<&Range<u64>>,
    ) -> Result<Response, RangeError> {
        let mut asked = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
        let etag = partial.etag();
        if let Some(range) = range {
            let text = format!("bytes={}-{}", range.start, range.end - 1);
            asked.extend(HeaderValue::from_str(&text).map(|value| (RANGE, value)));
            // A weak ETag does not identify bytes and is not allowed in If-Range.
            let strong = etag.as_deref().filter(|etag| !etag.starts_with("W/"));
            asked.extend(strong.and_then(|etag| HeaderValue::from_str(etag).ok()).map(|value| (IF_RANGE, value)));
        }
        let answer = self.follow(source, asked).await?;
        match (answer.status(), range) {
            (StatusCode::PARTIAL_CONTENT, Some(range)) => {
                self.check_part(source, partial, &answer, range, etag.as_deref()).await?;
                Ok(answer)
            }
            // The If-Range condition failed, or the server does not support ranges; then the next response is the same.
            (StatusCode::OK, Some(_)) if etag.is_some() => Err(RangeError::Changed),
            (StatusCode::OK, range) => match length(&answer, CONTENT_LENGTH) {
                Some(size_bytes) if size_bytes != source.size_bytes => Err(source.size_differs(size_bytes)),
                _ if range.is_some() => Err(RangeError::Whole(Box::new(answer))),
                _ => Ok(answer),
            },
            (StatusCode::RANGE_NOT_SATISFIABLE, _) => match total(&answer) {
                Some(size_bytes) if size_bytes != source.size_bytes => Err(source.size_differs(size_bytes)),
                _ => Err(RangeError::Transient("the server does not have the requested range".to_owned())),
            },
            (status, _) => Err(refusal(source, partial, status, answer).await),
        }
    }

    /// Sends a request and follows redirects. Only the original host gets the file's headers.
    async fn follow(&self, source: &Source<'_>, asked: HeaderMap) -> Result<Response, RangeError> {
        let mut url = source.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.http.get(url.clone());
            if url.origin() == source.url.origin() {
                request = request.headers(source.headers.clone());
            }
            let answer = timeout(self.limits.idle, request.headers(asked.clone()).send()).await;
            let answer = answer.map_err(|_| silent())?.map_err(transient)?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
            let next = answer.headers().get(LOCATION).and_then(|to| url.join(to.to_str().ok()?).ok());
            match next.filter(|next| matches!(next.scheme(), "http" | "https")) {
                Some(next) => url = next,
                None => return Err(RangeError::Transient("redirect without a valid Location".to_owned())),
            }
        }
        Err(RangeError::Transient("too many redirects".to_owned()))
    }

    /// Checks that a partial response is the requested range of the expected version.
    async fn check_part(
        &self,
        source: &Source<'_>,
        partial: &Arc<Partial>,
        answer: &Response,
        range: &Range<u64>,
        known: Option<&str>,
    ) -> Result<(), RangeError> {
        match total(answer) {
            Some(size_bytes) if size_bytes != source.size_bytes => return Err(source.size_differs(size_bytes)),
            _ => {}
        }
        let range_header = answer.headers().get(CONTENT_RANGE).and_then(|range_header| range_header.to_str().ok());
        let is_asked = range_header
            .is_some_and(|range_header| range_header.starts_with(&format!("bytes {}-{}/", range.start, range.end - 1)));
        if !is_asked {
            return Err(RangeError::Transient("the server sent a different range than requested".to_owned()));
        }
        let etag = answer.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        match (etag, known) {
            (Some(etag), Some(known)) if etag != known => Err(RangeError::Changed),
            (Some(etag), None) => partial.set_etag(etag.to_owned()).await.map_err(|error| source.write(error)),
            _ => Ok(()),
        }
    }
}

pub(super) fn silent() -> RangeError {
    RangeError::Transient("the server stopped sending data".to_owned())
}

fn length(answer: &Response, name: HeaderName) -> Option<u64> {
    answer.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// The total size in a Content-Range header.
fn total(answer: &Response) -> Option<u64> {
    answer.headers().get(CONTENT_RANGE)?.to_str().ok()?.rsplit_once('/')?.1.parse().ok()
}

/// Classifies an error response. An expired URL is detected by the store's message, or because it worked before.
async fn refusal(source: &Source<'_>, partial: &Arc<Partial>, status: StatusCode, answer: Response) -> RangeError {
    let path = source.path.to_owned();
    if !status.is_client_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) {
        return RangeError::Transient(format!("the server responded with {status}"));
    }
    let is_denial = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let has_worked = status == StatusCode::FORBIDDEN && partial.has_grown();
    if is_denial && (has_worked || body_start(answer).await.to_ascii_lowercase().contains("expired")) {
        return RangeError::Final(Error::Expired { path });
    }
    RangeError::Final(Error::Refused { path, status })
}

/// The beginning of a response body.
async fn body_start(answer: Response) -> String {
    const LIMIT: Duration = Duration::from_secs(5);
    let (mut text, mut body) = (Vec::new(), answer.bytes_stream());
    while let Ok(Some(Ok(bytes))) = timeout(LIMIT, body.next()).await
        && text.len() < REFUSAL_BYTES_MAX
    {
        text.extend_from_slice(&bytes);
    }
    String::from_utf8_lossy(&text).into_owned()
}
