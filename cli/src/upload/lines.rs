//! Streaming upload of JSON lines as the body of one request.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio::sync::Notify;
use tokio_util::io::ReaderStream;

use crate::client::{Client, RequestError, retry};
use crate::failure::{Failure, require};
use crate::progress;

const PIECE_BYTES: usize = 128 << 10;

/// Maximum time without progress of an upload from a file.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Maximum time from the last byte to the response, in which the API stores the lines.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// A source of lines.
pub(crate) enum Lines {
    /// A file, which has a length and can be read again.
    File { path: PathBuf, size_bytes: u64 },
    /// Standard input or a named pipe, which can be read only once.
    Pipe(Option<PathBuf>),
}

impl Lines {
    /// Opens a file, or standard input for `-`.
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Pipe(None));
        }
        let about = tokio::fs::metadata(path).await.with_context(|| Failure::cannot_read(path.display()))?;
        require!(!about.is_dir(), "{} is a folder; pass a file with one job per line", path.display());
        if !about.is_file() {
            return Ok(Self::Pipe(Some(path.to_owned())));
        }
        require!(about.len() > 0, "{} is empty; pass a file with one job per line", path.display());
        Ok(Self::File { path: path.to_owned(), size_bytes: about.len() })
    }

    /// Number of lines, without empty ones at the end; `None` for a pipe.
    pub(crate) async fn count(&self) -> Result<Option<u64>> {
        let Self::File { path, .. } = self else { return Ok(None) };
        let mut pieces = ReaderStream::with_capacity(self.reader().await?, PIECE_BYTES);
        let (mut lines, mut empty, mut is_empty) = (0, 0, true);
        while let Some(piece) = pieces.next().await {
            for byte in piece.with_context(|| format!("cannot read {}", path.display()))? {
                match byte {
                    b'\n' if is_empty => empty += 1,
                    b'\n' => is_empty = true,
                    byte if byte.is_ascii_whitespace() => {}
                    _ if is_empty => {
                        lines += empty + 1;
                        (empty, is_empty) = (0, false);
                    }
                    _ => {}
                }
            }
        }
        Ok(Some(lines))
    }

    fn name(&self) -> String {
        match self {
            Self::File { path, .. } | Self::Pipe(Some(path)) => path.display().to_string(),
            Self::Pipe(None) => "standard input".to_owned(),
        }
    }

    async fn reader(&self) -> Result<Box<dyn AsyncRead + Send + Unpin>> {
        match self {
            Self::Pipe(None) => Ok(Box::new(tokio::io::stdin())),
            Self::File { path, .. } | Self::Pipe(Some(path)) => {
                let file = tokio::fs::File::open(path).await;
                Ok(Box::new(file.with_context(|| Failure::cannot_read(path.display()))?))
            }
        }
    }
}

/// Posts the lines to `path`. A file is retried after transient failures, which the idempotency key makes safe.
pub(crate) async fn send(client: &Client, path: &str, key: &str, lines: &Lines) -> Result<Value> {
    for tried in 1.. {
        let failure = match once(client, path, key, lines).await? {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        if !failure.passing || matches!(lines, Lines::Pipe(_)) || tried >= retry::TRIES {
            return Err(failure.error);
        }
        tokio::time::sleep(retry::pause(tried, failure.asked)).await;
    }
    bail!("not sent")
}

async fn once(client: &Client, path: &str, key: &str, lines: &Lines) -> Result<Result<Value, RequestError>> {
    let message = format!("uploading {}", lines.name());
    let bar = match lines {
        Lines::File { size_bytes, .. } => progress::transfer(message, *size_bytes),
        Lines::Pipe(_) => progress::bytes(message),
    };
    let moves = Arc::new(Moves::default());
    let (counted, moved, ended) = (bar.clone(), moves.clone(), moves.clone());
    let body = ReaderStream::with_capacity(lines.reader().await?, PIECE_BYTES)
        .inspect_ok(move |piece| {
            counted.inc(piece.len() as u64);
            moved.some.notify_one();
        })
        .chain(futures::stream::once(async move { ended.end() }).filter_map(async |()| None));
    let mut request = client.upload(path).header(CONTENT_TYPE, "application/jsonl").header("idempotency-key", key);
    if let Lines::File { size_bytes, .. } = lines {
        request = request.header(CONTENT_LENGTH, *size_bytes);
    }
    let mut sent = pin!(request.body(reqwest::Body::wrap_stream(body)).send());
    let sent = loop {
        tokio::select! {
            sent = &mut sent => break sent,
            () = moves.stall(matches!(lines, Lines::File { .. })) => {
                bar.finish_and_clear();
                bail!("upload to {} stalled: no progress on {}", client.url(), lines.name());
            }
            () = moves.some.notified() => (),
        }
    };
    bar.finish_and_clear();
    Ok(match client.answer(sent).await {
        Ok(answer) => Ok(answer.json().await.context("the API's response is not valid JSON")?),
        Err(failure) => Err(failure),
    })
}

/// Progress of a body.
#[derive(Default)]
struct Moves {
    some: Notify,
    all: AtomicBool,
}

impl Moves {
    fn end(&self) {
        self.all.store(true, Ordering::Relaxed);
        self.some.notify_one();
    }

    /// Completes when there was no progress for too long.
    async fn stall(&self, file: bool) {
        match self.patience(file) {
            Some(patience) => tokio::time::sleep(patience).await,
            None => std::future::pending().await,
        }
    }

    /// Maximum time without progress. The source of a pipe may be slow, so a pipe has none.
    fn patience(&self, file: bool) -> Option<Duration> {
        if self.all.load(Ordering::Relaxed) { Some(ANSWER_MAX) } else { file.then_some(STALL_MAX) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Mutex;

    use axum::http::{HeaderMap, StatusCode};
    use axum::response::IntoResponse;
    use axum::routing::post;
    use axum::{Json, Router};
    use serde_json::json;

    use super::*;
    use crate::stub;

    /// A stub API that fails the first request, and the requests that it got.
    async fn serve(first: StatusCode) -> (Client, Arc<Mutex<Vec<(HeaderMap, usize)>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let keep = seen.clone();
        let answer = move |headers: HeaderMap, body: bytes::Bytes| async move {
            let mut seen = keep.lock().unwrap();
            seen.push((headers, body.len()));
            match seen.len() {
                1 if !first.is_success() => {
                    (first, Json(json!({"status": first.as_u16(), "detail": "down"}))).into_response()
                }
                _ => (StatusCode::ACCEPTED, Json(json!({"id": "batch_1"}))).into_response(),
            }
        };
        (stub::serve(Router::new().route("/v1/batches", post(answer))).await, seen)
    }

    #[tokio::test]
    async fn a_file_is_sent_again_with_its_key() {
        let (client, seen) = serve(StatusCode::SERVICE_UNAVAILABLE).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        std::fs::write(&path, "{\"input\":{}}\n".repeat(50_000)).unwrap();
        let lines = Lines::open(&path).await.unwrap();
        assert_eq!(send(&client, "/v1/batches?endpoint=e", "key-1", &lines).await.unwrap()["id"], "batch_1");
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 2);
        for (headers, size) in seen.iter() {
            assert_eq!((headers["idempotency-key"].to_str().unwrap(), *size), ("key-1", 650_000));
            assert_eq!(
                (&headers["content-type"], &headers["content-length"]),
                (&"application/jsonl".parse().unwrap(), &"650000".parse().unwrap())
            );
            assert_eq!(headers["authorization"], "Bearer sk_test");
        }
    }

    #[tokio::test]
    async fn what_the_api_refuses_is_not_sent_again() {
        let (client, seen) = serve(StatusCode::UNPROCESSABLE_ENTITY).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        std::fs::write(&path, "{}\n").unwrap();
        let said = send(&client, "/v1/batches", "key-1", &Lines::open(&path).await.unwrap()).await.unwrap_err();
        assert_eq!((said.to_string(), seen.lock().unwrap().len()), ("down".to_owned(), 1));
    }

    #[tokio::test]
    async fn what_cannot_be_lines_is_said_first() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        for (path, part) in
            [(empty.as_path(), "is empty"), (folder.path(), "is a folder"), (Path::new("/no/such"), "cannot read")]
        {
            let error = Lines::open(path).await.err().unwrap();
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(crate::exit::Report::of(&error).exit_code, crate::exit::USAGE, "{error}");
        }
    }

    #[test]
    fn a_pipe_may_take_its_time_and_a_file_may_not() {
        let moves = Moves::default();
        assert_eq!((moves.patience(true), moves.patience(false)), (Some(STALL_MAX), None));
        moves.end();
        assert_eq!((moves.patience(true), moves.patience(false)), (Some(ANSWER_MAX), Some(ANSWER_MAX)));
    }
}
