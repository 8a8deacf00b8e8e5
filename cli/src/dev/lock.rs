//! A lock that allows one `stoke dev` per data directory.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// An exclusive lock on a data directory. The kernel releases it when the process exits.
pub(super) struct DataLock(File);

impl DataLock {
    /// Takes the lock, or fails with the process id of its holder.
    pub(super) fn take(data: &Path) -> Result<Self> {
        let path = data.join("lock");
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                bail!(
                    "{} is in use by another `stoke dev` (process {}); stop that process, or use another --data folder",
                    data.display(),
                    holder.trim()
                )
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self(file))
    }
}

impl Drop for DataLock {
    fn drop(&mut self) {
        // A child process that is being started has a copy of the file, so closing it does not release the lock at once.
        let _ = self.0.unlock();
    }
}

/// Creates the data directory with access for this user only. Returns its canonical path.
pub(super) fn make_private(data: &Path) -> Result<std::path::PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(data).and_then(|()| fs::canonicalize(data));
    made.with_context(|| format!("cannot create the data directory {}", data.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_second_one_is_told_who_has_it() {
        let data = tempfile::tempdir().unwrap();
        let first = DataLock::take(data.path()).unwrap();
        let error = DataLock::take(data.path()).err().unwrap().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        assert!(DataLock::take(data.path()).is_ok());
    }
}
