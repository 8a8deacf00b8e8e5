//! Downloads one file: in parallel ranges that can be resumed or, if the server does not support ranges, as one stream.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_RANGE, LOCATION, RANGE,
};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::WeightFile;
use super::error::Error;
use super::partial::Partial;
use crate::backoff::Tries;
use crate::metrics;
use crate::transfer::RETRY;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REDIRECTS_MAX: usize = 10;

/// Number of changes of a file during a download after which it is downloaded in one stream: servers behind one name
/// may permanently disagree.
const CHANGES_MAX: u32 = 3;

/// Maximum number of bytes to read of an error response.
const REFUSAL_BYTES_MAX: usize = 8 * 1024;

/// Limits of downloads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum size of a requested range.
    pub(super) piece_bytes: u64,
    /// Size of the write buffer, which is also the maximum loss per range if the process is killed.
    pub(super) write_bytes: usize,
    /// Maximum number of concurrent ranges of all files.
    pub(super) parallel: usize,
    /// Timeout of a server that sends nothing.
    pub(super) idle: Duration,
    /// Timeout of the retries of a range without any new byte.
    pub(super) stall_timeout: Duration,
}

/// A 32 MiB range takes about a third of a second on a fast connection, so the overhead of a request is small, and
/// eight ranges saturate it.
pub(super) const LIMITS: Limits = Limits {
    piece_bytes: 32 << 20,
    write_bytes: 4 << 20,
    parallel: 8,
    idle: Duration::from_secs(60),
    stall_timeout: Duration::from_secs(2 * 60),
};

/// Downloads files with a limited number of concurrent ranges.
pub(super) struct Downloads {
    http: Client,
    permits: Semaphore,
    limits: Limits,
}

/// Source of a file.
struct Source<'a> {
    path: &'a str,
    size_bytes: u64,
    url: Url,
    headers: HeaderMap,
}

/// Why a range was not downloaded.
enum Stop {
    /// A transient error.
    Passing(String),
    /// The file's version differs from that of the first ranges.
    Changed,
    /// The response contains the whole file.
    Whole(Box<Response>),
    Final(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// Converts an error without its URL, which may be secret.
fn passing(error: reqwest::Error) -> Stop {
    let error = error.without_url();
    let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    Stop::Passing(causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")))
}

impl<'a> Source<'a> {
    fn new(file: &'a WeightFile) -> Result<Self, Error> {
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

    fn size_differs(&self, got: u64) -> Stop {
        Stop::Final(Error::Size { path: self.path.to_owned(), expected: self.size_bytes, got })
    }

    fn write(&self, error: std::io::Error) -> Stop {
        Stop::Final(Error::write(self.path)(error))
    }
}

impl Downloads {
    pub(super) fn new(limits: Limits) -> Result<Self, Error> {
        // Follow redirects manually: the client would remove only known secret headers, and would send the signed URL
        // to the next host as referrer. Ranges that share one connection would share its flow control window.
        let http = Client::builder().redirect(redirect::Policy::none()).connect_timeout(CONNECT_TIMEOUT).http1_only();
        let http = http.build().map_err(|error| Error::io("set up downloads")(std::io::Error::other(error)))?;
        Ok(Self { http, permits: Semaphore::new(limits.parallel), limits })
    }

    /// Downloads the missing parts of a file and verifies its hash. On an error, the received data is kept unless it is
    /// wrong.
    pub(super) async fn fetch(&self, file: &WeightFile, partial: &Arc<Partial>) -> Result<(), Error> {
        let source = Source::new(file)?;
        let mut is_resumed = partial.is_resumed();
        loop {
            self.fill(&source, partial).await?;
            let got = partial.sha256().await.map_err(Error::io(format!("read {}", file.path)))?;
            if got == file.sha256 {
                metrics::weights_fetched(file.size_bytes);
                return Ok(());
            }
            partial.restart().await.map_err(Error::write(&file.path))?;
            if !is_resumed {
                return Err(Error::Differs { path: file.path.clone(), expected: file.sha256.clone(), got });
            }
            // After a power cut, the journal may be ahead of the data; or the server's file changed between two
            // processes.
            tracing::warn!(
                weights.path = file.path,
                "a resumed download does not match the pinned hash; restarting it"
            );
            is_resumed = false;
        }
    }

    async fn fill(&self, source: &Source<'_>, partial: &Arc<Partial>) -> Result<(), Error> {
        let mut changes = 0;
        loop {
            let whole = match self.in_ranges(source, partial).await {
                Ok(()) => return Ok(()),
                Err(Stop::Whole(answer)) => Some(*answer),
                Err(Stop::Changed) => {
                    changes += 1;
                    tracing::debug!(
                        weights.path = source.path,
                        changes,
                        "the file has changed on the server; restarting the download"
                    );
                    partial.restart().await.map_err(Error::write(source.path))?;
                    if changes < CHANGES_MAX {
                        continue;
                    }
                    None
                }
                Err(Stop::Passing(why)) => return Err(Error::Fetch { path: source.path.to_owned(), why }),
                Err(Stop::Final(error)) => return Err(error),
            };
            return self.as_stream(source, partial, whole).await;
        }
    }

    async fn in_ranges(&self, source: &Source<'_>, partial: &Arc<Partial>) -> Result<(), Stop> {
        let gaps = partial.gaps(self.limits.piece_bytes).await.map_err(|error| source.write(error))?;
        let Some(first) = gaps.first() else { return Ok(()) };
        // Determines, before the parallel requests, whether the server supports ranges and which version it has.
        let permit = self.permit().await;
        let mut tries = Tries::within(&RETRY, self.limits.stall_timeout);
        let answer = loop {
            match self.open(source, partial, Some(first)).await {
                Err(Stop::Passing(why)) => self.again(&mut tries, why).await?,
                outcome => break outcome?,
            }
        };
        let mut opened = Some((permit, answer));
        let pieces = stream::iter(gaps).map(|gap| self.piece(source, partial, gap, opened.take()));
        pieces.buffer_unordered(self.limits.parallel).try_collect().await
    }

    /// Downloads one range, resuming it after interruptions.
    async fn piece(
        &self,
        source: &Source<'_>,
        partial: &Arc<Partial>,
        mut range: Range<u64>,
        opened: Option<(Option<SemaphorePermit<'_>>, Response)>,
    ) -> Result<(), Stop> {
        let generation = partial.generation();
        let (_permit, mut opened) = match opened {
            Some((permit, answer)) => (permit, Some(answer)),
            None => (self.permit().await, None),
        };
        let mut tries = Tries::within(&RETRY, self.limits.stall_timeout);
        while !range.is_empty() {
            let before = range.start;
            let outcome = match opened.take() {
                Some(answer) => self.read(source, partial, generation, answer, &mut range).await,
                None => match self.open(source, partial, Some(&range)).await {
                    Ok(answer) => self.read(source, partial, generation, answer, &mut range).await,
                    Err(stop) => Err(stop),
                },
            };
            if range.start > before {
                tries = Tries::within(&RETRY, self.limits.stall_timeout);
            }
            match outcome {
                Err(Stop::Passing(why)) => self.again(&mut tries, why).await?,
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Downloads the whole file in one stream. Restarts after interruptions, as long as each of the tries, except a
    /// few, gets further than before.
    async fn as_stream(
        &self,
        source: &Source<'_>,
        partial: &Arc<Partial>,
        mut opened: Option<Response>,
    ) -> Result<(), Error> {
        let _permit = self.permit().await;
        let (mut tries, mut furthest) = (Tries::within(&RETRY, self.limits.stall_timeout), 0);
        loop {
            partial.restart().await.map_err(Error::write(source.path))?;
            let mut range = 0..source.size_bytes;
            let outcome = match opened.take() {
                Some(answer) => self.read(source, partial, partial.generation(), answer, &mut range).await,
                None => match self.open(source, partial, None).await {
                    Ok(answer) => self.read(source, partial, partial.generation(), answer, &mut range).await,
                    Err(stop) => Err(stop),
                },
            };
            if range.start > furthest {
                (tries, furthest) = (Tries::within(&RETRY, self.limits.stall_timeout), range.start);
            }
            let why = match outcome {
                Ok(()) => return Ok(()),
                Err(Stop::Passing(why)) => why,
                Err(Stop::Final(error)) => return Err(error),
                Err(Stop::Changed | Stop::Whole(_)) => "the server's responses are inconsistent".to_owned(),
            };
            if let Err(Stop::Passing(why)) = self.again(&mut tries, why).await {
                return Err(Error::Fetch { path: source.path.to_owned(), why });
            }
        }
    }

    /// A permit for a connection; `None` only if the semaphore is closed, which never happens.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// Waits before another try, if there is time.
    async fn again(&self, tries: &mut Tries, why: String) -> Result<(), Stop> {
        if !tries.are_left() {
            return Err(Stop::Passing(why));
        }
        tracing::debug!(why, "the download of a range of weights failed; retrying");
        tries.pause().await;
        Ok(())
    }

    /// Requests a range, or the whole file, and checks the headers of the response.
    async fn open(
        &self,
        source: &Source<'_>,
        partial: &Arc<Partial>,
        range: Option<&Range<u64>>,
    ) -> Result<Response, Stop> {
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
            (StatusCode::OK, Some(_)) if etag.is_some() => Err(Stop::Changed),
            (StatusCode::OK, range) => match length(&answer, CONTENT_LENGTH) {
                Some(size_bytes) if size_bytes != source.size_bytes => Err(source.size_differs(size_bytes)),
                _ if range.is_some() => Err(Stop::Whole(Box::new(answer))),
                _ => Ok(answer),
            },
            (StatusCode::RANGE_NOT_SATISFIABLE, _) => match total(&answer) {
                Some(size_bytes) if size_bytes != source.size_bytes => Err(source.size_differs(size_bytes)),
                _ => Err(Stop::Passing("the server does not have the requested range".to_owned())),
            },
            (status, _) => Err(refusal(source, partial, status, answer).await),
        }
    }

    /// Sends a request and follows redirects. Only the original host gets the file's headers.
    async fn follow(&self, source: &Source<'_>, asked: HeaderMap) -> Result<Response, Stop> {
        let mut url = source.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.http.get(url.clone());
            if url.origin() == source.url.origin() {
                request = request.headers(source.headers.clone());
            }
            let answer = timeout(self.limits.idle, request.headers(asked.clone()).send()).await;
            let answer = answer.map_err(|_| silent())?.map_err(passing)?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
            let next = answer.headers().get(LOCATION).and_then(|to| url.join(to.to_str().ok()?).ok());
            match next.filter(|next| matches!(next.scheme(), "http" | "https")) {
                Some(next) => url = next,
                None => return Err(Stop::Passing("redirect without a valid Location".to_owned())),
            }
        }
        Err(Stop::Passing("too many redirects".to_owned()))
    }

    /// Checks that a partial response is the requested range of the expected version.
    async fn check_part(
        &self,
        source: &Source<'_>,
        partial: &Arc<Partial>,
        answer: &Response,
        range: &Range<u64>,
        known: Option<&str>,
    ) -> Result<(), Stop> {
        match total(answer) {
            Some(size_bytes) if size_bytes != source.size_bytes => return Err(source.size_differs(size_bytes)),
            _ => {}
        }
        let range_header = answer.headers().get(CONTENT_RANGE).and_then(|range_header| range_header.to_str().ok());
        let is_asked = range_header
            .is_some_and(|range_header| range_header.starts_with(&format!("bytes {}-{}/", range.start, range.end - 1)));
        if !is_asked {
            return Err(Stop::Passing("the server sent a different range than requested".to_owned()));
        }
        let etag = answer.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        match (etag, known) {
            (Some(etag), Some(known)) if etag != known => Err(Stop::Changed),
            (Some(etag), None) => partial.set_etag(etag.to_owned()).await.map_err(|error| source.write(error)),
            _ => Ok(()),
        }
    }

    /// Writes the bytes of a response, and advances the start of `range`.
    async fn read(
        &self,
        source: &Source<'_>,
        partial: &Arc<Partial>,
        generation: u64,
        answer: Response,
        range: &mut Range<u64>,
    ) -> Result<(), Stop> {
        let is_whole = answer.status() == StatusCode::OK;
        let (mut body, mut buffer) = (answer.bytes_stream(), Vec::new());
        loop {
            let next = match timeout(self.limits.idle, body.next()).await {
                Err(_) => Err(silent()),
                Ok(None) => Ok(None),
                Ok(Some(Err(error))) => Err(passing(error)),
                Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
            };
            let is_over = !matches!(next, Ok(Some(_)));
            if let Ok(Some(bytes)) = &next {
                buffer.extend_from_slice(bytes);
                let left = range.end - range.start;
                if buffer.len() as u64 > left {
                    // For a whole file, its size is wrong.
                    return Err(if is_whole {
                        source.size_differs(range.start + buffer.len() as u64)
                    } else {
                        Stop::Passing("the server sent more bytes than requested".to_owned())
                    });
                }
            }
            // Write the bytes that arrived before an interruption too.
            if buffer.len() >= self.limits.write_bytes || (is_over && !buffer.is_empty()) {
                let (at, count) = (range.start, buffer.len() as u64);
                buffer = partial.write(generation, at, buffer).await.map_err(|error| source.write(error))?;
                range.start += count;
            }
            match next {
                Ok(Some(_)) => {}
                Ok(None) if range.is_empty() => return Ok(()),
                Ok(None) if is_whole => return Err(source.size_differs(range.start)),
                Ok(None) => return Err(Stop::Passing("the server sent fewer bytes than requested".to_owned())),
                Err(stop) => return Err(stop),
            }
        }
    }
}

fn silent() -> Stop {
    Stop::Passing("the server stopped sending data".to_owned())
}

fn length(answer: &Response, name: HeaderName) -> Option<u64> {
    answer.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// The total size in a Content-Range header.
fn total(answer: &Response) -> Option<u64> {
    answer.headers().get(CONTENT_RANGE)?.to_str().ok()?.rsplit_once('/')?.1.parse().ok()
}

/// Classifies an error response. An expired URL is detected by the store's message, or because it worked before.
async fn refusal(source: &Source<'_>, partial: &Arc<Partial>, status: StatusCode, answer: Response) -> Stop {
    let path = source.path.to_owned();
    if !status.is_client_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) {
        return Stop::Passing(format!("the server responded with {status}"));
    }
    let is_denial = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let has_worked = status == StatusCode::FORBIDDEN && partial.has_grown();
    if is_denial && (has_worked || body_start(answer).await.to_ascii_lowercase().contains("expired")) {
        return Stop::Final(Error::Expired { path });
    }
    Stop::Final(Error::Refused { path, status })
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
