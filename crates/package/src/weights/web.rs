//! Size and hash of files on the web and on this machine.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::host::{Host, Method, Request, Response};
use super::{Pinned, check, last_part};
use crate::error::{Error, Step, invalid, require};
use crate::manifest::WeightSource;

/// Maximum number of failures of a download without progress in between.
const FAILURES_MAX: u32 = 4;

/// Pause after the first failure: 0.2 s. It doubles with each further one.
const PAUSE: Duration = Duration::from_millis(200);

const PIECE_BYTES: usize = 1 << 20;

type Headers<'a> = &'a [(&'static str, String)];

/// Resolves the file at `url`. It is downloaded to hash it, unless its hash is declared.
pub(super) fn look(host: &dyn Host, declared: &WeightSource, url: &str) -> Result<Pinned, Error> {
    let path = declared.path.clone().unwrap_or_else(|| last_part(&declared.source).to_owned());
    let (sha256, size_bytes) = match &declared.sha256 {
        Some(sha256) => (sha256.clone(), size(host, &path, url)?),
        None => measure(host, &path, url, &[])?,
    };
    check(declared, &path, &sha256)?;
    require!(size_bytes > 0, "weights: {path} is empty");
    let source = declared.source.clone();
    Ok(Pinned { path, url: Some(source.clone()), source, sha256, size_bytes, file: None })
}

/// Gets the size of a file with a request for its first byte.
fn size(host: &dyn Host, path: &str, url: &str) -> Result<u64, Error> {
    let answer = ask(host, path, url, &[("range", "bytes=0-0".to_owned())])?;
    match total(&answer) {
        Some(size) => Ok(size),
        None => invalid!(
            "weights: the server does not return the size of {path}; remove its sha256, so that it is downloaded and measured"
        ),
    }
}

/// A download in progress.
#[derive(Default)]
struct Download {
    hash: Sha256,
    done_bytes: u64,
    /// Strong ETag of the file.
    etag: Option<String>,
}

/// Downloads a file to compute its hash and size. An interrupted download resumes if the file has a strong ETag, and
/// restarts otherwise. The number of tries without progress is limited.
pub(super) fn measure(host: &dyn Host, path: &str, url: &str, headers: Headers<'_>) -> Result<(String, u64), Error> {
    let (mut download, mut failures, mut furthest) = (Download::default(), 0, 0);
    loop {
        let outcome = download.go_on(host, path, url, headers);
        if download.done_bytes > furthest {
            (failures, furthest) = (0, download.done_bytes);
        }
        match outcome {
            Ok(()) => return Ok((hex::encode(download.hash.finalize()), download.done_bytes)),
            Err(error) if is_final(&error) || failures >= FAILURES_MAX => return Err(error),
            Err(_) => {
                std::thread::sleep(PAUSE.saturating_mul(1 << failures));
                failures += 1;
            }
        }
    }
}

impl Download {
    /// Downloads the rest of the file.
    fn go_on(&mut self, host: &dyn Host, path: &str, url: &str, headers: Headers<'_>) -> Result<(), Error> {
        host.hashing(path, self.done_bytes, 0)?;
        let mut headers = headers.to_vec();
        // Without an ETag, the rest could belong to another version of the file.
        if let Some(etag) = self.etag.clone().filter(|_| self.done_bytes > 0) {
            headers.push(("range", format!("bytes={}-", self.done_bytes)));
            headers.push(("if-range", etag));
        }
        let mut answer = ask(host, path, url, &headers)?;
        if answer.status == 200 && self.done_bytes > 0 {
            // The file has changed, or the server does not support ranges.
            *self = Self::default();
        }
        self.etag = answer.header("etag").filter(|etag| !etag.starts_with("W/")).map(str::to_owned);
        let whole = total(&answer);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            host.hashing(path, self.done_bytes, whole.unwrap_or(0))?;
            match answer.body.read(&mut piece).step(|| format!("weights: cannot download {path}"))? {
                0 => break,
                count => {
                    self.hash.update(&piece[..count]);
                    self.done_bytes += count as u64;
                }
            }
        }
        let is_whole = whole.is_none_or(|whole| whole == self.done_bytes);
        require!(is_whole, "weights: cannot download {path}: the connection closed before the end of the file");
        Ok(())
    }
}

/// Computes the hash and size of a local file.
pub(super) fn measure_file(host: &dyn Host, shown: &str, path: &Path) -> Result<(String, u64), Error> {
    let mut file = std::fs::File::open(path).reading(path)?;
    let size_bytes = file.metadata().reading(path)?.len();
    let (mut hash, mut done_bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        host.hashing(shown, done_bytes, size_bytes)?;
        match file.read(&mut piece).reading(path)? {
            0 => return Ok((hex::encode(hash.finalize()), done_bytes)),
            count => {
                hash.update(&piece[..count]);
                done_bytes += count as u64;
            }
        }
    }
}

fn is_final(error: &Error) -> bool {
    match error {
        Error::Refused { status, .. } => (400..500).contains(status),
        Error::Stopped => true,
        Error::Invalid(_) | Error::Failed { .. } => false,
    }
}

fn ask(host: &dyn Host, path: &str, url: &str, headers: Headers<'_>) -> Result<Response, Error> {
    let answer = host.send(&Request { method: Method::Get, url, headers });
    refused(path, answer.step(|| format!("weights: cannot download {path}"))?)
}

/// Returns the response, or the error for its status.
pub(super) fn refused(path: &str, answer: Response) -> Result<Response, Error> {
    let advice = match answer.status {
        200..=399 => return Ok(answer),
        401 | 403 => "; if it needs a token, set HF_TOKEN (hf:// only)",
        404 => "; check the name",
        _ => "",
    };
    Err(Error::Refused { path: path.to_owned(), status: answer.status, advice })
}

/// The size of the whole file.
fn total(answer: &Response) -> Option<u64> {
    match answer.status {
        206 => answer.header("content-range")?.rsplit_once('/')?.1.parse().ok(),
        _ => answer.header("content-length")?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;
    use crate::error::BoxError;

    /// Status, headers and body of a response.
    type Scripted = (u16, Vec<(String, String)>, &'static str);

    /// Returns these responses, and keeps the headers of the requests.
    struct Script {
        responses: Mutex<VecDeque<Scripted>>,
        asked: Mutex<Vec<Vec<(&'static str, String)>>>,
        /// The bytes after which the caller stops.
        stops_at: u64,
    }

    impl Host for Script {
        fn send(&self, request: &Request<'_>) -> Result<Response, BoxError> {
            self.asked.lock().unwrap().push(request.headers.to_vec());
            let (status, headers, body) = self.responses.lock().unwrap().pop_front().unwrap();
            Ok(Response { status, headers, body: Box::new(body.as_bytes()) })
        }

        fn note(&self, _: &str) {}

        fn hashing(&self, _: &str, done_bytes: u64, _: u64) -> Result<(), Error> {
            if done_bytes < self.stops_at { Ok(()) } else { Err(Error::Stopped) }
        }
    }

    fn response(status: u16, headers: &[(&str, &str)], body: &'static str) -> Scripted {
        (status, headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(), body)
    }

    fn measured(responses: Vec<Scripted>) -> (Result<(String, u64), Error>, Script) {
        let script = Script { responses: Mutex::new(responses.into()), asked: Mutex::default(), stops_at: 9 };
        (measure(&script, "a", "http://a/b", &[]), script)
    }

    #[test]
    fn a_download_without_an_etag_restarts() {
        let length = ("Content-Length", "8");
        let (found, script) = measured(vec![response(200, &[length], "old-"), response(200, &[length], "new-new-")]);
        assert_eq!(found.unwrap(), (hex::encode(Sha256::digest("new-new-")), 8));
        assert_eq!(*script.asked.lock().unwrap(), [vec![], vec![]], "no range is requested");
    }

    #[test]
    fn a_download_with_an_etag_resumes() {
        let rest = [("content-range", "bytes 4-7/8"), ("etag", "\"1\"")];
        let (found, script) = measured(vec![
            response(200, &[("content-length", "8"), ("etag", "\"1\"")], "new-"),
            response(206, &rest, "new-"),
        ]);
        assert_eq!(found.unwrap(), (hex::encode(Sha256::digest("new-new-")), 8));
        let range = vec![("range", "bytes=4-".to_owned()), ("if-range", "\"1\"".to_owned())];
        assert_eq!(script.asked.lock().unwrap()[1], range);
    }

    #[test]
    fn a_caller_that_stops_is_not_asked_again() {
        let (found, script) = measured(vec![response(200, &[], "nine bytes")]);
        assert!(matches!(found, Err(Error::Stopped)));
        assert_eq!(script.asked.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_refusal_is_final() {
        let (found, _) = measured(vec![response(403, &[], "")]);
        let error = found.unwrap_err().to_string();
        assert_eq!(error, "weights: a: the server returned 403; if it needs a token, set HF_TOKEN (hf:// only)");
    }
}
