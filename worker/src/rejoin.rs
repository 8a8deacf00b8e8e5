//! The token with which a rented instance's worker joins again. Its first join token is valid once, but the instance
//! may restart or its worker may crash: each join returns the next token, which is stored in the data directory.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::secret::Secret;
use parking_lot::Mutex;

const FILE: &str = "rejoin_token";

/// Longer than any token.
const BYTES_MAX: u64 = 4096;

/// The token, in memory and on the disk. Clones share it.
#[derive(Clone)]
pub(crate) struct Rejoin(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    token: Mutex<Option<Secret>>,
}

impl Rejoin {
    /// Reads the token that an earlier process stored in this folder, if any. Blocks on the disk.
    pub(crate) fn open(folder: &Path) -> Self {
        let token = read(&folder.join(FILE)).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the rejoin token; joining with the configured token");
            None
        });
        Self(Arc::new(Inner { folder: folder.to_owned(), token: Mutex::new(token) }))
    }

    /// The token, if any.
    pub(crate) fn token(&self) -> Option<Secret> {
        self.0.token.lock().clone()
    }

    /// Stores the next token. If writing fails, this process can still join again, but the next one cannot.
    pub(crate) async fn keep(&self, token: Secret) {
        *self.0.token.lock() = Some(token.clone());
        let folder = self.0.folder.clone();
        let written = tokio::task::spawn_blocking(move || write(&folder, &token)).await.map_err(io::Error::other);
        if let Err(error) = written.and_then(|written| written) {
            tracing::error!(%error, "cannot save the rejoin token");
        }
    }
}

fn read(path: &Path) -> io::Result<Option<Secret>> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, BYTES_MAX), &mut text)?;
    Ok(Some(text.trim()).filter(|text| !text.is_empty()).map(Secret::new))
}

/// Writes the token atomically and durably, readable only by its owner, as temporary files are.
fn write(folder: &Path, token: &Secret) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(token.expose().as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(folder.join(FILE))?;
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn what_one_life_keeps_the_next_one_finds_and_nobody_else_reads() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Rejoin::open(folder.path()).token().is_none());
        let rejoin = Rejoin::open(folder.path());
        for token in ["jt_one", "jt_two"] {
            rejoin.keep(Secret::new(token)).await;
            assert_eq!(rejoin.token().unwrap().expose(), token);
            assert_eq!(Rejoin::open(folder.path()).token().unwrap().expose(), token);
        }
        let mode = std::fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_does_not_cost_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let rejoin = Rejoin::open(&folder.path().join("gone"));
        rejoin.keep(Secret::new("jt_one")).await;
        assert_eq!(rejoin.token().unwrap().expose(), "jt_one");
    }
}
