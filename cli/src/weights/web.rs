//! Size and hash of files on the web.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode};
use sha2::{Digest, Sha256};

use super::{Pinned, check, last_part};
use crate::client::retry;
use crate::package::WeightSource;
use crate::progress;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn http() -> Result<Client> {
    Ok(Client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(SILENCE_TIMEOUT).build()?)
}

/// Resolves the file at `url`. It is downloaded to hash it, unless its hash is declared.
pub(super) async fn look(declared: &WeightSource, url: &str, headers: &[(&'static str, String)]) -> Result<Pinned> {
    let path = declared.path.clone().unwrap_or_else(|| last_part(&declared.source).to_owned());
    let (sha256, size_bytes) = match &declared.sha256 {
        Some(sha256) => (sha256.clone(), size(&path, url, headers).await?),
        None => measure(&path, url, headers).await?,
    };
    check(declared, &path, &sha256)?;
    ensure!(size_bytes > 0, "weights: {path} is empty");
    Ok(Pinned {
        path,
        source: declared.source.clone(),
        url: Some(declared.source.clone()),
        sha256,
        size_bytes,
        file: None,
    })
}

/// Gets the size of a file with a request for its first byte.
async fn size(path: &str, url: &str, headers: &[(&'static str, String)]) -> Result<u64> {
    let answer = ask(&http()?, path, url, headers, Some((0, Some(0), None))).await?;
    total(&answer).with_context(|| format!("weights: the server does not return the size of {path}; remove its sha256, so that it is downloaded and measured"))
}

/// Downloads a file to compute its hash and size. An interrupted download resumes if the file has a strong ETag, else
/// it restarts. The number of tries without progress is limited.
pub(super) async fn measure(path: &str, url: &str, headers: &[(&'static str, String)]) -> Result<(String, u64)> {
    let http = http()?;
    let (mut hash, mut done, mut etag) = (Sha256::new(), 0_u64, None::<String>);
    let bar = progress::transfer(format!("hashing {path}"), 0);
    let (mut tried, mut furthest) = (0, 0);
    loop {
        // Without an ETag, the rest could belong to another version of the file.
        let range = etag.clone().filter(|_| done > 0).map(|etag| (done, None, Some(etag)));
        let outcome = async {
            let mut answer = ask(&http, path, url, headers, range).await?;
            if answer.status() == StatusCode::OK && done > 0 {
                // The file has changed, or the server does not support ranges.
                (hash, done) = (Sha256::new(), 0);
            }
            let strong = |etag: &str| (!etag.starts_with("W/")).then(|| etag.to_owned());
            etag = answer.headers().get(ETAG).and_then(|etag| strong(etag.to_str().ok()?));
            let whole = total(&answer);
            bar.set_length(whole.unwrap_or(0));
            while let Some(piece) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
                hash.update(&piece);
                done += piece.len() as u64;
                bar.set_position(done);
                if done > furthest {
                    (tried, furthest) = (0, done);
                }
            }
            ensure!(whole.is_none_or(|whole| whole == done), "the connection closed before the end of the file");
            Ok(())
        };
        match outcome.await {
            Ok(()) => break,
            Err(error) if is_final(&error) || tried >= retry::TRIES => return Err(error),
            Err(_) => {
                tried += 1;
                tokio::time::sleep(retry::pause(tried, None)).await;
            }
        }
    }
    bar.finish_and_clear();
    Ok((hex::encode(hash.finalize()), done))
}

/// First byte, last byte and ETag of a range.
type Part = (u64, Option<u64>, Option<String>);

/// A request that the server refused.
#[derive(Debug, thiserror::Error)]
#[error("weights: {path}: the server returned {status}{advice}")]
struct Refused {
    path: String,
    status: StatusCode,
    advice: &'static str,
}

fn is_final(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.status.is_client_error())
}

async fn ask(
    http: &Client,
    path: &str,
    url: &str,
    headers: &[(&'static str, String)],
    part: Option<Part>,
) -> Result<Response> {
    let mut request = http.get(url);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    if let Some((from, to, etag)) = part {
        request = request.header(RANGE, format!("bytes={from}-{}", to.map_or(String::new(), |to| to.to_string())));
        if let Some(etag) = etag {
            request = request.header(IF_RANGE, etag);
        }
    }
    let answer = request.send().await.map_err(reqwest::Error::without_url);
    let answer = answer.with_context(|| format!("weights: cannot download {path}"))?;
    refused(path, answer)
}

pub(super) fn refused(path: &str, answer: Response) -> Result<Response> {
    let status = answer.status();
    if status.is_success() || status.is_redirection() {
        return Ok(answer);
    }
    let advice = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; if it needs a token, set HF_TOKEN (hf:// only)",
        StatusCode::NOT_FOUND => "; check the name",
        _ => "",
    };
    bail!(Refused { path: path.to_owned(), status, advice })
}

/// The size of the whole file.
fn total(answer: &Response) -> Option<u64> {
    let number = |headers: &HeaderMap, name| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    match answer.status() {
        StatusCode::PARTIAL_CONTENT => {
            answer.headers().get(CONTENT_RANGE)?.to_str().ok()?.rsplit_once('/')?.1.parse().ok()
        }
        _ => number(answer.headers(), CONTENT_LENGTH),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_does_not_say_its_version_is_read_anew_after_a_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a", listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let mut ranges = 0;
            // The file changes between requests; a server can support ranges without sending an ETag.
            for (sent, body) in [(4, "old-old-"), (8, "new-new-")] {
                let (mut connection, _) = listener.accept().unwrap();
                let lines = BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                ranges += head.iter().filter(|line| line.to_lowercase().starts_with("range:")).count();
                write!(connection, "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{}", &body[..sent]).unwrap();
            }
            ranges
        });
        let (sha256, size_bytes) = measure("a", &url, &[]).await.unwrap();
        assert_eq!((sha256, size_bytes), (hex::encode(Sha256::digest("new-new-")), 8));
        assert_eq!(serving.join().unwrap(), 0);
    }
}
