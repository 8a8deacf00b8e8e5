//! Transfers to and from S3 by presigned URLs, with limits, timeouts and retries.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use percent_encoding::percent_decode_str;
use reqwest::header::CONTENT_DISPOSITION;
use reqwest::{Body, StatusCode};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::io::ReaderStream;

use crate::backoff::{Policy, Tries};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest pause between two pieces of a download. For an upload, this is added to the time that its bytes need.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Slowest accepted upload speed.
const UPLOAD_BYTES_PER_S: u64 = 256 * 1024;

/// Timeout of the retries of a download. A failing download blocks a slot; another worker may succeed sooner.
const GET_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the retries of an upload. A lost result would cost another run, so an unreachable store is retried for
/// the length of a long outage.
pub(crate) const PUT_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Pauses between the tries of a transfer.
pub(crate) const RETRY: Policy =
    Policy { min: Duration::from_millis(200), max: Duration::from_secs(10), jitter: 0.5..1.0 };

/// Maximum size of a file: S3's limit for one PUT.
pub(crate) const FILE_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// Transfers bytes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Transfer {
    http: reqwest::Client,
}

/// Source of an upload.
#[derive(Clone)]
pub(crate) enum Source<'a> {
    /// Bytes in memory.
    Bytes(bytes::Bytes),
    /// A whole file.
    File(&'a std::fs::File),
}

impl Transfer {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self { http: reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).build()? })
    }

    /// Uploads an object. Retrying is safe: the key belongs to this attempt only.
    pub(crate) async fn put(
        &self,
        url: &str,
        headers: &BTreeMap<String, String>,
        source: Source<'_>,
    ) -> anyhow::Result<()> {
        let mut tries = Tries::within(&RETRY, PUT_TIMEOUT);
        loop {
            match self.put_once(url, headers, &source).await {
                Err(error) if is_worth_another(&tries, &error) => tries.pause().await,
                outcome => return outcome,
            }
        }
    }

    async fn put_once(&self, url: &str, headers: &BTreeMap<String, String>, source: &Source<'_>) -> anyhow::Result<()> {
        let (body, size_bytes) = match source {
            Source::Bytes(bytes) => (Body::from(bytes.clone()), bytes.len() as u64),
            Source::File(file) => {
                let mut file = File::from_std(file.try_clone()?);
                let size_bytes = file.metadata().await?.len();
                // Duplicated descriptors share the file position.
                file.rewind().await?;
                (Body::wrap_stream(ReaderStream::with_capacity(file, 256 * 1024)), size_bytes)
            }
        };
        let limit = IDLE_TIMEOUT + Duration::from_secs(size_bytes / UPLOAD_BYTES_PER_S);
        let mut request = self.http.put(url).timeout(limit).body(body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if !headers.keys().any(|name| name.eq_ignore_ascii_case("content-length")) {
            request = request.header("content-length", size_bytes);
        }
        checked(request.send().await.map_err(reqwest::Error::without_url)?)?;
        Ok(())
    }

    /// Downloads an object of at most `max` bytes into memory.
    pub(crate) async fn get_bytes(&self, url: &str, max: usize) -> anyhow::Result<Vec<u8>> {
        let mut tries = Tries::within(&RETRY, GET_TIMEOUT);
        loop {
            match self.get_bytes_once(url, max).await {
                Err(error) if is_worth_another(&tries, &error) => tries.pause().await,
                outcome => return outcome,
            }
        }
    }

    async fn get_bytes_once(&self, url: &str, max: usize) -> anyhow::Result<Vec<u8>> {
        let answer = timeout(IDLE_TIMEOUT, self.http.get(url).send()).await?;
        let answer = checked(answer.map_err(reqwest::Error::without_url)?)?;
        let (mut bytes, mut body) = (Vec::new(), answer.bytes_stream());
        while let Some(piece) = timeout(IDLE_TIMEOUT, body.next()).await? {
            let piece = piece.map_err(reqwest::Error::without_url)?;
            anyhow::ensure!(bytes.len() + piece.len() <= max, "the object is larger than {max} bytes");
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Downloads an object of at most [`FILE_BYTES_MAX`] into a file, replacing its content. Returns the uploaded
    /// file's name, if the store reports it.
    pub(crate) async fn get(&self, url: &str, into: &std::fs::File) -> anyhow::Result<Option<String>> {
        let mut tries = Tries::within(&RETRY, GET_TIMEOUT);
        loop {
            match self.get_once(url, into).await {
                Err(error) if is_worth_another(&tries, &error) => tries.pause().await,
                outcome => return outcome,
            }
        }
    }

    async fn get_once(&self, url: &str, into: &std::fs::File) -> anyhow::Result<Option<String>> {
        let answer = timeout(IDLE_TIMEOUT, self.http.get(url).send()).await?;
        let answer = checked(answer.map_err(reqwest::Error::without_url)?)?;
        let name = answer.headers().get(CONTENT_DISPOSITION).and_then(|value| name_in(value.to_str().ok()?));
        let (mut file, mut size_bytes) = (File::from_std(into.try_clone()?), 0);
        file.set_len(0).await?;
        file.rewind().await?;
        let mut body = answer.bytes_stream();
        while let Some(piece) = timeout(IDLE_TIMEOUT, body.next()).await? {
            let piece = piece.map_err(reqwest::Error::without_url)?;
            size_bytes += piece.len() as u64;
            anyhow::ensure!(size_bytes <= FILE_BYTES_MAX, "the file is larger than {FILE_BYTES_MAX} bytes");
            file.write_all(&piece).await?;
        }
        file.flush().await?;
        Ok(name)
    }
}

/// The name in a `Content-Disposition` header that our gateway signed. Letters, digits and spaces of all scripts are
/// kept; separators, control characters and leading dots are replaced.
fn name_in(disposition: &str) -> Option<String> {
    // Less than the limit of file systems.
    const BYTES_MAX: usize = 200;
    let (_, encoded) = disposition.split_once("filename*=UTF-8''")?;
    let name = percent_decode_str(encoded).decode_utf8().ok()?;
    // Keep the end, which contains the extension.
    let mut from = name.len().saturating_sub(BYTES_MAX);
    while !name.is_char_boundary(from) {
        from += 1;
    }
    let dots = name[from..].len() - name[from..].trim_start_matches('.').len();
    let is_unsafe = |n: usize, c: char| n < dots || c.is_control() || matches!(c, '/' | '\\');
    let safe = name[from..].char_indices().map(|(n, c)| if is_unsafe(n, c) { '_' } else { c });
    Some(safe.collect::<String>()).filter(|name| !name.is_empty())
}

/// Size and SHA-256 (hex) of the rest of a file. Blocks on the disk.
pub(crate) fn measure(file: &mut impl std::io::Read) -> std::io::Result<(u64, String)> {
    let mut hash = Sha256::new();
    let size_bytes = std::io::copy(file, &mut hash)?;
    Ok((size_bytes, hex::encode(hash.finalize())))
}

/// A permanent rejection, which is not retried.
#[derive(Debug, thiserror::Error)]
#[error("the object store rejected the request: {0}")]
struct Refused(StatusCode);

fn checked(answer: reqwest::Response) -> anyhow::Result<reqwest::Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT && status != StatusCode::TOO_MANY_REQUESTS {
        return Err(Refused(status).into());
    }
    anyhow::bail!("the object store responded with {status}")
}

/// Whether to repeat a transfer after this error.
fn is_worth_another(tries: &Tries, error: &anyhow::Error) -> bool {
    let another = tries.are_left() && !error.is::<Refused>();
    if another {
        tracing::debug!(%error, "a transfer failed; retrying");
    }
    another
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_safe_and_keeps_its_end() {
        let named = |disposition: &str| name_in(disposition).unwrap_or_default();
        assert_eq!(named("inline; filename*=UTF-8''caf%C3%A9%20menu%2Epng"), "café menu.png");
        assert_eq!(named("inline; filename*=UTF-8''%2E%2E%2Fetc%2Fpasswd"), "___etc_passwd");
        assert_eq!(named("inline; filename*=UTF-8''%E5%9B%B3%01%5C1%2Epng"), "図__1.png");
        assert!(named(&format!("inline; filename*=UTF-8''{}.wav", "%C3%A4".repeat(150))).len() <= 200);
        assert!(named(&format!("inline; filename*=UTF-8''{}.wav", "a".repeat(500))).ends_with("aaa.wav"));
        assert_eq!(name_in("attachment; filename=plain.txt"), None);
    }
}
