//! Receives a body: streams it to a file that is not visible yet, computes its digests, and checks them before anything
//! else happens.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::HeaderMap;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3Result, TrailingHeaders, s3_error};

use super::digest::{Checksums, Digests, Expected, Hasher};
use super::disk::{Disk, Temp};
use super::failure::failed;

/// Amount of data per call of a blocking thread. Small objects need one call; large ones hold this much in memory.
const BATCH_BYTES: usize = 1024 * 1024;

/// Timeout of a client that sends nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// S3's limit on one PUT or part, bytes.
const BODY_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// A body and the headers of its request.
pub(super) struct Incoming<'a> {
    pub(super) body: Option<StreamingBlob>,
    pub(super) content_length: Option<i64>,
    pub(super) content_md5: Option<String>,
    pub(super) headers: &'a HeaderMap,
    pub(super) trailers: Option<TrailingHeaders>,
}

impl Incoming<'_> {
    /// Receives the body. It succeeds only if the file contains exactly the bytes that the client meant to send; an
    /// error leaves nothing behind.
    pub(super) async fn receive(mut self, disk: &Arc<Disk>) -> S3Result<(Temp, Digests)> {
        let length = self.content_length.ok_or_else(|| s3_error!(MissingContentLength))?;
        let expected = Expected {
            size_bytes: u64::try_from(length).map_err(|_| s3_error!(InvalidArgument, "a negative Content-Length"))?,
            md5: self.content_md5.take(),
            checksums: Checksums::from_headers(self.headers),
        };
        if expected.size_bytes > BODY_BYTES_MAX {
            return Err(s3_error!(
                EntityTooLarge,
                "one upload may have at most {BODY_BYTES_MAX} bytes; upload it in parts"
            ));
        }
        let mut hasher = Hasher::new(self.headers);
        let mut temp = None;
        let mut received = 0;
        loop {
            let Batch { pieces, last } = next_batch(self.body.as_mut()).await?;
            received += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
            if received > expected.size_bytes {
                return Err(s3_error!(
                    InvalidRequest,
                    "the body is longer than the announced {} bytes",
                    expected.size_bytes
                ));
            }
            let disk = disk.clone();
            let (kept, after) = blocking(move || {
                let mut kept = temp.map_or_else(|| disk.temp(), Ok)?;
                for piece in pieces {
                    hasher.update(&piece);
                    kept.file.write_all(&piece).map_err(failed("write an object"))?;
                }
                Ok((kept, hasher))
            })
            .await?;
            if last {
                let digests = after.finish();
                let trailers = self.trailers.and_then(|trailers| trailers.read(Checksums::from_headers));
                expected.check(&digests, &trailers.unwrap_or_default())?;
                return Ok((kept, digests));
            }
            (temp, hasher) = (Some(kept), after);
        }
    }
}

struct Batch {
    pieces: Vec<Bytes>,
    last: bool,
}

async fn next_batch(body: Option<&mut StreamingBlob>) -> S3Result<Batch> {
    let mut batch = Batch { pieces: Vec::new(), last: true };
    let Some(body) = body else { return Ok(batch) };
    let mut held = 0;
    while held < BATCH_BYTES {
        let next = tokio::time::timeout(IDLE_TIMEOUT, body.next()).await;
        let next = next
            .map_err(|_| s3_error!(RequestTimeout, "no byte of the body arrived for {} s", IDLE_TIMEOUT.as_secs()))?;
        let Some(piece) = next else { return Ok(batch) };
        // The connection was lost, or the body does not match its signature.
        let piece =
            piece.map_err(|error| s3_error!(InvalidRequest, "the body does not match its signature: {error}"))?;
        held += piece.len();
        batch.pieces.push(piece);
    }
    batch.last = false;
    Ok(batch)
}

/// Runs blocking disk work on a thread where it delays no other task. It runs to its end even if the client
/// disconnects.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> S3Result<T> + Send + 'static) -> S3Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(S3Error::internal_error(error)))
}
