//! Downloads one file: in parallel ranges that can be resumed or, if the server does not support ranges, as one stream.

mod request;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use reqwest::{Client, Response, StatusCode, redirect};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use self::request::{RangeError, Source, silent, transient};
use super::WeightFile;
use super::error::Error;
use super::partial::Partial;
use crate::backoff::Tries;
use crate::metrics;
use crate::transfer::RETRY;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of changes of a file during a download after which it is downloaded in one stream: servers behind one name
/// may permanently disagree.
const CHANGES_MAX: u32 = 3;

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
            // After a power failure, the journal may be ahead of the data; or the server's file changed between two
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
                Err(RangeError::Whole(answer)) => Some(*answer),
                Err(RangeError::Changed) => {
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
                Err(RangeError::Transient(why)) => return Err(Error::Fetch { path: source.path.to_owned(), why }),
                Err(RangeError::Final(error)) => return Err(error),
            };
            return self.as_stream(source, partial, whole).await;
        }
    }

    async fn in_ranges(&self, source: &Source<'_>, partial: &Arc<Partial>) -> Result<(), RangeError> {
        let gaps = partial.gaps(self.limits.piece_bytes).await.map_err(|error| source.write(error))?;
        let Some(first) = gaps.first() else { return Ok(()) };
        // Determines, before the parallel requests, whether the server supports ranges and which version it has.
        let permit = self.permit().await;
        let mut tries = Tries::within(&RETRY, self.limits.stall_timeout);
        let answer = loop {
            match self.open(source, partial, Some(first)).await {
                Err(RangeError::Transient(why)) => self.again(&mut tries, why).await?,
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
    ) -> Result<(), RangeError> {
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
                    Err(error) => Err(error),
                },
            };
            if range.start > before {
                tries = Tries::within(&RETRY, self.limits.stall_timeout);
            }
            match outcome {
                Err(RangeError::Transient(why)) => self.again(&mut tries, why).await?,
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
                    Err(error) => Err(error),
                },
            };
            if range.start > furthest {
                (tries, furthest) = (Tries::within(&RETRY, self.limits.stall_timeout), range.start);
            }
            let why = match outcome {
                Ok(()) => return Ok(()),
                Err(RangeError::Transient(why)) => why,
                Err(RangeError::Final(error)) => return Err(error),
                Err(RangeError::Changed | RangeError::Whole(_)) => "the server's responses are inconsistent".to_owned(),
            };
            if let Err(RangeError::Transient(why)) = self.again(&mut tries, why).await {
                return Err(Error::Fetch { path: source.path.to_owned(), why });
            }
        }
    }

    /// A permit for a connection; `None` only if the semaphore is closed, which never happens.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// Waits before another try, if there is time.
    async fn again(&self, tries: &mut Tries, why: String) -> Result<(), RangeError> {
        if !tries.are_left() {
            return Err(RangeError::Transient(why));
        }
        tracing::debug!(why, "the download of a range of weights failed; retrying");
        tries.pause().await;
        Ok(())
    }

    /// Writes the bytes of a response, and advances the start of `range`.
    async fn read(
        &self,
        source: &Source<'_>,
        partial: &Arc<Partial>,
        generation: u64,
        answer: Response,
        range: &mut Range<u64>,
    ) -> Result<(), RangeError> {
        let is_whole = answer.status() == StatusCode::OK;
        let (mut body, mut buffer) = (answer.bytes_stream(), Vec::new());
        loop {
            let next = match timeout(self.limits.idle, body.next()).await {
                Err(_) => Err(silent()),
                Ok(None) => Ok(None),
                Ok(Some(Err(error))) => Err(transient(error)),
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
                        RangeError::Transient("the server sent more bytes than requested".to_owned())
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
                Ok(None) => return Err(RangeError::Transient("the server sent fewer bytes than requested".to_owned())),
                Err(error) => return Err(error),
            }
        }
    }
}
