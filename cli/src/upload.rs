//! Uploads of local files to presigned URLs, each for one length and checksum.

pub(crate) mod lines;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use reqwest::header::CONTENT_LENGTH;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use stokehold_client::models::{FileRequest, FileUpload};
use tokio_util::io::ReaderStream;

use crate::client::{Client, decode, retry};
use crate::failure::Failure;
use crate::progress;

/// Minimum upload timeout. Large files get more time, at [`BYTES_PER_S_MIN`].
const UPLOAD_TIMEOUT_MIN: Duration = Duration::from_secs(60);
const BYTES_PER_S_MIN: u64 = 100 << 10;

/// A presigned URL for an upload.
#[derive(Deserialize)]
pub(crate) struct UploadUrl {
    pub(crate) upload_url: String,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
}

/// Hash and length of a file.
pub(crate) struct Measured {
    pub(crate) sha256: String,
    pub(crate) size_bytes: u64,
}

/// Computes the length and hash of a file.
pub(crate) async fn measure(path: &Path) -> Result<Measured> {
    let (path, shown) = (path.to_owned(), path.display().to_string());
    let measured = tokio::task::spawn_blocking(move || -> std::io::Result<Measured> {
        let mut file = std::fs::File::open(path)?;
        let (mut hash, mut size_bytes, mut piece) = (Sha256::new(), 0, vec![0; 1 << 20]);
        loop {
            let count = file.read(&mut piece)?;
            if count == 0 {
                return Ok(Measured { sha256: hex::encode(hash.finalize()), size_bytes });
            }
            hash.update(&piece[..count]);
            size_bytes += count as u64;
        }
    });
    measured.await?.with_context(|| Failure::cannot_read(shown))
}

/// Uploads an input file of a job. Returns its id, for `{"$file": id}` in the input.
pub(crate) async fn input_file(client: &Client, path: &Path) -> Result<String> {
    let name = path.file_name().with_context(|| Failure::usage(format!("{} is not a file", path.display())))?;
    let name = name.to_string_lossy();
    let measured = measure(path).await?;
    let request = FileRequest {
        name: name.clone().into_owned(),
        size_bytes: measured.size_bytes,
        sha256: measured.sha256,
        ..FileRequest::default()
    };
    let (_, answer) = client.post("/v1/files", Some(&serde_json::to_value(request)?)).await?;
    let FileUpload { id, .. } = decode(&answer)?;
    put(client, &name, path, measured.size_bytes, &UploadUrl::deserialize(&answer)?).await?;
    Ok(id)
}

/// Uploads a file, named `name` in messages, with retries. Retries are safe, because the URL accepts only these bytes.
pub(crate) async fn put(client: &Client, name: &str, path: &Path, size_bytes: u64, place: &UploadUrl) -> Result<()> {
    let timeout = UPLOAD_TIMEOUT_MIN + Duration::from_secs(size_bytes / BYTES_PER_S_MIN);
    for tried in 1.. {
        let bar = progress::transfer(format!("uploading {name}"), size_bytes);
        let file = tokio::fs::File::open(path).await.with_context(|| format!("cannot read {}", path.display()))?;
        let counted = bar.clone();
        let body =
            ReaderStream::with_capacity(file, 128 << 10).inspect_ok(move |piece| counted.inc(piece.len() as u64));
        let mut request = client.uploads().put(&place.upload_url).timeout(timeout).header(CONTENT_LENGTH, size_bytes);
        for (header, value) in place.headers.iter().filter(|(header, _)| !header.eq_ignore_ascii_case("content-length"))
        {
            request = request.header(header, value);
        }
        let sent = request.body(reqwest::Body::wrap_stream(body)).send().await;
        bar.finish_and_clear();
        let (error, again) = match sent {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => {
                let status = answer.status();
                let body: String = answer.text().await.unwrap_or_default().chars().take(500).collect();
                (anyhow::anyhow!("the object store refused {name} ({status}): {body}"), status.is_server_error())
            }
            Err(error) => (anyhow::Error::new(error.without_url()).context("cannot reach the object store"), true),
        };
        if !again || tried >= retry::TRIES {
            return Err(error);
        }
        tokio::time::sleep(retry::pause(tried, None)).await;
    }
    bail!("not sent")
}
