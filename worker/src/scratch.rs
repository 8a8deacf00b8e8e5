//! This worker's scratch space: a folder of its own, removed when it leaves, and when it died, by the next worker.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use tempfile::TempDir;

use crate::sandbox::Sandbox;

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

/// An endpoint's folders: one that its runners write, and one in which each job has a folder with its input's files.
pub(crate) struct EndpointFolder {
    folder: TempDir,
    /// The user that its runners run as, where that is not the worker's.
    pub(crate) uid: Option<u32>,
}

impl EndpointFolder {
    /// Makes them below a worker's.
    pub(crate) fn new(scratch: &Path, uid: Option<u32>) -> io::Result<Self> {
        let this = Self { folder: tempfile::Builder::new().prefix("endpoint-").tempdir_in(scratch)?, uid };
        fs::create_dir(this.inputs())?;
        fs::create_dir(this.work())?;
        Sandbox::hand_over(&this.work(), uid)?;
        Ok(this)
    }

    /// What its runners write: their homes, and what their runs make.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Where each run has a folder with the files of its input. Handlers write in theirs, and make no others.
    pub(crate) fn inputs(&self) -> PathBuf {
        self.folder.path().join("inputs")
    }

    /// Gives a run's input files to the user that its runner runs as. Until then nobody but the worker could reach them: the folder that
    /// they lie in goes last.
    pub(crate) fn hand_over(&self, inputs: &Path) -> io::Result<()> {
        if self.uid.is_none() {
            return Ok(());
        }
        for entry in fs::read_dir(inputs)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.hand_over(&entry.path())?;
            } else {
                Sandbox::hand_over(&entry.path(), self.uid)?;
            }
        }
        Sandbox::hand_over(inputs, self.uid)
    }

    /// A home for one runner.
    pub(crate) fn home(&self) -> io::Result<TempDir> {
        let home = tempfile::Builder::new().prefix("home-").tempdir_in(self.work())?;
        Sandbox::hand_over(home.path(), self.uid)?;
        Ok(home)
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

/// Opens a regular file below a run's folder without following a link, whatever whoever can write there makes of the names meanwhile. The
/// run's folder and the one that it is in are written by a handler; what lies above is not.
///
/// # Errors
/// `InvalidInput` for what is elsewhere, or is no regular file.
pub(crate) fn open_below(run: &Path, path: &Path) -> io::Result<File> {
    let elsewhere = || io::Error::new(io::ErrorKind::InvalidInput, "it lies elsewhere");
    let trusted = run.parent().and_then(Path::parent).ok_or_else(elsewhere)?;
    // The runner knows the folder by what its links lead to.
    let real = fs::canonicalize(trusted)?;
    let run = run.strip_prefix(trusted).map_err(|_| elsewhere())?;
    let below = path.strip_prefix(trusted).or_else(|_| path.strip_prefix(&real)).map_err(|_| elsewhere())?;
    if !below.starts_with(run) {
        return Err(elsewhere());
    }
    let mut at = OwnedFd::from(File::open(&real)?);
    let mut names = below.components().peekable();
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else { return Err(elsewhere()) };
        let kind = if names.peek().is_some() { OFlag::O_DIRECTORY } else { OFlag::O_NONBLOCK };
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | kind;
        at = openat(&at, name, flags, Mode::empty())?;
    }
    let file = File::from(at);
    if file.metadata()?.is_file() { Ok(file) } else { Err(elsewhere()) }
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
    fn only_a_regular_file_of_the_run_is_opened_and_no_link_is_followed() {
        let endpoint = tempfile::tempdir().unwrap();
        let work = endpoint.path().join("work");
        let run = work.join("run-1");
        fs::create_dir_all(run.join("deep")).unwrap();
        fs::write(run.join("deep/a.txt"), "mine").unwrap();
        fs::write(endpoint.path().join("secret"), "not").unwrap();
        fs::create_dir(work.join("run-2")).unwrap();
        fs::write(work.join("run-2/b.txt"), "another run's").unwrap();
        std::os::unix::fs::symlink(endpoint.path(), run.join("out")).unwrap();
        std::os::unix::fs::symlink(endpoint.path().join("secret"), run.join("link")).unwrap();
        std::os::unix::fs::symlink(endpoint.path(), work.join("run-3")).unwrap();
        let opens = |run: &str, path: &Path| open_below(&work.join(run), path).is_ok();
        assert!(opens("run-1", &run.join("deep/a.txt")));
        for elsewhere in ["out/secret", "link", "deep", "../run-2/b.txt", "../../secret", ""] {
            assert!(!opens("run-1", &run.join(elsewhere)), "{elsewhere}");
        }
        assert!(!opens("run-3", &work.join("run-3/secret")));
        assert!(!opens("run-1", Path::new("/etc/passwd")));
        nix::unistd::mkfifo(&run.join("pipe"), Mode::S_IRWXU).unwrap();
        assert!(!opens("run-1", &run.join("pipe")));
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
