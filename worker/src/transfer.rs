//! Bytes to and from S3 by presigned URLs, with bounds, timeouts and retries.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use rand::Rng;
use reqwest::{Body, StatusCode};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};
use tokio_util::io::ReaderStream;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest pause between two pieces of a download. An upload shows no pieces: it may take this long, and what its bytes need.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The slowest upload that is waited for.
const UPLOAD_BYTES_PER_S: u64 = 256 * 1024;

/// A file that cannot be fetched holds up a slot: the next worker may have more luck soon.
const GET_PATIENCE: Duration = Duration::from_secs(10);

/// What a job has made has cost a run, and would cost it again: a store that is away is waited for as long as a bad outage takes.
const PUT_PATIENCE: Duration = Duration::from_secs(15 * 60);

const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The largest single file, which is what S3 takes in one PUT.
pub(crate) const FILE_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// Moves bytes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Transfer {
    http: reqwest::Client,
}

/// Where the bytes of an upload are.
#[derive(Clone)]
pub(crate) enum Source<'a> {
    /// In memory.
    Bytes(bytes::Bytes),
    /// In a file.
    File(&'a Path),
}

impl Transfer {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self { http: reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).build()? })
    }

    /// Puts an object. Repeating is safe: the key belongs to this attempt alone.
    pub(crate) async fn put(
        &self,
        url: &str,
        headers: &BTreeMap<String, String>,
        source: Source<'_>,
    ) -> anyhow::Result<()> {
        let mut tries = Tries::within(PUT_PATIENCE);
        loop {
            match self.put_once(url, headers, &source).await {
                Err(error) if tries.another(&error) => tries.pause().await,
                outcome => return outcome,
            }
        }
    }

    async fn put_once(&self, url: &str, headers: &BTreeMap<String, String>, source: &Source<'_>) -> anyhow::Result<()> {
        let (body, size_bytes) = match source {
            Source::Bytes(bytes) => (Body::from(bytes.clone()), bytes.len() as u64),
            Source::File(path) => {
                let file = File::open(path).await?;
                let size_bytes = file.metadata().await?.len();
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

    /// Gets an object into a new file of at most [`FILE_BYTES_MAX`].
    pub(crate) async fn get(&self, url: &str, into: &Path) -> anyhow::Result<()> {
        let mut tries = Tries::within(GET_PATIENCE);
        loop {
            match self.get_once(url, into).await {
                Err(error) if tries.another(&error) => tries.pause().await,
                outcome => return outcome,
            }
        }
    }

    async fn get_once(&self, url: &str, into: &Path) -> anyhow::Result<()> {
        let answer = timeout(IDLE_TIMEOUT, self.http.get(url).send()).await?;
        let answer = checked(answer.map_err(reqwest::Error::without_url)?)?;
        let (mut file, mut size_bytes) = (File::create(into).await?, 0);
        let mut body = answer.bytes_stream();
        while let Some(piece) = timeout(IDLE_TIMEOUT, body.next()).await? {
            let piece = piece.map_err(reqwest::Error::without_url)?;
            size_bytes += piece.len() as u64;
            anyhow::ensure!(size_bytes <= FILE_BYTES_MAX, "the file is larger than {FILE_BYTES_MAX} bytes");
            file.write_all(&piece).await?;
        }
        file.flush().await?;
        Ok(())
    }
}

/// Size and SHA-256 (hex) of a file.
pub(crate) async fn measure(path: &Path) -> std::io::Result<(u64, String)> {
    let path = path.to_owned();
    let hashed = tokio::task::spawn_blocking(move || {
        let mut hash = Sha256::new();
        let size_bytes = std::io::copy(&mut std::fs::File::open(path)?, &mut hash)?;
        Ok((size_bytes, hex::encode(hash.finalize())))
    });
    hashed.await.unwrap_or_else(|panic| Err(panic.into()))
}

/// A refusal that another try would only repeat.
#[derive(Debug, thiserror::Error)]
#[error("the store refused: {0}")]
struct Refused(StatusCode);

fn checked(answer: reqwest::Response) -> anyhow::Result<reqwest::Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT && status != StatusCode::TOO_MANY_REQUESTS {
        return Err(Refused(status).into());
    }
    anyhow::bail!("the store answered {status}")
}

/// The tries of one transfer.
struct Tries {
    until: Instant,
    wait: Duration,
}

impl Tries {
    fn within(patience: Duration) -> Self {
        Self { until: Instant::now() + patience, wait: WAIT_MIN }
    }

    /// Whether another try makes sense after this error.
    fn another(&mut self, error: &anyhow::Error) -> bool {
        let another = Instant::now() < self.until && !error.is::<Refused>();
        if another {
            tracing::debug!(%error, "a transfer failed, trying again");
        }
        another
    }

    /// Waits: doubling, with jitter.
    async fn pause(&mut self) {
        let jittered = self.wait.mul_f64(rand::rng().random_range(0.5..1.0));
        self.wait = (self.wait * 2).min(WAIT_MAX);
        tokio::time::sleep(jittered).await;
    }
}
