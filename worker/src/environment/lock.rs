//! File locks between processes. The kernel drops a dead process's, so none is ever stale.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::Error;

/// How often a taken lock is tried again. Waiting inside the kernel instead would leave a thread behind when the caller goes away.
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// Waits for the lock that no one shares. It ends when the file is dropped.
pub(crate) async fn exclusive(path: &Path, limit: Duration) -> Result<File, Error> {
    wait(path, limit, try_exclusive).await
}

/// Waits for a lock that others may share.
pub(crate) async fn shared(path: &Path, limit: Duration) -> Result<File, Error> {
    wait(path, limit, try_shared).await
}

/// A lock that others may share, if no one holds it alone.
pub(crate) fn try_shared(path: &Path) -> std::io::Result<Option<File>> {
    attempt(path, File::try_lock_shared)
}

/// The lock that no one shares, if it is free.
pub(crate) fn try_exclusive(path: &Path) -> std::io::Result<Option<File>> {
    attempt(path, File::try_lock)
}

async fn wait(path: &Path, limit: Duration, once: fn(&Path) -> std::io::Result<Option<File>>) -> Result<File, Error> {
    let waiting = async {
        loop {
            if let Some(file) = once(path).map_err(Error::io(format!("lock {}", path.display())))? {
                return Ok(file);
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    };
    let waited = tokio::time::timeout(limit, waiting).await;
    waited.unwrap_or_else(|_| Err(Error::Locked { path: path.to_owned(), limit }))
}

fn attempt(path: &Path, lock: fn(&File) -> Result<(), TryLockError>) -> std::io::Result<Option<File>> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    match lock(&file) {
        // Whoever removed the environment removed its lock file too, between our opening and locking it.
        Ok(()) if file.metadata()?.nlink() == 0 => Ok(None),
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
