//! File locks between processes. The kernel releases those of a dead process, so no lock is ever stale.

use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::Error;

/// Interval of attempts to get a lock. Waiting in the kernel would leave a thread behind if the caller is cancelled.
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// A locked file. The lock is released on drop.
///
/// Closing the file would not release it at once: a child process that is being started has a copy of the file until it
/// executes its program.
#[derive(Debug)]
pub(crate) struct LockedFile(File);

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // If this fails, closing the file releases the lock.
        let _ = self.0.unlock();
    }
}

/// Waits for an exclusive lock.
pub(crate) async fn exclusive(path: &Path, limit: Duration) -> Result<LockedFile, Error> {
    wait(path, limit, try_exclusive).await
}

/// Waits for an exclusive lock to create something that `is_made` detects. `None` if another process has created it:
/// its users then share the lock for as long as they use it, so it may never become free.
pub(crate) async fn to_make(
    path: &Path,
    limit: Duration,
    is_made: impl Fn() -> bool,
) -> Result<Option<LockedFile>, Error> {
    let waiting = async {
        while !is_made() {
            if let Some(file) = try_exclusive(path).map_err(Error::io(format!("lock {}", path.display())))? {
                // Another process may have created it in the meantime.
                return Ok((!is_made()).then_some(file));
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
        Ok(None)
    };
    let waited = tokio::time::timeout(limit, waiting).await;
    waited.unwrap_or_else(|_| Err(Error::Locked { path: path.to_owned(), limit }))
}

/// Waits for a shared lock.
pub(crate) async fn shared(path: &Path, limit: Duration) -> Result<LockedFile, Error> {
    wait(path, limit, try_shared).await
}

/// A shared lock, if no process holds it exclusively.
pub(crate) fn try_shared(path: &Path) -> std::io::Result<Option<LockedFile>> {
    attempt(path, File::try_lock_shared)
}

/// An exclusive lock, if it is free.
pub(crate) fn try_exclusive(path: &Path) -> std::io::Result<Option<LockedFile>> {
    attempt(path, File::try_lock)
}

async fn wait(
    path: &Path,
    limit: Duration,
    once: fn(&Path) -> std::io::Result<Option<LockedFile>>,
) -> Result<LockedFile, Error> {
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

fn attempt(path: &Path, lock: fn(&File) -> Result<(), TryLockError>) -> std::io::Result<Option<LockedFile>> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    match lock(&file) {
        Ok(()) => {
            let locked = LockedFile(file);
            // The lock file was removed together with the environment, between opening and locking it.
            Ok((locked.metadata()?.nlink() > 0).then_some(locked))
        }
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_dropped_lock_is_free_although_there_is_a_copy_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("thing.lock");
        let locked = try_exclusive(&path).unwrap().unwrap();
        let _copy = locked.try_clone().unwrap();
        assert!(try_exclusive(&path).unwrap().is_none());
        drop(locked);
        assert!(try_exclusive(&path).unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_to_make_what_another_makes_does_not_wait_for_its_users() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("thing.lock");
        let is_made = AtomicBool::new(false);
        let making = try_exclusive(&path).unwrap().unwrap();
        let making_and_using = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            is_made.store(true, Ordering::Relaxed);
            making.lock_shared().unwrap();
        };
        let (waited, ()) = tokio::join!(to_make(&path, LIMIT, || is_made.load(Ordering::Relaxed)), making_and_using);
        assert!(waited.unwrap().is_none());
        assert!(matches!(to_make(&path, LIMIT, || false).await, Err(Error::Locked { .. })), "it is in use");
        drop(making);
        assert!(to_make(&path, LIMIT, || false).await.unwrap().is_some());
    }
}
