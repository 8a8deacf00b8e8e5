//! Complete environments, and the shared locks that keep them.

use std::fs::FileTimes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::lock::{self, LockedFile};
use super::{BUILD_LIMIT, Error, Inner, Phase, Wanted};

/// A complete environment. It is not deleted while this value, or a clone of it, exists.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Path of its interpreter.
    pub python: PathBuf,
    /// Folder of the environment.
    pub folder: PathBuf,
    /// Hash that names it.
    pub hash: String,
    /// Folders of the base Python installation.
    pub(crate) base: Vec<PathBuf>,
    /// Interpreter of the environment that contains only the runner.
    pub(crate) ours: PathBuf,
    _in_use: Arc<InUse>,
    _ours_in_use: Arc<InUse>,
}

/// The shared lock. The modification time of its file is the environment's last use.
#[derive(Debug)]
pub(super) struct InUse(pub(super) LockedFile);

impl InUse {
    pub(super) fn touch(&self) {
        // A failure affects only the order of eviction.
        let _ = self.0.set_times(FileTimes::new().set_modified(SystemTime::now()));
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.touch();
    }
}

impl Inner {
    /// The environment, if it exists. Waits for a running build.
    pub(super) async fn ready(
        &self,
        wanted: &Wanted<'_>,
        progress: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Option<Environment>, Error> {
        let hash = &wanted.hash;
        let lock_file = self.store.lock_file(hash);
        let at_once = lock::try_shared(&lock_file).map_err(Error::io(format!("lock {}", lock_file.display())))?;
        let lock = match at_once {
            Some(lock) => lock,
            None => {
                progress(Phase::Waiting);
                lock::shared(&lock_file, BUILD_LIMIT).await?
            }
        };
        if !self.store.is_usable(hash) {
            return Ok(None);
        }
        let in_use = Arc::new(InUse(lock));
        in_use.touch();
        let folder = self.store.environment(hash);
        let python = folder.join("bin").join("python");
        let (ours, ours_in_use) = match wanted.ours {
            Some(ours) => (ours.python.clone(), Arc::clone(&ours._in_use)),
            None => (python.clone(), Arc::clone(&in_use)),
        };
        ours_in_use.touch();
        Ok(Some(Environment {
            python,
            folder,
            hash: hash.clone(),
            base: wanted.interpreter.base.clone(),
            ours,
            _in_use: in_use,
            _ours_in_use: ours_in_use,
        }))
    }
}
