//! Weights of endpoints: pinning on this machine, and upload of local files.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use serde_json::json;
use stokehold_client::models::{WeightsReply, WeightsRequest, WeightsUrl};
use stokehold_package::{BoxError, Error, Host, Method, Overlay, Package, Pinned, Request, Response, forget_pins};
use tokio::runtime::Handle;

use crate::client::{Client, decode, query};
use crate::failure::require;
use crate::upload::{self, UploadUrl};
use crate::{Global, output, progress};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Pin the weights of an endpoint
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke weights lock render")]
pub(crate) struct WeightsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Lock(LockArgs),
}

/// Write weights.lock: the exact files with their hashes
///
/// `stoke deploy` does the same for weights that are not pinned yet.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke weights lock render
  stoke weights lock render --update")]
struct LockArgs {
    /// Folder of the endpoint
    path: String,
    /// Resolve all weights again, including pinned ones
    #[arg(long)]
    update: bool,
}

pub(crate) async fn run(global: &Global, args: WeightsArgs) -> Result<()> {
    let Verb::Lock(LockArgs { path, update }) = args.verb;
    let package = Arc::new(Package::open(&path, Overlay::default())?);
    require!(!package.weights.is_empty(), "{path} has no weights; declare them with [[weights]] in its stoke.toml");
    if update {
        forget_pins(&package.folder())?;
    }
    let pinned = pin(&package, || Client::connect(global)).await?;
    if global.json {
        return output::json(&json!({"weights": pinned}));
    }
    let mut table = output::table(["file", "size", "sha256", "from"]);
    for one in &pinned {
        table.add_row([&one.path, &output::bytes(one.size_bytes), &one.sha256[..12], &one.source]);
    }
    output::print_table(&table, "no weights")
}

/// Returns all files of an endpoint's weights. Files that are not in the lock are resolved now and added to it.
pub(crate) async fn pin(package: &Arc<Package>, client: impl Fn() -> Result<Client>) -> Result<Vec<Pinned>> {
    let mut urls = BTreeMap::new();
    for source in package.sources_to_sign()? {
        urls.insert(source.to_owned(), signed(&client()?, source).await?);
    }
    let (package, host) = (Arc::clone(package), Here::new()?);
    let pinned = tokio::task::spawn_blocking(move || package.pin(&host, &urls));
    Ok(pinned.await.context("pinning the weights was interrupted")??)
}

/// What reads from the hub on this machine. Its calls block.
pub(crate) fn host() -> Result<impl Host> {
    Here::new()
}

/// Implementation of pinning for this machine. Its calls block.
struct Here {
    runtime: Handle,
    following: reqwest::Client,
    not_following: reqwest::Client,
    /// The file that is hashed, and its bar.
    hashing: Mutex<Option<(String, ProgressBar)>>,
}

impl Here {
    fn new() -> Result<Self> {
        let http = || reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(SILENCE_TIMEOUT);
        Ok(Self {
            runtime: Handle::current(),
            following: http().build()?,
            not_following: http().redirect(reqwest::redirect::Policy::none()).build()?,
            hashing: Mutex::default(),
        })
    }
}

impl Host for Here {
    fn send(&self, request: &Request<'_>) -> Result<Response, BoxError> {
        let mut sending = match request.method {
            Method::Get => self.following.get(request.url),
            Method::Head => self.not_following.head(request.url),
        };
        for (name, value) in request.headers {
            sending = sending.header(*name, value);
        }
        let answer = self.runtime.block_on(sending.send()).map_err(reqwest::Error::without_url)?;
        let text = |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Ok(Response {
            status: answer.status().as_u16(),
            headers: answer.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: Box::new(Body { runtime: self.runtime.clone(), answer, piece: bytes::Bytes::new() }),
        })
    }

    fn note(&self, text: &str) {
        output::note(text);
    }

    fn hashing(&self, file: &str, done_bytes: u64, size_bytes: u64) -> Result<(), Error> {
        let mut hashing = self.hashing.lock().unwrap_or_else(PoisonError::into_inner);
        if hashing.as_ref().is_none_or(|(shown, _)| shown != file) {
            let bar = progress::transfer(format!("hashing {file}"), size_bytes);
            if let Some((_, previous)) = hashing.replace((file.to_owned(), bar)) {
                previous.finish_and_clear();
            }
        }
        if let Some((_, bar)) = &*hashing {
            bar.set_length(size_bytes);
            bar.set_position(done_bytes);
        }
        Ok(())
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some((_, bar)) = self.hashing.get_mut().unwrap_or_else(PoisonError::into_inner) {
            bar.finish_and_clear();
        }
    }
}

/// The body of a response.
struct Body {
    runtime: Handle,
    answer: reqwest::Response,
    /// Received and not read yet.
    piece: bytes::Bytes,
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.piece.is_empty() {
            let piece = self.runtime.block_on(self.answer.chunk()).map_err(reqwest::Error::without_url);
            self.piece = piece.map_err(std::io::Error::other)?.unwrap_or_default();
        }
        let count = self.piece.len().min(into.len());
        into[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

/// Gets a presigned URL for a file in a bucket that the API can read.
pub(crate) async fn signed(client: &Client, source: &str) -> Result<String> {
    let signed: WeightsUrl = decode(&client.get(&query("/v1/weights/url", &[("source", Some(source))])).await?)?;
    Ok(signed.url)
}

/// Uploads local files for workers to download.
pub(crate) async fn upload(client: &Client, pinned: &[Pinned]) -> Result<()> {
    for one in pinned {
        let Some(file) = &one.file else { continue };
        let wanted = WeightsRequest { sha256: one.sha256.clone(), size_bytes: one.size_bytes };
        let (_, place) = client.post("/v1/weights", Some(&serde_json::to_value(wanted)?)).await?;
        if !decode::<WeightsReply>(&place)?.exists {
            let place: UploadUrl =
                serde_json::from_value(place).context("the API's response has no upload URL for the weights")?;
            upload::put(client, &one.path, file, one.size_bytes, &place).await?;
        }
    }
    Ok(())
}
