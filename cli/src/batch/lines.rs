//! The results and the errors of a batch, streamed as lines of JSON.

use std::path::Path;

use anyhow::{Context, Result};
use futures::StreamExt;
use serde_json::json;
use stokehold_client::models::Batch;
use tokio::io::AsyncWriteExt;

use crate::client::{Client, decode, may_pass, retry, segment};
use crate::{Global, output, progress, result};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Results,
    Errors,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Results => "results",
            Self::Errors => "errors",
        }
    }
}

pub(super) async fn run(global: &Global, client: &Client, kind: Kind, id: &str, to: Option<&Path>) -> Result<()> {
    let batch: Batch = decode(&client.get(&format!("/v1/batches/{}", segment(id))).await?)?;
    let lines = match to {
        Some(path) => save(client, kind, id, path).await?,
        None => print(client, kind, id).await?,
    };
    if let Some(path) = to
        && global.json
    {
        output::json(&json!({"path": path, "lines": lines, "state": batch.state}))?;
    } else if to.is_some() {
        said(kind, lines, to);
    }
    if !batch.state.has_ended() {
        output::note(output::dim(format_args!("the batch is {}; more lines will follow", batch.state)));
    }
    Ok(())
}

/// Prints how many lines were saved, and where.
pub(super) fn said(kind: Kind, lines: u64, to: Option<&Path>) {
    if let Some(path) = to {
        let lines = output::counted(lines, "line");
        output::note(format_args!("saved {} to {}: {lines}", kind.word(), path.display()));
    }
}

/// Saves the lines to a file atomically. Returns their number.
pub(crate) async fn save(client: &Client, kind: Kind, id: &str, to: &Path) -> Result<u64> {
    for tried in 1.. {
        match try_save(client, kind, id, to).await {
            Ok(lines) => return Ok(lines),
            // Restarted from the first line: a running batch may have more lines by now.
            Err(error) if tried < retry::TRIES && may_pass(&error) && !error.is::<std::io::Error>() => {
                tokio::time::sleep(retry::pause(tried, None)).await;
            }
            Err(error) => {
                return Err(error.context(format!("cannot save the {} to {}", kind.word(), to.display())));
            }
        }
    }
    anyhow::bail!("not saved")
}

async fn try_save(client: &Client, kind: Kind, id: &str, to: &Path) -> Result<u64> {
    let answer = open(client, kind, id).await?;
    let bar = progress::bytes(format!("saving {}", to.display()));
    let mut place = result::Beside::create(to).await?;
    let (mut body, mut lines) = (answer.bytes_stream(), Lines::default());
    while let Some(piece) = body.next().await {
        let piece = piece.context("the connection to the API closed before the end of the response")?;
        lines.see(&piece);
        place.file.write_all(&piece).await?;
        bar.inc(piece.len() as u64);
    }
    place.keep().await?;
    bar.finish_and_clear();
    Ok(lines.count())
}

async fn print(client: &Client, kind: Kind, id: &str) -> Result<u64> {
    let (mut body, mut lines) = (open(client, kind, id).await?.bytes_stream(), Lines::default());
    while let Some(piece) = body.next().await {
        let piece = piece.context(
            "the connection to the API closed before the end of the response; the printed lines are incomplete",
        )?;
        lines.see(&piece);
        output::raw(&piece)?;
    }
    Ok(lines.count())
}

async fn open(client: &Client, kind: Kind, id: &str) -> Result<reqwest::Response> {
    client.stream(&format!("/v1/batches/{}/{}", segment(id), kind.word()), &[]).await
}

/// Counts lines of a stream.
#[derive(Default)]
struct Lines {
    ends: u64,
    /// Set when the last piece ended within a line.
    open: bool,
}

impl Lines {
    fn see(&mut self, piece: &[u8]) {
        self.ends += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.open = piece.last().map_or(self.open, |last| *last != b'\n');
    }

    fn count(&self) -> u64 {
        self.ends + u64::from(self.open)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;

    use super::*;
    use crate::stub;

    #[test]
    fn lines_are_counted_however_they_were_cut() {
        for (pieces, expected) in [(&["a\nb", "\nc\n"][..], 3), (&["a\nb", ""], 2), (&["a", "\n"], 1), (&[], 0)] {
            let mut lines = Lines::default();
            pieces.iter().for_each(|piece| lines.see(piece.as_bytes()));
            assert_eq!(lines.count(), expected, "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn a_download_that_breaks_off_is_done_again_and_nothing_half_is_left() {
        let tries = Arc::new(AtomicUsize::new(0));
        let count = tries.clone();
        let answer = || async move {
            let broken = count.fetch_add(1, Relaxed) == 0;
            let last = if broken { Err(std::io::Error::other("cut")) } else { Ok("{\"line\":2}\n") };
            Body::from_stream(futures::stream::iter([Ok("{\"line\":1}\n"), last]))
        };
        let client = stub::serve(Router::new().route("/v1/batches/batch_1/results", get(answer))).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/results.jsonl");
        assert_eq!(save(&client, Kind::Results, "batch_1", &path).await.unwrap(), 2);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"line\":1}\n{\"line\":2}\n");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(tries.load(Relaxed), 2);
    }
}
