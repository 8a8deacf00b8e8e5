//! The scratch space of this worker: a separate folder that is deleted when the worker exits, or by the next worker if
//! it crashed.

mod home;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, fchown};
use tempfile::TempDir;

pub(crate) use home::Home;
use home::remove_dead_links;

/// Locked by the worker that owns the folder; the kernel releases the lock when the worker exits.
const LOCK: &str = ".lock";

/// A worker's folder below `<data>/scratch`.
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Creates a folder, and deletes those of crashed workers. Blocks on the disk.
    pub(crate) fn open(data_dir: &Path) -> io::Result<Self> {
        let all = data_dir.join("scratch");
        fs::create_dir_all(&all)?;
        // A folder that is being created has no lock yet and must not be taken for a crashed worker's.
        let making = lock_file(&all)?;
        making.lock()?;
        for entry in fs::read_dir(&all)?.flatten().filter(|entry| entry.path().is_dir()) {
            let dead = lock_file(&entry.path()).is_ok_and(|lock| lock.try_lock().is_ok());
            if dead && let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, path = %entry.path().display(), "cannot remove the scratch space of a worker that has exited");
            }
        }
        remove_dead_links(&all);
        let folder = passable(tempfile::Builder::new().prefix("worker-")).tempdir_in(&all)?;
        let lock = lock_file(folder.path())?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

/// The folders of an endpoint. Handlers can change two of them at will, so nothing is created, written or given away
/// there by its path. Files are completed in a third folder, which handlers cannot access, and then moved into place.
pub(crate) struct EndpointFolder {
    folder: TempDir,
    staging: OwnedFd,
    work: OwnedFd,
    inputs: OwnedFd,
    /// The user of its runners, if it is not the worker's.
    pub(crate) uid: Option<u32>,
}

impl EndpointFolder {
    /// Creates the folders below a worker's scratch space.
    pub(crate) fn new(scratch: &Path, uid: Option<u32>) -> io::Result<Self> {
        let folder = passable(tempfile::Builder::new().prefix("endpoint-")).tempdir_in(scratch)?;
        let at = open_folder(AT_FDCWD, folder.path())?;
        let made = |name: &str, mode: u32| {
            mkdirat(&at, name, Mode::from_bits_truncate(mode))?;
            open_folder(&at, name)
        };
        let (staging, work, inputs) = (made("staging", 0o700)?, made("work", 0o700)?, made("inputs", 0o711)?);
        give(&work, uid)?;
        Ok(Self { folder, staging, work, inputs, uid })
    }

    /// Folder that its runners write to: their homes, and the files of runs.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Parent of the folders with the input files of runs. Handlers can write to these folders; if they run as a
    /// separate user, they cannot create others.
    pub(crate) fn inputs(&self) -> PathBuf {
        self.folder.path().join("inputs")
    }

    /// Creates a folder for the input files of a run.
    pub(crate) fn stage(&self) -> io::Result<Staged<'_>> {
        let name = format!("run-{}", unguessed());
        mkdirat(&self.staging, name.as_str(), Mode::S_IRWXU)?;
        Ok(Staged { folder: open_folder(&self.staging, name.as_str())?, endpoint: self, name, is_placed: false })
    }

    /// Creates a home for one runner.
    pub(crate) fn home(&self) -> io::Result<Home> {
        let name = format!("home-{}", unguessed());
        mkdirat(&self.staging, name.as_str(), Mode::S_IRWXU)?;
        give(&open_folder(&self.staging, name.as_str())?, self.uid)?;
        renameat(&self.staging, name.as_str(), &self.work, name.as_str())?;
        let path = self.work().join(name);
        Ok(Home::new(path, self.uid))
    }
}

/// The input files of a run while they are downloaded. Deleted on drop, unless placed.
pub(crate) struct Staged<'a> {
    endpoint: &'a EndpointFolder,
    name: String,
    folder: OwnedFd,
    is_placed: bool,
}

impl Staged<'_> {
    /// Final path.
    pub(crate) fn path(&self) -> PathBuf {
        self.endpoint.inputs().join(&self.name)
    }

    /// Creates a file that will belong to the handler's user.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::from_bits_truncate(0o644))?;
        give(&file, self.endpoint.uid)?;
        Ok(file.into())
    }

    /// Moves a file into a new folder under another name, because two inputs may have the same name.
    pub(crate) fn rename(&self, file: &str, folder: &str, name: &str) -> io::Result<()> {
        mkdirat(&self.folder, folder, Mode::S_IRWXU)?;
        let into = open_folder(&self.folder, folder)?;
        renameat(&self.folder, file, &into, name)?;
        give(&into, self.endpoint.uid)
    }

    /// Makes the runner's user the owner of the folder, and moves it into place. It is deleted when the returned value
    /// is dropped.
    pub(crate) fn place(mut self) -> io::Result<RunFolder> {
        give(&self.folder, self.endpoint.uid)?;
        let name = self.name.as_str();
        renameat(&self.endpoint.staging, name, &self.endpoint.inputs, name)?;
        self.is_placed = true;
        Ok(RunFolder { path: self.path() })
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            drop(RunFolder { path: self.endpoint.folder.path().join("staging").join(&self.name) });
        }
    }
}

/// A name that handlers cannot guess and create in advance.
fn unguessed() -> String {
    hex::encode(rand::random::<[u8; 8]>())
}

/// Opens a folder without following links.
fn open_folder(at: impl AsFd, name: &(impl NixPath + ?Sized)) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

/// Opens a folder below an open one without following links.
pub(crate) fn open_folder_below(folder: impl AsFd, below: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(&folder, below, how) {
        // A kernel before 5.6, or a container whose filter does not know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let top = open_folder(&folder, ".")?;
            below.components().try_fold(top, |at, name| open_folder(&at, name.as_os_str()))
        }
        opened => Ok(opened?),
    }
}

/// Makes this user the owner of an open file or folder.
fn give(opened: &OwnedFd, uid: Option<u32>) -> io::Result<()> {
    let Some(uid) = uid else { return Ok(()) };
    Ok(fchown(opened, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))?)
}

/// If handlers run as separate users, they must be able to pass through the worker's folder to theirs, but not list it.
fn passable<'a, 'b>(builder: &'a mut tempfile::Builder<'b, 'b>) -> &'a mut tempfile::Builder<'b, 'b> {
    if Uid::effective().is_root() { builder.permissions(fs::Permissions::from_mode(0o711)) } else { builder }
}

/// The folder of one run. It is created on first use; most runs never use it.
pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder of this run below a worker's scratch space.
    pub(crate) fn new(scratch: &Path, run: u64) -> Self {
        Self { path: scratch.join(format!("run-{run}")) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // One system call if it is missing or empty; large folders are deleted on another thread.
        if fs::remove_dir(&self.path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            let path = std::mem::take(&mut self.path);
            tokio::task::spawn_blocking(move || {
                if let Err(error) = fs::remove_dir_all(&path) {
                    tracing::warn!(%error, path = %path.display(), "cannot remove the folder of a run");
                }
            });
        }
    }
}

/// Opens a regular file below a run's folder without following links, even if a handler changes names concurrently.
/// Handlers can write to the run's folder and its parent, but not above.
///
/// # Errors
/// `InvalidInput` if the path is outside the folder or not a regular file.
pub(crate) fn open_below(run: &Path, path: &Path) -> io::Result<File> {
    let elsewhere = || io::Error::new(io::ErrorKind::InvalidInput, "it is outside the folder of the run");
    let trusted = run.parent().and_then(Path::parent).ok_or_else(elsewhere)?;
    // The runner uses the path with links resolved.
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

    fn entries(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn swap_for_a_link(folder: &Path, target: &Path) {
        fs::rename(folder, folder.with_extension("aside")).unwrap();
        std::os::unix::fs::symlink(target, folder).unwrap();
    }

    #[tokio::test]
    async fn what_handlers_make_of_their_folders_leads_no_file_out() {
        let (scratch, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let endpoint = EndpointFolder::new(scratch.path(), None).unwrap();
        let staged = endpoint.stage().unwrap();
        drop(staged.create("file_1").unwrap());
        staged.rename("file_1", "file_1.d", "name.txt").unwrap();
        assert!(
            entries(&endpoint.inputs()).is_empty() && entries(&endpoint.work()).is_empty(),
            "not before it is whole"
        );
        swap_for_a_link(&endpoint.inputs(), elsewhere.path());
        swap_for_a_link(&endpoint.work(), elsewhere.path());
        let name = staged.path().file_name().unwrap().to_owned();
        let placed = staged.place().unwrap();
        let home = endpoint.home().unwrap();
        assert!(entries(elsewhere.path()).is_empty());
        assert!(endpoint.inputs().with_extension("aside").join(name).join("file_1.d/name.txt").exists());
        assert_eq!(entries(&endpoint.work().with_extension("aside")).len(), 1);
        drop((placed, home));
    }

    #[tokio::test]
    async fn a_name_that_is_taken_is_not_written_through_and_what_is_not_placed_goes() {
        let scratch = tempfile::tempdir().unwrap();
        let endpoint = EndpointFolder::new(scratch.path(), None).unwrap();
        let staging = endpoint.folder.path().join("staging");
        let staged = endpoint.stage().unwrap();
        let link = entries(&staging)[0].join("file_1");
        std::os::unix::fs::symlink(scratch.path().join("written"), link).unwrap();
        assert!(staged.create("file_1").is_err());
        assert!(!scratch.path().join("written").exists());
        drop(staged);
        while !entries(&staging).is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// As root: which files belong to a handler, and which do not.
    #[tokio::test]
    async fn only_its_own_folders_are_given_to_a_handlers_user() {
        use std::os::unix::fs::MetadataExt as _;
        if !Uid::effective().is_root() {
            return;
        }
        const HANDLER: u32 = 50_123;
        let scratch = tempfile::tempdir().unwrap();
        let endpoint = EndpointFolder::new(scratch.path(), Some(HANDLER)).unwrap();
        let staged = endpoint.stage().unwrap();
        drop(staged.create("file_1").unwrap());
        staged.rename("file_1", "file_1.d", "name.txt").unwrap();
        let run = staged.path();
        let (placed, home) = (staged.place().unwrap(), endpoint.home().unwrap());
        let owner = |path: &Path| (path.metadata().unwrap().uid(), path.metadata().unwrap().mode() & 0o777);
        for (path, mode) in [(run.clone(), 0o700), (run.join("file_1.d"), 0o700), (home.path().to_owned(), 0o700)] {
            assert_eq!(owner(&path), (HANDLER, mode), "{}", path.display());
        }
        assert_eq!(owner(&run.join("file_1.d/name.txt")).0, HANDLER);
        assert_eq!(owner(&endpoint.work()), (HANDLER, 0o700));
        for (folder, mode) in [(endpoint.inputs(), 0o711), (endpoint.folder.path().join("staging"), 0o700)] {
            assert_eq!(owner(&folder), (0, mode), "{}", folder.display());
        }
        drop((placed, home));
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
