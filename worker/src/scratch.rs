//! This worker's scratch space: a folder of its own, removed when it leaves, and when it died, by the next worker.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Held by the worker that owns a folder; the kernel lets go of it when that worker is gone, however it went.
const LOCK: &str = ".lock";

/// A worker's folder below `<data>/scratch`.
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes one, and removes those of workers that died. Blocks on the disk.
    pub(crate) fn open(data_dir: &Path) -> io::Result<Self> {
        let all = data_dir.join("scratch");
        fs::create_dir_all(&all)?;
        // A folder that is being made has no lock yet, and must not be taken for a dead one.
        let making = lock_file(&all)?;
        making.lock()?;
        for entry in fs::read_dir(&all)?.flatten().filter(|entry| entry.path().is_dir()) {
            let dead = lock_file(&entry.path()).is_ok_and(|lock| lock.try_lock().is_ok());
            if dead && let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, path = %entry.path().display(), "a dead worker's scratch space could not be removed");
            }
        }
        let folder = tempfile::Builder::new().prefix("worker-").tempdir_in(&all)?;
        let lock = lock_file(folder.path())?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

/// The folder of one run. It is made by whoever first puts something there: most runs never do.
pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder of this run below a worker's.
    pub(crate) fn new(scratch: &Path, run: u64) -> Self {
        Self { path: scratch.join(format!("run-{run}")) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // One call where there is nothing, or nothing in it; large files are another thread's work.
        if fs::remove_dir(&self.path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            let path = std::mem::take(&mut self.path);
            tokio::task::spawn_blocking(move || {
                if let Err(error) = fs::remove_dir_all(&path) {
                    tracing::warn!(%error, path = %path.display(), "a run's folder could not be removed");
                }
            });
        }
    }
}

fn lock_file(folder: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(false).open(folder.join(LOCK))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_runs_folder_goes_with_the_run_if_it_was_made() {
        let data = tempfile::tempdir().unwrap();
        drop(RunFolder::new(data.path(), 1));
        let folder = RunFolder::new(data.path(), 2);
        let path = folder.path().to_owned();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("picture.png"), b"...").unwrap();
        drop(folder);
        while path.exists() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_dead_workers_folder_goes_and_a_live_ones_stays() {
        let data = tempfile::tempdir().unwrap();
        let dead = data.path().join("scratch").join("worker-dead");
        fs::create_dir_all(dead.join("run-1")).unwrap();
        let live = Scratch::open(data.path()).unwrap();
        assert!(!dead.exists());
        let other = Scratch::open(data.path()).unwrap();
        assert!(live.path().exists());
        let path = other.path();
        drop(other);
        assert!(!path.exists());
    }
}
