//! Deletes what dead processes left behind: abandoned downloads and incomplete folders of links.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{PARTIAL, Store, remove};
use crate::environment::lock;

/// Downloads that were not resumed for this long are deleted when a worker starts.
const PARTIAL_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A folder of links that is still incomplete after this time was left by a dead process.
const SET_MAKING_MAX: Duration = Duration::from_secs(3600);

impl Store {
    pub(super) fn sweep(&self) -> io::Result<()> {
        for (name, entry) in self.entries()? {
            let paths = self.paths(&name);
            let unused = entry.used.and_then(|used| used.elapsed().ok());
            let is_old = unused.is_some_and(|unused| unused > PARTIAL_KEPT) || entry.bytes == 0;
            // If the lock is taken, the download is running.
            if (paths.link.exists() || (is_old && !paths.blob.exists()))
                && let Some(_lock) = lock::try_exclusive(&paths.lock)?
            {
                remove(&paths.link)?;
                if is_old && !paths.blob.exists() {
                    tracing::info!(weights.name = name, "removing an abandoned download");
                    paths.remove()?;
                }
            }
        }
        for set in fs::read_dir(self.folder.join("sets"))?.flatten() {
            let is_stale = if set.file_name().to_string_lossy().starts_with(PARTIAL) {
                let age = set.metadata().and_then(|set| set.modified()).ok().and_then(|made| made.elapsed().ok());
                age.is_some_and(|age| age > SET_MAKING_MAX)
            } else {
                !leads_to_blobs(&set.path())
            };
            if is_stale {
                fs::remove_dir_all(set.path())?;
            }
        }
        Ok(())
    }
}

/// Whether all links of a set refer to existing blobs; those of a set in use always do.
fn leads_to_blobs(set: &Path) -> bool {
    let mut folders = vec![set.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(items) = fs::read_dir(&folder) else { return false };
        for item in items.flatten() {
            match item.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(item.path()),
                Ok(_) if item.path().exists() => {}
                _ => return false,
            }
        }
    }
    true
}
