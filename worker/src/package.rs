//! Endpoint packages: the author's folder, fetched once by its hash and unpacked for runners to start in.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::read::GzDecoder;
use futures::StreamExt;
use rand::Rng;
use reqwest::StatusCode;
use sha2::{Digest, Sha256};
use tar::{Archive, Entry, EntryType};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::environment::Turns;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const FETCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

const TRIES: u32 = 3;
const WAIT_MIN: Duration = Duration::from_millis(200);

/// An unpacked package. Code and small assets: weights have a place of their own.
const LIMITS: Limits = Limits { entries: 100_000, bytes: 4 * 1024 * 1024 * 1024 };

/// Packages unused for this long are removed when a worker starts. Far longer than a runner stays loaded without a job.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Starts the names of what is being fetched and unpacked.
const PARTIAL: &str = ".partial-";

/// Left-overs younger than this may belong to another process that is still at work.
const PARTIAL_KEPT: Duration = Duration::from_secs(3600);

struct Limits {
    entries: usize,
    bytes: u64,
}

/// Why a package is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0:?} is not a SHA-256")]
    Name(String),
    #[error("the package cannot be fetched: {0}")]
    Fetch(String),
    #[error("the store refused the package: {0}")]
    Refused(StatusCode),
    #[error("the package is not the one that was deployed: expected {expected}, got {got}; deploy it again")]
    Differs { expected: String, got: String },
    #[error("the package cannot be unpacked: {0}; deploy it again")]
    Unpack(String),
    #[error("no room for the package")]
    Io(#[from] io::Error),
}

impl Error {
    /// What was deployed is not a package: it would fail everywhere and always.
    pub(crate) fn is_the_deployers(&self) -> bool {
        matches!(self, Self::Differs { .. } | Self::Unpack(_))
    }

    /// Another try may end differently.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Fetch(_))
    }
}

/// The packages of this machine.
pub(crate) struct Packages {
    folder: PathBuf,
    http: reqwest::Client,
    turns: Turns,
}

impl Packages {
    /// Opens `<dir>/packages`, removing what has long been unused. Blocks on the disk.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let folder = std::path::absolute(dir)?.join("packages");
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)?.flatten() {
            let kept = if entry.file_name().to_string_lossy().starts_with(PARTIAL) { PARTIAL_KEPT } else { KEPT };
            let used = entry.metadata().and_then(|metadata| metadata.modified());
            let unused = used.ok().and_then(|used| used.elapsed().ok());
            if unused.is_some_and(|unused| unused > kept)
                && let Err(error) = fs::remove_dir_all(entry.path())
            {
                tracing::warn!(%error, path = %entry.path().display(), "an unused package could not be removed");
            }
        }
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(IDLE_TIMEOUT);
        let http = http.timeout(FETCH_TIMEOUT).build().map_err(|error| Error::Fetch(error.to_string()))?;
        Ok(Self { folder, http, turns: Turns::default() })
    }

    /// The folder of the unpacked package, fetched from `url` if it is not here yet.
    pub(crate) async fn get(&self, sha256: &str, size_bytes: u64, url: &str) -> Result<PathBuf, Error> {
        if sha256.len() != 64 || !sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Error::Name(sha256.chars().take(80).collect()));
        }
        let _turn = self.turns.take(sha256, || ()).await;
        let place = self.folder.join(sha256);
        if place.is_dir() {
            touch(&place);
            return Ok(place);
        }
        let scratch = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(&self.folder)?;
        let archive = scratch.path().join("package.tar.gz");
        self.fetch(sha256, size_bytes, url, &archive).await?;
        let published = tokio::task::spawn_blocking(move || {
            let content = scratch.path().join("content");
            unpack(File::open(&archive)?, &content, &LIMITS)?;
            publish(&scratch, &content, &place).map(|()| place)
        });
        published.await.unwrap_or_else(|error| Err(Error::Io(io::Error::other(error))))
    }

    async fn fetch(&self, sha256: &str, size_bytes: u64, url: &str, into: &Path) -> Result<(), Error> {
        let mut wait = WAIT_MIN;
        for left in (0..TRIES).rev() {
            match self.fetch_once(sha256, size_bytes, url, into).await {
                Err(error) if left > 0 && error.is_passing() => {
                    tracing::debug!(%error, package.sha256 = sha256, "trying again");
                    let jittered = wait.mul_f64(rand::rng().random_range(0.5..1.0));
                    tokio::time::sleep(jittered).await;
                    wait *= 2;
                }
                outcome => return outcome,
            }
        }
        Ok(())
    }

    async fn fetch_once(&self, sha256: &str, size_bytes: u64, url: &str, into: &Path) -> Result<(), Error> {
        // A presigned URL is a secret.
        let passing = |error: reqwest::Error| Error::Fetch(chain(&error.without_url()));
        let answer = self.http.get(url).send().await.map_err(passing)?;
        let status = answer.status();
        if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT && status != StatusCode::TOO_MANY_REQUESTS
        {
            return Err(Error::Refused(status));
        }
        if !status.is_success() {
            return Err(Error::Fetch(format!("the store answered {status}")));
        }
        let differs = |got: String, expected: String| Err(Error::Differs { expected, got });
        let (mut file, mut hash, mut got_bytes) = (tokio::fs::File::create(into).await?, Sha256::new(), 0);
        let mut body = answer.bytes_stream();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(passing)?;
            got_bytes += piece.len() as u64;
            if got_bytes > size_bytes {
                return differs("more".to_owned(), format!("{size_bytes} bytes"));
            }
            hash.update(&piece);
            file.write_all(&piece).await?;
        }
        file.flush().await?;
        if got_bytes < size_bytes {
            return differs(format!("{got_bytes}"), format!("{size_bytes} bytes"));
        }
        let got = hex::encode(hash.finalize());
        if got == sha256 { Ok(()) } else { differs(got, sha256.to_owned()) }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// When it was last used: its folder's time of change. Only the order of removal suffers if it fails.
fn touch(place: &Path) {
    let now = FileTimes::new().set_modified(SystemTime::now());
    if let Err(error) = File::open(place).and_then(|folder| folder.set_times(now)) {
        tracing::debug!(%error, "the use of a package was not noted");
    }
}

/// Moves the unpacked folder into place, whole.
fn publish(scratch: &TempDir, content: &Path, place: &Path) -> Result<(), Error> {
    // A power cut must not leave a package under its name with half its files.
    #[cfg(target_os = "linux")]
    nix::unistd::syncfs(File::open(content)?).map_err(io::Error::from)?;
    match fs::rename(content, place) {
        Ok(()) => Ok(File::open(scratch.path().parent().unwrap_or(place))?.sync_all()?),
        // Another process was first: the same bytes.
        Err(_) if place.is_dir() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Unpacks a `.tar.gz` into the new folder `into`. Whatever could reach outside of it, or is not a file, a folder or a link, is
/// refused, not skipped: a package is ours to make, so an odd one was tampered with.
fn unpack(archive: impl Read, into: &Path, limits: &Limits) -> Result<(), Error> {
    let bad = |error: io::Error| Error::Unpack(chain(&error));
    fs::create_dir(into)?;
    // Bounds what is read however it is packed: contents, headers and padding, which are at most 3 KiB an entry for the names
    // that a file system takes.
    let bytes_max = limits.bytes + 3 * 1024 * limits.entries as u64;
    let mut archive = Archive::new(GzDecoder::new(archive).take(bytes_max));
    archive.set_overwrite(false);
    let (mut entries, mut bytes) = (0, 0);
    for entry in archive.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        entries += 1;
        bytes += entry.size();
        if entries > limits.entries {
            return Err(Error::Unpack(format!("more than {} entries", limits.entries)));
        }
        if bytes > limits.bytes {
            return Err(Error::Unpack(format!("more than {} bytes", limits.bytes)));
        }
        check(&entry)?;
        if !entry.unpack_in(into).map_err(bad)? {
            return Err(Error::Unpack("an entry leads outside of it".to_owned()));
        }
        protect(&entry, into).map_err(bad)?;
    }
    Ok(())
}

fn check(entry: &Entry<'_, impl Read>) -> Result<(), Error> {
    let bad = |error: io::Error| Error::Unpack(chain(&error));
    let path = entry.path().map_err(bad)?;
    let refuse = |why: &str| Err(Error::Unpack(format!("{} {why}", path.display())));
    if depth(Path::new(""), &path).is_none() {
        return refuse("leads outside of it");
    }
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous | EntryType::Directory => Ok(()),
        kind @ (EntryType::Symlink | EntryType::Link) => {
            let Some(target) = entry.link_name().map_err(bad)? else { return refuse("is a link to nothing") };
            // A symbolic link counts from its own folder, a hard link from the top.
            let from = if kind == EntryType::Symlink { path.parent().unwrap_or(Path::new("")) } else { Path::new("") };
            if depth(from, &target).is_none() { refuse("is a link that leads outside of it") } else { Ok(()) }
        }
        _ => refuse("is neither a file, a folder nor a link"),
    }
}

/// How many folders below the top `path` ends, seen from the folder `from`; `None` if it leaves the top on its way. Every `..`
/// that follows a name is refused as well: the name could be a link, and then `..` leads elsewhere than it seems.
fn depth(from: &Path, path: &Path) -> Option<usize> {
    let mut depth = from.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let mut named = false;
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(_) => (depth, named) = (depth + 1, true),
            Component::ParentDir if !named => depth = depth.checked_sub(1)?,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(depth)
}

/// Files cannot be written by runners, best effort: root is not held back. Folders stay writable, so that they can be removed.
fn protect(entry: &Entry<'_, impl Read>, into: &Path) -> io::Result<()> {
    if entry.header().entry_type().is_file() {
        let executable = entry.header().mode()? & 0o111 != 0;
        let path = into.join(entry.path()?);
        fs::set_permissions(path, Permissions::from_mode(if executable { 0o555 } else { 0o444 }))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "package/tests.rs"]
mod tests;
